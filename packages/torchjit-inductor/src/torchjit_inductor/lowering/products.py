"""Products of matrices on GPUs for which a library's kernel is too much: of one row or column, and of very short sums.

For the product of one row and a matrix, or of a matrix and one column, a library's kernels reach about half of the memory
bandwidth; as a reduction each weight is read once, at full speed, and what follows (a gate, a residual sum) joins the
kernel. A sum of a few products is a formula, which joins whatever kernel there is.
"""

from __future__ import annotations

from typing import Any

import torch

from torchjit_core.expr import constant
from torchjit_inductor.ir.dtypes import compute_dtype
from torchjit_inductor.ir.kernel import element_count
from torchjit_inductor.ir.values import Value, cast, reduce
from torchjit_inductor.lowering.builder import Builder, Output
from torchjit_inductor.lowering.tensors import Index, Lazy, Lowered, Metas, Point, Read, Strided, TensorMeta
from torchjit_inductor.lowering.views import broadcast_index

__all__ = ["small_product", "vector_product"]

_DTYPES = frozenset((torch.bfloat16, torch.float16, torch.float32))
_aten = torch.ops.aten
_PRODUCTS: dict[object, int] = {
    _aten.mm.default: 2,
    _aten.bmm.default: 2,
    _aten.addmm.default: 3,
    _aten.baddbmm.default: 3,
}
"""How many operands they have; a third one is added, and comes first."""
_LEAST = 128
"""Shorter sums leave most of a program's threads without work."""
_SHORT, _SHORTEST = 8, 2
_SMALL = 2**18
"""Sums of up to 8 products are formulas in results of so few elements, where a launch costs more than they do; elsewhere sums of up
to 2: each element of the result reads its operands from the cache, which larger sums would be bound by."""


def _operands(op: object, args: tuple[Any, ...], meta: TensorMeta) -> tuple[Lowered | None, Lowered, Lowered] | None:
    """What is added, and what is multiplied, on a GPU and of one type; None where the operator is another one."""
    if op not in _PRODUCTS or len(args) != _PRODUCTS[op]:
        return None
    if meta.device.type != "cuda" or meta.dtype not in _DTYPES:
        return None
    if any(o.dtype != meta.dtype or o.device != meta.device for o in args):
        return None
    return args if len(args) == 3 else (None, *args)


def small_product(b: Builder, op: object, args: tuple[Any, ...], meta: Metas) -> Lowered | None:
    """`mm`, `addmm`, `bmm` or `baddbmm` of few products per sum as a formula; None where it is something else.

    Args:
        op: the operator.
        args: its operands, positional.
        meta: of the result.
    """
    operands = _operands(op, args, meta) if isinstance(meta, TensorMeta) else None
    if operands is None or not isinstance(meta, TensorMeta):
        return None
    bias, left, right = operands
    depth, count = left.sizes[-1].value, element_count(meta.sizes).value
    few = count is not None and count <= _SMALL
    if depth is None or not 1 <= depth <= (_SHORT if few else _SHORTEST):
        return None
    first, second = b.materialize(left), b.materialize(right)  # a formula would be computed again for each element

    def formula(point: Point) -> Value:
        *lead, row, column = point.index
        total: Value | None = None
        for k in range(depth):
            at = constant(k)
            product = first.value(point.at((*lead, row, at))) * second.value(point.at((*lead, at, column)))
            total = product if total is None else total + product
        assert total is not None
        if bias is not None:
            total = total + bias.value(point.at(broadcast_index(point.index, bias.sizes)))
        return total

    made = Lazy(meta.sizes, meta.dtype, meta.device, formula)
    made.origins = b.all_origins()
    return made


def vector_product(b: Builder, op: object, args: tuple[Any, ...], meta: Metas) -> Lowered | None:
    """`mm` or `addmm` of one row with a matrix whose columns are contiguous, or of a matrix whose rows are contiguous with
    one column; None where it is something else.

    Args:
        args: the operator's operands, positional.
        meta: of the result.
    """
    operands = _operands(op, args, meta) if isinstance(meta, TensorMeta) else None
    if operands is None or not isinstance(meta, TensorMeta) or len(meta.sizes) != 2:
        return None
    bias, left, right = operands
    depth, columns = right.sizes
    if depth.value is None or depth.value < _LEAST or any(n.value is None for n in meta.sizes):
        return None
    one_row, one_column = (n.value == 1 for n in meta.sizes)
    if not _walks(right, 0) if one_row else not one_column:
        return None
    # The formula of the row would be computed again for every column.
    first, second = b.materialize(left), b.materialize(right)
    if not one_row and not _walks(first, 1):
        return None

    def place(outer: Index, _: Index = ()) -> Index:
        return (constant(0), *outer) if one_row else (*outer, constant(0))

    def body(read: Read, outer: Index, inner: Index) -> list[Value]:
        row, column = place(outer)
        total = reduce("sum", read(first, (row, *inner)) * read(second, (*inner, column)))
        if bias is not None:
            total = total + read(bias, broadcast_index((row, column), bias.sizes))
        return [cast(total, compute_dtype(meta.dtype))]

    along, strides = (columns, second.strides[1:]) if one_row else (meta.sizes[0], first.strides[:1])
    return b.reduction((along,), (depth,), [Output(meta, True, place)], body, outer_strides=strides)[0]


def _walks(matrix: Lowered, dim: int) -> bool:
    """Is it in memory, which runs along a dimension?"""
    return isinstance(matrix, Strided) and matrix.strides[dim].value == 1
