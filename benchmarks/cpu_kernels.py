"""The kernels of a list of memory-bound functions on one CPU thread: torchjit beside torch.compile and eager.

    python benchmarks/cpu_kernels.py [--only transpose ...] [--no-torch]

Processor time of one thread, the minimum of interleaved runs, so that other load on the machine changes little. Functions and
shapes are those of `kernel_functions.py`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import torchjit
from kernel_functions import functions


def best_times(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Processor seconds of each, interleaved."""
    best = dict.fromkeys(runs, math.inf)
    for k in range(rounds):
        for name, run in runs.items():
            start = time.thread_time()
            run()
            if k:
                best[name] = min(best[name], time.thread_time() - start)
    return best


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    torch.set_num_threads(1)
    ratios: list[float] = []
    print("| kernel | eager ms | torch.compile ms | torchjit ms | torch.compile / torchjit |\n|---|---|---|---|---|")
    for name, (fn, make) in functions().items():
        if options.only and not any(part in name for part in options.only):
            continue
        torch.manual_seed(0)
        inputs = make()
        calls: dict[str, Callable[..., Any]] = {"eager": fn, "torchjit": torchjit.compile(fn)}
        if not options.no_torch:
            torch._dynamo.reset()
            calls["torch"] = torch.compile(fn)
        with torch.no_grad():
            best = best_times({k: partial(c, *inputs) for k, c in calls.items()}, options.rounds)
        other = best.get("torch", math.nan)
        ratios.append(other / best["torchjit"])
        print(
            f"| {name} | {best['eager'] * 1e3:.2f} | {other * 1e3:.2f} | {best['torchjit'] * 1e3:.2f} | {ratios[-1]:.2f} |",
            flush=True,
        )
    print(f"geomean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")


if __name__ == "__main__":
    main()
