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
import functools
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from inductor_fuzz import check, describe

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


@contextlib.contextmanager
def _workers(jobs: int, folder: str) -> Iterator[Callable[[Iterable[int]], Iterable[tuple[int, str, str]]]]:
    """A function from numbers to results, as they come."""
    if jobs == 1:
        _start(folder)
        yield functools.partial(map, _run)
        return
    # Fresh workers now and then: a process keeps the kernels that it has loaded.
    with multiprocessing.get_context("spawn").Pool(jobs, _start, (folder,), maxtasksperchild=2000) as pool:
        yield functools.partial(pool.imap_unordered, _run)


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
        with _workers(options.jobs, folder) as results:
            for done, (number, word, text) in enumerate(results(numbers), 1):
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
