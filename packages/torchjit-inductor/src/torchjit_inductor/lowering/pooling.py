"""Pooling over small windows, unrolled."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias, final

import attrs
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
"""One for each pooled dimension; one for all."""
MAX_WINDOW = 16
MAX_COMPUTED = 192
"""Operations of all elements of a window that a kernel computes itself rather than read them from memory."""
MAX_SUMMED = 25
"""A sum over a window has fewer operations than a maximum with its position."""
MAX_ON_GPU = 32
"""Elements of a window that share their loads with neighbours' through the cache."""


def _each(value: Numbers, rank: int, default: tuple[int, ...] = ()) -> tuple[int, ...]:
    """One number for each of `rank` dimensions; `default` where none are given."""
    if isinstance(value, int):
        return (value,) * rank
    items = tuple(int(v) for v in value)
    return items * rank if len(items) == 1 else items or default


def _pair(value: Numbers, default: tuple[int, int] = (1, 1)) -> tuple[int, int]:
    first, second = _each(value, 2, default)
    return first, second


@final
@attrs.frozen
class _Windows:
    """The windows of a pooling, by dimension: the last ones of the input.

    Attributes:
        lengths: of the input.
        size, step, pad, dilation: of the windows.
        ceil: the last window may reach further beyond the end than the padding does.
    """

    lengths: Index
    size: tuple[int, ...]
    step: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil: bool

    @staticmethod
    def of(
        rank: int, x: Lowered, kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers, ceil: bool
    ) -> _Windows:
        size = _each(kernel, rank)
        step, pad, spread = _each(stride, rank, size), _each(padding, rank), _each(dilation, rank)
        return _Windows(x.sizes[-rank:], size, step, pad, spread, ceil)

    @property
    def rank(self) -> int:
        return len(self.size)

    @property
    def places(self) -> Iterator[tuple[int, ...]]:
        """The places in a window, in eager's order."""
        return itertools.product(*map(range, self.size))

    def at(self, index: Index, place: tuple[int, ...]) -> tuple[Expr, ...]:
        """Where a place of the window of a result's element lies in the input, or in the padding."""
        ends = index[-self.rank :]
        return tuple(
            i * s + (k * d - p) for i, s, k, d, p in zip(ends, self.step, place, self.dilation, self.pad, strict=True)
        )

    def may_leave(self, dim: int, place: int) -> tuple[bool, bool]:
        """Can the place lie in the padding before the begin, and behind the end?"""
        reach = self.dilation[dim]
        return place * reach < self.pad[dim], self.ceil or (self.size[dim] - 1 - place) * reach < self.pad[dim]

    def within(self, index: Index, place: tuple[int, ...]) -> tuple[Expr, ...]:
        """As `at`; what lies in the padding repeats the window's first or last element in the input."""
        found = []
        for dim, at in enumerate(self.at(index, place)):
            before, behind = self.may_leave(dim, place[dim])
            reach, length = self.dilation[dim], self.lengths[dim]
            begin = at - place[dim] * reach
            if before:
                at = maximum(at, begin % reach)
            if behind:
                at = minimum(at, length - 1 - (length - 1 - begin) % reach)
            found.append(at)
        return tuple(found)

    def inside(self, index: Index, place: tuple[int, ...]) -> Value:
        """Is the place in the input? True asks nothing."""
        ats = self.at(index, place)
        return _inside([(at, self.lengths[d], *self.may_leave(d, place[d])) for d, at in enumerate(ats)])


def _unrolled(x: Lowered, windows: _Windows, most: int) -> None:
    """Make sure that windows can be unrolled, and that kernels have been found to gain from it.

    Args:
        most: elements of a window on CPUs.

    Raises:
        NotLowered: otherwise.
    """
    on_gpu = x.device.type == "cuda"
    if not is_float(x.dtype) or math.prod(windows.size) > (MAX_ON_GPU if on_gpu else most):
        raise NotLowered("a large window")
    if windows.rank > 2 and not on_gpu:
        raise NotLowered("a window of three dimensions")


