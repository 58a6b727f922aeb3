"""Reductions, and the kernels that contain one: softmax, norms, losses."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import attrs
import torch

from torchjit_core.expr import Expr, constant
from torchjit_inductor.ir.dtypes import accumulate_dtype, compute_dtype, is_float
from torchjit_inductor.ir.kernel import element_count
from torchjit_inductor.ir.values import Value, apply, bounded, cast, index_value, reduce, where
from torchjit_inductor.ir.values import constant as number
from torchjit_inductor.lowering.builder import Builder, Output, ReductionBody
from torchjit_inductor.lowering.promotion import pointwise
from torchjit_inductor.lowering.registry import lowering
from torchjit_inductor.lowering.run_numbers import maybe_empty
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import (
    Dims,
    Index,
    Lazy,
    Lowered,
    Point,
    Read,
    Strided,
    TensorMeta,
    contiguous_strides,
)
from torchjit_inductor.lowering.views import dims_of

__all__ = ["Split", "over"]


@final
@attrs.frozen
class Split:
    """The dimensions of a tensor, split into kept (outer) and reduced (inner) ones."""

    sizes: Index
    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    strides: Index | None = None

    @staticmethod
    def of(x: Lowered, dims: Dims) -> Split:
        """Split by the `dim` argument of a reduction: an int, a list, None or [] for all."""
        rank = len(x.sizes)
        if dims is None or (isinstance(dims, (list, tuple)) and not dims):
            asked = list(range(rank))
        else:
            asked = dims_of(dims, rank)
        reduced = tuple(k for k in range(rank) if k in asked)
        strides = x.strides if isinstance(x, Strided) else x.layout if isinstance(x, Lazy) else None
        return Split(x.sizes, tuple(k for k in range(rank) if k not in reduced), reduced, strides)

    def pick(self, dims: tuple[int, ...]) -> Index:
        return tuple(self.sizes[k] for k in dims)

    def pick_strides(self, dims: tuple[int, ...]) -> Index | None:
        return None if self.strides is None else tuple(self.strides[k] for k in dims)

    @property
    def count(self) -> Expr:
        """Elements per reduction."""
        return element_count(self.pick(self.reduced))

    def index(self, outer: Index, inner: Index) -> Index:
        """The index into the whole tensor."""
        places = dict(zip(self.kept, outer, strict=True)) | dict(zip(self.reduced, inner, strict=True))
        return tuple(places[k] for k in range(len(self.sizes)))

    def outer_output(self, meta: TensorMeta) -> Output:
        """A result with one element per outer point, reduced dimensions gone or of size 1."""
        if len(meta.sizes) == len(self.sizes):
            zeros = tuple(constant(0) for _ in self.reduced)
            return Output(meta, True, lambda outer, inner: self.index(outer, zeros))
        return Output(meta, True, lambda outer, inner: outer)

    def full_output(self, meta: TensorMeta) -> Output:
        """A result of the whole tensor's sizes."""
        return Output(meta, False, self.index)


def over(b: Builder, split: Split, outputs: Sequence[Output], body: ReductionBody) -> tuple[Strided, ...]:
    """`Builder.reduction` over a split tensor."""
    return b.reduction(
        split.pick(split.kept), split.pick(split.reduced), outputs, body,
        outer_strides=split.pick_strides(split.kept), inner_strides=split.pick_strides(split.reduced),
    )  # fmt: skip


def one(
    b: Builder, x: Lowered, dims: Dims, meta: TensorMeta, formula: Callable[[Value], Value], split: Split | None = None
) -> Strided:
    """One reduction of one operand; `formula` gives the result from the element and holds the `reduce`."""
    split = split or Split.of(x, dims)

    def body(read: Read, outer: Index, inner: Index) -> list[Value]:
        return [formula(read(x, split.index(outer, inner)))]

    return over(b, split, [split.outer_output(meta)], body)[0]


def count_value(count: Expr, dtype: torch.dtype) -> Value:
    """The number of reduced elements as a value."""
    return number(count.value, dtype) if count.value is not None else cast(index_value(count), dtype)


# ---------------------------------------------------------------------- sums and means
_FEW, _FEW_NEIGHBOURS, _MANY_SUMS = 16, 4, 4096


