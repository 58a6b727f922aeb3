"""A capture that becomes large names the loop that it unrolls, once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchjit


def _told(function: Callable[..., Any], *args: Any, **settings: Any) -> list[str]:
    compiled = torchjit.compile(function, backend="eager")
    with warnings.catch_warnings(record=True) as found, torchjit.config.patch(**settings):
        warnings.simplefilter("always")
        torch.testing.assert_close(compiled(*args), function(*args))
        compiled(*args)
    return [str(w.message) for w in found if "operations" in str(w.message)]


def _steps(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    for _ in range(200):
        y = torch.sin(y)

        y = y * 0.5
    return y


class _Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x[0]
        t = 0
        while t < 120:
            if t >= 0:
                h = self.cell(x[t % 2], h)
            t += 1
        return h


def _inner(x: torch.Tensor) -> torch.Tensor:
    x = x.cos()
    return x + 1


def _of_a_function(x: torch.Tensor) -> torch.Tensor:
    for number in range(150):
        x = _inner(x)
    return x


@pytest.mark.parametrize(
    ("function", "shape", "loop"),
    [
        (_steps, (3,), "for _ in range(200):"),
        (_Cells(), (2, 4, 3), "while t < 120:"),
        (_of_a_function, (3,), "for number in range(150):"),
    ],
    ids=["loop", "cells", "of_a_function"],
)
def test_the_loop_is_named_once(function: Any, shape: tuple[int, ...], loop: str) -> None:
    texts = _told(function, torch.randn(shape), large_capture_nodes=100)
    assert len(texts) == 1
    assert repr(loop) in texts[0]
    assert "torchjit.disable" in texts[0]


def test_a_duration_is_told_as_well() -> None:
    assert len(_told(_steps, torch.randn(3), large_capture_seconds=0.0)) == 1


def test_what_is_not_large_says_nothing() -> None:
    assert not _told(_steps, torch.randn(3), large_capture_nodes=401)
    assert not _told(_steps, torch.randn(3))


def test_without_a_loop() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).sin().cos().tan().exp()

    texts = _told(f, torch.randn(3), large_capture_nodes=3)
    assert len(texts) == 1
    assert "no loop was found" in texts[0]
