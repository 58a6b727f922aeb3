"""Integer polynomials over atoms, in one canonical form.

An `Expr` is a sum of `coefficient * monomial`; a monomial is a product of powers of atoms; an atom is a `Symbol` or an
`Operation` that a polynomial cannot express (floor division, modulo, max, min). All of them are interned: equal
expressions are one object, so they compare and hash by identity.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

from torchjit_core.expr.bounds import ZERO, Bounds
from torchjit_core.expr.monomials import Atom, Monomial, common, divide, term_key, term_text, times

__all__ = ["Atom", "Expr", "Operation", "Symbol", "as_expr", "constant", "maximum", "minimum", "symbol"]

_KEPT_BOUNDS = 16
"""Intervals that an expression remembers, by what was told of its symbols."""


@final
class Symbol(Atom):
    """A named unknown integer with its own bounds. Interned by name and bounds."""

    __slots__ = ("bounds", "name")
    _interned: dict[tuple[str, int | None, int | None], Symbol] = {}
    name: str
    bounds: Bounds

    def __new__(cls, name: str, lower: int | None = 2, upper: int | None = None) -> Symbol:
        key = (name, lower, upper)
        found = cls._interned.get(key)
        if found is None:
            found = object.__new__(cls)
            found.name = name
            found.bounds = Bounds(lower, upper)
            found.sort_key = (0, len(name), name, str(lower), str(upper))
            found = cls._interned.setdefault(key, found)
        return found

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (Symbol, (self.name, self.bounds.lower, self.bounds.upper))


@final
class Operation(Atom):
    """`kind` (`floordiv`, `mod`, `max`, `min`) of two expressions that did not simplify."""

    __slots__ = ("kind", "left", "right")
    _interned: dict[tuple[str, Expr, Expr], Operation] = {}
    kind: str
    left: Expr
    right: Expr

    def __new__(cls, kind: str, left: Expr, right: Expr) -> Operation:
        key = (kind, left, right)
        found = cls._interned.get(key)
        if found is None:
            found = object.__new__(cls)
            found.kind, found.left, found.right = key
            found.sort_key = (1, kind, *_operand_key(left), *_operand_key(right))
            found = cls._interned.setdefault(key, found)
        return found

    def __repr__(self) -> str:
        if self.kind in ("max", "min"):
            return f"{self.kind}({self.left}, {self.right})"
        sign = "//" if self.kind == "floordiv" else "%"
        return f"({_wrapped(self.left)}{sign}{_wrapped(self.right)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Operation, (self.kind, self.left, self.right))


def _operand_key(e: Expr) -> tuple[str, tuple[Any, ...]]:
    """By the text, as people order, and by what the text does not show; by a digest where the text would be too long."""
    if e.length <= _READABLE:
        return str(e), e._order()
    return "~" + hashlib.blake2b(repr(e._order()).encode(), digest_size=16).hexdigest(), ()


_READABLE = 300
"""The length up to which expressions are ordered by their text."""


def _wrapped(e: Expr) -> str:
    text = str(e)
    simple = text.isidentifier() or text.isdecimal() or (text.startswith("(") and _is_one_group(text))
    return text if simple else f"({text})"


def _is_one_group(text: str) -> bool:
    depth = 0
    for index, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return index == len(text) - 1
    return False


@final
class Expr:
    """An interned integer polynomial. Build it with `constant`, `symbol` and the operators.

    `//` and `%` round as Python's do (towards minus infinity) and suppose a divisor that is not 0.
    """

    __slots__ = ("_bounds", "_length", "_text", "symbols", "terms")
    _interned: dict[tuple[tuple[Monomial, int], ...], Expr] = {}
    terms: tuple[tuple[Monomial, int], ...]
    symbols: frozenset[Symbol]
    _length: int
    _text: str | None
    _bounds: dict[tuple[Bounds | None, ...], Bounds]

    def __new__(cls, terms: tuple[tuple[Monomial, int], ...]) -> Expr:
        found = cls._interned.get(terms)
        if found is None:
            found = object.__new__(cls)
            found.terms = terms
            found.symbols = _symbols_of(terms)
            found._length = 0
            found._text = None
            found._bounds = {}
            found = cls._interned.setdefault(terms, found)
        return found

    # ------------------------------------------------------------------ reading
    @property
    def value(self) -> int | None:
        """The int of a constant expression, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    @property
    def as_symbol(self) -> Symbol | None:
        """The symbol that this expression is, else None."""
        atom = _single_atom(self)
        return atom if isinstance(atom, Symbol) else None

    @property
    def length(self) -> int:
        """How many atoms it has when it is written out, where what operations share is written each time: it can be
        exponential in the number of operations that made it. The text is as long; nothing else here takes as long.
        """
        if not self._length:
            atoms = (atom for monomial, _ in self.terms for atom, _ in monomial)
            operands = (atom.left.length + atom.right.length if isinstance(atom, Operation) else 0 for atom in atoms)
            self._length = 1 + sum(1 + n for n in operands)
        return self._length

    def evaluate(self, env: Mapping[Symbol, int]) -> int:
        """The value under `env`, which holds every symbol.

        Raises:
            KeyError: a symbol is missing.
            ZeroDivisionError: a divisor is 0.
        """
        return _value(self, env, {})

    def substitute(self, mapping: Mapping[Symbol, Expr | int], made: dict[Expr, Expr] | None = None) -> Expr:
        """Replace symbols and simplify anew.

        Args:
            mapping: what to put for symbols.
            made: what this mapping made of expressions so far. Whoever replaces the same in many of them hands the same
                dict each time.
        """
        if self.symbols.isdisjoint(mapping):
            return self
        if made is None:
            made = {}
        found = made.get(self)
        if found is not None:
            return found
        total = constant(0)
        for monomial, coefficient in self.terms:
            term = constant(coefficient)
            for atom, power in monomial:
                base = _atom_substitute(atom, mapping, made)
                for _ in range(power):
                    term = term * base
            total = total + term
        made[self] = total
        return total

    def bounds(self, ranges: Mapping[Symbol, Bounds] | None = None) -> Bounds:
        """An interval that contains the value, from the symbols' own bounds met with `ranges`."""
        # Whoever asks narrows one symbol at a time, so most questions come again with what matters unchanged.
        told = tuple([ranges.get(s) for s in self.symbols]) if ranges else ()
        found = self._bounds.get(told)
        if found is None:
            if len(self._bounds) >= _KEPT_BOUNDS:
                self._bounds.clear()
            found = self._bounds[told] = _bounds(self, ranges or {})
        return found

    def divisible_by(self, divisor: Expr | int) -> bool:
        """Is this a multiple of `divisor` for certain?"""
        return (self % as_expr(divisor)).value == 0

    # ------------------------------------------------------------------ arithmetic
    def __add__(self, other: Expr | int) -> Expr:
        right = as_expr(other)
        if not self.terms or not right.terms:
            return self if self.terms else right
        return _from_terms((*self.terms, *right.terms))

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Expr | int) -> Expr:
        right = as_expr(other)
        return _from_terms((*self.terms, *[(m, -c) for m, c in right.terms])) if right.terms else self

    def __rsub__(self, other: Expr | int) -> Expr:
        return as_expr(other) + -self

    def __mul__(self, other: Expr | int) -> Expr:
        right = as_expr(other)
        if self is _ONE or right is _ONE:
            return right if self is _ONE else self
        return _from_terms([(times(m, n), c * d) for m, c in self.terms for n, d in right.terms])

    __rmul__ = __mul__

    def __floordiv__(self, other: Expr | int) -> Expr:
        return _floordiv(self, as_expr(other))

    def __rfloordiv__(self, other: Expr | int) -> Expr:
        return _floordiv(as_expr(other), self)

    def __mod__(self, other: Expr | int) -> Expr:
        return _mod(self, as_expr(other))

    def __rmod__(self, other: Expr | int) -> Expr:
        return _mod(as_expr(other), self)

    def __pow__(self, exponent: int) -> Expr:
        if exponent < 0:
            raise ValueError("a negative power of an integer expression is not an integer")
        result = constant(1)
        for _ in range(exponent):
            result = result * self
        return result

    # ------------------------------------------------------------------ text
    def _order(self) -> tuple[Any, ...]:
        return tuple((tuple((a.sort_key, p) for a, p in m), c) for m, c in self.terms)

    def __str__(self) -> str:
        if self._text is None:
            # Constants last, as people write them.
            parts = [term_text(m, c) for m, c in sorted(self.terms, key=lambda t: not t[0])]
            self._text = " + ".join(parts).replace("+ -", "- ") or "0"
        return self._text

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Expr, (self.terms,))


