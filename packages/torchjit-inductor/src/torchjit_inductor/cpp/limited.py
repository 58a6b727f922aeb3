"""Running compilers as processes that come to an end."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import final

import attrs

from torchjit_core.events import emit

__all__ = ["Ran", "Running", "TookTooLong", "run_limited", "tell_waiting"]

PATIENCE = 30.0
"""Seconds after which it is said what is waited for; then after twice as many, and so on."""

_log = logging.getLogger("torchjit")


@final
class TookTooLong(Exception):
    """A process did not end within its time, and was ended."""


@final
@attrs.frozen
class Ran:
    """A process that has ended: its status, and what it wrote."""

    status: int
    output: str
    errors: str


@final
class Running:
    """Processes that threads wait for, which another thread may end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def add(self, process: subprocess.Popen[str]) -> None:
        """One more; it ends at once if they were stopped."""
        with self._lock:
            self._processes.add(process)
            if self._stopped:
                _kill(process)

    def remove(self, process: subprocess.Popen[str]) -> None:
        """It has ended."""
        with self._lock:
            self._processes.discard(process)

    def stop(self) -> None:
        """End them all, and those that come later."""
        with self._lock:
            self._stopped = True
            for process in self._processes:
                _kill(process)


def run_limited(
    command: Sequence[str],
    seconds: float,
    what: str,
    env: Mapping[str, str] | None = None,
    running: Running | None = None,
) -> Ran:
    """Run a program and what it starts. Long waits are told on the log `torchjit` (standard error) and as events `waiting`.

    Args:
        seconds: after which all of it is ended; `inf` for no limit.
        what: it makes, for messages.
        running: where it is while it runs.

    Raises:
        OSError: it cannot be started.
        TookTooLong: it did not end.
    """
    start = time.monotonic()
    # A group of its own: compilers start others, which hold its pipes open.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        env=env, process_group=0,
    )  # fmt: skip
    told = PATIENCE
    try:
        if running is not None:
            running.add(process)
        while True:
            spent = time.monotonic() - start
            try:
                output, errors = process.communicate(timeout=max(min(told, seconds) - spent, 0.01))
                return Ran(process.returncode, output, errors)
            except subprocess.TimeoutExpired:
                if time.monotonic() - start >= seconds:
                    raise TookTooLong(f"{command[0]} did not make {what} within {seconds:g} s") from None
                tell_waiting(f"{command[0]} to make {what}", told, seconds)
                told *= 2
    finally:
        if running is not None:
            running.remove(process)
        if process.poll() is None:
            _kill(process)
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def tell_waiting(what: str, spent: float, seconds: float) -> None:
    """Say what is waited for, how long it has been, and how long it may be."""
    _log.warning("waiting for %s: %.0f s so far, %g s at most", what, spent, seconds)
    emit("waiting", what=what, seconds=spent, limit=seconds)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
