"""What the runtime wrapper costs per training step of a tiny graph, beside torch's AOT autograd.

    python packages/torchjit-aot/benchmarks/wrapper_overhead.py [--calls 2000] [--rounds 15]

Both sides get the same function and compilers that compile nothing: the "compiled" graphs return new tensors. What is left is the wrapper, the autograd engine, and the call of `backward`. The same step through a hand-written
`autograd.Function` is the floor; a wrapper's overhead is its time above that. Rounds are interleaved; minima are shown.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from functorch.compile import aot_function as torch_aot_function

import torchjit_aot
from torchjit_aot.api import _call_graph


def null(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
    """Returns new tensors and computes nothing."""
    values = [n.meta["val"] if n is not None else None for n in gm.graph.output_node().args[0]]  # type: ignore[union-attr]
    shapes = [tuple(v.shape) for v in values if isinstance(v, torch.Tensor)]

    def run(*args: Any) -> Any:
        return tuple([torch.empty(shape) for shape in shapes])

    def run_boxed(args: list[Any]) -> Any:
        args.clear()
        return tuple([torch.empty(shape) for shape in shapes])

    run.boxed = run_boxed  # type: ignore[attr-defined]
    return run


def boxed_null(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The same in the convention that torch's side calls fastest."""
    run = null(gm, example_inputs).boxed  # type: ignore[attr-defined]
    run._boxed_call = True
    return run  # type: ignore[no-any-return]


class Floor(torch.autograd.Function):
    """What is least: save two tensors, return new ones."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        return torch.empty(4)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        ctx.saved_tensors  # noqa: B018
        return torch.empty(4), torch.empty(4)


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x * w).sin()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--profile", action="store_true", help="profile our side only")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    x, w = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    tangent = torch.ones(4)
    ours = torchjit_aot.compile(_call_graph(f, 2), [x, w], compiler=null)
    theirs = torch_aot_function(f, fw_compiler=boxed_null, bw_compiler=boxed_null)
    compiled = torch.compile(f, backend=_torch_backend())
    sides: dict[str, Callable[..., Any]] = {
        "floor": Floor.apply,
        "torchjit": ours,
        "torch aot_function": theirs,
        "torch.compile": compiled,
    }

    def step(run: Callable[..., Any]) -> None:
        torch.autograd.grad(run(x, w), (x, w), tangent)

    best = {name: (float("inf"), float("inf")) for name in sides}
    for run in sides.values():
        step(run)
    if options.profile:
        for _ in range(options.calls * 10):
            step(ours)
        return
    for _ in range(options.rounds):
        for name, run in sides.items():
            start = time.perf_counter()
            for _ in range(options.calls):
                step(run)
            middle = time.perf_counter()
            for _ in range(options.calls):
                run(x, w)
            end = time.perf_counter()
            whole, forward = (middle - start) / options.calls, (end - middle) / options.calls
            best[name] = (min(best[name][0], whole), min(best[name][1], forward))
    floor = best["floor"]
    print("| side | forward us | forward + backward us | above the floor us |\n|---|---|---|---|")
    for name, (whole, forward) in best.items():
        print(f"| {name} | {forward * 1e6:.1f} | {whole * 1e6:.1f} | {(whole - floor[0]) * 1e6:.1f} |")
    for name in ("torch aot_function", "torch.compile"):
        ratio = (best["torchjit"][0] - floor[0]) / (best[name][0] - floor[0])
        print(f"overhead against {name}: {ratio:.2f}")


def _torch_backend() -> Any:
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(fw_compiler=boxed_null, bw_compiler=boxed_null)


if __name__ == "__main__":
    main()
