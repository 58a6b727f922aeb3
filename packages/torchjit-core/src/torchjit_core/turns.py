"""One capture at a time in a process, and none waits for another's compiler.

Fake tensors, torch's tracing and the pause of the garbage collector are states of the process rather than of a thread, so that a
thread takes a turn to capture and to compile. While it waits for something outside of the interpreter, a compiler's process say,
or calls a backend that is not ours, it lets the others have theirs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torchjit_core.forks import new_lock

__all__ = ["others_may_go_on", "turn"]

_lock: Any = new_lock()  # with the methods that `threading.Condition` uses
_HAVE_IT = contextlib.nullcontext()


def turn() -> contextlib.AbstractContextManager[Any]:
    """What to enter: returns when no other thread has its turn. Nothing in a thread that has it.

    It is the lock itself, whose `__enter__` and `__exit__` no signal's handler divides.
    """
    return _HAVE_IT if _lock._is_owned() else _lock


@contextlib.contextmanager
def others_may_go_on() -> Iterator[None]:
    """Inside, this thread's turn, if it has it, is for others to take. The end waits until it is this thread's again."""
    if not _lock._is_owned():
        yield
        return
    try:
        _lock.release()
        yield
    finally:
        if not _lock._is_owned():
            # As `Condition.wait` does it: no signal ends this wait, so that whoever has entered the turn leaves it with the lock.
            _lock._acquire_restore((1, threading.get_ident()))
