"""A checker of guards in plain Python: each guard by its own definition, in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from torchjit_core.guards import Guard, Slots

__all__ = ["GuardChecker"]


@final
class GuardChecker:
    """Do the guards of a capture hold for the slots of a call? `torchjit_guards.GuardProgram` answers the same in C.

        holds = GuardChecker(captured.guards)
        if holds(slots): ...

    Args:
        guards: those of `Captured.guards`, or any objects with a `check(slots)`.
    """

    __slots__ = ("guards",)

    def __init__(self, guards: Iterable[Guard]) -> None:
        self.guards = tuple(guards)

    def __call__(self, slots: Slots) -> bool:
        return self.miss(slots) is None

    def miss(self, slots: Slots) -> Guard | None:
        """The first guard that does not hold; None if all do. What a guard looks for and does not find is a miss."""
        return next((guard for guard in self.guards if not _holds(guard, slots)), None)


def _holds(guard: Guard, slots: Slots) -> bool:
    try:
        return guard.check(slots)
    except (AttributeError, LookupError, TypeError, ValueError):
        return False
