"""Memory-bound functions on CPU threads: torchjit beside torch.compile and eager.

    python benchmarks/cpu_kernels.py [--only transpose ...] [--no-torch] [--threads 2]           # 27 functions, of kernel_functions.py
    python benchmarks/cpu_kernels.py --operators [--training] --no-torch [--times 1 64]          # operators and chains that people use

The minimum of interleaved runs: with one thread its processor time, so that other load on the machine changes little, with more threads
wall time. The second form measures the list of `cpu_operator_list.py` with batches as they are and `--times` as large, forward alone or with
the backward; what is under `--floor` of eager's speed is measured again, and named at the end.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import torchjit
from cpu_operator_list import operators
from kernel_functions import functions

Run = Callable[..., Any]


def best_times(runs: dict[str, Run], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
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


def _trained(call: Run, inputs: tuple[Any, ...]) -> Any:
    """Forward, backward; the gradients of the floats among the inputs."""
    given = [x.detach().requires_grad_() if torch.is_tensor(x) and x.dtype.is_floating_point else x for x in inputs]
    result = call(*given)
    result = result[0] if isinstance(result, tuple) else result
    result.backward(torch.ones_like(result))
    return [x.grad for x in given if torch.is_tensor(x) and x.requires_grad]


def _programs(options: argparse.Namespace) -> Iterator[tuple[str, Run, tuple[Any, ...]]]:
    """Name, function, inputs; with a seed."""
    if not options.operators:
        for name, (fn, make) in functions().items():
            torch.manual_seed(0)
            yield name, fn, make()
        return
    for name, operator in operators().items():
        for times in options.times:
            if operator.trains or not options.training:
                torch.manual_seed(0)
                yield f"{name} x{times}", operator.function, operator.make(times)


def _measured(name: str, fn: Run, inputs: tuple[Any, ...], options: argparse.Namespace) -> dict[str, float]:
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    torchjit.reset()
    calls: dict[str, Run] = {"eager": fn, "torchjit": torchjit.compile(fn)}
    if not options.no_torch:
        torch._dynamo.reset()
        calls["torch"] = torch.compile(fn)
    runs = {k: partial(_trained, c, inputs) if options.training else partial(c, *inputs) for k, c in calls.items()}
    with torch.set_grad_enabled(options.training):
        start = time.perf_counter()
        runs["eager"]()
        rounds = max(5, min(options.rounds, int(2 / (time.perf_counter() - start))))
        best = best_times(runs, rounds, clock)
        if best["eager"] < options.floor * best["torchjit"]:  # what others did to the machine, or so
            again = best_times(runs, 2 * rounds, clock)
            best = {k: min(best[k], again[k]) for k in best}
    return best


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--operators", action="store_true")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--times", type=int, nargs="*", default=[1, 64])
    parser.add_argument("--floor", type=float, default=0.95)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found: dict[str, tuple[float, float]] = {}
    print(
        "| kernel | eager ms | torch.compile ms | torchjit ms | eager / torchjit | torch.compile / torchjit |\n|---|---|---|---|---|---|"
    )
    for name, fn, inputs in _programs(options):
        if options.only and not any(part in name for part in options.only):
            continue
        try:
            best = _measured(name, fn, inputs, options)
        except Exception as error:
            print(f"| {name} | {type(error).__name__}: {str(error)[:200]} |", flush=True)
            continue
        other = best.get("torch", math.nan)
        found[name] = (best["eager"] / best["torchjit"], other / best["torchjit"])
        times = " | ".join(f"{seconds * 1e3:.3f}" for seconds in (best["eager"], other, best["torchjit"]))
        print(f"| {name} | {times} | {found[name][0]:.2f} | {found[name][1]:.2f} |", flush=True)
    for which, label in enumerate(("eager", "torch.compile")):
        ratios = [pair[which] for pair in found.values()]
        print(f"geomean of {label}'s speed {math.exp(sum(map(math.log, ratios)) / max(len(ratios), 1)):.2f}")
    slow = {name: eager for name, (eager, _) in found.items() if eager < options.floor}
    print(f"under {options.floor} of eager: {len(slow)} of {len(found)}")
    for name, ratio in sorted(slow.items(), key=lambda item: item[1]):
        print(f"  {ratio:.2f} {name}")


if __name__ == "__main__":
    main()
