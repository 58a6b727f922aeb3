"""Sizes named by where they are found: names of places, marks by name."""

from __future__ import annotations

import pytest

from torchjit_core.marks import SizeMark
from torchjit_core.paths import Arg
from torchjit_core.reasons import UserError
from torchjit_core.size_sources import bad_entry, marks_by_source, source_of

X, SELF = Arg.of(0, "x"), Arg.of(1, "self")


def test_names_of_places() -> None:
    assert source_of(X) == "L['x']" and source_of(SELF.instance_attr("bias")) == "L['self'].bias"
    assert source_of(X.item(0)) == "L['x'][0]"
    assert marks_by_source("", " , ", "") is None
    assert bad_entry("x, L['y']:0, .*") is None and bad_entry("x,[:1") is not None
    with pytest.raises(UserError, match="TJ-API-076"):
        marks_by_source("[", "", "")


@pytest.mark.parametrize(
    ("dynamic", "static", "unbacked", "kinds"),
    [
        ("x", "", "", ["maybe", "maybe", None]), ("L['x']:1", "", "", [None, "maybe", None]), ("x:1", "x", "", ["static", "static", None]),
        (".*", "", "x:0", ["unbacked", "maybe", "maybe"]), ("self.n", "", "", [None, None, "maybe"]), ("self", "", "", [None, None, None]),
        (r"L\['self'\].*:3", "", "", [None, None, "maybe"]), ("xs,L['xs']", "", "", [None, None, None]),
    ],
)  # fmt: skip
def test_marks_by_the_names_of_places(dynamic: str, static: str, unbacked: str, kinds: list[str | None]) -> None:
    mark = marks_by_source(dynamic, static, unbacked)
    assert mark is not None
    places = (X.size(0), X.size(1), SELF.instance_attr("n"))
    assert [found and found.kind for found in map(mark, places)] == kinds
    assert all(found is None or found == SizeMark(found.kind) for found in map(mark, places))
