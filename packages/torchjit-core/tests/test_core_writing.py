"""Where generated code was when it raised."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchjit_core.writing import NEVER, WRITES_FROM, nothing_written

TEXT = """
def run(inner, at):
    if at == 3: raise ValueError
    if at == 4: raise ValueError
    inner()
"""


def generated(writes_from: int | None) -> Callable[[Callable[[], None], int], None]:
    bound: dict[str, Callable[[Callable[[], None], int], None]] = {}
    names: dict[str, object] = {} if writes_from is None else {WRITES_FROM: writes_from}
    exec(compile(TEXT, "<generated>", "exec"), names, bound)
    return bound["run"]


@pytest.mark.parametrize(
    ("outer", "inner", "at", "unwritten"),
    [
        (4, None, 3, True), (4, None, 4, False), (3, None, 4, False), (NEVER, None, 4, True), (None, None, 3, False),
        (NEVER, 4, 3, True), (NEVER, 3, 3, False), (4, NEVER, 3, False), (None, 4, 3, True), (None, None, 4, False),
    ],
)  # fmt: skip
def test_a_line_before_the_first_write(outer: int | None, inner: int | None, at: int, unwritten: bool) -> None:
    """`inner`: the error comes through `outer`, at line 5."""
    function = generated(outer)
    with pytest.raises(ValueError) as caught:
        if inner is None:
            function(lambda: None, at)
        else:
            function(lambda: generated(inner)(lambda: None, at), 0)
    assert nothing_written(caught.value) is unwritten
