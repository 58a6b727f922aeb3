"""Integer expressions: what sizes, strides and kernel indices are made of.

>>> from torchjit_core.expr import symbol, le
>>> a, b = symbol("a"), symbol("b")
>>> (a + b) * 2 - 2 * b
2*a
>>> (6 * a + 3) // 3
2*a + 1
>>> le(a, a * b).known()
True
"""

from torchjit_core.expr.bounds import Bounds
from torchjit_core.expr.condition import Condition, conj, disj, eq, ge, gt, le, lt, ne, negate
from torchjit_core.expr.polynomial import (
    Atom,
    Expr,
    Operation,
    Symbol,
    as_expr,
    constant,
    maximum,
    minimum,
    symbol,
)

__all__ = [
    "Atom",
    "Bounds",
    "Condition",
    "Expr",
    "Operation",
    "Symbol",
    "as_expr",
    "conj",
    "constant",
    "disj",
    "eq",
    "ge",
    "gt",
    "le",
    "lt",
    "maximum",
    "minimum",
    "ne",
    "negate",
    "symbol",
]
