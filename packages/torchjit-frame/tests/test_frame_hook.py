"""The frame hook: what is offered, scopes, closures, threads."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest

from torchjit_frame import LEAVE_ALL, Entry, FrontDoor, eager, forget, forget_all, hook_scope, trampoline

Replacement = CodeType | FrontDoor | None


class Recorder:
    """A callback that remembers what it was offered, and replaces by name."""

    def __init__(self, **replacements: Callable[[FunctionType], Replacement]) -> None:
        self.seen: list[str] = []
        self.replacements = replacements

    def __call__(self, function: FunctionType) -> Replacement:
        self.seen.append(function.__name__)
        make = self.replacements.get(function.__name__)
        return make(function) if make is not None else None


def identity(function: FunctionType) -> CodeType:
    return function.__code__.replace()


def widen(function: FunctionType) -> CodeType:
    """The same code in a larger frame."""
    code = function.__code__
    return code.replace(co_stacksize=code.co_stacksize + 60)


def returning(value: Any) -> Callable[[FunctionType], CodeType]:
    """A replacement with the same slots that returns a constant."""

    def make(function: FunctionType) -> CodeType:
        return trampoline(function, lambda *slots: value)

    return make


def twice(x: Any) -> Any:
    return 2 * x


def calls_twice(x: Any) -> Any:
    return twice(x) + 1


def through_a_door(function: FunctionType) -> FrontDoor:
    return FrontDoor(function, lambda door, slots: None)


def test_functions_are_offered_once() -> None:
    callback = Recorder()
    for _ in range(3):
        with hook_scope(callback):
            assert calls_twice(3) == 7
    assert callback.seen == ["calls_twice", "twice"]


def test_nothing_is_offered_outside() -> None:
    callback = Recorder()
    with hook_scope(callback):
        pass
    assert calls_twice(3) == 7
    assert callback.seen == []


def test_each_callback_decides_for_itself() -> None:
    one, other = Recorder(twice=returning(1)), Recorder(twice=returning(2))
    with hook_scope(one):
        assert twice(5) == 1
        with hook_scope(other):
            assert twice(5) == 2
        assert twice(5) == 1
    assert twice(5) == 10
    assert one.seen[0] == other.seen[0] == "twice" and one.seen.count("twice") == other.seen.count("twice") == 1


def test_bound_methods_are_one_callback() -> None:
    class Owner:
        seen = 0

        def offered(self, function: FunctionType) -> None:
            self.seen += 1

    owner = Owner()
    for _ in range(3):
        with hook_scope(owner.offered):
            twice(1)
    assert owner.seen == 1


def test_forget() -> None:
    callback = Recorder(twice=returning("replaced"))
    with hook_scope(callback):
        assert twice(1) == "replaced"
        callback.replacements.clear()
        assert twice(1) == "replaced"
        forget(twice.__code__)
        assert twice(1) == 2
    assert callback.seen.count("twice") == 2
    with pytest.raises(TypeError, match="a code object is needed"):
        forget(twice)  # type: ignore[arg-type]


def test_forget_all() -> None:
    def temporary(x: int) -> int:
        return x

    door = FrontDoor(temporary, lambda door, slots: None)
    held = sys.getrefcount(door)
    callback = Recorder(temporary=lambda function: door)
    with hook_scope(callback):
        assert (temporary(1), temporary(2)) == (1, 2)
        assert sys.getrefcount(door) > held
        forget_all()
        callback.replacements.clear()
        assert (temporary(1), temporary(2)) == (1, 2)
        assert door.misses == 2
    assert callback.seen.count("temporary") == 2
    callback.replacements.clear()
    with hook_scope(callback):
        twice(0)
    assert sys.getrefcount(door) == held


def test_what_is_never_offered() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def coroutine() -> int:
        return 1

    async def asynchronous_generator() -> Any:
        yield 1

    def comprehensions() -> Any:
        return [x for x in (1, 2)], {x for x in (1, 2)}, {x: x for x in (1, 2)}, list(x for x in (1, 2))

    callback = Recorder()
    with hook_scope(callback):
        assert list(generator()) == [1]
        with pytest.raises(StopIteration):
            coroutine().send(None)
        asynchronous_generator()

        class Body:
            x = 1

        exec("y = 1")
        assert comprehensions() == ([1, 2], {1, 2}, {1: 1, 2: 2}, [1, 2])
    never = {"generator", "coroutine", "asynchronous_generator", "Body"}
    assert [name for name in callback.seen if name in never or name[0] == "<"] == []
    assert "comprehensions" in callback.seen


def test_the_hook_is_inactive_inside_the_callback() -> None:
    seen = []

    def callback(function: FunctionType) -> None:
        seen.append(function.__name__)
        assert twice(2) == 4

    with hook_scope(callback):
        calls_twice(1)
    assert seen == ["calls_twice", "twice"]


def test_callback_errors_reach_the_caller() -> None:
    def fails(function: FunctionType) -> None:
        if function is twice:
            raise KeyError(function.__name__)

    with hook_scope(fails):
        for _ in range(3):
            with pytest.raises(KeyError, match="twice"):
                twice(1)
    with hook_scope(Recorder()):
        assert twice(1) == 2


@pytest.mark.usefixtures("older_objects_rest")
@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda function: 1, TypeError, "must return a code object, a FrontDoor, LEAVE_ALL or None, not 'int'"),
        (lambda function: (lambda: 1).__code__, ValueError, "its arguments differ"),
        (lambda function: (lambda *x: 1).__code__, ValueError, "its arguments differ"),
        (lambda function: (lambda x: (yield)).__code__, ValueError, "its arguments differ|generator"),
        (lambda function: (lambda x: function).__code__, ValueError, "its free variables differ"),
    ],
)
def test_bad_replacements(make: Any, error: type[Exception], text: str) -> None:
    before = sys.getrefcount(twice)
    with hook_scope(Recorder(twice=make)), pytest.raises(error, match=text):
        twice(1)
    assert twice(1) == 2
    gc.collect()
    assert sys.getrefcount(twice) == before


def make_adder(n: int) -> Any:
    def adder(x: int) -> int:
        return x + n

    return adder


def test_closures_get_doors_of_their_own() -> None:
    offered: list[Any] = []

    def callback(function: FunctionType) -> Replacement:
        if function.__name__ != "adder":
            return None
        offered.append(function)
        return through_a_door(function)

    with hook_scope(callback):
        adders = [make_adder(n) for n in range(20)]
        for _ in range(3):
            assert [adder(100) for adder in adders] == list(range(100, 120))
    assert offered == adders[:8]


def test_a_function_made_again_shares_the_decision() -> None:
    def make() -> Any:
        def remade(x: int) -> int:
            return x + 1

        return remade

    callback = Recorder(remade=through_a_door)
    with hook_scope(callback):
        assert [make()(1) for _ in range(5)] == [2] * 5
    assert callback.seen.count("remade") == 1


def test_unbound_replacement_serves_every_closure() -> None:
    callback = Recorder(adder=identity)
    with hook_scope(callback):
        assert [make_adder(n)(100) for n in range(20)] == list(range(100, 120))
    assert callback.seen.count("adder") == 1


@pytest.mark.parametrize("direct", [True, False])
def test_original_under_a_door_is_not_sent_back(direct: bool) -> None:
    """The door's fallback, its target, and what they call."""

    def recursive(n: int) -> int:
        return 0 if n == 0 else 1 + recursive(n - 1)

    misses: list[Any] = []

    def on_miss(door: FrontDoor, slots: tuple[Any, ...]) -> Entry | None:
        misses.append(slots)
        return Entry(lambda n: (n,) if n % 2 else None, door.__wrapped__) if len(misses) == 1 else None

    door_of = {}

    def replace(function: FunctionType) -> Replacement:
        door_of[function] = FrontDoor(function, on_miss)
        return door_of[function] if direct else trampoline(function, door_of[function])

    with hook_scope(Recorder(recursive=replace)):
        assert recursive(5) == 5
        assert recursive(6) == 6
    door = door_of[recursive]  # type: ignore[index]
    assert misses == [(5,), (4,), (2,), (0,), (6,), (4,), (2,), (0,)]
    assert door.entries()[0].hits == 6


