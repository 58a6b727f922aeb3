"""Products of groups of rows, columns or parts of the sum with a matrix each (`_grouped_mm`), as values of the loop IR.

Where groups end is known to the device only. A position belongs to the group whose number is how many groups end at or
before it (`ir.values.segment`); what lies behind the last end belongs to none, and counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import attrs
import torch

from torchjit_core.expr import Expr, Symbol, as_expr
from torchjit_inductor.ir.values import Value, apply, constant, dot, index_value, segment

__all__ = ["MOST_GROUPS", "Groups", "grouped_dot"]

MOST_GROUPS = 256


@final
@attrs.frozen
class Groups:
    """What a product is divided into.

    Attributes:
        count: how many groups.
        along: `rows`: (rows, depth) @ (groups, depth, columns); `columns`: (groups, rows, depth) @ (depth, columns); `depth`: (rows, depth) @
            (depth, columns), a result for each group.
    """

    count: int
    along: str


def grouped_dot(
    along: str,
    ends: Sequence[Value],
    left: Callable[..., Value],
    right: Callable[..., Value],
    point: tuple[Expr, Expr, Expr, Expr],
) -> Value:
    """The sum of products at a point.

    Args:
        along: see `Groups`.
        ends: of the groups, ascending int32 positions.
        left, right: from an index (and options of `values.load`) to an element.
        point: group (of a result for each), row, column, position along the sum.
    """
    group, row, column, depth = point
    if along == "depth":
        inside = apply("eq", segment(index_value(depth), ends), index_value(group))
        return dot(left((row, depth), mask=inside), right((depth, column), mask=inside))
    number = segment(index_value(row if along == "rows" else column), ends)
    symbol = Symbol("group", 0, len(ends) - 1)
    matrix = as_expr(symbol)
    options: dict[str, Any] = {
        "binders": {symbol: number},
        "mask": apply("lt", number, constant(len(ends), torch.int64)),
    }
    if along == "rows":
        return dot(left((row, depth)), right((matrix, depth, column), **options))
    return dot(left((matrix, row, depth), **options), right((depth, column)))
