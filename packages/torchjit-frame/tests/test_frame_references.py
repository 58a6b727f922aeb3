"""Reference counts balance on every path of a call."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from torchjit_frame import Entry, FrontDoor

pytestmark = pytest.mark.usefixtures("older_objects_rest")


def function(a: Any, b: Any = None, *rest: Any, c: Any = None, **more: Any) -> Any:
    return a


def plain(a: Any, b: Any) -> Any:
    return b


def miss_always(door: FrontDoor, slots: tuple[Any, ...]) -> None:
    return None


def stale(door: FrontDoor, slots: tuple[Any, ...]) -> Entry:
    door.clear()
    return Entry(lambda *slots: None, plain)


def fresh(door: FrontDoor, slots: tuple[Any, ...]) -> Entry:
    door.clear()
    return Entry(lambda *slots: slots, lambda *gathered: gathered, 0)


def fail(*args: Any) -> Any:
    raise ValueError


def with_entry(function: Callable[..., Any], guard: Any, target: Callable[..., Any], unwrap: int = -1) -> FrontDoor:
    door = FrontDoor(function, miss_always)
    door.append(Entry(guard, target, unwrap))
    return door


CASES: list[tuple[str, Callable[[], FrontDoor], Callable[[Any, Any], Any]]] = [
    ("miss", lambda: FrontDoor(plain, miss_always), lambda door, x: door(x, x)),
    ("bind all", lambda: FrontDoor(function, miss_always), lambda door, x: door(x, x, x, x, c=x, z=x)),
    ("bind fails", lambda: FrontDoor(plain, miss_always), lambda door, x: door(x, b=x, c=x)),
    ("bind twice", lambda: FrontDoor(function, miss_always), lambda door, x: door(x, a=x)),
    ("stale", lambda: FrontDoor(plain, stale), lambda door, x: door(x, x)),
    ("fresh", lambda: FrontDoor(plain, fresh), lambda door, x: (door.clear(), door(x, x))),
    ("on_miss fails", lambda: FrontDoor(plain, fail), lambda door, x: door(x, x)),
    ("hit", lambda: with_entry(plain, lambda *slots: slots, plain), lambda door, x: door(x, x)),
    ("unwrap", lambda: with_entry(plain, lambda *s: s, lambda *g: list(g), 1), lambda door, x: door(x, x)),
    ("unwrap fails", lambda: with_entry(plain, lambda *s: s, lambda *g: g, 2), lambda door, x: door(x, x)),
    ("guard fails", lambda: with_entry(plain, fail, plain), lambda door, x: door(x, x)),
    ("target fails", lambda: with_entry(plain, lambda *s: s, fail), lambda door, x: door(x, x)),
    ("bad guard", lambda: with_entry(plain, lambda *s: list(s), plain), lambda door, x: door(x, x)),
    ("enter", lambda: FrontDoor(function, miss_always), lambda door, x: door.enter(x, x, x, (x,), {"z": x})),
    ("enter fails", lambda: FrontDoor(function, miss_always), lambda door, x: door.enter(x, x, x, x, x)),
    ("python bind", lambda: FrontDoor(function, miss_always), lambda door, x: door.bind((x, x, x), {"z": x})),
    ("python bind fails", lambda: FrontDoor(plain, miss_always), lambda door, x: door.bind((x, x, x), {"z": x})),
    ("slots", lambda: FrontDoor(plain, miss_always, slots=2), lambda door, x: door(x, x)),
    ("fallback", lambda: FrontDoor(function, miss_always), lambda door, x: door.fallback(x, z=x)),
    ("method", lambda: FrontDoor(plain, miss_always), lambda door, x: door.__get__(x)(x)),
]


@pytest.mark.parametrize(("make", "call"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_balance(make: Callable[[], FrontDoor], call: Callable[[Any, Any], Any]) -> None:
    door, x = make(), object()

    def run(times: int) -> None:
        for _ in range(times):
            try:
                call(door, x)
            except (ValueError, TypeError, IndexError):
                pass

    run(200)  # free lists fill up
    assert any(
        _balanced(door, x, run) for _ in range(3)
    )  # what others in this process let go of shows once, an imbalance each time


def _balanced(door: FrontDoor, x: object, run: Callable[[int], None]) -> bool:
    gc.collect()
    counts = [sys.getrefcount(thing) for thing in (x, door, door.__wrapped__, door.on_miss, None)]
    blocks = sys.getallocatedblocks()
    run(500)
    gc.collect()
    after = [sys.getrefcount(thing) for thing in (x, door, door.__wrapped__, door.on_miss, None)]
    same = after[:4] == counts[:4]
    none = abs(after[4] - counts[4]) < 100  # 3.11: None is counted too
    return same and none and sys.getallocatedblocks() - blocks < 250  # a leak would be 500


def test_construction_balances() -> None:
    def build() -> None:
        door = FrontDoor(function, miss_always)
        door.append(Entry(lambda *slots: slots[:2], plain, data=door))
        door(1)
        for bad in ((1, miss_always), (len, miss_always)):
            try:
                FrontDoor(*bad)
            except TypeError:
                pass
        try:
            Entry(None, plain)
        except TypeError:
            pass

    for _ in range(1000):  # free lists fill up
        build()
    gc.collect()
    counts = [sys.getrefcount(thing) for thing in (function, miss_always, plain)]
    blocks = sys.getallocatedblocks()
    for _ in range(2000):
        build()
    gc.collect()
    assert [sys.getrefcount(thing) for thing in (function, miss_always, plain)] == counts
    assert sys.getallocatedblocks() - blocks < 1500  # a leak would be 2000
