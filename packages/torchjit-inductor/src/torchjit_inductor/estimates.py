"""What a symbolic size is worth at typical values of its symbols: for orders, costs and plans, where a wrong guess is not a wrong result."""

from __future__ import annotations

from collections.abc import Mapping

from torchjit_core.expr import Expr, Symbol

__all__ = ["TYPICAL", "estimate"]

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
