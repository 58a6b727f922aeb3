"""Integer expressions as Triton text and as host text, and proofs that 32 bits are enough for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchjit_core.expr import Atom, Expr, Operation, Symbol

__all__ = ["Printer", "host_text", "largest", "triton_text"]

Printer = Callable[[Symbol], str]


def triton_text(expr: Expr, symbol_text: Printer) -> str:
    """`expr` in the kernel language, where `//` and `%` truncate; `tj` is the prelude.

    Args:
        expr: any integer expression.
        symbol_text: the text of a symbol, a name or a parenthesised expression.
    """
    parts: list[str] = []
    for monomial, coefficient in sorted(expr.terms, key=lambda term: not term[0]):
        factors = [text for atom, power in monomial for text in [_atom(atom, symbol_text)] * power]
        if coefficient != 1 or not factors:
            factors.append(str(abs(coefficient)) if parts else str(coefficient))
            sign = "- " if coefficient < 0 else "+ "
        else:
            sign = "+ "
        parts.append((sign if parts else "") + "*".join(factors))
    return " ".join(parts) or "0"


def _atom(atom: Atom, symbol_text: Printer) -> str:
    if isinstance(atom, Symbol):
        return symbol_text(atom)
    if not isinstance(atom, Operation):
        raise TypeError(f"unknown atom {atom!r}")
    left, right = triton_text(atom.left, symbol_text), triton_text(atom.right, symbol_text)
    if atom.kind in ("max", "min"):
        return f"tl.{atom.kind}imum({left}, {right})"
    low = atom.left.bounds().lower
    if low is not None and low >= 0:
        return f"(({left}) {'//' if atom.kind == 'floordiv' else '%'} ({right}))"
    return f"tj.floor_{'div' if atom.kind == 'floordiv' else 'mod'}({left}, {right})"


def host_text(expr: Expr, names: Mapping[Symbol, str]) -> str:
    """`expr` as Python text for the launcher, each symbol under its name there."""
    parts: list[str] = []
    for monomial, coefficient in expr.terms:
        factors = [str(coefficient)] if coefficient != 1 or not monomial else []
        for atom, power in monomial:
            text = _host_atom(atom, names)
            factors.append(text if power == 1 else f"{text}**{power}")
        parts.append("*".join(factors))
    return " + ".join(parts) or "0"


def _host_atom(atom: Atom, names: Mapping[Symbol, str]) -> str:
    if isinstance(atom, Symbol):
        return names[atom]
    if not isinstance(atom, Operation):
        raise TypeError(f"unknown atom {atom!r}")
    left, right = host_text(atom.left, names), host_text(atom.right, names)
    if atom.kind in ("max", "min"):
        return f"{atom.kind}({left}, {right})"
    return f"(({left}) {'//' if atom.kind == 'floordiv' else '%'} ({right}))"


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
