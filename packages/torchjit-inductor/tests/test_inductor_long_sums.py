"""Sums of many float32 elements: the error does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from inductor_testing import compiled
from torch import Tensor

CASES: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...]]] = {
    "columns": (lambda x: x.sum(0), (200_000, 3)),
    "wide columns": (lambda x: x.sum(0), (3_000, 70)),
    "columns of two loops": (lambda x: x.sum((0, 2)), (400, 5, 90)),
    "short loops inside": (lambda x: x.transpose(1, 2).sum((0, 1)), (2_000, 40, 3)),
    "rows": (lambda x: x.sum(1), (2, 300_000)),
    "all": (lambda x: x.sum(), (1_000_000,)),
    "squares": (lambda x: (x * x).sum(0), (100_000, 5)),
    "mean and variance": (lambda x: (x.var(0), x.mean(0)), (50_000, 4)),
    "variance of a row": (lambda x: x.var(), (500_000,)),
    "nothing": (lambda x: x.sum((0, 2)), (600, 3, 0)),
    "sum used in a later pass": (lambda x: (x / x.sum(0)).amax(0), (70_000, 4)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("values", ["equal", "two"])
def test_the_error_of_a_sum_is_bounded(name: str, mode: str, values: str) -> None:
    function, shape = CASES[name]
    x = torch.full(shape, 0.1)
    if values == "two":  # equal summands are rounded in one direction
        x.view(-1)[::3] = 0.7
    found = compiled(function, (x,), mode=mode)(x)
    exact = function(x.double())
    for have, want in zip(found, exact if isinstance(exact, tuple) else (exact,), strict=True):
        torch.testing.assert_close(have.double(), want, rtol=6e-6, atol=2e-9)


def test_what_is_not_finite_stays_so() -> None:
    x = torch.ones(2_000, 6)
    x[700, 1], x[1_900, 2], x[3, 3], x[1_500, 3] = torch.inf, torch.nan, torch.inf, -torch.inf
    functions: list[Callable[[Tensor], Tensor]] = [lambda t: t.sum(0), lambda t: t.t().contiguous().sum(1)]
    for function in functions:
        (have,) = compiled(function, (x,))(x)
        torch.testing.assert_close(have, function(x), rtol=0, atol=0, equal_nan=True)


def test_few_rows_are_added_up_at_once() -> None:
    kernels = [compiled(lambda t: t.sum(0), (torch.ones(rows, 8),)).kernels[0].source for rows in (512, 513)]
    assert ["_run" in text for text in kernels] == [False, True]
