"""Sympy views of expressions, for the few places of torch that ask for one."""

from __future__ import annotations

import functools
from typing import Any

from torchjit_core.expr import Condition, Expr

__all__ = ["sympy_bool", "sympy_float", "sympy_int"]


def _sympy() -> Any:
    import sympy  # noqa: PLC0415  # half a second, and few programs need it

    return sympy


def sympy_float(value: float) -> Any:
    """A number."""
    return _sympy().Float(value)


@functools.lru_cache(maxsize=4096)
def sympy_int(expression: Expr) -> Any:
    """An integer expression."""
    sympy = _sympy()
    names = {s.name: sympy.Symbol(s.name, integer=True, positive=True) for s in expression.symbols}
    # The text is our own rendering of an expression: names, integers and operators.
    return eval(str(expression), {"__builtins__": {}, "max": sympy.Max, "min": sympy.Min}, names) + sympy.Integer(0)


def sympy_bool(condition: Condition) -> Any:
    """A condition."""
    sympy = _sympy()
    if condition.kind in ("true", "false"):
        return sympy.true if condition.kind == "true" else sympy.false
    if condition.kind in ("and", "or"):
        join = sympy.And if condition.kind == "and" else sympy.Or
        return join(*map(sympy_bool, condition.parts))
    relation = {"eq": sympy.Eq, "ne": sympy.Ne, "le": sympy.Le}[condition.kind]
    return relation(sympy_int(condition.expr), 0)
