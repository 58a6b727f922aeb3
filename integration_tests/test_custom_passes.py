"""A user's own graph passes through the options of `torchjit.compile`."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

import torchjit
from torchjit.options import make_options
from torchjit_aot import graph_pass

aten = torch.ops.aten


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2


@graph_pass("sin-to-cos-1")
def torch_level(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos


@graph_pass("aten-sin-to-cos-1")
def aten_level(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if node.target is aten.sin.default:
            node.target = aten.cos.default


class Upstream:
    """As torch.compile's `CustomGraphPass`."""

    def __init__(self) -> None:
        self.graphs: list[int] = []

    def __call__(self, graph: fx.Graph) -> None:
        self.graphs.append(len(graph.nodes))

    def uuid(self) -> str:
        return "counts-1"


def run(options: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(-1, 1, 5).requires_grad_()
    y = torchjit.compile(f, options=options)(x)
    y.sum().backward()
    assert x.grad is not None
    return y.detach(), x.grad


def test_a_pre_grad_pass_is_differentiated() -> None:
    y, grad = run({"pre_grad_custom_pass": torch_level})
    x = torch.linspace(-1, 1, 5)
    torch.testing.assert_close(y, x.cos() * 2)
    torch.testing.assert_close(grad, -x.sin() * 2)


def test_a_joint_pass_is_not_differentiated() -> None:
    y, grad = run({"joint_custom_post_pass": (aten_level,)})
    x = torch.linspace(-1, 1, 5)
    torch.testing.assert_close(y, x.cos() * 2)
    torch.testing.assert_close(grad, x.cos() * 2)


def test_a_pass_in_the_form_of_torch_compile_sees_each_final_graph() -> None:
    counting = Upstream()
    run({"post_grad_custom_post_pass": counting})
    assert len(counting.graphs) == 2


def test_ids_make_options_equal_and_passes_without_one_are_refused() -> None:
    one, two = Upstream(), Upstream()
    name = "post_grad_custom_post_pass"
    assert make_options(None, {name: one}) == make_options(None, {name: two})
    assert make_options(None, {name: one}) != make_options(None, {name: aten_level})
    for bad in (lambda graph: None, "text", Upstream):
        with pytest.raises(torchjit.exc.UserError, match=name):
            make_options(None, {name: bad})
