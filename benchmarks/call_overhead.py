"""Microseconds that a compiled callable adds to each call: guards and dispatch, the graph's work left out.

N blocks of (Linear, GELU, LayerNorm) under a backend that runs nothing; torch.compile and torchjit in one process, in turns.

    uv run python benchmarks/call_overhead.py --layers 1 12 80
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import torchjit


def null_backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Compute the outputs once and return them for ever."""
    with torch.no_grad():
        out = gm(*example_inputs)
    return lambda *inputs: out


def microseconds(f: Callable[..., Any], x: torch.Tensor, rounds: int) -> list[float]:
    """Time per call of `rounds` batches of 200 calls."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(200):
            f(x)
        times.append((time.perf_counter_ns() - start) / 200 / 1e3)
    return times


def main() -> None:
    """Print a row per depth."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", nargs="+", type=int, default=[1, 12, 80])
    options = parser.parse_args()
    print("| blocks | torch.compile us | torchjit us | ratio |\n|---|---|---|---|")
    for layers in options.layers:
        blocks = [nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)) for _ in range(layers)]
        module = nn.Sequential(*blocks).eval()
        x = torch.randn(4, 16)
        torch.compiler.reset()
        torchjit.reset()
        theirs, ours = torch.compile(module, backend=null_backend), torchjit.compile(module, backend=null_backend)
        times: tuple[list[float], list[float]] = ([], [])
        with torch.no_grad():
            for _ in range(10):
                for kept, f in zip(times, (theirs, ours), strict=True):
                    kept += microseconds(f, x, 2)
        a, b = (statistics.median(t[2:]) for t in times)
        print(f"| {layers} | {a:.2f} | {b:.2f} | {b / a:.3f} |", flush=True)


if __name__ == "__main__":
    main()
