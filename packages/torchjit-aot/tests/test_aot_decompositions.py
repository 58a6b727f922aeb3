"""Decomposed graphs against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from aot_harness import graph_of, run_both

import torchjit_aot
from torchjit_aot import AotSettings, aot_function, default_decompositions, joint_graph, run_eagerly

SETTINGS = AotSettings(fallback=False, decompositions=default_decompositions())


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).requires_grad_()


CASES: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("layer_norm", lambda x, w, b: F.layer_norm(x, (6,), w, b), (leaf(2, 5, 6), leaf(6), leaf(6))),
    ("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), (leaf(2, 4, 3, 3), leaf(4), leaf(4))),
    ("softmax", lambda x: x.softmax(-1) + x.log_softmax(0), (leaf(4, 5),)),
    ("gelu", lambda x: F.gelu(x) + F.gelu(x, approximate="tanh"), (leaf(4, 5),)),
    ("activations", lambda x: F.silu(x) + F.hardswish(x) + F.elu(x) + F.softplus(x) + F.mish(x), (leaf(4, 5),)),
    ("cross_entropy", lambda x, y: F.cross_entropy(x, y), (leaf(4, 5), torch.tensor([0, 4, 2, -100]))),
    ("smooth_l1", lambda x, y: F.smooth_l1_loss(x, y) + F.mse_loss(x, y), (leaf(4, 5), leaf(4, 5))),
    ("variance", lambda x: (x.var(0), x.std(), *torch.var_mean(x, 1)), (leaf(4, 5),)),
    ("norms", lambda x: (x.norm(), torch.linalg.vector_norm(x, dim=1)), (leaf(4, 5),)),
    ("indexing", lambda x: (x[1], x[:, 2:4], x.roll(1, 0), torch.stack([x, x * 2])), (leaf(4, 5),)),
    ("embedding", lambda w, i: F.embedding(i, w), (leaf(5, 4), torch.tensor([1, 1, 3]))),
    ("upsample", lambda x: F.interpolate(x, scale_factor=2), (leaf(1, 2, 3, 3),)),
    ("attention", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (leaf(1, 2, 5, 4),)),
    ("dropout", lambda x: F.dropout(x, 0.4), (leaf(8, 8),)),
    (
        "batch_norm",
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, training=True),
        (leaf(4, 3, 2, 2), torch.zeros(3), torch.ones(3), leaf(3), leaf(3)),
    ),
    (
        "batch_norm_evaluation",
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b),
        (leaf(4, 3, 2, 2), torch.zeros(3), torch.ones(3), leaf(3), leaf(3)),
    ),
    ("convolution", lambda x, w: F.avg_pool2d(F.conv2d(x, w).relu(), 2), (leaf(2, 3, 7, 7), leaf(4, 3, 3, 3))),
]


def close(*args: Any, **kwargs: Any) -> None:
    run_both(*args, **kwargs, settings=SETTINGS, exact=False, relate=False)


@pytest.mark.parametrize(("f", "args"), [(f, a) for _, f, a in CASES], ids=[n for n, _, _ in CASES])
def test_equals_eager(f: Callable[..., Any], args: tuple[Any, ...]) -> None:
    close(f, args)


def operators(f: Callable[..., Any], args: Any, settings: AotSettings) -> dict[str, list[Any]]:
    graphs: dict[str, list[Any]] = {}

    def compiler(gm: Any, inputs: Any, **options: Any) -> Any:
        graphs[options["kind"]] = [n.target for n in gm.graph.nodes if n.op == "call_function"]
        for node in gm.graph.nodes:
            assert node.op == "output" or "val" in node.meta
        return run_eagerly(gm, inputs, **options)

    torchjit_aot.compile(graph_of(f, len(args)), args, compiler=compiler, settings=settings)
    return graphs


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_product_in_16_bits_is_not_rounded_before_its_sum(dtype: torch.dtype) -> None:
    args = tuple((leaf(1, 8, 8).detach() * k).to(dtype) for k in (1, 2, 3))
    taken = operators(torch.baddbmm, args, SETTINGS)["inference"]
    assert (torch.ops.aten.baddbmm.default in taken) is (dtype != torch.float32)
    gm = graph_of(torch.baddbmm, 3)
    got = torchjit_aot.compile(gm, args, compiler=run_eagerly, settings=SETTINGS)(*args)
    exact = 1e-5 if dtype == torch.float32 else 0.0
    torch.testing.assert_close(got, torch.baddbmm(*args), rtol=exact, atol=exact)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.3, 1.7), (0, 1.7), (2, -1), (1, 1e-6)])
def test_an_outer_product_in_16_bits_is_rounded_as_eagers(beta: float, alpha: float, dtype: torch.dtype) -> None:
    def f(m: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.addr(m, x, y, beta=beta, alpha=alpha)

    args = tuple((leaf(*shape).detach() * 1.3).to(dtype) for shape in ((48, 64), (48,), (64,)))
    got = torchjit_aot.compile(graph_of(f, 3), args, compiler=run_eagerly, settings=SETTINGS)(*args)
    exact = 1e-5 if dtype == torch.float32 else 0.0
    torch.testing.assert_close(got, f(*args), rtol=exact, atol=exact)


def test_keep_ops_stay() -> None:
    aten = torch.ops.aten
    args = (leaf(2, 6), leaf(6), leaf(6))

    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (6,), w, b).softmax(-1)

    taken = AotSettings(fallback=False, decompositions=default_decompositions())
    kept = AotSettings(
        fallback=False,
        decompositions=default_decompositions(),
        keep_ops=frozenset({aten.native_layer_norm.default, aten._softmax.default}),
    )
    assert aten._softmax.default not in operators(f, args, taken)["forward"]
    assert aten.native_layer_norm.default not in operators(f, args, taken)["forward"]
    assert {aten._softmax.default, aten.native_layer_norm.default} <= set(operators(f, args, kept)["forward"])


def test_random_operators_are_not_in_the_table() -> None:
    from torchjit_torch.operators import is_random, writes_to

    table = default_decompositions()
    assert len(table) > 100
    assert not [op for op in table if is_random(op) or writes_to(op)]


def test_a_template_does_not_confuse_equal_and_distinct_arguments() -> None:
    aten = torch.ops.aten
    settings = AotSettings(fallback=False, decompositions={aten.mul.Tensor: lambda a, b: (a.log() + b.log()).exp()})
    run_both(
        lambda x, y: (x.exp() * x.exp(), (z := x.exp()) * z, x.exp() * y.exp()),
        (leaf(3), leaf(3)),
        settings=settings,
        exact=False,
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_loss_of_images_goes_back_without_a_scatter(reduction: str) -> None:
    scores, classes = torch.randn(2, 5, 4, 6), torch.randint(0, 5, (2, 4, 6))
    classes[0, 0, :3], weights = 3, torch.rand(5)

    for given in ({}, {"weight": weights}, {"ignore_index": 3}, {"weight": weights, "ignore_index": 3}):

        def f(scores: torch.Tensor, classes: torch.Tensor, given: Any = given) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(scores, classes, reduction=reduction, **given)

        settings = AotSettings(fallback=False, decompositions=default_decompositions())
        ours, theirs = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        assert "scatter" not in str(joint_graph(f, [ours, classes], settings=settings).graph)
        got, wanted = aot_function(f, settings=settings)(ours, classes), f(theirs, classes)
        torch.testing.assert_close(got, wanted)
        for result in (got, wanted):
            result.backward(torch.ones_like(result))
        torch.testing.assert_close(ours.grad, theirs.grad)
