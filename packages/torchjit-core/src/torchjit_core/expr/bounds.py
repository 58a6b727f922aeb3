"""Closed integer intervals."""

from __future__ import annotations

import math
from typing import final

import attrs

__all__ = ["ZERO", "Bounds"]


@final
@attrs.frozen
class Bounds:
    """A closed integer interval; None is unbounded."""

    lower: int | None = None
    upper: int | None = None

    def __contains__(self, value: int) -> bool:
        return (self.lower is None or self.lower <= value) and (self.upper is None or value <= self.upper)

    def __add__(self, other: Bounds) -> Bounds:
        return Bounds(_add(self.lower, other.lower), _add(self.upper, other.upper))

    def __mul__(self, other: Bounds) -> Bounds:
        if self == ZERO or other == ZERO:
            return ZERO
        lower, upper = self._corners(other)
        return Bounds(lower, upper)

    def _corners(self, other: Bounds) -> tuple[int | None, int | None]:
        corners = [
            _corner(x, first, y, second)
            for x, first in ((self.lower, True), (self.upper, False))
            for y, second in ((other.lower, True), (other.upper, False))
        ]
        low, high = min(corners), max(corners)
        return (None if low == -math.inf else int(low), None if high == math.inf else int(high))

    def power(self, exponent: int) -> Bounds:
        """The interval of x ** exponent, exponent >= 1 (tighter than repeated products for even powers)."""
        result = self
        for _ in range(exponent - 1):
            result = result * self
        if exponent % 2 == 0 and (result.lower is None or result.lower < 0):
            result = Bounds(0, result.upper)
        return result

    def __floordiv__(self, other: Bounds) -> Bounds:
        """Of x // y; unbounded where y may be less than 1."""
        if other.lower is None or other.lower <= 0:
            return Bounds()
        lower: int | None = None
        if self.lower is not None:
            by = other.lower if self.lower < 0 else other.upper
            lower = self.lower // by if by is not None else 0
        upper: int | None = None
        if self.upper is not None:
            by = other.upper if self.upper < 0 else other.lower
            upper = self.upper // by if by is not None else -1
        return Bounds(lower, upper)

    def __mod__(self, other: Bounds) -> Bounds:
        """Of x % y; unbounded where y may be less than 1."""
        if other.lower is None or other.lower <= 0:
            return Bounds()
        upper = None if other.upper is None else other.upper - 1
        if self.lower is not None and self.lower >= 0 and self.upper is not None:
            upper = self.upper if upper is None else min(upper, self.upper)
        return Bounds(0, upper)

    def maximum(self, other: Bounds) -> Bounds:
        """Of max(x, y)."""
        lows = [b.lower for b in (self, other) if b.lower is not None]
        upper = None if self.upper is None or other.upper is None else max(self.upper, other.upper)
        return Bounds(max(lows) if lows else None, upper)

    def minimum(self, other: Bounds) -> Bounds:
        """Of min(x, y)."""
        highs = [b.upper for b in (self, other) if b.upper is not None]
        lower = None if self.lower is None or other.lower is None else min(self.lower, other.lower)
        return Bounds(lower, min(highs) if highs else None)

    def intersect(self, other: Bounds) -> Bounds:
        """The overlap. Both must contain the value, so it is never empty for consistent facts."""
        lows = [b.lower for b in (self, other) if b.lower is not None]
        highs = [b.upper for b in (self, other) if b.upper is not None]
        return Bounds(max(lows) if lows else None, min(highs) if highs else None)


def _add(x: int | None, y: int | None) -> int | None:
    return None if x is None or y is None else x + y


def _corner(x: int | None, x_is_lower: bool, y: int | None, y_is_lower: bool) -> float | int:
    """x * y with None standing for minus infinity at a lower end and plus infinity at an upper one; 0 * inf is 0."""
    if x == 0 or y == 0:
        return 0
    if x is not None and y is not None:
        return x * y
    sign_x = (x > 0) - (x < 0) if x is not None else (-1 if x_is_lower else 1)
    sign_y = (y > 0) - (y < 0) if y is not None else (-1 if y_is_lower else 1)
    return math.inf if sign_x * sign_y > 0 else -math.inf


ZERO = Bounds(0, 0)
