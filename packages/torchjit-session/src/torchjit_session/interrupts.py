"""Exceptions that come from outside into a capture or a compilation: from handlers of signals, from listeners to events.

They are the program's: they pass through, whoever catches exceptions on the way, and leave no state behind.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal makes enums of what it gives: 64 of them in each capture
import gc
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, final

import torch

from torchjit_core.collector import frozen_now, full_collections_allowed, full_collections_put_off, program_has_frozen
from torchjit_core.handlers import HANDLED, codes_of_handlers, hear
from torchjit_frame import HeardHandler, is_eager, set_eager
from torchjit_fx import ProcessState

__all__ = ["CompilationScope", "compiled_later"]

_T = TypeVar("_T")

_MOST_TRIES = 100
"""To bring the state back, each ended by another interrupt."""


@final
class CompilationScope:
    """What a compilation changes in the process: between `begin` and `end`, or `abandon` when an exception ends it.

    Handlers of signals are called as ever, but not below torch: see `_CALLED_BY_TORCH`. What they raise is
    remembered, since between them and the program there are a hundred places, here and in torch, that catch exceptions of operations.

    Args:
        until: of the function that compiles: what has called it is no concern of ours.

    Attributes:
        raised: by handlers so far.
    """

    def __init__(self, until: types.CodeType) -> None:
        self._until = until
        self._handled = sys.exc_info()[1]
        self._state = ProcessState()
        self._eager = is_eager()
        self._collects = gc.isenabled()
        self._frozen = program_has_frozen()
        self._handlers: list[tuple[int, Any, Any]] = []
        self.raised: list[BaseException] = []

    def begin(self) -> None:
        """Compiled functions run eagerly, and handlers are listened to."""
        set_eager(True)
        if threading.current_thread() is threading.main_thread():
            hear(self.raised)
            for number in HANDLED:
                handler = _signal.getsignal(number)
                if callable(handler) and not isinstance(handler, int | HeardHandler):
                    heard = HeardHandler(handler, self.raised, _CALLED_BY_TORCH, _TORCH, self._until)
                    self._handlers.append((number, handler, heard))
                    _signal.signal(number, heard)

    def let_through(self) -> None:
        """What has been made is about to be kept.

        Raises:
            BaseException: what a handler raised, if somebody has caught it: an outcome of an operation, to whoever did.
        """
        if self.raised:
            raise self.raised[0]

    def end(self) -> None:
        """The compilation has come to its end.

        Raises:
            BaseException: as `let_through`.
        """
        self._restore_handlers()
        set_eager(self._eager)
        self.let_through()

    def abandon(self, error: BaseException) -> None:
        """An exception has ended the compilation: bring everything back.

        Raises:
            BaseException: what a handler raised, if `error` came of it. If further interrupts come meanwhile, the last of them.
        """
        self._bring_back(error)
        if self.raised and error is not self.raised[0]:
            _raise_as_it_was(self.raised[0])

    def _bring_back(self, error: BaseException) -> None:
        last: BaseException | None = None
        for _ in range(_MOST_TRIES):
            try:
                if self.raised or not isinstance(error, Exception):
                    # Blocks that were left half entered are held by the frames: they end now, not at some later time.
                    _clear_frames(error, self._handled)
                    _forget_ours(error, self._handled)
                    gc.collect(1)  # some are in cycles
                self._state.restore()
                self._restore_collector()
                self._restore_handlers()
                set_eager(self._eager)
            except BaseException as another:
                last = another
            else:
                break
        if last is not None:
            raise last

    def forgives(self) -> Callable[[], None]:
        """What is raised by handlers from now on, until the result is called, is for others to catch: code of the program runs."""
        before = len(self.raised)

        def forget() -> None:
            del self.raised[before:]

        return forget

    def _restore_handlers(self) -> None:
        hear(())
        for number, handler, heard in self._handlers:
            if _signal.getsignal(number) is heard:
                _signal.signal(number, handler)

    def _restore_collector(self) -> None:
        full_collections_allowed()
        if not self._frozen and frozen_now():
            gc.unfreeze()
        if self._collects != gc.isenabled():
            (gc.enable if self._collects else gc.disable)()


_CALLED_BY_TORCH = frozenset({"__torch_dispatch__", "__torch_function__"})
_TORCH = os.path.dirname(torch.__file__) + os.sep
"""Below these functions, and what torch has in Python, there may be C++ that ends the process if it is left by an exception from nowhere:
that puts modes back, and finds that an `__enter__` has not come to its end; that only wanted to know whether there is a rule."""


def compiled_later(build: Callable[[], _T]) -> _T:
    """What is compiled outside of any capture: a backward, when it is first called.

    Raises:
        BaseException: what `build` raises, or what a handler has raised meanwhile: nothing is kept then.
    """
    scope = CompilationScope(compiled_later.__code__)
    try:
        scope.begin()
        with full_collections_put_off():
            made = build()
        scope.end()
        return made
    except BaseException as error:
        scope.abandon(error)
        raise


def _raise_as_it_was(error: BaseException) -> NoReturn:
    """Raise an exception that has been raised before, with the context that it had."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context


def _clear_frames(error: BaseException, handled: BaseException | None) -> None:
    """Drop what the frames hold that an exception, and those that it came upon, have left; not those of the program's handler.

    Nor those of the exception that the program handled when it called us.
    """
    handlers = set(codes_of_handlers())
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and link is not handled and id(link) not in seen:
        seen.add(id(link))
        for frame, _ in traceback.walk_tb(link.__traceback__):
            if frame.f_code in handlers:
                break
            try:
                frame.clear()
            except RuntimeError:  # it is still running: the one that catches this exception
                continue
        link = link.__cause__ or link.__context__


def _forget_ours(error: BaseException, handled: BaseException | None) -> None:
    """An exception of the program's has nothing to do with those that we were handling when it came, only with those of its handler."""
    link: BaseException | None = error
    while link is not None and link is not handled:
        context = link.__context__
        if context is not None and context is not handled and _is_ours(context):
            link.__context__ = handled
        link = link.__context__


def _is_ours(error: BaseException) -> bool:
    """Was it caught here, or in torch?"""
    start = error.__traceback__
    module = "" if start is None else str(start.tb_frame.f_globals.get("__name__"))
    return module.startswith(("torch", "contextlib"))
