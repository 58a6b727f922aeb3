"""What symbolic numbers share: who decides about them, and where the program is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torchjit_core.expr import Condition, Expr, Symbol, as_expr, constant, eq
from torchjit_core.paths import AccessPath
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.protocols import SymbolicSizes
from torchjit_fx.symbols.floats import FloatExpr

__all__ = ["NodeContext"]

_LONGEST = 5000
"""Atoms of an integer beyond which the sizes that it depends on become constants. Windows cut out of windows make sizes that
divide sizes which divide sizes: six times as long with each block of MaxViT, 8 million atoms after five. The longest that a
decision in Swin depends on has 1,462."""


class NodeContext:
    """What nodes share: who decides, and where the program is.

    Attributes:
        shape_env: the object that torch takes for its ShapeEnv.
        location: gives the user's current line.
        users: the question comes from the user's own code, not from inside an operation.
        general: questions with a default are not decided by the values at capture.
        fresh: the symbols whose values only the run knows.
        made: those of them that the running operation made; None outside of operations.
        deferred: conditions on such numbers that the program or its operations rely on, in order, each with what to
            say if it fails (None: an operation's): compiled code has to test them.
    """

    def __init__(self, sizes: SymbolicSizes) -> None:
        self.sizes = sizes
        self.shape_env: Any = None
        self.location: Callable[[], Any] = lambda: None
        self.users = False
        self.general = False
        self.fresh: set[Symbol] = set()
        self.made: set[Symbol] | None = None
        self.deferred: list[tuple[Condition, str | None]] = []
        self._floats = 0

    def decide(self, condition: Condition) -> bool:
        """The truth of a condition, guarded unless it holds for all values."""
        if condition.kind in ("true", "false"):
            return condition.kind == "true"
        known = self.sizes.known(condition)
        if known is None and not self.users and not self.fresh.isdisjoint(condition.symbols):
            known = self.sizes.oblivious(condition)
        return self.sizes.guard(condition, self.location()) if known is None else known

    def fresh_int(self, lower: int | None = None, upper: int | None = None) -> Expr:
        """A new integer that only the run knows."""
        made = self.sizes.unbacked("u", lower, upper)
        self.fresh |= made.symbols
        if self.made is not None:
            self.made |= made.symbols
        return made

    def fresh_float(self) -> FloatExpr:
        """A new float that only the run knows."""
        name = f"v{self._floats}"
        self._floats += 1
        return FloatExpr(name, ((name, None),))

    def is_fresh(self, symbols: Iterable[Symbol]) -> bool:
        """Does one of the symbols stand for what only the run knows?"""
        return not self.fresh.isdisjoint(symbols)

    def assume(self, condition: Condition, text: str | None = None) -> None:
        """The run will test the condition: from now on it is known."""
        if self.sizes.known(condition) is not None:
            return
        if self.made is not None and condition.kind == "le" and not self.made.isdisjoint(condition.symbols):
            self.sizes.bound(condition.expr, None, 0)  # the operation says so of what it makes
            return
        self.sizes.assume(condition, self.location())
        self.deferred.append((condition, text))

    def fix(self, expr: Expr) -> int:
        """The value of an expression at capture, guarded."""
        if expr.value is not None:
            return expr.value
        value = self.sizes.hint(expr)
        self.decide(eq(expr, value))
        return value

    def kept_short(self, expr: Expr) -> Expr:
        """The expression, or where it has become too long its value at capture, with guards on the sizes that it is made of.

        Raises:
            UserError: one of those sizes was marked dynamic.
        """
        if expr.length <= _LONGEST or not self.fresh.isdisjoint(expr.symbols):
            return expr
        for s in sorted(expr.symbols, key=lambda s: s.sort_key):
            self.fix(as_expr(s))
        return constant(self.sizes.hint(expr))

    def seen(self, expr: Expr) -> int | None:
        """The value of an expression at capture, None where only the run knows it."""
        if expr.value is not None:
            return expr.value
        try:
            return self.sizes.hint(expr)
        except GraphBreak:
            return None

    def divisor(self, expr: Expr) -> None:
        """Python divides by this: an error if it is zero, for the run to raise."""
        if self.decide(eq(expr, 0)):
            raise GraphBreak(breaks.SYMBOLIC_UNSUPPORTED, f"division by {expr}, which is 0", self.location())

    def settle(self, text: str, expression: FloatExpr) -> None:
        """Guard a condition on floats, given as text over the names of `expression`.

        Raises:
            GraphBreak: it depends on a number that only the run knows.
        """
        places = self.sizes.sources()
        names: dict[str, AccessPath | None] = dict(expression.floats)
        for whole in expression.ints:
            names.update((s.name, places.get(s)) for s in sorted(whole.symbols, key=lambda s: s.sort_key))
        found = tuple((name, path) for name, path in names.items() if path is not None)
        if len(found) < len(names):
            raise GraphBreak(breaks.DATA_DEPENDENT, text, self.location())
        if found:
            self.sizes.guard_numbers(text, found, self.location())