def _symbols_of(terms: Iterable[tuple[Monomial, int]]) -> frozenset[Symbol]:
    found: set[Symbol] = set()
    for monomial, _ in terms:
        for atom, _power in monomial:
            if isinstance(atom, Symbol):
                found.add(atom)
            elif isinstance(atom, Operation):
                found |= atom.left.symbols | atom.right.symbols
    return frozenset(found)


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Expr:
    sums: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    kept = [(m, c) for m, c in sums.items() if c]
    if len(kept) > 1:
        kept.sort(key=term_key)
    return Expr(tuple(kept))


# ---------------------------------------------------------------------- construction
def constant(value: int) -> Expr:
    """The expression of an int."""
    if type(value) is not int:
        value = int(value)
    found = _CONSTANTS.get(value)
    if found is None:
        found = _CONSTANTS[value] = Expr((((), value),) if value else ())
    return found


_CONSTANTS: dict[int, Expr] = {}
"""Those that were asked for: expressions stay anyway."""
_ONE = constant(1)


def symbol(name: str, lower: int | None = 2, upper: int | None = None) -> Expr:
    """The expression of a symbol. Sizes are at least 2 unless told otherwise: 0 and 1 are specialised."""
    return Expr(((((Symbol(name, lower, upper), 1),), 1),))


