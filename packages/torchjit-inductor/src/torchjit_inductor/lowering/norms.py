"""Layer, group and batch normalisation, forward and backward."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import attrs
import torch

from torchjit_core.expr import Expr, constant
from torchjit_inductor.ir.dtypes import compute_dtype
from torchjit_inductor.ir.kernel import element_count
from torchjit_inductor.ir.values import Value, apply, cast, reduce
from torchjit_inductor.ir.values import constant as number
from torchjit_inductor.lowering.builder import Builder, Output
from torchjit_inductor.lowering.reductions import Split, count_value, over
from torchjit_inductor.lowering.registry import lowering
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import Index, Lazy, Lowered, Point, Read, Size, Strided, TensorMeta

__all__: list[str] = []

Metas = tuple[TensorMeta | None, ...]


# ---------------------------------------------------------------------- layer norm
@lowering("native_layer_norm")
def _layer_norm(
    b: Builder,
    metas: Metas,
    x: Lowered,
    shape: Sequence[Size],
    weight: Lowered | None,
    bias: Lowered | None,
    eps: float,
) -> tuple[Lowered, ...]:
    rank = len(x.sizes)
    split = Split.of(x, list(range(rank - len(shape), rank)))
    out, mean, rstd = _present(metas)

    def body(read: Read, outer: Index, inner: Index) -> list[Value]:
        v = read(x, split.index(outer, inner))
        average = reduce("welford_mean", v)
        scale = apply("rsqrt", reduce("welford_m2", v) / count_value(split.count, v.dtype) + eps)
        return [_affine((v - average) * scale, read, inner, weight, bias), average, scale]

    return over(b, split, [split.full_output(out), split.outer_output(mean), split.outer_output(rstd)], body)


@lowering("native_layer_norm_backward")
def _layer_norm_backward(
    b: Builder, metas: Metas, grad: Lowered, x: Lowered, shape: Sequence[Size], mean: Lowered, rstd: Lowered,
    weight: Lowered | None, bias: Lowered | None, mask: Sequence[bool],
) -> tuple[Lowered | None, ...]:  # fmt: skip
    rank, inner_rank = len(x.sizes), len(shape)
    rows = Split.of(x, list(range(rank - inner_rank, rank)))
    keep = tuple(constant(0) for _ in range(inner_rank))

    def normalized(read: Callable[[Lowered, Index], Value], outer: Index, inner: Index) -> tuple[Value, Value, Value]:
        index = rows.index(outer, inner)
        scale = read(rstd, (*outer, *keep))
        return read(grad, index), (read(x, index) - read(mean, (*outer, *keep))) * scale, scale

    def to_input(read: Read, outer: Index, inner: Index) -> list[Value]:
        g, y, scale = normalized(read, outer, inner)
        g = _affine(g, read, inner, weight, None)
        n = count_value(rows.count, g.dtype)
        # The sum of y is 0 but for the rounding of the saved mean, which counts where a row has next to no variance.
        # No more than rounding is taken off: behind a write to x.data, x is not what the mean was made of.
        rounding = apply("abs", read(mean, (*outer, *keep)) * scale) * (16 * torch.finfo(mean.dtype).eps)
        total, drift = reduce("sum", g), reduce("sum", y) / n
        drift = apply("minimum", apply("maximum", drift, -rounding), rounding)
        dot = reduce("sum", g * y) - total * drift
        return [scale * (g - (total + (y - drift) * dot) / n)]

    d_input = d_weight = d_bias = None
    if metas[0] is not None and mask[0]:
        (d_input,) = over(b, rows, [rows.full_output(metas[0])], to_input)
    if (metas[1] is not None and mask[1]) or (metas[2] is not None and mask[2]):
        lead = tuple(range(rank - inner_rank))
        columns = attrs.evolve(rows, kept=tuple(range(rank - inner_rank, rank)), reduced=lead)
        wanted = [(k, m) for k, m in ((1, metas[1]), (2, metas[2])) if m is not None and mask[k]]

        def to_parameters(read: Read, outer: Index, inner: Index) -> list[Value]:
            # Here the outer loops are the normalised dimensions.
            g, y, _ = normalized(read, inner, outer)
            return [reduce("sum", g * y if k == 1 else g) for k, _ in wanted]

        made = over(b, columns, [columns.outer_output(m) for _, m in wanted], to_parameters)
        found = {k: t for (k, _), t in zip(wanted, made, strict=True)}
        d_weight, d_bias = found.get(1), found.get(2)
    return d_input, d_weight, d_bias


def _affine(y: Value, read: Read, index: Index, weight: Lowered | None, bias: Lowered | None) -> Value:
    """With the weight and the bias that there are at an index."""
    y = y if weight is None else y * read(weight, index)
    return y if bias is None else y + read(bias, index)


def _present(metas: Metas) -> tuple[TensorMeta, ...]:
    if any(m is None for m in metas):
        raise NotLowered("a missing result")
    return tuple(m for m in metas if m is not None)


# ---------------------------------------------------------------------- batch norm
def _channel(x: Lowered) -> Split:
    """Reduced over all dimensions but the second."""
    return Split.of(x, [k for k in range(len(x.sizes)) if k != 1])


FEW = 64
"""Elements of a channel from which a small kernel for the channels' scales pays."""


