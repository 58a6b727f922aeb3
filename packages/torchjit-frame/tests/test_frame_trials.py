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
        self.products: list[int] = []

    def __call__(self, entry: Entry, product: int) -> tuple[bool, Callable[..., None]] | None:
        self.products.append(product)
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
    assert sys.getrefcount(trial) < 5 and trial.products == [0] * 5
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


def test_each_class_of_sizes_runs_what_was_decided_for_it(capsule_guard: Callable[..., Any]) -> None:
    door = FrontDoor(lambda a, b: "original", declined)
    entry = Entry(hit, lambda a, b: "compiled")
    door.append(entry)
    entry.trial = trial = Trial(*[None] * 8)
    entry.sizes = sizes = capsule_guard("always", 2, 2)
    assert entry.sizes is sizes
    large, huge = (2**31, 2**31), (2**40, 2**63)
    for a, b in ((1, 1), (2, 3), (7, 1), (2, 4), large, huge, (2**70, 0), (-1, 5)):
        assert door(a, b) == "compiled"
    assert trial.products == [1, 6, 7, 8, 2**62, 2**63 - 1, 0, 0]
    entry.decide(3, True)
    entry.decide(4, False)
    assert [door(2, 3), door(3, 2), door(2, 4), door(7, 1)] == ["original", "original", "compiled", "original"]
    assert len(trial.products) == 8 and entry.runs_original
    trial.ways = [True]
    assert door(100, 1) == "original" and trial.products[8:] == [100]
    entry.trial = None
    assert [door(2, 3), door(2, 4), door(100, 1)] == ["original", "compiled", "compiled"]
    entry.decide(3, False)
    assert not entry.runs_original and door(2, 3) == "compiled" and entry.hits == 17
    entry.sizes = None
    assert entry.sizes is None


def test_sizes_that_are_decided_are_looked_at_now_and_then(capsule_guard: Callable[..., Any]) -> None:
    door = FrontDoor(lambda a: "original", declined)
    entry = Entry(hit, lambda a: "compiled")
    door.append(entry)
    entry.trial = trial = Trial(*[None] * 100)
    entry.sizes = capsule_guard("always", 1, 1)
    entry.decide(2, False)
    for _ in range(64):
        door(3)
    assert not trial.products
    for _ in range(32):
        door(9)
    assert len(trial.products) == 17  # the first 15 rested
    for _ in range(10):
        door(3), door(9)
    assert len(trial.products) == 27  # what is not decided keeps all awake
    for _ in range(64):
        door(3)
    entry.decide(4, True)
    assert door(9) == "original" and door(3) == "compiled" and len(trial.products) == 27


def test_wrong_sizes(capsule_guard: Callable[..., Any]) -> None:
    door, entry = door_with(Trial())
    with pytest.raises(ValueError, match="at most 16"):
        entry.sizes = capsule_guard("always", 17, 17)
    with pytest.raises(AttributeError):
        entry.sizes = 3
    for size_class in (-1, 64):
        with pytest.raises(ValueError, match="64 classes"):
            entry.decide(size_class, True)
    entry.sizes = capsule_guard("raises", 1)
    with pytest.raises(LookupError):
        door(1)


@pytest.mark.parametrize("answer", [True, (1,), (True, None, 3), "no"])
def test_wrong_answers(answer: Any) -> None:
    door, entry = door_with(lambda entry, product: answer)
    with pytest.raises(TypeError, match="runs_original, done"):
        door(1)
    with pytest.raises(TypeError, match="callable or None"):
        entry.trial = 3  # type: ignore[assignment]


def test_errors_of_a_trial_reach_the_caller() -> None:
    def asks(entry: Entry, product: int) -> Any:
        raise InterruptedError

    def told(*result: Any) -> None:
        raise BlockingIOError

    door, entry = door_with(asks)
    with pytest.raises(InterruptedError):
        door(1)
    entry.trial = lambda entry, product: (True, told)
    with pytest.raises(BlockingIOError):
        door(1)
    with pytest.raises(KeyError, match="original"):
        door("fail")
    assert not is_eager()
