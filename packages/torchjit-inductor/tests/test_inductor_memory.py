"""The memory plan: dead buffers are handed on, and never more memory is held than without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inductor_testing import check, sample

from torchjit_inductor.memory import MemoryEvent, plan_reuse


def peak_of(events: list[MemoryEvent], successors: dict[str, str]) -> int:
    """The most memory that is held at once when dead buffers wait for their successors."""
    inherited, live, most = set(successors.values()), 0, 0
    for event in events:
        if event.begins:
            live += 0 if event.name in successors else event.size
            most = max(most, live)
        elif event.name not in inherited:
            live -= event.size
    return most


@st.composite
def programs(draw: st.DrawFn) -> list[MemoryEvent]:
    """Each step begins some buffers and then ends some that are in use; some are of aten and never get a dead one's memory."""
    events: list[MemoryEvent] = []
    alive: list[MemoryEvent] = []
    for step in range(draw(st.integers(1, 14))):
        for _ in range(draw(st.integers(0, 2))):
            size = draw(st.integers(1, 4))
            kind = size if draw(st.booleans()) else None
            alive.append(MemoryEvent(step, f"b{len(events)}", kind, size, True))
            events.append(alive[-1])
        for _ in range(draw(st.integers(0, len(alive)))):
            ended = alive.pop(draw(st.integers(0, len(alive) - 1)))
            events.append(MemoryEvent(step, ended.name, ended.size, ended.size, False))
    return events


@settings(max_examples=400, deadline=None)
@given(programs())
def test_a_plan_is_valid_and_raises_no_peak(events: list[MemoryEvent]) -> None:
    successors = plan_reuse(events)
    assert len(set(successors.values())) == len(successors)
    begins = {e.name: e for e in events if e.begins}
    ends = {e.name: e for e in events if not e.begins}
    for new, old in successors.items():
        assert begins[new].kind is not None
        assert begins[new].size == ends[old].size
        assert ends[old].step < begins[new].step
    assert peak_of(events, successors) <= peak_of(events, {})


def test_memory_is_handed_on_at_once_and_waits_only_below_the_peak() -> None:
    def event(step: int, name: str, begins: bool, size: int = 1) -> MemoryEvent:
        return MemoryEvent(step, name, size, size, begins)

    def program(between: int) -> list[MemoryEvent]:
        """`a` dies, something of `between` bytes lives in step 2, then `b` wants as much as `a` had."""
        other = MemoryEvent(2, "x", None, between, True), MemoryEvent(2, "x", None, between, False)
        return [event(0, "a", True, 4), event(1, "a", False, 4), *other, event(3, "b", True, 4)]

    assert plan_reuse([event(0, "a", True), event(0, "a", False), event(1, "b", True)]) == {"b": "a"}
    assert plan_reuse(program(0)) == {"b": "a"}
    assert plan_reuse(program(3)) == {}  # 7 bytes at once; 4 are enough
    assert plan_reuse([]) == {}


def test_results_of_aten_do_not_pile_up() -> None:
    """Each product is a new tensor of aten; the kernels between them write in place or into what is dead."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = torch.ops.aten._softmax.default(torch.linalg.matrix_exp(x), -1, False).sin()
        return x

    graph = check(fn, (sample(8, 8),), aten=None, tol={"rtol": 1e-4, "atol": 1e-5})
    lines = [line.strip() for line in graph.source.splitlines()]
    made = [line.split(" = ")[0] for line in lines if "aten_linalg_matrix_exp(" in line]
    assert len(made) == 6
    # All but the last result of a kernel, which is the output, are freed or written over before the next but one begins.
    for early, late in zip(made, made[2:]):
        gone = [k for k, line in enumerate(lines) if line == f"del {early}"]
        assert gone
        assert gone[0] < next(k for k, line in enumerate(lines) if line.startswith(f"{late} = "))


_library: Any = torch.library.Library  # the stubs leave out its types
_absent: Any = _library("test_absent_results", "DEF")
_absent.define("double(Tensor x, str how) -> (Tensor, Tensor, Tensor)")
_UNREAD: dict[str, Any] = {
    "None": lambda x: None,
    "empty": lambda x: x.new_empty(0),
    "one_row": lambda x: x[:1].clone(),
}
_absent.impl("double", lambda x, how: (x * 2, _UNREAD[how](x), x + 1), "CompositeExplicitAutograd")
torch.library.register_fake(
    "test_absent_results::double",
    lambda x, how: (torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)),
    lib=_absent,
)


@pytest.mark.parametrize("how", _UNREAD)
def test_results_that_nobody_reads_give_no_memory_to_others(how: str) -> None:
    """Attention on CUDA leaves out, or makes smaller than its fake does, the logarithms of sums that an inference does not need."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            twice, _, more = torch.ops.test_absent_results.double(x, how)
            x = torch.linalg.matrix_exp((twice * more).sigmoid()) + 1
        return x

    graph = check(fn, (sample(8, 8),), aten=None, tol={"rtol": 1e-4, "atol": 1e-5})
    assert "# reuse" in graph.source  # what is read is handed on as before
