"""What is known about symbols: ranges, equalities that replace a symbol, and conditions that imply others."""

from __future__ import annotations

from typing import TypeVar, final

from torchjit_core.expr import Bounds, Condition, Expr, Operation, Symbol, as_expr, constant, le, negate
from torchjit_guards.sample_points import SamplePoints

__all__ = ["Facts"]

_Simplified = TypeVar("_Simplified", Condition, Expr)


@final
class Facts:
    """A set of true conditions, and what follows from them.

    Everything derived here follows from the conditions alone, so a condition that `known` decides needs no guard.
    """

    def __init__(self) -> None:
        self.ranges: dict[Symbol, Bounds] = {}
        self.replacements: dict[Symbol, Expr] = {}
        self._replaced: dict[Expr, Expr] = {}  # what `replacements` made of expressions
        self._implying: dict[Condition, None] = {}  # le and eq conditions over several symbols or operations
        self._decided: dict[Condition, bool] = {}  # more facts change nothing about these
        self._open: set[Condition] = set()
        self._points = SamplePoints(self.bounds_of)

    def simplify(self, e: _Simplified) -> _Simplified:
        """The condition or expression with replaced symbols replaced."""
        if self.replacements and not self.replacements.keys().isdisjoint(e.symbols):
            return e.substitute(self.replacements, self._replaced)
        return e

    def known(self, condition: Condition) -> bool | None:
        """The truth of the condition if the facts decide it."""
        answer = self._decided.get(condition)
        if answer is None and condition not in self._open:
            answer = self._known(self.simplify(condition))
            if answer is None:
                self._open.add(condition)
            else:
                self._decided[condition] = answer
        return answer

    def _known(self, condition: Condition) -> bool | None:
        answer = condition.known(self.ranges)
        if answer is not None:
            return answer
        if condition.kind in ("and", "or"):
            decisive = condition.kind == "or"
            parts = [self._known(part) for part in condition.parts]
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
        if self._implied(condition):
            return True
        return False if self._implied(negate(condition)) else None

    def _implied(self, condition: Condition) -> bool:
        if condition in self._implying:
            return True
        if condition.kind == "eq":
            return self._divides(condition)
        if condition.kind == "ne":
            # a != b follows from a < b or b < a
            return self._bounded(condition.expr + 1) or self._bounded(1 - condition.expr)
        return condition.kind == "le" and self._bounded(condition.expr)

    def _bounded(self, e: Expr) -> bool:
        """Does `e <= 0` follow from one fact `f <= 0` (e - f <= 0) or `f == 0`?"""
        for fact in self._implying:
            if fact.symbols.isdisjoint(e.symbols):
                continue
            for f in (fact.expr,) if fact.kind == "le" else (fact.expr, -fact.expr) if fact.kind == "eq" else ():
                if not _cancels(e, f) or self._points.refute(e, f):
                    continue
                gap = (e - f).bounds(self.ranges).upper
                if gap is not None and gap <= 0:
                    return True
        return False

    def _divides(self, condition: Condition) -> bool:
        """x % 4 == 0 follows from x % 8 == 0."""
        wanted = _remainder(condition)
        if wanted is None:
            return False
        known = (_remainder(fact) for fact in self._implying)
        return any(k is not None and k[0] is wanted[0] and k[1] % wanted[1] == 0 for k in known)

    def add(self, condition: Condition) -> None:
        """Take the condition for true."""
        condition = self.simplify(condition)
        self._open.clear()
        if condition.kind == "and":
            for part in condition.parts:
                self.add(part)
            return
        if condition.kind == "eq" and self._replace(condition.expr):
            return
        if condition.kind == "le" and self._narrow(condition.expr):
            return
        if condition.kind in ("le", "eq", "ne", "or"):
            self._implying[condition] = None
        if condition.kind == "ne":
            self._narrow_end(condition.expr)

    def bounds_of(self, symbol: Symbol) -> Bounds:
        """The symbol's interval, by its own bounds and the facts."""
        told = self.ranges.get(symbol)
        return symbol.bounds if told is None else symbol.bounds.intersect(told)

    def _narrow(self, e: Expr) -> bool:
        """Use `e <= 0` where it bounds one symbol: c*s + d <= 0."""
        linear = _linear(e)
        if linear is None:
            return False
        symbol, coefficient, offset = linear
        if coefficient > 0:
            told = Bounds(None, -offset // coefficient)
        else:
            told = Bounds(-(-offset // -coefficient), None)
        self._set_range(symbol, self.bounds_of(symbol).intersect(told))
        return True

    def _set_range(self, symbol: Symbol, bounds: Bounds) -> None:
        self.ranges[symbol] = bounds
        self._points.narrowed(symbol)

    def _narrow_end(self, e: Expr) -> None:
        """s != c moves an end of the interval when c is that end."""
        linear = _linear(e)
        if linear is None or linear[2] % linear[1]:
            return
        symbol, value = linear[0], -linear[2] // linear[1]
        bounds = self.bounds_of(symbol)
        if bounds.lower == value:
            self._set_range(symbol, Bounds(value + 1, bounds.upper))
        elif bounds.upper == value:
            self._set_range(symbol, Bounds(bounds.lower, value - 1))

    def _replace(self, e: Expr) -> bool:
        """Use `e == 0` to replace a symbol by an expression of the others, where a symbol stands alone in it."""
        solved = _solve(e)
        if solved is None:
            return False
        symbol, value = solved
        bounds = self.bounds_of(symbol)
        self.replacements[symbol] = value
        single = {symbol: value}
        self.replacements = {
            s: v.substitute(single) if symbol in v.symbols else v for s, v in self.replacements.items()
        }
        self._replaced = {}
        implying, self._implying = self._implying, {}
        for fact in implying:
            self.add(fact)
        if value.value is None:
            # what was known of the symbol is now known of the expression
            for fact in (
                *(() if bounds.lower is None else (le(bounds.lower, value),)),
                *(() if bounds.upper is None else (le(value, bounds.upper),)),
            ):
                if fact.known(self.ranges) is None:
                    self.add(fact)
        return True


def _cancels(e: Expr, f: Expr) -> bool:
    """May terms of `e` and of `f` cancel in `e - f`, alone or as multiples of the same atom? Else it is no smaller than `e`: `-f >= 0`."""
    ours = {(atom, c > 0) for monomial, c in e.terms for atom, _ in monomial}
    return any((atom, c > 0) in ours for monomial, c in f.terms for atom, _ in monomial)


def _linear(e: Expr) -> tuple[Symbol, int, int] | None:
    """(s, c, d) of `c*s + d`, else None."""
    terms = dict(e.terms)
    offset = terms.pop((), 0)
    if len(terms) != 1:
        return None
    ((monomial, coefficient),) = terms.items()
    if len(monomial) != 1 or monomial[0][1] != 1 or not isinstance(monomial[0][0], Symbol):
        return None
    return monomial[0][0], coefficient, offset


def _solve(e: Expr) -> tuple[Symbol, Expr] | None:
    """(s, value) with s == value following from e == 0; the newest symbol that stands alone is solved for."""
    linear = _linear(e)
    if linear is not None:
        symbol, coefficient, offset = linear
        return (symbol, constant(-offset // coefficient)) if offset % coefficient == 0 else None
    for monomial, coefficient in reversed(e.terms):
        if len(monomial) == 1 and monomial[0][1] == 1 and abs(coefficient) == 1:
            atom = monomial[0][0]
            if isinstance(atom, Symbol):
                rest = e - as_expr(atom) * coefficient
                if atom not in rest.symbols:
                    return atom, rest * -coefficient
    return None


def _remainder(condition: Condition) -> tuple[Expr, int] | None:
    """(x, n) of the condition `x % n == 0` with a constant n, else None."""
    if condition.kind != "eq" or len(condition.expr.terms) != 1:
        return None
    monomial, _ = condition.expr.terms[0]
    if len(monomial) != 1 or not isinstance(monomial[0][0], Operation) or monomial[0][0].kind != "mod":
        return None
    divisor = monomial[0][0].right.value
    return (monomial[0][0].left, divisor) if divisor else None
