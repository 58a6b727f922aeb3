"""Values that users give: kinds of settings and options."""

from __future__ import annotations

from typing import Any

import pytest

from torchjit_core.kinds import (
    COUNT,
    FUNCTIONS,
    LENIENT_SWITCH,
    SIZES,
    SOURCES,
    SWITCH,
    Kind,
    as_switch,
    choice,
    number,
)
from torchjit_core.reasons import UserError, UserTypeError, reason

WRONG = reason("TJ-TST-901", "a wrong value of a test", "")


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