def _sum_of_few(meta: TensorMeta, x: Lowered, dims: Dims, dtype: torch.dtype) -> Callable[[Point], Value] | None:
    """Many sums on a CPU, each of a few neighbours (what goes back through an enlarged image, say), written out.

    A loop over the neighbours has a vector for each sum; so the vectors are of sums. None: it is something else.
    """
    split = Split.of(x, dims)
    sizes = [n.value for n in split.pick(split.reduced)]
    sums = element_count(split.pick(split.kept)).value
    if meta.device.type != "cpu" or not split.reduced or split.reduced[-1] != len(x.sizes) - 1 or None in sizes:
        return None
    known = [n for n in sizes if n is not None]
    if sums is None or sums < _MANY_SUMS or not 0 < known[-1] <= _FEW_NEIGHBOURS or math.prod(known) > _FEW:
        return None

    def formula(point: Point) -> Value:
        outer = [point.index[k] for k in split.kept] if len(meta.sizes) == len(x.sizes) else point.index
        places = itertools.product(*([constant(k) for k in range(n)] for n in known))
        terms = [cast(x.value(point.at(split.index(tuple(outer), inner))), dtype) for inner in places]
        return functools.reduce(lambda total, term: total + term, terms)

    return formula


def _total(
    kind: str, b: Builder, meta: TensorMeta, x: Lowered, dims: Dims = None, keepdim: bool = False, *,
    dtype: torch.dtype | None = None,
) -> Lowered:  # fmt: skip
    wide = accumulate_dtype(meta.dtype)
    few = _sum_of_few(meta, x, dims, wide) if kind == "sum" else None
    if few is not None:
        return Lazy(meta.sizes, meta.dtype, meta.device, lambda point: cast(few(point), compute_dtype(meta.dtype)))
    return one(b, x, dims, meta, lambda v: cast(reduce(kind, cast(v, wide)), compute_dtype(meta.dtype)))


lowering("sum", "sum.dim_IntList")(partial(_total, "sum"))
lowering("prod", "prod.dim_int")(partial(_total, "prod"))