def test_on_miss_and_python_guards_run_unhooked() -> None:
    def guard(*slots: Any) -> Any:
        return (twice(1),)

    def on_miss(door: FrontDoor, slots: tuple[Any, ...]) -> Entry:
        twice(1)
        return Entry(guard, calls_twice)

    def function(x: int) -> None: ...

    callback = Recorder()
    door = FrontDoor(function, on_miss)
    with hook_scope(callback):
        assert (door(1), door(2)) == (5, 5)
    assert callback.seen == ["twice"]  # what the target calls; not the target itself


def test_python_that_a_guard_program_asks_runs_unhooked(capsule_guard: Callable[..., Any]) -> None:
    """It may be the program's own code for its tensors, whose guards would ask it again, without end."""

    def condition(x: int) -> bool:
        return bool(twice(x) < 9)

    def function(x: int) -> None: ...

    callback = Recorder()
    door = FrontDoor(function, lambda door, slots: Entry(capsule_guard("asks", 1, condition), calls_twice))
    with hook_scope(callback):
        assert (door(1), door(2)) == (3, 5)
    assert callback.seen == ["twice"]  # what the target calls


def test_eager_threads_are_not_hooked() -> None:
    callback = Recorder()
    with eager(), hook_scope(callback):
        assert calls_twice(1) == 3
    assert callback.seen == []


