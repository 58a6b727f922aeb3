"""Generated graphs of the inductor's C backend against eager PyTorch in float64.

    python packages/torchjit-inductor/benchmarks/fuzz.py [--programs 20000] [--seed 0] [--jobs 16]

Program number n of seed s is always the same one, whatever the number of jobs. Each failure is printed with the command
that runs this program alone, and `--verbose` shows its graph and host program. The generator and the comparison
are in `tests/inductor_fuzz.py`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import attrs
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from inductor_fuzz import UNENDING, check, describe

PROGRAMS_OF_A_PROCESS = 2000
"""A process keeps the kernels that it has loaded."""

SECONDS_OF_A_PROGRAM = 300

_folder = ""


def _start(folder: str) -> None:
    global _folder  # workers get it once
    _folder = folder
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)


def _run(number: int) -> tuple[int, str, str]:
    """What became of a program: its number, a word, and for a failure a line about it."""
    try:
        found = check(number, _folder)
    except Exception as error:  # the sweep goes on
        text = str(error).strip().splitlines()
        return number, "raised", f"{type(error).__name__}: {text[0][:300] if text else ''}"
    return number, found.split(":")[0], found


def _work(connection: Connection, folder: str) -> None:
    """A process that runs the programs whose numbers it is sent."""
    _start(folder)
    with contextlib.suppress(EOFError):
        while True:
            connection.send(_run(connection.recv()))


@attrs.define(eq=False)
class _Worker:
    """A process of `_work`, and what it does now."""

    folder: str
    process: Any = attrs.field(init=False)
    connection: Connection = attrs.field(init=False)
    done: int = attrs.field(init=False)
    number: int | None = attrs.field(init=False)
    began: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A fresh process."""
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, self.folder), daemon=True)
        self.process.start()
        theirs.close()
        self.done, self.number, self.began = 0, None, 0.0

    def end(self) -> int | None:
        """Stop the process: its exit code."""
        self.process.kill()
        self.process.join()
        self.connection.close()
        return self.process.exitcode  # type: ignore[no-any-return]

    def give(self, number: int) -> None:
        """Let the process run this program."""
        if self.done >= PROGRAMS_OF_A_PROCESS or not self.process.is_alive():
            self.end()
            self.begin()
        self.connection.send(number)
        self.number, self.began = number, time.perf_counter()

    def result(self) -> tuple[int, str, str] | None:
        """What became of its program; None while that runs."""
        assert self.number is not None
        number = self.number
        if self.connection.poll():
            try:
                found: tuple[int, str, str] = self.connection.recv()
            except (EOFError, OSError):
                self.process.join(5)
                found = number, "raised", f"the process ended with {self.process.exitcode}"
                self.end()
                self.begin()
            self.done, self.number = PROGRAMS_OF_A_PROCESS if found[2] == UNENDING else self.done + 1, None
            return found
        if time.perf_counter() - self.began > SECONDS_OF_A_PROGRAM:
            self.end()
            self.begin()
            return number, "raised", f"not done in {SECONDS_OF_A_PROGRAM} s"
        return None


def _results(numbers: Iterable[int], jobs: int, folder: str) -> Iterator[tuple[int, str, str]]:
    """What became of the programs, as they end. A program that kills its process, or does not end, is a result."""
    if jobs == 1:
        _start(folder)
        yield from map(_run, numbers)
        return
    waiting = iter(numbers)
    workers = [_Worker(folder) for _ in range(jobs)]
    try:
        for worker in workers:
            if (number := next(waiting, None)) is not None:
                worker.give(number)
        while busy := [w for w in workers if w.number is not None]:
            wait([w.connection for w in busy], timeout=5)
            for worker in busy:
                if (found := worker.result()) is None:
                    continue
                if (number := next(waiting, None)) is not None:
                    worker.give(number)
                yield found
    finally:
        for worker in workers:
            worker.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first program, in millions")
    parser.add_argument("--only", type=int, help="run the program of this number alone and say everything")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print the graph of a failure as well")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found: collections.Counter[str] = collections.Counter()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        if options.only is not None:
            _start(folder)
            print(describe(options.only, folder))
            number, word, text = _run(options.only)
            print(text)
            sys.exit(word in ("wrong", "raised"))
        first = options.seed * 1_000_000
        numbers = range(first, first + options.programs)
        for done, (number, word, text) in enumerate(_results(numbers, options.jobs, folder), 1):
            found[word] += 1
            if word in ("wrong", "raised", "rounding"):
                print(f"fuzz.py --only {number}\n    {text}", flush=True)
                if options.verbose:
                    print(describe(number, folder), flush=True)
            if done % 500 == 0:
                print(done, dict(found), f"{time.perf_counter() - start:.0f} s", flush=True)
    print(dict(found), f"{time.perf_counter() - start:.0f} s")
    sys.exit(bool(found["wrong"] or found["raised"]))


if __name__ == "__main__":
    main()
