"""Seconds that capture takes: from a first call to its end, with a backend that only takes the graph.

The graph is not run (a constant of the output's shape is returned), so that the figure is capture alone. torch.compile and
torchjit in one process, in turns, on fresh models of the same shape; medians after a first round.

    uv run python benchmarks/capture_time.py
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import torchjit
from torchjit.demo.models import GPT

RESULT = (torch.zeros(2, 128, 1024),)


def graph_backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Take the graph."""
    assert len(gm.graph.nodes) > 100
    return lambda *inputs: RESULT


def first_call(compiler: Callable[..., Any], layers: int, tokens: torch.Tensor, grad: bool) -> float:
    """Wall seconds of a first call."""
    torch.compiler.reset()
    torchjit.reset()
    model = GPT(layers=layers)
    f = compiler(model, backend=graph_backend)
    with torch.set_grad_enabled(grad):
        start = time.perf_counter()
        f(tokens)
        return time.perf_counter() - start


def main() -> None:
    """Print a row per depth and grad mode."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", nargs="+", type=int, default=[12])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    tokens = torch.randint(0, 1024, (2, 128))
    print("| layers | grad | torch.compile s | torchjit s | ratio |\n|---|---|---|---|---|")
    for layers in options.layers:
        for grad in (False, True):
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(options.rounds + 1):
                for kept, compiler in zip(times, (torch.compile, torchjit.compile), strict=True):
                    kept.append(first_call(compiler, layers, tokens, grad))
            a, b = (statistics.median(t[1:]) for t in times)
            print(f"| {layers} | {grad} | {a:.3f} | {b:.3f} | {b / a:.3f} |", flush=True)


if __name__ == "__main__":
    main()
