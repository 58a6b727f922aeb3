"""Conditions over integer expressions, in a canonical form: `e == 0`, `e <= 0`, their negations, and, or."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, final

from torchjit_core.expr.bounds import Bounds
from torchjit_core.expr.polynomial import Expr, Symbol, as_expr, constant

__all__ = ["Condition", "conj", "disj", "eq", "ge", "gt", "le", "lt", "ne", "negate"]


@final
class Condition:
    """An interned truth about integers. Build it with `eq`, `lt`, `conj` ... .

    Attributes:
        kind: `true`, `false`, `eq` (expr == 0), `ne`, `le` (expr <= 0), `and`, `or`.
        expr: of `eq`, `ne`, `le`.
        parts: of `and`, `or`; at least two.
    """

    __slots__ = ("expr", "kind", "parts", "symbols")
    _interned: dict[tuple[Any, ...], Condition] = {}
    kind: str
    expr: Expr
    parts: tuple[Condition, ...]
    symbols: frozenset[Symbol]

    def __new__(cls, kind: str, expr: Expr | None = None, parts: tuple[Condition, ...] = ()) -> Condition:
        key = (kind, expr, parts)
        found = cls._interned.get(key)
        if found is None:
            found = object.__new__(cls)
            found.kind = kind
            found.expr = constant(0) if expr is None else expr
            found.parts = parts
            found.symbols = found.expr.symbols.union(*(p.symbols for p in parts))
            found = cls._interned.setdefault(key, found)
        return found

    def evaluate(self, env: Mapping[Symbol, int]) -> bool:
        """The truth under `env`, which holds every symbol."""
        if self.kind in ("and", "or"):
            return (all if self.kind == "and" else any)(p.evaluate(env) for p in self.parts)
        if self.kind in ("true", "false"):
            return self.kind == "true"
        value = self.expr.evaluate(env)
        return value <= 0 if self.kind == "le" else (value == 0) is (self.kind == "eq")

    def known(self, ranges: Mapping[Symbol, Bounds] | None = None) -> bool | None:
        """The truth if the bounds decide it for all values, else None."""
        if self.kind in ("true", "false"):
            return self.kind == "true"
        if self.kind in ("and", "or"):
            return _known_join(self.kind, [p.known(ranges) for p in self.parts])
        bounds = self.expr.bounds(ranges)
        if self.kind == "le":
            if bounds.upper is not None and bounds.upper <= 0:
                return True
            return False if bounds.lower is not None and bounds.lower > 0 else None
        if 0 not in bounds:
            return self.kind == "ne"
        return (self.kind == "eq") if bounds == Bounds(0, 0) else None

    def substitute(self, mapping: Mapping[Symbol, Expr | int], made: dict[Expr, Expr] | None = None) -> Condition:
        """Replace symbols and simplify anew; see `Expr.substitute`."""
        if self.kind in ("and", "or"):
            return _join(self.kind, tuple(p.substitute(mapping, made) for p in self.parts))
        if self.kind in ("true", "false"):
            return self
        return _MAKERS[self.kind](self.expr.substitute(mapping, made), 0)

    def __str__(self) -> str:
        if self.kind in ("and", "or"):
            return f" {self.kind} ".join(f"({p})" for p in self.parts)
        if self.kind in ("true", "false"):
            return self.kind.capitalize()
        # Negative terms move to the right: `a - b <= 0` reads `a <= b`.
        left = Expr(tuple((m, c) for m, c in self.expr.terms if c > 0))
        right = left - self.expr
        if self.kind == "le" and left.value is not None and not (-right).value:
            return f"{right} >= {left}"
        return f"{left} {_SIGNS[self.kind]} {right}"

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Condition, (self.kind, self.expr if self.kind in _SIGNS else None, self.parts))


_SIGNS = {"eq": "==", "ne": "!=", "le": "<="}
_TRUE, _FALSE = Condition("true"), Condition("false")


def _truth(value: bool) -> Condition:
    return _TRUE if value else _FALSE


def _known_join(kind: str, parts: list[bool | None]) -> bool | None:
    decisive = kind == "or"
    if decisive in parts:
        return decisive
    return None if None in parts else not decisive


def _without_constant(e: Expr) -> tuple[Expr, int]:
    offset = next((c for m, c in e.terms if not m), 0)
    return e - offset, offset


def eq(left: Expr | int, right: Expr | int) -> Condition:
    """left == right."""
    e = as_expr(left) - right
    if e.value is not None:
        return _truth(e.value == 0)
    body, offset = _without_constant(e)
    common = math.gcd(*(c for _, c in body.terms))
    if offset % common:
        return _FALSE
    e = Expr(tuple((m, c // common) for m, c in e.terms))
    if e.terms[-1][1] < 0:
        e = -e
    return Condition("eq", e)


def ne(left: Expr | int, right: Expr | int) -> Condition:
    """left != right."""
    return negate(eq(left, right))


def le(left: Expr | int, right: Expr | int) -> Condition:
    """left <= right."""
    e = as_expr(left) - right
    if e.value is not None:
        return _truth(e.value <= 0)
    body, offset = _without_constant(e)
    common = math.gcd(*(c for _, c in body.terms))
    # common*x + offset <= 0 for integers is x + ceil(offset / common) <= 0
    return Condition("le", Expr(tuple((m, c // common) for m, c in body.terms)) - (-offset // common))


def lt(left: Expr | int, right: Expr | int) -> Condition:
    """left < right, that is left + 1 <= right."""
    return le(as_expr(left) + 1, right)


def ge(left: Expr | int, right: Expr | int) -> Condition:
    """left >= right."""
    return le(right, left)


def gt(left: Expr | int, right: Expr | int) -> Condition:
    """left > right."""
    return lt(right, left)


def negate(condition: Condition) -> Condition:
    """not condition."""
    kind = condition.kind
    if kind in ("true", "false"):
        return _truth(kind == "false")
    if kind in ("and", "or"):
        return _join("or" if kind == "and" else "and", tuple(map(negate, condition.parts)))
    if kind == "le":
        return le(1, condition.expr)
    return Condition("ne" if kind == "eq" else "eq", condition.expr)


def conj(*parts: Condition) -> Condition:
    """All of them; true when there is none."""
    return _join("and", parts)


def disj(*parts: Condition) -> Condition:
    """Any of them; false when there is none."""
    return _join("or", parts)


def _join(kind: str, parts: tuple[Condition, ...]) -> Condition:
    neutral, decisive = (_TRUE, _FALSE) if kind == "and" else (_FALSE, _TRUE)
    flat: dict[Condition, None] = {}
    for part in parts:
        for leaf in part.parts if part.kind == kind else (part,):
            if leaf is decisive:
                return decisive
            if leaf is not neutral:
                flat[leaf] = None
    if any(negate(leaf) in flat for leaf in flat):
        return decisive
    if not flat:
        return neutral
    return next(iter(flat)) if len(flat) == 1 else Condition(kind, None, tuple(flat))


_MAKERS = {"eq": eq, "ne": ne, "le": le}
