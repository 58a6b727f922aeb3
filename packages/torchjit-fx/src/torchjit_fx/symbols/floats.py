"""Float expressions: what a Python float that varies between calls, or that a tensor gave, went through.

An expression is Python text over named numbers. The graph computes it with the same Python operations on the real values,
and a guard on it is evaluated by Python too, so it agrees with eager Python to the last bit.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias, final
from weakref import WeakValueDictionary

from torchjit_core.expr import Expr
from torchjit_core.paths import AccessPath

__all__ = ["MATH_FUNCTIONS", "FloatExpr", "Operand"]

Operand: TypeAlias = Any
"""A node of a number that varies, or a plain number."""

MATH_FUNCTIONS = frozenset(
    {"sqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "cos", "sin", "tan", "acos", "asin", "atan", "cosh", "sinh",
     "tanh", "pow", "fabs", "radians", "degrees", "atan2", "copysign", "erf", "exp2", "cbrt"}
) & set(dir(math))  # fmt: skip
"""Functions of `math` from floats to a float, without side effects."""


@final
class FloatExpr:
    """A float as Python text over names. Interned: equal text over equal names is one object.

    Attributes:
        text: such as `(f0 * 0.5)`; names of ints stand for the symbols of `ints`.
        floats: the named floats that it depends on, with where each is found; None for one that only the run knows.
        ints: the integer expressions that it depends on.
    """

    __slots__ = ("__weakref__", "floats", "ints", "text")
    _interned: WeakValueDictionary[tuple[object, ...], FloatExpr] = WeakValueDictionary()
    text: str
    floats: tuple[tuple[str, AccessPath | None], ...]
    ints: tuple[Expr, ...]

    def __new__(
        cls, text: str, floats: tuple[tuple[str, AccessPath | None], ...] = (), ints: tuple[Expr, ...] = ()
    ) -> FloatExpr:
        key = (text, floats, ints)
        found = cls._interned.get(key)
        if found is None:
            found = object.__new__(cls)
            found.text, found.floats, found.ints = key
            cls._interned[key] = found
        return found

    @property
    def is_constant(self) -> bool:
        """Does it depend on nothing?"""
        return not self.floats and not self.ints

    @property
    def path(self) -> AccessPath | None:
        """Where it is found, if it is an input as it stands."""
        return self.floats[0][1] if len(self.floats) == 1 and self.floats[0][0] == self.text else None

    @property
    def from_run(self) -> bool:
        """Does it depend on a float that only the run knows?"""
        return any(path is None for _, path in self.floats)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def constant(value: float) -> FloatExpr:
    """The expression of a number. Infinities and NaN are written so that Python reads them without a name."""
    if math.isnan(value):
        return FloatExpr("(1e999 - 1e999)")
    if math.isinf(value):
        return FloatExpr("1e999" if value > 0 else "(-1e999)")
    text = repr(value)
    return FloatExpr(f"({text})" if text.startswith("-") else text)


def of_int(expr: Expr) -> FloatExpr:
    """An integer expression as an operand (the text is an int's: Python converts)."""
    return FloatExpr(f"({expr})", (), (expr,) if expr.value is None else ())


def combine(template: str, *operands: FloatExpr) -> FloatExpr:
    """Fill `{}` in the template with the operands' texts."""
    floats = dict(pair for operand in operands for pair in operand.floats)
    ints = dict.fromkeys(e for operand in operands for e in operand.ints)
    return FloatExpr(template.format(*(o.text for o in operands)), tuple(floats.items()), tuple(ints))
