"""Generators that are dropped half-way, and functions that remember their results."""

from __future__ import annotations

import contextlib
import functools
import io
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from vm_compare import check
from vm_lazy import Jit
from vm_lazy import Num as N


class Numbers(Sequence[Any]):
    """`Sequence.__iter__` yields inside `try ... except IndexError`."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)


def zipped_with_fewer(x: Any) -> Any:
    total = x
    for y, _ in zip(Numbers([x, x + 1, x + 2]), range(2)):
        total = total + y
    return total


def guarded(log: list[str], x: Any) -> Iterator[Any]:
    try:
        yield x
        yield x + 1
    finally:
        log.append("closed")


def dropped_inside_finally(x: Any, log: list[str]) -> Any:
    for y in guarded(log, x):
        return y * 2
    return x


def quiet(x: Any) -> Iterator[Any]:
    try:
        try:
            yield x
        except ValueError:
            print("never")
    except (KeyError, LookupError):
        print("never")


def dropped_inside_excepts(x: Any) -> Any:
    first = next(quiet(x))
    return first + 1


@pytest.mark.parametrize("function", [zipped_with_fewer, dropped_inside_excepts])
def test_handlers_that_do_not_apply_run_nothing(function: Any) -> None:
    jit = check(function, N(3))
    assert function is dropped_inside_excepts or not jit.breaks, jit.breaks


def test_a_finally_runs() -> None:
    check(dropped_inside_finally, N(3), [])


said: list[str] = []


@functools.lru_cache
def say_once(what: str) -> None:
    said.append(what)


def warns(x: Any, state: dict[str, Any]) -> Any:
    state["calls"] = state["calls"] + 1  # what follows may not run at capture
    say_once("slow")
    return x + 1


def test_what_a_cached_function_does_happens_once() -> None:
    said.clear()
    say_once.cache_clear()
    jit, state = Jit(warns), {"calls": 0}
    for n in range(4):
        assert jit(N(n), state).value == n + 1
    assert said == ["slow"] and state["calls"] == 4


_DIED: list[str] = []


class Finalized:
    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        _DIED.append(self.name)


def test_finalizers_run() -> None:
    """An object with `__del__` is made for real: what the region makes and drops would never die."""

    def program(x: Any) -> Any:
        thing = Finalized("first")
        print("a break")
        alive = list(_DIED)
        thing = Finalized("second")
        return x + 1, alive, thing.name

    _DIED.clear()
    jit = Jit(program)
    for _ in range(2):
        with contextlib.redirect_stdout(io.StringIO()):
            assert jit(N(1))[1:] == ([], "second")
        assert sorted(_DIED) == ["first", "second"]
        _DIED.clear()
    assert "TJ-VM-018" in jit.breaks


class Held:
    """Can be referred to weakly."""


def only_weakly_held(x: N) -> Any:
    reference = weakref.ref(Held())
    return reference() is None, x


def held_until_deleted(x: N) -> Any:
    held = Held()
    reference = weakref.ref(held)
    before = reference() is held
    del held
    return before, reference() is None, x


@pytest.mark.parametrize("program", [only_weakly_held, held_until_deleted], ids=lambda f: f.__name__)
def test_weak_references_hold_nothing(program: Any) -> None:
    jit = check(program, N(1))
    assert len(jit.breaks) == 1
