"""ShapeEnv: which integers are symbols, and what a capture assumed about them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import final

import attrs

from torchjit_core.expr import Bounds, Condition, Expr, Symbol, as_expr, le, negate, symbol
from torchjit_core.guards import Guard, SymbolicCondition
from torchjit_core.location import CodeLocation
from torchjit_core.marks import SizeMark
from torchjit_core.paths import AccessPath, Arg, Item, SizeOf, StrideOf
from torchjit_core.reasons import GraphBreak, UserError, reason
from torchjit_guards.facts import Facts
from torchjit_guards.size_history import SizeHistory

__all__ = ["DATA_DEPENDENT", "NARROWED", "SPECIALISED", "ShapeEnv"]

SPECIALISED = reason(
    "TJ-GRD-002",
    "a dimension that was marked dynamic is constrained to one value",
    "You asked for a symbolic size, but the program only works as captured for a single value of it (sizes 0 and 1 are "
    "always captured as constants, because broadcasting and emptiness depend on them), or computes sizes from it that "
    "would be thousands of operations long.",
    "Call the function with a size of at least 2 when it is captured.",
    "Remove the comparison or the reshape that fixes the size, or remove the mark.",
    "Use maybe_mark_dynamic if a constant is fine where the program needs one.",
)
NARROWED = reason(
    "TJ-GRD-004",
    "the program works for a part of the declared range only",
    "mark_dynamic(min=, max=) declares the sizes that one compilation must serve. The program takes a decision that "
    "comes out differently for some of them, or the size of this call lies outside of them.",
    "Declare the range that the message states, or remove the decision.",
)
DATA_DEPENDENT = reason(
    "TJ-GRD-003",
    "a decision depends on a number that only the run knows",
    "The number comes out of a tensor (item, nonzero ...), so there is no value at capture to decide with.",
    "State what holds with torch._check(...), before the decision.",
)


DIVISION = reason(
    "TJ-GRD-006",
    "a number that may be zero divides",
    "At capture it is zero. The operation runs for real, and raises the error if there is one.",
)
TOO_LATE = reason(
    "TJ-GRD-005",
    "a decision about a size comes after the guards were made",
    "What is decided now could no longer be checked on later calls.",
)

_SMALLEST, _LARGEST = -(2**62), 2**62
"""Of integers that are no sizes: guards and kernels compute with 64 bits."""


@attrs.frozen
class _Fact:
    condition: Condition
    location: CodeLocation | None


@final
class ShapeEnv:
    """The symbols of one capture and the conditions that it relied on.

    * 0 and 1 are constants as sizes: broadcasting, contiguity and emptiness depend on them. A size symbol is at least 2.
    * An integer that changed between captures (`history`) becomes a symbol; so does every one with `dynamic=True`,
      and none with `dynamic=False` unless a call of `size` asks for it. Integers that are no sizes have any value.
    * Duck sizing: tensor sizes with the same value at capture share a symbol, and a guard says that they are equal;
      not those that held different values in an earlier capture.

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
        self._by_value: dict[int, list[Symbol]] = {}
        self._shared: list[tuple[Symbol, AccessPath]] = []  # duck sizing: the path must hold the symbol's value
        self._forced: dict[Symbol, AccessPath] = {}
        self._declared: dict[Symbol, Bounds] = {}
        self._unbacked: set[Symbol] = set()
        self._unseen: dict[Symbol, int] = {}  # values of inputs that no decision may look at
        self._named: dict[Symbol, str] = {}  # of these, names of sizes that are equal
        self._recorded: dict[Condition, _Fact] = {}
        self._asserts: dict[Condition, _Fact] = {}
        self._others: dict[tuple[str, tuple[tuple[str, AccessPath], ...]], SymbolicCondition] = {}
        self._sealed = False
        self.history.begin()

    # ------------------------------------------------------------------ making symbols
    def size(
        self, value: int, path: AccessPath, *, dynamic: bool | None = None, mark: SizeMark | None = None
    ) -> int | Expr:
        """`value` itself where it stays a constant, or the expression that stands for it.

        A constant is not guarded here: the caller says that the path holds it (TensorMatches, ValueEquals).

        Args:
            value: at capture.
            path: where it is found on later calls.
            dynamic: True forces a symbol, False a constant, None leaves it to the policy.
            mark: what the program says about it.

        Raises:
            UserError: a symbol is forced for the size 0 or 1, or the size is outside of its declared range.
        """
        if path not in self._by_path:
            changed = self.history.observe(path, value)
            if mark is not None:
                self._by_path[path] = self._marked(value, path, mark)
            else:
                self._by_path[path] = self._decide(value, path, changed, dynamic)
        return self._by_path[path]

    def varies(self, value: float, path: AccessPath) -> bool:
        """Is the float at this path an input of the graph, because it changed between captures?"""
        changed = self.history.observe(path, value)
        return self._wanted(path, changed)

    def _wanted(self, path: AccessPath, changed: bool) -> bool:
        """What the setting `dynamic` says. True holds for sizes and for arguments, not for every attribute of every object
        that an argument leads to: those are mostly constants of a model."""
        if self.dynamic and not isinstance(path, SizeOf | StrideOf):
            at_once = all(isinstance(step, Arg | Item) for step in path.steps())
            return at_once or changed
        return changed if self.dynamic is None else self.dynamic

    def _marked(self, value: int, path: AccessPath, mark: SizeMark) -> int | Expr:
        declared = Bounds(mark.lower, mark.upper)
        if mark.kind == "static" or (mark.kind == "maybe" and (value in (0, 1) or value not in declared)):
            return value
        if value in (0, 1) and mark.kind != "unbacked":
            raise UserError(SPECIALISED, f"{path} is {value}")
        if value not in declared:
            raise UserError(NARROWED, f"{path} is {value}, declared: {_range_text(declared)}")
        return self._unseen_size(value, path, mark) if mark.kind == "unbacked" else self._seen_size(value, path, mark)

    def _unseen_size(self, value: int, path: AccessPath, mark: SizeMark) -> Expr:
        """A symbol whose value no decision may look at; one for all sizes that the mark says are the same."""
        lower = 0 if mark.lower is None else max(mark.lower, 0)
        bounds = Bounds(lower, mark.upper)
        for shared, name in self._named.items():
            if name == mark.same_as and self._unseen[shared] == value and shared.bounds == bounds:
                self._shared.append((shared, path))
                return as_expr(shared)
        made = symbol(f"u{len(self._unbacked)}", lower, mark.upper)
        (new,) = made.symbols
        self._unbacked.add(new)
        self._sources[new] = path
        self._unseen[new] = value
        if mark.same_as is not None:
            self._named[new] = mark.same_as
        return made

    def _seen_size(self, value: int, path: AccessPath, mark: SizeMark) -> Expr:
        bounds = Bounds(max(mark.lower or 2, 2), mark.upper)
        made = self._symbol(value, path, bounds)
        (new,) = made.symbols
        if mark.kind == "dynamic":
            self._forced[new] = path
            if mark.lower is not None or mark.upper is not None:
                self._declared[new] = bounds
        return made

    def _decide(self, value: int, path: AccessPath, changed: bool, dynamic: bool | None) -> int | Expr:
        wanted = self._wanted(path, changed) if dynamic is None else dynamic
        is_size = isinstance(path, SizeOf | StrideOf)
        if is_size and value in (0, 1):
            if dynamic and isinstance(path, SizeOf):
                raise UserError(SPECIALISED, f"{path} is {value}")
            return value
        if not wanted or not _SMALLEST <= value <= _LARGEST:
            return value
        if not is_size:
            return self._symbol(value, path, Bounds(_SMALLEST, _LARGEST))
        if isinstance(path, SizeOf) and dynamic is None:
            for shared in self._by_value.get(value, ()):
                if not self.history.distinct(self._sources[shared], path):
                    self._shared.append((shared, path))
                    return as_expr(shared)
        made = self._symbol(value, path, Bounds(2, None))
        (new,) = made.symbols
        if isinstance(path, SizeOf):
            if dynamic:
                self._forced[new] = path
            else:
                self._by_value.setdefault(value, []).append(new)
        return made

    def _symbol(self, value: int, path: AccessPath, bounds: Bounds) -> Expr:
        made = symbol(f"s{len(self._sources)}", bounds.lower, bounds.upper)
        (new,) = made.symbols
        self._hints[new] = value
        self._sources[new] = path
        return made

    def unbacked(self, name_hint: str, lower: int | None, upper: int | None) -> Expr:
        """A symbol whose value only the run knows, within the bounds; its name is the hint and a number."""
        stem = name_hint if name_hint.isidentifier() else "u"
        made = symbol(f"{stem}{len(self._unbacked)}", lower, upper)
        self._unbacked |= made.symbols
        return made

    def bound(self, expr: Expr, lower: int | None, upper: int | None) -> None:
        """The expression lies in this range by what makes it: nothing has to test that."""
        for fact in (*(() if lower is None else (le(lower, expr),)), *(() if upper is None else (le(expr, upper),))):
            if self._facts.known(fact) is None:
                self._facts.add(fact)

    # ------------------------------------------------------------------ deciding
    def hint(self, expr: Expr) -> int:
        """The value at capture.

        Raises:
            GraphBreak: it depends on an unbacked symbol that no fact replaced by others.
        """
        simple = self._facts.simplify(expr)
        if not self._unbacked.isdisjoint(simple.symbols):
            raise GraphBreak(DATA_DEPENDENT, f"the value of {expr}")
        return simple.evaluate(self._hints)

    def example(self, expr: Expr) -> int:
        """The value at capture, also of a dimension that was marked unbacked: to call the compiled code with."""
        return self._facts.simplify(expr).evaluate({**self._hints, **self._unseen})

    def known(self, condition: Condition) -> bool | None:
        """The truth of the condition for every value the guards let in, or None. Records nothing."""
        return self._facts.known(condition)

    def oblivious(self, condition: Condition) -> bool | None:
        """The truth if unbacked sizes are neither 0 nor 1; None if that does not decide it either. Records nothing.

        Metadata functions ask whether a size is 0 or 1 only to take short cuts; what they compute for larger sizes
        holds for those too, or an operation fails when it runs.
        """
        simple = self._facts.simplify(condition)
        larger: dict[Symbol, Expr | int] = {}
        for s in simple.symbols & self._unbacked:
            bounds = self._facts.bounds_of(s)
            if bounds.lower is not None and bounds.lower >= 0 and (bounds.upper is None or bounds.upper >= 2):
                # Another symbol, not another range: `max(1, u0)` has to become `u0`.
                larger[s] = symbol(f"{s.name}_large", max(bounds.lower, 2), bounds.upper)
        return simple.substitute(larger).known(self._facts.ranges)

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
            raise GraphBreak(DATA_DEPENDENT, self.in_terms(condition), location)
        return self._recorded_truth(condition, simple, location)

    def laid_out(self, condition: Condition, location: CodeLocation | None = None) -> None:
        """An input lies in memory so: a condition over its sizes and strides, which are found on the input itself. It is
        no decision of the program, so sizes that no decision may look at can be part of it."""
        if self._facts.known(condition) is None:
            self._recorded_truth(condition, self._facts.simplify(condition), location)

    def _recorded_truth(self, condition: Condition, simple: Condition, location: CodeLocation | None) -> bool:
        if self._sealed:
            raise GraphBreak(TOO_LATE, self.in_terms(condition), location)
        try:
            truth = simple.evaluate({**self._hints, **self._unseen} if self._unseen else self._hints)
        except ZeroDivisionError:
            raise GraphBreak(DIVISION, self.in_terms(condition), location) from None
        fact = simple if truth else negate(simple)
        self._facts.add(fact)
        self._recorded.setdefault(fact, _Fact(fact, location))
        self._check_forced(fact, location)
        return truth

    def guard_numbers(
        self, expression: str, names: tuple[tuple[str, AccessPath], ...], location: CodeLocation | None = None
    ) -> None:
        """Record a condition over floats (and ints) that was found to hold at capture, see `SymbolicCondition`.

        Raises:
            GraphBreak: the guards are made already.
        """
        key = (expression, names)
        if key in self._others:
            return
        if self._sealed:
            raise GraphBreak(TOO_LATE, expression, location)
        self._others[key] = SymbolicCondition(expression, names, location)

    def seal(self) -> None:
        """The guards are made: a decision that needs another one is refused from now on."""
        self._sealed = True

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
            value = self._facts.simplify(as_expr(forced)).value
            bounds = self._facts.bounds_of(forced)
            if value is not None or (bounds.lower is not None and bounds.lower == bounds.upper):
                detail = f"{path} is marked dynamic, and the program needs {self.in_terms(fact)}"
                raise UserError(SPECIALISED, detail, location)
            declared = self._declared.get(forced)
            if declared is None:
                continue
            if bounds != declared:
                detail = f"{path} is declared {_range_text(declared)}, and {self.in_terms(fact)} leaves {_range_text(bounds)}"
                raise UserError(NARROWED, detail, location)
            hole = self._hole(forced, declared, fact)
            if hole is not None:
                detail = f"{path} is declared {_range_text(declared)}, and {self.in_terms(fact)} leaves out {hole}"
                raise UserError(NARROWED, detail, location)

    def _hole(self, forced: Symbol, declared: Bounds, fact: Condition) -> int | None:
        """A size in the declared range that the fact excludes by itself. A fact over other sizes too relates them, and excludes
        no size. Of a wide range only the ends are tried: a guard is left for what may lie between."""
        symbol = self._facts.simplify(as_expr(forced)).as_symbol
        if symbol is None or fact.symbols != {symbol}:
            return None
        return next((n for n in _some_of(declared) if not _holds_at(fact, symbol, n)), None)

    def in_terms(self, condition: Condition) -> str:
        """The condition over the places that the symbols stand for: `x.size(0) <= 8`."""
        places = {s.name: str(path) for s, path in self._sources.items()}
        return _NAME.sub(lambda found: places.get(found.group(), found.group()), str(condition))

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
        return (*made, *self._others.values())

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


_NAME = re.compile(r"[A-Za-z_]\w*")


def _range_text(bounds: Bounds) -> str:
    low = "" if bounds.lower is None else f"at least {bounds.lower}"
    high = "" if bounds.upper is None else f"at most {bounds.upper}"
    return " and ".join(part for part in (low, high) if part) or "any"


_TRIED = 1024
"""Sizes at each end of a declared range that a fact is tried with: more than the period of any remainder in practice."""


def _some_of(declared: Bounds) -> Iterator[int]:
    low = max(declared.lower or 2, 2)
    high = low + 2 * _TRIED if declared.upper is None else declared.upper
    if high - low < 2 * _TRIED:
        yield from range(low, high + 1)
    else:
        yield from range(low, low + _TRIED)
        yield from range(high - _TRIED + 1, high + 1)


def _holds_at(fact: Condition, symbol: Symbol, value: int) -> bool:
    try:
        return fact.evaluate({symbol: value})
    except ZeroDivisionError:
        return False


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
