"""Pooling over small windows, unrolled."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import torch

from torchjit_core.expr import Expr, constant, maximum, minimum
from torchjit_inductor.ir.dtypes import compute_dtype, is_float
from torchjit_inductor.ir.values import Value, apply, cast, index_value, where
from torchjit_inductor.ir.values import constant as number
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.registry import lowering
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import Index, Lazy, Lowered, Point, TensorMeta, masked

__all__: list[str] = []

Numbers: TypeAlias = "int | Sequence[int]"
"""One for each of two dimensions; one for both."""
MAX_WINDOW = 16
MAX_COMPUTED = 192
"""Operations of all elements of a window that a kernel computes itself rather than read them from memory."""
MAX_SUMMED = 25
"""A sum over a window has fewer operations than a maximum with its position."""


def _pair(value: Numbers, default: tuple[int, int] | None = None) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    if not value and default is not None:
        return default
    items = [int(v) for v in value]
    return (items[0], items[-1])


@lowering("max_pool2d_with_indices")
def _max_pool2d(
    b: Builder, metas: tuple[TensorMeta, ...], x: Lowered, kernel: Numbers, stride: Numbers = (), padding: Numbers = 0,
    dilation: Numbers = 1, ceil_mode: bool = False,
) -> tuple[Lowered, ...]:  # fmt: skip
    size = _pair(kernel)
    step, pad = _pair(stride, size), _pair(padding)
    if _pair(dilation) != (1, 1) or ceil_mode or size[0] * size[1] > MAX_WINDOW or not is_float(x.dtype):
        raise NotLowered("a large or dilated window")
    height, width = x.sizes[-2], x.sizes[-1]
    held = x if _reads_formula(b, x, size, step) else b.materialize(x)

    def window(point: Point) -> Iterator[tuple[Index, Value]]:
        """Positions and values. What lies in the padding repeats the border, which is in the window too."""
        *lead, row, column = point.index
        for i in range(size[0]):
            for j in range(size[1]):
                r = _clamped(row * step[0] + (i - pad[0]), height, lower=i < pad[0], upper=pad[0] > 0)
                c = _clamped(column * step[1] + (j - pad[1]), width, lower=j < pad[1], upper=pad[1] > 0)
                yield (r, c), held.value(point.at((*lead, r, c)))

    def largest(point: Point) -> Value:
        return functools.reduce(lambda best, value: apply("maximum", best, value), (v for _, v in window(point)))

    def position(point: Point) -> Value:
        (best, where_best), *others = ((value, index_value(r * width + c)) for (r, c), value in window(point))
        for value, at in others:
            better = apply("or", value > best, apply("isnan", value))
            best, where_best = where(better, value, best), where(better, at, where_best)
        return where_best

    values, indices = metas
    return (
        Lazy(values.sizes, values.dtype, values.device, largest),
        Lazy(indices.sizes, indices.dtype, indices.device, position),
    )


def _reads_formula(b: Builder, x: Lowered, size: tuple[int, int], step: tuple[int, int]) -> bool:
    """Does a kernel for a GPU best compute the elements of windows itself: each is in one, and they are few and cheap?"""
    if x.device.type != "cuda" or step[0] < size[0] or step[1] < size[1]:
        return False
    cost = b.cost(x)
    own = cost.nodes - cost.loads + 1  # what else is read is the same for all elements, or for many
    return not cost.heavy and own * size[0] * size[1] <= MAX_COMPUTED


def _clamped(at: Expr, size: Expr, *, lower: bool, upper: bool) -> Expr:
    if lower:
        at = maximum(at, constant(0))
    return minimum(at, size - 1) if upper else at


# ---------------------------------------------------------------------- averages
def _inside(tests: list[tuple[Expr, Expr, bool, bool]]) -> Value:
    """Is each position, which is paired with its size, not below zero and not beyond the end? True asks the question."""
    found: Value = number(True, torch.bool)
    for at, size, lower, upper in tests:
        position = index_value(at)
        asked = [apply("ge", position, index_value(constant(0)))] if lower else []
        asked += [apply("lt", position, index_value(size))] if upper else []
        for test in asked:
            found = test if found.op == "constant" else apply("and", found, test)
    return found


def _windows(
    x: Lowered, kernel: Numbers, stride: Numbers, padding: Numbers, ceil_mode: bool
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Size, step and padding of an averaging window that can be unrolled."""
    size = _pair(kernel)
    if ceil_mode or size[0] * size[1] > MAX_SUMMED or not is_float(x.dtype):
        raise NotLowered("a large window, or one that may begin in the padding")
    return size, _pair(stride, size), _pair(padding)


def _averaged_over(
    index: Index, sizes: Index, size: tuple[int, int], step: tuple[int, int], pad: tuple[int, int],
    include_padding: bool, override: int | None, dtype: torch.dtype,
) -> Value:  # fmt: skip
    """By how much the sum of the window of an element of the result is divided."""
    if override is not None or include_padding or pad == (0, 0):
        return number(size[0] * size[1] if override is None else override, dtype)
    count = constant(1)
    for k in (0, 1):
        begin = index[k - 2] * step[k] - pad[k]
        count = count * (minimum(begin + size[k], sizes[k - 2]) - maximum(begin, constant(0)))
    return cast(index_value(count), dtype)


