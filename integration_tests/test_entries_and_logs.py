"""Entries with their bytecode, a folder of what was compiled, and logs by upstream's names: each tells something real."""

# mypy: allow-untyped-calls

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torchjit
from torchjit_report import logs
from torchjit_report.logs import describe_logs, log_names

X = torch.ones(2, 4)


def broken(x: torch.Tensor, n: int) -> torch.Tensor:
    y = (x * n).sin()
    torchjit.graph_break("half way")
    return y + 1


def test_entries_show_what_replaces_a_function() -> None:
    fast = torchjit.compile(broken, backend="eager", dynamic=False)
    for n in (2, 3):
        fast(X, n)
    entries = fast.compiled.entries  # type: ignore[attr-defined]
    first, second, rest = entries
    assert first.original is second.original is broken.__code__
    assert [e.function for e in entries] == ["broken", "broken", rest.function] and "continuation" in rest.function
    assert first.continuations == second.continuations == (rest.compile_id,)
    assert (first.hits, second.hits, rest.hits) == (1, 1, 2)
    assert any("n == 2" in str(g) for g in first.guards) and any("n == 3" in str(g) for g in second.guards)
    assert "def broken(" in first.source and "resume" in first.source
    assert first.code is not None and first.code is not broken.__code__
    assert "graph_break" in first.original_bytecode and "resume" in first.bytecode
    # A continuation replaces code that starts in the middle of the function; nothing is left of it but its graph.
    assert rest.original is not broken.__code__ and rest.original.co_qualname == broken.__code__.co_qualname
    assert rest.location.lineno == broken.__code__.co_firstlineno + 2
    assert rest.source == "" and rest.code is not None and "add" in rest.bytecode
    assert "guard: " in str(first) and f"goes on in {rest.compile_id}" in str(first)


def test_entries_go_with_reset() -> None:
    fast = torchjit.compile(lambda x: x + 1, backend="eager")
    assert fast.compiled.entries == ()  # type: ignore[attr-defined]
    fast(X)
    assert len(fast.compiled.entries) == 1  # type: ignore[attr-defined]
    fast.compiled.reset()  # type: ignore[attr-defined]
    assert fast.compiled.entries == ()  # type: ignore[attr-defined]


def test_a_folder_of_what_was_compiled(tmp_path: Path) -> None:
    with torchjit.debug_folder(tmp_path / "made") as folder:
        torchjit.compile(broken)(X, 2)
    torchjit.compile(lambda x: x + 3, backend="eager")(X)
    regions = (folder / "regions.txt").read_text().splitlines()
    assert len(regions) == 2 and "broken" in regions[0] and f"{__file__}:" in regions[0]
    first, rest = (folder / line.split()[0].replace("/", "_") for line in regions)
    assert "graph_break" in (first / "source.py").read_text()
    listing = (first / "bytecode.txt").read_text()
    assert listing.startswith("== original") and "== rewritten" in listing and "RETURN_VALUE" in listing
    assert "resume" in (first / "rewritten.py").read_text()
    assert "half way" in (first / "break.txt").read_text()
    assert "n == 2" in (first / "guards.txt").read_text()
    for made in (first, rest):
        names = [p.name for p in made.iterdir()]
        assert any(n.endswith(".graph.py") for n in names) and any(n.endswith(".cpp") for n in names), names
        assert any(n.endswith(".svg") for n in names)
    assert len(list(folder.iterdir())) == 3


def test_a_folder_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="debug folder") as caught, torchjit.debug_folder(tmp_path / "file"):
        assert torch.equal(torchjit.compile(broken, backend="eager")(X, 2), broken(X, 2))
    assert len(caught) == 1


@pytest.fixture
def clean() -> Iterator[None]:
    yield
    torchjit.set_logs(**{name: False for name in log_names()})
    assert not logs._enabled


