"""Steps of training and requests of inference in the libraries' own programs: eager PyTorch, torchjit and torch.compile in one process, in turns.

The programs are those of integration_tests/libraries. Processor time of this process and of the compilers that it starts is measured, so
other programs of the machine do not count; of requests that wait for a server the time by the clock. Kernels of earlier runs are taken from the
cache unless TORCHJIT_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR name new folders.

    uv run --with accelerate --with lightning ... python benchmarks/library_programs.py [--only TEXT ...] [--steps 50] [--rounds 3] [--upstream]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration_tests"))

import attrs
import libraries.answering
import libraries.training  # noqa: F401
import torch
from libraries.recording import PROGRAMS, Outcome, Program, outcome_of


def measured(program: Program, how: str, steps: int) -> Outcome | None:
    """None where the program raised, which is told."""
    try:
        return outcome_of(program, how, steps)
    except Exception:  # whatever a library raises: the other programs are measured all the same
        traceback.print_exc()
        return None


def in_turns(program: Program, ways: Sequence[str], steps: int, rounds: int) -> dict[str, Outcome | None]:
    """Each way `rounds` times, one after the other: the first run's outcome, with the least time of a step of all its runs.

    A step of a few milliseconds takes a multiple of its time for seconds where others use the machine.
    """
    found = {how: measured(program, how, steps) for how in ways}
    for _ in range(rounds - 1):
        for how, first in found.items():
            again = measured(program, how, steps) if first is not None else None
            if first is not None and again is not None:
                found[how] = attrs.evolve(first, step=min(first.step, again.step))
    return found


def told(found: Outcome | None, eager: Outcome, tolerance: float) -> str:
    """The columns of one compiler; that values are not eager's is said behind them."""
    if found is None:
        return "raised | | |"
    counts = f"{found.graphs}, {sum(found.breaks.values())}, {found.recompiles}"
    return f"{rate(found)} | {eager.step / found.step:.2f} | {found.first:.2f} | {counts}{differs(found, eager, tolerance)}"


def rate(found: Outcome) -> str:
    """Steps, tokens or requests in a second; of a server how long its requests waited, too."""
    waited = [1e3 * seconds for seconds in found.latencies]
    late = f"; p50 {waited[len(waited) // 2]:.1f} ms, p99 {waited[-1 - len(waited) // 100]:.1f}" if waited else ""
    return f"{1 / found.step:.1f}{late}"


def differs(found: Outcome, eager: Outcome, tolerance: float) -> str:
    if len(found.values) != len(eager.values):
        return "; ends elsewhere"
    pairs = enumerate(zip(found.values, eager.values))
    wrong = [i for i, (got, right) in pairs if not torch.allclose(got, right, rtol=tolerance, atol=tolerance)]
    return f"; differs from step {wrong[0]} on" if wrong else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of names")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument(
        "--rounds", type=int, default=1, help="runs of each, in turns; a step's time is the least of them"
    )
    parser.add_argument("--upstream", action="store_true", help="torch.compile, too")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(
        "Of each compiler: steps a second, speed to eager's, seconds of the first step; graphs, breaks, recompilations.\n"
    )
    print("| program | eager | torchjit | | | | torch.compile | | | |\n" + "|---" * 10 + "|", flush=True)
    for name, program in PROGRAMS.items():
        if not any(text in name for text in args.only) or not all(map(importlib.util.find_spec, program.packages)):
            continue
        ways = ("eager", "torchjit", "upstream") if args.upstream else ("eager", "torchjit")
        found = in_turns(program, ways, args.steps, args.rounds)
        eager = found["eager"]
        if eager is None:
            continue
        ours = told(found["torchjit"], eager, program.tolerance)
        theirs = told(found["upstream"], eager, program.tolerance) if args.upstream else " | | |"
        print(f"| {name} | {rate(eager)} | {ours} | {theirs} |", flush=True)


if __name__ == "__main__":
    main()
