"""The line on a terminal that says what is being compiled."""

from __future__ import annotations

import io
import sys
import threading
import time

import pytest

from torchjit_core import events
from torchjit_report import progress


def named(compile_id: str | None) -> str | None:
    return "wave" if compile_id == "77/0" else None


def test_the_line_says_how_much_has_been_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "_REDRAW", 0.01)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    shown = io.StringIO()

    def wait_for(text: str) -> None:
        until = time.monotonic() + 20
        while text not in shown.getvalue():
            assert time.monotonic() < until, shown.getvalue()[-400:]
            time.sleep(0.01)

    with (
        events.listen(progress._Line(shown, named), progress._Line.KINDS),
        events.using_compile_id("77/0"),
        events.activity("capture"),
    ):
        wait_for("compiling wave [77/0] (0 s)")
        with events.activity("autotuning"):
            events.emit("autotune_progress", what="1 x [64, 64]", tried=3, known=12)
            wait_for("compiling wave: autotuning [77/0]: 1 x [64, 64] [#####---------------] 3/12 (0 s)")
        monkeypatch.setenv("COLUMNS", "24")
        wait_for("\x1b[Kcompiling wave... (")


def test_what_is_quick_shows_nothing() -> None:
    shown = io.StringIO()
    with events.listen(progress._Line(shown, lambda compile_id: None), progress._Line.KINDS):
        for _ in range(3):
            with events.activity("capture"):
                pass
        drawing = [thread for thread in threading.enumerate() if thread.name == "torchjit-progress"]
    for thread in drawing:
        thread.join(20)
    assert not shown.getvalue()


def test_no_line_where_standard_error_is_no_terminal_or_somebody_said_no(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(progress, "_shown", [])
    monkeypatch.setattr(sys, "stderr", None)
    progress.show_progress(named)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    progress.show_progress(named)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("RANK", "3")
    progress.show_progress(named)
    assert not progress._shown
    monkeypatch.setenv("RANK", "0")
    progress.show_progress(named)
    (line,) = progress._shown
    events.stop_listening(line)
