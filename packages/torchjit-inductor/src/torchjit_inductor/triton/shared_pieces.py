"""Pieces of a concatenation that are made of the same elements, as one loop over the length of a piece.

The halves of a rotary embedding both read both halves of a head: as one loop over a head's elements every one of them is loaded twice,
in accesses of which the mask leaves half. One loop over half a head, with a store for each half, loads it once: 0.95 of copy bandwidth,
0.90 before.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import attrs

from torchjit_core.expr import as_expr, constant
from torchjit_inductor.indexing import loop_symbol
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, rewrite_stores
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.schedule.pieces import Segment, changes_of, sharing, within
from torchjit_inductor.steps import KernelStep, Program, Step

__all__ = ["share_pieces", "shared_pieces"]

_MOST = 4
"""Pieces that a thread has an element of."""
_SHORTEST = 64
"""Elements of a piece, so that tiles have rows."""
_LINE = 128
"""Bytes that divide a piece, so that memory is still accessed in whole lines."""


def share_pieces(program: Program) -> Program:
    """The program, after fusion, with such loops in its kernels."""
    steps = tuple(_shared(step, program.buffers) for step in program.steps)
    return program if steps == program.steps else attrs.evolve(program, steps=steps)


def _shared(step: Step, buffers: Mapping[str, Buffer]) -> Step:
    made = shared_pieces(step.kernel, buffers) if isinstance(step, KernelStep) else None
    return step if made is None else KernelStep(made)


def shared_pieces(kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> LoopKernel | None:
    """A pointwise kernel as one over the length of a piece of its last loop, with the stores of all pieces.

    None: the pieces between which its conditions change differ in length, read nothing in common, are too many or too short, or not whole lines.
    """
    kernel = merged(kernel)
    if kernel.device.type != "cuda" or kernel.inner or not kernel.outer or not _only_sets(kernel):
        return None
    *outer, last = kernel.outer
    symbol, ends = last.symbol, _ends_of_pieces(kernel, last)
    narrowest = min(buffers[name].dtype.itemsize for name in kernel.buffers)
    if not 3 <= len(ends) <= _MOST + 1 or ends[1] < _SHORTEST or ends[1] * narrowest % _LINE:
        return None
    pieces = [Segment(a, b, within(kernel.stores, symbol, a, b)) for a, b in itertools.pairwise(ends)]
    joined = sharing(pieces, symbol)
    if len(joined) > 1:
        return None
    length = constant(ends[1])
    inside = loop_symbol(f"{symbol.name}p", 0, length)
    stores = rewrite_stores(joined[0].stores, {symbol: as_expr(inside)})
    return attrs.evolve(kernel, outer=(*outer, LoopVar(inside, length)), stores=stores)


def _ends_of_pieces(kernel: LoopKernel, loop: LoopVar) -> list[int]:
    """Where the pieces of a loop end between which the kernel's conditions change, and 0; empty where they differ in length."""
    size, changes = loop.size.value, changes_of(kernel.values, loop.symbol)
    if size is None or not changes:
        return []
    ends = sorted({0, size}.union(at for change in changes for at in change if 0 < at < size))
    return ends if len({high - low for low, high in itertools.pairwise(ends)}) == 1 else []


def _only_sets(kernel: LoopKernel) -> bool:
    """Does it write elements that it does not read, each once?"""
    apart = set(kernel.reads).isdisjoint(kernel.writes)
    return apart and all(s.mode == "set" and not s.scatters for s in kernel.stores)
