"""The six kinds of fx nodes: which capture emits, and which the later stages accept (the table of docs/learn/walkthrough.md)."""

# mypy: no-warn-return-any

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn

import torchjit
import torchjit_aot
from torchjit_core import events

PAGE = Path(__file__).parent.parent / "docs" / "learn" / "walkthrough.md"
CONSTANT = torch.tensor([1.0, 2.0, 3.0])


def _table() -> dict[str, tuple[bool, bool, bool]]:
    """By opcode: does capture emit it, do the stages accept it, is it in their own graphs?"""
    rows = re.findall(r"^\| `(\w+)` \| (yes|no)\b.*? \| (yes|no)\b.*? \| (yes|no)\b.*? \|$", PAGE.read_text(), re.M)
    return {name: tuple(word == "yes" for word in said) for name, *said in rows}


class Net(nn.Module):
    """Parameters, buffers, submodules, containers, a method, a size, a constant made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.LayerNorm(3))])
        self.register_buffer("offset", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        x = (x + self.offset + CONSTANT).reshape(x.shape[0], -1)
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x * torch.tensor([1.0, 2.0, 3.0]),))


def test_the_page_lists_all_six() -> None:
    assert set(_table()) == set(fx.node._legal_ops) - {"root"}


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_capture_emits(dynamic: bool) -> None:
    told = torchjit.explain(Net(), dynamic=dynamic)(torch.randn(2, 3))
    emitted = {node.op for graph in told.graphs for node in graph.graph.nodes}
    assert told.graph_break_count == 0
    assert emitted == {name for name, (emits, _, _) in _table().items() if emits}


def _all_six() -> fx.GraphModule:
    """relu(linear(x)) * weight + sin(x), each call of another kind."""
    root = nn.Module()
    root.linear, root.weight = nn.Linear(3, 3), nn.Parameter(torch.rand(3))
    graph = fx.Graph()
    x = graph.placeholder("x")
    called = graph.call_method("relu", (graph.call_module("linear", (x,)),))
    scaled = graph.call_function(torch.mul, (called, graph.get_attr("weight")))
    graph.output((graph.call_function(torch.add, (scaled, graph.call_method("sin", (x,)))),))
    assert {node.op for node in graph.nodes} == set(fx.node._legal_ops) - {"root"}
    return fx.GraphModule(root, graph)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_what_backends_accept(backend: str) -> None:
    gm = _all_six()
    assert all(accepts for _, accepts, _ in _table().values())
    x = torch.randn(2, 3, requires_grad=True)
    (want,) = gm(x)
    wanted = torch.autograd.grad(want.sum(), [x, *gm.parameters()])
    (got,) = torchjit.lookup_backend(backend)(gm, [x])(x)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), [x, *gm.parameters()]), wanted)


def test_what_a_compiler_behind_aot_autograd_gets() -> None:
    seen: set[str] = set()

    def compiler(gm: fx.GraphModule, example_inputs: Any, **about: Any) -> Any:
        seen.update(node.op for node in gm.graph.nodes)
        return torchjit_aot.run_eagerly(gm, example_inputs, **about)

    class WithConstant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = _all_six()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)[0] + torch.tensor([1.0, 2.0, 3.0])

    def backend(gm: fx.GraphModule, example_inputs: Any) -> Any:
        return torchjit_aot.compile(gm, example_inputs, compiler=compiler)

    joint: list[str] = []
    with events.listen(lambda kind, fields: joint.append(fields["code"]) if kind == "graph" else None):
        torchjit.compile(WithConstant(), backend=backend)(torch.randn(2, 3, requires_grad=True)).sum().backward()
    assert joint
    assert seen == {name for name, (_, _, gets) in _table().items() if gets}
