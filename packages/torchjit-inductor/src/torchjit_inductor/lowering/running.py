"""Running sums and products; those of few long rows in parts, which fill a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from torchjit_core.expr import constant
from torchjit_inductor.ir.dtypes import accumulate_dtype, compute_dtype
from torchjit_inductor.ir.kernel import element_count
from torchjit_inductor.ir.values import Value, apply, cast, index_value, reduce, scan
from torchjit_inductor.ir.values import constant as number
from torchjit_inductor.lowering.builder import Builder, Output
from torchjit_inductor.lowering.reductions import Split, over
from torchjit_inductor.lowering.registry import lowering
from torchjit_inductor.lowering.tensors import Index, Lazy, Lowered, Point, Read, TensorMeta, contiguous_strides, masked

__all__: list[str] = []

_FILLS, _LEAST_PART = 512, 4096
"""Programs that fill a GPU, and elements that are worth one."""


def _running(
    kind: str, b: Builder, meta: TensorMeta, x: Lowered, dim: int, *, dtype: torch.dtype | None = None
) -> Lowered:
    wide = accumulate_dtype(meta.dtype)
    if wide == torch.float32 and meta.dtype == torch.float32 and meta.device.type == "cpu":
        wide = torch.float64  # as eager does
    split = Split.of(x, dim)
    parts = _parts(split) if meta.device.type == "cuda" else 1

    def operand(v: Value) -> Value:
        return cast(cast(v, compute_dtype(meta.dtype)), wide)

    if parts > 1:
        return _running_in_parts(kind, b, meta, x, split, parts, operand, wide)

    def body(read: Read, outer: Index, inner: Index) -> list[Value]:
        v = operand(read(x, split.index(outer, inner)))
        return [cast(scan(kind, v), compute_dtype(meta.dtype))]

    return over(b, split, [split.full_output(meta)], body)[0]


def _parts(split: Split) -> int:
    """Into how many equal parts few long rows are divided, so that they fill a GPU; 1: they are not."""
    rows, length = element_count(split.pick(split.kept)).value, split.count.value
    if not rows or not length or rows >= _FILLS // 2:
        return 1
    most = min(4 * _FILLS // rows, length // _LEAST_PART)
    wanted = min(-(-_FILLS // rows), most)
    counts = (*range(wanted, most + 1), *range(wanted - 1, wanted // 4, -1))
    return next((n for n in counts if n > 1 and length % n == 0), 1)


def _running_in_parts(
    kind: str, b: Builder, meta: TensorMeta, x: Lowered, split: Split, parts: int, operand: Callable[[Value], Value],
    wide: torch.dtype,
) -> Lowered:  # fmt: skip
    """Each part's total, these running totals, and each part again with the total before it."""
    count, kept = constant(parts), split.pick(split.kept)
    length = split.count // count
    sizes = (*kept, count)
    small = TensorMeta(sizes, contiguous_strides(sizes), wide, meta.device)
    loops = ((*kept, count), (length,))

    def place(outer: Index, inner: Index) -> Index:
        return split.index(outer[:-1], (outer[-1] * length + inner[0],))

    def total(read: Read, outer: Index, inner: Index) -> list[Value]:
        return [reduce(kind, operand(read(x, place(outer, inner))))]

    (totals,) = b.reduction(*loops, [Output(small, True, lambda outer, inner: outer)], total)

    def joined(read: Read, outer: Index, inner: Index) -> list[Value]:
        return [scan(kind, read(totals, (*outer, *inner)))]

    (ends,) = b.reduction(kept, (count,), [Output(small, False, lambda outer, inner: (*outer, *inner))], joined)

    def before(point: Point) -> Value:
        *row, part = point.index
        there = apply("ge", index_value(part), index_value(constant(1)))
        return masked(there, lambda p: ends.value(p.at((*row, part - 1))), point, number(int(kind == "prod"), wide))

    start = Lazy(sizes, wide, meta.device, before)

    def whole(read: Read, outer: Index, inner: Index) -> list[Value]:
        own = scan(kind, operand(read(x, place(outer, inner))))
        return [cast(apply("add" if kind == "sum" else "mul", read(start, outer), own), compute_dtype(meta.dtype))]

    return b.reduction(*loops, [Output(meta, False, place)], whole)[0]


lowering("cumsum")(partial(_running, "sum"))
lowering("cumprod")(partial(_running, "prod"))
