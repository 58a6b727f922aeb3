"""Random numbers from seeds: the generator itself, their distribution, and that the backward draws the forward's again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchjit_aot import AotSettings, aot_function
from torchjit_aot.functional_random import philox
from torchjit_core.events import listen

SEEDED = AotSettings(functional_random=True, fallback=False)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0), 0, (0xFF1DAE59, 0x6CD10DF2)),
        ((0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFF, (0x2C3F628B, 0xAB4FD7AD)),
        ((0x243F6A88, 0x85A308D3), 0x13198A2E, (0xDD7CE038, 0xF62A4C12)),
    ],
)
def test_philox_gives_the_known_answers_of_its_authors(
    counter: tuple[int, int], key: int, words: tuple[int, int]
) -> None:
    seed = counter[1] << 32 | key
    seed -= (seed >> 63) << 64
    left, right = philox(torch.tensor(counter[0]), torch.tensor(seed))
    assert (left.item(), right.item()) == words


def dropouts(x: torch.Tensor) -> Any:
    return F.dropout(x.sin(), 0.3), x * torch.rand_like(x)


def test_the_backward_draws_the_same_numbers_and_only_seeds_are_saved() -> None:
    saved: list[Any] = []
    with listen(lambda kind, fields: saved.extend(fields["tensors"]) if kind == "saved_tensors" else None):
        compiled = aot_function(dropouts, settings=SEEDED)
        x = torch.linspace(0.1, 1.0, 4096).requires_grad_()
        dropped, scaled = compiled(x)
    assert sorted(t["bytes"] for t in saved) == [16, x.numel() * 4]  # two seeds, and the input
    for result, factor in ((dropped, x.cos() / 0.7 * (dropped != 0)), (scaled, scaled / x)):
        (gradient,) = torch.autograd.grad(result.sum(), x, retain_graph=True)
        torch.testing.assert_close(gradient, factor.detach())


def test_the_seeds_come_from_the_default_generator() -> None:
    compiled = aot_function(dropouts, settings=SEEDED)
    x = torch.ones(256)
    torch.manual_seed(7)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(7)
    again = compiled(x)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def many(x: torch.Tensor) -> Any:
    return (
        torch.rand(x.shape, dtype=x.dtype),
        torch.rand_like(x),
        x.new_empty(x.shape).uniform_(0, 1),
        torch.randn(x.shape, dtype=x.dtype),
        torch.randn_like(x),
        x.new_empty(x.shape).normal_(0, 1),
        torch.bernoulli(x, 0.25),
        torch.bernoulli(torch.full_like(x, 0.25)),
        torch.ops.aten.native_dropout(x + 3, 0.25, True)[0],
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_distributions(dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    x = torch.zeros(200, 300, dtype=dtype).t()
    results = aot_function(many, settings=SEEDED)(x)
    moments = [(0.5, 1 / 12**0.5)] * 3 + [(0.0, 1.0)] * 3 + [(0.25, 0.1875**0.5)] * 2 + [(3.0, 3 * (1 / 3) ** 0.5)]
    for result, (mean, deviation) in zip(results, moments, strict=True):
        assert result.dtype == dtype
        values = result.double()
        assert abs(values.mean() - mean) < 0.02 and abs(values.std() - deviation) < 0.02
    for result in results[:3]:
        assert result.min() >= 0 and result.max() < 1
    assert [r.stride() for r in results] == [r.stride() for r in many(x)]
    flat = [r.reshape(-1).double() for r in results[:6]]
    correlations = torch.corrcoef(torch.stack([*flat, flat[0].roll(1)]))
    assert (correlations - torch.eye(7)).abs().max() < 0.03


def test_what_has_no_rule_draws_as_eager_pytorch_does() -> None:
    def f(x: torch.Tensor) -> Any:
        return torch.multinomial(x, 3), torch.randperm(5)

    def drawn(run: Any, *args: Any) -> Any:
        torch.manual_seed(3)
        return run(*args)

    x = torch.rand(4, 6)
    have = drawn(aot_function(f, settings=SEEDED), x)
    assert all(torch.equal(a, b) for a, b in zip(have, drawn(f, x), strict=True))


def test_a_generator_of_the_program_is_left_to_eager_pytorch() -> None:
    generator = torch.Generator()
    compiled = aot_function(lambda x: x + torch.rand(2, generator=generator), settings=AotSettings())
    generator.manual_seed(1)
    have = compiled(torch.zeros(2))
    assert torch.equal(have, torch.rand(2, generator=generator.manual_seed(1)))
