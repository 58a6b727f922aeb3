"""What the nodes of the final graphs say about the program: value, source line, sequence number, module; the backward's too."""

# mypy: no-warn-return-any

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

import torchjit
import torchjit_aot


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(self.norm(x)).relu()  # a block


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Sequential(nn.Linear(4, 2), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x * 2)  # the head


def graphs_of(module: nn.Module, x: Tensor) -> dict[str, list[fx.Node]]:
    """The operators of the forward and of the backward graph."""
    found: dict[str, list[fx.Node]] = {}

    def compiler(gm: fx.GraphModule, example_inputs: Sequence[Any], *, kind: Any, **options: Any) -> Any:
        found[kind] = [node for node in gm.graph.nodes if node.op == "call_function"]
        return torchjit_aot.run_eagerly(gm, example_inputs, kind=kind, **options)

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        return torchjit_aot.compile(gm, example_inputs, compiler=compiler)

    torchjit.compile(module, backend=backend)(x).sum().backward()
    return found


def test_every_node_has_its_origin() -> None:
    graphs = graphs_of(Net(), torch.randn(3, 4))
    assert set(graphs) == {"forward", "backward"}
    for nodes in graphs.values():
        for node in nodes:
            assert node.meta["val"] is not None and isinstance(node.meta["seq_nr"], int)
            assert __file__ in node.meta["stack_trace"]
            path = node.meta["module_path"]
            assert ("# a block" if path.startswith("layers.") else "# the head") in node.meta["stack_trace"]
            name, cls = list(node.meta["nn_module_stack"].values())[-1]
            assert name == path and issubclass(cls, nn.Module)


def test_forward_and_backward_of_a_module_meet() -> None:
    graphs = graphs_of(Net(), torch.randn(3, 4))
    leaves = {f"layers.{i}.{name}" for i in range(4) for name in ("norm", "linear")} | {"head.0", "head.1"}
    for nodes in graphs.values():
        assert leaves <= {node.meta["module_path"] for node in nodes}
    numbers = {node.meta["seq_nr"]: node.meta["module_path"] for node in graphs["forward"]}
    for node in graphs["backward"]:
        assert numbers[node.meta["seq_nr"]] == node.meta["module_path"]


def test_a_function_that_calls_modules() -> None:
    layers = [Block(), Block()]

    def f(x: Tensor) -> Tensor:
        return layers[1](layers[0](x)) * 2

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        nodes = [node for node in gm.graph.nodes if node.op in ("call_function", "call_method")]
        paths.extend(node.meta.get("module_path") for node in nodes)
        return gm.forward

    paths: list[Any] = []
    torchjit.compile(f, backend=backend)(torch.randn(3, 4))
    block = ["norm", "linear", "", ""]
    assert [p if p is None else p.removeprefix("0").removeprefix("1").removeprefix(".") for p in paths] == [
        *block,
        *block,
        None,
    ]
