"""Captures that start again: for a break that must happen earlier than where it was found, or for a module that is loaded now."""

from __future__ import annotations

from typing import final

from torchjit_core.reasons import GraphBreak

__all__ = ["ModuleImported", "Restart", "raised_anew"]


@final
class ModuleImported(Exception):
    """The region's code imports a module for the first time in the process, and it was imported at capture.

    What was read before is out of date, and what the policy says of the module may be new: whoever called `capture` calls it again, with
    a policy made anew.
    """


@final
class Restart(Exception):
    """The capture starts again and breaks at `step`, because of `why`."""

    def __init__(self, step: int, why: GraphBreak) -> None:
        super().__init__()
        self.step, self.why = step, raised_anew(why)


def raised_anew(why: GraphBreak) -> GraphBreak:
    """The same break for another place to raise: the traceback of the one would lead to the frames that keep the other."""
    return GraphBreak(why.reason, why.detail, why.location)
