"""Captures that start again: for a break that must happen earlier than where it was found."""

from __future__ import annotations

from typing import final

from torchjit_core.reasons import GraphBreak

__all__ = ["Restart", "raised_anew"]


@final
class Restart(Exception):
    """The capture starts again and breaks at `step`, because of `why`."""

    def __init__(self, step: int, why: GraphBreak) -> None:
        super().__init__()
        self.step, self.why = step, raised_anew(why)


def raised_anew(why: GraphBreak) -> GraphBreak:
    """The same break for another place to raise: the traceback of the one would lead to the frames that keep the other."""
    return GraphBreak(why.reason, why.detail, why.location)