def as_expr(value: Expr | int | Symbol) -> Expr:
    """Lift an int or a symbol; an expression is returned as it is.

    Raises:
        TypeError: anything else.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, int):
        return constant(value)
    if isinstance(value, Symbol):
        return Expr(((((value, 1),), 1),))
    raise TypeError(f"want an int or an integer expression, got {type(value).__name__}")


def _atom(kind: str, left: Expr, right: Expr) -> Expr:
    return Expr(((((Operation(kind, left, right), 1),), 1),))


def _content(e: Expr) -> int:
    return math.gcd(*(c for _, c in e.terms)) if e.terms else 0


def _scaled_down(e: Expr, by: int) -> Expr:
    return Expr(tuple((m, c // by) for m, c in e.terms))


def _split(e: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    """(quotient, rest) with e == quotient * divisor + rest, for a divisor of one term."""
    (by_monomial, by_coefficient), quotient, rest = divisor.terms[0], [], []
    for monomial, coefficient in e.terms:
        divided = divide(monomial, by_monomial)
        if divided is None:
            rest.append((monomial, coefficient))
            continue
        whole, left = divmod(coefficient, by_coefficient)
        quotient.append((divided, whole))
        rest.append((monomial, left))
    return _from_terms(quotient), _from_terms(rest)


def _below(rest: Expr, divisor: Expr) -> bool:
    """0 <= rest < divisor for certain."""
    low = rest.bounds().lower
    if low is None or low < 0:
        return False
    gap = (divisor - rest).bounds().lower
    return gap is not None and gap > 0


def _reduced(left: Expr, right: Expr) -> tuple[Expr, Expr, Expr, int]:
    """(q, l, r, c) with left // right == q + l // r and left % right == c * (l % r), where l and r are as small as may be."""
    quotient, factor = constant(0), 1
    while left.terms:
        if len(right.terms) == 1:
            whole, left = _split(left, right)
            quotient = quotient + whole if quotient.terms else whole
        common = math.gcd(_content(left), _content(right))
        if common <= 1 or not left.terms:
            break
        left, right, factor = _scaled_down(left, common), _scaled_down(right, common), factor * common
    return quotient, left, right, factor


def _of_numbers(operation: Callable[[int, int], int], left: Expr, right: Expr) -> Expr | None:
    """A quotient or a remainder that is a number whatever the symbols are."""
    if right.value == 0:
        raise ZeroDivisionError(f"({left}) {'//' if operation is operator.floordiv else '%'} 0")
    if left is right:
        return constant(operation(1, 1))
    return None if left.value is None or right.value is None else constant(operation(left.value, right.value))


def _floordiv(left: Expr, right: Expr) -> Expr:
    known = _of_numbers(operator.floordiv, left, right)
    if known is not None:
        return known
    if right.value is not None and right.value < 0:
        left, right = -left, -right
    quotient, left, right, _ = _reduced(left, right)
    if not left.terms or _below(left, right):
        return quotient
    nested = _single_atom(left)
    if isinstance(nested, Operation) and nested.kind == "floordiv" and _positive(nested.right) and _positive(right):
        rest = _floordiv(nested.left, nested.right * right)
    else:
        rest = _atom("floordiv", left, right)
    return quotient + rest if quotient.terms else rest


def _mod(left: Expr, right: Expr) -> Expr:
    known = _of_numbers(operator.mod, left, right)
    if known is not None:
        return known
    _, left, right, factor = _reduced(left, right)
    if not left.terms or _below(left, right):
        return left * factor if left.terms else left
    nested = _single_atom(left)
    if isinstance(nested, Operation) and nested.kind == "mod" and nested.right.divisible_by(right):
        return _mod(nested.left, right) * factor
    rest = _atom("mod", left, right)
    return rest * factor if factor > 1 else rest


def _positive(e: Expr) -> bool:
    low = e.bounds().lower
    return low is not None and low > 0


def _single_atom(e: Expr) -> Atom | None:
    """The atom that the expression is, if it is one."""
    if len(e.terms) == 1 and e.terms[0][1] == 1 and len(e.terms[0][0]) == 1:
        atom, power = e.terms[0][0][0]
        return atom if power == 1 else None
    return None


def maximum(left: Expr | int, right: Expr | int) -> Expr:
    """max(left, right), simplified when the bounds decide."""
    return _extreme("max", as_expr(left), as_expr(right))


