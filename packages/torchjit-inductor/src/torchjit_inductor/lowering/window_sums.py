"""Depthwise convolutions on GPUs as sums over their windows, which join what is around them.

The libraries have good kernels for square windows of images with the channels innermost (`convolution_times.py`). For others aten's take up to
ten times as long as memory does: 73 us for a window of 5 over 16 x 768 x 512 elements of bfloat16, and 43 to bring them into its order.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch

from torchjit_core.expr import Expr, constant
from torchjit_inductor.ir.dtypes import HALF, compute_dtype
from torchjit_inductor.ir.values import Value, apply, cast, index_value
from torchjit_inductor.ir.values import constant as number
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import Index, Lazy, Lowered, Point, TensorMeta, masked

__all__ = ["has_library_kernel", "is_window_sum", "window_sum"]

SQUARES = (3, 5, 7)
"""Windows of images for which cuDNN has kernels."""
MAX_WINDOW = 27


def is_window_sum(device: torch.device, dtype: torch.dtype, filters: Sequence[object], options: Sequence[Any]) -> bool:
    """Is this convolution computed by a kernel of ours?

    Args:
        device, dtype: of the image.
        filters: sizes of the weight, as far as they are known.
        options: stride, padding, dilation, is it transposed, padding of the result, groups.
    """
    _, _, dilation, transposed, _, groups = options
    # Comparing symbolic sizes would decide something about them.
    if not all(isinstance(n, int) for n in (*filters, *options[0], *options[1], *dilation, groups)):
        return False
    if device.type != "cuda" or dtype not in (torch.float32, *HALF) or transposed or groups == 1 or filters[1] != 1:
        return False
    if has_library_kernel(filters, dilation, groups):
        return False
    return math.prod(n for n in filters[2:] if isinstance(n, int)) <= MAX_WINDOW


def has_library_kernel(filters: Sequence[object], dilation: Sequence[object], groups: object) -> bool:
    """Has cuDNN a kernel for images with the channels innermost, for a depthwise convolution: of a square, one filter a channel?

    Args:
        filters: sizes of the weight: filters, 1, and the window; known.
        dilation: for each dimension of the window.
        groups: as many as channels.
    """
    first, _, *window = filters
    return (
        first == groups
        and len(window) == 2
        and window[0] == window[1]
        and window[0] in SQUARES
        and set(dilation) == {1}
    )


def window_sum(
    b: Builder, meta: TensorMeta, x: Lowered, weight: Lowered, bias: Lowered | None, options: Sequence[Any]
) -> Lazy:
    """The convolution as a formula of each element.

    Raises:
        NotLowered: it is left to the library.
    """
    filters = [n.value for n in weight.sizes]
    if not is_window_sum(x.device, x.dtype, filters, options) or weight.dtype != x.dtype:
        raise NotLowered("not a depthwise convolution whose window is summed")
    stride, padding, dilation, _, _, groups = options
    size = [n for n in filters[2:] if n is not None]
    wide, held, taps = compute_dtype(meta.dtype), b.materialize(x), b.materialize(weight)
    for_each = (filters[0] or 0) // groups  # results of one channel

    def formula(point: Point) -> Value:
        image, channel, *place = point.index
        source = channel // for_each if for_each > 1 else channel

        def element(offsets: tuple[int, ...]) -> Value:
            at = [
                p * s + (k * d - pad) for p, s, k, d, pad in zip(place, stride, offsets, dilation, padding, strict=True)
            ]
            inside = _inside(_tests(at, offsets, x.sizes[2:], size, padding, dilation))
            factor = cast(taps.value(point.at((channel, constant(0), *map(constant, offsets)))), wide)
            read = masked(inside, lambda p: cast(held.value(p.at((image, source, *at))), wide), point, number(0, wide))
            return read * factor

        total = functools.reduce(operator.add, (element(k) for k in product(*map(range, size))))
        return total if bias is None else total + cast(bias.value(point.at((channel,))), wide)

    return Lazy(meta.sizes, meta.dtype, meta.device, formula)


def _tests(
    at: Index | list[Expr], offsets: Sequence[int], sizes: Index, window: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Iterator[Value]:  # fmt: skip
    """What must hold for a place to be in the image, of what may not."""
    for place, k, size, many, pad, step in zip(at, offsets, sizes, window, padding, dilation, strict=True):
        if k * step < pad:
            yield apply("ge", index_value(place), index_value(constant(0)))
        if (many - 1 - k) * step < pad:
            yield apply("lt", index_value(place), index_value(size))


def _inside(tests: Iterator[Value]) -> Value:
    return functools.reduce(lambda both, test: apply("and", both, test), tests, number(True, torch.bool))
