"""Sizes that a kernel takes as arguments: the host computes once a call what every program of a kernel would divide anew.

Convolutions, pools and views of sizes that vary make sizes which divide sizes: the last images of a ResNet have `((s + 1)//2 + 1)//2 ...`
elements in a row. A quotient of sizes is an argument of its own, so that kernels of equal form have one text, however often their
sizes were divided, and are compiled once.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import attrs

from torchjit_core.expr import Atom, Expr, Operation, Symbol, as_expr, constant, maximum, minimum
from torchjit_inductor.estimates import estimate
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir.kernel import LoopKernel, LoopVar, rewrite_stores
from torchjit_inductor.ir.values import INDEXED, Value

__all__ = ["useful_divisors", "values_of", "with_size_arguments"]

_DIVISOR = 16


def with_size_arguments(kernel: LoopKernel) -> tuple[LoopKernel, dict[Symbol, Expr]]:
    """The kernel with symbols for the operations on its sizes, and what these symbols stand for.

    Args:
        kernel: with merged loops.
    """
    made: dict[Operation, Symbol] = {}
    sizes = frozenset(kernel.symbols)

    def named(expr: Expr) -> Expr:
        return _named(expr, sizes, made)

    def replace(value: Value) -> Value | None:
        if value.op not in INDEXED or value.data.index.symbols.isdisjoint(sizes):
            return None
        index = named(value.data.index)
        if index is value.data.index:
            return None
        return Value(value.op, value.args, value.dtype, attrs.evolve(value.data, index=index))

    outer, inner = ([LoopVar(v.symbol, named(v.size)) for v in loops] for loops in (kernel.outer, kernel.inner))
    stores = rewrite_stores([attrs.evolve(s, index=named(s.index)) for s in kernel.stores], {}, replace)
    if not made:
        return kernel, {}
    changed = attrs.evolve(kernel, outer=tuple(outer), inner=tuple(inner), stores=stores)
    return changed, {symbol: _expression(operation) for operation, symbol in made.items()}


def _expression(atom: Atom) -> Expr:
    return Expr(((((atom, 1),), 1),))


def _named(expr: Expr, sizes: Set[Symbol], made: dict[Operation, Symbol]) -> Expr:
    if not any(isinstance(atom, Operation) for monomial, _ in expr.terms for atom, _power in monomial):
        return expr
    total = constant(0)
    for monomial, coefficient in expr.terms:
        term = constant(coefficient)
        for atom, power in monomial:
            part = _argument(atom, sizes, made) if isinstance(atom, Operation) else _expression(atom)
            term = term * part**power
        total = total + term
    return total


def _argument(operation: Operation, sizes: Set[Symbol], made: dict[Operation, Symbol]) -> Expr:
    """The symbol of an operation on sizes; one on positions has its operands' operations named."""
    if operation.left.symbols | operation.right.symbols <= sizes and _divides_by_something(operation):
        if operation not in made:
            bounds = _expression(operation).bounds()
            made[operation] = Symbol(f"size{len(made)}", bounds.lower, bounds.upper)
        return as_expr(made[operation])
    left, right = _named(operation.left, sizes, made), _named(operation.right, sizes, made)
    match operation.kind:
        case "floordiv":
            return left // right
        case "mod":
            return left % right
        case "max":
            return maximum(left, right)
        case _:
            return minimum(left, right)


def _divides_by_something(operation: Operation) -> bool:
    """Is no divisor in it 0? The host computes arguments also where nothing runs; a program of the kernel divides by sizes that it walks."""
    low = operation.right.bounds().lower
    if operation.kind in ("floordiv", "mod") and (low is None or low < 1):
        return False
    atoms = (a for e in (operation.left, operation.right) for monomial, _ in e.terms for a, _power in monomial)
    return all(_divides_by_something(a) for a in atoms if isinstance(a, Operation))


def values_of(kernel: LoopKernel, given: Mapping[Symbol, Expr]) -> tuple[Expr, ...]:
    """What the host passes for the kernel's symbols."""
    return tuple(given.get(s, as_expr(s)) for s in kernel.symbols)


def useful_divisors(kernel: LoopKernel, given: Mapping[Symbol, Expr], hints: Mapping[Symbol, int]) -> tuple[bool, ...]:
    """For each symbol whether a specialisation should rely on its being a multiple of 16.

    That is worth code of its own, which has to be compiled when other sizes come, where rows are as long or lie as far apart: then memory is
    accessed 16 bytes at a time.
    """
    rows: set[Symbol] = set()
    loops = {v.symbol: v.size for v in (*kernel.outer, *kernel.inner)}
    indices = [v.data.index for v in kernel.values if v.op == "load"] + [s.index for s in kernel.stores]
    for index in indices:
        steps = {symbol: stride(index, symbol) for symbol in index.symbols & loops.keys()}
        for symbol, step in steps.items():
            wanted = None if step is None else loops[symbol] if step.value == 1 else step if _has_unit(steps) else None
            if wanted is not None and not wanted.divisible_by(_DIVISOR):
                rows |= wanted.symbols
    return tuple(s in rows and estimate(given.get(s, as_expr(s)), hints, 1) % _DIVISOR == 0 for s in kernel.symbols)


def _has_unit(steps: Mapping[Symbol, Expr | None]) -> bool:
    """Does memory run along one of the loops?"""
    return any(step is not None and step.value == 1 for step in steps.values())
