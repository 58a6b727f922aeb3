"""Questions that torch's C++ asks about symbolic sizes and strides, as conditions.

Source: the same questions over ints in c10/core/Contiguity.h and c10/core/MemoryFormat.h (torch 2.15).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchjit_core.expr import Condition, Expr, conj, constant, disj, eq, ge, ne
from torchjit_fx.node_context import NodeContext

__all__ = [
    "is_channels_last_contiguous_2d", "is_channels_last_contiguous_3d", "is_channels_last_strides_2d",
    "is_channels_last_strides_3d", "is_contiguous", "is_non_overlapping_and_dense",
]  # fmt: skip

Exprs = Sequence[Expr]


Rule = Callable[[Sequence[int], Exprs, Exprs, NodeContext], Condition]


def _dense_in(order: Sequence[int], sizes: Exprs, strides: Exprs, context: NodeContext) -> Condition:
    """Dimensions of size other than 1 lie densely, innermost first in `order`."""
    parts: list[Condition] = []
    expected = constant(1)
    for dim in order:
        parts.append(_simplified(disj(eq(sizes[dim], 1), eq(strides[dim], expected)), context))
        expected = expected * sizes[dim]
    return conj(*parts)


def _simplified(condition: Condition, context: NodeContext) -> Condition:
    """Without the alternatives that cannot be."""
    if condition.kind == "or":
        return disj(*(part for part in condition.parts if context.sizes.known(part) is not False))
    return condition


def is_contiguous(sizes: Exprs, strides: Exprs, context: NodeContext) -> Condition:
    """Row-major and dense; anything without elements is."""
    empty = [c for c in (eq(size, 0) for size in sizes) if context.sizes.known(c) is not False]
    return disj(_dense_in(range(len(sizes) - 1, -1, -1), sizes, strides, context), *empty)


def _of_rank(rank: int, rule: Rule, order: Sequence[int]) -> Callable[[Exprs, Exprs, NodeContext], Condition]:
    """A question about tensors of so many dimensions; the answer is no for others."""

    def ask(sizes: Exprs, strides: Exprs, context: NodeContext) -> Condition:
        return rule(order, sizes, strides, context) if len(sizes) == rank else eq(0, 1)

    return ask


def _ordered(order: Sequence[int], sizes: Exprs, strides: Exprs, context: NodeContext) -> Condition:
    """Do the strides say so, dense or not?"""
    yes, no = eq(0, 0), eq(0, 1)
    if context.decide(eq(strides[1], 0)):
        return no
    least = constant(0)
    for dim in order:
        if context.decide(eq(sizes[dim], 0)) or not context.decide(ge(strides[dim], least)):
            return no
        if dim == 0 and context.decide(eq(least, strides[1])):
            return no
        least = strides[dim]
        if context.decide(ne(sizes[dim], 1)):
            least = least * sizes[dim]
    return yes


is_channels_last_contiguous_2d = _of_rank(4, _dense_in, (1, 3, 2, 0))
is_channels_last_contiguous_3d = _of_rank(5, _dense_in, (1, 4, 3, 2, 0))
is_channels_last_strides_2d = _of_rank(4, _ordered, (1, 3, 2, 0))
is_channels_last_strides_3d = _of_rank(5, _ordered, (1, 4, 3, 2, 0))


def is_non_overlapping_and_dense(sizes: Exprs, strides: Exprs, context: NodeContext) -> Condition:
    """Is it dense in some order? The order is that of the values at capture."""
    if len(sizes) == 1:
        return _simplified(disj(eq(strides[0], 1), eq(sizes[0], 1), eq(sizes[0], 0)), context)
    order = sorted(range(len(sizes)), key=lambda d: (_seen(strides[d], context), _seen(sizes[d], context)))
    return _dense_in(order, sizes, strides, context)


def _seen(e: Expr, context: NodeContext) -> int:
    """The value at capture; what only the run knows counts as large, multiples of it as larger."""
    found = context.seen(e)
    return 2**40 * max(len(e.terms), 1) * max((abs(c) for _, c in e.terms), default=1) if found is None else found
