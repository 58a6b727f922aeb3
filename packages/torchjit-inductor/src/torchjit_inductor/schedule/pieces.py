"""Pieces of a vector loop in which comparisons of its variable have one answer: each becomes a loop without conditions.

Comparisons with constants cut it in the same places for all rows; one with what is another number in each row (a triangle) cuts it there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import final

import attrs
import torch

from torchjit_core.expr import Expr, Symbol, as_expr
from torchjit_core.expr import constant as as_constant
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir.kernel import Store, rewrite_stores, roots
from torchjit_inductor.ir.values import Value, walk
from torchjit_inductor.ir.values import constant as number

__all__ = ["Segment", "beside", "changes_of", "chooses_piece", "crossing_of", "decided", "sharing", "within"]


@final
@attrs.frozen
class Segment:
    """A piece of the vector loop, from `low` to before `high` (None: all of it), and what is stored in it."""

    low: int | None
    high: int | None
    stores: tuple[Store, ...]


def chooses_piece(value: Value) -> bool:
    """Is it a comparison of a position with a constant?"""
    return value.op in _ORDER and value.args[0].op == "index" and value.args[1].op == "constant"


def changes_of(values: Iterable[Value], symbol: Symbol) -> list[tuple[int, ...]]:
    """Where the answers of comparisons of a multiple of a loop variable (plus a constant) with a constant change."""
    changes: list[tuple[int, ...]] = []
    for op, (factor, rest, limit) in ((v.op, line) for v in values if (line := _line(v, symbol)) is not None):
        # The first positions with factor * position + rest >= limit and > limit.
        reaches, passes = -((rest - limit) // factor), (limit - rest) // factor + 1
        answers = {"lt": (reaches,), "ge": (reaches,), "le": (passes,), "gt": (passes,)}
        changes.append(answers.get(op, (reaches, passes)))
    return changes


def _line(value: Value, symbol: Symbol) -> tuple[int, int, int] | None:
    """`factor * symbol + rest` is compared with `limit`: the three, or None if it is not so."""
    if not chooses_piece(value) or value.args[0].data.binders:
        return None
    index = value.args[0].data.index
    step = stride(index, symbol)
    factor = None if step is None else step.value
    if not factor or factor < 0:
        return None
    rest = (index - as_expr(symbol) * factor).value
    return None if rest is None else (factor, rest, int(value.args[1].data))


_ORDER: dict[str, Callable[[int, int], bool]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip


def within(stores: Sequence[Store], symbol: Symbol, low: int, high: int) -> tuple[Store, ...]:
    """Stores as they are for a loop variable from `low` to before `high`, between which no comparison changes."""

    def replace(value: Value) -> Value | None:
        line = _line(value, symbol)
        if line is not None:
            factor, rest, limit = line
            return number(_ORDER[value.op](factor * low + rest, limit), torch.bool)
        return decided(value)

    return rewrite_stores(stores, {}, replace)


def crossing_of(values: Iterable[Value], symbol: Symbol) -> Expr | None:
    """Where a loop variable meets what it is compared with, a number of the other loops; None where it is nowhere, or in several places."""
    met = {crossing[0] for v in values if (crossing := _crossing(v, symbol)) is not None}
    return met.pop() if len(met) == 1 else None


def beside(stores: Sequence[Store], symbol: Symbol, at: Expr, *, after: bool) -> tuple[Store, ...]:
    """Stores as they are where the loop variable is below `at`, or above it."""

    def replace(value: Value) -> Value | None:
        crossing = _crossing(value, symbol)
        if crossing is None or crossing[0] != at:
            return decided(value)
        return number(_ORDER[value.op](crossing[1] if after else -crossing[1], 0), torch.bool)

    return rewrite_stores(stores, {}, replace)


def _crossing(value: Value, symbol: Symbol) -> tuple[Expr, int] | None:
    """Where both sides of a comparison are equal, and whether the left one is the larger (1) or the smaller (-1) behind it."""
    if value.op not in _ORDER:
        return None
    left, right = (_position(operand) for operand in value.args)
    if left is None or right is None:
        return None
    ahead = left - right
    step = stride(ahead, symbol)
    if step is None or step.value is None or abs(step.value) != 1:
        return None
    rest = ahead - as_expr(symbol) * step.value
    return (rest * -step.value, step.value) if rest.symbols else None


def _position(value: Value) -> Expr | None:
    """A sum of loop variables and numbers."""
    if value.op == "index":
        return None if value.args or value.data.binders else value.data.index
    if value.op == "constant":
        return as_constant(value.data) if value.dtype == torch.int64 else None
    if value.op not in ("add", "sub") or value.dtype != torch.int64:
        return None
    left, right = (_position(operand) for operand in value.args)
    if left is None or right is None:
        return None
    return left + right if value.op == "add" else left - right


def decided(value: Value) -> Value | None:
    """What a value is where a condition is a constant; None where none is."""
    decide = _DECIDE.get(value.op)
    return None if decide is None else decide(value)


def _compared(value: Value) -> Value | None:
    if any(a.op != "constant" or a.dtype != torch.int64 for a in value.args):
        return None
    return number(_ORDER[value.op](*(a.data for a in value.args)), torch.bool)


def _joined(value: Value) -> Value | None:
    """`and`, `or`: one known operand decides, or leaves the other."""
    for known, other in (value.args, value.args[::-1]) if value.dtype == torch.bool else ():
        if known.op == "constant":
            return other if known.data == (value.op == "and") else known
    return None


def _negated(value: Value) -> Value | None:
    (operand,) = value.args
    known = operand.op == "constant" and value.dtype == torch.bool
    return number(not operand.data, torch.bool) if known else None


def _chosen(value: Value) -> Value | None:
    condition, yes, no = value.args
    if condition.op != "constant":
        return None
    return yes if condition.data else no


def _loaded(value: Value) -> Value | None:
    if not value.data.masked or value.args[-1].op != "constant":
        return None
    if not value.args[-1].data:
        return number(value.data.other, value.dtype)
    return Value("load", value.args[:-1], value.dtype, attrs.evolve(value.data, masked=False, other=0))


_DECIDE: dict[str, Callable[[Value], Value | None]] = {
    **dict.fromkeys(_ORDER, _compared), "and": _joined, "or": _joined, "not": _negated, "where": _chosen, "load": _loaded,
}  # fmt: skip


def sharing(segments: Sequence[Segment], symbol: Symbol) -> tuple[Segment, ...]:
    """The segments, those of one length that read the same elements as one: the halves of a rotary embedding."""
    merged: dict[int, Segment] = {}
    others: list[Segment] = []
    for segment in segments:
        assert segment.low is not None and segment.high is not None
        length = segment.high - segment.low
        if length not in merged:
            merged[length] = segment
            continue
        first = merged[length]
        assert first.low is not None
        moved = rewrite_stores(segment.stores, {symbol: as_expr(symbol) + (segment.low - first.low)})
        if _loads(first.stores) & _loads(moved):
            merged[length] = attrs.evolve(first, stores=tuple(dict.fromkeys((*first.stores, *moved))))
        else:
            others.append(segment)
    return tuple(sorted((*merged.values(), *others), key=lambda s: s.low or 0))


def _loads(stores: Sequence[Store]) -> set[Value]:
    return {v for v in walk(*roots(stores)) if v.op == "load"}