def _normalize(
    x: Lowered, meta: TensorMeta, scale_and_shift: Callable[[Point], tuple[Value, Value, Value | None]]
) -> Lazy:
    def formula(point: Point) -> Value:
        channel = (point.index[1],)
        scale, mean, shift = scale_and_shift(point.at(channel))
        y = (x.value(point) - mean) * scale
        return y if shift is None else y + shift

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)


@lowering("_native_batch_norm_legit_no_training")
def _batch_norm_inference(
    b: Builder, metas: Metas, x: Lowered, weight: Lowered | None, bias: Lowered | None, mean: Lowered, var: Lowered,
    momentum: float, eps: float,
) -> tuple[Lowered | None, ...]:  # fmt: skip
    out = metas[0]
    if out is None:
        raise NotLowered("a missing result")

    def scale_of(p: Point) -> Value:
        scale = 1 / apply("sqrt", var.value(p) + eps)
        return scale if weight is None else scale * cast(weight.value(p), scale.dtype)

    _one_compute_dtype(x, mean, var)
    scale: Lowered = Lazy(mean.sizes, compute_dtype(var.dtype), out.device, scale_of)
    if out.device.type == "cpu" and _elements_per_channel(x) >= FEW:
        # With the channels innermost the root and the quotient would be computed again for each element.
        scale = b.materialize(scale, stem="scale")

    def parts(p: Point) -> tuple[Value, Value, Value | None]:
        return scale.value(p), mean.value(p), None if bias is None else cast(bias.value(p), scale.dtype)

    # The saved statistics are empty in inference.
    empties = tuple(
        None if m is None else Lazy(m.sizes, m.dtype, m.device, lambda p, m=m: number(0, m.dtype))  # type: ignore[misc]
        for m in metas[1:]
    )
    return (_normalize(x, out, parts), *empties)


def _elements_per_channel(x: Lowered) -> float:
    """Infinite where sizes are symbolic."""
    sizes = [n.value for k, n in enumerate(x.sizes) if k != 1]
    return math.prod(math.inf if n is None else n for n in sizes)


def _one_compute_dtype(*tensors: Lowered | None) -> None:
    if len({compute_dtype(t.dtype) for t in tensors if t is not None}) > 1:
        raise NotLowered("norm with mixed dtypes")


@lowering("_native_batch_norm_legit_functional")
def _batch_norm_functional(
    b: Builder, metas: Metas, x: Lowered, weight: Lowered | None, bias: Lowered | None, running_mean: Lowered,
    running_var: Lowered, training: bool, momentum: float, eps: float,
) -> tuple[Lowered | None, ...]:  # fmt: skip
    if not training:
        inference = _batch_norm_inference(b, metas[:3], x, weight, bias, running_mean, running_var, momentum, eps)
        return (*inference, running_mean, running_var)
    return _batch_norm_training(b, metas, x, weight, bias, (running_mean, running_var), momentum, eps)


