"""Sums of which one element at most is not zero need no pass over the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from inductor_testing import check
from torch import Tensor

CLASSES = 11
LABELS = torch.tensor([3, -100, 0, 10, CLASSES + 2, -1])


def _backward(rows: Tensor, gradient: Tensor, dim: int = 1) -> Tensor:
    made: Tensor = torch.ops.aten._log_softmax_backward_data(gradient, rows, dim, rows.dtype)
    return made


def _hot(labels: Tensor, size: int = CLASSES) -> Tensor:
    return torch.arange(size) == labels[:, None]


def by_label(rows: Tensor, labels: Tensor, scale: Tensor) -> Tensor:
    kept = _hot(labels) & (labels[:, None] != -100)
    return _backward(rows, torch.where(kept, -scale, 0.0))


def narrow(rows: Tensor, labels: Tensor, scale: Tensor) -> Tensor:
    return _backward(rows.half(), torch.where(_hot(labels), scale, 0.0).half())


def turned(rows: Tensor, labels: Tensor, scale: Tensor) -> Tensor:
    return _backward(rows.t().contiguous(), torch.where(_hot(labels), scale, 0.0).t().contiguous(), 0)


def nested(rows: Tensor, labels: Tensor, scale: Tensor) -> Tensor:
    kept = (labels > 0)[:, None]
    return _backward(rows, torch.where(kept, torch.where(_hot(labels), scale * labels[:, None], 0.0), 0.0))


KNOWN = {"by label": by_label, "narrow": narrow, "turned": turned, "nested": nested}


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_the_sum_is_the_element(name: str, mode: str) -> None:
    rows = torch.randn(len(LABELS), CLASSES).log_softmax(1)
    graph = check(KNOWN[name], (rows, LABELS, torch.tensor(0.7)), mode=mode, tol={"rtol": 1e-3, "atol": 1e-4})
    assert all("sum" not in k.source for k in graph.kernels), [k.source for k in graph.kernels]


def every_second(rows: Tensor, labels: Tensor) -> Tensor:
    return _backward(rows, torch.where(torch.arange(CLASSES) // 2 == labels[:, None], 0.5, 0.0))


def of_the_place(rows: Tensor, labels: Tensor) -> Tensor:
    return _backward(rows, torch.where(_hot(labels), rows * 2, 0.0))


def not_zero(rows: Tensor, labels: Tensor) -> Tensor:
    return _backward(rows, torch.where(_hot(labels), 2.0, 1.0))


def above(rows: Tensor, labels: Tensor) -> Tensor:
    return _backward(rows, torch.where(torch.arange(CLASSES) > labels[:, None], 2.0, 0.0))


def by_place(rows: Tensor, labels: Tensor) -> Tensor:
    places = (labels[:, None] + torch.arange(CLASSES)) // 2
    return _backward(rows, torch.where(torch.arange(CLASSES) == places, 2.0, 0.0))


@pytest.mark.parametrize("function", [every_second, of_the_place, not_zero, above, by_place])
def test_other_sums_are_added_up(function: Callable[..., Any]) -> None:
    check(function, (torch.randn(len(LABELS), CLASSES).log_softmax(1), LABELS))
