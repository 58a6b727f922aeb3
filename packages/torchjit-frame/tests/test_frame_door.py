"""The front door: entries, misses, exceptions, attributes."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from torchjit_frame import Entry, FrontDoor, eager, hook_scope, is_eager, set_eager

Miss = Callable[[FrontDoor, tuple[Any, ...]], "Entry | None"]


def never(door: FrontDoor, slots: tuple[Any, ...]) -> Entry | None:
    raise AssertionError("no miss was expected")


def decline(door: FrontDoor, slots: tuple[Any, ...]) -> None:
    return None


def type_guard(kind: type) -> Callable[..., tuple[Any, ...] | None]:
    return lambda *slots: slots if type(slots[0]) is kind else None


def add(a: Any, b: Any = 10) -> Any:
    """Adds."""
    return a + b


def specialising(calls: list[tuple[Any, ...]]) -> Miss:
    def on_miss(door: FrontDoor, slots: tuple[Any, ...]) -> Entry:
        calls.append(slots)
        return Entry(type_guard(type(slots[0])), lambda a, b: (type(a).__name__, a, b))

    return on_miss


def test_miss_then_hit() -> None:
    calls: list[tuple[Any, ...]] = []
    door = FrontDoor(add, specialising(calls))
    assert door(1, 2) == ("int", 1, 2)
    assert door(3) == ("int", 3, 10)
    assert door("x", b="y") == ("str", "x", "y")
    assert door("z") == ("str", "z", 10)
    assert calls == [(1, 2), ("x", "y")]
    assert door.misses == 2 and [entry.hits for entry in door.entries()] == [2, 2]


def test_on_miss_may_append_itself() -> None:
    def on_miss(door: FrontDoor, slots: tuple[Any, ...]) -> Entry:
        entry = Entry(type_guard(int), lambda a, b: "specialised")
        door.append(entry)
        return entry

    door = FrontDoor(add, on_miss)
    assert door(1) == "specialised"
    assert len(door.entries()) == 1


def test_none_runs_the_original_each_time() -> None:
    door = FrontDoor(add, decline)
    assert (door(1), door(b=2, a=1)) == (11, 3)
    assert door.misses == 2 and door.entries() == ()
    door.sealed = True
    assert door(1) == 11
    assert door.misses == 2


def test_stale_entry_runs_the_original_once() -> None:
    ran = []

    def function(a: int) -> int:
        ran.append(a)
        return a

    door = FrontDoor(function, lambda door, slots: Entry(lambda *slots: None, never))
    assert door(5) == 5
    assert ran == [5]
    assert (door.stale_entries, len(door.entries())) == (1, 1)


def test_disabled_entry_is_passed_over() -> None:
    door = FrontDoor(add, decline)
    entry = Entry(type_guard(int), lambda a, b: "hit")
    door.append(entry)
    assert door(1) == "hit"
    entry.enabled = False
    assert door(1) == 11
    entry.enabled = True
    assert door(1) == "hit"


@pytest.mark.parametrize("kind", [tuple, list])
def test_unwrap(kind: type) -> None:
    door = FrontDoor(add, never)
    door.append(Entry(lambda *slots: slots, lambda a, b: kind([a, b]), 1))
    assert door(1, 2) == 2


def test_unwrap_of_a_bad_result() -> None:
    door = FrontDoor(add, never)
    door.append(Entry(lambda *slots: slots, lambda a, b: (a,), 1))
    with pytest.raises(IndexError, match="returned only 1 items"):
        door(1)
    door.clear()
    door.append(Entry(lambda *slots: slots, lambda a, b: a, 0))
    with pytest.raises(TypeError, match="must return a tuple or list, not 'int'"):
        door(1)


def test_exceptions_propagate() -> None:
    def boom(*args: Any) -> Any:
        raise KeyError(len(args))

    def door_with(*entries: Entry, on_miss: Miss = never) -> FrontDoor:
        door = FrontDoor(add, on_miss)
        for entry in entries:
            door.append(entry)
        return door

    for door in (
        door_with(on_miss=boom),
        door_with(Entry(boom, never)),
        door_with(Entry(lambda *slots: slots, boom)),
        door_with(Entry(lambda *slots: None, never), Entry(lambda *slots: slots, boom)),
    ):
        for _ in range(2):
            with pytest.raises(KeyError, match="2"):
                door(1)


def test_bad_callbacks_are_type_errors() -> None:
    with pytest.raises(TypeError, match="on_miss must return an Entry, None or an exception, not 'int'"):
        FrontDoor(add, lambda door, slots: 1)(1)  # type: ignore[arg-type, return-value]
    door = FrontDoor(add, never)
    door.append(Entry(lambda *slots: [1], never))
    with pytest.raises(TypeError, match="a tuple .hit. or None .miss., not 'list'"):
        door(1)


def test_constructor_errors() -> None:
    with pytest.raises(TypeError, match="must be callable, not 'int'"):
        FrontDoor(1, decline)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_miss of a FrontDoor must be callable"):
        FrontDoor(add, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs a Python function"):
        FrontDoor(len, decline)
    with pytest.raises(ValueError, match="at least 0"):
        FrontDoor(add, decline, slots=-1)
    with pytest.raises(TypeError):
        FrontDoor(add, decline, slots="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="guard of an Entry"):
        Entry(None, add)
    with pytest.raises(TypeError, match="target of an Entry"):
        Entry(add, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unwrap"):
        Entry(add, add, -2)
    with pytest.raises(TypeError, match="holds Entry objects"):
        FrontDoor(add, decline).append(1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not in this front door"):
        FrontDoor(add, decline).remove(Entry(add, add))


def test_capsule_guards(capsule_guard: Callable[..., Any]) -> None:
    door = FrontDoor(add, decline)
    door.append(Entry(capsule_guard("type_is", 2, int), lambda a, b: ("int", a, b)))
    door.append(Entry(capsule_guard("type_is", 2, str), lambda a, b: ("str", a, b)))
    assert door(1) == ("int", 1, 10)
    assert door("x") == ("str", "x", 10)
    assert door(1.5) == 11.5
    assert [entry.hits for entry in door.entries()] == [1, 1]


@pytest.mark.parametrize("count", [0, 1, 23, 24, 25, 200])
def test_capsule_guard_gathers_any_number(capsule_guard: Callable[..., Any], count: int) -> None:
    door = FrontDoor(add, never)
    door.append(Entry(capsule_guard("always", count, count), lambda *gathered: gathered))
    a, b = object(), object()
    before = sys.getrefcount(a)
    for _ in range(3):
        assert door(a, b) == (a, b, *[None] * 200)[:count]
    assert sys.getrefcount(a) == before


def test_capsule_guard_that_raises(capsule_guard: Callable[..., Any]) -> None:
    for count in (0, 100):
        door = FrontDoor(add, never)
        door.append(Entry(capsule_guard("raises", count), never))
        with pytest.raises(LookupError, match="from the guard"):
            door(1)


def test_capsule_of_another_abi_is_not_used(capsule_guard: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="guard of an Entry"):
        Entry(capsule_guard("raises", 0, abi=2), never)


def test_entries_that_are_hit_move_to_the_front() -> None:
    door = FrontDoor(add, never)
    first, second, third = (Entry(type_guard(kind), lambda a, b: a) for kind in (int, str, float))
    for entry in (first, second, third):
        door.append(entry)
    for _ in range(20):
        door(1)
        door(1.5)
    assert door.entries() == (first, second, third)
    for _ in range(10):
        door(1.5)
    assert door.entries() == (third, first, second)


@pytest.mark.usefixtures("older_objects_rest")
def test_entries_may_change_during_a_call() -> None:
    door = FrontDoor(add, decline)

    def clearing_guard(*slots: Any) -> None:
        door.clear()
        gc.collect()

    door.append(Entry(clearing_guard, never))
    door.append(Entry(lambda *slots: slots, lambda a, b: (door.entries(), a)))
    assert door(7) == ((), 7)
    assert door(7) == 17


@pytest.mark.usefixtures("older_objects_rest")
def test_remove_inside_its_own_target() -> None:
    door = FrontDoor(add, decline)

    def target(a: int, b: int) -> str:
        door.remove(door.entries()[0])
        gc.collect()
        return "done"

    door.append(Entry(lambda *slots: slots, target))
    assert door(1) == "done"
    assert door(1) == 11


def test_reentry_from_on_miss_runs_the_original() -> None:
    def on_miss(door: FrontDoor, slots: tuple[Any, ...]) -> Entry:
        assert door(*slots) == 11
        return Entry(lambda *slots: slots, lambda a, b: "specialised")

    assert FrontDoor(add, on_miss)(1) == "specialised"


def test_recursion_through_the_door() -> None:
    def factorial(n: int) -> int:
        return 1 if n == 0 else n * int(door(n - 1))

    door = FrontDoor(factorial, decline)
    expected = 1
    for i in range(1, 301):
        expected *= i
    assert door(300) == expected
    door.append(Entry(lambda n: (n,), factorial))
    assert door(300) == expected


def test_recursion_is_as_deep_as_in_plain_python() -> None:
    def depth(n: int) -> int:
        return 0 if n == 0 else 1 + int(door(n - 1))

    door = FrontDoor(depth, decline)
    for _ in range(2):
        assert door(900) == 900
        with pytest.raises(RecursionError):
            door(10**6)
        door.append(Entry(lambda n: (n,), depth))


def test_continuations_cost_no_depth() -> None:
    """A function in two parts, the first of which calls the second, recurses as deep as in one part."""

    def plain(n: int) -> int:
        return 0 if n == 0 else 1 + plain(n - 1)

    def deepest(function: Callable[[int], int]) -> int:
        low, high = 1, 4 * sys.getrecursionlimit()
        while low < high:
            middle = (low + high + 1) // 2
            try:
                function(middle)
                low = middle
            except RecursionError:
                high = middle - 1
        return low

    def is_as_deep(function: Callable[[int], int]) -> bool:
        function(wanted - 10)
        with pytest.raises(RecursionError):
            function(wanted + 11)
        return True

    def first(n: int) -> int:
        return int(rest(n))

    def with_hook(n: int) -> int:
        with hook_scope(lambda function: None):
            return first(n)

    rest = FrontDoor(lambda n: 0 if n == 0 else 1 + int(door(n - 1)), decline, slots=1)
    door = FrontDoor(plain, decline)
    door.append(Entry(lambda n: (n,), with_hook))
    door(3)
    wanted = deepest(plain)
    assert is_as_deep(door)
    rest.append(Entry(lambda n: (n,), rest.__wrapped__))
    assert is_as_deep(door)


def test_recursion_limit_raised_beyond_the_stack() -> None:
    def depth(n: int) -> int:
        return 0 if n == 0 else 1 + int(door(n - 1))

    door = FrontDoor(depth, decline)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    try:
        with pytest.raises(RecursionError):
            door(500_000)
        assert door(1200) == 1200
    finally:
        sys.setrecursionlimit(limit)


def test_slots_door() -> None:
    door = FrontDoor(lambda *slots: ("fallback", *slots), decline, slots=3)
    assert door(1, 2, 3) == ("fallback", 1, 2, 3)
    assert door.misses == 1
    assert door(1, 2) == ("fallback", 1, 2)
    assert door.misses == 1
    door.append(Entry(lambda *slots: slots[:1], lambda a: a))
    assert door(1, 2, 3) == 1
    assert door.slot_names is None and door.nslots == 3
    with pytest.raises(TypeError):
        door(1, 2, x=3)


def test_slots_door_over_any_callable() -> None:
    assert FrontDoor(max, decline, slots=2)(1, 2) == 2


def test_enter_takes_bound_slots() -> None:
    def function(a: int, /, b: int, *rest: int, c: int = 3, **more: int) -> Any:
        return a, b, rest, c, more

    door = FrontDoor(function, decline)
    assert door.slot_names == ("a", "b", "c", "rest", "more")
    slots = (1, 2, 4, (5, 6), {"a": 7, "z": 8})
    assert door.enter(*slots) == (1, 2, (5, 6), 4, {"a": 7, "z": 8})
    assert door.bind((1, 2, 5, 6), {"c": 4, "a": 7, "z": 8}) == slots
    door.append(Entry(lambda *slots: slots, lambda *slots: slots))
    assert door.enter(*slots) == slots
    with pytest.raises(TypeError, match="5 slots, not 1"):
        door.enter(1)
    door.clear()
    with pytest.raises(TypeError, match="hold a tuple and a dict"):
        door.enter(1, 2, 3, 4, 5)


def test_method_binding() -> None:
    class Owner:
        door = FrontDoor(add, decline)

        def __add__(self, other: int) -> tuple[str, int]:
            return "owner", other

    owner = Owner()
    assert owner.door(1) == ("owner", 1)
    assert owner.door() == ("owner", 10)
    assert Owner.door(owner, 2) == ("owner", 2)
    assert Owner.door is Owner.__dict__["door"]
    bound: Any = owner.door
    assert bound.__self__ is owner and bound(b=3) == ("owner", 3)


def test_classmethod_and_staticmethod() -> None:
    class Owner:
        named = classmethod(FrontDoor(lambda cls, x: (cls.__name__, x), decline))
        plain = staticmethod(FrontDoor(lambda x: x, decline))

    assert Owner.named(1) == ("Owner", 1)
    assert Owner().plain(2) == 2


def test_looks_like_the_function() -> None:
    def function(a: int, /, b: int = 2, *, c: int = 3) -> int:
        """Documented."""
        return a

    function.mark = "x"  # type: ignore[attr-defined]
    door: Any = FrontDoor(function, decline)
    assert door.__wrapped__ is function
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "mark"):
        assert getattr(door, name) == getattr(function, name)
    assert inspect.signature(door) == inspect.signature(function)
    assert inspect.unwrap(door) is function
    door.other = 1
    assert door.__dict__["other"] == 1 and not hasattr(function, "other")
    assert repr(door).startswith("<FrontDoor test_looks_like_the_function.<locals>.function at 0x")


def test_copies_and_pickles_as_functions_do() -> None:
    door = FrontDoor(add, decline)
    assert copy.copy(door) is door and copy.deepcopy([door])[0] is door
    with pytest.raises(pickle.PicklingError, match="not the same object"):
        pickle.dumps(door)


def test_code_assignment_is_noticed() -> None:
    def function(a: int, b: int = 2) -> Any:
        return a, b

    def other(x: int) -> Any:
        return ("other", x)

    door = FrontDoor(function, never)
    door.append(Entry(lambda *slots: slots, lambda a, b: "old"))
    assert door(1) == "old"
    function.__code__ = other.__code__
    assert door(1) == ("other", 1)


def test_defaults_are_read_at_the_call() -> None:
    def function(a: int = 1, *, b: int = 2) -> Any:
        return a, b

    door = FrontDoor(function, never)
    door.append(Entry(lambda *slots: slots, lambda *slots: slots))
    assert door() == (1, 2)
    function.__defaults__ = (3,)
    function.__kwdefaults__ = {"b": 4}
    assert door() == (3, 4)


def test_eager_flag() -> None:
    door = FrontDoor(add, never)
    door.append(Entry(lambda *slots: slots, lambda a, b: "hit"))
    assert not is_eager() and door(1) == "hit"
    assert set_eager(True) is False
    try:
        assert is_eager() and door(1) == 11
    finally:
        assert set_eager(False) is True
    with eager():
        with eager(False):
            assert door(1) == "hit"
        assert door(1) == 11
        assert door.enter(1, 2) == 3
    assert door(1) == "hit"
    assert door.fallback(1) == 11


@pytest.mark.usefixtures("older_objects_rest")
def test_entries_die_with_the_door() -> None:
    def build() -> list[weakref.ref[Any]]:
        def function(a: int) -> int:
            return a

        def target(a: int) -> int:
            return len(door.entries())

        door = FrontDoor(function, decline)
        entry = Entry(lambda *slots: slots, target, data=door)
        door.append(entry)
        function.door = door  # type: ignore[attr-defined]
        assert door(1) == 1
        return [weakref.ref(thing) for thing in (door, entry, function, target)]

    died = build()
    gc.collect()
    assert [ref() for ref in died] == [None] * 4
