"""Random programs of the language against CPython: results, exceptions with chains and lines, changed objects, order of effects.

    python packages/torchjit-vm/benchmarks/fuzz.py --programs 1000 --seed 0 [--mode captured] [--reduce]

Prints each program that does something else, reduced to the lines that it takes.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import vm_language_fuzz as fuzz
import vm_language_programs as programs


def told(source: str, filename: str, mode: str) -> str | None:
    """What differs, or the error that capture itself raised."""
    return fuzz.told(lambda: fuzz.differs(source, filename, mode), 20)


def main() -> int:
    """Status 1 if something differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=22)
    parser.add_argument("--mode", choices=fuzz.MODES)
    parser.add_argument("--reduce", action="store_true")
    given = parser.parse_args()
    differing = 0
    for seed in range(given.seed, given.seed + given.programs):
        source = programs.write(seed, given.size)
        try:
            compile(source, "<program>", "exec")
        except SyntaxError as error:
            print(f"=== seed {seed}: {error} {error.text}", flush=True)
            continue
        for mode in (given.mode,) if given.mode else fuzz.MODES:
            found = told(source, f"<program {seed}>", mode)
            if found is None:
                continue
            differing += 1
            small = ""
            if given.reduce:
                small = fuzz.reduced(source, f"<program {seed}>", lambda text, name, mode=mode: told(text, name, mode))
                found = told(fuzz.head(source) + small, f"<program {seed}>", mode)
            print(f"=== seed {seed} {mode}\n{small}\n{found}", flush=True)
            break
    random.seed(given.seed)
    print(f"{given.programs} programs, {differing} differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
