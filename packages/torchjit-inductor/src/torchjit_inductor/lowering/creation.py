"""Tensors from numbers and from their own index."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from torchjit_core.expr import Expr
from torchjit_inductor.ir.dtypes import compute_dtype
from torchjit_inductor.ir.values import Scalar, Value, apply, cast, constant, index_value, where
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.places import place_of
from torchjit_inductor.lowering.registry import lowering
from torchjit_inductor.lowering.sizes import NotLowered, expression
from torchjit_inductor.lowering.tensors import Lazy, Lowered, Point, Size, Strided, TensorMeta, contiguous_strides, full
from torchjit_inductor.lowering.views import chosen, dim_of, inserted, narrowed

__all__: list[str] = []


@lowering("full", "full_like", "fill.Scalar", "new_full", "scalar_tensor")
def _filled(b: Builder, meta: TensorMeta, *given: object, **_: object) -> Lowered:
    value = given[-1]
    if isinstance(value, Expr):
        return Lazy(meta.sizes, meta.dtype, meta.device, lambda p: cast(index_value(value), meta.dtype))
    if not isinstance(value, (bool, int, float)):
        raise NotLowered(f"fill value {value!r}")
    return full(value, meta)


lowering("ones", "ones_like", "new_ones")(lambda b, meta, *_, **__: full(1, meta))
lowering("zeros", "zeros_like", "new_zeros")(lambda b, meta, *_, **__: full(0, meta))


def _range(meta: TensorMeta, start: Scalar, step: Scalar) -> Lazy:
    if isinstance(start, (int, float)) and isinstance(step, (int, float)) and float in (type(start), type(step)):
        first_number, step_number = float(start), float(step)
        if meta.dtype not in (torch.float32, torch.float64):
            raise NotLowered("a range of floats in a 16-bit or integer type")
        # Eager computes start + step * i in the accumulate type, float64 on the CPU.
        return Lazy(
            meta.sizes, meta.dtype, meta.device,
            lambda p: cast(cast(index_value(p.index[0]), torch.float64) * step_number + first_number, meta.dtype),
        )  # fmt: skip
    first, by = expression(start), expression(step)
    return Lazy(
        meta.sizes,
        meta.dtype,
        meta.device,
        lambda p: cast(index_value(first + by * p.index[0]), compute_dtype(meta.dtype)),
    )


lowering("arange")(lambda b, meta, end, **_: _range(meta, 0, 1))
lowering("arange.start")(lambda b, meta, start, end, **_: _range(meta, start, 1))
lowering("arange.start_step")(lambda b, meta, start, end, step=1, **_: _range(meta, start, step))
lowering("prims::iota")(lambda b, meta, length, *, start, step, **_: _range(meta, start, step))


def _triangle(test: str, b: Builder, meta: TensorMeta, x: Lowered, diagonal: int = 0) -> Lowered:
    def formula(point: Point) -> Value:
        row, column = index_value(point.index[-2]), index_value(point.index[-1])
        value = x.value(point)
        return where(apply(test, column, row + diagonal), value, constant(0, value.dtype))

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)


lowering("tril")(partial(_triangle, "le"))
lowering("triu")(partial(_triangle, "ge"))


@lowering("eye", "eye.m")
def _eye(b: Builder, meta: TensorMeta, *_: object, **__: object) -> Lowered:
    def formula(point: Point) -> Value:
        on = apply("eq", index_value(point.index[0]), index_value(point.index[1]))
        return cast(on, compute_dtype(meta.dtype))

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)


def _refuse_overlap(x: Lowered) -> None:
    """Eager writes into a copy with the strides of the original: where elements share memory, more than the slice changes.

    Raises:
        NotLowered: elements share memory, or may. Dimensions of stride 0 are no such case, eager's copy spells them out.
    """
    if not isinstance(x, Strided) or any(
        s.value == 0 and n.value != 1 for n, s in zip(x.sizes, x.strides, strict=True)
    ):
        return
    pairs = [(n, s) for n, s in zip(x.sizes, x.strides, strict=True) if n.value != 1]
    if any(n.value is None or s.value is None for n, s in pairs):
        if x.strides != contiguous_strides(x.sizes):
            raise NotLowered("a scatter into symbolic strides")
        return
    reach = 0
    for step, size in sorted((s.value or 0, n.value or 0) for n, s in pairs):
        if step <= reach:
            raise NotLowered("a scatter into elements that share memory")
        reach += step * (size - 1)


@lowering("select_scatter")
def _select_scatter(b: Builder, meta: TensorMeta, x: Lowered, src: Lowered, dim: int, index: Any) -> Lowered:
    _refuse_overlap(x)
    dim = dim_of(dim, len(meta.sizes))
    at = place_of(index, meta.sizes[dim])
    target = b.may_overwrite(x, meta) if src.dtype == meta.dtype else None
    if target is not None:
        b.store_into(src, chosen(target, dim, at))
        return target
    return inserted(meta, dim, at, None, src, x)


@lowering("slice_scatter")
def _slice_scatter(
    b: Builder,
    meta: TensorMeta,
    x: Lowered,
    src: Lowered,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> Lowered:
    if step != 1:
        raise NotLowered("slice_scatter with a step")
    _refuse_overlap(x)
    dim = dim_of(dim, len(meta.sizes))
    begin = expression(0 if start is None else start)
    if (
        begin.value is None
        or begin.value < 0
        or meta.sizes[dim].value is None
        or begin.value > (meta.sizes[dim].value or 0)
    ):
        raise NotLowered("slice_scatter at a symbolic or negative start")
    target = b.may_overwrite(x, meta) if src.dtype == meta.dtype else None
    if target is not None:
        b.store_into(src, narrowed(target, src.sizes, dim, begin))
        return target
    return inserted(meta, dim, begin, src.sizes[dim], src, x)
