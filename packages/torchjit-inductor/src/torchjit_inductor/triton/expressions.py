"""Integer expressions as Triton text and as host text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchjit_core.expr import Atom, Expr, Operation, Symbol
from torchjit_inductor.indexing import written

__all__ = ["Printer", "host_text", "triton_text"]

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

    def atom_text(atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return names[atom]
        if not isinstance(atom, Operation):
            raise TypeError(f"unknown atom {atom!r}")
        left, right = host_text(atom.left, names), host_text(atom.right, names)
        if atom.kind in ("max", "min"):
            return f"{atom.kind}({left}, {right})"
        return f"(({left}) {'//' if atom.kind == 'floordiv' else '%'} ({right}))"

    return written(expr, atom_text)
