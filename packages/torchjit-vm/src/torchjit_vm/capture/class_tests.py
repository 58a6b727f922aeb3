"""Tests of guards about classes. Nothing of the capture is needed for them: entries on disk hold such tests."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, final

from torchjit_core.handlers import let_through

__all__ = ["AskedAgain", "chooses", "has_instance", "has_subclass"]


@final
class AskedAgain:
    """A test that is made again only when some class was registered with some abstract class.

    It has held when this is made. In another process it is made at the first call: classes are registered anew there.
    """

    __slots__ = ("_asked_at", "_holds")

    def __init__(self, holds: Callable[[Any], bool]) -> None:
        self._holds = holds
        self._asked_at: object = abc.get_cache_token()

    def __call__(self, value: object) -> bool:
        now = abc.get_cache_token()
        if now == self._asked_at:
            return True
        try:
            holds = self._holds(value)
        except Exception:  # a hook of the program's, or a class that refuses the question: capture it anew
            let_through()
            holds = False
        if not holds:
            return False
        self._asked_at = now
        return True

    def __stored_state__(self) -> Mapping[str, object]:
        return {"holds": self._holds}

    def __restore_state__(self, state: Mapping[str, Any]) -> None:
        self._holds, self._asked_at = state["holds"], None


def has_subclass(cls: type, answer: bool) -> Callable[[Any], bool]:
    """Does `issubclass` say the same of this class?"""
    return lambda asked: issubclass(cls, asked) is answer


def has_instance(target: Any, answer: bool) -> Callable[[Any], bool]:
    """Does `isinstance` say the same of another object?"""
    return lambda other: isinstance(other, target) is answer


def chooses(cls: type, chosen: object) -> Callable[[Any], bool]:
    """Does a single-dispatch function choose the same for this class?"""
    return lambda dispatch: dispatch(cls) is chosen
