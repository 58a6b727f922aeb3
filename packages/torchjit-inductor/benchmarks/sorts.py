"""Sorts of rows: eager, torchjit.compile, and with `--compile` torch.compile, in turns.

    python packages/torchjit-inductor/benchmarks/sorts.py [--device cuda] [--threads N] [--chain] [--dtypes float32 ...] [--compile] [--bound N]

A line for each shape: nanoseconds an element, least of `--rounds`, and eager's over torchjit's (above 1: torchjit is faster).
With `--chain` the rows that are sorted are computed before and changed after: `(x * w + b).sort(-1, descending=True)`, divided by
the sum of the row. `--bound N`: GPUs sort rows of up to N elements in registers (`lowering/sort.py` has the default), to find where
aten's sort is better; the first call's seconds, which are Triton's, stand at the end of the line.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import torchjit
from torchjit_inductor.lowering import sort as lowering

SHAPES = {
    "cpu": ((100000, 8), (20000, 64), (5000, 256), (1000, 1000), (30, 32768), (1, 1000), (1, 1 << 20)),
    "cuda": ((1 << 20, 8), (1 << 18, 64), (1 << 16, 256), (1 << 15, 512), (1 << 14, 1024), (1 << 13, 2048), (1 << 12, 4096), (128, 1024)),
}  # fmt: skip
"""Rows, and their length."""


def plain(x: torch.Tensor, w: torch.Tensor) -> Any:
    """Elements and positions."""
    return torch.sort(x, dim=-1, stable=True)


def chain(x: torch.Tensor, w: torch.Tensor) -> Any:
    """A sort with something before and behind it."""
    values, positions = torch.sort(x * w + 1, dim=-1, descending=True, stable=True)
    return values / values.sum(-1, keepdim=True), positions


def seconds(run: Callable[[], Any], device: str) -> float:
    """One call."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chain", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bound", type=int, default=lowering.MOST_ON_GPUS)
    parser.add_argument("--dtypes", nargs="*", default=["float32", "bfloat16", "int32", "int64", "float64"])
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    lowering.MOST_ON_GPUS = o.bound
    fn = chain if o.chain else plain
    for name in o.dtypes:
        dtype = getattr(torch, name)
        for shape in SHAPES[o.device]:
            x = torch.randn(shape, device=o.device)
            x = x.to(dtype) if dtype.is_floating_point else (x * 1e6).to(dtype)
            w = (torch.rand(shape[-1], device=o.device) + 1).to(dtype)
            runs = {"eager": fn, "torchjit": torchjit.compile(fn)}
            if o.compile:
                torch.compiler.reset()
                runs["torch.compile"] = torch.compile(fn)
            first = {label: seconds(partial(run, x, w), o.device) for label, run in runs.items()}
            best = dict.fromkeys(runs, float("inf"))
            for _ in range(o.rounds):
                for label, run in runs.items():
                    best[label] = min(best[label], seconds(partial(run, x, w), o.device))
            each = "   ".join(f"{label} {s / x.numel() * 1e9:8.3f}" for label, s in best.items())
            line = f"{name:9} {shape[0]:>8} x {shape[1]:<8} {each}   {best['eager'] / best['torchjit']:6.2f}   first {first['torchjit']:.2f} s"
            print(line, flush=True)


if __name__ == "__main__":
    main()
