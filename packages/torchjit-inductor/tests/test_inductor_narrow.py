"""Comparisons of 64-bit integers in 32 bits: as many lanes as floats have, and the answers of 64 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import check, compiled
from torch import Tensor

EXACT = {"rtol": 0, "atol": 0}
FAR = [0, 1, -1, 5, 2**31, -(2**31), 2**31 - 1, 2**32, 2**32 + 5, -(2**32) + 5, 2**63 - 1, -(2**63), 2**33 + 1, 7, -100]
"""What lies outside of 32 bits, some of it with lower halves that would be a position."""


def compared(x: Tensor, numbers: Tensor) -> list[Tensor]:
    places = torch.arange(x.shape[1])
    tests = [
        numbers == places,
        numbers < places,
        numbers >= places - 3,
        numbers != -100,
        places * 2 + 1 > numbers.clamp(min=2),
    ]
    return [torch.where(test, x, -x) for test in tests]


def of_rows(x: Tensor, numbers: Tensor) -> list[Tensor]:
    return compared(x, numbers[:, :1])


def every_second(x: Tensor, numbers: Tensor) -> list[Tensor]:
    return compared(x, numbers.repeat_interleave(2, 1)[:, ::2])


def turned(x: Tensor, numbers: Tensor) -> list[Tensor]:
    return compared(x, numbers.t().contiguous().t())


@pytest.mark.parametrize("vector_bytes", [None, 16, 32])
@pytest.mark.parametrize("columns", [48, 61])
@pytest.mark.parametrize("function", [compared, of_rows, every_second, turned])
def test_numbers_that_32_bits_do_not_hold(function: Callable[..., Any], columns: int, vector_bytes: int | None) -> None:
    torch.manual_seed(0)
    numbers = torch.tensor(FAR)[torch.randint(len(FAR), (40, columns))]
    check(function, (torch.randn(40, columns), numbers), tol=EXACT, vector_bytes=vector_bytes)


def limits(x: Tensor, numbers: Tensor) -> list[Tensor]:
    bounds = (2**31 - 1, -(2**31), 2**31, 2**40, -(2**40), 2**30 - 1)
    return [torch.where(numbers > bound, x, 0.0) for bound in bounds] + [
        torch.where(numbers == bound, x, 0.0) for bound in bounds
    ]


def test_bounds_that_32_bits_hardly_hold() -> None:
    numbers = torch.tensor(FAR * 4).reshape(4, 15)
    check(limits, (torch.randn(4, 15), numbers), tol=EXACT)


def _classes(x: Tensor, labels: Tensor) -> Tensor:
    return torch.where(torch.arange(x.shape[1])[:, None] == labels[:, None], x, 0.0)


def _triangle(x: Tensor) -> Tensor:
    return x.tril(-2)


@pytest.mark.parametrize(
    ("function", "args"),
    [(_classes, (torch.zeros(2, 5, 64), torch.zeros(2, 64, dtype=torch.int64))), (_triangle, (torch.zeros(8, 64),))],
)
def test_lanes_are_those_of_floats(function: Callable[..., Any], args: tuple[Tensor, ...]) -> None:
    (kernel,) = compiled(function, args, vector_bytes=32).kernels
    assert "VECTOR_TYPES(8)" in kernel.source, kernel.source


def test_what_needs_64_bits_keeps_them() -> None:
    def stored(x: Tensor, numbers: Tensor) -> list[Tensor]:
        places = torch.arange(x.shape[1])
        return [torch.where(numbers == places, x, 0.0), numbers + places]

    args = (torch.randn(40, 64), torch.randint(-(2**40), 2**40, (40, 64)))
    (kernel,) = compiled(stored, args, vector_bytes=32).kernels
    assert "VECTOR_TYPES(4)" in kernel.source and "saturated" not in kernel.source, kernel.source
    check(stored, args, tol=EXACT)


def _largest_and_where(x: Tensor) -> list[Tensor]:
    return [*F.max_pool2d(x, 3, 2, 1, return_indices=True)]


@pytest.mark.parametrize("vector_bytes", [None, 16, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_where_a_window_is_largest(layout: torch.memory_format, dtype: torch.dtype, vector_bytes: int | None) -> None:
    """Equal elements and NaN too; channels that fill no whole vectors."""
    torch.manual_seed(0)
    x = torch.randint(-4, 4, (2, 21, 13, 16)).to(dtype)
    x[torch.rand(x.shape) < 0.02] = torch.nan
    check(_largest_and_where, (x.contiguous(memory_format=layout),), tol=EXACT, vector_bytes=vector_bytes)


def test_a_window_is_read_once_for_its_largest_and_for_its_place() -> None:
    x = torch.randn(2, 32, 13, 16).contiguous(memory_format=torch.channels_last)
    (kernel,) = compiled(_largest_and_where, (x,), vector_bytes=32).kernels
    assert "VECTOR_TYPES(8)" in kernel.source and "st_widened" in kernel.source, kernel.source
