"""Errors of compilation that reach the program below a graph break: the blocks that the frames are in are left."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

import torchjit

LEFT: list[Any] = []


def in_one_block(x):
    with torch.no_grad():
        y = x * 2
        torchjit.graph_break()
        y = y + 1
    return y


def below(x):
    y = x.sin()
    torchjit.graph_break()
    return y + 1


def in_a_caller(x):
    with torch.no_grad():
        y = below(x)
    return y * 2


def in_two_callers(x):
    try:
        with torch.autocast("cpu"):
            y = in_a_caller(x)
            torchjit.graph_break()
            return y + 3
    finally:
        LEFT.append("finally")


@pytest.mark.parametrize("program", [in_one_block, in_a_caller, in_two_callers], ids=lambda p: p.__name__)
@pytest.mark.parametrize("on_error", ["raise", None])
def test_state_after_an_error(program, on_error):
    for failing in range(1, 6):
        torchjit.reset()
        LEFT.clear()
        count = 0

        def backend(gm, example_inputs, failing=failing):
            nonlocal count
            count += 1
            if count == failing:
                raise RuntimeError("the backend fails")
            return gm

        compiled = torchjit.compile(program, backend=backend, on_error=on_error)
        try:
            compiled(torch.ones(3))
        except torchjit.exc.BackendCompilerFailed:
            pass
        else:
            assert count < failing
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
        if program is in_two_callers and failing > 1:
            assert LEFT == ["finally"]


def test_reports_before_the_first_operation_survive_an_error_of_the_graph(caplog):
    logger = logging.getLogger("torchjit.test.blocks")

    def program(x, i):
        logger.warning("starting %s", "now")
        y = x[i]
        logger.warning("done")
        return y

    compiled = torchjit.compile(program, backend="eager", fullgraph=True)
    x = torch.ones(3)
    compiled(x, torch.tensor([1]))
    assert [r.getMessage() for r in caplog.records] == ["starting now", "done"]
    caplog.clear()
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([5]))
    assert [r.getMessage() for r in caplog.records] == ["starting now"]
