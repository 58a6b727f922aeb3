"""The tree of phases, found from lengths and ends."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchjit_core import events
from torchjit_report import recording
from torchjit_report.collect import collect
from torchjit_report.model import Phase
from torchjit_report.phases import Node, flat, rows, segments, tree


def shape(nodes: list[Node]) -> list[object]:
    return [(n.name, shape(n.children)) if n.children else n.name for n in nodes]


def test_inner_phases_end_first() -> None:
    told = [
        Phase("trace", 2, 3),
        Phase("codegen", 1, 4.5),
        Phase("backend", 4, 5),
        Phase("guards", 1, 6.5),
        Phase("all", 7, 7),
    ]
    assert shape(tree(told, 7)) == [("all", [("backend", ["trace", "codegen"]), "guards"])]


def test_real_phases_nest_as_they_ran() -> None:
    with recording() as recorder, events.phase("all"):
        for _ in range(3):
            with events.phase("a"):
                time.sleep(0.002)
                with events.phase("b"):
                    time.sleep(0.001)
        with events.phase("c"):
            pass
        with events.phase("d"):
            pass
    (compilation,) = collect(recorder.events).compilations
    (all_,) = tree(compilation.phases, 0)
    assert shape([all_]) == [("all", [("a", ["b"]), "c", "d"])]
    assert all_.children[0].seconds >= 0.009


def test_a_phase_told_twice_is_one() -> None:
    told = [Phase("trace", 1, 2), Phase("backend", 3, 3), Phase("backend", 3.1, 3.05)]
    (backend,) = tree(told, 3.1)
    assert shape([backend]) == [("backend", ["trace"])]
    assert backend.seconds == 3.1


def test_what_no_phase_covers_is_other() -> None:
    assert [(n.name, n.seconds) for n in tree([Phase("a", 1, 1)], 3)] == [("a", 1), ("other", 2)]
    assert [n.name for n in tree([Phase("a", 2.99, 3)], 3)] == ["a"]
    assert tree([], 3) == []


def test_without_times_phases_stand_side_by_side() -> None:
    assert shape(tree([Phase("a", 1), Phase("b", 5), Phase("a", 2)], 0)) == ["a", "b"]


def test_bars_and_table() -> None:
    nodes = [Node("all", 8, [Node("x", 2), Node("y", 4)]), Node("other", 2)]
    assert [(s.name, s.left, s.width, s.level) for s in segments(nodes, 10)] == [
        ("all", 0, 80, 0), ("x", 0, 20, 1), ("y", 20, 40, 1), ("other", 80, 20, 0),
    ]  # fmt: skip
    assert [(r.name, r.share, r.level) for r in rows(nodes, 10)] == [
        ("all", 80, 0), ("y", 40, 1), ("x", 20, 1), ("other", 20, 0),
    ]  # fmt: skip
    assert [(n.name, n.seconds) for n in flat(nodes)] == [("all", 2), ("x", 2), ("y", 4), ("other", 2)]


numbers = st.floats(0, 100)
told = st.lists(st.builds(Phase, st.sampled_from("abc"), numbers, numbers), max_size=12)


@given(told, numbers)
def test_bars_stay_inside(phases: list[Phase], total: float) -> None:
    nodes = tree(phases, total)
    assert sum(r.level == 0 for r in rows(nodes, total)) == len(nodes)
    for segment in segments(nodes, total):
        assert segment.left >= 0
        assert segment.left + segment.width <= 100 + 1e-6
    whole = sum(n.seconds for n in nodes)
    assert sum(n.seconds for n in flat(nodes)) >= whole - 1e-6
    assert all(node.own == pytest.approx(node.seconds) for node in nodes if not node.children)