@lowering("avg_pool2d")
def _avg_pool2d(
    b: Builder, meta: TensorMeta, x: Lowered, kernel: Numbers, stride: Numbers = (), padding: Numbers = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Lowered:  # fmt: skip
    size, step, pad = _windows(x, kernel, stride, padding, ceil_mode)
    wide = compute_dtype(meta.dtype)
    overlapping = step[0] < size[0] or step[1] < size[1]
    held = b.materialize(x) if overlapping else x
    rows, columns = x.sizes[-2], x.sizes[-1]

    def formula(point: Point) -> Value:
        *lead, row, column = point.index

        def element(i: int, j: int) -> Value:
            r, c = row * step[0] + (i - pad[0]), column * step[1] + (j - pad[1])
            inside = _inside([(r, rows, i < pad[0], pad[0] > 0), (c, columns, j < pad[1], pad[1] > 0)])
            return masked(inside, lambda p: cast(held.value(p.at((*lead, r, c))), wide), point, number(0, wide))

        total = _summed(element(i, j) for i in range(size[0]) for j in range(size[1]))
        return total / _averaged_over(
            point.index, x.sizes, size, step, pad, count_include_pad, divisor_override, total.dtype
        )

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)


def _summed(values: Iterable[Value]) -> Value:
    return functools.reduce(operator.add, values)


# ---------------------------------------------------------------------- gradients
def _windows_per_element(size: tuple[int, int], step: tuple[int, int]) -> tuple[int, int]:
    """How many windows at most an element is in, along each dimension."""
    return -(-size[0] // step[0]), -(-size[1] // step[1])


def _windows_of(
    index: Index, sizes: Index, size: tuple[int, int], step: tuple[int, int], pad: tuple[int, int]
) -> Iterator[tuple[Expr, Expr, Value]]:
    """The windows that an element may be in, in eager's order: row, column, and is it in this one, which exists?

    The last one begins at or before it; the others are the ones before.

    Args:
        index: of the element.
        sizes: of the pooled image.
        size, step, pad: of the windows.
    """
    row, column = index[-2:]
    many = _windows_per_element(size, step)
    for i in reversed(range(many[0])):
        for j in reversed(range(many[1])):
            r, c = (row + pad[0]) // step[0] - i, (column + pad[1]) // step[1] - j
            inside = _inside([(r, sizes[-2], True, True), (c, sizes[-1], True, True)])
            for at, place, k in ((r, row, 0), (c, column, 1)):
                if size[k] % step[k] or size[k] < step[k]:
                    reach = apply("gt", index_value(at * step[k] - pad[k] + size[k]), index_value(place))
                    inside = apply("and", inside, reach)
            yield r, c, inside


@lowering("max_pool2d_with_indices_backward")
def _max_pool2d_backward(
    b: Builder, meta: TensorMeta, grad: Lowered, x: Lowered, kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers,
    ceil_mode: bool, indices: Lowered,
) -> Lowered:  # fmt: skip
    """Each element asks the few windows that it may be in whether it was their largest.

    Indices of int8 are places in the window, row by row, rather than in the image.
    """
    size = _pair(kernel)
    step, pad = _pair(stride, size), _pair(padding)
    if meta.device.type != "cuda" or _pair(dilation) != (1, 1) or not is_float(grad.dtype):
        raise NotLowered("not on a GPU, or dilated")
    many = _windows_per_element(size, step)
    if many[0] * many[1] > MAX_WINDOW:
        raise NotLowered("an element is in many windows")
    wide, held = compute_dtype(meta.dtype), b.materialize(grad)

    def formula(point: Point) -> Value:
        *lead, row, column = point.index

        def of_window(r: Expr, c: Expr, inside: Value) -> Value:
            if indices.dtype == torch.int8:
                here = index_value((row + pad[0] - r * step[0]) * size[1] + (column + pad[1] - c * step[1]))
            else:
                here = index_value(row * x.sizes[-1] + column)

            def share(p: Point) -> Value:
                at = p.at((*lead, r, c))
                hit = apply("eq", cast(indices.value(at), torch.int64), here)
                return where(hit, cast(held.value(at), wide), number(0, wide))

            return masked(inside, share, point, number(0, wide))

        return _summed(of_window(*each) for each in _windows_of(point.index, grad.sizes, size, step, pad))

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)


@lowering("avg_pool2d_backward")
def _avg_pool2d_backward(
    b: Builder, meta: TensorMeta, grad: Lowered, x: Lowered, kernel: Numbers, stride: Numbers, padding: Numbers, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Lowered:  # fmt: skip
    size, step, pad = _windows(x, kernel, stride, padding, ceil_mode)
    wide = compute_dtype(meta.dtype)
    held = b.materialize(grad) if _windows_per_element(size, step) != (1, 1) else grad

    def formula(point: Point) -> Value:
        def of_window(r: Expr, c: Expr, inside: Value) -> Value:
            by = _averaged_over((r, c), x.sizes, size, step, pad, count_include_pad, divisor_override, wide)
            index = (*point.index[:-2], r, c)
            # Under the mask: a window that does not exist may have no elements to divide by.
            return masked(inside, lambda p: cast(held.value(p.at(index)), wide) / by, point, number(0, wide))

        return _summed(of_window(*each) for each in _windows_of(point.index, grad.sizes, size, step, pad))

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)
