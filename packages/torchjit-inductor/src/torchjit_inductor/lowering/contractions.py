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
from torchjit_inductor.ir.dtypes import EIGHT_BIT_FLOATS, HALF, compute_dtype
from torchjit_inductor.ir.kernel import element_count
from torchjit_inductor.ir.values import Value, cast, dot, load, round_to
from torchjit_inductor.lowering.builder import Builder, Output
from torchjit_inductor.lowering.grouped import MOST_GROUPS, Groups, grouped_dot
from torchjit_inductor.lowering.tensors import Index, Lowered, Metas, Point, Read, Strided, TensorMeta
from torchjit_inductor.lowering.views import broadcast_index
from torchjit_inductor.steps import ExternStep

__all__ = ["MatrixProduct", "Operands", "ProductChoice", "Scales", "multiply", "tile_product"]

_aten = torch.ops.aten
_SCALED_V2 = getattr(getattr(_aten, "_scaled_mm_v2", None), "default", None)
_GROUPED = getattr(getattr(_aten, "_grouped_mm", None), "default", None)
_KINDS = ([0], [1])
"""`ScalingType` of tensors and of rows."""
_LEAST = 16
"""Sides below this leave most of a tile empty."""


@final
@attrs.frozen
class Scales:
    """What a product of 8-bit floats is multiplied by (`_scaled_mm`): float32 numbers of both operands.

    Attributes:
        by_rows: one for each row of the left operand and for each column of the right one; else one for each operand.
        result: dtype.
        fast: sums may be inexact, see `ir.values.dot`.
    """

    by_rows: bool
    result: torch.dtype
    fast: bool


@final
@attrs.frozen
class MatrixProduct:
    """A product `left @ right` of two matrices or two batches of them, as it lies in memory.

    Attributes:
        dtype: of the operands, or of the left one: float16, bfloat16, int8 or a float of 8 bits.
        device: of all.
        batch: how many; 1 for matrices.
        rows, depth, columns: sizes: left is (batch, rows, depth), right (batch, depth, columns).
        left_strides, right_strides: in elements, of the three dimensions.
        right_dtype: where it is another one.
        scales: of 8-bit floats.
        groups: where several matrices are multiplied with parts of one; `batch` is 1, and the operand that is one has 0 as its first stride.
    """

    dtype: torch.dtype
    device: torch.device
    batch: int
    rows: int
    depth: int
    columns: int
    left_strides: tuple[int, int, int]
    right_strides: tuple[int, int, int]
    right_dtype: torch.dtype | None = None
    scales: Scales | None = None
    groups: Groups | None = None

    @property
    def result(self) -> torch.dtype:
        """Of the product: int32 where integers are multiplied."""
        if self.scales is not None:
            return self.scales.result
        return torch.int32 if self.dtype == torch.int8 else self.dtype

    @property
    def divided(self) -> int:
        """The length of what is divided into groups."""
        return (
            0
            if self.groups is None
            else {"rows": self.rows, "columns": self.columns, "depth": self.depth}[self.groups.along]
        )

    @property
    def second(self) -> torch.dtype:
        """The right operand's dtype."""
        return self.right_dtype or self.dtype

    @property
    def form(self) -> str:
        """What the library's time depends on besides dtypes, sizes and strides of the operands."""
        return "" if self.scales is None else str(self.scales)


ProductChoice: TypeAlias = Callable[[MatrixProduct], bool]
"""May a generated kernel be better than aten, where other kernels become part of it?"""


@final
@attrs.frozen(eq=False)
class Operands:
    """An operator's operands.

    Attributes:
        left, right: matrices, or batches of them.
        bias: added to the product.
        scales: of the left and the right operand.
        fast: see `Scales`.
        ends: of groups.
    """

    left: Lowered
    right: Lowered
    bias: Lowered | None = None
    scales: tuple[Lowered, Lowered] | None = None
    fast: bool = False
    ends: Lowered | None = None

    @property
    def groups(self) -> Groups | None:
        """What is divided into groups."""
        count = None if self.ends is None else self.ends.sizes[0].value
        if count is None:
            return None
        ranks = len(self.left.sizes), len(self.right.sizes)
        return Groups(count, {(2, 3): "rows", (3, 2): "columns", (2, 2): "depth"}[ranks])


