"""A few values of all symbols, inside their ranges, which refute cheaply what does not hold for all values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

from torchjit_core.expr import Bounds, Expr, Symbol

__all__ = ["SamplePoints"]


@final
class SamplePoints:
    """Where `e` is larger than `f` at one of the points, no bounds can show that `e <= f`.

    The bounds of an expression with many terms take milliseconds, its values microseconds.
    """

    def __init__(self, bounds_of: Callable[[Symbol], Bounds]) -> None:
        self._bounds_of = bounds_of
        self._points: tuple[dict[Symbol, int], ...] = ({}, {}, {}, {})
        self._values: dict[Expr, tuple[int, ...] | None] = {}

    def refute(self, e: Expr, f: Expr) -> bool:
        """Is `e <= f` false for certain values of the symbols?"""
        ours, theirs = self._of(e), self._of(f)
        return ours is not None and theirs is not None and any(a > b for a, b in zip(ours, theirs, strict=True))

    def narrowed(self, symbol: Symbol) -> None:
        """The symbol's range is smaller now."""
        bounds = self._bounds_of(symbol)
        if any(symbol in point and point[symbol] not in bounds for point in self._points):
            for point in self._points:
                point.pop(symbol, None)
            self._values = {e: values for e, values in self._values.items() if symbol not in e.symbols}

    def _of(self, e: Expr) -> tuple[int, ...] | None:
        if e in self._values:
            return self._values[e]
        for symbol in e.symbols:
            if symbol not in self._points[0]:
                self._place(symbol)
        values = self._values[e] = _values(e, self._points)
        return values

    def _place(self, symbol: Symbol) -> None:
        """Small, large, and both ways small beside large; unlike other symbols', so that equal sizes refute too."""
        bounds, number = self._bounds_of(symbol), len(self._points[0])
        low = bounds.lower if bounds.lower is not None else min(0, bounds.upper or 0)
        high = low + 53 + 37 * number
        if bounds.upper is not None:
            high = max(low, min(high, bounds.upper))
        for point, value in zip(self._points, (low, high, *((low, high) if number % 2 else (high, low))), strict=True):
            point[symbol] = value


def _values(e: Expr, points: tuple[Mapping[Symbol, int], ...]) -> tuple[int, ...] | None:
    try:
        return tuple(e.evaluate(point) for point in points)
    except ZeroDivisionError:  # such a size would be an error; bounds say nothing of it either
        return None
