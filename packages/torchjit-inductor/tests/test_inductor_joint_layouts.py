"""The layout pass: the same values, other strides, padded products. For GPUs on fake CUDA tensors; run on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import cache_dir, trace
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor import Inductor, InductorSettings, LayoutPlan, convolution_layouts, joint_layouts

BF = torch.bfloat16
aten = torch.ops.aten


def planned(
    function: Callable[..., Any], *inputs: torch.Tensor, device: str = "cuda"
) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """The graph of a function as traced, and after the pass."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [torch.empty_like(x, device=device) for x in inputs]
        before, after = make_fx(function)(*fakes), make_fx(function)(*fakes)
        results = next(n for n in after.graph.nodes if n.op == "output").all_input_nodes
        with mode:
            LayoutPlan()(after.graph, frozenset(results))
    after.graph.lint()
    after.recompile()
    return before, after


def check(function: Callable[..., Any], *inputs: torch.Tensor) -> torch.fx.GraphModule:
    """The pass changes no value (beyond rounding) and no stride that was promised. Gives the changed graph."""
    before, after = planned(function, *inputs)
    want, got = before(*inputs), after(*inputs)
    for w, g in zip(*(x if isinstance(x, (tuple, list)) else (x,) for x in (want, got)), strict=True):
        torch.testing.assert_close(g, w, rtol=2e-2, atol=2e-2)
    for old, new in zip(*(next(n for n in g.graph.nodes if n.op == "output").all_input_nodes for g in (before, after)), strict=True):  # fmt: skip  # noqa: E501
        if new.target is not aten.slice.Tensor:  # a cut result is copied into the promised strides by lowering
            assert new.meta["val"].stride() == old.meta["val"].stride()
    return after


def targets(gm: torch.fx.GraphModule) -> list[Any]:
    return [n.target for n in gm.graph.nodes if n.op == "call_function"]


@pytest.fixture(autouse=True)
def _all_products_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_layouts, "_WORTH", 0)


def small(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes))).mul(0.1).to(BF)


@pytest.mark.parametrize("bias", [False, True])
def test_a_product_of_unaligned_columns_is_padded(bias: bool) -> None:
    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        y = torch.addmm(b, x, w.t()) if bias else x @ w.t()
        return y * 2, y.sum(0)

    after = check(function, small(264, 64), small(301, 64), small(301))
    product = next(n for n in after.graph.nodes if n.target in (aten.mm.default, aten.addmm.default))
    assert product.meta["val"].shape == (264, 304)
    assert aten.slice.Tensor in targets(after)


def _scored(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    """A result that the user gets and that a loss reads."""
    logits = torch.addmm(b, x.tanh(), w.t()).view(2, -1, w.shape[0])
    return logits, logits.float().logsumexp(-1).mean()


@pytest.fixture
def _blocks_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_layouts, "_TILES", 1)
    monkeypatch.setattr(joint_layouts, "_LARGE_RESULT", 0)


SCORED = (small(1024, 64), small(301, 64), small(301))


@pytest.mark.usefixtures("_blocks_of_few")
def test_a_padded_result_that_is_promised_is_computed_in_blocks() -> None:
    after = check(_scored, *SCORED)
    products = [n.meta["val"].shape for n in after.graph.nodes if n.target is aten.addmm.default]
    # 296 columns are whole rows of 16 bytes; the other five are products of their own, and no weight is copied.
    assert products == [(1024, 1)] * 5 + [(128, 296)] * 8
    assert aten.constant_pad_nd.default not in targets(after)
    # A matrix whose columns are not contiguous is padded.
    other = check(lambda x, w, b: _scored(x, w.t(), b), SCORED[0], small(64, 301), SCORED[2])
    assert [n.meta["val"].shape for n in other.graph.nodes if n.target is aten.addmm.default] == [(128, 304)] * 8
    # A result that stays inside is padded as a whole, and so are few rows.
    inside = check(lambda *inputs: _scored(*inputs)[1], *SCORED)
    assert sum(n.target is aten.addmm.default for n in inside.graph.nodes) == 1
    few = check(_scored, small(1028, 64), *SCORED[1:])
    assert sum(n.target is aten.addmm.default for n in few.graph.nodes) == 1


