"""What guards cost, measured over the slots of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torchjit_core.guards import LengthIs, TypeIs, ValueEquals
from torchjit_core.paths import Arg
from torchjit_guards import GuardProgram, costs


def test_each_guard_and_all_together() -> None:
    x, y = Arg.of(0, "x"), Arg.of(1, "y")
    guards = (TypeIs(x, int), ValueEquals(x, 3), TypeIs(y, list), LengthIs(y, 2))
    slots = (3, [1, 2])
    program = GuardProgram(guards, (), 2)
    assert program(*slots) is not None
    found = costs.measure(program, guards, slots)
    assert len(found.each) == len(guards) and all(0 <= seconds < 1e-3 for seconds in found.each)
    assert 0 < found.all < 1e-3
    assert costs.measure(GuardProgram((), (), 2), (), slots).each == ()


def test_what_is_slower_than_the_empty_program_counts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Arg.of(0, "x")
    guards = (TypeIs(x, int), ValueEquals(x, 3))
    times = iter((5e-7, 2e-7, 9e-7, 3e-7, 8e-7))  # the empty program is measured again, behind the guards

    def seconds(program: Callable[..., Any], slots: tuple[Any, ...]) -> float:
        assert program(*slots) is not None
        return next(times)

    monkeypatch.setattr(costs, "_seconds", seconds)
    found = costs.measure(GuardProgram(guards, (), 1), guards, (3,))
    assert found.all == 8e-7 and found.each == pytest.approx((0.0, 6e-7))
