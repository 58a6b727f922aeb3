"""Compile a function, differentiate through it, and look at what was made."""

import argparse

import torch

import torchjit


@torchjit.compile
def gelu_norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Three operations on the same elements: compiled, one kernel."""
    y = torch.nn.functional.gelu(x) * scale
    return y / y.norm(dim=-1, keepdim=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="small tensors")
    rows = 8 if parser.parse_args().small else 4096

    x, scale = torch.randn(rows, 256, requires_grad=True), torch.rand(256, requires_grad=True)
    y = gelu_norm(x, scale)  # the first call compiles; later ones run what was made
    y.sum().backward()  # the backward is compiled as well

    plain = gelu_norm.__wrapped__  # the function as it was written
    torch.testing.assert_close(y, plain(x, scale))
    print("forward as eager's; gradient of scale:", tuple(scale.grad.shape))

    told = gelu_norm.compiled.stats
    print(told)
    assert told.graph_count == 1 and told.graph_break_count == 0


if __name__ == "__main__":
    main()
