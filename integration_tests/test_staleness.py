"""Is anything stale served to a second process? A small run of `tools/staleness.py`; and has it the power to see that?"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
from stale_starts import edits, projects, runs
from staleness import Finding, Fuzzer

FEATURES = (("constants", "classes", "defaults"), ("closures", "decorators", "environment"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TORCHJIT_STORE", raising=False)
    yield


def found(fuzzer: Fuzzer, features: tuple[str, ...], count: int) -> list[Finding]:
    r = random.Random(7)
    project = projects.compose(features, r)
    chosen = edits.neutral_edits(project, 1, r) + edits.edits_of(project, count, r)
    return list(fuzzer.project(project, chosen))


@pytest.mark.parametrize("features", FEATURES, ids="-".join)
def test_what_an_edited_program_gives_is_what_eager_gives(features: tuple[str, ...], tmp_path: Path) -> None:
    fuzzer = Fuzzer(tmp_path.resolve(), "compiled:aot_eager", "on")
    assert found(fuzzer, features, 5) == []
    assert fuzzer.tally.edits == 8


@pytest.mark.parametrize("stand_in", ["names", "code"])
def test_a_store_with_a_fault_is_found_at_once(stand_in: str, tmp_path: Path) -> None:
    findings = found(Fuzzer(tmp_path.resolve(), stand_in), ("constants",), 5)
    assert {f.kind for f in findings} == {"stale"}
    assert not any(f.edit.neutral for f in findings)


def test_facts_differ_by_more_than_rounding() -> None:
    assert runs.difference({"a": [1.0, float("nan")]}, {"a": [1.00001, float("nan")]}) is None
    assert runs.difference({"a": [1.0, 2.0]}, {"a": [1.0, 2.5]}) == " a[1]: 2.0 instead of 2.5"
    assert runs.difference([1], [1.0]) is not None and runs.difference([1], [True]) is not None


def test_edits_are_of_many_kinds_and_compile() -> None:
    r = random.Random(0)
    project = projects.compose(("classes", "operators", "modules"), r)
    made = edits.edits_of(project, 200, r)
    assert len({e.kind for e in made}) > 10
    assert all(e.after != project for e in made)
    for edit in made:
        for text in edit.after.texts.values():
            compile(text, "edited", "exec")
