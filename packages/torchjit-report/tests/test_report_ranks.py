"""Traces, logs and folders say of which rank they are, where several processes run one program."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from torchjit_core import events
from torchjit_report import Recorder, read_trace
from torchjit_report.chrome import chrome_trace
from torchjit_report.collect import collect
from torchjit_report.folder import writer_of_this_process
from torchjit_report.logs import set_logs


@pytest.fixture
def second_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")


def recorded(folder: Path, function: str) -> None:
    with Recorder(folder=folder) as recorder, events.listen(recorder):
        started = {"function": function, "filename": "a.py", "lineno": 1, "source": "", "cause": "first call"}
        events.emit("compile_start", compile_id="0/0", **started)
        events.emit("compile_end", compile_id="0/0", seconds=0.1, ok=True)


def test_folders_of_ranks_are_one_trace(tmp_path: Path, second_rank: None, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(tmp_path / "host1", "f")
    monkeypatch.setenv("RANK", "0")
    recorded(tmp_path / "host0", "f")  # a process of another host may have the same number
    trace = read_trace(tmp_path)
    (function,) = collect(trace.events).functions
    assert {c.id for c in function.compilations} == {"0/0 of rank 0", "0/0 of rank 1"}
    assert all(c.ok for c in function.compilations)
    names = [row["args"]["name"] for row in chrome_trace(trace.events)["traceEvents"] if row["name"] == "process_name"]
    assert len(names) == 2
    assert all(any(f"rank {rank}" in name for name in names) for rank in (0, 1))
    assert [path.name.split("-")[2] for path in tmp_path.rglob("*rank0*")] == ["rank0"]


def test_a_process_alone_has_no_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, world in (("0", "1"), ("x", "2")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", world)
        recorded(tmp_path / rank, "f")
        (function,) = collect(read_trace(tmp_path / rank).events).functions
        assert [c.id for c in function.compilations] == ["0/0"]


def test_a_second_recording_of_a_process_goes_on(tmp_path: Path, second_rank: None) -> None:
    for name in ("a", "b"):
        recorded(tmp_path / name, "f")
    assert len({event.fields["pid"] for event in read_trace(tmp_path).events}) == 1


def test_logs_and_folders_say_the_rank(
    tmp_path: Path, second_rank: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("torchjit")
    level, handlers = log.level, list(log.handlers)
    set_logs({"recompiles": True})
    try:
        with caplog.at_level(logging.INFO, "torchjit"):
            events.emit("recompile", function="f", guard="x", expected="1", actual="2", filename="a.py", lineno=1)
    finally:
        set_logs({"recompiles": False})
        log.setLevel(level)
        log.handlers[:] = handlers
    assert "[rank 1, -] f recompiles" in caplog.text
    writer = writer_of_this_process(tmp_path)
    events.stop_listening(writer)
    writer_of_this_process.cache_clear()
    assert "-rank_1-" in writer.folder.name