# ---------------------------------------------------------------------- maxima
def _max_pool(
    rank: int, b: Builder, metas: tuple[TensorMeta, ...], x: Lowered, kernel: Numbers, stride: Numbers = (), padding: Numbers = 0,
    dilation: Numbers = 1, ceil_mode: bool = False,
) -> tuple[Lowered, ...]:  # fmt: skip
    windows = _Windows.of(rank, x, kernel, stride, padding, dilation, ceil_mode)
    _unrolled(x, windows, MAX_WINDOW)
    for length, reach in zip(windows.lengths, windows.dilation, strict=True):
        least = length.bounds().lower
        if reach > 1 and (least is None or least < reach):
            raise NotLowered("a dilated window may have no element in the input")
    held = x if _reads_formula(b, x, windows) else b.materialize(x)
    least_of = number(-math.inf, compute_dtype(x.dtype))

    def window(point: Point) -> Iterator[tuple[Index, Value]]:
        """Positions and values."""
        lead = point.index[:-rank]
        for place in windows.places:
            at = windows.within(point.index, place)
            yield at, held.value(point.at((*lead, *at)))

    def present(point: Point) -> Iterator[Value]:
        """Values, the least there is in the padding: where windows are dilated to find one in the window costs more."""
        for place in windows.places:

            def read(p: Point, place: tuple[int, ...] = place) -> Value:
                return held.value(p.at((*p.index[:-rank], *windows.at(p.index, place))))

            yield masked(windows.inside(point.index, place), read, point, least_of)

    def largest(point: Point) -> Value:
        values = present(point) if max(windows.dilation) > 1 else (v for _, v in window(point))
        return functools.reduce(lambda best, value: apply("maximum", best, value), values)

    def position(point: Point) -> Value:
        (best, where_best), *others = ((value, index_value(_flat(at, windows.lengths))) for at, value in window(point))
        for value, at in others:
            better = apply("or", value > best, apply("isnan", value))
            best, where_best = where(better, value, best), where(better, at, where_best)
        return where_best

    values, indices = metas
    return (
        Lazy(values.sizes, values.dtype, values.device, largest),
        Lazy(indices.sizes, indices.dtype, indices.device, position),
    )


def _reads_formula(b: Builder, x: Lowered, windows: _Windows) -> bool:
    """Does a kernel for a GPU best compute the elements of windows itself: each is in one, and they are few and cheap?"""
    apart = all(step >= size for step, size in zip(windows.step, windows.size, strict=True))
    if x.device.type != "cuda" or not apart or max(windows.dilation) > 1:
        return False
    cost = b.cost(x)
    own = cost.nodes - cost.loads + 1  # what else is read is the same for all elements, or for many
    return not cost.heavy and own * math.prod(windows.size) <= MAX_COMPUTED


def _flat(at: Index, lengths: Index) -> Expr:
    """A position in an image as one number, row by row."""
    total = at[0]
    for i, length in zip(at[1:], lengths[1:], strict=True):
        total = total * length + i
    return total


lowering("max_pool2d_with_indices")(partial(_max_pool, 2))
lowering("max_pool3d_with_indices")(partial(_max_pool, 3))


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


def _averaging(rank: int, x: Lowered, kernel: Numbers, stride: Numbers, padding: Numbers, ceil_mode: bool) -> _Windows:
    """Averaging windows that can be unrolled."""
    if ceil_mode:
        raise NotLowered("a window that may begin in the padding")
    windows = _Windows.of(rank, x, kernel, stride, padding, 1, False)
    _unrolled(x, windows, MAX_SUMMED)
    return windows


def _averaged_over(
    index: Index, windows: _Windows, include_padding: bool, override: int | None, dtype: torch.dtype
) -> Value:
    """By how much the sum of the window of an element of the result is divided."""
    if override is not None or include_padding or not any(windows.pad):
        return number(math.prod(windows.size) if override is None else override, dtype)
    count = constant(1)
    for at, size, length in zip(windows.at(index, (0,) * windows.rank), windows.size, windows.lengths, strict=True):
        count = count * (minimum(at + size, length) - maximum(at, constant(0)))
    return cast(index_value(count), dtype)


def _avg_pool(
    rank: int, b: Builder, meta: TensorMeta, x: Lowered, kernel: Numbers, stride: Numbers = (), padding: Numbers = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Lowered:  # fmt: skip
    windows = _averaging(rank, x, kernel, stride, padding, ceil_mode)
    wide = compute_dtype(meta.dtype)
    overlapping = any(step < size for step, size in zip(windows.step, windows.size, strict=True))
    held = b.materialize(x) if overlapping else x

    def formula(point: Point) -> Value:
        def element(place: tuple[int, ...]) -> Value:
            index = (*point.index[:-rank], *windows.at(point.index, place))
            inside = windows.inside(point.index, place)
            return masked(inside, lambda p: cast(held.value(p.at(index)), wide), point, number(0, wide))

        total = _summed(map(element, windows.places))
        return total / _averaged_over(point.index, windows, count_include_pad, divisor_override, total.dtype)

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)


lowering("avg_pool2d")(partial(_avg_pool, 2))
lowering("avg_pool3d")(partial(_avg_pool, 3))


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
    windows = _averaging(2, x, kernel, stride, padding, ceil_mode)
    size, step, pad = _pair(windows.size), _pair(windows.step), _pair(windows.pad)
    wide = compute_dtype(meta.dtype)
    held = b.materialize(grad) if _windows_per_element(size, step) != (1, 1) else grad

    def formula(point: Point) -> Value:
        def of_window(r: Expr, c: Expr, inside: Value) -> Value:
            by = _averaged_over((r, c), windows, count_include_pad, divisor_override, wide)
            index = (*point.index[:-2], r, c)
            # Under the mask: a window that does not exist may have no elements to divide by.
            return masked(inside, lambda p: cast(held.value(p.at(index)), wide) / by, point, number(0, wide))

        return _summed(of_window(*each) for each in _windows_of(point.index, grad.sizes, size, step, pad))

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)
