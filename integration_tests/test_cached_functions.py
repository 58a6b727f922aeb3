"""Functions under `functools.lru_cache` that are called with sizes that vary: what their cache keeps is what eager PyTorch finds there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchjit

SIZES = (3, 3, 4, 4, 5, 5, 4, 3)


def noise_of() -> Callable[[torch.Tensor], torch.Tensor]:
    @functools.lru_cache(None)
    def noise(n: int) -> torch.Tensor:
        return torch.ones(n) * torch.randn(n)

    return lambda x: x + noise(x.shape[0])


def noise_below_another() -> Callable[[torch.Tensor], torch.Tensor]:
    @functools.lru_cache(None)
    def noise(n: int) -> torch.Tensor:
        return torch.randn(n)

    @functools.lru_cache(None)
    def table(n: int) -> torch.Tensor:
        return noise(n) * 2

    return lambda x: x + table(x.shape[0])


def sums_of() -> Callable[[torch.Tensor], torch.Tensor]:
    @functools.lru_cache(None)
    def buffer(n: int) -> torch.Tensor:
        return torch.zeros(n)

    def f(x: torch.Tensor) -> torch.Tensor:
        sums = buffer(x.shape[0])
        sums += x.sin()
        return sums.clone()

    return f


def sums_through_a_view() -> Callable[[torch.Tensor], torch.Tensor]:
    @functools.lru_cache(None)
    def buffer(n: int) -> torch.Tensor:
        return torch.zeros(2, n)

    def f(x: torch.Tensor) -> torch.Tensor:
        sums = buffer(x.shape[0])
        sums[0].add_(x)
        return sums * 2

    return f


def writes_outside() -> Callable[[torch.Tensor], torch.Tensor]:
    counts = torch.zeros(2)

    @functools.lru_cache(None)
    def counted(n: int) -> torch.Tensor:
        counts.add_(1)
        return torch.ones(n)

    return lambda x: x * counted(x.shape[0]) + counts.sum()


PROGRAMS = [noise_of, noise_below_another, sums_of, sums_through_a_view, writes_outside]


@pytest.mark.parametrize("make", PROGRAMS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_one_result_for_each_size(make: Callable[[], Any], dynamic: bool | None) -> None:
    torch.manual_seed(0)
    plain = make()
    wanted = [plain(torch.arange(float(n))) for n in SIZES]
    torch.manual_seed(0)
    compiled = torchjit.compile(make(), backend="eager", dynamic=dynamic)
    for n, want in zip(SIZES, wanted, strict=True):
        torch.testing.assert_close(compiled(torch.arange(float(n))), want)


def causal(x: torch.Tensor) -> torch.Tensor:
    return x @ mask(x.shape[0])


@functools.lru_cache(None)
def mask(n: int) -> torch.Tensor:
    with torch.no_grad():
        made = torch.ones(n, n)
        made[0] = 2  # its own
        return made.tril()


def test_a_table_that_follows_from_the_size_stays_in_the_graph() -> None:
    compiled: Any = torchjit.compile(causal, backend="eager", fullgraph=True)
    for n in SIZES:
        torch.testing.assert_close(compiled(torch.ones(n)), causal(torch.ones(n)))
    assert len(compiled.compiled.stats.regions) == 2


@pytest.mark.parametrize(
    ("make", "what", "line"),
    [(noise_of, "it draws random numbers", "torch.randn(n)"), (sums_of, "its result is written to", "sums += x.sin()")],
)
def test_the_break_tells_what_shows_and_where(make: Callable[[], Any], what: str, line: str) -> None:
    with pytest.raises(torchjit.exc.Unsupported) as info:
        torchjit.compile(make(), backend="eager", dynamic=True, fullgraph=True)(torch.ones(7))
    error = info.value
    assert error.reason.id == "TJ-FX-033" and what in str(error) and line in str(error)
