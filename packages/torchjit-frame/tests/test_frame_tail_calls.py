"""Calls that a target leaves to its front door."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from torchjit_frame import Entry, FrontDoor, TailCall, hook_scope


def hit(*slots: Any) -> tuple[Any, ...]:
    return slots


def declined(door: FrontDoor, slots: tuple[Any, ...]) -> None:
    return None


def door_to(target: Callable[..., Any], slots: int = 1, hook: Any = None) -> FrontDoor:
    door = FrontDoor(lambda *given: ("plain", *given), declined, slots=slots)
    door.append(Entry(hit, target, hook=hook))
    return door


def test_the_result_is_that_of_the_last_call() -> None:
    last = door_to(lambda n: n * 2)
    assert door_to(lambda n: TailCall(last, n + 1))(3) == 8
    assert door_to(lambda n: TailCall(divmod, n, 2))(7) == (3, 1)
    assert door_to(lambda n: TailCall(last, n + 1)).enter(3) == 8


def test_a_loop_needs_no_stack() -> None:
    doors: list[FrontDoor] = []
    doors.append(door_to(lambda n: TailCall(doors[1], n) if n else "done"))
    doors.append(door_to(lambda n: TailCall(doors[0], n - 1)))
    assert doors[0](20 * sys.getrecursionlimit()) == "done"


def test_the_frame_of_the_target_is_gone() -> None:
    def depth() -> int:
        return len(traceback.extract_stack())

    def asks(n: int) -> Any:
        return TailCall(depth)

    assert door_to(asks)(0) == depth()


def test_the_original_may_leave_a_call_too() -> None:
    door = FrontDoor(lambda n: TailCall(divmod, n, 2), declined, slots=1)
    assert door(7) == (3, 1)
    assert door_to(lambda n: TailCall(door, n))(9) == (4, 1)


def test_an_exception_keeps_its_traceback() -> None:
    try:
        raise KeyError("k")
    except KeyError as caught:
        error = caught
    before = traceback.extract_tb(error.__traceback__)
    with pytest.raises(KeyError) as raised:
        door_to(lambda n: TailCall(error))(0)
    assert raised.value is error
    assert [e.lineno for e in traceback.extract_tb(error.__traceback__)][1:] == [e.lineno for e in before]


def test_errors_come_through() -> None:
    with pytest.raises(ZeroDivisionError):
        door_to(lambda n: TailCall(divmod, n, 0))(1)
    wrong: list[Any] = [(), (3,), (KeyError(), 1)]
    for arguments in wrong:
        with pytest.raises(TypeError):
            TailCall(*arguments)
    with pytest.raises(TypeError):
        TailCall(print, end="")  # type: ignore[call-arg]
    made = TailCall(divmod, 1, 2)
    assert made.callable is divmod
    assert made.args == (1, 2)


def test_the_hook_of_an_entry_covers_its_tail_calls() -> None:
    asked: list[str] = []

    def ask(function: Any) -> None:
        asked.append(function.__name__)

    def first() -> int:
        return 1

    def second() -> int:
        return 2

    def not_asked() -> int:
        return 3

    last = door_to(lambda n: n + second())
    entered = door_to(lambda n: TailCall(last, first()), hook=ask)
    assert entered(0) == 3
    assert not_asked() == 3
    assert asked == ["first", "second"]
    assert last.entries()[0].hook is None
    assert entered.entries()[0].hook is ask
    with pytest.raises(ZeroDivisionError):
        door_to(lambda n: TailCall(divmod, n, 0), hook=ask)(1)
    with hook_scope(ask):
        pass  # the scopes were closed in the right order
    with pytest.raises(TypeError):
        Entry(hit, print, hook=3)  # type: ignore[arg-type]
