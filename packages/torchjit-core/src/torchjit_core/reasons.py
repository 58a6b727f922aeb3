"""The registry of reasons: why something broke, fell back or was refused, under ids that never change.

A package declares its reasons as constants, beside the code that raises them:

    UNKNOWN_BUILTIN = reason(
        "TJ-VM-007",
        "call of a C function that the VM does not know",
        "The VM cannot see inside C functions, so it runs the call for real, between two graphs.",
        "Mark the function with torchjit.allow_in_graph if it only works on tensors.",
    )
"""

from __future__ import annotations

import re
from typing import final

import attrs

from torchjit_core.location import CodeLocation

__all__ = [
    "GraphBreak",
    "InvalidIR",
    "MissingPackage",
    "NotYet",
    "Reason",
    "TorchjitError",
    "UserAttributeError",
    "UserError",
    "UserIndexError",
    "UserTypeError",
    "all_reasons",
    "find_reason",
    "reason",
]

_ID = re.compile(r"TJ-[A-Z]{2,5}-\d{3}\Z")
_REGISTRY: dict[str, Reason] = {}


@final
@attrs.frozen
class Reason:
    """One registered reason.

    Attributes:
        id: `TJ-<AREA>-<NNN>`, stable, never reused.
        headline: one line, lower case, no full stop.
        explanation: sentences for somebody who meets it for the first time.
        hints: what the user can do, one sentence each.
    """

    id: str
    headline: str
    explanation: str
    hints: tuple[str, ...]

    def __reduce__(self) -> tuple[object, ...]:
        return (_unpickle, (self.id, self.headline, self.explanation, self.hints))


def _unpickle(id: str, headline: str, explanation: str, hints: tuple[str, ...]) -> Reason:
    return _REGISTRY.get(id) or Reason(id, headline, explanation, hints)


def reason(id: str, headline: str, explanation: str, *hints: str) -> Reason:
    """Register a reason, once, at import.

    Raises:
        ValueError: the id is malformed or taken.
    """
    if not _ID.match(id):
        raise ValueError(f"malformed reason id {id!r}: want TJ-<AREA>-<NNN>")
    made = Reason(id, headline, explanation, hints)
    if _REGISTRY.setdefault(id, made) != made:
        raise ValueError(f"reason id {id} is taken by {_REGISTRY[id].headline!r}")
    return _REGISTRY[id]


def find_reason(id: str) -> Reason | None:
    """The reason registered under `id`, or None."""
    return _REGISTRY.get(id)


def all_reasons() -> tuple[Reason, ...]:
    """Every registered reason, sorted by id."""
    return tuple(_REGISTRY[key] for key in sorted(_REGISTRY))


class TorchjitError(Exception):
    """Base of the errors that torchjit raises. All of them pickle.

    Args:
        reason: the registered reason.
        detail: what happened this time, one line.
        location: the user's source line, if known.

    Attributes:
        hints: what the user can do: those of the reason, until somebody who knows more of this case sets others.
    """

    def __init__(self, reason: Reason, detail: str = "", location: CodeLocation | None = None) -> None:
        super().__init__(reason, detail, location)
        self.reason = reason
        self.detail = detail
        self.location = location
        self.hints = reason.hints

    def __str__(self) -> str:
        text = f"{self.reason.id}: {self.reason.headline}"
        if self.detail:
            text += f": {self.detail}"
        if self.location is not None:
            text += f"\n  {self.location.render()}".replace("\n", "\n  ")
        if self.reason.explanation:
            text += f"\n  {self.reason.explanation}"
        for hint in self.hints:
            text += f"\n  hint: {hint}"
        return text


@final
class GraphBreak(TorchjitError):
    """Expected: this operation cannot be captured; run it for real and go on after it."""


class UserError(TorchjitError, ValueError):
    """The user asked for something that cannot be done; the message says what to do."""


@final
class UserTypeError(UserError, TypeError):
    """A value of a wrong type, or a call with wrong arguments."""


@final
class UserIndexError(UserError, IndexError):
    """A dimension that a tensor does not have."""


@final
class UserAttributeError(UserError, AttributeError):
    """An attribute that there is not."""


@final
class MissingPackage(UserError, ImportError):
    """A package that is needed is not installed."""


@final
class NotYet(TorchjitError):
    """This call cannot be captured, but a later one may: it runs eagerly, and the next one is tried again."""


@final
class InvalidIR(TorchjitError, AssertionError):
    """A bug of ours: an intermediate form broke its own rules."""
