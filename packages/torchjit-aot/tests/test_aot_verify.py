"""A joint graph that does not hold together is told, under test, after the pass that left it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch import fx

import torchjit_aot.joint_passes
from torchjit_aot import AotSettings, JointGraph, graph_pass, joint_graph
from torchjit_aot.joint_passes import PASSES, JointPass
from torchjit_aot.verify import verify
from torchjit_core.reasons import InvalidIR


def function(x: torch.Tensor, w: torch.Tensor) -> Any:
    return (x * w).sin(), x.cos()


def joint() -> JointGraph:
    return joint_graph(function, [torch.randn(3), torch.randn(3, requires_grad=True)])


def other_graph() -> fx.Node:
    return fx.Graph().placeholder("stranger")


def _without_value(whole: JointGraph) -> JointGraph:
    next(n for n in whole.graph.nodes if n.op == "call_function").meta.pop("val")
    return whole


def _with_a_write(whole: JointGraph) -> JointGraph:
    node = next(n for n in whole.graph.nodes if n.target is torch.ops.aten.cos.default)
    node.target = torch.ops.aten.cos_.default
    return whole


BROKEN: dict[str, tuple[Callable[[JointGraph], JointGraph], str]] = {
    "a lost result": (lambda j: attrs.evolve(j, slots=j.slots[:1]), "1 results"),
    "a lost gradient": (lambda j: attrs.evolve(j, grads=j.grads[:1]), "1 gradients"),
    "a lost tangent": (lambda j: attrs.evolve(j, tangents=()), "0 tangents"),
    "a result of another graph": (lambda j: attrs.evolve(j, slots=(j.slots[0], other_graph())), "a result, stranger"),
    "a gradient of another graph": (lambda j: attrs.evolve(j, grads=(None, other_graph())), "a gradient, stranger"),
    "a new value of another graph": (lambda j: attrs.evolve(j, mutated={0: other_graph()}), "a new value of an input"),
    "no value": (_without_value, "has no value"),
    "a write": (_with_a_write, "writes"),
}


def test_joint_graphs_hold_together() -> None:
    verify(joint())


@pytest.mark.parametrize("name", BROKEN)
def test_what_does_not_hold_together(name: str) -> None:
    change, told = BROKEN[name]
    with pytest.raises(InvalidIR, match=told):
        verify(change(joint()))


def test_every_pass_is_followed_by_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = JointPass(lambda whole, settings, counts: attrs.evolve(whole, tangents=()))
    for place in range(len(PASSES) + 1):
        monkeypatch.setattr(torchjit_aot.joint_passes, "PASSES", (*PASSES[:place], bad, *PASSES[place:]))
        with pytest.raises(InvalidIR, match="tangents"):
            joint()
    monkeypatch.setattr(torchjit_aot.joint_passes, "PASSES", (*PASSES, bad))
    args = [torch.randn(3), torch.randn(3, requires_grad=True)]
    assert joint_graph(function, args, settings=AotSettings(verify=False)).tangents == ()


def test_a_joint_graph_is_frozen_and_passes_give_another() -> None:
    @graph_pass("sin-to-tanh-1")
    def change(graph: fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is torch.ops.aten.sin.default:
                with graph.inserting_before(node):
                    node.replace_all_uses_with(graph.call_function(torch.ops.aten.tanh.default, node.args))

    args = [torch.randn(3), torch.randn(3, requires_grad=True)]
    whole = joint_graph(function, args, settings=AotSettings(joint_passes=(change,)))
    assert isinstance(whole.slots[0], fx.Node) and whole.slots[0].target is torch.ops.aten.tanh.default
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        whole.slots = ()  # type: ignore[misc]
