"""What is known of a graph break, for people."""

from __future__ import annotations

from typing import final

import attrs

from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath
from torchjit_core.reasons import Reason

__all__ = ["GraphBreakRecord"]


@final
@attrs.frozen
class GraphBreakRecord:
    """Why and where a region ended early.

    Attributes:
        reason, detail: as raised.
        location: the user's line.
        stack: every active frame, outermost first.
        receivers: for each of these, the class of its `self` and where that is found, if it is a method of such an object.
    """

    reason: Reason
    detail: str
    location: CodeLocation | None
    stack: tuple[CodeLocation, ...]
    receivers: tuple[tuple[type, AccessPath] | None, ...] = ()
