"""Events as files of a folder and as log lines."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from torchjit_core import events
from torchjit_core.reasons import UserError
from torchjit_report import logs
from torchjit_report.folder import FolderWriter

KERNEL = dict(name="fused/1", graph="graph 0", language="c", source="int f;")


def test_a_folder_holds_what_is_told(tmp_path: Path) -> None:
    with events.listen(FolderWriter(tmp_path)), events.using_compile_id("0/1"):
        events.emit("compile_start", function="f", filename="f.py", lineno=3, source="def f(): ...", cause="first call")
        events.emit("guards", guards=[{"text": "x is 1"}, {"text": "y is 2"}])
        events.emit("kernel", **KERNEL)
        events.emit("bytecode", original="LOAD", rewritten="")
    assert (tmp_path / "regions.txt").read_text() == "0/1  f  f.py:3  first call\n"
    made = {path.name: path.read_text() for path in (tmp_path / "0_1").iterdir()}
    assert made["guards.txt"] == "x is 1\ny is 2\n" and made["graph_0.fused_1.cpp"] == "int f;"
    assert made["source.py"] == "def f(): ..." and "nothing is left but the graph" in made["bytecode.txt"]


def test_of_some_compilations_only_and_a_folder_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    writer = FolderWriter(tmp_path / "file", {"1/0": (True, False)})
    with events.listen(writer):
        with events.using_compile_id("0/1"):
            events.emit("kernel", **KERNEL)
        with events.using_compile_id("1/0"), pytest.warns(RuntimeWarning, match="TORCHJIT_DEBUG_DIR") as told:
            events.emit("kernel", **KERNEL)
            events.emit("kernel", **KERNEL)
    assert len(told) == 1


def test_names_are_checked_and_the_variable_beats_them() -> None:
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    try:
        with pytest.raises(UserError, match="did you mean 'guards'"):
            logs.set_logs({"guard": True})
        with pytest.raises(UserError, match="want True or False"):
            logs.set_logs({"guards": 7})
        logs.set_logs({"guards": True}, "kernel_code,bytecode")
        assert events.bytecode_wanted_by == {"logs"}
        logging.getLogger("torchjit").addHandler(handler)
        events.emit("guards", guards=[{"text": "x is 1"}])
        events.emit("kernel", **KERNEL)
        assert heard == ["[-] kernel fused/1 (c)\nint f;"]
    finally:
        logging.getLogger("torchjit").removeHandler(handler)
        logs.set_logs(dict.fromkeys(logs.log_names(), False))
    assert not events.bytecode_wanted_by and not logs._enabled


def test_a_handler_of_the_programs_own_hears_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there before the first log is turned on, as a file of logs is set up."""
    log = logging.Logger("torchjit")
    log.parent = logging.RootLogger(logging.WARNING)
    monkeypatch.setattr(logs, "_log", log)
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    try:
        logs.set_logs({"guards": True})
        events.emit("guards", guards=[{"text": "x is 1"}])
        assert len(heard) == 1 and log.handlers == [handler]
    finally:
        logs.set_logs(dict.fromkeys(logs.log_names(), False))
