"""Is anything stale served to a second process? A small run of `tools/staleness.py`; and has it the power to see that?"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
from stale_starts import edits, projects, runs
from staleness import Finding, Fuzzer

FEATURES = (("constants", "classes", "defaults"), ("closures", "decorators", "environment"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TORCHJIT_STORE", raising=False)
    yield


def found(fuzzer: Fuzzer, features: tuple[str, ...], count: int, how: str) -> list[Finding]:
    r = random.Random(7)
    project = projects.compose(features, r)
    chosen = edits.neutral_edits(project, 1, r) + edits.edits_of(project, count, r)
    return list(fuzzer.project(project, chosen, how, r))


@pytest.mark.parametrize("features", FEATURES, ids="-".join)
def test_what_an_edited_program_gives_is_what_eager_gives(features: tuple[str, ...], tmp_path: Path) -> None:
    fuzzer = Fuzzer(tmp_path.resolve(), "on")
    assert found(fuzzer, features, 5, "compiled:aot_eager") == []
    assert fuzzer.tally.edits + fuzzer.tally.invalid == 7


@pytest.mark.parametrize("stand_in", ["names", "code"])
def test_a_store_with_a_fault_is_found_at_once(stand_in: str, tmp_path: Path) -> None:
    findings = found(Fuzzer(tmp_path.resolve()), ("constants",), 8, stand_in)
    assert {f.kind for f in findings} == {"stale"}
    assert not any(f.edit.neutral for f in findings)


def test_facts_differ_by_more_than_rounding() -> None:
    assert runs.difference({"a": [1.0, float("nan")]}, {"a": [1.00001, float("nan")]}) is None
    assert runs.difference({"a": [1.0, 2.0]}, {"a": [1.0, 2.5]}) == " a[1]: 2.0 instead of 2.5"
    assert runs.difference([1], [1.0]) is not None and runs.difference([1], [True]) is not None


def test_edits_are_of_many_kinds_and_compile() -> None:
    r = random.Random(0)
    project = projects.compose(("classes", "operators", "modules"), r)
    made = edits.edits_of(project, 60, r)
    assert len({e.kind for e in made}) > 10
    assert all(e.after != project and e.after.compiles() for e in made)


def test_a_renamed_module_is_imported_by_its_new_name(tmp_path: Path) -> None:
    project = projects.compose(("defaults",), random.Random(0))
    attrs.evolve(project, names={"deep": "deeper"}).write(tmp_path)
    assert sorted(path.stem for path in (tmp_path / "here" / "proj").glob("*.py")) == [
        "__init__",
        "deeper",
        "middle",
        "settings",
        "top",
    ]
    assert "from proj.deeper import default_deep" in (tmp_path / "here" / "proj" / "middle.py").read_text()
