"""What the setting `never_slower` costs in the first hundred calls of small functions, where calls of Python count most.

    OMP_NUM_THREADS=1 python benchmarks/never_slower_cost.py

Each function is compiled anew, in turns with the setting and without, and called a hundred times: processor seconds of the calls behind the first
(which compiles), the median of rounds. Kernels are there already, choices are not kept. Sizes that vary take turns: 3 classes of them.

The second table: a call under a backend that runs nothing, once all is decided for compiled code; least of batches in turns.
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
from torchjit_session.callables import compilation_of


def calls(made: Callable[..., Any], inputs: list[torch.Tensor], train: bool) -> float:
    """Processor seconds of 99 calls, with the inputs in turns."""
    with torch.set_grad_enabled(train):
        start = 0.0
        for i in range(100):
            if i == 1:
                start = time.process_time()
            y = made(inputs[i % len(inputs)])
            if train:
                y.sum().backward()
    return time.process_time() - start


def null_backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Runs nothing: its result is the same each time."""
    out = gm(*example_inputs)
    return lambda *inputs: out


def steady(dynamic: bool) -> tuple[float, float]:
    """Microseconds of a call, without the setting and with it, once compiled code was kept: eager code is made to lose."""
    x = torch.randn(512, 512)
    made = []
    for setting in ("off", "on"):
        with torchjit.config.patch(never_slower=setting, caches=False):
            f = torchjit.compile(
                lambda x: x.exp().log(), backend=null_backend, dynamic=dynamic, isolate_recompiles=True
            )
            for _ in range(20):
                f(x)
        made.append(f)
    best = [float("inf")] * 2
    for _ in range(400):
        for i, f in enumerate(made):
            start = time.perf_counter()
            for _ in range(200):
                f(x)
            best[i] = min(best[i], (time.perf_counter() - start) / 200 * 1e6)
    found = compilation_of(made[1])
    if found is None or [c.kept for s in found.specializations for c in s.trials.choices] != ["compiled"]:
        raise RuntimeError("compiled code was not kept")
    return best[0], best[1]


def main() -> None:
    """Print a row for each function."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    mlp = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(64, 64), nn.GELU())))

    def pointwise(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 2 + x.tanh()).relu() - x.exp().sqrt()

    sizes = (300, 1000, 4000)
    programs: dict[str, tuple[Callable[..., Any], list[torch.Tensor], bool]] = {
        "x.sin() + 1, 16 numbers": (lambda x: x.sin() + 1, [torch.randn(16)], False),
        "8 pointwise operations, 4096 numbers": (pointwise, [torch.randn(4096)], False),
        "the same, 300, 1000, 4000 numbers": (pointwise, [torch.randn(n) for n in sizes], False),
        "MLP of 4 layers, 64 rows of 64": (mlp, [torch.randn(64, 64)], False),
        "its training": (mlp, [torch.randn(64, 64)], True),
        "the same, 16, 64, 200 rows": (mlp, [torch.randn(n, 64) for n in (16, 64, 200)], True),
    }
    print("| program | us a call without | with | ratio | kept |\n|---|---|---|---|---|")
    for name, (f, inputs, train) in programs.items():
        spent: dict[str, list[float]] = {"off": [], "on": []}
        kept = ""
        for _ in range(rounds):
            for setting, seconds in spent.items():
                with torchjit.config.patch(never_slower=setting, caches=setting == "off"):
                    made = torchjit.compile(f, isolate_recompiles=True, dynamic=len(inputs) > 1)
                    seconds.append(calls(made, inputs, train))
                    found = compilation_of(made)
                    if setting == "on" and found is not None:
                        trials = found.specializations[0].trials
                        kept = "" if trials is None else "; ".join(map(str, trials.choices))
        off, on = (statistics.median(spent[setting]) / 99 * 1e6 for setting in ("off", "on"))
        print(f"| {name} | {off:.1f} | {on:.1f} | {on / off:.3f} | {kept} |", flush=True)
    print("\n| sizes | us a call without | with, decided | ratio |\n|---|---|---|---|")
    for dynamic in (False, True):
        off, on = steady(dynamic)
        print(f"| {'vary' if dynamic else 'fixed'} | {off:.2f} | {on:.2f} | {on / off:.3f} |", flush=True)


if __name__ == "__main__":
    main()
