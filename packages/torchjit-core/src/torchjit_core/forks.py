"""What a child of `os.fork` must not inherit from threads that it does not have: held locks, and states of the whole process.

A child has one thread, the one that forked. What its other threads were in the middle of never ends there.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal

__all__ = ["caught_warnings", "new_lock", "undone_in_children"]

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_undos: dict[object, tuple[int, Callable[[], None]]] = {}


def new_lock() -> threading.RLock:
    """A re-entrant lock that is free in the child of a fork, unless the thread that forked holds it."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


@contextlib.contextmanager
def undone_in_children(undo: Callable[[], None]) -> Iterator[None]:
    """Inside, a state of the whole process is changed; a child that another thread forks meanwhile calls `undo`, which must not raise.

    A child that this thread forks leaves the block like its parent.
    """
    key = object()
    _undos[key] = (threading.get_ident(), undo)
    try:
        yield
    finally:
        _undos.pop(key, None)


@contextlib.contextmanager
def caught_warnings(
    action: Literal["default", "error", "ignore", "always", "module", "once"] | None = None,
) -> Iterator[None]:
    """`warnings.catch_warnings`, whose filters are the process's, for no child of another thread."""
    manager = warnings.catch_warnings(action=action)
    with manager, undone_in_children(lambda: manager.__exit__(None, None, None)):
        yield


def _in_child() -> None:
    for lock in tuple(_locks):
        if not lock._is_owned():  # the thread that forked goes on in the child, under the same identity
            lock._at_fork_reinit()
    me = threading.get_ident()
    for key, (thread, undo) in reversed(tuple(_undos.items())):
        if thread != me:
            del _undos[key]
            undo()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