def _asked(op: object, args: tuple[Any, ...], meta: TensorMeta) -> Operands | None:
    """What an operator multiplies; None where it does something else, or something that kernels do not do."""
    read = _OPERANDS.get(op)
    asked = None if read is None else read(args, meta)
    if asked is None:
        return None
    multiplied = tuple(EIGHT_BIT_FLOATS) if asked.scales is not None else (_INTEGERS.get(op, meta.dtype),)
    if any(o.dtype not in multiplied for o in (asked.left, asked.right)):
        return None
    if asked.bias is not None and asked.scales is None and asked.bias.dtype != meta.dtype:
        return None
    operands = (asked.left, asked.right, asked.bias, asked.ends, *(asked.scales or ()))
    return asked if all(o.device == meta.device for o in operands if o is not None) else None


def _plain(args: tuple[Any, ...], meta: TensorMeta) -> Operands | None:
    """`mm(left, right)`, `bmm`."""
    return Operands(*args) if len(args) == 2 and meta.dtype in HALF else None


def _biased(args: tuple[Any, ...], meta: TensorMeta) -> Operands | None:
    """`addmm(bias, left, right)`, `baddbmm`."""
    return Operands(args[1], args[2], args[0]) if len(args) == 3 and meta.dtype in HALF else None


def _first_version(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of `_scaled_mm_v2(left, right, scales of left, what they are of, how they lie, the same of right, bias, dtype,
    contracted dimensions, fast sums)` as `_scaled_mm` takes them; () where those do not say it all."""
    left, right, scale_left, kind_left, lies_left, scale_right, kind_right, lies_right, bias, dtype, *rest = args
    defaults: list[Any] = [[], False]
    contracted, fast = [*rest, *defaults[len(rest) :]]
    if (
        list(kind_left) != list(kind_right)
        or list(kind_left) not in _KINDS
        or any((*lies_left, *lies_right))
        or contracted
    ):
        return ()
    return left, right, scale_left[0], scale_right[0], bias, None, dtype, fast


def _scaled(args: tuple[Any, ...], meta: TensorMeta) -> Operands | None:
    """`_scaled_mm(left, right, scale of left, scale of right, bias, scale of the result, dtype, fast sums)`."""
    if not args:
        return None
    defaults: list[Any] = [None, None, None, False]
    left, right, first, second, bias, scale_result, _, fast = [*args, *defaults[len(args) - 4 :]]
    scales = (first, second)
    if scale_result is not None or meta.dtype not in (*HALF, torch.float32):
        return None
    counts = [element_count(s.sizes).value for s in scales]
    (rows, columns), shapes = meta.sizes, [[n.value for n in s.sizes] for s in scales]
    by_rows = shapes == [[rows.value, 1], [1, columns.value]]
    # What else there is has scales for blocks of the operands.
    if not (by_rows or counts == [1, 1]) or any(s.dtype != torch.float32 for s in scales):
        return None
    if bias is not None and bias.dtype not in (*HALF, torch.float32):
        return None
    return Operands(left, right, bias, scales, bool(fast))


def _grouped(args: tuple[Any, ...], meta: TensorMeta) -> Operands | None:
    """`_grouped_mm(left, right, ends of the groups, bias, dtype)`; without ends it is `bmm`."""
    defaults: list[Any] = [None, None, None]
    left, right, ends, bias, _ = [*args, *defaults[len(args) - 2 :]]
    ranks = [len(o.sizes) for o in (left, right)]
    if bias is not None or meta.dtype not in HALF or (ends is None) != (ranks == [3, 3]):
        return None
    if ends is None:
        return Operands(left, right)
    count = ends.sizes[0].value
    if ranks == [3, 3] or len(ends.sizes) != 1 or ends.dtype != torch.int32 or count is None:
        return None
    return Operands(left, right, ends=ends) if 0 < count <= MOST_GROUPS else None


_OPERANDS: dict[object, Callable[[tuple[Any, ...], TensorMeta], Operands | None]] = {
    _aten.mm.default: _plain,
    _aten.bmm.default: _plain,
    _aten.addmm.default: _biased,
    _aten.baddbmm.default: _biased,
    _aten._int_mm.default: lambda args, meta: Operands(*args) if len(args) == 2 else None,
    _aten._scaled_mm.default: _scaled,
    _SCALED_V2: lambda args, meta: _scaled(_first_version(args), meta),
    _GROUPED: _grouped,
}
"""How operators that multiply matrices take their operands."""
_INTEGERS: dict[object, torch.dtype] = {_aten._int_mm.default: torch.int8}
"""What is multiplied, where it is not of the result's type."""


def tile_product(b: Builder, op: object, args: tuple[Any, ...], meta: Metas, choice: ProductChoice) -> Lowered | None:
    """`mm`, `addmm`, `bmm`, `baddbmm`, `_int_mm`, `_scaled_mm` or `_grouped_mm` as a kernel, or None where aten is better or
    the operator is another one.

    The call of aten that would do the same is kept in `Builder.products`: whether the kernel stays is decided when it is
    known what becomes part of it.

    Args:
        args: the operator's operands, positional.
        meta: of the result.
        choice: asked once the product is known to be of the right form.
    """
    if not isinstance(meta, TensorMeta) or meta.device.type != "cuda":
        return None
    asked = _asked(op, args, meta)
    if asked is None:
        return None
    first, second = _in_memory(b, asked.left), _in_memory(b, asked.right)
    if first is None or second is None:
        return None
    scales = None
    if asked.scales is not None:
        by_rows = any(element_count(s.sizes).value != 1 for s in asked.scales)
        scales = Scales(by_rows, meta.dtype, asked.fast)
    product = _product(first, second, meta.device, scales, asked.groups)
    if product is None or not choice(product):
        return None
    target: Strided = b.extern(op, args, {}, meta)
    step = b.steps.pop()
    assert isinstance(step, ExternStep)
    b.products[target.buffer] = step
    return multiply(b, attrs.evolve(asked, left=first, right=second), product, meta, target)


def multiply(b: Builder, operands: Operands, product: MatrixProduct, meta: TensorMeta, target: Strided) -> Lowered:
    """A kernel that computes a product, and what it is multiplied by and added to, of operands in memory."""
    first, second = b.materialize(operands.left), b.materialize(operands.right)
    ends = None if operands.ends is None else b.materialize(operands.ends)

    def body(read: Read, outer: Index, inner: Index) -> list[Value]:
        *lead, row, column = outer
        total: Value
        if ends is None or product.groups is None:
            left, right = _operand(read, first, (*lead, row, *inner)), _operand(read, second, (*lead, *inner, column))
            total = dot(left, right, fast=operands.fast)
        else:
            found = [ends.value(Point((constant(g),), {})) for g in range(product.groups.count)]
            point = (lead[0] if lead else constant(0), row, column, inner[0])
            total = grouped_dot(product.groups.along, found, _loader(first), _loader(second), point)
        for scale in operands.scales or ():
            total = total * read(scale, broadcast_index(outer, scale.sizes))
        if operands.bias is not None:
            total = total + read(operands.bias, broadcast_index(outer, operands.bias.sizes))
        return [cast(total, compute_dtype(meta.dtype))]

    output = Output(meta, True, lambda outer, inner: outer)
    return b.reduction(meta.sizes, first.sizes[-1:], [output], body, outer_strides=meta.strides, targets=[target])[0]


def _loader(tensor: Strided) -> Callable[..., Value]:
    """From an index to an element, with options of `load`."""
    return lambda index, **options: load(tensor.buffer, tensor.address(index), tensor.dtype, **options)


def _in_memory(b: Builder, tensor: Lowered) -> Strided | None:
    """The operand in memory: a formula would be computed again for every tile."""
    return b.materialize(tensor) if all(s.value is not None for s in tensor.sizes) else None


def _operand(read: Read, tensor: Strided, index: Index) -> Value:
    value: Value = read(tensor, index)
    return value if value.op == "load" else round_to(value, tensor.dtype)


def _product(
    left: Strided, right: Strided, device: torch.device, scales: Scales | None, groups: Groups | None
) -> MatrixProduct | None:
    sizes_left, sizes_right, *strides = (_numbers(e) for e in (left.sizes, right.sizes, left.strides, right.strides))
    if sizes_left is None or sizes_right is None or None in strides:
        return None
    rows, depth, columns = sizes_left[-2], sizes_left[-1], sizes_right[-1]
    batch = sizes_left[0] if len(sizes_left) == 3 and groups is None else 1
    if min(rows, depth, columns) < _LEAST or batch == 0:
        return None
    a, b = ((0, *s)[-3:] for s in strides if s is not None)
    if 1 not in a or 1 not in b:
        return None
    other = None if right.dtype == left.dtype else right.dtype
    return MatrixProduct(left.dtype, device, batch, rows, depth, columns, a, b, other, scales, groups)  # type: ignore[arg-type]


def _numbers(expressions: Index) -> tuple[int, ...] | None:
    """Their values; None if one of them varies."""
    values = tuple(e.value for e in expressions if e.value is not None)
    return values if len(values) == len(expressions) else None
