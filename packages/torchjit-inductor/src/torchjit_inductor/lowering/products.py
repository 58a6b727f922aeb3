"""The product of one row and a matrix, or of a matrix and one column, on GPUs.

A library's kernels for it reach about half of the memory bandwidth; as a reduction each weight is read once, at full
speed, and what follows (a gate, a residual sum) joins the kernel.
"""

from __future__ import annotations

from typing import Any

import torch

from torchjit_core.expr import constant
from torchjit_inductor.ir.dtypes import compute_dtype
from torchjit_inductor.ir.values import Value, cast, reduce
from torchjit_inductor.lowering.builder import Builder, Output
from torchjit_inductor.lowering.tensors import Index, Lowered, Strided, TensorMeta

__all__ = ["vector_product"]

_DTYPES = frozenset((torch.bfloat16, torch.float16, torch.float32))
_LEAST = 128
"""Shorter sums leave most of a program's threads without work."""


def vector_product(b: Builder, op: Any, args: tuple[Any, ...], meta: Any) -> Lowered | None:
    """`mm` or `addmm` of one row with a matrix whose columns are contiguous, or of a matrix whose rows are contiguous with
    one column; None where it is something else.

    Args:
        args: the operator's operands, positional.
        meta: of the result.
    """
    if op is torch.ops.aten.mm.default and len(args) == 2:
        bias, (left, right) = None, args
    elif op is torch.ops.aten.addmm.default and len(args) == 3:
        bias, left, right = args
    else:
        return None
    if not isinstance(meta, TensorMeta) or meta.device.type != "cuda":
        return None
    depth, columns = right.sizes
    if depth.value is None or depth.value < _LEAST or any(n.value is None for n in meta.sizes):
        return None
    operands = [o for o in (bias, left, right) if o is not None]
    if meta.dtype not in _DTYPES or any(o.dtype != meta.dtype or o.device != meta.device for o in operands):
        return None
    if meta.sizes[0].value != 1:
        return _column(b, bias, left, right, meta) if meta.sizes[1].value == 1 else None
    if not isinstance(right, Strided) or right.strides[0].value != 1:
        return None
    row = b.materialize(left)  # its formula would be computed again for every column

    def body(read: Any, outer: Index, inner: Index) -> list[Value]:
        total = reduce("sum", read(row, (constant(0), *inner)) * read(right, (*inner, *outer)))
        if bias is not None:
            at = (*outer,) if len(bias.sizes) == 1 else (constant(0), *outer)
            total = total + read(bias, at)
        return [cast(total, compute_dtype(meta.dtype))]

    output = Output(meta, True, lambda outer, inner: (constant(0), *outer))
    return b.reduction((columns,), (depth,), [output], body, outer_strides=right.strides[1:])[0]


def _column(b: Builder, bias: Lowered | None, left: Lowered, right: Lowered, meta: TensorMeta) -> Lowered | None:
    matrix, column = b.materialize(left), b.materialize(right)
    if matrix.strides[1].value != 1:
        return None

    def body(read: Any, outer: Index, inner: Index) -> list[Value]:
        total = reduce("sum", read(matrix, (*outer, *inner)) * read(column, (*inner, constant(0))))
        if bias is not None:
            at = (constant(0),) if len(bias.sizes) == 1 else (*outer, constant(0))
            total = total + read(bias, at)
        return [cast(total, compute_dtype(meta.dtype))]

    output = Output(meta, True, lambda outer, inner: (*outer, constant(0)))
    return b.reduction(meta.sizes[:1], left.sizes[1:], [output], body, outer_strides=matrix.strides[:1])[0]
