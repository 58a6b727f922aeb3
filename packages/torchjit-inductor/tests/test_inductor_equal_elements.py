"""Sets of equal, or nearly equal, elements: eager finds exactly no variance there, and masks gradients by it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import check, compiled, sample

SHAPES = [(4, 37), (3, 768), (5, 5000), (900, 7), (2, 6, 33)]
NUMBERS = [13.3, 0.1, 1e6 / 3, -20.7]


def norms(x: torch.Tensor) -> list[torch.Tensor]:
    made = [x.var(-1), x.std(0), x.std(), *torch.var_mean(x, 0, correction=0), F.layer_norm(x, x.shape[-1:])]
    return [*made, F.batch_norm(x, None, None, training=True), F.layer_norm(x, x.shape)]


@pytest.mark.parametrize(
    ("shape", "width"), [*((shape, 64) for shape in SHAPES), (SHAPES[0], 16), (SHAPES[0], 32), (SHAPES[3], 32)], ids=str
)
def test_equal_elements_have_no_variance(shape: tuple[int, ...], width: int) -> None:
    inputs = (torch.empty(shape),)
    graph = compiled(norms, inputs, vector_bytes=width)
    for number in NUMBERS:
        x = torch.full(shape, number)
        results = graph(x)
        assert torch.equal(results[4], x[0])
        for k, result in enumerate(results):
            assert k == 4 or result.count_nonzero() == 0, k


@pytest.mark.parametrize("shape", [(40, 37), (40, 1000), (6, 5000), (1000, 24)], ids=str)
@pytest.mark.parametrize("width", [16, 64])
def test_elements_a_few_roundings_apart(shape: tuple[int, int], width: int) -> None:
    """The rounding of the first pass's mean is as large as such deviations, or larger."""
    graph = compiled(lambda x: [x.std(-1), x.std(0), *torch.var_mean(x, -1)], (torch.empty(shape),), vector_bytes=width)
    torch.manual_seed(0)
    equal = (torch.rand(shape[0], 1) * 20 - 10).expand(shape)
    one_apart, several = equal.clone(), equal * (1 + torch.randint(-3, 4, shape) * 1.2e-7)
    one_apart[:, 5] = torch.nextafter(one_apart[:, 5], torch.tensor(torch.inf))
    for x in (one_apart, several):
        exact = x.double()
        wanted = (exact.std(-1), exact.std(0), exact.var(-1), exact.mean(-1))
        for got, want in zip(graph(x), wanted, strict=True):
            torch.testing.assert_close(got.double(), want, rtol=0.2, atol=0)
        torch.testing.assert_close(graph(x)[3], exact.mean(-1).float(), rtol=1e-7, atol=0)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_not_a_number_is_not_lost(number: float) -> None:
    x = sample(6, 700)
    x[2, 13] = number
    check(lambda x: [x.var(-1), torch.var_mean(x, 0)[1], F.layer_norm(x, (700,))], (x,))


def gradient(x: torch.Tensor, g: torch.Tensor) -> list[Any]:
    _, mean, rstd = torch.ops.aten.native_layer_norm(x, x.shape[-1:], None, None, 1e-5)
    return list(
        torch.ops.aten.native_layer_norm_backward(g, x, x.shape[-1:], mean, rstd, None, None, [True, False, False])
    )[:1]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_rounding_of_a_mean_is_no_variance(shape: tuple[int, ...]) -> None:
    """A layer norm does not change when all elements grow alike, so its gradient along equal tangents is 0."""
    graph = compiled(gradient, (torch.empty(shape), torch.empty(shape)))
    for number in (13.3, 0.1, -20.7):
        x = torch.full(shape, number)
        assert graph(x, torch.ones(shape))[0].count_nonzero() == 0
        x[..., 0] = torch.nextafter(x[..., 0], torch.tensor(torch.inf))
        made = graph(x, torch.ones(shape))[0]
        assert made.abs().max() <= 2 * gradient(x, torch.ones(shape))[0].abs().max() + 1e-5


@pytest.mark.parametrize("columns", [8, 768, 5000])
def test_gradients_of_elements_a_few_roundings_apart(columns: int) -> None:
    """The saved mean is off by as much as the elements differ: eager's gradient is wrong by a tenth, the kernel's is not."""
    torch.manual_seed(0)
    x, g = (
        torch.full((6, columns), 1e6 / 3) * (1 + torch.randint(-3, 4, (6, columns)) * 1.2e-7),
        torch.randn(6, columns),
    )
    exact = x.double().requires_grad_()
    (want,) = torch.autograd.grad(F.layer_norm(exact, (columns,)), exact, g.double())
    got = compiled(gradient, (x, g))(x, g)[0].double()
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5 * want.abs().max().item())
