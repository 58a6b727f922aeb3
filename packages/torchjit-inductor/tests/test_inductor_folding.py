"""Parts of a graph that depend on no input are computed when it is compiled."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from inductor_testing import cache_dir, check, sample, trace
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor import Inductor, InductorSettings
from torchjit_inductor.folding import fold_constants

Tensor = torch.Tensor


def _encoding(n: int) -> Tensor:
    at = torch.arange(n, dtype=torch.float32)[:, None] / 100 ** (torch.arange(8) / 8)
    return torch.cat([at.sin(), at.cos()], 1)


def test_position_encodings_are_computed_once() -> None:
    graph = check(lambda x: x + _encoding(12), [sample(2, 12, 16)], kernels=1)
    assert "sin" not in graph.kernels[0].source.split("namespace", 1)[1]


def test_what_costs_nothing_stays_a_formula() -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.where(torch.ones(12, 12).triu(1) > 0, -1.0, x) * torch.arange(12)

    assert not fold_constants(trace(fn, [sample(12, 12)])).values
    check(fn, [sample(12, 12)], kernels=1)


def test_masks_of_operators_are_made_once() -> None:
    def fn(x: Tensor) -> Tensor:
        mask = torch.full((20, 20), float("-inf")).triu(1)
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    check(fn, [sample(1, 2, 20, 8)], kernels=0, aten=None)


def test_results_are_new_in_every_call() -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        made = _encoding(6)
        return x + made, made, made[2:], made.t(), torch.tensor([1.0, 2.0]).exp()

    graph = check(fn, [sample(6, 16)])
    for result in graph(sample(6, 16)):
        result.zero_()
    for got, want in zip(graph(sample(6, 16)), fn(sample(6, 16))):
        torch.testing.assert_close(got, want)


def test_an_alias_by_an_operator_is_a_result_of_its_own() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        made = torch.linspace(0, 1, 4, dtype=torch.complex64)
        return x + made.real, torch.view_as_real(made)

    graph = check(fn, [sample(4)], aten=None)
    graph(sample(4))[1].zero_()
    torch.testing.assert_close(list(graph(sample(4))), list(fn(sample(4))))


def test_random_numbers_held_tensors_and_large_results_are_not_folded() -> None:
    held = sample(4)

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        return x + torch.rand(4), x + held.sin(), torch.arange(2_000_000.0).sin()[:4] + x

    traced = make_fx(fn, tracing_mode="fake", _allow_non_fake_inputs=True)(sample(4))
    assert not fold_constants(traced).values
    graph = Inductor(InductorSettings(cache_dir=cache_dir()))(traced, [sample(4)])
    before = graph(sample(4))
    held.add_(1)
    after = graph(sample(4))
    assert not torch.equal(before[0], after[0])
    torch.testing.assert_close(after[1], sample(4) + held.sin())


def test_small_parts_of_what_spreads_out() -> None:
    """An encoding that is added to itself over two axes is kept along each axis."""

    def fn(x: Tensor) -> Tensor:
        part = torch.arange(40.0).sin()
        return x + (part[:, None] + part[None]) * 2

    found = fold_constants(trace(fn, [sample(40, 40)])).values
    assert {v.numel() for v in found.values()} == {40} and len({v.data_ptr() for v in found.values()}) == 1
    check(fn, [sample(40, 40)], kernels=1)
