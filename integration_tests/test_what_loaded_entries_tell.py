"""A program that finds its entries on disk is told the same of its breaks, guards and graphs as one that compiles them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import torchjit
from torchjit_core import events
from torchjit_report import Recorder
from torchjit_report.collect import collect
from torchjit_report.trace import Event


def scaled(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    return y.sin()


@pytest.fixture
def fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its entries are on disk when the test begins, and not in memory."""
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHJIT_STORE", "on")
    compiled = torchjit.compile(scaled, backend="aot_eager")
    return compiled


def _heard(fast: Any) -> tuple[Event, ...]:
    torchjit.reset()
    recorder = Recorder()
    with events.listen(recorder):
        fast(torch.ones(3))
    return recorder.events


def test_breaks_guards_and_graphs_are_told(fast: Any) -> None:
    compiled, loaded = _heard(fast), _heard(fast)
    kinds = {event.kind for event in loaded}
    assert "entry_loaded" in kinds and "compile_start" not in kinds
    told = ("reason", "detail", "line", "lineno", "hints", "calls")
    breaks: tuple[list[Any], list[Any]] = [], []
    guards: tuple[list[Any], list[Any]] = [], []
    codes: tuple[list[Any], list[Any]] = [], []
    for i, heard in enumerate((compiled, loaded)):
        breaks[i].extend([e.fields[name] for name in told] for e in heard if e.kind == "graph_break")
        guards[i].extend(sorted(g["text"] for g in e.fields["guards"]) for e in heard if e.kind == "guards")
        graphs = [e.fields for e in heard if e.kind == "graph" and e.fields["stage"] == "captured"]
        codes[i].extend(graph["code"].strip() for graph in graphs)
    assert breaks[1] == breaks[0] and len(breaks[0]) == 1
    assert guards[1] == guards[0] and len(guards[0]) == 2
    assert codes[1] == codes[0] and len(codes[0]) == 2


def test_the_report_has_the_functions_their_source_and_breaks(fast: Any) -> None:
    compiled, loaded = (collect(_heard(fast)) for _ in range(2))
    rows = [
        [(f.name, f.place, f.source, len(f.compilations), sum(len(c.breaks) for c in f.compilations)) for f in r.functions if f.source]
        for r in (compiled, loaded)
    ]  # fmt: skip
    assert rows[1] == rows[0] and rows[0][0][0] == "scaled"
    made = loaded.functions[0].compilations[0]
    assert made.status == "ok" and made.cause == "loaded from disk" and made.seconds > 0


@pytest.mark.parametrize(
    ("name", "text"), [("graph_breaks", "if y.sum() > 0:"), ("kernel_code", "TORCHJIT_STORE=off compiles it again")]
)
def test_logs_are_not_silent(fast: Any, caplog: pytest.LogCaptureFixture, name: str, text: str) -> None:
    fast(torch.ones(3))
    torchjit.reset()
    torchjit.set_logs(**{name: True})
    try:
        with caplog.at_level("INFO", logger="torchjit"):
            fast(torch.ones(3))
    finally:
        torchjit.set_logs(**{name: False})
    assert text in caplog.text
