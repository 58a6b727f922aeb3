"""Steps of training and requests of inference in the libraries' own programs: eager PyTorch, torchjit and torch.compile in one process, in turns.

The programs are those of integration_tests/libraries. Processor time of this process and of the compilers that it starts is measured, so
other programs of the machine do not count; of requests that wait for a server the time by the clock. Kernels of earlier runs are taken from the
cache unless TORCHJIT_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR name new folders.

    uv run --with accelerate --with lightning ... python benchmarks/library_programs.py [--only TEXT ...] [--steps 50] [--upstream]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration_tests"))

import libraries.answering
import libraries.training  # noqa: F401
import torch
from libraries.recording import PROGRAMS, Outcome, outcome_of


def measured(name: str, how: str, steps: int) -> Outcome | None:
    """None where the program raised, which is told."""
    try:
        return outcome_of(PROGRAMS[name], how, steps)
    except Exception:  # whatever a library raises: the other programs are measured all the same
        traceback.print_exc()
        return None


def told(found: Outcome | None, eager: Outcome) -> str:
    if found is None:
        return "raised"
    text = f"{found.first:.2f}, {found.step * 1e3:.2f}, {eager.step / found.step:.2f}"
    waited = found.latencies
    return text + (
        f"; p50 {waited[len(waited) // 2] * 1e3:.1f}, p99 {waited[-1 - len(waited) // 100] * 1e3:.1f}" if waited else ""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of names")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--upstream", action="store_true", help="torch.compile, too")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("Of each: seconds of the first step, milliseconds of a later one, speed to eager's.\n")
    print("| program | eager | torchjit | graphs, breaks | torch.compile |\n|---|---|---|---|---|", flush=True)
    for name, program in PROGRAMS.items():
        if not any(text in name for text in args.only) or not all(map(importlib.util.find_spec, program.packages)):
            continue
        eager = measured(name, "eager", args.steps)
        if eager is None:
            continue
        ours = measured(name, "torchjit", args.steps)
        counts = "" if ours is None else f"{ours.graphs}, {sum(ours.breaks.values())}"
        theirs = told(measured(name, "upstream", args.steps), eager) if args.upstream else ""
        print(f"| {name} | {told(eager, eager)} | {told(ours, eager)} | {counts} | {theirs} |", flush=True)


if __name__ == "__main__":
    main()
