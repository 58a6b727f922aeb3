"""Warnings are about lines of the program."""

from __future__ import annotations

import warnings

from torchjit_core.location import CodeLocation
from torchjit_core.user_warnings import call_from


def old(x: int, *, by: int) -> int:
    warnings.warn("old", DeprecationWarning, stacklevel=2)
    return x * by


def told(where: CodeLocation, times: int) -> list[tuple[str, int]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(times):
            assert call_from(where, old, (3,), {"by": 2}) == 6
    return [(w.filename, w.lineno) for w in found]


def test_a_call_warns_about_the_line_that_it_is_made_from() -> None:
    where = CodeLocation(__file__, "f", 7)
    assert told(where, 1) == [(__file__, 7)]
    assert told(where, 3) == [(__file__, 7)], "once for a line, as filters say"
    assert told(CodeLocation(__file__, "f", 8), 1) == [(__file__, 8)]


def test_code_of_no_module_counts_as_the_programs() -> None:
    where = CodeLocation("<cell 1>", "f", 3)
    assert told(where, 1) == [("<cell 1>", 3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", module="__main__")
        call_from(where, old, (3,), {"by": 2})
