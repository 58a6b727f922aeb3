"""The digits of loop variables in indices: put together where they add up, else loops of their own; loops that are walked as one."""

from __future__ import annotations

import itertools

import attrs

from torchjit_core.expr import Expr, Operation, Symbol, as_expr, constant
from torchjit_inductor.indexing import digit, join_digits, loop_symbol, merge_loops
from torchjit_inductor.ir.kernel import LoopKernel, LoopVar, rewrite_stores
from torchjit_inductor.ir.values import IN_ORDER, INDEXED, Value

__all__ = ["merged", "with_joined_digits", "with_split_loops"]

SHORTEST = 8
"""Loops are not cut into pieces below this: vectors would be nearly empty."""


def index_expressions(kernel: LoopKernel) -> list[Expr]:
    """Every index of the kernel: loads, stores and computed positions."""
    found = [v.data.index for v in kernel.values if v.op in ("load", "index")]
    return [*found, *(s.index for s in kernel.stores)]


def with_joined_digits(kernel: LoopKernel) -> LoopKernel:
    """The kernel with `indexing.join_digits` done to its indices."""
    indices = index_expressions(kernel)
    if all(join_digits(i) is i for i in indices):
        return kernel

    def replace(value: Value) -> Value | None:
        if value.op not in ("load", "index"):
            return None
        return Value(value.op, value.args, value.dtype, attrs.evolve(value.data, index=join_digits(value.data.index)))

    rewritten = rewrite_stores(kernel.stores, {}, replace)
    stores = tuple(attrs.evolve(s, index=join_digits(s.index)) for s in rewritten)
    return attrs.evolve(kernel, stores=stores)


def with_split_loops(kernel: LoopKernel, shortest: int = SHORTEST) -> LoopKernel:
    """The kernel with loops of their own for digits: where indices hold `x // 192` and `x % 192`, x becomes two loops.

    What is read at such an index lies in order again, and a concatenation along the digit has pieces of a loop.
    Kernels whose loops have an order to keep (scatters, scans, sorts, positions of extremes) stay as they are.
    """
    ordered = any(s.scatters for s in kernel.stores) or any(
        v.op in IN_ORDER or (v.op == "reduce" and v.data.startswith("arg")) for v in kernel.values
    )
    if ordered:
        return kernel
    indices = [*(v.data.index for v in kernel.values if v.op in INDEXED), *(s.index for s in kernel.stores)]
    mapping: dict[Symbol, Expr] = {}
    outer, inner = (
        tuple(p for v in loops for p in _split(v, indices, mapping, shortest)) for loops in (kernel.outer, kernel.inner)
    )
    if not mapping:
        return kernel
    return attrs.evolve(kernel, outer=outer, inner=inner, stores=rewrite_stores(kernel.stores, mapping))


def _split(var: LoopVar, indices: list[Expr], mapping: dict[Symbol, Expr], shortest: int) -> list[LoopVar]:
    """The loops that replace one, and their sum in `mapping`; the loop itself if it stays whole."""
    size = var.size.value
    cuts = None if size is None else _cuts(var.symbol, size, indices, shortest)
    if not cuts or size is None:
        return [var]
    made, total = [], constant(0)
    for number, (high, low) in enumerate(zip([size, *cuts], [*cuts, 1], strict=True)):
        symbol = loop_symbol(f"{var.symbol.name}d", number, constant(high // low))
        made.append(LoopVar(symbol, constant(high // low)))
        total = total + as_expr(symbol) * low
    mapping[var.symbol] = total
    return made


def _cuts(symbol: Symbol, size: int, indices: list[Expr], shortest: int) -> list[int]:
    """Where the digits of a loop variable in the indices begin, the largest first; empty if they do not fit together."""
    found: set[int] = set()
    for index in indices:
        for monomial, coefficient in index.terms:
            if not any(isinstance(a, Operation) and symbol in (*a.left.symbols, *a.right.symbols) for a, _ in monomial):
                continue
            part = digit(monomial, coefficient)
            if part is None or part.number is not as_expr(symbol):
                return []
            found |= {part.divisor, part.divisor * (part.size or 1)}
    cuts = sorted((cut for cut in found if 1 < cut < size), reverse=True)
    chain = [size, *cuts, 1]
    fits = all(high % low == 0 and high // low > 1 for high, low in itertools.pairwise(chain))
    return cuts if fits and all(cut >= shortest for cut in cuts) else []


def merged(kernel: LoopKernel) -> LoopKernel:
    """The same kernel with neighbouring loops joined wherever every index walks them as one."""
    kernel = with_joined_digits(kernel)
    outer, outer_map = merge_loops(kernel.outer, index_expressions(kernel))
    inner, inner_map = merge_loops(kernel.inner, index_expressions(kernel))
    mapping = {**outer_map, **inner_map}
    if not mapping:
        return kernel
    return attrs.evolve(kernel, outer=tuple(outer), inner=tuple(inner), stores=rewrite_stores(kernel.stores, mapping))
