"""Kernels in which one tensor lies across the others, or memory runs along a loop outside: tiles that give whole sectors to all of them.

The figures are of an H100 (docs/benchmarks/gpu.md, `gpu_plans.py --groups transposed`).
"""

from __future__ import annotations

from typing import final

import attrs

from torchjit_inductor.ir.kernel import LoopVar
from torchjit_inductor.ir.values import IN_ORDER
from torchjit_inductor.triton.facts import MULTIPROCESSORS, Facts, power_of_two

__all__ = ["SPARSE", "Tile", "columns_outside", "crossed_tile", "rows_across"]

SECTOR = 32  # bytes that memory gives or takes at once
ALREADY = 2048  # elements that a program of whole rows has without any of this
WHOLE = 16384  # of whole rows of up to two matrices that it has in registers, ...
PER_WARP = 1024  # ... and so many in those of a warp
SPARSE = 8
"""Elements for a thread, where some work is done on each: a thread that has more has more instructions, one after the other, and registers."""


@final
@attrs.frozen
class Tile:
    """Rows and columns of a tile, and warps of a program that has it."""

    rows: int
    columns: int
    warps: int


_READ_TWICE = Tile(16, 256, 4)
"""Of rows that do not fit in registers."""


def crossed_tile(facts: Facts, across: LoopVar) -> Tile:
    """A tile of two loops of a kernel without reductions, along each of which some tensor lies.

    Args:
        across: the one that is not the last.
    """
    kernel = facts.kernel
    last = kernel.outer[-1]
    # Of four bytes an element 128 are a line, and longer runs of what is stored are faster; so are tiles of 8192 where they fill the device.
    stored = facts.itemsize == 4 and all(facts.unit(s.index, last) for s in kernel.stores)
    many = facts.count(kernel.outer) >= 4 * MULTIPROCESSORS * 8192
    works = facts.works(across, last)
    wide = (64, 64) if works or not stored else (64 if many else 32, 128)
    rows = min(wide[0], power_of_two(facts.count([across])))
    columns = min(wide[1], power_of_two(facts.count([last])))
    if rows < wide[0]:
        columns = min(4096 // rows, power_of_two(facts.count([last])))
    elif columns < wide[1]:
        rows = min(4096 // columns, power_of_two(facts.count([across])))
    elements = rows * columns
    warps = min(16, elements // (32 * SPARSE)) if works else min(8, elements // 512)
    return Tile(rows, columns, max(1, warps))


def rows_across(facts: Facts, size: int | None) -> Tile | None:
    """A tile of so many rows of a reduction that what is stored across them is so in whole sectors.

    Of what is read across them a program with few rows leaves the rest in the cache for the next.

    Args:
        size: of a row; None: it varies.

    Returns:
        None: nothing is stored across, programs have so many rows anyway, or there are few.
    """
    kernel = facts.kernel
    rows = _rows_of_sectors(facts)
    if not rows or facts.count([kernel.outer[-1]]) < rows or facts.count(kernel.outer) < rows * MULTIPROCESSORS:
        return None
    last, inner = kernel.outer[-1].symbol, {v.symbol for v in kernel.inner}
    matrices = sum(1 for v in facts.loads if v.symbols & inner and last in v.symbols)
    if size is None:
        columns = min(_READ_TWICE.columns, power_of_two(facts.count(kernel.inner)))
        return attrs.evolve(_READ_TWICE, columns=max(64, columns))
    if rows * power_of_two(size) * max(1, matrices / 2) > WHOLE:
        return _READ_TWICE
    elements = rows * power_of_two(size)
    return Tile(rows, power_of_two(size), max(4, elements // PER_WARP)) if elements > ALREADY else None


def _rows_of_sectors(facts: Facts) -> int:
    """So many elements that are stored across the rows are a sector; 0: none are, or the order of the elements counts."""
    kernel = facts.kernel
    if not kernel.outer or any(v.op in IN_ORDER for v in kernel.values):
        return 0
    inner = {v.symbol for v in kernel.inner}
    stored = [s.buffer for s in kernel.stores if s.index.symbols & inner and facts.unit(s.index, kernel.outer[-1])]
    return max((SECTOR // facts.buffers[name].dtype.itemsize for name in stored), default=0)


def columns_outside(facts: Facts) -> Facts | None:
    """A reduction whose large loads walk memory along an outer loop that is not the last, with that one last.

    So are rows of an image whose channels are innermost: its result is row-major, and its loops are in the result's order.

    Returns:
        None: there is no such loop, or as many walk memory along the inner ones.
    """
    kernel = facts.kernel
    inner, outer = ({v.symbol for v in loops} for loops in (kernel.inner, kernel.outer))
    accesses = [v.data.index for v in facts.loads] + [s.index for s in kernel.stores]
    large = [i for i in accesses if i.symbols & inner and i.symbols & outer]

    def along(var: LoopVar) -> int:
        return sum(1 for i in large if facts.unit(i, var))

    best = max(kernel.outer[:-1], key=along, default=None)
    if best is None or along(best) <= along(kernel.inner[-1]) or facts.count([best]) < 8:
        return None
    loops = (*(v for v in kernel.outer if v is not best), best)
    return Facts(attrs.evolve(kernel, outer=loops), facts.buffers, facts.hints)
