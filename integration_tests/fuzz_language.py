"""Random programs of the language over tensors, compiled and plain: results, exceptions with lines, changed objects, order of effects.

    uv run python integration_tests/fuzz_language.py FIRST_SEED COUNT

The programs are those of `packages/torchjit-vm/benchmarks/fuzz.py`. Prints every one that does something else.
"""

# mypy: no-warn-return-any

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path

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
    on_error = "eager" if "except*" in source else "raise"  # a function with one is left to Python
    compiled = torchjit.compile(other.names["program"], backend="eager", dynamic=dynamic, on_error=on_error)
    for call in range(_CALLS):
        want = plain.call(plain.names["program"], call, _leaf, fuzz.show, True)
        got = other.call(compiled, call, _leaf, fuzz.show, True)
        if want[0] != got[0]:
            return fuzz.explain(call, want[0], got[0])
        if want[1] != got[1]:
            return f"call {call}: traceback\n  want {want[1]}\n  got  {got[1]}"
    return None


def told(source: str, name: str) -> str | None:
    """What differs, or the error that the compiler itself raised."""
    torchjit.reset()
    return fuzz.told(lambda: difference(source, name), 30)


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
