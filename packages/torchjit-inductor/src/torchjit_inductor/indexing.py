"""Reading and simplifying index expressions: strides, loop sizes as facts, merging and splitting of loops, bounds."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, final

import attrs

from torchjit_core.expr import Atom, Expr, Operation, Symbol, as_expr, constant, maximum, minimum
from torchjit_inductor.ir.kernel import LoopVar

__all__ = [
    "Digit",
    "digit",
    "dividends",
    "join_digits",
    "largest",
    "loop_symbol",
    "magnitude",
    "merge_loops",
    "operation_text",
    "simplify",
    "stride",
    "unit_steps",
    "written",
    "written_length",
]


def loop_symbol(prefix: str, number: int, size: Expr) -> Symbol:
    """The symbol of a loop: it starts at 0, and ends below a constant size."""
    upper = size.value
    return Symbol(f"{prefix}{number}", 0, None if upper is None else max(upper - 1, 0))


def stride(index: Expr, var: Symbol) -> Expr | None:
    """The coefficient of `var` if the index is linear in it (0 if absent), else None."""
    if var not in index.symbols:
        return constant(0)
    terms = []
    for monomial, coefficient in index.terms:
        rest = []
        power_of_var = 0
        for atom, power in monomial:
            if atom is var:
                power_of_var = power
            elif isinstance(atom, Operation) and (var in atom.left.symbols or var in atom.right.symbols):
                return None
            else:
                rest.append((atom, power))
        if power_of_var > 1:
            return None
        if power_of_var:
            terms.append((tuple(rest), coefficient))
    total = constant(0)
    for term in terms:
        total = total + Expr((term,))
    return total


def written(e: Expr, atom_text: Callable[[Atom], str], number_text: Callable[[int], str] = str) -> str:
    """An expression as text of Python or C."""
    parts = []
    for monomial, coefficient in sorted(e.terms, key=lambda term: not term[0]):
        factors = [] if coefficient == 1 and monomial else [number_text(coefficient)]
        for atom, power in monomial:
            factors += [atom_text(atom)] * power
        parts.append("*".join(factors))
    return " + ".join(parts).replace("+ -", "- ") or "0"


def operation_text(atom: Atom, expr_text: Callable[[Expr], str], extreme: str, signs: str, floor: str) -> str:
    """An atom that is no symbol as text.

    Args:
        extreme: for `max` and `min`, the operands.
        signs: of a quotient and of a remainder.
        floor: for `div` and `mod` of what may be negative, the operands; "" where the signs round down themselves.

    Raises:
        TypeError: it is of an unknown kind.
    """
    if not isinstance(atom, Operation):
        raise TypeError(f"unknown atom {atom!r}")
    left, right = expr_text(atom.left), expr_text(atom.right)
    if atom.kind in ("max", "min"):
        return extreme.format(atom.kind, left, right)
    divides, low = atom.kind == "floordiv", atom.left.bounds().lower
    if not floor or (low is not None and low >= 0):
        return f"(({left}) {signs.split()[not divides]} ({right}))"
    return floor.format("div" if divides else "mod", left, right)


def _always_below(left: Expr, right: Expr, sizes: Mapping[Symbol, Expr]) -> bool:
    """0 <= left < right for every value of the loop variables, whose sizes are given.

    Loop variables of symbolic size carry no upper bound, so each is replaced by the end of its range that makes
    `right - left` (or `left`) smallest.
    """
    low = _extreme(left, sizes).bounds().lower
    if low is None or low < 0:
        return False
    gap = _extreme(right - left, sizes).bounds().lower
    return gap is not None and gap > 0


def _extreme(e: Expr, sizes: Mapping[Symbol, Expr]) -> Expr:
    """A lower bound of `e`: linear loop variables are put at the end of their range that makes it smallest."""
    for var in sorted(e.symbols & sizes.keys(), key=lambda s: s.sort_key):
        slope = stride(e, var)
        if slope is None:
            continue
        bounds = slope.bounds()
        if bounds.lower is not None and bounds.lower >= 0:
            e = e.substitute({var: 0})
        elif bounds.upper is not None and bounds.upper <= 0:
            e = e.substitute({var: sizes[var] - 1})
    return e


def simplify(index: Expr, sizes: Mapping[Symbol, Expr]) -> Expr:
    """Remove divisions and remainders that the loop sizes decide.

    `(t + T*b) // T` is `b` and `(t + T*b) % T` is `t` for a loop t of size T, also when T is symbolic.
    """
    return _simplify(index, sizes, {})


def _simplify(index: Expr, sizes: Mapping[Symbol, Expr], made: dict[Expr, Expr]) -> Expr:
    """`made`: what was simplified, each part once however often the index has it."""
    if not any(isinstance(a, Operation) for m, _ in index.terms for a, _p in m):
        return index
    found = made.get(index)
    if found is not None:
        return found
    total = constant(0)
    for monomial, coefficient in index.terms:
        term = constant(coefficient)
        for atom, power in monomial:
            part = _simplify_operation(atom, sizes, made) if isinstance(atom, Operation) else _of(atom)
            term = term * part**power
        total = total + term
    made[index] = joined = join_digits(total)
    return joined


def join_digits(index: Expr) -> Expr:
    """Put digits of one number together again: `(e // 49)*147 + (e // 7 % 7)*21 + (e % 7)*3` is `e*3`.

    Reshapes leave such sums behind; joined, loops merge and memory is seen to be walked in order.
    """
    if not any(isinstance(a, Operation) for m, _ in index.terms for a, _p in m):
        return index
    digits: list[Digit] = []
    rest = constant(0)
    for monomial, coefficient in index.terms:
        part = digit(monomial, coefficient)
        if part is None:
            rest = rest + Expr(((monomial, coefficient),))
        else:
            digits.append(part)
    if len(digits) < 2:
        return index
    joined = True
    while joined:
        joined = False
        for low in digits:
            high = next((h for h in digits if low.continued_by(h)), None)
            if high is not None:
                digits.remove(low)
                digits.remove(high)
                size = None if high.size is None or low.size is None else low.size * high.size
                digits.append(Digit(low.number, low.divisor, size, low.coefficient))
                joined = True
                break
    for part in digits:
        rest = rest + part.expr()
    return rest


@final
@attrs.frozen(eq=False)
class Digit:
    """`coefficient * ((number // divisor) % size)`; no remainder is taken when size is None."""

    number: Expr
    divisor: int
    size: int | None
    coefficient: int

    def continued_by(self, high: Digit) -> bool:
        return (
            self.size is not None
            and high is not self
            and high.number is self.number
            and high.divisor == self.divisor * self.size
            and high.coefficient == self.coefficient * self.size
        )

    def expr(self) -> Expr:
        made = self.number if self.divisor == 1 else self.number // constant(self.divisor)
        return (made if self.size is None else made % constant(self.size)) * self.coefficient


def digit(monomial: Any, coefficient: int) -> Digit | None:
    """A term as a digit of a number, or None."""
    if len(monomial) != 1 or monomial[0][1] != 1:
        return None
    atom = monomial[0][0]
    if isinstance(atom, Symbol):
        return Digit(as_expr(atom), 1, None, coefficient)
    if not isinstance(atom, Operation) or atom.right.value is None or atom.right.value < 1:
        return None
    nested = _only_operation(atom.left)
    return _DIGIT_OF[atom.kind](atom, nested, coefficient) if atom.kind in _DIGIT_OF else None


def _only_operation(number: Expr) -> Operation | None:
    """The division or remainder by a positive number that an expression is."""
    if len(number.terms) != 1:
        return None
    ((monomial, coefficient),) = number.terms
    if len(monomial) != 1 or coefficient != 1 or monomial[0][1] != 1:
        return None
    atom = monomial[0][0]
    return atom if isinstance(atom, Operation) and (atom.right.value or 0) > 0 else None


def _digit_of_remainder(atom: Operation, nested: Operation | None, coefficient: int) -> Digit:
    """`number // divisor % size`, or `number % size`."""
    if nested is not None and nested.kind == "floordiv":
        return Digit(nested.left, nested.right.value or 1, atom.right.value, coefficient)
    return Digit(atom.left, 1, atom.right.value, coefficient)


def _digit_of_quotient(atom: Operation, nested: Operation | None, coefficient: int) -> Digit:
    """`number % (divisor * size) // divisor`, or `number // divisor`."""
    divisor = atom.right.value or 1
    whole = 0 if nested is None or nested.kind != "mod" else nested.right.value or 0
    if nested is not None and whole and whole % divisor == 0:
        return Digit(nested.left, divisor, whole // divisor, coefficient)
    return Digit(atom.left, divisor, None, coefficient)


_DIGIT_OF = {"mod": _digit_of_remainder, "floordiv": _digit_of_quotient}


def unit_steps(index: Expr, var: Symbol, size: int) -> bool:
    """Does the index mostly grow by one when `var` does? Decided by trying, where it is not linear.

    Args:
        size: of the loop over `var`.
    """
    found = stride(index, var)
    if found is not None:
        return found.value == 1
    if size < 2:
        return False
    others = {s: 0 for s in index.symbols}
    samples = sorted({k * (size - 1) // 16 for k in range(16)})
    steps = 0
    for start in samples:
        try:
            here = index.evaluate({**others, var: start})
            steps += index.evaluate({**others, var: start + 1}) - here == 1
        except ZeroDivisionError:
            return False
    return steps * 4 >= len(samples) * 3


def _of(atom: object) -> Expr:
    if not isinstance(atom, Symbol):
        raise TypeError(f"unknown atom {atom!r}")
    return as_expr(atom)


def _simplify_operation(atom: Operation, sizes: Mapping[Symbol, Expr], made: dict[Expr, Expr]) -> Expr:
    left, right = _simplify(atom.left, sizes, made), _simplify(atom.right, sizes, made)
    if atom.kind == "max":
        return maximum(left, right)
    if atom.kind == "min":
        return minimum(left, right)
    result = left // right if atom.kind == "floordiv" else left % right
    if result.as_symbol is None and result.value is None and _always_below(left, right, sizes):
        return constant(0) if atom.kind == "floordiv" else left
    return result


def written_length(index: Expr, variables: Container[Symbol]) -> int:
    """How many operands it has when it is written out, where it depends on these variables; anything else is one.

    Each view of a view can double it: `t // 7` and `t % 7` both have what `t` is.
    """
    found: dict[Expr, int] = {}

    def length(e: Expr) -> int:
        if e not in found:
            found[e] = 1
            if any(s in variables for s in e.symbols):
                found[e] = sum(atom_length(a) for m, _ in e.terms for a, _p in m)
        return found[e]

    def atom_length(atom: Atom) -> int:
        return length(atom.left) + length(atom.right) if isinstance(atom, Operation) else 1

    return length(index)


def merge_loops(loops: Sequence[LoopVar], indices: Iterable[Expr]) -> tuple[list[LoopVar], dict[Symbol, Expr]]:
    """Merge neighbouring loops that every index walks as one.

    Loops `a` (outer) and `b` are one loop of size A*B if in every index the stride of `a` is B times that of `b`.

    Returns:
        The new loops, outermost first, and for each symbol that went away or changed its replacement
        (its coefficient lives on in the merged variable: the replaced variables become 0 and the merged one stands for
        their sum). Substitute it into every index.
    """
    indices = [i for i in indices if any(v.symbol in i.symbols for v in loops)]
    merged: list[LoopVar] = []
    # Per kept loop: its stride in each index.
    strides: list[list[Expr | None]] = []
    replacement: dict[Symbol, Expr] = {}
    for var in reversed(loops):
        mine = [stride(i, var.symbol) for i in indices]
        if merged and _walks_on(mine, strides[-1], merged[-1].size):
            inner = merged[-1]
            size = inner.size * var.size
            symbol = Symbol(inner.symbol.name, 0, None if size.value is None else max(size.value - 1, 0))
            replacement[var.symbol] = constant(0)
            replacement[inner.symbol] = as_expr(symbol)
            # A loop merged twice: earlier replacements lead to the symbol of the smaller range.
            for old, new in replacement.items():
                if new.as_symbol is inner.symbol:
                    replacement[old] = as_expr(symbol)
            merged[-1] = LoopVar(symbol, size)
        else:
            merged.append(var)
            strides.append(mine)
    merged.reverse()
    return merged, replacement


def _walks_on(outer: list[Expr | None], inner: list[Expr | None], size: Expr) -> bool:
    return all(a is not None and b is not None and a is b * size for a, b in zip(outer, inner, strict=True))


def largest(expr: Expr) -> int | None:
    """A bound on the magnitude of `expr` and of every partial sum of its terms; None if there is none."""
    total = 0
    for monomial, coefficient in expr.terms:
        size = abs(coefficient)
        for atom, power in monomial:
            bound = _atom_magnitude(atom)
            if bound is None:
                return None
            size *= bound**power
        total += size
    return total


def _atom_magnitude(atom: Atom) -> int | None:
    if isinstance(atom, Symbol):
        low, high = atom.bounds.lower, atom.bounds.upper
        return None if low is None or high is None else max(abs(low), abs(high))
    if not isinstance(atom, Operation):
        return None
    left, right = largest(atom.left), largest(atom.right)
    return None if left is None or right is None else max(left, right)


def magnitude(expr: Expr, most: Mapping[Symbol, Expr]) -> Expr | None:
    """A bound on the magnitude of `expr` that divides nothing; None if a symbol in it has no limit.

    Args:
        most: what symbols are at most; others are what their own bounds say.
    """
    total = constant(0)
    for monomial, coefficient in expr.terms:
        term = constant(abs(coefficient))
        for atom, power in monomial:
            bound = _limit(atom, most)
            if bound is None:
                return None
            term = term * bound**power
        total = total + term
    return total


def _limit(atom: Atom, most: Mapping[Symbol, Expr]) -> Expr | None:
    if isinstance(atom, Symbol):
        known = largest(as_expr(atom))
        return most.get(atom, None if known is None else constant(known))
    if not isinstance(atom, Operation):
        raise TypeError(f"unknown atom {atom!r}")
    left, right = magnitude(atom.left, most), magnitude(atom.right, most)
    if left is None or right is None:
        return None
    match atom.kind:
        case "floordiv":
            return left
        case "mod":
            return right
        case _:
            return maximum(left, right)


def dividends(expr: Expr) -> Iterator[Expr]:
    """What is divided in it, at any depth: to compute it wrongly is to compute the quotient wrongly, whereas sums that overflow come back."""
    for monomial, _ in expr.terms:
        for atom, _power in monomial:
            if isinstance(atom, Operation):
                if atom.kind in ("floordiv", "mod"):
                    yield atom.left
                yield from dividends(atom.left)
                yield from dividends(atom.right)
