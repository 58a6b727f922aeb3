"""What handlers of signals raise: the program's exceptions, which may come between any two instructions of ours.

They say nothing about the operation that they have ended, so that no place that catches errors of operations may keep them as an
outcome: not in a cache of the process, nor as what a guard or a compiler has found out.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal makes enums of what it gives: 64 of them in each capture
import signal
import threading
import traceback
import types
from collections.abc import Iterator, Sequence
from typing import Any, Final

__all__ = ["HANDLED", "codes_of_handlers", "hear", "heard", "let_through", "raised_in_handler"]

HANDLED: Final = sorted(int(number) for number in signal.valid_signals())
"""Numbers of signals."""

_heard: Sequence[BaseException] = ()


def raised_in_handler(error: BaseException) -> bool:
    """Does the exception come from a handler of a signal? Its traceback tells."""
    if error.__traceback__ is None:
        return False
    handlers = set(codes_of_handlers())
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def codes_of_handlers() -> Iterator[types.CodeType]:
    """The code of each handler that is written in Python, also of those that something of ours stands in for."""
    for number in HANDLED:
        installed: Any = _signal.getsignal(number)
        if not callable(installed) or isinstance(installed, int):
            continue
        for handler in (installed, getattr(installed, "handler", None), getattr(installed, "func", None)):
            for function in (handler, getattr(handler, "__func__", None), getattr(type(handler), "__call__", None)):  # noqa: B004
                code = getattr(function, "__code__", None)
                if isinstance(code, types.CodeType):
                    yield code


def hear(raised: Sequence[BaseException]) -> None:
    """From now on, what handlers raise is noted in `raised`, by a compilation in the main thread. Empty: it is over."""
    global _heard
    _heard = raised


def heard() -> bool:
    """Has a handler raised something during the compilation that this thread works on? Then nothing that it finds is to be kept."""
    return bool(_heard) and threading.current_thread() is threading.main_thread()


def let_through() -> None:
    """Where an exception was caught and what it says is to be kept: raise what a handler has raised meanwhile.

    Raises:
        BaseException: that one.
    """
    if heard():
        raise _heard[0]