@pytest.mark.usefixtures("_blocks_of_few")
def test_no_more_than_one_block_lives_beside_the_promised_result() -> None:
    _, after = planned(_scored, *SCORED)
    for node in after.graph.nodes:  # through lowering, kernels and the host program, on the CPU
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor):
            with FakeTensorMode():
                node.meta["val"] = torch.empty_strided(val.shape, val.stride(), dtype=val.dtype)
    graph = Inductor(InductorSettings(cache_dir=cache_dir()))(after, SCORED)
    logits, score = graph(*SCORED)
    want = _scored(*SCORED)
    torch.testing.assert_close(logits, want[0], rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(score, want[1], rtol=2e-2, atol=2e-2)
    assert logits.is_contiguous()
    lines = [line.strip() for line in graph.source.splitlines()]
    assert sum(line.startswith("aten_addmm") for line in lines) == 13, graph.source
    # The blocks are one another's memory: one allocation of 128 rows, and none of all rows.
    assert sum("((128, 296)" in line and "empty_cpu" in line for line in lines) == 1, graph.source
    assert not any("(1024, 29" in line or "(1024, 304)" in line for line in lines)


def test_products_of_a_backward_share_the_padded_matrix() -> None:
    def function(d: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
        d = d * 3
        return d @ w, d.t() @ x

    after = check(function, small(264, 301), small(264, 64), small(301, 64))
    pads = [n for n in after.graph.nodes if n.target is aten.constant_pad_nd.default]
    assert len(pads) == 2  # of d and of w
    assert len(pads[0].users) == 2 or len(pads[1].users) == 2


def test_aligned_and_float32_products_stay() -> None:
    assert aten.constant_pad_nd.default not in targets(check(lambda x, w: x @ w, small(264, 64), small(64, 304)))
    wide = (small(264, 64).float(), small(64, 301).float())
    assert aten.constant_pad_nd.default not in targets(check(lambda x, w: x @ w, *wide))


def test_convolutions_go_channels_last_between_the_promised_ends() -> None:
    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, v: torch.Tensor) -> Any:
        y = F.relu(F.conv2d(x, w, b, padding=1))
        return F.conv2d(y, v) + 1, y.flatten(2)

    after = check(function, small(2, 8, 6, 6), small(32, 8, 3, 3), small(32), small(24, 32, 1, 1))
    convolutions = [n for n in after.graph.nodes if n.target is aten.convolution.default]
    assert all(n.args[2] is None and n.meta[convolution_layouts.CHANNELS_LAST] for n in convolutions)
    relu = next(n for n in after.graph.nodes if n.target is aten.relu.default)
    assert relu.meta["val"].is_contiguous(memory_format=torch.channels_last)


def test_bias_gradients_of_convolutions_are_sums() -> None:
    def function(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
        made = aten.convolution_backward(g, x, w, [32], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True])
        return made[0] * 2, made[1] + 1, made[2] - 1

    after = check(function, small(2, 32, 6, 6), small(2, 8, 6, 6), small(32, 8, 3, 3))
    assert aten.sum.dim_IntList in targets(after)
    backward = next(n for n in after.graph.nodes if n.target is aten.convolution_backward.default)
    assert backward.args[10] == [True, True, False]


# ------------------------------------------------------------------------------------------------ on the CPU
def _step(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> Any:
    """Forward and backward of a small net, with a bias, a pooling and a mean."""
    y = aten.convolution(x, w, w.sum((1, 2, 3)), [1, 1], [1, 1], [1, 1], False, [0, 0], 1).sigmoid()
    z = F.avg_pool2d(y, 2)
    h = (z - z.mean((2, 3), keepdim=True)) * g
    d = aten.avg_pool2d_backward(h, y, [2, 2], [2, 2], [0, 0], False, True, None) * y
    made = aten.convolution_backward(d, x, w, [w.shape[0]], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3)
    return z, made[0] + 1, made[1], made[2]


def _layouts(gm: torch.fx.GraphModule) -> list[bool]:
    last = torch.channels_last
    return [n.meta["val"].is_contiguous(memory_format=last) for n in gm.graph.nodes if n.target is aten.sigmoid.default]


def test_a_training_step_on_the_cpu_goes_channels_last_where_activations_outweigh_weights() -> None:
    x, w, g = torch.randn(2, 8, 12, 12), torch.randn(6, 8, 3, 3), torch.randn(2, 6, 6, 6)
    _, after = planned(_step, x, w, g, device="cpu")
    assert _layouts(after) == [True]
    _, after = planned(_step, x[..., :2, :2], w, g[..., :1, :1], device="cpu")
    assert _layouts(after) == [False]  # 8 images of 2 x 2 are less than the weights

    rearranged: list[tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = [
        (lambda x: x[:, 4:].exp(), True),
        (lambda x: torch.cat([x, x.exp()], 1), True),
        (lambda x: torch.cat([x, x.exp(), x.sin()], 1), False),
        (lambda x: x.view(2, 2, 4, 12, 12).transpose(1, 2).exp(), False),
    ]
    for made, wanted in rearranged:

        def beside(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> Any:
            return *_step(x, w, g), made(x)  # noqa: B023  called before the next one

        _, after = planned(beside, x, w, g, device="cpu")
        assert _layouts(after) == [wanted]
    _, after = planned(lambda x, w: F.conv2d(x, w).sigmoid(), x, w, device="cpu")
    assert _layouts(after) == [False]  # inference: races decide


def test_the_only_convolution_of_a_step_on_the_cpu_keeps_its_layout() -> None:
    options: list[Any] = [[1, 1], [1, 1], [1, 1], False, [0, 0], 1]
    x, w, g = torch.randn(2, 6, 12, 12), torch.randn(6, 6, 3, 3), torch.randn(2, 6, 12, 12)

    def step(behind: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> Any:
        y = behind(aten.convolution(x, w, None, *options).sigmoid())
        made = aten.convolution_backward(g * y.sum(), x, w, [0], *options, [True, True, False])
        return y, made[0], made[1]

    cases: list[tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = [
        (lambda y: y.softmax(1), False),
        (lambda y: y.view(2, 6, 144).sin(), False),
        (lambda y: F.max_pool2d(y, 2), True),
        (lambda y: aten.convolution(y, w, None, *options), True),
        (lambda y: F.layer_norm(y.permute(0, 2, 3, 1), (6,)), True),
    ]
    for behind, wanted in cases:
        before, after = planned(functools.partial(step, behind), x, w, g, device="cpu")
        assert _layouts(after) == [wanted]
        for got, want in zip(after(x, w, g), before(x, w, g), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_a_channels_last_step_computes_the_same() -> None:
    """Through lowering, kernels and oneDNN: results, and the strides that were promised."""
    inputs = (torch.randn(2, 8, 12, 12), torch.randn(6, 8, 3, 3), torch.randn(2, 6, 6, 6))
    gm = trace(_step, inputs)
    results = frozenset(next(n for n in gm.graph.nodes if n.op == "output").all_input_nodes)
    with next(n.meta["val"].fake_mode for n in gm.graph.nodes if n.op == "placeholder"):
        LayoutPlan()(gm.graph, results)
    assert any(n.meta.get(convolution_layouts.CHANNELS_LAST) for n in gm.graph.nodes)
    graph = Inductor(InductorSettings(cache_dir=cache_dir()))(gm, inputs)
    for got, want in zip(graph(*inputs), _step(*inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        assert got.stride() == want.stride()
