"""What the frame hook runs: the same results, frames, traces and reference counts as without it."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import pytest

from torchjit_frame import Entry, FrontDoor, forget, forget_all, hook_counters, hook_scope, trampoline

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


def twice(x: Any) -> Any:
    return 2 * x


def calls_twice(x: Any) -> Any:
    return twice(x) + 1


def shapes() -> list[tuple[FunctionType, tuple[Any, ...], dict[str, Any]]]:
    outer, shared = 100, [0]

    def simple(a: int, b: int = 2) -> Any:
        return a, b

    def everything(a: int, /, b: int, c: int = 3, *rest: int, d: int, e: int = 5, **more: int) -> Any:
        return a, b, c, rest, d, e, more

    def closure(a: int) -> Any:
        shared.append(a)
        return a + outer

    def cell_argument(a: int, *rest: int, **more: int) -> Any:
        def inner() -> Any:
            nonlocal a
            a += 1
            return a, rest, more

        return inner(), a

    def many_locals(a: int) -> Any:
        b = c = d = e = f = g = h = a
        return [b, c, d, e, f, g, h, [a, [b, [c, [d, [e, [f, [g, [h]]]]]]]]]

    def handles(a: int) -> Any:
        try:
            return 1 // a
        except ZeroDivisionError as error:
            return str(error)
        finally:
            shared.append(-1)

    def nothing() -> Any:
        return "nothing"

    return [
        (simple, (1,), {}),  # type: ignore[list-item]
        (simple, (1,), {"b": 7}),  # type: ignore[list-item]
        (everything, (1, 2), {"d": 4}),  # type: ignore[list-item]
        (everything, (1, 2, 3, 4, 5), {"d": 6, "e": 7, "z": 8, "a": 9}),  # type: ignore[list-item]
        (closure, (1,), {}),  # type: ignore[list-item]
        (cell_argument, (1, 2), {"x": 3}),  # type: ignore[list-item]
        (many_locals, (1,), {}),  # type: ignore[list-item]
        (handles, (0,), {}),  # type: ignore[list-item]
        (nothing, (), {}),  # type: ignore[list-item]
    ]


def through_a_door(function: FunctionType) -> FrontDoor:
    return FrontDoor(function, lambda door, slots: None)


def through_a_trampoline(function: FunctionType) -> CodeType:
    return trampoline(function, through_a_door(function))


def through_an_entry(function: FunctionType) -> FrontDoor:
    door = FrontDoor(function, lambda door, slots: None)
    door.append(
        Entry(
            lambda *slots: slots,
            lambda *slots: door.fallback(*args_of(function, slots)[0], **args_of(function, slots)[1]),
        )
    )
    return door


def through_a_trampoline_and_an_entry(function: FunctionType) -> CodeType:
    return trampoline(function, through_an_entry(function))


def args_of(function: FunctionType, slots: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    code = function.__code__
    named = code.co_argcount + code.co_kwonlyargcount
    keywords = dict(zip(code.co_varnames[code.co_argcount : named], slots[code.co_argcount : named], strict=True))
    rest = list(slots[named:])
    star = rest.pop(0) if code.co_flags & 4 else ()
    return (*slots[: code.co_argcount], *star), keywords | (rest.pop(0) if rest else {})


REPLACEMENTS: list[Callable[[FunctionType], Replacement]] = [
    identity,
    widen,
    through_a_door,
    through_an_entry,
    through_a_trampoline,
    through_a_trampoline_and_an_entry,
]


@pytest.mark.parametrize("replace", REPLACEMENTS)
@pytest.mark.parametrize("case", range(len(shapes())))
def test_replacements_give_the_same_result(replace: Callable[[FunctionType], Replacement], case: int) -> None:
    function, args, kwargs = shapes()[case]
    expected = function(*args, **kwargs)
    callback = Recorder(**{function.__name__: replace})
    with hook_scope(callback):
        for _ in range(4):
            assert function(*args, **kwargs) == expected
    assert callback.seen.count(function.__name__) == 1


def test_trampoline_passes_the_slots() -> None:
    def function(a: int, /, b: int, *rest: int, c: int = 3, **more: int) -> None: ...

    with hook_scope(Recorder(function=lambda function: trampoline(function, lambda *slots: slots))):
        assert function(1, 2, 4, 5, a=6) == (1, 2, 3, (4, 5), {"a": 6})  # type: ignore[func-returns-value]


def test_trampoline_keeps_the_identity_of_the_code() -> None:
    code = trampoline(calls_twice, lambda *slots: slots)  # type: ignore[arg-type]
    for name in ("co_name", "co_qualname", "co_filename", "co_firstlineno", "co_argcount", "co_freevars"):
        assert getattr(code, name) == getattr(calls_twice.__code__, name)
    with pytest.raises(TypeError, match="Python function, not"):
        trampoline(len, twice)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="suspends its frame"):
        trampoline((lambda: (yield)), twice)  # type: ignore[arg-type]


def test_a_door_in_the_hook_adds_no_frame() -> None:
    def function(a: int) -> Any:
        return sys._getframe(1).f_code.co_name, sys._getframe().f_code.co_name

    expected = function(1)
    door = FrontDoor(function, lambda door, slots: None)
    with hook_scope(Recorder(function=lambda function: door)):
        assert function(1) == expected
        assert door.misses == 1
        door.append(Entry(lambda *slots: slots, lambda a: (a, sys._getframe(1).f_code.co_name)))
        assert function(5) == (5, expected[0])


def test_a_door_of_other_code_is_refused() -> None:
    for door in (FrontDoor(calls_twice, lambda door, slots: None), FrontDoor(twice, lambda door, slots: None, slots=2)):
        with (
            hook_scope(Recorder(twice=lambda function: door)),
            pytest.raises(ValueError, match="slots are those of other"),
        ):
            twice(1)
    flat = FrontDoor(twice, lambda door, slots: None, slots=1)
    flat.append(Entry(lambda *slots: slots, lambda x: ("flat", x)))
    with hook_scope(Recorder(twice=lambda function: flat)):
        assert twice(1) == ("flat", 1)
        flat.clear()
        assert twice(1) == 2


def test_exceptions_through_a_door_in_the_hook() -> None:
    def fails(x: int) -> Any:
        raise KeyError(x)

    expected = []
    on_miss: Any = fails
    for mode in ("plain", "fallback", "target", "guard", "on_miss"):
        door = FrontDoor(fails, on_miss if mode == "on_miss" else lambda door, slots: None)
        if mode in ("target", "guard"):
            door.append(Entry(fails, fails) if mode == "guard" else Entry(lambda *slots: slots, fails))
        with hook_scope(Recorder(fails=lambda function: None if mode == "plain" else door)):
            for _ in range(3):
                with pytest.raises((KeyError, TypeError)) as caught:
                    fails(1)
                expected.append((type(caught.value), [entry.name for entry in caught.traceback]))
    assert expected[:12] == expected[:3] * 4


def test_hooked_recursion_is_as_deep_as_in_plain_python() -> None:
    def depth(n: int) -> int:
        return 0 if n == 0 else 1 + depth(n - 1)

    for callback in (Recorder(), Recorder(depth=identity), Recorder(depth=through_a_door)):
        with hook_scope(callback):
            assert depth(900) == 900
            with pytest.raises(RecursionError):
                depth(10**6)
            assert depth(900) == 900


def test_hooked_recursion_beyond_the_stack() -> None:
    def depth(n: int) -> int:
        return 0 if n == 0 else 1 + depth(n - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    try:
        for callback in (Recorder(), *(Recorder(depth=replace) for replace in REPLACEMENTS)):
            with hook_scope(callback):
                with pytest.raises(RecursionError):
                    depth(500_000)
                assert depth(1200) == 1200
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("case", range(len(shapes())))
def test_growth_at_a_chunk_boundary(case: int) -> None:
    """Called at every depth around the end of a data stack chunk, a larger frame fits or gets a frame of its own."""
    function, args, kwargs = shapes()[case]
    expected = function(*args, **kwargs)

    def descend(n: int) -> None:
        assert function(*args, **kwargs) == expected
        if n > 0:
            descend(n - 1)

    with hook_scope(Recorder(**{function.__name__: widen})):
        twins = hook_counters()["twin_calls"]
        descend(600)  # a chunk is 16 KiB, a frame of `descend` at least 100 bytes
        assert hook_counters()["twin_calls"] > twins
        before = [sys.getrefcount(thing) for thing in (function, args, kwargs, function.__closure__)]
        descend(600)
        assert [sys.getrefcount(thing) for thing in (function, args, kwargs, function.__closure__)] == before


def test_exceptions_and_tracebacks_at_a_chunk_boundary() -> None:
    def fails(x: int) -> int:
        return x // 0

    def descend(n: int) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            fails(n)
        names = [entry.name for entry in caught.traceback]
        assert names == ["descend", "fails"]
        if n > 0:
            descend(n - 1)

    twins = hook_counters()["twin_calls"]
    with hook_scope(Recorder(fails=widen)):
        descend(150)
    assert hook_counters()["twin_calls"] > twins


@pytest.mark.usefixtures("older_objects_rest")
def test_references_balance_under_the_hook() -> None:
    def function(a: Any, *rest: Any, **more: Any) -> Any:
        return a

    def fails(a: Any) -> Any:
        raise ValueError(a)

    thing = object()
    for replace in REPLACEMENTS:
        with hook_scope(Recorder(function=replace, fails=replace)):

            def run(times: int) -> None:
                for _ in range(times):
                    function(thing, thing, x=thing)
                    try:
                        fails(thing)
                    except ValueError:
                        pass

            run(10)
            gc.collect()
            before = [sys.getrefcount(x) for x in (thing, function, function.__code__, fails, fails.__code__)]
            run(300)
            gc.collect()
            assert [sys.getrefcount(x) for x in (thing, function, function.__code__, fails, fails.__code__)] == before


@pytest.mark.usefixtures("older_objects_rest")
def test_decisions_die_with_the_code() -> None:
    class Callback:
        def __call__(self, function: FunctionType) -> Replacement:
            return identity(function) if function.__name__ == "temporary" else None

    def build() -> weakref.ref[Any]:
        callback = Callback()
        namespace: dict[str, Any] = {}
        exec("def temporary(x): return x + 1", namespace)
        with hook_scope(callback):
            assert namespace["temporary"](1) == 2
        del namespace["__builtins__"]
        forget(Callback.__call__.__code__)
        return weakref.ref(callback)

    died = build()
    gc.collect()
    for _ in range(1000):  # dead decisions are let go of at the next safe point
        if died() is None:
            break
    assert died() is None


def test_trace_functions_see_one_frame_per_call() -> None:
    def record(tracer: list[tuple[str, str]]) -> Any:
        def trace(frame: Any, event: str, argument: Any) -> Any:
            if frame.f_code.co_filename == __file__ and frame.f_code.co_name in {"twice", "calls_twice"}:
                tracer.append((event, frame.f_code.co_name))
            return trace

        return trace

    def run(callback: Any) -> list[tuple[str, str]]:
        events: list[tuple[str, str]] = []
        previous = sys.gettrace()
        if callback is None:
            sys.settrace(record(events))
            try:
                assert calls_twice(1) == 3
            finally:
                sys.settrace(previous)
            return events
        with hook_scope(callback):
            sys.settrace(record(events))
            try:
                assert calls_twice(1) == 3
            finally:
                sys.settrace(previous)
        return events

    plain = run(None)
    assert run(Recorder()) == plain
    assert run(Recorder(twice=identity, calls_twice=identity)) == plain
    assert len(plain) == 6


def test_frames_look_right_from_inside() -> None:
    def function(a: int) -> Any:
        b = a + 1
        frame = sys._getframe()
        return dict(frame.f_locals), frame.f_code.co_name, frame.f_lineno - frame.f_code.co_firstlineno, b

    expected = function(1)
    expected[0].pop("frame")
    with hook_scope(Recorder(function=identity)):
        found = function(1)
        found[0].pop("frame", None)
    assert found == expected


def test_superclass_calls_without_arguments() -> None:
    class Base:
        def method(self, x: int) -> int:
            return x

    class Derived(Base):
        def method(self, x: int) -> int:
            return super().method(x) + (__class__ is Derived)  # type: ignore[name-defined]

    for replace in REPLACEMENTS:
        with hook_scope(Recorder(method=replace)):
            assert [Derived().method(n) for n in range(3)] == [1, 2, 3]


def test_profile_functions_see_the_same_events() -> None:
    def run(replace: Callable[[FunctionType], Replacement] | None) -> list[tuple[str, str]]:
        events: list[tuple[str, str]] = []

        def profile(frame: Any, event: str, argument: Any) -> None:
            if frame.f_code.co_name in {"twice", "calls_twice"}:
                events.append((event, frame.f_code.co_name))

        with hook_scope(Recorder(**({"twice": replace, "calls_twice": replace} if replace else {}))):
            calls_twice(0)
            sys.setprofile(profile)
            try:
                calls_twice(1)
            finally:
                sys.setprofile(None)
        return events

    expected = [("call", "calls_twice"), ("call", "twice"), ("return", "twice"), ("return", "calls_twice")]
    for replace in (None, identity, widen, through_a_door):
        assert run(replace) == expected


@pytest.mark.usefixtures("older_objects_rest")
def test_forgetting_while_threads_call() -> None:
    makers: list[Callable[[FunctionType], Replacement]] = [*REPLACEMENTS, lambda function: None]
    turn = iter(range(10**9))

    def callback(function: FunctionType) -> Replacement:
        if function not in (twice, calls_twice):
            return None
        return makers[next(turn) % len(makers)](function)

    errors: list[BaseException] = []
    stop = threading.Event()

    def call() -> None:
        try:
            with hook_scope(callback):
                while not stop.is_set():
                    for n in range(20):
                        assert calls_twice(n) == 2 * n + 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for n in range(75):
            forget(twice.__code__)
            if n % 3 == 0:
                forget(calls_twice.__code__)
            if n % 10 == 0:
                forget_all()
            if n % 25 == 0:
                gc.collect()
            time.sleep(5e-4)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
        sys.setswitchinterval(interval)
    assert errors == []
    assert next(turn) > 50
