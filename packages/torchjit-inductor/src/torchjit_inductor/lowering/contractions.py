"""Products of matrices as kernels (`max_autotune`), where measurements say that they beat the library.

The product is a reduction like any other in the loop IR, so what follows it point by point joins its kernel by the
ordinary fusion: a bias, an activation, a residual sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, final

import attrs
import torch

from torchjit_core.expr import constant
from torchjit_inductor.ir.dtypes import compute_dtype
from torchjit_inductor.ir.values import Value, cast, dot, round_to
from torchjit_inductor.lowering.builder import Builder, Output
from torchjit_inductor.lowering.tensors import Index, Lowered, Strided, TensorMeta
from torchjit_inductor.steps import ExternStep

__all__ = ["MatrixProduct", "ProductChoice", "tile_product"]

_HALF = (torch.float16, torch.bfloat16)
_LEAST = 16
"""Sides below this leave most of a tile empty."""


@final
@attrs.frozen
class MatrixProduct:
    """A product `left @ right` of two matrices or two batches of them, as it lies in memory.

    Attributes:
        dtype: of the operands: float16, bfloat16 or int8.
        device: of all.
        batch: how many; 1 for matrices.
        rows, depth, columns: sizes: left is (batch, rows, depth), right (batch, depth, columns).
        left_strides, right_strides: in elements, of the three dimensions.
    """

    dtype: torch.dtype
    device: torch.device
    batch: int
    rows: int
    depth: int
    columns: int
    left_strides: tuple[int, int, int]
    right_strides: tuple[int, int, int]

    @property
    def result(self) -> torch.dtype:
        """Of the product: int32 where integers are multiplied."""
        return torch.int32 if self.dtype == torch.int8 else self.dtype


ProductChoice: TypeAlias = Callable[[MatrixProduct], bool]
"""May a generated kernel be better than aten, where other kernels become part of it?"""


def tile_product(b: Builder, op: Any, args: tuple[Any, ...], meta: Any, choice: ProductChoice) -> Lowered | None:
    """`mm`, `addmm`, `bmm`, `baddbmm` or `_int_mm` as a kernel, or None where aten is better or the operator is another one.

    The call of aten that would do the same is kept in `Builder.products`: whether the kernel stays is decided when it is
    known what becomes part of it.

    Args:
        args: the operator's operands, positional.
        meta: of the result.
        choice: asked once the product is known to be of the right form.
    """
    aten = torch.ops.aten
    integers = op is aten._int_mm.default
    if (op in (aten.mm.default, aten.bmm.default) or integers) and len(args) == 2:
        bias, (left, right) = None, args
    elif op in (aten.addmm.default, aten.baddbmm.default) and len(args) == 3:
        bias, left, right = args
    else:
        return None
    if not isinstance(meta, TensorMeta) or meta.device.type != "cuda" or not (integers or meta.dtype in _HALF):
        return None
    multiplied = torch.int8 if integers else meta.dtype
    if any(o.dtype != multiplied or o.device != meta.device for o in (bias, left, right) if o is not None):
        return None
    first, second = _in_memory(b, left), _in_memory(b, right)
    product = None if first is None or second is None else _product(first, second, meta.device)
    if product is None or first is None or second is None or not choice(product):
        return None

    def body(read: Any, outer: Index, inner: Index) -> list[Value]:
        *lead, row, column = outer
        total: Value = dot(_operand(read, first, (*lead, row, *inner)), _operand(read, second, (*lead, *inner, column)))
        if bias is not None:
            total = total + read(bias, _broadcast(outer, bias.sizes))
        return [cast(total, compute_dtype(meta.dtype))]

    target: Strided = b.extern(op, args, {}, meta)
    step = b.steps.pop()
    assert isinstance(step, ExternStep)
    b.products[target.buffer] = step
    output = Output(meta, True, lambda outer, inner: outer)
    return b.reduction(meta.sizes, first.sizes[-1:], [output], body, outer_strides=meta.strides, targets=[target])[0]


def _in_memory(b: Builder, tensor: Lowered) -> Strided | None:
    """The operand in memory: a formula would be computed again for every tile."""
    return b.materialize(tensor) if all(s.value is not None for s in tensor.sizes) else None


def _operand(read: Any, tensor: Strided, index: Index) -> Value:
    value: Value = read(tensor, index)
    return value if value.op == "load" else round_to(value, tensor.dtype)


def _broadcast(outer: Index, sizes: Index) -> Index:
    """The index of a bias, which has fewer dimensions or some of size 1."""
    last = outer[len(outer) - len(sizes) :]
    return tuple(constant(0) if n.value == 1 else i for i, n in zip(last, sizes, strict=True))


def _product(left: Strided, right: Strided, device: torch.device) -> MatrixProduct | None:
    numbers = [e.value for t in (left, right) for e in (*t.sizes, *t.strides)]
    if any(n is None for n in numbers):
        return None
    sizes_left, sizes_right = ([s.value or 0 for s in t.sizes] for t in (left, right))
    rows, depth, columns = sizes_left[-2], sizes_left[-1], sizes_right[-1]
    batch = sizes_left[0] if len(sizes_left) == 3 else 1
    if min(rows, depth, columns) < _LEAST or batch == 0:
        return None
    strides = [tuple(s.value or 0 for s in t.strides) for t in (left, right)]
    (a, b) = ((s if len(s) == 3 else (0, *s)) for s in strides)
    if 1 not in a or 1 not in b:
        return None
    return MatrixProduct(left.dtype, device, batch, rows, depth, columns, a, b)  # type: ignore[arg-type]
