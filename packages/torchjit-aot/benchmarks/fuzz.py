"""Generated programs of views, in-place operators, sizes changed in place, inputs that share memory, no_grad regions, detach and
random numbers, against eager PyTorch.

    python packages/torchjit-aot/benchmarks/fuzz.py [--programs 20000] [--seed 0]

The programs and the comparison (outputs, aliasing, gradients, mutations, versions, the random generator) are those of
`tests/test_aot_fuzz.py`; here they come from a plain generator, so that a run is a number of programs and a seed.
Prints what became of them, and each failure with the program that reproduces it.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from test_aot_fuzz import KINDS, Step, check


def program(generator: random.Random) -> tuple[list[Step], list[int], int]:
    """A program as the tests' strategy draws it, longer now and then."""
    length = generator.randint(1, 9 if generator.random() < 0.8 else 16)
    steps = [(generator.choice(KINDS), *(generator.randint(0, 30) for _ in range(3))) for _ in range(length)]
    return steps, [generator.randint(0, 30) for _ in range(generator.randint(1, 4))], generator.randint(0, 15)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    generator = random.Random(options.seed)
    found: collections.Counter[str] = collections.Counter()
    start = time.perf_counter()
    for number in range(1, options.programs + 1):
        made = program(generator)
        try:
            found[check(made)] += 1
        except (Exception, AssertionError) as error:
            found["wrong"] += 1
            print(
                f"check({made!r})\n    {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}", flush=True
            )
        if number % 1000 == 0:
            print(number, dict(found), f"{time.perf_counter() - start:.0f} s", flush=True)
    print(dict(found), f"{time.perf_counter() - start:.0f} s")
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
