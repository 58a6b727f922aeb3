"""A custom operator, and a pass that puts it in the place of what the program wrote."""

import argparse

import torch
from torch import fx

import torchjit
from torchjit_aot import graph_pass


@torch.library.custom_op("example::scaled_tanh", mutates_args=())
def scaled_tanh(x: torch.Tensor, scale: float) -> torch.Tensor:
    """Opaque to the compiler: it is called as it is. Here it could be a kernel of your own."""
    return torch.tanh(x) * scale


@scaled_tanh.register_fake
def _(x: torch.Tensor, scale: float) -> torch.Tensor:
    """Shape and dtype of the result, for capture."""
    return torch.empty_like(x)


@graph_pass(id="example-scaled-tanh-1")  # the id tells caches that two compilations are alike
def use_scaled_tanh(graph: fx.Graph) -> None:
    """tanh(x) * number -> example::scaled_tanh(x, number), in the final graphs."""
    for product in graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor):
        tanh, scale = product.args
        if isinstance(scale, float) and isinstance(tanh, fx.Node) and tanh.target is torch.ops.aten.tanh.default:
            with graph.inserting_before(product):
                made = graph.call_function(torch.ops.example.scaled_tanh.default, (tanh.args[0], scale))
            made.meta = dict(product.meta)
            product.replace_all_uses_with(made)
            graph.erase_node(product)
            if not tanh.users:
                graph.erase_node(tanh)
            used.append(scale)


used: list[float] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a small tensor")
    x = torch.randn(8 if parser.parse_args().small else 1_000_000)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x + 1) * 3.0 - scaled_tanh(x, 2.0)  # one for the pass, one written out

    fast = torchjit.compile(f, fullgraph=True, options={"post_grad_custom_post_pass": use_scaled_tanh})
    torch.testing.assert_close(fast(x), f(x))
    assert used == [3.0], used
    print("the operator is in the graph, and the pass put it there once more; values as eager's")


if __name__ == "__main__":
    main()
