"""Graphs that are compiled under `inference_mode`: the operators of `no_grad`, and results of the caller's mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torchjit_aot import AotSettings, aot_function, default_decompositions


def program(x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> Any:
    y = F.max_pool2d(F.batch_norm(F.conv2d(x, w), mean, var), 2)
    x.mul_(2)
    return F.linear(y.flatten(1), torch.ones(3, 16)), y[0]


def operators(mode: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[list[str], Any]:
    """What the compiled graph calls, and its results."""
    seen: list[str] = []

    def compiler(gm: torch.fx.GraphModule, _: Any) -> Any:
        seen.extend(str(n.target) for n in gm.graph.nodes if n.op == "call_function")
        return gm

    settings = AotSettings(fallback=False, decompositions=default_decompositions())
    with mode():
        return seen, aot_function(program, fw_compiler=compiler, settings=settings)(*inputs)


@pytest.mark.parametrize("made_in", [torch.no_grad, torch.inference_mode])
def test_composite_operators_are_taken_apart(made_in: Any) -> None:
    def inputs() -> tuple[torch.Tensor, ...]:
        torch.manual_seed(0)
        with made_in():
            return torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3), torch.randn(4), torch.rand(4) + 0.5

    given, plain = inputs(), inputs()
    ops, results = operators(torch.inference_mode, given)
    assert ops == operators(torch.no_grad, inputs())[0]
    assert not {"aten.conv2d.default", "aten.linear.default", "aten.batch_norm.default"} & {*ops}
    with torch.inference_mode():
        expected = program(*plain)
    for have, want in zip(results, expected, strict=True):
        torch.testing.assert_close(have, want)
        assert have.is_inference() == want.is_inference()
    torch.testing.assert_close(given[0], plain[0])  # written in place


def test_modules_are_unchanged_by_compilation() -> None:
    module = nn.Linear(4, 4)
    with torch.inference_mode():
        aot_function(lambda x: module(x).relu())(torch.ones(2, 4))
    module(torch.ones(2, 4)).sum().backward()
    assert module.weight.grad is not None
