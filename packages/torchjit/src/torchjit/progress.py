"""One line on a terminal that says what is being compiled, once it takes longer than a second, with a bar while it autotunes."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, final

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.status import Status
from rich.table import Table

from torchjit_core import events

__all__ = ["progress_line"]

DELAY = 1.0  # seconds of compilation before the line appears


@final
class _Line:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._status: Status | None = None
        self._timer: threading.Timer | None = None
        self._depth = 0
        self._text = ""
        self._since = 0.0

    def __call__(self, kind: str, fields: dict[str, Any]) -> None:
        if os.getpid() != self._process:
            return  # forked: what draws the line, and may hold the lock, is a thread of the parent
        with self._lock:
            if kind == "compile_start":
                self._start(fields)
            elif kind == "compile_end":
                self._end()
            elif kind == "kernel":
                self._show(f"{self._text}: kernel {fields['name']}")
            elif kind == "waiting":
                self._show(f"{self._text}: waiting for {fields['what']}")
            elif kind == "autotune_progress":
                self._show_bar(fields)
            elif kind == "graph":
                self._show(f"{self._text}: {fields['stage']} graph, {fields['nodes']} nodes")

    def _start(self, fields: dict[str, Any]) -> None:
        self._depth += 1
        self._text = f"compiling {fields['function']} [{fields.get('compile_id')}]"
        if self._depth == 1:
            self._since = time.monotonic()
            self._timer = threading.Timer(DELAY, self._appear)
            self._timer.daemon = True
            self._timer.start()

    def _appear(self) -> None:
        with self._lock:
            if self._depth and self._status is None:
                self._status = self._console.status(self._text)
                self._status.start()

    def _show(self, text: str) -> None:
        if self._status is not None:
            self._status.update(f"{text} ({time.monotonic() - self._since:.0f} s)")

    def _show_bar(self, fields: dict[str, Any]) -> None:
        """How many of the configurations that are known so far have been tried."""
        if self._status is not None:
            grid = Table.grid(padding=(0, 1))
            grid.add_row(
                f"{self._text}: autotuning {fields['what']}",
                ProgressBar(total=max(fields["known"], 1), completed=fields["tried"], width=20),
                f"{fields['tried']}/{fields['known']} ({time.monotonic() - self._since:.0f} s)",
            )
            self._status.update(grid)

    def _end(self) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._status is not None:
            self._status.stop()
            self._status = None


@contextlib.contextmanager
def progress_line(console: Console | None = None) -> Iterator[None]:
    """Show the line inside the block, if standard error is a terminal and this is rank 0."""
    chosen = console or Console(stderr=True)
    if not chosen.is_terminal or os.environ.get("RANK", "0") != "0":
        yield
        return
    with events.listen(_Line(chosen)):
        yield