@lowering("mean", "mean.dim")
def _mean(
    b: Builder,
    meta: TensorMeta,
    x: Lowered,
    dims: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Lowered:
    wide = accumulate_dtype(meta.dtype)
    count = Split.of(x, dims).count
    few = _sum_of_few(meta, x, dims, wide)
    if few is not None:
        return Lazy(meta.sizes, meta.dtype, meta.device, lambda point: few(point) / count_value(count, wide))
    return one(b, x, dims, meta, lambda v: reduce("sum", cast(v, wide)) / count_value(count, wide))


def _test(kind: str, b: Builder, meta: TensorMeta, x: Lowered, dims: Dims = None, keepdim: bool = False) -> Lowered:
    if meta.dtype != torch.bool:
        raise NotLowered(f"{kind} of uint8")
    return one(b, x, dims, meta, lambda v: reduce(kind, cast(v, torch.bool)))


for _kind in ("any", "all"):
    lowering(_kind, f"{_kind}.dim", f"{_kind}.dims")(partial(_test, _kind))


# ---------------------------------------------------------------------- losses
def _reduced(
    b: Builder, meta: TensorMeta, reduction: int, formula: Callable[..., Value], *operands: Lowered
) -> Lowered:
    """A loss at each element of operands of equal sizes, or its mean (`reduction` is 1) or sum (2)."""
    each = attrs.evolve(meta, sizes=operands[0].sizes, strides=contiguous_strides(operands[0].sizes))
    loss = pointwise(each if reduction else meta, formula, *operands)
    if reduction == 0:
        return loss
    return _mean(b, meta, loss) if reduction == 1 else _total("sum", b, meta, loss)


@lowering("mse_loss")
def _mse_loss(b: Builder, meta: TensorMeta, x: Lowered, y: Lowered, reduction: int = 1) -> Lowered:
    if reduction and x.sizes != y.sizes:
        raise NotLowered("a loss of operands that are broadcast")
    return _reduced(b, meta, reduction, lambda v, w: (v - w) * (v - w), x, y)


def _bent_loss(
    huber: bool, b: Builder, meta: TensorMeta, x: Lowered, y: Lowered, reduction: int = 1, bend: float = 1.0
) -> Lowered:
    """Quadratic up to a difference of `bend`, then linear: in one pass, where its parts would read the difference from memory."""
    if (reduction and x.sizes != y.sizes) or not (is_float(x.dtype) and x.dtype == y.dtype == meta.dtype):
        raise NotLowered("a loss of operands that are broadcast, or of two types")

    def formula(v: Value, w: Value) -> Value:
        apart = apply("abs", v - w)
        if huber:
            return where(apart <= bend, 0.5 * apart * apart, bend * (apart - 0.5 * bend))
        return where(apart < bend, 0.5 * apart * apart / bend, apart - 0.5 * bend) if bend else apart

    return _reduced(b, meta, reduction, formula, x, y)


lowering("smooth_l1_loss")(partial(_bent_loss, False))
lowering("huber_loss")(partial(_bent_loss, True))


@lowering("binary_cross_entropy")
def _binary_cross_entropy(
    b: Builder, meta: TensorMeta, x: Lowered, target: Lowered, weight: Lowered | None = None, reduction: int = 1
) -> Lowered:
    if not is_float(x.dtype) or target.dtype != x.dtype:
        raise NotLowered(f"a binary cross entropy of {x.dtype} and {target.dtype}")
    on_cpu = meta.device.type == "cpu"  # kernels on GPUs do not raise

    def formula(v: Value, t: Value, *factor: Value) -> Value:
        least = number(-100, v.dtype)
        of_zero = apply("maximum", apply("log1p", -v), least)
        made = (t - 1) * of_zero - t * apply("maximum", apply("log", v), least)
        if factor:
            made = made * factor[0]
        if not on_cpu:
            return made
        parts = [v >= 0, v <= 1, t >= 0, t <= 1]  # none of them holds for what is not a number
        inside = functools.reduce(lambda a, c: apply("and", a, c), parts)
        place = where(inside, number(0, torch.int64), number(1, torch.int64))
        place = bounded(place, constant(1), wrap=False, dim=0, error="probability")
        return where(apply("eq", place, number(0, torch.int64)), made, number(math.nan, made.dtype))

    operands = (x, target) if weight is None else (x, target, weight)
    return _reduced(b, meta, reduction, formula, *operands)


# ---------------------------------------------------------------------- extremes
def _nonempty(x: Lowered, dims: Dims) -> None:
    if maybe_empty(Split.of(x, dims).count):
        raise NotLowered("an extreme of nothing raises")


def _extreme(kind: str, b: Builder, meta: TensorMeta, x: Lowered, dims: Dims = None, keepdim: bool = False) -> Lowered:
    _nonempty(x, dims)
    reduction = {"max": "any", "min": "all"}[kind] if x.dtype == torch.bool else kind
    return one(b, x, dims, meta, lambda v: reduce(reduction, v))


def _extreme_with_index(
    kind: str, b: Builder, metas: tuple[TensorMeta, ...], x: Lowered, dim: int, keepdim: bool = False
) -> tuple[Lowered, ...]:
    _nonempty(x, dim)
    if x.dtype == torch.bool:
        raise NotLowered("max with index of bool")
    split = Split.of(x, dim)

    def body(read: Read, outer: Index, inner: Index) -> list[Value]:
        v = read(x, split.index(outer, inner))
        return [reduce(kind, v), reduce(f"arg{kind}", v)]

    return over(b, split, [split.outer_output(m) for m in metas], body)


def _position(kind: str, b: Builder, meta: TensorMeta, x: Lowered, dim: Dims = None, keepdim: bool = False) -> Lowered:
    _nonempty(x, dim)
    if x.dtype == torch.bool:
        raise NotLowered("argmax of bool")
    # Positions count in row-major order.
    return one(b, x, dim, meta, lambda v: reduce(f"arg{kind}", v), attrs.evolve(Split.of(x, dim), strides=None))


for _kind in ("max", "min"):
    lowering(f"a{_kind}", _kind)(partial(_extreme, _kind))
    lowering(f"{_kind}.dim")(partial(_extreme_with_index, _kind))
    lowering(f"arg{_kind}")(partial(_position, _kind))


# ---------------------------------------------------------------------- variance
def _variance(v: Value, count: Expr, correction: float | None) -> Value:
    correction = 1 if correction is None else correction
    degrees = count_value(count, v.dtype) - number(correction, v.dtype)
    # Fewer elements than the correction divide by zero, as in eager.
    return reduce("welford_m2", v) / apply("maximum", degrees, number(0, v.dtype))


def _correction(unbiased: bool | None, correction: float | None) -> float:
    if isinstance(unbiased, bool):
        return int(unbiased)
    return 1 if correction is None else correction


def _deviation(
    root: bool, b: Builder, meta: TensorMeta, x: Lowered, dims: Dims = None, unbiased: bool | None = None, *_: object,
    correction: float | None = None, **__: object,
) -> Lowered:  # fmt: skip
    if isinstance(dims, bool):
        dims, unbiased = None, dims
    count = Split.of(x, dims).count

    def formula(v: Value) -> Value:
        variance = _variance(v, count, _correction(unbiased, correction))
        return apply("sqrt", variance) if root else variance

    return one(b, x, dims, meta, formula)


lowering("var.correction", "var.dim", "var")(partial(_deviation, False))
lowering("std.correction", "std.dim", "std")(partial(_deviation, True))


@lowering("var_mean.correction")
def _var_mean(
    b: Builder, metas: tuple[TensorMeta, ...], x: Lowered, dims: Dims = None, *, correction: float | None = None,
    keepdim: bool = False,
) -> tuple[Lowered, ...]:  # fmt: skip
    split = Split.of(x, dims)

    def body(read: Read, outer: Index, inner: Index) -> list[Value]:
        v = read(x, split.index(outer, inner))
        return [_variance(v, split.count, correction), reduce("welford_mean", v)]

    return over(b, split, [split.outer_output(m) for m in metas], body)


# ---------------------------------------------------------------------- softmax
def _along(count: int, formula: Callable[..., Value], b: Builder, meta: TensorMeta, *given: Any) -> Lowered:
    """A formula with reductions along one dimension and a result of the operands' sizes.

    Args:
        count: of operands, behind which the dimension comes.
    """
    operands, dim = given[:count], given[count]
    split = Split.of(operands[0], dim if operands[0].sizes else None)

    def body(read: Read, outer: Index, inner: Index) -> list[Value]:
        index = split.index(outer, inner)
        made = formula(*(read(x, index) for x in operands))
        return [cast(made, compute_dtype(meta.dtype))]

    return over(b, split, [split.full_output(meta)], body)[0]


def _softmax(v: Value) -> Value:
    e = apply("exp", v - reduce("max", v))
    return e / reduce("sum", e)


def _safe_softmax(v: Value) -> Value:
    largest = reduce("max", v)
    e = apply("exp", v - largest)
    nothing = apply("eq", largest, number(float("-inf"), v.dtype))  # a row where all is masked gives zeros
    return where(nothing, number(0.0, v.dtype), e / reduce("sum", e))


lowering("_softmax")(partial(_along, 1, _softmax))
lowering("_safe_softmax")(partial(_along, 1, _safe_softmax))
lowering("_softmax_backward_data")(partial(_along, 2, lambda g, y: (g - reduce("sum", g * y)) * y))
lowering("_log_softmax_backward_data")(partial(_along, 2, lambda g, y: g - apply("exp", y) * reduce("sum", g)))


@lowering("logsumexp")
def _log_sum_exp(b: Builder, meta: TensorMeta, x: Lowered, dims: Dims, keepdim: bool = False) -> Lowered:
    """Of a row with an infinite maximum it is this maximum; a distance from infinity would be no number."""
    _nonempty(x, dims)

    def formula(v: Value) -> Value:
        v = cast(v, compute_dtype(meta.dtype))
        largest = reduce("max", v)
        total = apply("log", reduce("sum", apply("exp", v - largest)))
        infinite = apply("eq", apply("abs", largest), number(math.inf, largest.dtype))
        return where(infinite, largest, total + largest)

    return one(b, x, dims, meta, formula)


@lowering("_log_softmax")
def _log_softmax(b: Builder, meta: TensorMeta, x: Lowered, dim: int, half_to_float: bool = False) -> Lowered:
    def formula(v: Value) -> Value:
        shifted = v - reduce("max", v)
        return shifted - apply("log", reduce("sum", apply("exp", shifted)))

    return _log_softmax_in_parts(b, meta, x, dim) if meta.sizes else _along(1, formula, b, meta, x, dim)


def _log_softmax_in_parts(b: Builder, meta: TensorMeta, x: Lowered, dim: int) -> Lowered:
    """The statistics of rows in memory and a formula: a loss reads one element of a row. Stored, it is one kernel again."""
    split = Split.of(x, dim)
    dtype = compute_dtype(meta.dtype)
    sizes = tuple(constant(1) if k in split.reduced else n for k, n in enumerate(meta.sizes))
    small = TensorMeta(sizes, contiguous_strides(sizes), dtype, meta.device)

    def body(read: Read, outer: Index, inner: Index) -> list[Value]:
        v = cast(read(x, split.index(outer, inner)), dtype)
        largest = reduce("max", v)
        return [largest, apply("log", reduce("sum", apply("exp", v - largest)))]

    largest, total = over(b, split, [split.outer_output(small)] * 2, body)

    def formula(point: Point) -> Value:
        row = point.at(tuple(constant(0) if k in split.reduced else i for k, i in enumerate(point.index)))
        return (cast(x.value(point), dtype) - largest.value(row)) - total.value(row)

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)
