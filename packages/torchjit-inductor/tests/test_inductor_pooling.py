"""Pooling, forward and backward, against eager."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import check, sample

aten = torch.ops.aten


@pytest.mark.parametrize(
    "shape,args",
    [
        ((2, 3, 9, 11), (3, 2, 1)),
        ((1, 2, 8, 8), (2,)),
        ((2, 4, 7, 7), (3, 1, 1)),
        ((3, 6, 5), ((2, 3), (1, 2), (1, 1))),
    ],
    ids=str,
)
def test_max_pool(shape: tuple[int, ...], args: tuple[Any, ...]) -> None:
    x = sample(*shape)
    x[..., 2, 3] = float("nan")
    x[..., 4, :] = 1.0
    check(lambda x: list(aten.max_pool2d_with_indices(x, *args)), (x,))
    check(lambda x: F.max_pool2d(x.relu(), *args), (x.to(memory_format=torch.channels_last) if x.dim() == 4 else x,))


@pytest.mark.parametrize(
    ("size", "stride"), [((2, 2), 1), ((2, 2), 2), ((3, 3), 2), ((2, 3), 3), ((4, 1), 1), ((4, 1), 3)], ids=str
)
def test_average_pool(size: tuple[int, int], stride: int) -> None:
    """Every window, also those that lie partly in the padding, and its gradient; rows and channels innermost."""
    paddings = (0, 1) if min(size) >= 2 else (0,)
    options: list[tuple[Any, ...]] = [
        (list(size), [stride, stride], [padding, padding], False, include)
        for padding, include in itertools.product(paddings, (True, False))
    ]
    images = [sample(2, 3, 9, 11), sample(2, 3, 8, 20).to(memory_format=torch.channels_last)]
    grads = [torch.randn_like(aten.avg_pool2d(x, *args)) for x in images for args in options]

    def fn(x: torch.Tensor, y: torch.Tensor, *grads: torch.Tensor) -> list[torch.Tensor]:
        pairs = [(image, args) for image in (x, y) for args in options]
        forward = [aten.avg_pool2d(image, *args) for image, args in pairs]
        return forward + [
            aten.avg_pool2d_backward(g, image, *args, None) for g, (image, args) in zip(grads, pairs, strict=True)
        ]

    check(fn, (*images, *grads))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_average_pool_in_other_dtypes(dtype: torch.dtype) -> None:
    x = sample(2, 3, 7, 9).to(dtype)
    check(lambda x: F.avg_pool2d(x, 3, 1, 1), (x,))
    check(lambda x: F.avg_pool2d(x.relu(), 2, divisor_override=3) + 1, (x,), tol={"rtol": 1e-2, "atol": 1e-2})


def test_an_average_without_overlap_reads_its_producer_in_one_kernel() -> None:
    check(lambda x: F.avg_pool2d(x.sigmoid(), 2), (sample(2, 3, 8, 8),), kernels=1)


@pytest.mark.parametrize("args", [(3, 2, 1, True), ((7, 7), 1, 0)], ids=["ceil", "large"])
def test_other_windows_are_left_to_aten(args: tuple[Any, ...]) -> None:
    check(lambda x: F.avg_pool2d(x, *args), (sample(1, 2, 10, 10),), aten=1)


def test_average_pool_of_one_image() -> None:
    check(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (sample(3, 9, 9),))


@pytest.mark.parametrize(
    ("shape", "args"),
    [
        ((2, 3, 9, 11), (3, 2, 1, 2)),
        ((2, 3, 9, 11), ((2, 4), (1, 3), (1, 2), (3, 2))),
        ((1, 2, 10, 10), (3, 2, 1, 1, True)),
        ((1, 2, 9, 12), ((2, 3), 2, 0, (1, 2), True)),
        ((1, 2, 4, 4), (2, 3, 1, 3, True)),
    ],
    ids=str,
)
def test_dilated_windows_and_last_ones_that_reach_beyond_the_end(shape: tuple[int, ...], args: tuple[Any, ...]) -> None:
    x = sample(*shape)
    x[..., 2, 3] = float("nan")
    x[..., 3, :] = -torch.inf
    check(lambda x: list(aten.max_pool2d_with_indices(x, *args)), (x,))
    check(lambda x: F.max_pool2d(x.tanh(), *args) + 1, (x.bfloat16(),))


def test_a_dilated_window_without_an_element_is_left_to_aten() -> None:
    x = torch.empty(1, 1, 2, 2).fill_(3.0)
    graph = check(lambda x: F.max_pool2d(x, 2, 1, 1, 3), (x,), aten=None)
    assert " 0 aten calls" not in graph.source.splitlines()[0]


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"), [(8, 1, 4, 3), (8, 1, 0, 3), (4, 2, 1, 1), (3, 2, 1, 2)]
)
def test_signals(kernel: int, stride: int, padding: int, dilation: int) -> None:
    x = sample(2, 3, 61)
    check(lambda x: F.max_pool1d(x.sin(), kernel, stride, padding, dilation), (x,))
    check(lambda x: F.max_pool1d(x[0], kernel, stride, padding, dilation, return_indices=True), (x,), aten=None)
    check(lambda x: F.avg_pool1d(x, kernel, stride, padding), (x,))
