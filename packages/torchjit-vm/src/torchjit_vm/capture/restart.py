"""Captures that start again: for a break that must happen earlier than where it was found, and for what was done meanwhile."""

from __future__ import annotations

from typing import final

from torchjit_core.reasons import GraphBreak

__all__ = ["Again", "Restart"]


@final
class Restart(Exception):
    """The capture starts again and breaks at `step`, because of `why`."""

    def __init__(self, step: int, why: GraphBreak) -> None:
        super().__init__()
        self.step, self.why = step, why


@final
class Again(Exception):
    """The capture starts again, and finds something that it did for real now."""
