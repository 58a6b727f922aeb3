"""Two backends of one's own: one that counts and runs graphs, and a compiler that only knows functional graphs."""

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

import torchjit
import torchjit_aot

calls: Counter[str] = Counter()


@torchjit.register_backend(name="counting")
def counting(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """A backend takes a captured graph and returns what computes it."""
    calls.update(str(node.target) for node in gm.graph.nodes if node.op == "call_method")
    return gm.forward


def interpreter(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **about: Any) -> Callable[..., Any]:
    """A compiler of forward, backward and inference graphs: no mutation, no autograd, only ATen operators.

    This one runs them node by node; `about` says which kind of graph it is, which inputs never change, and a name.
    """
    print(f"{about['kind']} graph, {len(gm.graph.nodes)} nodes")
    return lambda *inputs: torch.fx.Interpreter(gm).run(*inputs)


@torchjit.register_backend(name="interpreter")
def interpreting(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """AOT autograd in front of the compiler."""
    return torchjit_aot.compile(gm, example_inputs, compiler=interpreter)


def step(x: torch.Tensor) -> torch.Tensor:
    """Writes to its input: the functional compiler does not get to see that."""
    x.add_(1)
    return x.sigmoid().sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a small tensor")
    rows = 4 if parser.parse_args().small else 1000
    for name in ("counting", "interpreter"):
        weight = torch.zeros(rows, requires_grad=True)
        x = weight * 2
        torchjit.compile(step, backend=name)(x).backward()
        torch.testing.assert_close(x, torch.ones(rows))  # the write is there
        torch.testing.assert_close(weight.grad, torch.full((rows,), 2 * 0.1966119))
        print(name, "agrees with eager")
    assert calls["sigmoid"] == 1
    assert {"counting", "interpreter"} <= set(torchjit.list_backends())


if __name__ == "__main__":
    main()
