"""Common subexpressions and no-ops."""

from __future__ import annotations

import collections
from typing import Any

import torch
from aot_harness import STRICT, run_both

from torchjit_aot import AotSettings, joint_graph


def counts(f: Any, args: list[torch.Tensor], settings: AotSettings = STRICT) -> collections.Counter[str]:
    graph = joint_graph(f, args, settings=settings).graph
    return collections.Counter(str(n.target) for n in graph.nodes if n.op == "call_function")


def test_equal_calls_are_one() -> None:
    x = torch.randn(3, 4, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 2).exp() + (x.sin() * 2).tanh()

    assert counts(f, [x])["aten.sin.default"] == 1
    assert counts(f, [x], AotSettings(fallback=False, simplify=False))["aten.sin.default"] == 2
    run_both(f, [x])


def test_results_and_random_numbers_stay_apart() -> None:
    x = torch.randn(3, 4)

    def f(x: torch.Tensor) -> Any:
        return x.sin(), x.sin(), torch.rand_like(x) - torch.rand_like(x), x * 0.0, x * -0.0

    a, b, c, d, e = run_both(f, [x])(x)
    assert a.data_ptr() != b.data_ptr()
    assert c.abs().max() > 0
    assert torch.equal(torch.signbit(d), ~torch.signbit(e))


def test_no_ops_go() -> None:
    x = torch.randn(3, 4, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin().view(3, 4).expand(3, 4)[0:3].clone().to(torch.float32)
        return y.cos()

    found = counts(f, [x])
    assert not {"aten.view.default", "aten.expand.default", "aten.clone.default", "aten.slice.Tensor"} & set(found)
    run_both(f, [x])


def test_a_returned_copy_stays_a_copy() -> None:
    x = torch.randn(3, 4)

    def f(x: torch.Tensor) -> Any:
        y = x.sin()
        return y, y.clone(), y.clone().view(12), x.clone()

    run_both(f, [x])
