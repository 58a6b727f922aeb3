"""Inputs whose sizes and strides change in place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aot_harness import run_both

from torchjit_aot import AotSettings
from torchjit_core.reasons import GraphBreak


def transposed(x: torch.Tensor, w: torch.Tensor) -> Any:
    x.t_()
    return x @ w


def returned(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x.sin()
    x.unsqueeze_(0)
    return x, x.transpose(0, 1), y.sum() * w.sum()


def written_too(x: torch.Tensor, w: torch.Tensor) -> Any:
    x.add_(1)
    x.transpose_(0, 1)
    x.mul_(2)
    x.squeeze_()
    return x.sum() * w, x[1:]


@pytest.mark.parametrize("f", [transposed, returned, written_too])
@pytest.mark.parametrize("needs_grad", [False, True])
def test_equals_eager(f: Any, needs_grad: bool) -> None:
    run_both(f, [torch.randn(3, 4), torch.randn(3, 2, requires_grad=needs_grad)])


def test_views_from_before_are_left_to_eager() -> None:
    def f(x: torch.Tensor) -> Any:
        before = x[1:]
        x.t_()
        return before, x * 2

    run_both(f, [torch.randn(3, 4)], settings=AotSettings())


def test_a_leaf_that_requires_grad_raises_as_in_eager() -> None:
    def f(x: torch.Tensor) -> Any:
        x.t_()
        return x * 2

    x = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(RuntimeError) as wanted:
        f(x.detach().requires_grad_())
    with pytest.raises(RuntimeError) as found:
        run_both(f, [x], settings=AotSettings(), calls=0)(x)
    assert str(found.value) == str(wanted.value)


def test_a_view_that_is_transposed_in_place_and_written_gets_eager_gradients() -> None:
    def f(x: torch.Tensor) -> Any:
        y = (x * 2)[:, 1:]
        y.t_()
        y.mul_(3)
        return y[0]

    run_both(f, [torch.randn(2, 3, requires_grad=True)], settings=AotSettings())


def test_an_input_that_is_transposed_and_gets_a_history_is_left_to_eager() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        x.t_()
        x.copy_(w)
        return x * 2

    args = [torch.randn(3, 4), torch.randn(4, 3, requires_grad=True)]
    with pytest.raises(GraphBreak, match="TJ-AOT-004"):
        run_both(f, args)
    run_both(f, args, settings=AotSettings())


@pytest.mark.parametrize("shape", ["gaps", "transposed gaps"])
def test_written_inputs_with_gaps(shape: str) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        before = x[1:]
        x.mul_(2)
        x.view(-1)[0].add_(1) if x.is_contiguous() else x[0].add_(w.detach().sum())
        before.t().copy_(before.detach().clone().t() + 1)
        return x * w.sum(), x.reshape(-1), (x + 1), before

    base = torch.randn(6, 10)
    x = base[1:5, 1::2]
    run_both(f, [x if shape == "gaps" else x.t(), torch.randn(3, 2, requires_grad=True)])


def test_a_written_input_that_overlaps_itself_is_left_to_eager() -> None:
    def f(x: torch.Tensor) -> Any:
        return x.mul_(2)

    with pytest.raises(GraphBreak, match="overlap itself"):
        run_both(f, [torch.ones(8).as_strided((3, 4), (2, 1))])
