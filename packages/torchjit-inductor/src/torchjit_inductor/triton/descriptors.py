"""Operands of products through the tensor memory accelerator (TMA) of Hopper and later GPUs.

A kernel gets a descriptor for each operand, 128 bytes that the driver encodes from address, sizes, strides and tile, and
asks for tiles by position: no pointers or masks in registers, and the copy runs beside everything else. Triton passes such
a descriptor by value, behind it the sizes (32 bits each) and strides (64 bits each) of the matrix.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import final

import attrs
import torch

from torchjit_core.expr import Expr, Symbol, constant
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir.kernel import Buffer, LoopVar
from torchjit_inductor.ir.values import LoadData, Value

__all__ = ["MAP_BYTES", "Descriptor", "OperandTiles", "matrix_of"]

MAP_BYTES = 128
"""Of a `CUtensorMap`."""
_ALIGNMENT = 16
"""Bytes that addresses and rows of a described matrix must be multiples of."""
_HOST_TYPES = {torch.float16: 6, torch.bfloat16: 9, torch.int8: 0, torch.float8_e4m3fn: 0, torch.float8_e5m2: 0}
"""`CUtensorMapDataType` of each dtype; bytes are bytes."""


@final
@attrs.frozen
class OperandTiles:
    """An operand as a descriptor says it: a matrix whose rows lie in memory one after the other.

    Attributes:
        buffer: its name.
        dtype: of its elements.
        offset: of the first element, in elements.
        sizes: rows, and elements of a row.
        step: from a row to the next, in elements.
        turned: the operand is the matrix turned: its rows run along memory's columns.
        lead: where there is one such matrix for each group, one behind the other: rows from one to the next.
        tile: rows and columns of what is copied at once; (0, 0) as long as nothing is chosen.
    """

    buffer: str
    dtype: torch.dtype
    offset: int
    sizes: tuple[int, int]
    step: int
    turned: bool
    lead: int = 0
    tile: tuple[int, int] = (0, 0)


def matrix_of(
    value: Value, down: Sequence[LoopVar], across: Sequence[LoopVar], buffers: Mapping[str, Buffer], groups: int = 0
) -> OperandTiles | None:
    """The matrix that an operand is, or None where a descriptor cannot say it.

    Args:
        value: the operand.
        down, across: loops of its rows and of its columns.
        buffers: of the graph.
        groups: how many there are; the only thing besides loops that the operand may depend on is the number of its group.
    """
    if value.op != "load" or not _is_plain(value.data, {v.symbol for v in (*down, *across)}, groups):
        return None
    data: LoadData = value.data
    index, dtype = data.index, buffers[data.buffer].dtype
    if dtype not in _HOST_TYPES:
        return None
    offset = index.substitute({s: constant(0) for s in index.symbols}).value
    along, beside = _walk(index, across), _walk(index, down)
    if offset is None or along is None or beside is None or 1 not in (along.step, beside.step):
        return None
    turned = along.step != 1
    row, lines = (beside, along) if turned else (along, beside)
    lead = _lead(index, data.binders, lines.step)
    if lead is None or not _may_be_described(row, lines, offset, _ALIGNMENT // dtype.itemsize):
        return None
    sizes = lines.count + (groups - 1) * lead if data.binders else lines.count, row.count
    return OperandTiles(data.buffer, dtype, offset, sizes, lines.step, turned, lead) if max(sizes) < 2**31 else None


def _is_plain(data: LoadData, loops: set[Symbol], groups: int) -> bool:
    """Is all of a tensor read along these loops, and, where there are groups, by the number of one?"""
    return not data.masked and data.index.symbols == loops.union(data.binders) and len(data.binders) <= bool(groups)


@final
@attrs.frozen
class _Walk:
    """Loops that are walked as one: the distance in memory of neighbours, and how many points there are."""

    step: int
    count: int


def _walk(index: Expr, loops: Sequence[LoopVar]) -> _Walk | None:
    """How an index walks along loops; None where the distance varies."""
    step: int | None = None
    count = 1
    for var in reversed(loops):
        by = stride(index, var.symbol)
        if by is None or by.value is None or not var.size.value:
            return None
        if step is None:
            step = by.value
        elif by.value != step * count:
            return None
        count *= var.size.value
    return None if step is None else _Walk(step, count)


def _lead(index: Expr, numbers: Sequence[Symbol], step: int) -> int | None:
    """Rows from the matrix of one group to that of the next; 0 where there is but one, None where rows do not divide it."""
    apart = stride(index, numbers[0]) if numbers else constant(0)
    if apart is None or apart.value is None or not step or apart.value % step:
        return None
    return apart.value // step


def _may_be_described(row: _Walk, lines: _Walk, offset: int, unit: int) -> bool:
    """Do rows begin where a descriptor lets them, and does none overlap the next?"""
    return lines.step % unit == 0 and offset % unit == 0 and lines.step >= row.count


@final
@attrs.frozen
class Descriptor:
    """What the launcher encodes.

    Attributes:
        argument: position of the buffer's address among the kernel's.
        tiles: the operand.
        box: rows and columns of one copy, which may be a part of a tile.
        swizzle: `CUtensorMapSwizzle`: how a copy lies in shared memory.
    """

    argument: int
    tiles: OperandTiles
    box: tuple[int, int]
    swizzle: int

    @property
    def packed(self) -> bytes:
        """For `csrc/launcher.c`: ten 64-bit numbers."""
        size, t = self.tiles.dtype.itemsize, self.tiles
        return struct.pack(
            "<10Q", self.argument, t.offset * size, _HOST_TYPES[t.dtype], *t.sizes, t.step, t.step * size,
            *self.box, self.swizzle,
        )  # fmt: skip
