"""Random programs of the language over tensors, compiled and plain: results, exceptions with lines, changed objects, order of effects.

    uv run python integration_tests/fuzz_language.py FIRST_SEED COUNT

The programs are those of `packages/torchjit-vm/benchmarks/fuzz.py`. Prints every one that does something else.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

import torchjit

sys.path.insert(0, str(Path(__file__).parents[1] / "packages/torchjit-vm/tests"))
import vm_language_fuzz as fuzz
import vm_language_programs as programs

__all__ = ["difference"]

_CALLS = 6


def _leaf(value: float) -> torch.Tensor:
    return torch.tensor(float(value))


def difference(source: str, name: str) -> str | None:
    """What a compiled program does otherwise than Python; None if nothing."""
    plain, other = fuzz.World(source, name), fuzz.World(source, name + " compiled")
    dynamic = (None, True, False)[len(source) % 3]
    compiled = torchjit.compile(other.names["program"], backend="eager", dynamic=dynamic, on_error="raise")
    for call in range(_CALLS):
        want = plain.call(plain.names["program"], call, _leaf, fuzz.show, True)
        got = other.call(compiled, call, _leaf, fuzz.show, True)
        if want[0] != got[0]:
            return fuzz.explain(call, want[0], got[0])
        if want[1] != got[1]:
            return f"call {call}: traceback\n  want {want[1]}\n  got  {got[1]}"
    return None


class TooSlow(BaseException):
    """A program that takes longer than any should."""


def told(source: str, name: str) -> str | None:
    """What differs, or the error that the compiler itself raised."""

    def stop(*_: Any) -> None:
        raise TooSlow

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 30, 1)  # again and again: what a callback raises is lost
    torchjit.reset()
    try:
        return difference(source, name)
    except TooSlow:
        return "too slow"
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        return f"{type(error).__name__}: {str(error)[:300]}\n  " + "\n  ".join(
            f"{f.filename}:{f.lineno} {f.line}" for f in frames
        )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> int:
    """Status 1 if something differs."""
    warnings.simplefilter("ignore")
    first, count = map(int, sys.argv[1:3])
    differing = 0
    for seed in range(first, first + count):
        source = programs.write(seed)
        with contextlib.suppress(SyntaxError):
            compile(source, "<program>", "exec")
            found = told(source, f"<program {seed}>")
            if found is not None:
                differing += 1
                small = fuzz.reduced(source, f"<program {seed}>", told)
                print(f"=== seed {seed}\n{small}\n{told(fuzz.head(source) + small, f'<program {seed}>')}", flush=True)
    print(f"{count} programs, {differing} differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
