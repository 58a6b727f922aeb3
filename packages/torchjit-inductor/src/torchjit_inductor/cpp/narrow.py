"""Comparisons and choices of 64-bit integers in 32 bits: a vector of floats beside them has twice the lanes then.

Positions of loops are small. Numbers in memory (classes, lengths, tokens) may be any, but beside one that is small a number that
saturates compares as the number itself does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs
import torch

from torchjit_inductor.ir.intervals import Intervals
from torchjit_inductor.ir.kernel import Store, rewrite_stores
from torchjit_inductor.ir.values import Value, apply, cast, constant, where

__all__ = ["with_narrow_integers"]

_SMALL = 2**30
"""Below this in size, integers have room in 32 bits, the lanes behind a loop's end too."""
_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


def with_narrow_integers(stores: Sequence[Store], *, stored: bool) -> tuple[Store, ...]:
    """Stores whose comparisons of int64 values are of int32 ones where that is the same.

    A `load` of int32 from a buffer of int64 stands for the nearest int32, and a `where` that surely is small is stored as int32. No
    other part of the loop IR has such.

    Args:
        stored: may what is stored be narrow?
    """
    saturated = _Saturated()
    narrow = rewrite_stores(stores, {}, saturated.compared)
    return tuple(map(saturated.stored, narrow)) if stored else narrow


class _Saturated:
    """The nearest int32 of int64 values, each made once."""

    def __init__(self) -> None:
        self._intervals = Intervals()
        self._known: dict[Value, Value | None] = {}

    def compared(self, value: Value) -> Value | None:
        """A comparison in 32 bits, for `substitute_all`; None for other values."""
        if value.op not in _COMPARISONS or value.args[0].dtype != torch.int64:
            return None
        if not any(self.is_small(a) for a in value.args):
            return None
        operands = [self.of(a) for a in value.args]
        known = [o for o in operands if o is not None]
        return apply(value.op, *known) if len(known) == len(operands) else None

    def stored(self, store: Store) -> Store:
        """A choice of positions (where a window's largest element is) widens as it is stored."""
        value = store.value
        if value.op != "where" or value.dtype != torch.int64 or store.scatters or not self.is_small(value):
            return store
        return attrs.evolve(store, value=self.of(value) or value)

    def is_small(self, value: Value) -> bool:
        return self._intervals.within(value, -_SMALL, _SMALL)

    def of(self, value: Value) -> Value | None:
        """The value as int32, the nearest where it does not fit; None where that has no formula."""
        if value not in self._known:
            make = _MAKE.get(value.op)
            self._known[value] = None if make is None else make(self, value)
        return self._known[value]


def _constant(_: _Saturated, value: Value) -> Value:
    limits = torch.iinfo(torch.int32)
    return constant(min(max(value.data, limits.min), limits.max), torch.int32)


def _index(to: _Saturated, value: Value) -> Value | None:
    return Value("index", (), torch.int32, value.data) if to.is_small(value) and not value.args else None


def _load(_: _Saturated, value: Value) -> Value | None:
    fits = not value.data.masked or abs(value.data.other) < _SMALL
    return Value("load", value.args, torch.int32, value.data) if fits else None


def _cast(_: _Saturated, value: Value) -> Value | None:
    source = value.args[0]
    return None if source.dtype.is_floating_point else cast(source, torch.int32)


def _exact(to: _Saturated, value: Value) -> Value | None:
    """Of what does not wrap around, and is computed from such."""
    if not all(to.is_small(v) for v in (value, *value.args)):
        return None
    return _apart(to, value)


def _apart(to: _Saturated, value: Value) -> Value | None:
    operands = [to.of(a) for a in value.args]
    known = [o for o in operands if o is not None]
    return apply(value.op, *known) if len(known) == len(operands) else None


def _where(to: _Saturated, value: Value) -> Value | None:
    condition, yes, no = value.args
    yes_, no_ = to.of(yes), to.of(no)
    return None if yes_ is None or no_ is None else where(condition, yes_, no_)


_MAKE: Mapping[str, Callable[[_Saturated, Value], Value | None]] = {
    "constant": _constant, "index": _index, "load": _load, "cast": _cast, "where": _where,
    **dict.fromkeys(("add", "sub", "mul", "neg"), _exact), **dict.fromkeys(("maximum", "minimum"), _apart),
}  # fmt: skip
