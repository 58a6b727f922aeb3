"""`set_stance`: what the process does, for the time being, with everything that was or would be compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from torchjit.exc import UserError, unknown_name
from torchjit_core.reasons import reason

__all__ = ["STANCES", "Stance", "current_stance", "on_change", "set_stance"]

Stance: TypeAlias = Literal["default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile"]
STANCES: tuple[str, ...] = get_args(Stance)
_LATER = ("aot_eager_then_compile",)
_F = TypeVar("_F", bound=Callable[..., Any])

NOT_YET = reason(
    "TJ-API-032",
    "this stance exists upstream and is not implemented yet",
    "torchjit refuses it rather than do something else.",
    "Use 'eager_then_compile', which differs in the first call only.",
)
WOULD_COMPILE = reason(
    "TJ-API-033",
    "something has to be compiled under the stance fail_on_recompile",
    "No specialisation matches this call, and the process asked to be told rather than to compile.",
    "Run calls like this one before the stance is set, or make what the message names an input that may change.",
)

_stance = "default"
_listeners: list[Callable[[], None]] = []


def current_stance() -> str:
    """The stance of the process."""
    return _stance


def on_change(listener: Callable[[], None]) -> None:
    """Call `listener` whenever the stance has changed."""
    _listeners.append(listener)


def _become(stance: str) -> None:
    global _stance
    _stance = stance
    for listener in _listeners:
        listener()


class set_stance(contextlib.ContextDecorator):  # upstream's name
    """Set the stance at once; as a context manager or a decorator, restore the one before at the end.

    * `default`: compile what has no specialisation.
    * `force_eager`: run everything that is compiled as plain Python.
    * `eager_on_recompile`: use what is compiled, run the rest as plain Python.
    * `fail_on_recompile`: use what is compiled, raise where something would have to be compiled.
    * `eager_then_compile`: run each region's first call as plain Python, and compare its sizes and numbers with the second
      call's, so that what changes is symbolic at once.

    The stance is the process's: it holds in all threads.

    Raises:
        UserError: an unknown stance; the nearest ones are told.
    """

    def __init__(self, stance: str = "default") -> None:
        if stance in _LATER:
            raise UserError(NOT_YET, repr(stance))
        if stance not in STANCES:
            raise unknown_name("stance", stance, STANCES)
        self.stance = stance
        self._before = [_stance]
        _become(stance)

    def __call__(self, func: _F) -> _F:
        """As a decorator: the stance holds during calls of the function only."""
        _become(self._before[-1])
        return super().__call__(func)

    def _recreate_cm(self) -> set_stance:
        return set_stance(self.stance)

    def __enter__(self) -> set_stance:
        return self

    def __exit__(self, *exc_info: object) -> None:
        _become(self._before[-1])
