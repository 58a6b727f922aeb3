"""What writing entries costs: processor seconds of storing, as a part of those of the compilation that is stored.

One process. Each round compiles a case in an empty cache folder, compilers' seconds included; storing is all that `torchjit_session.storing`
does behind a capture and behind a backward, refused tries as well: the minimum of the rounds. The compilation is that of the first round, in which
compilers run: a process keeps the kernels that it has loaded.

    OMP_NUM_THREADS=1 uv run --group models python benchmarks/storing_time.py [--cases blocks12 bert] [--phases infer train] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from warm_start import PHASES, build, tensors

CASES = ("pointwise", "blocks12", "bert")
MOST = 0.05
"""Of the compilation."""


def spent() -> float:
    """Processor seconds of this process and of the compilers that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Stopwatch:
    """Adds up what calls of a function take."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.seconds = function, 0.0

    def __call__(self, *args: Any) -> Any:
        start = time.process_time()
        try:
            return self.function(*args)
        finally:
            self.seconds += time.process_time() - start


def step(f: Any, inputs: dict[str, Any], phase: str) -> None:
    """A call, in training with its backward."""
    import torch

    with torch.set_grad_enabled(phase == "train"):
        out = f(**inputs)
    if phase == "train":
        sum(t.float().square().mean() for t in tensors(out)).backward()


def measure(case: str, phase: str) -> tuple[float, float]:
    """Seconds of storing, and of the compilation without it."""
    import torch

    import torchjit
    from torchjit_session import storing

    f, inputs = build(case, small=False)
    if isinstance(f, torch.nn.Module):
        f.train(phase == "train")
    elif phase == "train":
        inputs = {name: t.requires_grad_() for name, t in inputs.items()}
    torchjit.reset()
    step(f, inputs, phase)  # eager: libraries start
    stopwatch = Stopwatch(storing.Unstored.store)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHJIT_CACHE_DIR"] = folder
        original = storing.Unstored.store
        storing.Unstored.store = lambda *args: stopwatch(*args)  # type: ignore[method-assign, assignment]
        try:
            compiled = torchjit.compile(f)
            start = spent()
            step(compiled, inputs, phase)
            first = spent() - start
            start = spent()
            step(compiled, inputs, phase)
            second = spent() - start
        finally:
            storing.Unstored.store = original  # type: ignore[method-assign]
    return stopwatch.seconds, first - second - stopwatch.seconds


def main() -> int:
    """Print a line for each case; 1 where storing takes more than it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--phases", nargs="+", default=list(PHASES), choices=PHASES)
    parser.add_argument("--rounds", type=int, default=3)
    o = parser.parse_args()
    os.environ["TORCHJIT_STORE"] = "on"
    print("| case | phase | storing, s | compilation, s | part |\n|---|---|---|---|---|")
    missed = False
    for case in o.cases:
        for phase in o.phases:
            rounds = [measure(case, phase) for _ in range(o.rounds)]
            storing, compilation = min(seconds for seconds, _ in rounds), rounds[0][1]
            missed = missed or storing > MOST * compilation
            print(f"| {case} | {phase} | {storing:.3f} | {compilation:.2f} | {storing / compilation:.1%} |", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
