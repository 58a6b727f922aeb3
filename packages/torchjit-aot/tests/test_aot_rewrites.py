"""Each of the package's own rewrites: it happens as often as it should, and the numbers are those of eager PyTorch."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from aot_harness import STRICT, graph_of, run_both
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import torchjit_aot
from torchjit_aot import run_eagerly
from torchjit_aot.rewrites import FUSED, rewrite_graph
from torchjit_core.events import listen

FUSING = attrs.evolve(STRICT, fuse=True)


def counts(f: Callable[..., Any], args: list[Any], settings: Any = STRICT) -> collections.Counter[str]:
    found: collections.Counter[str] = collections.Counter()

    def hear(kind: str, fields: dict[str, Any]) -> None:
        if kind == "rewrites":
            found.update(fields["counts"])

    with listen(hear):
        torchjit_aot.compile(graph_of(f, len(args)), args, compiler=run_eagerly, settings=settings)
    return found


def ones_and_zeros(x: Tensor) -> Any:
    return ((x * 1.0).sin() - 0.0).cos() / 1 + (x.exp() ** 1.0).sin() + torch.cat([x.tan()]).sin()


def adding_zero(x: Tensor) -> Any:
    return 1 / ((x * 0.0).neg() + 0)


def casts(x: Tensor) -> Any:
    return x.sin().bfloat16().float().bfloat16().sin().double().bfloat16().cos(), x.bfloat16().float() * x


def turns(x: Tensor) -> Any:
    return x.sin().t().t().cos(), x.cos().unsqueeze(0).permute(2, 0, 1).transpose(0, 2).sin()


def views(x: Tensor) -> Any:
    return x.sin().view(-1).view(4, 3).cos()


def known(x: Tensor) -> Any:
    scale = torch.ones(3, 4) * 2 + torch.full((3, 4), 0.1)
    return x * scale / scale.sqrt(), x.new_zeros(3, 4).eq(0).to(torch.float32) + x


@pytest.mark.parametrize(
    ("f", "rule", "times"),
    [
        (ones_and_zeros, "multiply by one", 1),
        (ones_and_zeros, "divide by one", 1),
        (ones_and_zeros, "subtract zero", 1),
        (ones_and_zeros, "power one", 1),
        (ones_and_zeros, "concatenation of one", 1),
        (casts, "cast there and back", 2),
        (turns, "permutation of a permutation", 2),
        (views, "view of a view", 1),
    ],
)
def test_exact_rewrites(f: Callable[..., Any], rule: str, times: int) -> None:
    x = torch.randn(3, 4)
    assert counts(f, [x])[rule] == times
    run_both(f, [x])
    run_both(f, [x.requires_grad_()])


def test_known_numbers_are_computed_while_compiling() -> None:
    x = torch.randn(3, 4)
    assert counts(known, [x])["known number"] >= 4
    run_both(known, [x])
    run_both(known, [x.requires_grad_()])


def test_adding_zero_stays() -> None:
    run_both(adding_zero, [torch.ones(3)])  # 1 / (-0.0 + 0) is infinity, not minus infinity


def linear(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return (torch.mm(x, w) + b).relu(), b + torch.mm(x.sin(), w)


def test_product_and_bias() -> None:
    args = [torch.randn(5, 3), torch.randn(3, 4), torch.randn(4)]
    assert counts(linear, args, FUSING)["product and bias"] == 2
    assert counts(linear, args)["product and bias"] == 0
    run_both(linear, args, settings=FUSING, exact=False)
    run_both(linear, [a.requires_grad_() for a in args], settings=FUSING, exact=False)


@pytest.mark.parametrize(
    "bias", [torch.randn(5, 4), torch.randn(()), torch.randn(4, dtype=torch.float64), torch.randn(2, 1, 4)]
)
def test_other_sums_are_not_a_bias(bias: Tensor) -> None:
    def f(x: Tensor, w: Tensor, b: Tensor) -> Any:
        return torch.mm(x, w) + b

    args = [torch.randn(5, 3), torch.randn(3, 4), bias]
    assert counts(f, args, FUSING)["product and bias"] == 0
    run_both(f, args, settings=FUSING)


def test_a_product_that_is_used_elsewhere_stays() -> None:
    def f(x: Tensor, w: Tensor, b: Tensor) -> Any:
        y = torch.mm(x, w)
        return y + b, y

    args = [torch.randn(5, 3), torch.randn(3, 4), torch.randn(4)]
    assert counts(f, args, FUSING)["product and bias"] == 0
    run_both(f, args, settings=FUSING)


def test_a_recomputed_norm_keeps_its_strides() -> None:
    def f(x: Tensor, w: Tensor, b: Tensor, m: Tensor) -> Any:
        return torch.nn.functional.layer_norm(x, (4,), w, b).view(6, 4) @ m

    x = torch.randn(2, 3, 4).transpose(0, 1).requires_grad_()
    args = [x, torch.randn(4), torch.randn(4), torch.randn(4, 4, requires_grad=True)]
    run_both(f, args, settings=attrs.evolve(STRICT, recompute_materialized=True), exact=False)


@pytest.mark.parametrize(
    ("device", "dtype", "times"),
    [
        ("cuda", torch.float32, 0),
        ("cuda", torch.float64, 0),
        ("cuda", torch.bfloat16, 2),
        ("cpu", torch.float32, 2),
        ("cpu", torch.float64, 2),
    ],
    ids=str,
)
def test_a_gpu_product_in_full_precision_stays_the_one_that_eager_calls(
    device: str, dtype: torch.dtype, times: int
) -> None:
    with FakeTensorMode() as mode:
        x, w, b = (torch.empty(s, dtype=dtype, device=device) for s in ((5, 4), (4, 3), (3,)))
        gm = make_fx(lambda x, w, b: [(x @ w + b).relu(), b + x @ w])(x, w, b)
    assert rewrite_graph(gm.graph, FUSED, mode)["product and bias"] == times
    called = [node.target for node in gm.graph.nodes if node.op == "call_function"]
    assert called.count(torch.ops.aten.addmm.default) == times
    assert called.count(torch.ops.aten.mm.default) == 2 - times, "each product is computed once"
