"""What the setting `never_slower` costs in the first hundred calls of small functions, where calls of Python count most.

    OMP_NUM_THREADS=1 python benchmarks/never_slower_cost.py

Each function is compiled anew, in turns with the setting and without, and called a hundred times: processor seconds of the calls behind the first
(which compiles), the median of rounds. Kernels are there already, choices are not kept.
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


def calls(made: Callable[..., Any], x: torch.Tensor, train: bool) -> float:
    """Processor seconds of 99 calls."""
    with torch.set_grad_enabled(train):
        start = 0.0
        for i in range(100):
            if i == 1:
                start = time.process_time()
            y = made(x)
            if train:
                y.sum().backward()
    return time.process_time() - start


def main() -> None:
    """Print a row for each function."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    mlp = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(64, 64), nn.GELU())))
    programs: dict[str, tuple[Callable[..., Any], torch.Tensor, bool]] = {
        "x.sin() + 1, 16 numbers": (lambda x: x.sin() + 1, torch.randn(16), False),
        "8 pointwise operations, 4096 numbers": (
            lambda x: (x.sin() * 2 + x.tanh()).relu() - x.exp().sqrt(), torch.randn(4096), False
        ),
        "MLP of 4 layers, 64 rows of 64": (mlp, torch.randn(64, 64), False),
        "its training": (mlp, torch.randn(64, 64), True),
    }  # fmt: skip
    print("| program | us a call without | with | ratio | kept |\n|---|---|---|---|---|")
    for name, (f, x, train) in programs.items():
        spent: dict[str, list[float]] = {"off": [], "on": []}
        kept = ""
        for _ in range(rounds):
            for setting, seconds in spent.items():
                with torchjit.config.patch(never_slower=setting, caches=setting == "off"):
                    made = torchjit.compile(f, isolate_recompiles=True)
                    seconds.append(calls(made, x, train))
                    found = compilation_of(made)
                    if setting == "on" and found is not None:
                        trial = found.specializations[0].trial
                        kept = "" if trial is None else str(trial.choice)
        off, on = (statistics.median(spent[setting]) / 99 * 1e6 for setting in ("off", "on"))
        print(f"| {name} | {off:.1f} | {on:.1f} | {on / off:.3f} | {kept} |", flush=True)


if __name__ == "__main__":
    main()
