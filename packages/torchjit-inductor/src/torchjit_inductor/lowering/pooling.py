"""Pooling over small windows, unrolled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchjit_core.expr import Expr, constant, maximum, minimum
from torchjit_inductor.ir.dtypes import is_float
from torchjit_inductor.ir.values import Value, apply, index_value, where
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.registry import lowering
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import Index, Lazy, Lowered, Point, TensorMeta

__all__: list[str] = []

MAX_WINDOW = 16


def _pair(value: Any, default: tuple[int, int] | None = None) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    if not value and default is not None:
        return default
    items = [int(v) for v in value]
    return (items[0], items[-1])


@lowering("max_pool2d_with_indices")
def _max_pool2d(
    b: Builder, metas: tuple[TensorMeta, ...], x: Lowered, kernel: Any, stride: Any = (), padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False,
) -> tuple[Lowered, ...]:  # fmt: skip
    size = _pair(kernel)
    step, pad = _pair(stride, size), _pair(padding)
    if _pair(dilation) != (1, 1) or ceil_mode or size[0] * size[1] > MAX_WINDOW or not is_float(x.dtype):
        raise NotLowered("a large or dilated window")
    height, width = x.sizes[-2], x.sizes[-1]
    held = b.materialize(x)

    def window(point: Point) -> Iterator[tuple[Index, Value]]:
        """Positions and values. What lies in the padding repeats the border, which is in the window too."""
        *lead, row, column = point.index
        for i in range(size[0]):
            for j in range(size[1]):
                r = _clamped(row * step[0] + (i - pad[0]), height, lower=i < pad[0], upper=pad[0] > 0)
                c = _clamped(column * step[1] + (j - pad[1]), width, lower=j < pad[1], upper=pad[1] > 0)
                yield (r, c), held.value(point.at((*lead, r, c)))

    def largest(point: Point) -> Value:
        values = [v for _, v in window(point)]
        best = values[0]
        for value in values[1:]:
            best = apply("maximum", best, value)
        return best

    def position(point: Point) -> Value:
        best: Value | None = None
        where_best: Value | None = None
        for (r, c), value in window(point):
            at = index_value(r * width + c)
            if best is None or where_best is None:
                best, where_best = value, at
                continue
            better = apply("or", value > best, apply("isnan", value))
            best, where_best = where(better, value, best), where(better, at, where_best)
        if where_best is None:
            raise NotLowered("an empty window")
        return where_best

    values, indices = metas
    return (
        Lazy(values.sizes, values.dtype, values.device, largest),
        Lazy(indices.sizes, indices.dtype, indices.device, position),
    )


def _clamped(at: Expr, size: Expr, *, lower: bool, upper: bool) -> Expr:
    if lower:
        at = maximum(at, constant(0))
    return minimum(at, size - 1) if upper else at
