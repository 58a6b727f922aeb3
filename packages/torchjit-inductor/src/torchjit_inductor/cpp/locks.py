"""Locks of files, as a courtesy: who holds one spares others the same work, and nothing is wrong where there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from torchjit_core.handlers import let_through

__all__ = ["Timeout", "courtesy_lock"]


@contextlib.contextmanager
def courtesy_lock(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of a file inside the block. Where files cannot be locked (NFS without a lock manager) nothing is held.

    Args:
        path: of the lock.
        seconds: to wait for whoever holds it.

    Raises:
        Timeout: it is still held.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=seconds)
    except Timeout:  # which is an OSError, too
        raise
    except (OSError, NotImplementedError):
        let_through()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.release()