def minimum(left: Expr | int, right: Expr | int) -> Expr:
    """min(left, right), simplified when the bounds decide."""
    return _extreme("min", as_expr(left), as_expr(right))


def _extreme(kind: str, left: Expr, right: Expr) -> Expr:
    gap = (left - right).bounds()
    if gap.lower is not None and gap.lower >= 0:
        return left if kind == "max" else right
    if gap.upper is not None and gap.upper <= 0:
        return right if kind == "max" else left
    first, second = sorted((left, right), key=_operand_key)
    return _atom(kind, first, second)


# ---------------------------------------------------------------------- walking atoms
# Operations share operands, so what they become is kept: paths through an expression can be exponentially many.
def _value(e: Expr, env: Mapping[Symbol, int], made: dict[Operation, int]) -> int:
    total = 0
    for monomial, coefficient in e.terms:
        for atom, power in monomial:
            if isinstance(atom, Symbol):
                value = env[atom]
            else:
                assert isinstance(atom, Operation)
                found = made.get(atom)
                if found is None:
                    found = made[atom] = _operation_value(atom, env, made)
                value = found
            coefficient *= value if power == 1 else value**power
        total += coefficient
    return total


def _operation_value(operation: Operation, env: Mapping[Symbol, int], made: dict[Operation, int]) -> int:
    left, right = _value(operation.left, env, made), _value(operation.right, env, made)
    value: int = _INT_OPERATIONS[operation.kind](left, right)
    return value


_INT_OPERATIONS: dict[str, Any] = {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}


def _atom_substitute(atom: Atom, mapping: Mapping[Symbol, Expr | int], made: dict[Expr, Expr]) -> Expr:
    if isinstance(atom, Symbol):
        return as_expr(mapping.get(atom, atom))
    assert isinstance(atom, Operation)
    left, right = atom.left.substitute(mapping, made), atom.right.substitute(mapping, made)
    return _EXPR_OPERATIONS[atom.kind](left, right)


_EXPR_OPERATIONS = {"floordiv": _floordiv, "mod": _mod, "max": maximum, "min": minimum}


# ---------------------------------------------------------------------- intervals
def _bounds(e: Expr, ranges: Mapping[Symbol, Bounds]) -> Bounds:
    total = ZERO
    for monomial, coefficient in e.terms:
        total = total + _monomial_bounds(monomial, ranges) * Bounds(coefficient, coefficient)
    if len(e.terms) > 1:
        # s0*s1 - s0 is s0*(s1 - 1): term by term the interval would be unbounded below.
        shared = common(m for m, _ in e.terms)
        if shared:
            rest = _from_terms((divide(m, shared) or (), c) for m, c in e.terms)
            total = total.intersect(_monomial_bounds(shared, ranges) * rest.bounds(ranges))
        elif len(e.terms) <= _GROUPED_TERMS and (total.lower is None or total.upper is None):
            total = total.intersect(_grouped_bounds(e, ranges))
    return total


# Trying each atom in turn is exponential in the number of terms.
_GROUPED_TERMS = 6


def _grouped_bounds(e: Expr, ranges: Mapping[Symbol, Bounds]) -> Bounds:
    """Try each atom in turn: e == atom * group + rest, with the group factored."""
    best = Bounds()
    for atom in {a for m, _ in e.terms for a, _p in m}:
        single: Monomial = ((atom, 1),)
        group = [(divide(m, single), c) for m, c in e.terms]
        inside = _from_terms((m, c) for m, c in group if m is not None)
        outside = _from_terms(t for t, (m, _) in zip(e.terms, group, strict=True) if m is None)
        if len(inside.terms) < 2:
            continue
        product = _monomial_bounds(single, ranges) * inside.bounds(ranges)
        best = best.intersect(product + outside.bounds(ranges))
    return best


def _monomial_bounds(monomial: Monomial, ranges: Mapping[Symbol, Bounds]) -> Bounds:
    product = Bounds(1, 1)
    for atom, power in monomial:
        product = product * _atom_bounds(atom, ranges).power(power)
    return product


def _atom_bounds(atom: Atom, ranges: Mapping[Symbol, Bounds]) -> Bounds:
    if isinstance(atom, Symbol):
        told = ranges.get(atom)
        return atom.bounds if told is None else atom.bounds.intersect(told)
    assert isinstance(atom, Operation)
    left, right = atom.left.bounds(ranges), atom.right.bounds(ranges)
    return _BOUNDS_OPERATIONS[atom.kind](left, right)


_BOUNDS_OPERATIONS = {
    "floordiv": Bounds.__floordiv__, "mod": Bounds.__mod__, "max": Bounds.maximum, "min": Bounds.minimum,
}  # fmt: skip
