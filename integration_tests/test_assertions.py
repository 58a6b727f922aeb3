"""`assert` on tensors: tested in the graph where nobody can tell, or plain Python may run in its place; else a graph break. Errors and changes are eager's."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

import pytest
import torch
from assertion_programs import (
    LOG,
    Checked,
    after_a_write,
    after_an_effect,
    before_effects,
    between_an_effect_and_a_write,
    both,
    caught,
    computed_message,
    denied,
    either,
    in_a_block,
    message,
    several,
)

import torchjit


def _did(run: Any, calls: list[torch.Tensor]) -> list[Any]:
    found: list[Any] = []
    for given in calls:
        x = given.clone()
        LOG.clear()
        try:
            out = run(x)
        except (AssertionError, RuntimeError) as error:
            found.append((type(error), str(error)))
        else:
            found.append((out.detach().nan_to_num(7.0).tolist(), out.requires_grad))
        found.append((x.nan_to_num(7.0).tolist(), list(LOG), torch.is_grad_enabled()))
    return found


CALLS = [torch.ones(3), torch.tensor([1.0, float("nan"), -5.0]), torch.tensor([1.0, 200.0, 3.0]), torch.ones(3)]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(
    "program",
    [
        message, denied, both, before_effects, Checked(), after_an_effect, caught, in_a_block, computed_message,
        between_an_effect_and_a_write,
    ],
)  # fmt: skip
def test_in_the_graph(program: Any, backend: str) -> None:
    fast = torchjit.compile(program, backend=backend, fullgraph=True)
    assert _did(fast, CALLS) == _did(program, CALLS)


@pytest.mark.parametrize("program", [after_a_write, either, several])
def test_where_a_late_error_could_be_told_it_breaks(program: Any) -> None:
    fast = torchjit.compile(program, backend="eager")
    assert _did(fast, CALLS) == _did(program, CALLS)
    assert {b.reason.id for s in fast.compiled.specializations for b in s.breaks} == {"TJ-FX-001"}


def test_gradients_pass_an_assertion() -> None:
    x = torch.randn(3, requires_grad=True)
    (want,) = torch.autograd.grad(message(x).sum(), x)
    (got,) = torch.autograd.grad(torchjit.compile(message, fullgraph=True)(x).sum(), x)
    torch.testing.assert_close(got, want)
