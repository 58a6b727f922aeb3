"""What captures and compiles, imported when it is needed: a process whose regions are all on disk does without it.

A first call may be inside of modes of torch's and below handlers of signals that raise. The imports run in a thread of their own, which
has no modes, and where Python calls no handlers: a module is imported whole, or not yet.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from typing import Protocol, runtime_checkable

__all__ = ["LoadedLater", "import_capture"]

_CAPTURE = "torchjit_session.capture"
_READ_AHEAD = ("torchjit_vm", "torchjit_fx", "torchjit_guards", "torchjit_core", "torchjit_torch", "torchjit_session")


@runtime_checkable
class LoadedLater(Protocol):
    """A backend that imports what it needs when it is told to, or first called."""

    is_loaded: bool

    def load(self) -> None: ...


def import_capture(backend: object) -> None:
    """Import what captures, and what a backend of ours needs.

    Raises:
        BaseException: what a signal's handler raises in the meantime; the imports go on beside the program then.
    """
    later = backend if isinstance(backend, LoadedLater) else None
    if hasattr(sys.modules.get(_CAPTURE), "interpret") and (later is None or later.is_loaded):
        return

    def imports() -> None:
        from torchjit_core.collector import collector_paused  # noqa: PLC0415  # for those who import something
        from torchjit_session.reading_ahead import read_ahead  # noqa: PLC0415

        with collector_paused():  # what a module makes, stays
            with read_ahead(_READ_AHEAD):
                importlib.import_module(_CAPTURE)
            if later is not None:
                later.load()

    _in_a_thread(imports)


def _in_a_thread(work: Callable[[], None]) -> None:
    """Have this done by a thread of its own; by this one where there can be no other (at the end of a process).

    Raises:
        Exception: whatever `work` raises.
        BaseException: what a signal's handler raises while this thread waits.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    worker = threading.Thread(target=run, name="torchjit-imports", daemon=True)
    try:
        worker.start()
    except RuntimeError:
        work()
        return
    worker.join()
    if raised:
        raise raised[0]
