"""Linear layers with 8-bit weights: which become one operator, and what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import cache_dir, compiled, flat, sample, trace

from torchjit_inductor.benchmark_choice import AutotuneCache
from torchjit_inductor.quantized import with_packed_products

BF16 = torch.bfloat16


class Always(AutotuneCache):
    """The first way wins; but both run."""

    def times(self, key: Any, contest: Any) -> tuple[float, float]:
        for way in contest():
            way()
        return 1.0, 2.0


def weights(columns: int, depth: int) -> tuple[torch.Tensor, torch.Tensor]:
    return sample(columns, depth, dtype=torch.int8, low=-127, high=127), sample(columns, low=0.001, high=0.01).to(BF16)


def linear(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w.to(x.dtype)) * s + 1


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AutotuneCache, "times", Always.times)


TAKEN: dict[str, Callable[..., Any]] = {
    "linear": linear,
    "scale first": lambda x, w, s: s * F.linear(x, w.to(x.dtype)),
    "turned and then converted": lambda x, w, s: (x.flatten(0, -2) @ w.t().to(x.dtype)) * s,
    "scale computed between": lambda x, w, s: F.linear(x, w.to(x.dtype)) * (s * 2),
    "twice": lambda x, w, s: [linear(x, w, s), linear(x + 1, w, s)],
}


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("rows", [(3,), (2, 5)], ids=str)
@pytest.mark.usefixtures("packed")
def test_the_operator_is_taken(name: str, rows: tuple[int, ...]) -> None:
    fn, (w, s) = TAKEN[name], weights(24, 64)
    inputs = (sample(*rows, 64).to(BF16), w, s)
    graph = compiled(fn, inputs)
    assert "_weight_int8pack_mm" in graph.source
    assert "aten_mm" not in graph.source
    for got, want in zip(flat(graph(*inputs)), flat(fn(*(t.double() for t in inputs)))):
        assert got.shape == want.shape
        torch.testing.assert_close(got.double(), want, rtol=0.02, atol=0.02 * want.abs().max().item())


LEFT: dict[str, tuple[Callable[..., Any], tuple[int, int], torch.dtype]] = {
    "float32": (linear, (24, 64), torch.float32),
    "odd depth": (linear, (24, 61), BF16),
    "two users": (lambda x, w, s: [(y := F.linear(x, w.to(x.dtype))) * s, y], (24, 64), BF16),
    "no scale of rows": (lambda x, w, s: F.linear(x, w.to(x.dtype)) * s[:1], (24, 64), BF16),
    "not transposed": (lambda x, w, s: (x @ w.to(x.dtype)) * s, (64, 64), BF16),
    "scaled weight": (lambda x, w, s: F.linear(x, w.to(x.dtype) * s[:, None]), (24, 64), BF16),
}


@pytest.mark.parametrize("name", LEFT)
def test_others_stay_as_they_are(name: str) -> None:
    fn, shape, dtype = LEFT[name]
    w, s = weights(*shape)
    gm = trace(fn, (sample(3, shape[1]).to(dtype), w, s.to(dtype)))
    assert with_packed_products(gm, Always(cache_dir())) is gm
