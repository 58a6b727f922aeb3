"""Reading and simplifying index expressions: strides, loop sizes as facts, merging and splitting of loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torchjit_core.expr import Expr, Operation, Symbol, as_expr, constant, maximum, minimum
from torchjit_inductor.ir.kernel import LoopVar

__all__ = ["always_below", "loop_symbol", "merge_loops", "simplify", "stride"]


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


def always_below(left: Expr, right: Expr, sizes: Mapping[Symbol, Expr]) -> bool:
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
    if not any(isinstance(a, Operation) for m, _ in index.terms for a, _p in m):
        return index
    total = constant(0)
    for monomial, coefficient in index.terms:
        term = constant(coefficient)
        for atom, power in monomial:
            term = term * (_simplify_operation(atom, sizes) if isinstance(atom, Operation) else _of(atom)) ** power
        total = total + term
    return total


def _of(atom: object) -> Expr:
    if not isinstance(atom, Symbol):
        raise TypeError(f"unknown atom {atom!r}")
    return as_expr(atom)


def _simplify_operation(atom: Operation, sizes: Mapping[Symbol, Expr]) -> Expr:
    left, right = simplify(atom.left, sizes), simplify(atom.right, sizes)
    if atom.kind == "max":
        return maximum(left, right)
    if atom.kind == "min":
        return minimum(left, right)
    made = left // right if atom.kind == "floordiv" else left % right
    if made.as_symbol is None and made.value is None and always_below(left, right, sizes):
        return constant(0) if atom.kind == "floordiv" else left
    return made


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
