"""`freezing`: the constant part, batch norms in convolutions, and that changed parameters are seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import cache_dir, sample, trace

from torchjit_inductor import Inductor, InductorSettings, freeze
from torchjit_inductor.freezing import Frozen

Tensor = torch.Tensor


def frozen(
    fn: Callable[..., Any], inputs: Sequence[Tensor], static: set[int]
) -> tuple[Any, list[torch.fx.GraphModule]]:
    """The function compiled with the inputs at some positions fixed, and the graph that was compiled."""
    rest: list[torch.fx.GraphModule] = []
    inductor = Inductor(InductorSettings(cache_dir=cache_dir()))

    def compile_rest(gm: torch.fx.GraphModule, examples: Sequence[Any], fixed: frozenset[int]) -> Any:
        rest.append(gm)
        return inductor(gm, examples, static_inputs=fixed)

    return freeze(trace(fn, inputs), inputs, frozenset(static), compile_rest), rest


def targets(gm: torch.fx.GraphModule) -> list[str]:
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


def conv_block(x: Tensor, w: Tensor, b: Tensor, gain: Tensor, shift: Tensor, mean: Tensor, var: Tensor) -> list[Tensor]:
    y = F.conv2d(x, w, b, stride=2, padding=1)
    return [torch.ops.aten._native_batch_norm_legit_no_training(y, gain, shift, mean, var, 0.1, 1e-5)[0].relu()]


def block_inputs() -> list[Tensor]:
    x, w, b = sample(2, 3, 12, 12), sample(8, 3, 3, 3), sample(8)
    return [x, w, b, sample(8), sample(8, seed=1), sample(8, seed=2), sample(8, seed=3).abs() + 0.1]


def test_a_batch_norm_becomes_part_of_its_convolution() -> None:
    inputs = block_inputs()
    compiled, (rest,) = frozen(conv_block, inputs, {1, 2, 3, 4, 5, 6})
    assert targets(rest) == ["aten.convolution.default", "aten.relu.default"]
    torch.testing.assert_close(compiled(*inputs)[0], conv_block(*inputs)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("position", range(1, 7))
def test_a_parameter_that_is_written_is_seen_and_the_rest_is_compiled_once(position: int) -> None:
    inputs = block_inputs()
    compiled, rest = frozen(conv_block, inputs, {1, 2, 3, 4, 5, 6})
    compiled(*inputs)
    inputs[position].mul_(1.5)
    torch.testing.assert_close(compiled(*inputs)[0], conv_block(*inputs)[0], rtol=1e-4, atol=1e-4)
    inputs[position] = inputs[position] + 1  # another storage
    torch.testing.assert_close(compiled(*inputs)[0], conv_block(*inputs)[0], rtol=1e-4, atol=1e-4)
    assert len(rest) == 1


def test_a_batch_norm_stays_where_the_convolution_has_other_readers_or_moving_weights() -> None:
    def fn(x: Tensor, w: Tensor, gain: Tensor, shift: Tensor, mean: Tensor, var: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w)
        return [torch.ops.aten._native_batch_norm_legit_no_training(y, gain, shift, mean, var, 0.1, 1e-5)[0], y.sin()]

    x, w, _, gain, shift, mean, var = block_inputs()
    inputs = [x, w, gain, shift, mean, var]
    for fixed in ({1, 2, 3, 4, 5}, {2, 3, 4, 5}):
        compiled, (rest,) = frozen(fn, inputs, fixed)
        assert any("batch_norm" in t for t in targets(rest))
        for have, want in zip(compiled(*inputs), fn(*inputs), strict=True):
            torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4)


def test_what_follows_from_parameters_alone_is_computed_once() -> None:
    def fn(x: Tensor, w: Tensor, s: Tensor) -> list[Tensor]:
        return [x @ (w * s.exp()).t(), x + s]

    inputs = [sample(4, 8), sample(16, 8), sample(8)]
    compiled, (rest,) = frozen(fn, inputs, {1, 2})
    assert isinstance(compiled, Frozen)
    assert sorted(set(targets(rest))) == ["aten.add.Tensor", "aten.mm.default"]
    assert sorted(n.name for n in rest.graph.nodes if n.op == "placeholder")[1:] != ["w_1"]
    first = compiled(*inputs)
    for have, want in zip(first, fn(*inputs), strict=True):
        torch.testing.assert_close(have, want)
    other = sample(4, 8, seed=9)
    torch.testing.assert_close(compiled(other, *inputs[1:])[0], fn(other, *inputs[1:])[0])


def test_results_that_the_user_gets_are_new_in_each_call() -> None:
    def fn(x: Tensor, w: Tensor) -> list[Tensor]:
        scaled = w * 2
        return [scaled, x + scaled.sin()]

    inputs = [sample(8), sample(8)]
    compiled, _ = frozen(fn, inputs, {1})
    first, second = compiled(*inputs)[0], compiled(*inputs)[0]
    first.zero_()
    torch.testing.assert_close(second, inputs[1] * 2)
    torch.testing.assert_close(compiled(*inputs)[0], inputs[1] * 2)


def test_small_weights_stay_small() -> None:
    def fn(x: Tensor, w: Tensor, s: Tensor) -> list[Tensor]:
        return [x @ (w.float() * s)]

    inputs = [sample(4, 8), sample(8, 16, dtype=torch.int8), sample(16)]
    compiled, (rest,) = frozen(fn, inputs, {1, 2})
    assert any(n.meta["val"].dtype == torch.int8 for n in rest.graph.nodes if n.op == "placeholder")
    torch.testing.assert_close(compiled(*inputs)[0], fn(*inputs)[0])


def test_random_numbers_and_written_buffers_are_not_frozen() -> None:
    def fn(x: Tensor, w: Tensor) -> list[Tensor]:
        return [x + torch.bernoulli(w.abs() * 0 + 0.5)]

    inputs = [sample(64), sample(64)]
    compiled, _ = frozen(fn, inputs, {1})
    assert not torch.equal(compiled(*inputs)[0], compiled(*inputs)[0])


def test_tensors_without_versions_are_computed_in_each_call() -> None:
    def fn(x: Tensor, w: Tensor) -> list[Tensor]:
        return [x + w.exp()]

    with torch.inference_mode():
        inputs = [sample(8), sample(8)]
    compiled, _ = frozen(fn, [t.clone() for t in inputs], {1})
    with torch.inference_mode():
        compiled(*inputs)
        inputs[1].mul_(2)
        torch.testing.assert_close(compiled(*inputs)[0], fn(*inputs)[0])


@pytest.mark.parametrize("groups", [1, 4])
def test_many_weights_are_packed_once(groups: int) -> None:
    def fn(x: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w, b, stride=2, padding=1, groups=groups)
        return [y.relu(), y]

    inputs = [sample(1, 64, 8, 8), sample(64 * groups, 64 // groups, 3, 3), sample(64 * groups)]
    compiled, (rest,) = frozen(fn, inputs, {1, 2})
    assert any("mkldnn._convolution_pointwise" in t for t in targets(rest))
    for change in (lambda: None, lambda: inputs[1].mul_(2)):
        change()
        for have, want in zip(compiled(*inputs), fn(*inputs), strict=True):
            torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-3)
            assert have.stride() == want.stride()


def test_few_weights_are_left_to_aten() -> None:
    inputs = [sample(2, 4, 32, 32), sample(4, 4, 3, 3)]
    _, (rest,) = frozen(lambda x, w: [F.conv2d(x, w)], inputs, {1})
    assert targets(rest) == ["aten.convolution.default"]
