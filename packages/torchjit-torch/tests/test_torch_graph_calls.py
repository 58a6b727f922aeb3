"""Graphs that are called as they are, from what is stored of them."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import fx

from torchjit_torch.graph_calls import GraphCall, attribute_of


def _again(call: GraphCall) -> GraphCall:
    made: GraphCall = object.__new__(GraphCall)
    made.__restore_state__(call.__stored_state__())
    return made


def test_it_computes_the_same_and_can_be_stored_again() -> None:
    gm = fx.symbolic_trace(lambda x, y: (torch.relu(x) + y.sum(dim=0), x.shape[0]))
    x, y = torch.randn(3, 4), torch.randn(2, 4)
    for call in (GraphCall(gm), _again(GraphCall(gm)), _again(_again(GraphCall(gm)))):
        got, size = call(x, y)
        assert torch.equal(got, torch.relu(x) + y.sum(dim=0)) and size == 3


def test_a_call_of_a_stored_one_is_the_graph_of_this_process_no_more() -> None:
    call = GraphCall(fx.symbolic_trace(lambda x: x + 1))
    assert call.gm is not None and _again(call).gm is None


def test_modules_and_tensors_of_the_graph_are_found_under_their_names() -> None:
    inner = fx.symbolic_trace(lambda x: x * 2)
    root = torch.nn.Module()
    root.part = torch.nn.Module()
    root.part.inner = inner
    root.part.register_buffer("weight", torch.arange(3.0))
    graph = fx.Graph()
    x = graph.placeholder("x")
    weight, called = graph.get_attr("part.weight"), graph.get_attr("part.inner")
    graph.output(graph.call_function(lambda f, x, w: f(x) + w, (called, x, weight)))
    got = _again(GraphCall(fx.GraphModule(root, graph)))(torch.ones(3))
    assert torch.equal(got, torch.tensor([2.0, 3.0, 4.0]))


def test_constants_that_have_no_literal_are_named() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    filled = graph.call_function(torch.where, (graph.call_function(operator.gt, (x, 0)), x, float("-inf")))
    graph.output((filled, graph.call_method("to", (x,), {"dtype": torch.float64, "device": torch.device("cpu")})))
    first, second = _again(GraphCall(fx.GraphModule({}, graph)))(torch.tensor([1.0, -1.0]))
    assert first.tolist() == [1.0, float("-inf")] and second.dtype == torch.float64


def test_what_is_known_of_the_first_write_stays() -> None:
    gm = fx.symbolic_trace(lambda x: x.add_(1))
    call = GraphCall(gm)
    call.__globals__["__torchjit_writes_from__"] = 3
    assert _again(call).__globals__["__torchjit_writes_from__"] == 3


def test_errors_are_those_of_the_operators() -> None:
    made: Any = _again(GraphCall(fx.symbolic_trace(lambda x, y: x @ y)))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            made(torch.ones(2, 3), torch.ones(2, 3))


def test_an_attribute_of_a_module_inside_is_found_and_a_missing_one_is_an_error() -> None:
    root = torch.nn.Module()
    root.part = torch.nn.Module()
    root.part.register_buffer("weight", torch.arange(3.0))
    graph = fx.Graph()
    there, missing = graph.create_node("get_attr", "part.weight"), graph.create_node("get_attr", "part.bias")
    assert attribute_of(root, there) is root.part.weight
    with pytest.raises(AttributeError):
        attribute_of(root, missing)
