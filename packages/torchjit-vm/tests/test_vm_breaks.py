"""Graph breaks against plain execution."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vm_break_programs import PROGRAMS, branches, inlined_callers, loop_with_break_inside, uncaught_after_break
from vm_compare import check
from vm_lazy import Jit
from vm_lazy import Num as N

from torchjit_core.reasons import GraphBreak


@pytest.mark.parametrize(("breaks", "function", "args"), PROGRAMS, ids=[f.__name__ for _, f, _ in PROGRAMS])
def test_program(breaks: int | None, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Equal results, twice; where the number is fixed, one obstacle is one break."""
    jit = check(function, *args)
    if breaks is not None:
        assert len(jit.breaks) == breaks, jit.breaks


def test_both_continuations() -> None:
    """The second outcome of a branch reuses the first region."""
    jit = Jit(branches)
    for x, y in ((5, 2), (1, 2), (5, 2), (1, 2)):
        assert jit(N(x), N(y)).value == branches(N(x), N(y)).value
    assert len(jit.captured) == 3


def test_loop_continuations_do_not_grow() -> None:
    """A break in a loop costs one capture per region, not per iteration."""
    jit = Jit(loop_with_break_inside)
    items = [N(i) for i in range(10)]
    assert jit(N(1), items).value == loop_with_break_inside(N(1), items).value
    assert len(jit.captured) <= 6, [c.source for c in jit.captured]


def test_fullgraph_raises_with_the_line() -> None:
    with pytest.raises(GraphBreak) as caught:
        Jit(inlined_callers, fullgraph=True)(N(1), [])
    assert caught.value.reason.id == "TJ-VM-002"
    assert 'print("inner", y)' in str(caught.value)


def test_traceback_shows_the_users_line() -> None:
    with pytest.raises(LookupError) as caught:
        Jit(uncaught_after_break)(N(1))
    last = caught.traceback[-1]
    assert 'raise LookupError("gone", 1)' in str(last.statement)


def _reads(path: str) -> Any:
    return open(path)


def _calls_reads(path: str) -> Any:
    return [_reads(path)]


def test_traceback_shows_inlined_frames() -> None:
    """An error of a breaking operation passes through every frame that was inlined."""

    def outermost(x: Any) -> Any:
        y = x + 1
        return y, _calls_reads("/no such file")

    for function in (outermost, Jit(outermost)):
        with pytest.raises(FileNotFoundError) as caught:
            function(N(1))
        lines = [str(entry.statement).strip() for entry in caught.traceback if entry.path == Path(__file__)]
        assert lines[-3:] == [
            'return y, _calls_reads("/no such file")',
            "return [_reads(path)]",
            "return open(path)",
        ]


def test_disabled_and_not_inlined() -> None:
    """Calls that the policy keeps out run for real."""
    calls = []

    def secret(x: Any) -> Any:
        calls.append(1)
        return x + 1

    def caller(x: Any) -> Any:
        return secret(x) * 2

    jit = Jit(caller, inline=lambda f: f is not secret)
    assert jit(N(1)).value == 4
    assert jit(N(1)).value == 4
    assert len(calls) == 2
    assert jit.breaks == ["TJ-VM-003"]


def _long_loop(x: Any) -> Any:
    for i in range(500):
        x = x + i
    return x


def test_a_loop_beyond_the_limit_warns_and_goes_on_for_real() -> None:
    jit = Jit(_long_loop, step_limit=400)
    with pytest.warns(RuntimeWarning, match="loops are unrolled"):
        assert jit(N(1)).value == _long_loop(N(1)).value
    assert "TJ-VM-009" in jit.breaks
