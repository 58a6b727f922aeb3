"""Vector loops in steps of a few elements: each element of a step, a *phase*, has statements of its own.

A channel shuffle, a pixel shuffle, pairs of numbers next to each other: where indices hold `x // 2` and `x % 2` for the loop
that stores walk, or where that loop has a length of 2, neighbouring lanes read from places far apart. With x = 2*g + r, written
out for r = 0 and r = 1, every index is linear in g, which becomes the vector loop; what is compared with a constant (the
pieces of a concatenation) is decided for ranges of g. The vectors of the phases are interleaved when they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import final

import attrs
import torch

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.indexing import loop_symbol, stride
from torchjit_inductor.ir.kernel import LoopKernel, LoopVar, Store, rewrite_stores
from torchjit_inductor.ir.values import INDEXED
from torchjit_inductor.schedule.pieces import decided

__all__ = ["MOST_STRIDE", "Phases", "stored_together", "with_phases"]

MOST_PHASES = 8
MOST_STRIDE = 8
"""Vectors of elements up to this far apart are read as consecutive vectors, from which the elements are picked."""
SHORTEST = 8
"""A vector loop is not cut below this."""
MOST_VALUES = 256
"""Values of the kernel with all its phases, but for conditions, which are decided: each is a line of C."""


@final
@attrs.frozen
class Phases:
    """How the vector loop of a kernel goes in steps.

    Attributes:
        symbol: of the vector loop.
        count: phases.
        whole: steps with all phases, or None when all steps are whole.
        stores: so many stores, from the first, are done in the one step after those.
    """

    symbol: Symbol
    count: int
    whole: int | None
    stores: int

    def stores_from(self, low: int, stores: tuple[Store, ...]) -> tuple[Store, ...]:
        """Those of a kernel that the steps from one on do."""
        return stores if self.whole is None or low < self.whole else stores[: self.stores]


def with_phases(kernel: LoopKernel, lanes: int) -> tuple[LoopKernel, Phases] | None:
    """A pointwise kernel whose stores go through memory in steps, phase by phase; None where that gains nothing.

    Args:
        lanes: of a vector of float32.
    """
    if kernel.inner or any(s.scatters for s in kernel.stores) or any(v.op == "scan" for v in kernel.values):
        return None
    for var in kernel.outer:
        size = var.size.value
        if size is not None and all(_step(s.index, var.symbol) == 1 for s in kernel.stores):
            made = (_across if size <= MOST_PHASES else _along)(kernel, var, size)
            if made is not None:
                steps = made[1]
                if _cost(made[0], steps.symbol, steps.count, lanes) < _cost(kernel, var.symbol, 1, lanes):
                    return made
    return None


def stored_together(stores: Sequence[Store], vector: Symbol, count: int) -> Iterator[tuple[Store, ...]]:
    """Groups of stores that fill consecutive elements, one phase each, in order; other stores are left out."""
    lines: dict[tuple[str, Expr], dict[int, Store]] = {}
    for store in stores:
        if not store.scatters and _step(store.index, vector) == count:
            offset = next((factor for product, factor in store.index.terms if not product), 0)
            lines.setdefault((store.buffer, store.index - offset), {})[offset] = store
    for line in lines.values():
        for offset in sorted(line):
            group = [line.get(offset + k) for k in range(count)]
            if offset % count == min(line) % count and None not in group:
                yield tuple(s for s in group if s is not None)


def _along(kernel: LoopKernel, var: LoopVar, size: int) -> tuple[LoopKernel, Phases] | None:
    """The loop in steps of so many elements that no index has a digit of it."""
    indices = [*(v.data.index for v in kernel.values if v.op in INDEXED), *(s.index for s in kernel.stores)]
    broken = [i for i in indices if stride(i, var.symbol) is None]
    for count in range(2, min(MOST_PHASES, size // SHORTEST) + 1 if broken else 0):
        whole, left = divmod(size, count)
        steps = constant(whole + bool(left))
        symbol = loop_symbol(f"{var.symbol.name}s", 0, steps)
        phases = [{var.symbol: as_expr(symbol) * count + phase} for phase in range(count)]
        if all(stride(i.substitute(phase), symbol) is not None for i in broken for phase in phases):
            loops = tuple(LoopVar(symbol, steps) if v is var else v for v in kernel.outer)
            steps_of = Phases(symbol, count, whole if left else None, left * len(kernel.stores))
            return _written_out(kernel, loops, phases, steps_of)
    return None


def _across(kernel: LoopKernel, var: LoopVar, size: int) -> tuple[LoopKernel, Phases] | None:
    """A short loop written out inside of the loop that stores go through in steps of its length."""
    for other in kernel.outer:
        long = other.size.value is None or other.size.value >= SHORTEST
        if long and all(_step(s.index, other.symbol) == size for s in kernel.stores):
            loops = tuple(v for v in kernel.outer if v is not var)
            phases = [{var.symbol: constant(phase)} for phase in range(size)]
            return _written_out(kernel, loops, phases, Phases(other.symbol, size, None, 0))
    return None


def _written_out(
    kernel: LoopKernel, loops: tuple[LoopVar, ...], mappings: Sequence[Mapping[Symbol, Expr]], phases: Phases
) -> tuple[LoopKernel, Phases] | None:
    computed = [v for v in kernel.values if v.op not in ("constant", "index") and v.dtype != torch.bool]
    if len(computed) * phases.count > MOST_VALUES:
        return None
    stores = tuple(s for mapping in mappings for s in rewrite_stores(kernel.stores, mapping, decided))
    return attrs.evolve(kernel, outer=loops, stores=stores), phases


def _cost(kernel: LoopKernel, vector: Symbol, count: int, lanes: int) -> float:
    """Roughly, what one element costs with a loop as the vector loop, in units of reading consecutive elements."""
    sizes = {v.symbol: lanes if v.size.value is None else v.size.value for v in kernel.outer}
    cost = sum(_access(v.data.index, vector, sizes, lanes) for v in kernel.values if v.op == "load")
    # Vectors of the phases are interleaved, which costs about as much as storing them.
    cost += len(kernel.stores) * (1 if count == 1 else 2)
    return cost / count * max(lanes / sizes[vector], 1.0)


def _access(index: Expr, vector: Symbol, sizes: Mapping[Symbol, int], lanes: int) -> int:
    """The cost of a load."""
    step = _step(index, vector)
    if step in (0, 1):
        return 1
    if step is not None and 1 < step <= MOST_STRIDE:
        return step
    along = any(size >= SHORTEST and _step(index, s) == 1 for s, size in sizes.items() if s is not vector)
    return 2 if step is not None and along else lanes


def _step(index: Expr, symbol: Symbol) -> int | None:
    """A constant stride, or None."""
    step = stride(index, symbol)
    return None if step is None else step.value
