"""Reductions to few results: their inner points are cut into parts that threads share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import check, compiled, flat
from torch import Tensor

CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "all": (lambda x: [x.sum(), x.mean(), x.amax(), (x > 3).any(), (x > -9).all(), (x > 1).sum()], (300, 1000)),
    "all, several passes": (lambda x: [x.std(), (x - x.mean()) / x.std(), x.softmax(0)], (200_000,)),
    "positions": (lambda x: [x.argmax(), x.argmin(), x.round().argmax()], (1000, 300)),
    "columns": (
        lambda x: [x.sum(0), x.amax(0), (x > 4).any(0), x.double().sum(0), (x * 9).long().sum(0)],
        (20_000, 20),
    ),
    "columns, several passes": (lambda x: [x.var(0), x.softmax(0), (x / x.sum(0)).amax(0)], (9_000, 72)),
    "positions in columns": (lambda x: [x.argmax(0), x.round().argmin(0)], (20_000, 24)),
    "several units": (lambda x: [x.sum(1), x.log_softmax(1)], (3, 20_000, 20)),
    "two loops": (lambda x: x.sum((0, 2)), (400, 5, 900)),
    "norm of images, channels last": (
        lambda x: F.batch_norm(x.permute(0, 3, 1, 2), None, None, training=True).relu(),
        (2, 70, 70, 40),
    ),
    "norm of a whole": (lambda x: F.layer_norm(x, x.shape), (500, 300)),
    "half precision": (lambda x: [x.bfloat16().sum(0), x.half().amax(0)], (20_000, 16)),
}


# The width is a matter of the lanes in a part; parts are the same for all.
@pytest.mark.parametrize(
    ("name", "width"),
    [*((name, 64) for name in CASES), ("all", 16), ("positions", 16), ("columns, several passes", 16)],
)
def test_parts_make_the_whole(name: str, width: int) -> None:
    function, shape = CASES[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    tol = {"rtol": 1.6e-2, "atol": 1e-2} if name == "half precision" else {"rtol": 1e-4, "atol": 1e-3}
    graph = check(function, (x,), vector_bytes=width, tol=tol, aten=None)
    assert any("share(" in k.source for k in graph.kernels)


def test_sizes_are_symbols() -> None:
    """Parts beyond the end are empty, all of them where there is nothing."""

    def function(x: Tensor) -> list[Tensor]:
        return [x.sum(), x.sum(0), x.var(0), x.abs().mean()]

    graph = compiled(function, (torch.randn(5000, 12),), mode="symbolic")
    assert any("share(" in k.source for k in graph.kernels)
    for rows in (5000, 3, 64, 70_001):
        x = torch.randn(rows, 12)
        for have, want in zip(flat(graph(x)), function(x), strict=True):
            torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-3)


def test_first_of_equals_and_not_a_number() -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [x.argmax(), x.argmin(), x.argmax(0)]

    graph = compiled(function, (torch.zeros(40_000, 8),))
    x = torch.zeros(40_000, 8)
    cases = [x, torch.full_like(x, -torch.inf), torch.full_like(x, torch.inf), x.clone(), x.clone()]
    cases[3][31_111, 3] = torch.nan
    cases[4][[20_000, 30_000], [5, 2]] = 1.0
    for case in cases:
        for have, want in zip(flat(graph(case)), function(case), strict=True):
            assert torch.equal(have, want)


def test_a_sum_is_the_same_with_any_number_of_threads() -> None:
    x, before = torch.randn(40_000, 24), torch.get_num_threads()

    def function(x: Tensor) -> list[Tensor]:
        return [x.sum(), x.sum(0), x.var(0), x.t().contiguous().sum(1)]

    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(flat(compiled(function, (x,))(x)))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_many_results_are_units_of_their_own() -> None:
    for shape in ((5000, 2000), (40, 12)):
        (kernel,) = compiled(lambda x: x.sum(0), (torch.ones(shape),)).kernels
        assert "share(" not in kernel.source
