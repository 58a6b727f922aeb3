"""Inputs of graphs are called what the program calls them, whatever words generated code needs itself."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchjit

TABLE = torch.arange(4.0)


def _names(f: Any, *args: Any, **kwargs: Any) -> list[str]:
    (graph,) = torchjit.explain(f)(*args, **kwargs).graphs
    found = [n for n in graph.graph.nodes if n.op == "placeholder"]
    names = [n.name for n in found]
    assert names == [n.target for n in found] and len(set(names)) == len(names)
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
    return names


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.linear(hidden) * self.scale


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, pixels: torch.Tensor, *more: torch.Tensor, mask: Any = None, **rest: Any) -> torch.Tensor:
        for layer in self.layers:
            pixels = layer(pixels)
        for extra in (*more, *rest.values()):
            pixels = pixels + extra
        return pixels if mask is None else pixels * mask


def traced(f: Callable[..., Any]) -> Any:
    @functools.wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    return wrapper


class Wrapped(nn.Module):
    @traced
    @torch.no_grad()
    def forward(self, pixels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return pixels * mask


class Words:
    def __init__(self) -> None:
        self.table = {"lambda": torch.ones(4), "a.b": torch.ones(4), 1: [torch.ones(4)]}


X = torch.ones(2, 4)
STATE = [f"self_layers_{i}_{name}" for i in (0, 1) for name in ("linear_weight", "linear_bias", "scale")]


def test_a_modules_inputs_are_named_by_forward() -> None:
    assert _names(Net(), X) == ["pixels", *STATE]
    assert _names(Net(), pixels=X) == ["pixels", *STATE]
    assert _names(Net(), X, X + 1, X + 2, mask=X + 3, bias=X + 4) == [
        "pixels",
        *STATE,
        "more_0",
        "more_1",
        "bias",
        "mask",
    ]


def test_names_behind_decorators() -> None:
    assert _names(Wrapped(), X, X + 1) == ["pixels", "mask"]
    assert _names(Wrapped(), X, mask=X + 1) == ["pixels", "mask"]
    assert _names(traced(lambda image, other: image * other), X, X + 1) == ["image", "other"]
    shapes = torchjit.compile(traced(lambda image: image * 2), backend="eager", dynamic_shapes={"image": {0: True}})
    assert torch.equal(shapes(X), X * 2) and torch.equal(shapes(torch.ones(3, 4)), torch.ones(3, 4) * 2)
    assert len(shapes.compiled.specializations) == 1


def test_names_of_what_is_reached_from_arguments_cells_and_globals() -> None:
    cell = torch.ones(4)

    def f(batch: dict[Any, Any], words: Words) -> Any:
        return (
            batch["image"] + batch[0][1] + cell + TABLE + words.table["lambda"] * words.table["a.b"] + words.table[1][0]
        )

    assert _names(f, {"image": X, 0: [None, X + 1]}, Words()) == [
        "batch_image", "batch_0_1", "cell", "TABLE", "words_table_lambda", "words_table_a_b", "words_table_1_0",
    ]  # fmt: skip


def test_names_that_would_be_the_same_get_numbers() -> None:
    def f(batch: dict[str, Any], batch_image: torch.Tensor, add: torch.Tensor, Add: torch.Tensor) -> Any:  # noqa: N803
        return batch["image"] + batch_image * add - Add

    assert _names(f, {"image": X}, X + 1, X + 2, X + 3) == ["batch_image", "add", "batch_image_1", "Add"]


def _hostile_step(words: dict[str, torch.Tensor]) -> torch.Tensor:
    total = words["self"].sin()
    for k, value in enumerate(words.values()):
        total = total + value * (k + 1)
    return (total @ words["inputs"]).softmax(-1)


HOSTILE = (
    "self", "inputs", "call", "grad", "device", "torch", "max", "s0", "s1", "u0", "f0", "tangent0", "constant0", "arg1", "x",
    "x__at", "X", "no_grad", "is_grad", "input", "lambda", "empty_cpu", "aten_mm_out", "n__0", "add_tensor", "fused_add_0",
    "__class__", "1", "", "é", "args", "kwargs", "inf", "getattr", "auto", "double",
)  # fmt: skip


@pytest.mark.parametrize(("backend", "dynamic"), [("eager", False), ("aot_eager", True), ("inductor", True)])
def test_hostile_names(backend: str, dynamic: bool) -> None:
    torch.manual_seed(0)
    given = {name: torch.randn(3, 3) for name in HOSTILE}
    graphs = []
    for f in (_hostile_step, torchjit.compile(_hostile_step, backend=backend, dynamic=dynamic, fullgraph=True)):
        leaves = {name: value.clone().requires_grad_() for name, value in given.items()}
        out = f(leaves)
        out.square().sum().backward()
        graphs.append([out, *(v.grad for v in leaves.values())])
    torch.testing.assert_close(graphs[1], graphs[0])


def test_parameters_with_hostile_names() -> None:
    def f(
        inputs: torch.Tensor,
        call: torch.Tensor,
        torch: torch.Tensor,
        s0: torch.Tensor,
        len: torch.Tensor,
        X: Any,
        x: Any,
    ) -> Any:  # noqa: A002, N803
        return (inputs + call * torch - s0 / len).relu() + X * 2 - x

    args = [torch.rand(2, 3) + 1 for _ in range(7)]
    for backend, dynamic in (("eager", False), ("aot_eager", True), ("inductor", True)):
        compiled = torchjit.compile(f, backend=backend, dynamic=dynamic, fullgraph=True, on_error="raise")
        torch.testing.assert_close(compiled(*args), f(*args))
