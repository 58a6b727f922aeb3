"""Sums of columns in the kernel that has the rows: programs walk many rows, and add up in registers what stands in each column.

The gradients of a norm's weight and bias are sums of columns over what the gradient of its input, row by row, reads as well: as two
kernels they read two matrices each. The sums of all programs go to scratch memory, and a kernel behind joins them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from torchjit_core.expr import Expr, as_expr, constant
from torchjit_inductor.indexing import loop_symbol
from torchjit_inductor.ir import values as ir
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Store, flat_index, iterations, rewrite_stores
from torchjit_inductor.ir.values import IN_ORDER, Value
from torchjit_inductor.schedule.align import Space, aligned, space_of
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.steps import KernelStep, Program, Step, memory_of
from torchjit_inductor.triton.contraction import has_dot
from torchjit_inductor.triton.plan import MULTIPROCESSORS

__all__ = ["with_columns"]

_WIDEST = 8192
"""Elements of a row, with two sums for each of them, that a program of 8 or 16 warps keeps in registers."""
_NARROWEST = 512
_AT_ONCE = 8192
"""Elements of rows that programs of a multiprocessor read at once."""
_SUMS = 2
"""Sums of columns that fit in registers beside the rows."""


def with_columns(program: Program) -> tuple[Program, set[LoopKernel]]:
    """The program with sums of columns in the kernel beside them that has the rows, and the kernels of which that was made.

    Args:
        program: after fusion.
    """
    buffers, memory = dict(program.buffers), memory_of(program.steps)
    steps: list[Step] = []
    done: set[LoopKernel] = set()
    for step in program.steps:
        pair = _pair(steps[-1], step, memory) if steps else None
        made = None
        if pair is not None and done.isdisjoint(pair):
            first, second = map(merged, pair)
            made = _rows_with_columns(first, second, buffers) or _rows_with_columns(second, first, buffers)
        if made is None:
            steps.append(step)
            continue
        kernels, scratch = made
        steps[-1:] = [KernelStep(kernel) for kernel in kernels]
        buffers.update((b.name, b) for b in scratch)
        done |= set(kernels)
    return attrs.evolve(program, buffers=buffers, steps=tuple(steps)) if done else program, done


def _pair(first: Step, second: Step, memory: Mapping[str, frozenset[str]]) -> tuple[LoopKernel, LoopKernel] | None:
    """Two reductions of one GPU, one behind the other, that may run in any order."""
    if not isinstance(first, KernelStep) or not isinstance(second, KernelStep):
        return None
    kernels = first.kernel, second.kernel
    if any(not k.inner or k.device.type != "cuda" or k.device != first.kernel.device for k in kernels):
        return None
    if not _independent(*kernels, memory):
        return None
    return kernels


def _rows_with_columns(
    rows: LoopKernel, columns: LoopKernel, buffers: Mapping[str, Buffer]
) -> tuple[tuple[LoopKernel, LoopKernel], tuple[Buffer, ...]] | None:
    """Two kernels that may run in any order as one that walks rows and one that joins its sums, with scratch memory; None where that does not pay.

    Args:
        rows: with merged loops: results for each row, or each element of one.
        columns: likewise: sums of columns.
        buffers: of the graph.
    """
    if not _has_rows(rows) or not _sums_columns(columns):
        return None
    count, size = rows.outer[0].size.value or 0, iterations(rows.inner).value or 0
    for row_index, column_index, saved in _common(rows, columns, buffers):
        space = _crossed(rows, row_index, columns, column_index)
        sums = sum(1 for v in columns.values if v.op == "reduce")
        programs = _programs(count, size)
        # What is saved is read once less; sums of four bytes are written and read.
        if space is not None and programs and count // programs * saved >= 16 * sums:
            return _joined(rows, columns, space, programs)
    return None


def _has_rows(kernel: LoopKernel) -> bool:
    """Does a program of it have a whole row of a matrix whose sizes are known?"""
    if len(kernel.outer) != 1 or not kernel.inner or kernel.outer[0].size.value is None or has_dot(kernel):
        return False
    if not _NARROWEST <= (iterations(kernel.inner).value or 0) <= _WIDEST:
        return False
    return not any(s.scatters for s in kernel.stores) and not any(v.op in IN_ORDER for v in kernel.values)


def _sums_columns(kernel: LoopKernel) -> bool:
    """Is it nothing but up to `_SUMS` sums?"""
    reductions = [v for v in kernel.values if v.op == "reduce"]
    if not 0 < len(reductions) <= _SUMS or any(v.data != "sum" or v.dtype.itemsize != 4 for v in reductions):
        return False
    if any(v.op in IN_ORDER for v in kernel.values):
        return False
    return len(kernel.outer) == 1 and all(s.outer and s.value.level == 1 for s in kernel.stores)


def _independent(first: LoopKernel, second: LoopKernel, memory: Mapping[str, frozenset[str]]) -> bool:
    """Does neither write what the other touches, by whatever name?"""

    def parts(names: Sequence[str]) -> set[str]:
        return {part for name in names for part in memory.get(name) or (name,)}

    return parts(first.writes).isdisjoint(parts(second.buffers)) and parts(second.writes).isdisjoint(
        parts(first.buffers)
    )


def _common(rows: LoopKernel, columns: LoopKernel, buffers: Mapping[str, Buffer]) -> Iterator[tuple[Expr, Expr, int]]:
    """Places at which both read a matrix, and how many bytes they both read at each."""
    found = _matrices(columns)
    both = [(name, index, found[name]) for name, index in _matrices(rows).items() if name in found]
    saved = sum(buffers[name].dtype.itemsize for name, _, _ in both)
    yield from ((index, other, saved) for _, index, other in both)


def _matrices(kernel: LoopKernel) -> dict[str, Expr]:
    """Where it reads what varies along all of its loops."""
    loops = {v.symbol for v in (*kernel.outer, *kernel.inner)}
    loads = [v.data for v in kernel.values if v.op == "load" and not v.data.binders and not v.data.masked]
    return {d.buffer: d.index for d in loads if loops <= d.index.symbols}


def _crossed(rows: LoopKernel, row_index: Expr, columns: LoopKernel, column_index: Expr) -> Space | None:
    """The space of the rows, where the inner loops of one kernel are the outer ones of the other."""
    pairs = aligned((*rows.outer, *rows.inner), row_index, (*columns.outer, *columns.inner), column_index)
    inner, outer = {v.symbol for v in rows.inner}, {v.symbol for v in columns.outer}
    if pairs is None or any((a.var in inner) is not (b.var in outer) for a, b in pairs):
        return None
    space = space_of(pairs, rows.outer, rows.inner, 0)
    return space if space is not None and len(space.outer) == 1 else None


def _programs(rows: int, size: int) -> int:
    """As many as run at once, or a few less, so that all have equally many rows; 0: no such number divides the rows."""
    most = MULTIPROCESSORS * max(2, _AT_ONCE // size)
    return next((n for n in range(most, most * 9 // 10, -1) if rows % n == 0), 0)


def _joined(
    rows: LoopKernel, columns: LoopKernel, space: Space, programs: int
) -> tuple[tuple[LoopKernel, LoopKernel], tuple[Buffer, ...]]:
    (whole,), size = space.outer, iterations(columns.outer)
    part = LoopVar(loop_symbol("part", 0, constant(programs)), constant(programs))
    length = whole.size // programs
    row = LoopVar(loop_symbol("row", 0, length), length)
    # Neighbouring programs read neighbouring rows.
    number = {whole.symbol: as_expr(row.symbol) * programs + as_expr(part.symbol)}
    place = as_expr(part.symbol) * size + flat_index(columns.outer)
    scratch: list[Buffer] = []
    sums: list[Store] = []
    joined: dict[Value, Value] = {}
    for value in columns.values:
        if value.op == "reduce":
            name = f"{columns.name}_walked{len(scratch)}"
            scratch.append(Buffer(name, value.dtype, columns.device, (part.size, size), (size, constant(1))))
            sums.append(Store(name, place, value.args[0], mode="sum"))
            joined[value] = ir.reduce("sum", ir.load(name, place, value.dtype))
    stores = (*rewrite_stores(rows.stores, space.first), *rewrite_stores(sums, space.second))
    first = attrs.evolve(
        rows,
        outer=(part, row),
        inner=space.inner,
        stores=rewrite_stores(stores, number),
        origins=tuple(dict.fromkeys((*rows.origins, *columns.origins))),
    )
    totals = [attrs.evolve(s, value=ir.substitute(s.value, {}, joined.get)) for s in columns.stores]
    return (first, attrs.evolve(columns, inner=(part,), stores=tuple(totals))), tuple(scratch)