def test_scopes_belong_to_threads() -> None:
    callback = Recorder()
    scope = hook_scope(callback)
    errors: list[BaseException] = []

    def other() -> None:
        twice(1)
        try:
            scope.__exit__(None, None, None)
        except RuntimeError as error:
            errors.append(error)

    with scope:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "twice" not in callback.seen
    assert "not open in this thread" in str(errors[0])
    with pytest.raises(RuntimeError, match="not open"):
        scope.__exit__(None, None, None)


def test_scopes_may_be_reentered_and_interleaved() -> None:
    callback, inner = Recorder(), Recorder()
    scope, other = hook_scope(callback), hook_scope(inner)
    scope.__enter__()
    with scope:
        twice(1)
    other.__enter__()
    scope.__exit__(None, None, None)
    calls_twice(1)
    other.__exit__(None, None, None)
    twice(1)
    assert (callback.seen, inner.seen) == (["twice"], ["calls_twice", "twice"])
    with pytest.raises(TypeError, match="must be callable"):
        hook_scope(None)  # type: ignore[arg-type]


def test_threads_ask_once() -> None:
    callback = Recorder(twice=identity)
    errors: list[BaseException] = []

    def body() -> None:
        try:
            with hook_scope(callback):
                for n in range(500):
                    assert calls_twice(n) == 2 * n + 1
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=body) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert callback.seen.count("twice") == callback.seen.count("calls_twice") == 1


SHUTDOWN = """
import sys, threading, time
from torchjit_frame import FrontDoor, hook_scope

def replace(function):
    if function.__name__ == "busy":
        return FrontDoor(function, lambda door, slots: None)
    return function.__code__.replace()

class Late:
    def __del__(self):
        print("late", end="")

def busy(n):
    return n + 1

def forever():
    with hook_scope(replace):
        while True:
            busy(1)

late = Late()
thread = threading.Thread(target=forever, daemon=True)
hook_scope(replace).__enter__()
thread.start()
print([busy(i) for i in range(3)])
time.sleep(0.05)
"""


def test_interpreter_exit_with_open_scopes() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", SHUTDOWN], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.split("\n")[0], done.stderr) == (0, "[1, 2, 3]", "")


def test_leave_all_rests_the_hook_below() -> None:
    def inner() -> int:
        return 1

    def alone() -> int:
        return inner()

    def fails() -> int:
        inner()
        raise KeyError

    seen = []

    def callback(function: FunctionType) -> Replacement:
        seen.append(function.__name__)
        return LEAVE_ALL if function in (alone, fails) else None

    with hook_scope(callback):
        alone()
        with contextlib.suppress(KeyError):
            fails()
        alone()
        assert [n for n in seen if n in ("alone", "fails", "inner")] == ["alone", "fails"]
        inner()
    assert seen[-1] == "inner"
