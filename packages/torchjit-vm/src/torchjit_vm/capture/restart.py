"""A break that must happen earlier than where it was found."""

from __future__ import annotations

from typing import final

from torchjit_core.reasons import GraphBreak

__all__ = ["Restart"]


@final
class Restart(Exception):
    """The capture starts again and breaks at `step`, because of `why`."""

    def __init__(self, step: int, why: GraphBreak) -> None:
        super().__init__()
        self.step, self.why = step, why
