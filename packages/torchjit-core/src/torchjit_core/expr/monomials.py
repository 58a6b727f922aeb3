"""Monomials: products of powers of atoms, which are opaque here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

__all__ = ["Atom", "Monomial", "common", "divide", "term_key", "term_text", "times"]


class Atom:
    """What polynomials are made of. Final subclasses: `Symbol`, `Operation`."""

    __slots__ = ("sort_key",)
    sort_key: tuple[Any, ...]


Monomial: TypeAlias = "tuple[tuple[Atom, int], ...]"
"""Atoms with their powers (>= 1), sorted by the atoms' sort keys; () is the constant monomial."""


def term_text(monomial: Monomial, coefficient: int) -> str:
    """A term for people."""
    factors = [str(a) if p == 1 else f"{a}**{p}" for a, p in monomial]
    if not factors:
        return str(coefficient)
    body = "*".join(factors)
    if coefficient == 1:
        return body
    return f"-{body}" if coefficient == -1 else f"{coefficient}*{body}"


def term_key(term: tuple[Monomial, int]) -> tuple[Any, ...]:
    """What terms are sorted by."""
    return tuple((a.sort_key, p) for a, p in term[0])


def times(left: Monomial, right: Monomial) -> Monomial:
    """The product."""
    if not left:
        return right
    if not right:
        return left
    powers: dict[Atom, int] = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return _sorted(powers)


def divide(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """The quotient if it is a monomial, else None."""
    powers = dict(monomial)
    for atom, power in divisor:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        if left:
            powers[atom] = left
        else:
            del powers[atom]
    return _sorted(powers)


def common(monomials: Iterable[Monomial]) -> Monomial:
    """The largest monomial that divides them all; there is at least one."""
    first, *others = monomials
    powers = dict(first)
    for monomial in others:
        other = dict(monomial)
        powers = {a: min(p, other[a]) for a, p in powers.items() if a in other}
    return _sorted(powers)


def _sorted(powers: dict[Atom, int]) -> Monomial:
    return tuple(sorted(powers.items(), key=lambda item: item[0].sort_key))
