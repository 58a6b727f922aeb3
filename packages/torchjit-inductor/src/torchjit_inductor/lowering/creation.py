"""Tensors from numbers and from their own index."""

from __future__ import annotations

from collections.abc import Sequence
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
from torchjit_inductor.lowering.views import dim_of

__all__: list[str] = []


def _scalar(value: Scalar, meta: TensorMeta) -> Lazy:
    if isinstance(value, Expr):
        return Lazy(meta.sizes, meta.dtype, meta.device, lambda p: cast(index_value(value), meta.dtype))
    if not isinstance(value, (bool, int, float)):
        raise NotLowered(f"fill value {value!r}")
    return full(value, meta)


@lowering("full")
def _full(b: Builder, meta: TensorMeta, sizes: Sequence[Size], value: Scalar, **_: object) -> Lowered:
    return _scalar(value, meta)


@lowering("full_like")
def _full_like(b: Builder, meta: TensorMeta, x: Lowered, value: Scalar, **_: object) -> Lowered:
    return _scalar(value, meta)


@lowering("fill.Scalar")
def _fill(b: Builder, meta: TensorMeta, x: Lowered, value: Scalar) -> Lowered:
    return _scalar(value, meta)


@lowering("new_full")
def _new_full(b: Builder, meta: TensorMeta, x: Lowered, sizes: Sequence[Size], value: Scalar, **_: object) -> Lowered:
    return _scalar(value, meta)


@lowering("ones", "ones_like", "new_ones")
def _ones(b: Builder, meta: TensorMeta, *_: object, **__: object) -> Lowered:
    return full(1, meta)


@lowering("zeros", "zeros_like", "new_zeros")
def _zeros(b: Builder, meta: TensorMeta, *_: object, **__: object) -> Lowered:
    return full(0, meta)


@lowering("scalar_tensor")
def _scalar_tensor(b: Builder, meta: TensorMeta, value: Scalar, **_: object) -> Lowered:
    return _scalar(value, meta)


@lowering("arange")
def _arange(b: Builder, meta: TensorMeta, end: Scalar, **_: object) -> Lowered:
    return _range(meta, 0, 1)


@lowering("arange.start")
def _arange_start(b: Builder, meta: TensorMeta, start: Scalar, end: Scalar, **_: object) -> Lowered:
    return _range(meta, start, 1)


@lowering("arange.start_step")
def _arange_step(b: Builder, meta: TensorMeta, start: Scalar, end: Scalar, step: Scalar = 1, **_: object) -> Lowered:
    return _range(meta, start, step)


@lowering("prims::iota")
def _iota(b: Builder, meta: TensorMeta, length: Scalar, *, start: Scalar, step: Scalar, **_: object) -> Lowered:
    return _range(meta, start, step)


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


def _triangle(meta: TensorMeta, x: Lowered, diagonal: int, lower: bool) -> Lazy:
    def formula(point: Point) -> Value:
        row, column = index_value(point.index[-2]), index_value(point.index[-1])
        limit = row + diagonal
        keep = apply("le" if lower else "ge", column, limit)
        value = x.value(point)
        return where(keep, value, constant(0, value.dtype))

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)


@lowering("tril")
def _tril(b: Builder, meta: TensorMeta, x: Lowered, diagonal: int = 0) -> Lowered:
    return _triangle(meta, x, diagonal, lower=True)


@lowering("triu")
def _triu(b: Builder, meta: TensorMeta, x: Lowered, diagonal: int = 0) -> Lowered:
    return _triangle(meta, x, diagonal, lower=False)


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
        kept = [k for k in range(len(meta.sizes)) if k != dim]
        sizes, strides = (tuple(n[k] for k in kept) for n in (target.sizes, target.strides))
        place = target.offset + at * target.strides[dim]
        b.store_into(src, Strided(target.buffer, sizes, strides, place, target.dtype, target.device))
        return target

    def formula(point: Point) -> Value:
        inside = apply("eq", index_value(point.index[dim]), index_value(at))
        rest = tuple(i for k, i in enumerate(point.index) if k != dim)
        there = src.value(point.under(inside).at(rest)) if inside.op != "constant" else src.value(point.at(rest))
        return where(inside, cast(there, compute_dtype(meta.dtype)), x.value(point))

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)


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
    stop = begin + src.sizes[dim]
    target = b.may_overwrite(x, meta) if src.dtype == meta.dtype else None
    if target is not None:
        place = target.offset + begin * target.strides[dim]
        b.store_into(src, Strided(target.buffer, src.sizes, target.strides, place, target.dtype, target.device))
        return target

    def formula(point: Point) -> Value:
        at = index_value(point.index[dim])
        inside = apply("and", apply("ge", at, index_value(begin)), apply("lt", at, index_value(stop)))
        moved = tuple(i - begin if k == dim else i for k, i in enumerate(point.index))
        there = cast(src.value(point.under(inside).at(moved)), compute_dtype(meta.dtype))
        return where(inside, there, x.value(point))

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)
