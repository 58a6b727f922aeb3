"""One line on a terminal that says what is being compiled, once it takes longer than a second; gone when that has ended."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO, TypeAlias, final

from torchjit_core import events
from torchjit_core.forks import new_lock

__all__ = ["show_progress"]

FunctionOf: TypeAlias = Callable[[str | None], str | None]
DELAY = 1.0  # seconds of compilation before the line appears
_REDRAW = 0.25  # seconds
_ERASE = "\r\x1b[K"
_BAR = 20  # characters
_TEXTS = {
    "capture": "compiling {0}",
    "backward": "compiling the backward of {0}",
    "autotuning": "compiling {0}: autotuning",
    "cudagraph": "recording a CUDA graph of {0}",
}


@final
class _Line:
    """Draws from a thread of its own, so that the time goes on where the compiler takes long over one thing."""

    KINDS = (events.ACTIVITY_START, events.ACTIVITY_END, "kernel", "waiting", "autotune_progress")

    def __init__(self, stream: TextIO | None, function_of: FunctionOf) -> None:
        self._stream = stream
        self._function_of = function_of
        self._process = os.getpid()
        self._lock = new_lock()
        self._texts: list[str] = []
        """Of what has begun and not ended, the innermost last."""
        self._doing = ""
        self._since = 0.0
        self._ended = threading.Event()
        self._drawn_on: TextIO | None = None

    def __call__(self, kind: str, fields: dict[str, Any]) -> None:
        if os.getpid() != self._process:
            return  # forked: what draws the line is a thread of the parent
        with self._lock:
            if kind == events.ACTIVITY_START:
                self._begin(fields)
            elif kind == events.ACTIVITY_END:
                self._end()
            elif kind == "kernel":
                self._doing = f"kernel {fields['name']}"
            elif kind == "waiting":
                self._doing = f"waiting for {fields['what']}"
            else:
                tried, known = fields["tried"], max(fields["known"], 1)
                done = min(_BAR * tried // known, _BAR)
                self._doing = f"{fields['what']} [{'#' * done}{'-' * (_BAR - done)}] {tried}/{fields['known']}"

    def _begin(self, fields: dict[str, Any]) -> None:
        compile_id = fields["compile_id"]
        text = _TEXTS[fields["name"]].format(self._function_of(compile_id) or "a graph")
        self._texts.append(f"{text} [{compile_id or '-'}]")
        self._doing = ""
        if len(self._texts) == 1:
            self._since, self._ended = time.monotonic(), threading.Event()
            drawing = threading.Thread(target=self._draw, args=(self._ended,), name="torchjit-progress", daemon=True)
            drawing.start()

    def _end(self) -> None:
        self._doing = ""
        if self._texts:
            self._texts.pop()
        if not self._texts and not self._ended.is_set():
            self._ended.set()
            if self._drawn_on is not None:  # here: what the program writes next begins on an empty line
                self._write(self._drawn_on, _ERASE)
                self._drawn_on = None

    def _draw(self, ended: threading.Event) -> None:
        if ended.wait(DELAY):
            return
        stream = self._stream or sys.stderr
        if self._stream is None and not _is_terminal(stream):
            return
        while not ended.is_set():
            with self._lock:
                if ended.is_set() or not self._write(stream, _ERASE + self._text()):
                    return
                self._drawn_on = stream
            ended.wait(_REDRAW)

    @staticmethod
    def _write(stream: TextIO, text: str) -> bool:
        """Write to the terminal; False if it was closed."""
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError):
            return False
        return True

    def _text(self) -> str:
        text = ": ".join(filter(None, (self._texts[-1] if self._texts else "", self._doing)))
        taken = f" ({time.monotonic() - self._since:.0f} s)"
        room = shutil.get_terminal_size().columns - len(taken) - 1
        return (text if len(text) <= room else text[: max(room - 3, 0)] + "...") + taken


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, OSError, ValueError):  # of something that stands in for a stream, or was closed
        return False


_shown: list[_Line] = []


def show_progress(function_of: FunctionOf) -> None:
    """Show it from now on, if standard error is a terminal and this is rank 0.

    Args:
        function_of: the name of the function that a compilation, given its id, is about.
    """
    if not _shown and os.environ.get("RANK", "0") == "0" and _is_terminal(sys.stderr):
        _shown.append(_Line(None, function_of))
        events.start_listening(_shown[0], _Line.KINDS)