def trained(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = (x @ w).relu()
    torchjit.graph_break("half way")
    return y.sum()


def run_everything() -> None:
    fast = torchjit.compile(trained, mode="reduce-overhead", options=None)
    w = torch.randn(4, 4, requires_grad=True)
    for rows in (2, 3):
        fast(torch.ones(rows, 4), w).backward()
    torchjit.compile(lambda t: torch.linalg.svd(t)[1] * 2)(torch.randn(3, 3))


TOLD = {
    "recompiles": "recompiles: ", "graph_breaks": "half way", "guards": "test_entries_and_logs.py:", "graph_code": "captured graph",
    "graph_sizes": "w: float32[4, 4]", "aot_graphs": "joint graph", "output_code": "host program", "kernel_code": "kernel fused_",
    "cudagraphs": "TJ-CG-", "perf_hints": "half way", "dynamic": "s0 is x.size(0)", "bytecode": "original bytecode of trained",
    "compile_times": "compiled in", "dynamo": "compiling trained", "aot": "saved for the backward", "all": "kernel fused_",
}  # fmt: skip


def test_each_log_tells_something(clean: None, caplog: pytest.LogCaptureFixture) -> None:
    assert {*TOLD, "fusion", "autotuning", "inductor", "store"} == set(log_names())
    seen: dict[str, str] = {}
    handler = logging.Handler()
    heard: list[str] = []
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("torchjit").addHandler(handler)
    try:
        events: list[tuple[str, dict[str, Any]]] = []
        torchjit.set_logs(all=True)
        with torchjit_events(events):
            run_everything()
    finally:
        logging.getLogger("torchjit").removeHandler(handler)
    torchjit.set_logs(all=False)
    for name in TOLD:
        heard.clear()
        torchjit.set_logs(**{name: True})
        logging.getLogger("torchjit").addHandler(handler)
        for kind, fields in events:
            logs._listen(kind, fields)
        logging.getLogger("torchjit").removeHandler(handler)
        torchjit.set_logs(**{name: False})
        seen[name] = "\n".join(heard)
    assert {name: text for name, text in TOLD.items() if text not in seen[name]} == {}
    assert "aot_graphs" not in seen["dynamo"] and "kernel fused_" not in seen["graph_code"] + seen["dynamo"]


def torchjit_events(into: list[tuple[str, dict[str, Any]]]) -> Any:
    from torchjit_core.events import listen

    return listen(lambda kind, fields: into.append((kind, dict(fields))))


def test_levels(clean: None, caplog: pytest.LogCaptureFixture) -> None:
    def told(text: str) -> str:
        caplog.clear()
        logs.set_logs_from_text(text)
        torchjit.compile(lambda x: x.cos() + 1, backend="eager")(X)
        return caplog.text

    caplog.set_level(logging.INFO, logger="torchjit")
    assert "compiling" in told("dynamo") and "guards" not in caplog.text
    assert "compiling" in told("+dynamo") and "guards" in caplog.text and "captured graph" in caplog.text
    assert told("-dynamo") == ""
    torchjit.set_logs(dynamo=logging.DEBUG)
    assert "guards" in told("+dynamo")
    torchjit.set_logs(dynamo=False, guards=True)
    assert "guards" in told("guards") and told("-guards") == ""


def test_wrong_names_are_errors_each_time_and_help_lists_them(
    clean: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        with pytest.raises(torchjit.exc.UserError, match="did you mean 'recompiles'"):
            torchjit.set_logs(guards=True, recompile=True)
        assert not logs._enabled  # nothing of a call with a wrong name is done
        with pytest.raises(torchjit.exc.UserError, match="want True, False or a level"):
            torchjit.set_logs(guards="yes")  # type: ignore[arg-type]
    monkeypatch.setenv("TORCHJIT_LOGS", "graph_breaks")
    with pytest.raises(torchjit.exc.UserError):
        torchjit.set_logs(nonsense=True)
    monkeypatch.setenv("TORCHJIT_LOGS", "help")
    logs.check_logs_variable("help")
    logs.set_logs_from_text("help")
    said = capsys.readouterr().err
    assert all(name in said and meaning in said for name, meaning in describe_logs().items())