lowering("_native_batch_norm_legit.no_stats")(
    lambda b, metas, x, weight, bias, training, momentum, eps: _batch_norm_training(
        b, metas, x, weight, bias, None, momentum, eps
    )
)


@lowering("native_batch_norm")
def _native_batch_norm(
    b: Builder, metas: Metas, x: Lowered, weight: Lowered | None, bias: Lowered | None, running_mean: Lowered | None,
    running_var: Lowered | None, training: bool, momentum: float, eps: float,
) -> tuple[Lowered | None, ...]:  # fmt: skip
    if training or running_mean is None or running_var is None:
        # In training it also updates its arguments in place: only the functional form is lowered.
        if running_mean is None and running_var is None:
            return _batch_norm_training(b, metas, x, weight, bias, None, momentum, eps)
        raise NotLowered("in-place batch norm")
    return _batch_norm_inference(b, metas, x, weight, bias, running_mean, running_var, momentum, eps)


def _batch_norm_training(
    b: Builder, metas: Metas, x: Lowered, weight: Lowered | None, bias: Lowered | None,
    running: tuple[Lowered, Lowered] | None, momentum: float, eps: float,
) -> tuple[Lowered | None, ...]:  # fmt: skip
    present = _present(metas)
    _one_compute_dtype(x, weight, bias, *(running or ()))
    split = _channel(x)

    def statistics(read: Read, outer: Index, inner: Index) -> list[Value]:
        v = read(x, split.index(outer, inner))
        mean, m2 = reduce("welford_mean", v), reduce("welford_m2", v)
        n = count_value(split.count, v.dtype)
        made = [mean, apply("rsqrt", m2 / n + eps)]
        if running is not None:
            unbiased = m2 / (n - 1)
            for old, new in zip(running, (mean, unbiased), strict=True):
                made.append(new * momentum + read(old, outer) * (1 - momentum))
        return made

    def normalized(v: Value, mean: Value, invstd: Value, read: Read, channel: Index) -> Value:
        y = (v - mean) * _affine(invstd, read, channel, weight, None)
        return _affine(y, read, channel, None, bias)

    outputs = [split.outer_output(m) for m in present[1:]]
    if _formulas_pay(x, *present[1:3]):
        made = over(b, split, outputs, statistics)
        mean, invstd = made[:2]

        def formula(point: Point) -> Value:
            channel, read = (point.index[1],), _reader(point)
            return normalized(x.value(point), read(mean, channel), read(invstd, channel), read, channel)

        return (Lazy(x.sizes, present[0].dtype, present[0].device, formula), *made)

    def body(read: Read, outer: Index, inner: Index) -> list[Value]:
        known = statistics(read, outer, inner)
        return [normalized(read(x, split.index(outer, inner)), known[0], known[1], read, outer), *known]

    return over(b, split, [split.full_output(present[0]), *outputs], body)


def _formulas_pay(x: Lowered, *statistics: TensorMeta) -> bool:
    """May the result of a norm be a formula over statistics in memory?

    On a GPU kernels that read it then do without it, such as a pooling. Where it is stored, formula and statistics are one kernel again.
    """
    return x.device.type == "cuda" and all(m.dtype == compute_dtype(x.dtype) for m in statistics)


def _reader(point: Point) -> Read:
    return lambda t, index: t.value(point.at(index))


