"""ShapeEnv: which integers are symbols, and what a capture assumed about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from torchjit_core.expr import Condition, Expr, Symbol, as_expr, negate, symbol
from torchjit_core.guards import Guard, SymbolicCondition
from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath, SizeOf
from torchjit_core.reasons import GraphBreak, UserError, reason
from torchjit_guards.facts import Facts
from torchjit_guards.size_history import SizeHistory

__all__ = ["DATA_DEPENDENT", "SPECIALISED", "ShapeEnv"]

SPECIALISED = reason(
    "TJ-GRD-002",
    "a dimension that was marked dynamic is constrained to one value",
    "You asked for a symbolic size, but the program only works as captured for a single value of it (sizes 0 and 1 are "
    "always captured as constants, because broadcasting and emptiness depend on them).",
    "Call the function with a size of at least 2 when it is captured.",
    "Remove the comparison or the reshape that fixes the size, or remove the mark.",
)
DATA_DEPENDENT = reason(
    "TJ-GRD-003",
    "a decision depends on a number that only the run knows",
    "The number comes out of a tensor (item, nonzero ...), so there is no value at capture to decide with.",
    "State what holds with torch._check(...), before the decision.",
)


@attrs.frozen
class _Fact:
    condition: Condition
    location: CodeLocation | None


@final
class ShapeEnv:
    """The symbols of one capture and the conditions that it relied on.

    * 0 and 1 are constants: broadcasting, contiguity and emptiness depend on them. A size symbol is at least 2.
    * An integer that changed between captures (`history`) becomes a symbol; so does every one with `dynamic=True`,
      and none with `dynamic=False` unless a call of `size` asks for it.
    * Duck sizing: tensor sizes with the same value at capture share a symbol, and a guard says that they are equal.

    Args:
        history: of the function; None for a capture that remembers nothing.
        dynamic: True, False, or None for automatic.
    """

    def __init__(self, history: SizeHistory | None = None, *, dynamic: bool | None = None) -> None:
        self.history = SizeHistory() if history is None else history
        self.dynamic = dynamic
        self._facts = Facts()
        self._hints: dict[Symbol, int] = {}
        self._sources: dict[Symbol, AccessPath] = {}
        self._by_path: dict[AccessPath, int | Expr] = {}
        self._by_value: dict[int, Expr] = {}
        self._shared: list[tuple[Symbol, AccessPath]] = []  # duck sizing: the path must hold the symbol's value
        self._forced: dict[Symbol, AccessPath] = {}
        self._unbacked: set[Symbol] = set()
        self._recorded: dict[Condition, _Fact] = {}
        self._asserts: dict[Condition, _Fact] = {}

    # ------------------------------------------------------------------ making symbols
    def size(self, value: int, path: AccessPath, *, dynamic: bool | None = None) -> int | Expr:
        """`value` itself where it stays a constant, or the expression that stands for it.

        A constant is not guarded here: the caller says that the path holds it (TensorMatches, ValueEquals).

        Args:
            value: at capture.
            path: where it is found on later calls.
            dynamic: True forces a symbol (a marked dimension), False a constant, None leaves it to the policy.

        Raises:
            UserError: a symbol is forced for 0 or 1.
        """
        if path not in self._by_path:
            changed = self.history.observe(path, value)
            self._by_path[path] = self._decide(value, path, changed, dynamic)
        return self._by_path[path]

    def _decide(self, value: int, path: AccessPath, changed: bool, dynamic: bool | None) -> int | Expr:
        wanted = dynamic if dynamic is not None else self.dynamic if self.dynamic is not None else changed
        if value in (0, 1):
            if dynamic:
                raise UserError(SPECIALISED, f"{path} is {value}")
            return value
        if not wanted:
            return value
        is_size = isinstance(path, SizeOf)
        if is_size and dynamic is None and value in self._by_value:
            made = self._by_value[value]
            (shared,) = made.symbols
            self._shared.append((shared, path))
            return made
        name = f"s{len(self._sources)}"
        made = symbol(name) if value > 1 else symbol(name, None, -1)
        (new,) = made.symbols
        self._hints[new] = value
        self._sources[new] = path
        if is_size:
            self._by_value.setdefault(value, made)
        if dynamic:
            self._forced[new] = path
        return made

    def unbacked(self, name_hint: str, lower: int, upper: int | None) -> Expr:
        """A symbol whose value only the run knows, within the bounds."""
        stem = name_hint if name_hint.isidentifier() else "value"
        made = symbol(f"u{len(self._unbacked)}_{stem}", lower, upper)
        self._unbacked |= made.symbols
        return made

    # ------------------------------------------------------------------ deciding
    def hint(self, expr: Expr) -> int:
        """The value at capture.

        Raises:
            GraphBreak: it depends on an unbacked symbol that no fact replaced by others.
        """
        simple = self._facts.simplify_expr(expr)
        if not self._unbacked.isdisjoint(simple.symbols):
            raise GraphBreak(DATA_DEPENDENT, f"the value of {expr}")
        return simple.evaluate(self._hints)

    def known(self, condition: Condition) -> bool | None:
        """The truth of the condition for every value the guards let in, or None. Records nothing."""
        return self._facts.known(condition)

    def guard(self, condition: Condition, location: CodeLocation | None = None) -> bool:
        """Decide the condition with the values at capture, and record what was decided unless it is known.

        Raises:
            GraphBreak: it depends on an unbacked symbol.
            UserError: it fixes a dimension that was marked dynamic.
        """
        known = self._facts.known(condition)
        if known is not None:
            return known
        simple = self._facts.simplify(condition)
        if not self._unbacked.isdisjoint(simple.symbols):
            raise GraphBreak(DATA_DEPENDENT, str(condition), location)
        truth = simple.evaluate(self._hints)
        fact = simple if truth else negate(simple)
        self._facts.add(fact)
        self._recorded.setdefault(fact, _Fact(fact, location))
        self._check_forced(fact, location)
        return truth

    def assume(self, condition: Condition, location: CodeLocation | None = None) -> None:
        """Take for true what the program checks at run time (torch._check): `asserts` lists what has to be tested.

        A condition over backed symbols alone is guarded instead.

        Raises:
            UserError: it does not hold at capture.
        """
        if self._unbacked.isdisjoint(self._facts.simplify(condition).symbols):
            self.guard(condition, location)
            return
        if self._facts.known(condition) is None:
            self._facts.add(condition)
            self._asserts.setdefault(condition, _Fact(condition, location))

    def _check_forced(self, fact: Condition, location: CodeLocation | None) -> None:
        for forced, path in self._forced.items():
            value = self._facts.simplify_expr(as_expr(forced)).value
            bounds = self._facts.bounds_of(forced)
            if value is not None or (bounds.lower is not None and bounds.lower == bounds.upper):
                raise UserError(SPECIALISED, f"{path}, marked dynamic, is fixed by {fact}", location)

    # ------------------------------------------------------------------ results
    def asserts(self) -> tuple[tuple[Condition, CodeLocation | None], ...]:
        """Conditions over unbacked symbols that the compiled code must test when it runs."""
        return tuple((fact.condition, fact.location) for fact in self._asserts.values())

    def sources(self) -> Mapping[Symbol, AccessPath]:
        """One path per backed symbol: where its value is found."""
        return dict(self._sources)

    def guards(self) -> tuple[Guard, ...]:
        """What was assumed, without what the rest implies, as conditions over the symbols' paths."""
        made: list[Guard] = []
        for shared, path in self._shared:
            other = f"{shared.name}_too"
            both = ((shared.name, self._sources[shared]), (other, path))
            made.append(SymbolicCondition(f"{shared.name} == {other}", both))
        for fact in self._needed():
            names = tuple((s.name, self._sources[s]) for s in sorted(fact.condition.symbols, key=lambda s: s.sort_key))
            made.append(SymbolicCondition(str(fact.condition), names, fact.location))
        return tuple(made)

    def _needed(self) -> list[_Fact]:
        """The facts and the symbols' own bounds, less those that the others imply."""
        everything = [*(_Fact(c, None) for s in self._sources for c in _own_bounds(s)), *self._recorded.values()]
        weak = [fact for fact in everything if fact.condition.kind == "le" and len(fact.condition.expr.terms) <= 2]
        dropped: set[Condition] = set()
        for fact in weak:
            rest = [f for f in everything if f is not fact and f.condition not in dropped]
            if _follows(fact.condition, rest):
                dropped.add(fact.condition)
        return [fact for fact in everything if fact.condition not in dropped]


def _own_bounds(s: Symbol) -> list[Condition]:
    """The bounds of a symbol as conditions. Stated over the bare symbol they would be trivially true, so they are
    built from their raw form."""
    bounds, e = s.bounds, as_expr(s)
    made: list[Condition] = []
    if bounds.lower is not None:
        made.append(Condition("le", bounds.lower - e))
    if bounds.upper is not None:
        made.append(Condition("le", e - bounds.upper))
    return made


def _follows(condition: Condition, others: list[_Fact]) -> bool:
    """Do bounds stated by the others alone imply the bound? The symbols' own bounds are not taken for granted."""
    for fact in others:
        c = fact.condition
        if c.kind in ("le", "eq") and c.symbols == condition.symbols:
            for f in (c.expr,) if c.kind == "le" else (c.expr, -c.expr):
                gap = (condition.expr - f).value
                if gap is not None and gap <= 0:
                    return True
    return False
