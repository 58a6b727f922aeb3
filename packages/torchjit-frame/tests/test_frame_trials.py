"""Entries on trial: what `Entry.trial` and `Entry.runs_original` do to calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from torchjit_frame import Entry, FrontDoor, TailCall, hook_scope, is_eager, trampoline


def hit(*slots: Any) -> tuple[Any, ...]:
    return slots


def declined(door: FrontDoor, slots: tuple[Any, ...]) -> None:
    return None


def compiled(*given: Any) -> Any:
    if given[0] == "fail":
        raise KeyError("compiled")
    return "compiled", is_eager()


def original(a: Any, /, *rest: Any, b: Any = 2) -> Any:
    if a == "fail":
        raise KeyError("original")
    return "original", is_eager()


class Trial:
    """Runs what it was told to, and notes what comes of it."""

    def __init__(self, *ways: bool | None) -> None:
        self.ways = list(ways)
        self.told: list[tuple[Any, ...]] = []

    def __call__(self, entry: Entry) -> tuple[bool, Callable[..., None]] | None:
        way = self.ways.pop(0)
        return None if way is None else (way, lambda *result: self.told.append(result))


def door_with(trial: Any = None, **given: Any) -> tuple[FrontDoor, Entry]:
    door, entry = FrontDoor(original, declined), Entry(hit, compiled, **given)
    entry.trial = trial
    door.append(entry)
    return door, entry


def test_a_trial_says_what_each_call_runs_and_is_told_of_its_result() -> None:
    trial = Trial(None, False, True, True, False, False)
    door, entry = door_with(trial)
    assert [door(1)[0], door(1)[0], door(1, 5, b=6)[0]] == ["compiled", "compiled", "original"]
    assert trial.told == [(("compiled", False),), (("original", True),)]
    for where in ("original", "compiled"):
        with pytest.raises(KeyError, match=where):
            door("fail")
    assert trial.told[2:] == [(), ()] and entry.hits == 5 and not is_eager()
    assert sys.getrefcount(trial) < 5
    entry.trial = None
    assert door(1) == ("compiled", False) and entry.trial is None


def test_an_entry_can_run_the_original_for_good() -> None:
    door, entry = door_with()
    other = FrontDoor(original, declined)
    other.append(Entry(hit, lambda *given: (door(1), is_eager())))
    entry.runs_original = True
    assert door(1) == ("original", True) and other(1) == (("original", True), False)
    entry.trial = trial = Trial(None, False)
    assert door(1) == ("original", True) and door(1) == ("compiled", False)
    assert trial.told == [(("compiled", False),)]
    entry.trial = None
    assert door(1) == ("original", True)
    entry.runs_original = False
    assert door(1) == ("compiled", False) and not entry.runs_original


def test_doors_inside_of_an_original_on_trial_are_eager_and_the_hook_rests() -> None:
    inner, _ = door_with()

    def outer(a: Any) -> Any:
        return inner(a), called(a)

    def called(a: Any) -> Any:
        return a

    asked: list[Any] = []
    door = FrontDoor(outer, declined)
    entry = Entry(hit, lambda a: (inner(a), called(a)))
    door.append(entry)
    entry.trial = Trial(True, False)
    with hook_scope(lambda function: asked.append(function)):
        assert door(1) == (("original", True), 1)
        assert called not in asked
        assert door(1) == (("compiled", False), 1)
    assert called in asked


def test_a_frame_that_the_hook_has_caught_runs_as_the_original() -> None:
    door, entry = door_with()
    entry.trial = Trial(True, False)
    assert isinstance(original, FunctionType)
    code = trampoline(original, door)

    def calls() -> Any:
        return original(1)

    for expected in ("original", "compiled"):
        with hook_scope(lambda function: code if function is original else None):
            assert calls()[0] == expected


def test_continuations_run_to_their_end() -> None:
    behind = FrontDoor(lambda a: TailCall(original, a), declined, slots=1)
    target = Entry(hit, lambda a: "compiled")
    behind.append(target)
    front = FrontDoor(original, declined)
    front.append(Entry(hit, lambda a, *rest: TailCall(behind, a)))
    assert front(1) == "compiled"
    target.runs_original = True
    assert front(1) == behind(1) == ("original", True)


@pytest.mark.parametrize("answer", [True, (1,), (True, None, 3), "no"])
def test_wrong_answers(answer: Any) -> None:
    door, entry = door_with(lambda entry: answer)
    with pytest.raises(TypeError, match="runs_original, done"):
        door(1)
    with pytest.raises(TypeError, match="callable or None"):
        entry.trial = 3  # type: ignore[assignment]


def test_errors_of_a_trial_reach_the_caller() -> None:
    def asks(entry: Entry) -> Any:
        raise InterruptedError

    def told(*result: Any) -> None:
        raise BlockingIOError

    door, entry = door_with(asks)
    with pytest.raises(InterruptedError):
        door(1)
    entry.trial = lambda entry: (True, told)
    with pytest.raises(BlockingIOError):
        door(1)
    with pytest.raises(KeyError, match="original"):
        door("fail")
    assert not is_eager()
