"""Writing at computed positions: scatter, index_put, index_add, index_copy, the gradient of embedding.

A result is a copy of the tensor that is written to, in a new buffer, and a kernel whose store has computed positions. An
input that gets the result and is not read otherwise is written where it is.
A scatter that writes at most one element per row is a formula instead: it compares the position with the index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import attrs
import torch

from torchjit_core.expr import Expr, Symbol, constant
from torchjit_inductor.ir.dtypes import HALF, compute_dtype
from torchjit_inductor.ir.values import Number, Scalar, Value, apply, cast, index_value, where
from torchjit_inductor.ir.values import constant as number
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.gather import (
    Places,
    broadcast_rank,
    check_positions,
    checked_position,
    computed_index,
    index_places,
    moved_to,
)
from torchjit_inductor.lowering.registry import lowering
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import Index, Lazy, Lowered, Point, Size, TensorMeta, full
from torchjit_inductor.lowering.views import broadcast_index, check_broadcast, dim_of

__all__: list[str] = []

_ATOMIC = (torch.float32, torch.float64, torch.int32, torch.int64, *HALF)
"""Types whose elements are added atomically on GPUs; those of 16 bits as float32."""
Where: TypeAlias = Callable[[Point], Places]


def _check_addition(meta: TensorMeta) -> None:
    """Can elements of this type be added in any order, several at a time?"""
    if meta.dtype == torch.bool:
        raise NotLowered("adding bools")
    if meta.device.type != "cuda":
        return
    if torch.are_deterministic_algorithms_enabled():
        raise NotLowered("the order of atomic additions is not determined")
    if meta.dtype not in _ATOMIC:
        raise NotLowered(f"atomic addition of {meta.dtype}")


def _scattered(
    b: Builder,
    meta: TensorMeta,
    base: Lowered,
    sizes: Index,
    where_to: Where,
    what: Callable[[Point], Value],
    mode: str,
) -> Lowered:
    """A copy of `base`, or `base` itself where it may be overwritten, with `what` written (or added) at computed places.

    Args:
        sizes: of the loops; points have one index expression for each.
    """
    if mode == "add":
        _check_addition(meta)
    if mode == "add" and meta.dtype in HALF:
        # Eager adds up in float32, too, in most of its kernels: 5,000 ones in bfloat16 would end at 256.
        wide = attrs.evolve(meta, dtype=torch.float32)
        sums = _scattered(b, wide, Lazy(base.sizes, wide.dtype, wide.device, base.value), sizes, where_to, what, mode)
        return Lazy(meta.sizes, meta.dtype, meta.device, sums.value)
    if any(s.value == 0 and n.value != 1 for s, n in zip(meta.strides, meta.sizes, strict=True)):
        raise NotLowered("writing to an expanded tensor")
    target = b.may_overwrite(base, meta)
    if target is None:
        target = b.materialize(Lazy(base.sizes, base.dtype, base.device, base.value), meta.strides)
    if target.dtype != meta.dtype:
        raise NotLowered("writing that converts")

    def body(point: Point) -> tuple[Expr, Value, dict[Symbol, Value]]:
        index, computed = where_to(point)
        return target.address(tuple(index)), cast(what(point), compute_dtype(meta.dtype)), computed

    b.scatter(target, sizes, body, mode)
    return target


# ---------------------------------------------------------------------- scatter along a dimension
def _scatter(
    b: Builder, meta: TensorMeta, x: Lowered, dim: int, index: Lowered, source: Lowered | Number, mode: str
) -> Lowered:
    if not x.sizes or len(index.sizes) != len(x.sizes):
        raise NotLowered("scatter into a number")
    if isinstance(source, Lowered) and (source.dtype != x.dtype or len(source.sizes) != len(x.sizes)):
        raise NotLowered("scatter that converts")
    dim = dim_of(dim, len(x.sizes))
    size = x.sizes[dim]
    check_positions(index, size)
    given = source if isinstance(source, Lowered) else full(source, meta)

    def position(point: Point) -> Value:
        return checked_position(index, point, size, wrap=False, dim=dim, error="gather")

    others = [k for k in range(len(x.sizes)) if k != dim]
    if not b.in_place and index.sizes[dim].value == 1 and all(index.sizes[k] is x.sizes[k] for k in others):
        return _one_per_row(meta, x, dim, position, given, mode)

    return _scattered(b, meta, x, index.sizes, lambda p: moved_to(p, dim, size, position(p)), given.value, mode)


def _one_per_row(
    meta: TensorMeta, x: Lowered, dim: int, position: Callable[[Point], Value], given: Lowered, mode: str
) -> Lazy:
    def formula(point: Point) -> Value:
        at = point.at(tuple(constant(0) if k == dim else i for k, i in enumerate(point.index)))
        hit = apply("eq", index_value(point.index[dim]), position(at))
        old, new = x.value(point), given.value(at)
        return where(hit, new if mode == "set" else old + new, old)

    if mode == "add" and meta.dtype == torch.bool:
        raise NotLowered("adding bools")
    return Lazy(meta.sizes, meta.dtype, meta.device, formula)


lowering("scatter.src")(partial(_scatter, mode="set"))
lowering("scatter_add")(partial(_scatter, mode="add"))


@lowering("scatter.value")
def _scatter_value(b: Builder, meta: TensorMeta, x: Lowered, dim: int, index: Lowered, value: Scalar) -> Lowered:
    if not isinstance(value, (bool, int, float)):
        raise NotLowered(f"scatter of {value!r}")
    return _scatter(b, meta, x, dim, index, value, "set")


@lowering("scatter_reduce.two")
def _scatter_reduce(
    b: Builder, meta: TensorMeta, x: Lowered, dim: int, index: Lowered, src: Lowered, reduce: str, *,
    include_self: bool = True,
) -> Lowered:  # fmt: skip
    if reduce != "sum" or not include_self:
        raise NotLowered(f"scatter_reduce with {reduce}")
    return _scatter(b, meta, x, dim, index, src, "add")


# ---------------------------------------------------------------------- index_put and its kin
@lowering("index_put", "_unsafe_index_put")
def _index_put(
    b: Builder, meta: TensorMeta, x: Lowered, indices: Sequence[Lowered | None], values: Lowered,
    accumulate: bool = False, *_: object,
) -> Lowered:  # fmt: skip
    rank = broadcast_rank(x, indices)
    if values.dtype != x.dtype:
        raise NotLowered("index_put that converts")
    sizes = _indexed_sizes(x.sizes, indices, rank)
    if len(values.sizes) > len(sizes):
        raise NotLowered("index_put of values with leading dimensions")
    check_broadcast(values.sizes, sizes)

    def what(point: Point) -> Value:
        return values.value(point.at(broadcast_index(point.index, values.sizes)))

    mode = "add" if accumulate else "set"
    return _scattered(b, meta, x, sizes, lambda p: computed_index(x.sizes, indices, rank, p), what, mode)


def _indexed_sizes(sizes: Index, indices: Sequence[Lowered | None], rank: int) -> Index:
    """The sizes of `x[indices]`."""
    indexed, first, _ = index_places(sizes, indices, rank)
    broadcast = [constant(1)] * rank
    for index in indices:
        if index is not None:
            for k, n in enumerate(reversed(index.sizes)):
                if n.value != 1:
                    broadcast[rank - 1 - k] = n
    rest = [n for k, n in enumerate(sizes) if k not in indexed]
    return (*rest[:first], *broadcast, *rest[first:])


@lowering("index_add")
def _index_add(
    b: Builder, meta: TensorMeta, x: Lowered, dim: int, index: Lowered, source: Lowered, *, alpha: Number = 1
) -> Lowered:
    if not isinstance(alpha, (int, float)):
        raise NotLowered("index_add that converts")

    def what(point: Point) -> Value:
        value = source.value(point)
        return value if alpha == 1 else value * alpha

    return _rows(b, meta, x, dim, index, source, what, "add", "gather")


@lowering("index_copy")
def _index_copy(b: Builder, meta: TensorMeta, x: Lowered, dim: int, index: Lowered, source: Lowered) -> Lowered:
    """Not as `index_put`, for which a negative position is one."""
    return _rows(b, meta, x, dim, index, source, source.value, "set", "index")


def _rows(
    b: Builder, meta: TensorMeta, x: Lowered, dim: int, index: Lowered, source: Lowered,
    what: Callable[[Point], Value], mode: str, error: str,
) -> Lowered:  # fmt: skip
    """`what` written (or added) at the positions that an index of one dimension holds, none of them negative."""
    if not x.sizes or len(source.sizes) != len(x.sizes):
        raise NotLowered("rows of a number")
    if source.dtype != x.dtype:
        raise NotLowered("rows that are converted")
    dim = dim_of(dim, len(x.sizes))
    size = x.sizes[dim]
    check_positions(index, size)

    def where_to(point: Point) -> Places:
        at_index = point.at((point.index[dim],)) if index.sizes else point.at(())
        return moved_to(point, dim, size, checked_position(index, at_index, size, wrap=False, dim=dim, error=error))

    return _scattered(b, meta, x, source.sizes, where_to, what, mode)


@lowering("embedding_dense_backward")
def _embedding_backward(
    b: Builder, meta: TensorMeta, grad: Lowered, index: Lowered, rows: Size, padding: int, scale_by_freq: bool
) -> Lowered:
    if scale_by_freq:
        raise NotLowered("embedding gradient scaled by frequency")
    size = meta.sizes[0]
    check_positions(index, size)

    def position(point: Point) -> Value:
        at = point.at(point.index[:-1])
        return checked_position(index, at, size, wrap=False, dim=0, error="embedding")

    def where_to(point: Point) -> Places:
        return moved_to(point.at((constant(0), point.index[-1])), 0, size, position(point))

    def what(point: Point) -> Value:
        value = grad.value(point)
        if padding < 0:
            return value
        return where(apply("eq", position(point), index_value(padding)), number(0, value.dtype), value)

    return _scattered(b, meta, full(0, meta), grad.sizes, where_to, what, "add")
