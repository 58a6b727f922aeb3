"""Values that users give: kinds of settings and options, names of places, marks by name."""

from __future__ import annotations

from typing import Any

import pytest

from torchjit.kinds import COUNT, FUNCTIONS, LENIENT_SWITCH, SIZES, SOURCES, SWITCH, Kind, as_switch, choice, number
from torchjit.size_sources import bad_entry, marks_by_source, source_of
from torchjit_core.marks import SizeMark
from torchjit_core.paths import Arg
from torchjit_core.reasons import UserError, UserTypeError, reason

WRONG = reason("TJ-TST-901", "a wrong value of a test", "")
X, SELF = Arg.of(0, "x"), Arg.of(1, "self")


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (SWITCH, True, True), (LENIENT_SWITCH, 1, True), (LENIENT_SWITCH, 0, False), (COUNT, 0, 0), (COUNT, 3, 3),
        (number("a share", 0, 1), 1, 1.0), (choice("a", "b"), "b", "b"), (FUNCTIONS, [print], {print}), (SIZES, [4, 2, 4], (2, 4)),
        (SIZES, 8, (8,)), (SOURCES, "L['x']:0, y", "L['x']:0, y"),
    ],
)  # fmt: skip
def test_right_values_are_kept(kind: Kind, value: Any, kept: Any) -> None:
    made = kind.check("name", value, WRONG)
    assert made == kept and type(made) is type(kept)


@pytest.mark.parametrize(
    ("kind", "value", "error", "said"),
    [
        (SWITCH, 1, UserTypeError, "name=1, want True or False; did you mean True?"), (SWITCH, "flase", UserTypeError, "did you mean False?"),
        (LENIENT_SWITCH, 2, UserTypeError, "want True or False"), (COUNT, True, UserTypeError, "want an int"), (COUNT, -1, UserError, "want an int"),
        (COUNT, "8", UserTypeError, "did you mean 8?"), (number("a share", 0, 1), 2, UserError, "did you mean 1?"),
        (choice("eager", "raise"), "riase", UserError, "did you mean 'raise'?"), (FUNCTIONS, print, UserTypeError, "did you mean {"),
        (FUNCTIONS, ["print"], UserError, "'print' is no function"), (SIZES, (0,), UserError, "want positive integers"),
        (SOURCES, "L[(", UserError, "no regular expression"), (SOURCES, None, UserTypeError, "want names of places"),
    ],
)  # fmt: skip
def test_wrong_values_are_told(kind: Kind, value: Any, error: type[UserError], said: str) -> None:
    with pytest.raises(UserError) as caught:
        kind.check("name", value, WRONG)
    assert said in str(caught.value) and isinstance(caught.value, TypeError) == (
        error is UserTypeError or value == ["print"]
    )


def test_what_is_true_or_false() -> None:
    assert [as_switch(v) for v in (True, False, 1, 0)] == [True, False] * 2
    assert [as_switch(v) for v in (2, -1, 1.0, "1", None, [1])] == [None] * 6


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
