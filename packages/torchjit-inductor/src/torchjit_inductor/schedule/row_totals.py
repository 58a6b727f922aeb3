"""Totals of what is made row by row: first each row's own, by the kernel that has the row, then the total of those.

A loss is a sum over a whole matrix of a formula with statistics of its rows (a softmax, a norm). As one reduction it is a kernel
behind the one that finds the statistics, and reads the matrix again. A row's part of the sum is one more reduction of that row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from torchjit_core.expr import Symbol
from torchjit_inductor.estimates import points
from torchjit_inductor.ir import values as ir
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Store, flat_index
from torchjit_inductor.ir.values import IN_ORDER, Value
from torchjit_inductor.schedule.fuse import FusionLimits, join
from torchjit_inductor.schedule.stages import scratch_buffer
from torchjit_inductor.steps import KernelStep, Program, Step

__all__ = ["total_by_rows"]

_ROWS = 1024
"""From so many rows on there are enough programs that have whole rows."""
_KINDS = frozenset(("sum", "prod", "max", "min", "any", "all"))
"""Reductions whose parts are joined by the same reduction."""


def total_by_rows(program: Program, hints: Mapping[Symbol, int], limits: FusionLimits) -> Program:
    """The program before fusion, with totals in two steps where the first one then joins the kernel that has the rows. On GPUs.

    Args:
        hints: a typical value of each size symbol.
        limits: of fusion.
    """
    buffers = dict(program.buffers)
    steps: list[Step] = []
    for step in program.steps:
        made = _in_two(step.kernel, steps, hints, limits) if isinstance(step, KernelStep) else None
        if made is None:
            steps.append(step)
            continue
        kernels, scratch = made
        steps += [KernelStep(kernel) for kernel in kernels]
        buffers.update((b.name, b) for b in scratch)
    return program if len(steps) == len(program.steps) else attrs.evolve(program, buffers=buffers, steps=tuple(steps))


def _in_two(
    kernel: LoopKernel, before: Sequence[Step], hints: Mapping[Symbol, int], limits: FusionLimits
) -> tuple[tuple[LoopKernel, LoopKernel], list[Buffer]] | None:
    """A total as each row's and the total of those, with what is between them in memory; None where there are no rows to join."""
    if not _is_total(kernel):
        return None
    for group in _with_rows(kernel, before, hints):
        for rows in _loops_over_rows(kernel, group):
            made = _divided(kernel, rows)
            if isinstance(join(group, made[0][0], hints, limits), LoopKernel):
                return made
    return None


def _is_total(kernel: LoopKernel) -> bool:
    """Is it nothing but reductions whose parts can be joined, on a GPU?"""
    if kernel.device.type != "cuda" or not kernel.inner or any(v.op in IN_ORDER for v in kernel.values):
        return False
    reductions = [v for v in kernel.values if v.op == "reduce"]
    if any(v.data not in _KINDS for v in reductions):
        return False
    return all(s.outer and s.value.level == 1 for s in kernel.stores)


def _with_rows(kernel: LoopKernel, before: Sequence[Step], hints: Mapping[Symbol, int]) -> Iterator[LoopKernel]:
    """Kernels of many rows that store a result a row, and read or store something else, that this one reads; the last one first."""
    read = set(kernel.reads)
    for step in reversed(before):
        if not isinstance(step, KernelStep) or not step.kernel.inner or step.kernel.device != kernel.device:
            continue
        results = {s.buffer for s in step.kernel.stores if s.outer}
        both = results & read and set(step.kernel.buffers) & read - results
        if both and points(step.kernel.outer, hints) >= _ROWS:
            yield step.kernel


def _loops_over_rows(kernel: LoopKernel, group: LoopKernel) -> Iterator[tuple[LoopVar, ...]]:
    """The inner loops that walk what the group stored a row, where there are others."""
    results = {s.buffer for s in group.stores if s.outer}
    found: dict[tuple[LoopVar, ...], None] = {}
    for value in kernel.values:
        if value.op == "load" and value.data.buffer in results:
            rows = tuple(v for v in kernel.inner if v.symbol in value.data.index.symbols)
            if 0 < len(rows) < len(kernel.inner):
                found[rows] = None
    yield from found


def _divided(kernel: LoopKernel, rows: tuple[LoopVar, ...]) -> tuple[tuple[LoopKernel, LoopKernel], list[Buffer]]:
    """The reductions of each row, what joins these, and the memory between the two: an element a row for each reduction."""
    outer = (*kernel.outer, *rows)
    index = flat_index(outer)
    joined: dict[Value, Value] = {}
    stores: list[Store] = []
    scratch: list[Buffer] = []
    for value in kernel.values:
        if value.op == "reduce":
            buffer = scratch_buffer(kernel, f"rows{len(scratch)}", value, outer)
            scratch.append(buffer)
            stores.append(Store(buffer.name, index, value, outer=True))
            joined[value] = ir.reduce(value.data, ir.load(buffer.name, index, value.dtype))
    inner = tuple(v for v in kernel.inner if v not in rows)
    first = attrs.evolve(kernel, name=f"{kernel.name}_rows", outer=outer, inner=inner, stores=tuple(stores))
    totals = [attrs.evolve(s, value=ir.substitute(s.value, {}, joined.get)) for s in kernel.stores]
    return (first, attrs.evolve(kernel, inner=rows, stores=tuple(totals))), scratch
