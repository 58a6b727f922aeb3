"""Locks of files, as a courtesy: who holds one spares others the same work, and nothing is wrong where there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from torchjit_core.handlers import let_through

__all__ = ["Timeout", "courtesy_lock"]


class Timeout(TimeoutError):
    """Somebody else holds the lock still."""


@contextlib.contextmanager
def courtesy_lock(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of a file inside the block. Where files cannot be locked (NFS without a lock manager) nothing is held.

    Args:
        path: of the lock.
        seconds: to wait for whoever holds it.

    Raises:
        Timeout: it is still held.
    """
    # Its audit hook makes each `id` of the program ten times slower from then on: who compiles nothing with a C++ compiler goes without.
    import filelock  # noqa: PLC0415

    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=seconds)
    except filelock.Timeout as error:  # which is an OSError, too
        raise Timeout(str(error)) from None
    except (OSError, NotImplementedError):
        let_through()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.release()
