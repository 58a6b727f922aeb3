"""Passes that a user adds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aot_harness import graph_of
from torch import fx

import torchjit_aot
from torchjit_aot import AotSettings, graph_pass

aten = torch.ops.aten


def compiled_with(f: Any, args: list[Any], **passes: Any) -> Any:
    settings = AotSettings(fallback=False, eager_backward=True, **passes)
    return torchjit_aot.compile(graph_of(f, len(args)), args, compiler=torchjit_aot.run_eagerly, settings=settings)


@graph_pass("double-sin-1")
def double_sin(graph: fx.Graph) -> None:
    """`sin(x)` to `sin(x) * 2`, with a new node."""
    for node in list(graph.nodes):
        if node.target is aten.sin.default:
            with graph.inserting_after(node):
                twice = graph.call_function(aten.mul.Tensor, (node, 2))
            node.replace_all_uses_with(twice)
            twice.args = (node, 2)


def test_a_joint_pass_changes_results_that_are_returned() -> None:
    x = torch.randn(4, requires_grad=True)
    run = compiled_with(lambda x: x.sin(), [x], joint_passes=(double_sin,))
    assert torch.equal(run(x), x.sin() * 2)


def test_a_post_grad_pass_sees_each_final_graph() -> None:
    seen: list[int] = []

    @graph_pass("count-1")
    def count(graph: fx.Graph) -> None:
        seen.append(sum(n.op == "placeholder" for n in graph.nodes))

    x = torch.randn(4, requires_grad=True)
    run = compiled_with(lambda x: x.sin(), [x], post_grad_passes=(count, double_sin))
    assert torch.equal(run(x), x.sin() * 2)
    assert len(seen) == 2


def test_a_pre_grad_pass_is_differentiated_and_leaves_the_captured_graph() -> None:
    @graph_pass("cos-for-sin-1")
    def cos_for_sin(graph: fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is torch.sin:
                node.target = torch.cos

    graph = fx.Graph()
    a = graph.placeholder("a")
    graph.output(graph.call_function(torch.sin, (a,)))
    gm = fx.GraphModule({}, graph)
    x = torch.randn(4, requires_grad=True)
    settings = AotSettings(fallback=False, pre_grad_passes=(cos_for_sin,))
    run = torchjit_aot.compile(gm, [x], compiler=torchjit_aot.run_eagerly, settings=settings)
    grad = torch.autograd.grad(run(x).sum(), x)[0]
    torch.testing.assert_close(grad, -x.sin())
    assert [n.target for n in gm.graph.nodes][1] is torch.sin


def test_bad_passes_are_refused_and_ids_make_a_key() -> None:
    @graph_pass("breaks-1")
    def breaks(graph: fx.Graph) -> None:
        first = next(n for n in graph.nodes if n.op == "call_function")
        last = [n for n in graph.nodes if n.op == "call_function"][-1]
        first.args = (last,)

    x = torch.randn(4)
    with pytest.raises(ValueError, match="breaks-1"):
        compiled_with(lambda x: x.sin().cos(), [x], joint_passes=(breaks,))
    with pytest.raises(ValueError, match="id"):
        graph_pass("")
