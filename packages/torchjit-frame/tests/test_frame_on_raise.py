"""Exceptions of a target: the original function may run in its place."""

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


def fails(*given: Any) -> Any:
    raise KeyError(*given[:1])


def original(a: Any, /, b: Any = 2, *rest: Any, c: Any = 3, **more: Any) -> Any:
    assert sys.exception() is None
    if a == "fail":
        raise ValueError(b)
    return a, b, rest, c, more


def door_to(function: Callable[..., Any], target: Callable[..., Any], on_raise: Any, **given: Any) -> FrontDoor:
    door = FrontDoor(function, declined, **given)
    door.append(Entry(hit, target, on_raise=on_raise))
    return door


def test_the_original_gets_the_arguments_of_the_call() -> None:
    asked: list[BaseException] = []
    done: list[None] = []

    def on_raise(error: BaseException) -> Callable[[], None]:
        asked.append(error)
        return lambda: done.append(None)

    door = door_to(original, fails, on_raise)
    assert door("a", 5, 6, c=7, d=8) == ("a", 5, (6,), 7, {"d": 8})
    assert door("a") == ("a", 2, (), 3, {})
    assert door.enter("a", 1, 2, (), {}) == ("a", 1, (), 2, {})
    assert [repr(error) for error in asked] == ["KeyError('a')"] * 3 and len(done) == 3
    assert [e.name for e in traceback.extract_tb(asked[0].__traceback__)] == ["fails"]


def test_what_the_original_raises() -> None:
    done: list[None] = []
    door = door_to(original, fails, lambda error: lambda: done.append(None))
    with pytest.raises(ValueError, match="7") as raised:
        door("fail", 7)
    assert raised.value.__context__ is None and not done
    assert [e.name for e in traceback.extract_tb(raised.value.__traceback__)][1:] == ["original"]


def test_another_exception() -> None:
    other = LookupError("other")
    for answer in (lambda error: error, lambda error: other):
        with pytest.raises(LookupError) as raised:
            door_to(original, fails, answer)("a")
        assert raised.value in (other, raised.value)
    assert raised.value is other
    with pytest.raises(ZeroDivisionError):
        door_to(original, fails, lambda error: 1 // 0)("a")
    with pytest.raises(ZeroDivisionError):
        door_to(original, fails, lambda error: lambda: 1 // 0)("a")


def test_only_of_the_target() -> None:
    asked: list[BaseException] = []
    door = door_to(lambda a: a, lambda a: TailCall(fails, a), asked.append, slots=1)
    with pytest.raises(KeyError):
        door("a")
    assert not asked
    with pytest.raises(TypeError):
        Entry(hit, fails, on_raise=3)  # type: ignore[arg-type]

    def answer(error: BaseException) -> BaseException:
        return error

    assert Entry(hit, fails, on_raise=answer).on_raise is answer and Entry(hit, fails).on_raise is None


def test_the_rest_of_a_function() -> None:
    done: list[str] = []

    def end(n: int) -> int:
        done.append("ran")
        return n * 2

    def rest(n: int) -> Any:
        return TailCall(end, n + 1)

    later = door_to(rest, fails, lambda error: lambda: done.append("told"), slots=1)
    first = FrontDoor(lambda n: n, declined, slots=1)
    first.append(Entry(hit, lambda n: TailCall(later, n)))
    assert first(3) == 8 and later(3) == 8
    assert done == ["ran", "told"] * 2


def test_no_hook_looks_at_the_original() -> None:
    offered: list[str] = []

    def below(n: int) -> int:
        return n + 1

    def plain(n: int) -> int:
        return below(n) * 2

    def scope(function: Any) -> None:
        offered.append(function.__name__)

    door = FrontDoor(plain, declined)
    door.append(Entry(hit, fails, hook=scope, on_raise=lambda error: lambda: None))
    assert door(1) == 4
    with hook_scope(scope):
        assert door(2) == 6
    assert "below" not in offered and "plain" not in offered


def test_a_frame_that_the_hook_was_given() -> None:
    def function(n: int) -> Any:
        return "plain", n

    def caller() -> Any:
        return function(4)

    door = door_to(function, fails, lambda error: lambda: None)
    with hook_scope(lambda offered: door if offered is function else None):
        assert caller() == ("plain", 4)


def test_nothing_is_leaked() -> None:
    door = door_to(original, fails, lambda error: lambda: None)
    argument = object()
    door(argument)
    before = sys.getrefcount(argument), sys.getrefcount(door), sys.getrefcount(fails)
    for _ in range(10):
        door(argument)
    assert (sys.getrefcount(argument), sys.getrefcount(door), sys.getrefcount(fails)) == before
