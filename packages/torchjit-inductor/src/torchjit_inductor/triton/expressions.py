"""Integer expressions as Triton text and as host text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchjit_core.expr import Atom, Expr, Symbol
from torchjit_inductor.indexing import operation_text, written

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
    forms = "tl.{0}imum({1}, {2})", "// %", "tj.floor_{0}({1}, {2})"
    return operation_text(atom, lambda e: triton_text(e, symbol_text), *forms)


def host_text(expr: Expr, names: Mapping[Symbol, str]) -> str:
    """`expr` as Python text for the launcher, each symbol under its name there."""

    def atom(a: Atom) -> str:
        if isinstance(a, Symbol):
            return names[a]
        return operation_text(a, lambda e: host_text(e, names), "{0}({1}, {2})", "// %", "")

    return written(expr, atom)
