"""What a compiled training step saves for its backward, asked for through `torchjit.compile`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchjit
from torchjit_core.events import listen


def block(x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    for w in weights:
        x = F.dropout(F.gelu(x @ w), 0.25) + x
    return x.logsumexp(-1)


def step(run: Any) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Result and gradients, and where the random generator stands."""
    torch.manual_seed(5)
    x = torch.randn(16, 32, requires_grad=True)
    weights = [torch.randn(32, 32).mul_(0.1).requires_grad_() for _ in range(4)]
    out = run(x, weights)
    out.sum().backward()
    return [out.detach(), *(t.grad for t in (x, *weights) if t.grad is not None)], torch.random.get_rng_state()


def saved_by(
    budget: float, backend: str = "inductor"
) -> tuple[int, tuple[list[torch.Tensor], torch.Tensor], list[Any]]:
    tables: list[Any] = []
    with listen(lambda kind, fields: tables.append(fields["tensors"]) if kind == "saved_tensors" else None):
        options = {"activation_memory_budget": budget}
        seen = step(torchjit.compile(block, options=options, fullgraph=True, backend=backend))
    (table,) = tables
    return sum(entry["bytes"] for entry in table), seen, table


def test_a_budget_saves_less_and_changes_no_number() -> None:
    wanted, state = step(block)
    saved = []
    for budget in (1.0, 0.5, 0.0):
        count, (seen, stands), table = saved_by(budget)
        saved.append(count)
        assert all(entry["why"] and entry["shape"] is not None for entry in table)
        assert len({entry["name"] for entry in table}) == len(table)  # nothing twice
        assert torch.equal(stands, state)  # what is computed again draws nothing again
        for a, b in zip(wanted, seen, strict=True):
            torch.testing.assert_close(b, a)
    assert saved[0] > saved[1] > saved[2]


def test_a_budget_counts_for_operators_called_one_by_one() -> None:
    assert saved_by(0.0, "aot_eager")[0] < saved_by(1.0, "aot_eager")[0]


@pytest.mark.parametrize("budget", [-0.1, 1.5])
def test_a_budget_outside_its_range_is_refused(budget: float) -> None:
    with pytest.raises(torchjit.exc.UserError, match="activation_memory_budget"):
        torchjit.compile(block, options={"activation_memory_budget": budget})


def test_forward_and_backward_are_ranges_of_the_profiler() -> None:
    run = torchjit.compile(block)
    step(run)
    with torch.profiler.profile() as profile:
        step(run)
    names = [event.name for event in profile.events() if event.name.startswith("## Call CompiledFxGraph")]  # type: ignore[union-attr]
    assert len(names) == 2 and "forward" in names[0] and "backward" in names[1]
