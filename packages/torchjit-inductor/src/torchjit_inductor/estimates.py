"""What a symbolic size is worth at typical values of its symbols: for orders, costs and plans, where a wrong guess is not a wrong result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from torchjit_core.expr import Expr, Symbol
from torchjit_inductor.ir.kernel import Buffer, LoopVar

__all__ = ["TYPICAL", "bytes_of", "estimate", "points"]

TYPICAL = 64
"""A size of which nothing is known."""
_ATTEMPTS = 4


def estimate(size: Expr, values: Mapping[Symbol, int], otherwise: int = TYPICAL) -> int:
    """The size with its symbols at these values, `otherwise` where there is none.

    Guessed values may be too small for it: of an image that is halved ten times nothing is left to divide by. Then larger ones are tried.
    """
    if size.value is not None:
        return size.value
    made = {s: values.get(s, otherwise) for s in size.symbols}
    for _ in range(_ATTEMPTS):
        try:
            return size.evaluate(made)
        except ZeroDivisionError:
            made = {s: max(n, 1) * TYPICAL for s, n in made.items()}
    return otherwise


def points(loops: Iterable[LoopVar], values: Mapping[Symbol, int], otherwise: int = TYPICAL) -> int:
    """`estimate` of how many points loops have together."""
    return math.prod(estimate(var.size, values, otherwise) for var in loops)


def bytes_of(buffer: Buffer, values: Mapping[Symbol, int]) -> int:
    """`estimate` of a buffer's elements, in bytes."""
    return math.prod(estimate(size, values) for size in buffer.sizes) * buffer.dtype.itemsize
