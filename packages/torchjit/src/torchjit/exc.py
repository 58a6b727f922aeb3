"""The errors that users of torchjit may catch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import final

from torchjit_core.location import CodeLocation
from torchjit_core.reasons import GraphBreak, InvalidIR, Reason, TorchjitError, UserError, reason

__all__ = [
    "BackendCompilerFailed",
    "FailOnRecompile",
    "GraphBreak",
    "InvalidIR",
    "RecompileLimitExceeded",
    "TorchjitError",
    "Unsupported",
    "UserError",
    "unknown_name",
]


@final
class Unsupported(TorchjitError, RuntimeError):
    """`fullgraph=True` or `error_on_graph_break(True)` met a graph break."""


@final
class RecompileLimitExceeded(TorchjitError, RuntimeError):
    """`fullgraph=True` and the recompile limit is reached."""


@final
class FailOnRecompile(TorchjitError, RuntimeError):
    """Something would have to be compiled under the stance `fail_on_recompile`."""


@final
class BackendCompilerFailed(TorchjitError, RuntimeError):
    """The backend raised while it compiled a graph. Its exception is the cause (`__cause__`)."""

    def __init__(self, reason: Reason, detail: str = "", location: CodeLocation | None = None) -> None:
        super().__init__(reason, detail, location)


UNKNOWN_NAME = reason(
    "TJ-API-001",
    "unknown name",
    "A name given to torchjit is not one that it knows.",
    "Compare it with the names listed; torchjit.list_backends(), list_mode_options() and list_options() print them.",
)


def unknown_name(what: str, given: object, known: Iterable[str]) -> UserError:
    """The error for a name that is not known, with the nearest ones that are.

    Args:
        what: kind of the name, such as "backend".
        given: what the user wrote.
        known: every name that would have been right.
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(given), names, n=3, cutoff=0.4)
    guess = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return UserError(UNKNOWN_NAME, f"{what} {given!r}{guess} Known: {', '.join(names)}")
