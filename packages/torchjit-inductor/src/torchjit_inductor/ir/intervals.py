"""Between which numbers a value lies, from the ranges of loops and of dtypes: what is surely a position needs no check."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Final, TypeAlias

import torch

from torchjit_inductor.ir.dtypes import is_float, is_int
from torchjit_inductor.ir.values import Value, walk

__all__ = ["Interval", "Intervals"]

Interval: TypeAlias = tuple[float, float]
"""Both ends belong to it, and may be infinite. A value that has one is never NaN."""

_ROUNDING: Final = 1e-6
"""How far an operation of float32 may be from the right result, relative to that, with room."""
_PLACES: Final = 2**62
"""No place in memory is further, however large sizes are that vary."""


class Intervals:
    """Intervals of values, each computed once."""

    def __init__(self) -> None:
        self._known: dict[Value, Interval | None] = {}

    def of(self, value: Value) -> Interval | None:
        """The interval of a value; None if it may be NaN, or is no number."""
        for node in walk(value):
            if node not in self._known:
                self._known[node] = self._widened(node)
        return self._known[value]

    def within(self, value: Value, low: float, high: float) -> bool:
        """Does the value lie between the two for certain?"""
        found = self.of(value)
        return found is not None and low <= found[0] and found[1] <= high

    def _widened(self, value: Value) -> Interval | None:
        found = self._found(value)
        if is_int(value.dtype):
            limits = torch.iinfo(value.dtype)
            # What may wrap around can be anything.
            fits = found is not None and limits.min <= found[0] and found[1] <= limits.max
            return found if fits else (limits.min, limits.max)
        if found is None or not is_float(value.dtype) or any(map(math.isnan, found)):
            return None
        low, high = found
        most = torch.finfo(value.data if value.op == "round_to" else value.dtype).max
        return (
            low - abs(low) * _ROUNDING if low >= -most else -math.inf,
            high + abs(high) * _ROUNDING if high <= most else math.inf,
        )

    def _found(self, value: Value) -> Interval | None:
        leaf, rule = _LEAVES.get(value.op), _RULES.get(value.op)
        if leaf is not None:
            return leaf(value)
        operands = [self._known[a] for a in (value.args[1:] if value.op == "where" else value.args)]
        known = [o for o in operands if o is not None]
        if rule is None or not known or len(known) < len(operands):
            return None
        if value.op == "cast" and is_float(value.args[0].dtype) and is_int(value.dtype):
            return _truncated(*known)
        return rule(*known)


def _of_constant(value: Value) -> Interval | None:
    return None if value.dtype == torch.bool else (float(value.data), float(value.data))


def _of_index(value: Value) -> Interval:
    bounds = value.data.index.bounds() if not value.data.binders else None
    low, high = (None, None) if bounds is None else (bounds.lower, bounds.upper)
    return (-_PLACES if low is None else low, _PLACES if high is None else high)


def _of_bounded(value: Value) -> Interval:
    """A position that has been checked, in a dimension of so many elements."""
    upper = value.data.index.bounds().upper
    return (0, _PLACES if upper is None else max(upper - 1, 0))


_LEAVES: dict[str, Callable[[Value], Interval | None]] = {
    "constant": _of_constant,
    "index": _of_index,
    "bounded": _of_bounded,
}
"""Values that say themselves where they lie."""


def _truncated(a: Interval) -> Interval | None:
    """As an integer; infinity is none."""
    return (math.trunc(a[0]), math.trunc(a[1])) if all(map(math.isfinite, a)) else None


def _joined(operation: Callable[[float, float], float]) -> Callable[[Interval, Interval], Interval | None]:
    """The rule of a sum, a difference or a product: what may be infinite makes one that may be NaN."""

    def rule(a: Interval, b: Interval) -> Interval | None:
        corners = [operation(x, y) for x in a for y in b]
        return (min(corners), max(corners)) if all(map(math.isfinite, (*a, *b))) else None

    return rule


_RULES: dict[str, Callable[..., Interval | None]] = {
    "cast": lambda a: a,
    "round_to": lambda a: (a[0] - abs(a[0]) / 64, a[1] + abs(a[1]) / 64),
    "add": _joined(operator.add),
    "sub": _joined(operator.sub),
    "mul": _joined(operator.mul),
    "neg": lambda a: (-a[1], -a[0]),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "where": lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    "floor": lambda a: (_whole(math.floor, a[0]), _whole(math.floor, a[1])),
    "ceil": lambda a: (_whole(math.ceil, a[0]), _whole(math.ceil, a[1])),
    "round": lambda a: (_whole(math.floor, a[0]), _whole(math.ceil, a[1])),
    "trunc": lambda a: (_whole(math.floor, a[0]), _whole(math.ceil, a[1])),
}
"""From the intervals of the operands to that of the result, which rounding then widens."""


def _whole(rounding: Callable[[float], float], number: float) -> float:
    return rounding(number) if math.isfinite(number) else number
