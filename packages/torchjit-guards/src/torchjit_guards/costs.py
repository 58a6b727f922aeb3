"""What guards cost: measured over the arguments of a real call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import attrs

from torchjit_core.guards import Guard
from torchjit_guards.program import GuardProgram

__all__ = ["GuardCosts", "measure"]

_RUNS: Final = 5
_CALLS: Final = 40


@final
@attrs.frozen
class GuardCosts:
    """Seconds.

    Attributes:
        all: of one test of all guards, as a call has it.
        each: of each guard alone, with the way to what it tests, in their order. Together they are more than `all`, which goes each way once.
    """

    all: float
    each: tuple[float, ...]


def measure(program: GuardProgram, guards: Sequence[Guard], slots: tuple[Any, ...]) -> GuardCosts:
    """Time the guards of a specialisation over the slots of a call that they hold for."""
    empty = GuardProgram((), (), len(slots))
    before = _seconds(empty, slots)
    alone = [_seconds(GuardProgram((guard,), (), len(slots)), slots) for guard in guards]
    nothing = min(before, _seconds(empty, slots))  # the first one may have been slow: a cold cache, other processes
    return GuardCosts(_seconds(program, slots), tuple(max(0.0, seconds - nothing) for seconds in alone))


def _seconds(program: Callable[..., Any], slots: tuple[Any, ...]) -> float:
    """Of one call: the best of some runs."""
    best = float("inf")
    for _ in range(_RUNS):
        start = time.perf_counter()
        for _ in range(_CALLS):
            program(*slots)
        best = min(best, (time.perf_counter() - start) / _CALLS)
    return best
