"""Recording and reading traces."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchjit_core import events
from torchjit_report import Event, Recorder, read_trace, recording
from torchjit_report.trace import FORMAT, jsonable


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_what_is_emitted_comes_back_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with recording(path) as recorder, events.using_compile_id("0/1"):
        events.emit("kernel", name="mul", language="c", source='\n\t"\\ü\u2028', origins=["a", "b"])
        events.emit("phase", name="capture", seconds=0.25)
    events.emit("phase", name="after", seconds=1.0)
    trace = read_trace(path)
    assert trace.events == recorder.events
    assert trace.skipped == 0
    assert [e.kind for e in trace] == ["session", "kernel", "phase"]
    kernel = trace.events[1].fields
    assert (kernel["source"], kernel["origins"], kernel["compile_id"]) == ('\n\t"\\ü\u2028', ["a", "b"], "0/1")
    assert kernel["pid"] == os.getpid()
    assert kernel["time"] > 1e9
    assert trace.events[0].fields["format"] == FORMAT
    assert "\n" not in path.read_text().splitlines()[1]


def test_a_second_recording_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    for _ in range(2):
        with recording(path):
            events.emit("phase", name="p", seconds=1)
    assert [e.kind for e in read_trace(path)] == ["session", "phase"] * 2


def test_in_memory_only_and_in_the_file_only(tmp_path: Path) -> None:
    with recording() as recorder:
        events.emit("phase", name="p", seconds=1)
    assert len(recorder.events) == 2
    with recording(tmp_path / "t", keep=False) as recorder:
        events.emit("phase", name="p", seconds=1)
    assert recorder.events == ()
    assert len(read_trace(tmp_path / "t")) == 2


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (2.5, 2.5),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        ((1, [2]), [1, [2]]),
        ({3, 1, 2}, [1, 2, 3]),
        ({1: {(2, 3): "x"}}, {"1": {"(2, 3)": "x"}}),
        (Path("a/b"), "a/b"),
        (b"x", "b'x'"),
        (Unprintable(), "<Unprintable, unprintable: RuntimeError>"),
    ],
)
def test_fields_become_json(value: object, want: object) -> None:
    assert jsonable(value) == want
    json.dumps(jsonable(value), allow_nan=False)


def test_endless_values_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "..." in json.dumps(jsonable(loop))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
    max_leaves=10,
)


@given(values)
def test_every_value_survives_the_file(value: object) -> None:
    clean = jsonable(value)
    assert json.loads(json.dumps(clean, allow_nan=False)) == clean


def test_bad_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    good = b'{"kind":"phase","name":"p","seconds":1}\n'
    bad = [
        b"{\n",
        b"[1]\n",
        b"3\n",
        b"null\n",
        b'{"kind":5}\n',
        b'{"name":"no kind"}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
    ]
    path.write_bytes(good + b"".join(bad) + b"\n  \n" + good + good[:-9])
    trace = read_trace(path)
    assert trace.events == (Event("phase", {"name": "p", "seconds": 1}),) * 2
    assert trace.skipped == len(bad) + 1


def test_every_cut_of_a_trace_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with recording(path):
        events.emit("graph", stage="captured", name="g", code="ü = 1\n", nodes=1)
    whole = path.read_bytes()
    for n in range(0, len(whole), 7):
        path.write_bytes(whole[:n])
        trace = read_trace(path)
        assert len(trace) + trace.skipped == whole[:n].count(b"\n") + (whole[:n][-1:] not in (b"", b"\n"))


def _emit_many(k: int) -> None:
    for _ in range(50):
        events.emit("x", k=k, text="y" * 5000)


def test_threads_do_not_mix_lines(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with recording(path) as recorder:
        threads = [threading.Thread(target=_emit_many, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = read_trace(path)
    assert trace.skipped == 0
    assert len(trace) == 401
    assert trace.events == recorder.events


# A program of its own: how pytest imports this file must not matter to the children.
CHILD = """
import sys
from torchjit_core import events
from torchjit_report import recording
with recording(sys.argv[1]):
    for k in range(50):
        events.emit("x", name=sys.argv[2], k=k, text="z" * 3000)
"""


def test_processes_share_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "trace.jsonl")
    children = [subprocess.Popen([sys.executable, "-c", CHILD, path, str(n)]) for n in range(2)]
    for child in children:
        assert child.wait(60) == 0
    trace = read_trace(path)
    assert trace.skipped == 0
    assert len(trace) == 102
    assert len({e.fields["pid"] for e in trace}) == 2


def test_a_full_disk_warns_once_and_recording_goes_on(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with pytest.warns(UserWarning, match="cannot write"):
        recorder = Recorder("/dev/full")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorder("phase", {"name": "p"})
    assert [e.kind for e in recorder.events] == ["session", "phase"]


def test_a_file_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        Recorder(tmp_path / "missing" / "trace.jsonl")


def test_a_folder_gets_a_file_of_its_own_per_recording(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "traces"
    for name in ("a", "b"):
        with Recorder(folder=folder) as recorder:
            recorder("phase", {"name": name})
    (folder / "notes.txt").write_text("not a trace")
    (folder / "zz.jsonl").write_text("cut {")
    trace = read_trace(folder)
    assert [e.fields["name"] for e in trace if e.kind == "phase"] == ["a", "b"]
    assert trace.skipped == 1
    with pytest.raises(ValueError, match="not both"):
        Recorder("x", folder="y")


def test_closing_twice_is_fine_and_later_events_stay_in_memory(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "t")
    recorder.close()
    recorder.close()
    recorder("x", {})
    assert len(recorder.events) == 2
    assert len(read_trace(tmp_path / "t")) == 1
