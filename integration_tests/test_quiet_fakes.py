"""Where eager has the last word, users see none of the errors that torch logs about fake tensors."""

# mypy: allow-untyped-defs

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

import torchjit


def a_backward_that_raises(a, b, i):
    return a.scatter_reduce(0, i, b, "amax").sum()


def a_call_that_raises(a, b, i):
    try:
        return a @ b
    except RuntimeError as error:
        return str(error)[:20]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [a_backward_that_raises, a_call_that_raises])
def test_nothing_is_logged(program, backend):
    seen: list[Any] = []
    handler = logging.Handler()
    handler.emit = seen.append
    log = logging.getLogger("torch._subclasses.fake_tensor")
    log.addHandler(handler)
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    i = torch.zeros(2, 1, dtype=torch.int64)
    try:
        assert str(torchjit.compile(program, backend=backend)(a, b, i)) == str(program(a, b, i))
    finally:
        log.removeHandler(handler)
    assert not seen
