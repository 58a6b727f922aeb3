"""Our hook and another tool's share the one slot that CPython has."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest

from torchjit_frame import hook_counters, hook_scope


@pytest.fixture
def foreign(compiled: Callable[[str], ctypes.CDLL]) -> Iterator[Any]:
    library = compiled("foreign_hook.c")
    library.foreign_frames.restype = ctypes.c_longlong
    yield library
    assert not library.foreign_is_current()
    assert hook_counters()["open_scopes"] == 0


def target(x: int) -> int:
    return inner(x) + 1


def inner(x: int) -> int:
    return x


class Swap:
    """Offered functions of this module get a copy of their code; counts them."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, function: FunctionType) -> CodeType | None:
        self.seen.append(function.__name__)
        return function.__code__.replace() if function in (target, inner) else None


def test_foreign_hook_below(foreign: Any) -> None:
    swap = Swap()
    foreign.foreign_install()
    try:
        with hook_scope(swap):
            before = foreign.foreign_frames()
            assert target(1) == 2  # swapped frames are ours
            assert sorted([2, 1], key=lambda x: x) == [1, 2]  # the others go down the chain
            assert foreign.foreign_frames() >= before + 2
        assert foreign.foreign_is_current()
        before = foreign.foreign_frames()
        assert target(1) == 2
        assert foreign.foreign_frames() >= before + 2
    finally:
        foreign.foreign_remove()
    assert {"target", "inner"} <= set(swap.seen)


def test_foreign_hook_installed_above_and_removed_inside(foreign: Any) -> None:
    swap = Swap()
    with hook_scope(swap):
        foreign.foreign_install()
        try:
            before, swapped = foreign.foreign_frames(), hook_counters()["swapped"]
            assert target(1) == 2
            assert foreign.foreign_frames() >= before + 2
            assert hook_counters()["swapped"] >= swapped + 2
        finally:
            foreign.foreign_remove()
        assert target(1) == 2
    assert target(1) == 2


def test_foreign_hook_outlives_our_scope(foreign: Any) -> None:
    """It passes frames to ours, which cannot be taken out; a new scope must not loop through both."""
    swap = Swap()
    scope = hook_scope(swap)
    scope.__enter__()
    foreign.foreign_install()
    try:
        scope.__exit__(None, None, None)
        assert foreign.foreign_is_current()
        assert target(1) == 2
        for _ in range(3):
            with hook_scope(swap):
                swapped, before = hook_counters()["swapped"], foreign.foreign_frames()
                assert target(1) == 2
                assert sorted([2, 1], key=lambda x: x) == [1, 2]
                assert hook_counters()["swapped"] >= swapped + 2
                assert foreign.foreign_frames() > before
            assert foreign.foreign_is_current()
        assert target(1) == 2
    finally:
        foreign.foreign_remove()
    # Ours is current now, with no scope open: the next scope finds it there and takes it out at its end.
    assert target(1) == 2
    with hook_scope(swap):
        assert target(1) == 2
    assert target(1) == 2


def test_foreign_hook_below_and_again_above(foreign: Any) -> None:
    """It finds ours in the slot when it is installed again, and passes to ours what ours passes to it."""
    swap = Swap()

    def generator() -> Generator[int, None, None]:
        try:
            yield 1
        except ValueError:
            yield inner(2)

    foreign.foreign_install()
    scope = hook_scope(swap)
    scope.__enter__()
    foreign.foreign_install()
    try:
        swapped = hook_counters()["swapped"]
        assert target(1) == 2
        assert hook_counters()["swapped"] >= swapped + 2
        assert sorted([2, 1], key=lambda x: x) == [1, 2]
        resumed = generator()
        assert [next(resumed), resumed.throw(ValueError)] == [1, 2]
    finally:
        scope.__exit__(None, None, None)
    # Ours is in the chain still.
    assert target(1) == 2
    with hook_scope(swap):
        assert target(1) == 2
    foreign.foreign_clear()
    assert target(1) == 2
    with hook_scope(swap):
        assert target(1) == 2
    assert target(1) == 2