@lowering("native_batch_norm_backward")
def _batch_norm_backward(
    b: Builder, metas: Metas, grad: Lowered, x: Lowered, weight: Lowered | None, running_mean: Lowered | None,
    running_var: Lowered | None, save_mean: Lowered | None, save_invstd: Lowered | None, train: bool, eps: float,
    mask: Sequence[bool],
) -> tuple[Lowered | None, ...]:  # fmt: skip
    means, spreads = (save_mean, save_invstd) if train else (running_mean, running_var)
    if means is None or spreads is None:
        raise NotLowered("batch norm backward without statistics")
    _one_compute_dtype(grad, x, weight, save_mean, running_mean)
    split = _channel(x)
    wanted = [k for k in range(3) if metas[k] is not None and mask[k]]

    def body(read: Read, outer: Index, inner: Index) -> list[Value]:
        index = split.index(outer, inner)
        g, v = read(grad, index), read(x, index)
        mean, spread = read(means, outer), read(spreads, outer)
        invstd = spread if train else apply("rsqrt", spread + eps)
        centred = v - mean
        total, dot = reduce("sum", g), reduce("sum", g * centred)
        scale = _affine(invstd, read, outer, weight, None)
        d_input = g * scale
        if train:
            n = count_value(split.count, v.dtype)
            d_input = (g - total / n - centred * (invstd * invstd * dot / n)) * scale
        return [(d_input, dot * invstd, total)[k] for k in wanted]

    outputs = [
        split.outer_output(meta) if k else split.full_output(meta)
        for k, meta in enumerate(metas)
        if meta is not None and k in wanted
    ]
    if not outputs:
        return (None, None, None)
    made: dict[int, Strided] = dict(zip(wanted, over(b, split, outputs, body), strict=True))
    return made.get(0), made.get(1), made.get(2)


# ---------------------------------------------------------------------- group norm
@lowering("native_group_norm")
def _group_norm(
    b: Builder, metas: Metas, x: Lowered, weight: Lowered | None, bias: Lowered | None, n: Size, c: Size, hw: Size,
    groups: int, eps: float,
) -> tuple[Lowered | None, ...]:  # fmt: skip
    out, mean_meta, rstd_meta = _present(metas)
    _one_compute_dtype(x, weight, bias)
    channels = x.sizes[1]
    if channels.value is None or channels.value % groups:
        raise NotLowered("group norm of a symbolic channel count")
    per_group = channels.value // groups
    outer = (x.sizes[0], constant(groups))
    inner = (constant(per_group), *x.sizes[2:])

    def place(o: Index, i: Index) -> Index:
        return (o[0], o[1] * per_group + i[0], *i[1:])

    def statistics(read: Read, o: Index, i: Index) -> list[Value]:
        v = read(x, place(o, i))
        return [
            reduce("welford_mean", v),
            apply("rsqrt", reduce("welford_m2", v) / count_value(element_count(inner), v.dtype) + eps),
        ]

    def normalized(v: Value, mean: Value, rstd: Value, read: Read, channel: Expr) -> Value:
        return _affine((v - mean) * rstd, read, (channel,), weight, bias)

    def body(read: Read, o: Index, i: Index) -> list[Value]:
        mean, rstd = statistics(read, o, i)
        index = place(o, i)
        return [normalized(read(x, index), mean, rstd, read, index[1]), mean, rstd]

    strides = Split.of(x, None).strides
    reduction = functools.partial(
        b.reduction, outer, inner,
        outer_strides=None if strides is None else (strides[0], strides[1] * per_group),
        inner_strides=None if strides is None else strides[1:],
    )  # fmt: skip
    per_row = [Output(m, True, lambda o, i: o) for m in (mean_meta, rstd_meta)]
    if x.device.type != "cuda":
        return reduction([Output(out, False, place), *per_row], body)
    if _formulas_pay(x, mean_meta, rstd_meta):
        mean, rstd = reduction(per_row, statistics)
        saved = [mean, rstd]
    else:  # what is saved for the backward is rounded
        wide = [attrs.evolve(p, meta=attrs.evolve(p.meta, dtype=compute_dtype(x.dtype))) for p in per_row]
        mean, rstd, *saved = reduction([*wide, *per_row], lambda read, o, i: statistics(read, o, i) * 2)

    def formula(point: Point) -> Value:
        (image, channel), read = point.index[:2], _reader(point)
        row = (image, channel // per_group)
        return normalized(x.value(point), read(mean, row), read(rstd, row), read, channel)

    return Lazy(x.sizes, out.dtype, out.device, formula), *saved
