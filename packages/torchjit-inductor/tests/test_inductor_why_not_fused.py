"""Each fusion that would have saved memory traffic and was not made is explained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from inductor_testing import compiled, sample, trace

from torchjit_core import events
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.fuse import FusionLimits, Refusal, fuse


def refusals(fn: Callable[..., Any], *inputs: torch.Tensor, limits: FusionLimits | None = None) -> list[Refusal]:
    found: list[Refusal] = []
    fuse(lower_graph(trace(fn, inputs), "g"), {}, limits, explain=found.append)
    return found


X = sample(64, 32)


def two(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.sin(), x.cos()]


CASES: dict[str, tuple[Callable[..., Any], torch.Tensor, FusionLimits | None]] = {
    "rows are too few": (lambda x: x.sum() + x, sample(300, 300), None),
    "has to run in between": (lambda x: (x + 1) @ (x * 2) + x, sample(32, 32), None),
    "more than 2 values": (two, X, FusionLimits(values=2)),
    "more than 2 arguments": (two, X, FusionLimits(buffers=2)),
}


@pytest.mark.parametrize("words", CASES)
def test_the_reason_is_told(words: str) -> None:
    fn, x, limits = CASES[words]
    found = refusals(fn, x, limits=limits)
    assert any(words in r.why for r in found), found
    assert all(r.shared_bytes > 0 and r.kernel and r.group for r in found)


def test_nothing_is_told_of_fusions_that_were_made() -> None:
    assert refusals(lambda x: torch.relu(x + 1) * 2, X) == []
    assert refusals(lambda x: x.softmax(-1), X) == []


def test_it_is_an_event() -> None:
    seen: list[dict[str, Any]] = []

    def listener(kind: str, fields: dict[str, Any]) -> None:
        if kind == "not_fused":
            seen.append(fields)

    with events.listen(listener):
        compiled(lambda x: x.sum() + x, (sample(300, 300),))
    assert seen and "rows are too few" in seen[0]["why"]
