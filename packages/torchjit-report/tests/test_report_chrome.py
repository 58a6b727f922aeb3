"""A trace in Chrome's format: what Perfetto needs of it, also for recordings that are cut off, overlap or lack fields."""

import json
from pathlib import Path
from typing import Any

import pytest

from torchjit_report import Event, chrome_trace, write_chrome_trace
from torchjit_report.collect import KNOWN


def started(time: float, compile_id: str = "0/0", pid: int = 7, **more: object) -> Event:
    place = {"function": "step", "filename": "/m/net.py", "lineno": 10, "cause": "first call", "source": "x" * 5000}
    return Event("compile_start", {**place, "time": time, "compile_id": compile_id, "pid": pid, **more})


def ended(time: float, seconds: float, compile_id: str = "0/0", pid: int = 7) -> Event:
    return Event("compile_end", {"time": time, "seconds": seconds, "ok": True, "compile_id": compile_id, "pid": pid})


def phase(name: str, end: float, seconds: float, pid: int = 7) -> Event:
    return Event("phase", {"name": name, "time": end, "seconds": seconds, "compile_id": "0/0", "pid": pid})


def slices(trace: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in trace["traceEvents"] if row["ph"] == "X"}


def check(trace: dict[str, Any]) -> None:
    """The rules of the format, and that slices of a thread lie one in another or apart."""
    text = json.dumps(trace, allow_nan=False)
    assert json.loads(text) == trace
    threads: dict[tuple[int, int], list[dict[str, Any]]] = {}
    named = {(row["pid"], row["tid"]) for row in trace["traceEvents"] if row["name"] == "thread_name"}
    for row in trace["traceEvents"]:
        assert row["ph"] in ("X", "M", "i") and isinstance(row["name"], str)
        assert isinstance(row["pid"], int) and isinstance(row["tid"], int)
        if row["ph"] != "M":
            assert row["ts"] >= 0
        if row["ph"] == "X":
            assert row["dur"] >= 0
            threads.setdefault((row["pid"], row["tid"]), []).append(row)
    assert set(threads) <= named
    for rows in threads.values():
        ends: list[float] = []
        for row in sorted(rows, key=lambda r: (r["ts"], -r["dur"])):
            while ends and ends[-1] <= row["ts"] + 1e-3:
                ends.pop()
            assert not ends or row["ts"] + row["dur"] <= ends[-1] + 1e-3
            ends.append(row["ts"] + row["dur"])


def test_phases_lie_in_their_compilation() -> None:
    told = [
        started(100.0),
        phase("joint trace", 100.5, 0.3),
        phase("backend", 100.9, 0.75),
        phase("capture", 101.0000001, 1.0),  # the clocks differ a little
        ended(101.0, 1.0),
        Event("graph_break", {"headline": "a C function", "time": 100.2, "pid": 7, "lineno": 3, "stack": [{}]}),
    ]
    trace = chrome_trace(told)
    check(trace)
    found = slices(trace)
    assert list(found) == ["step [0/0]", "capture", "backend", "joint trace"]
    assert found["step [0/0]"]["args"]["lineno"] == 10 and found["step [0/0]"]["dur"] == pytest.approx(1e6)
    assert "source" not in found["step [0/0]"]["args"]
    assert {row["tid"] for row in found.values()} == {0}
    (mark,) = [row for row in trace["traceEvents"] if row["ph"] == "i"]
    assert mark["name"] == "graph_break: a C function" and mark["args"]["lineno"] == 3


def test_what_overlaps_gets_a_thread_of_its_own() -> None:
    trace = chrome_trace(
        [
            started(1.0),
            started(1.5, "1/0"),
            ended(2.0, 1.0),
            ended(3.0, 1.5, "1/0"),
            started(4.0, "2/0"),
            ended(5.0, 1.0, "2/0"),
        ]
    )
    check(trace)
    assert [row["tid"] for row in slices(trace).values()] == [0, 1, 0]


def test_several_processes_and_a_compilation_that_was_killed() -> None:
    told = [started(1.0), phase("capture", 1.4, 0.3), started(1.0, pid=8), ended(2.0, 1.0, pid=8)]
    trace = chrome_trace(told)
    check(trace)
    assert {row["pid"] for row in trace["traceEvents"]} == {7, 8}
    killed = [
        row for row in trace["traceEvents"] if row["ph"] == "X" and row["pid"] == 7 and row["cat"] == "compilation"
    ]
    assert killed[0]["args"]["ok"] is False and killed[0]["dur"] == pytest.approx(0.4e6)


@pytest.mark.parametrize("kind", sorted(KNOWN))
def test_an_event_without_fields_is_no_error(kind: str) -> None:
    check(
        chrome_trace([Event(kind, {}), started(1.0), Event(kind, {"time": float("nan"), "pid": "x", "compile_id": 3})])
    )


def test_it_is_written_as_a_file(tmp_path: Path) -> None:
    path = write_chrome_trace([started(1.0), ended(2.0, 1.0)], tmp_path / "trace.json")
    check(json.loads(path.read_text()))
