"""The kernels of a list of memory-bound functions on CPU threads: torchjit beside torch.compile and eager.

    python benchmarks/cpu_kernels.py [--only transpose ...] [--no-torch] [--threads 2]

The minimum of interleaved runs: with one thread its processor time, so that other load on the machine changes little, with more threads
wall time. Functions and shapes are those of `kernel_functions.py`.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import torchjit
from kernel_functions import functions


def best_times(runs: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Seconds of each, interleaved."""
    best = dict.fromkeys(runs, math.inf)
    names = list(runs)
    for k in range(rounds):
        # Each follows each of the others in turn: who runs after large temporaries were given back to the system pays for fresh pages.
        random.Random(k).shuffle(names)
        for name in names:
            start = clock()
            runs[name]()
            if k:
                best[name] = min(best[name], clock() - start)
    return best


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
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
            best = best_times({k: partial(c, *inputs) for k, c in calls.items()}, options.rounds, clock)
        other = best.get("torch", math.nan)
        ratios.append(other / best["torchjit"])
        print(
            f"| {name} | {best['eager'] * 1e3:.2f} | {other * 1e3:.2f} | {best['torchjit'] * 1e3:.2f} | {ratios[-1]:.2f} |",
            flush=True,
        )
    print(f"geomean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")


if __name__ == "__main__":
    main()
