"""What entries on disk ask of torchjit's packages: why something is not stored, and what user code a compilation ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torchjit_core.reasons import Reason

__all__ = ["NotStorable", "NotYetStorable", "collecting_reliance", "relied_on"]


class NotStorable(Exception):
    """A compiled entry cannot be kept on disk.

    Attributes:
        reason: the registered reason.
        detail: what it is this time, one line.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.id}: {reason.headline}: {detail}")
        self.reason = reason
        self.detail = detail


class NotYetStorable(NotStorable):
    """It can be, once something of it has been compiled."""


_relied_on: ContextVar[dict[int, Callable[..., Any]] | None] = ContextVar("torchjit relied on", default=None)


@contextmanager
def collecting_reliance() -> Iterator[dict[int, Callable[..., Any]]]:
    """Collect what `relied_on` is told in this context, by id."""
    found: dict[int, Callable[..., Any]] = {}
    token = _relied_on.set(found)
    try:
        yield found
    finally:
        _relied_on.reset(token)


def relied_on(function: Callable[..., Any]) -> None:
    """Note user code that runs during a compilation and leaves no guard: what is compiled depends on what it does."""
    found = _relied_on.get()
    if found is not None:
        found[id(function)] = function
