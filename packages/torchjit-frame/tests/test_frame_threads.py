"""Threads: one of them compiles, the others wait or run eagerly; nothing deadlocks."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from torchjit_frame import Entry, FrontDoor, hook_counters, hook_scope, is_eager, set_eager

TIMEOUT = 30.0


def run_threads(*bodies: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    if errors:
        raise errors[0]


def test_sixteen_threads_compile_once() -> None:
    compiled: list[tuple[Any, ...]] = []

    def on_miss(door: FrontDoor, slots: tuple[Any, ...]) -> Entry:
        compiled.append(slots)
        time.sleep(0.02)
        kind = type(slots[0])
        return Entry(lambda x: (x,) if type(x) is kind else None, lambda x: (kind, x))

    door = FrontDoor(lambda x: "original", on_miss)
    values: list[Any] = [1, "a", 2.5, b"b"]

    def body() -> None:
        for i in range(250):
            value = values[i % 4]
            assert door(value) == (type(value), value)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        run_threads(*[body] * 16)
    finally:
        sys.setswitchinterval(interval)
    assert sorted(type(slots[0]).__name__ for slots in compiled) == ["bytes", "float", "int", "str"]
    assert len(door.entries()) == 4
    assert sum(entry.hits for entry in door.entries()) == 16 * 250


def test_entries_hammered_while_they_change() -> None:
    def on_miss(door: FrontDoor, slots: tuple[Any, ...]) -> Entry:
        kind = type(slots[0])
        return Entry(lambda x: (x,) if type(x) is kind else None, lambda x: x)

    door = FrontDoor(lambda x: x, on_miss)
    stop = threading.Event()

    def mutate() -> None:
        try:
            for i in range(25):
                entries = door.entries()
                if i % 5 == 0:
                    door.clear()
                elif entries:
                    door.append(entries[-1])
                    entries[0].enabled = i % 2 == 0
                time.sleep(1e-4)
        finally:
            stop.set()

    def call() -> None:
        while not stop.is_set():
            for value in (1, "a", 2.5):
                assert door(value) == value

    run_threads(mutate, *[call] * 4)


def test_two_doors_that_compile_each_other_do_not_deadlock() -> None:
    barrier = threading.Barrier(2, timeout=TIMEOUT)
    doors: list[FrontDoor] = []

    def make(other: int) -> Callable[[FrontDoor, tuple[Any, ...]], Entry]:
        def on_miss(door: FrontDoor, slots: tuple[Any, ...]) -> Entry:
            barrier.wait()
            assert doors[other](1) == "original"
            barrier.wait()
            return Entry(lambda x: (x,), lambda x: "compiled")

        return on_miss

    doors += [FrontDoor(lambda x: "original", make(1)), FrontDoor(lambda x: "original", make(0))]
    results: list[str] = []
    run_threads(lambda: results.append(doors[0](1)), lambda: results.append(doors[1](1)))
    assert results == ["compiled", "compiled"]


def test_waiting_thread_compiles_when_the_first_fails() -> None:
    inside = threading.Event()
    attempts: list[int] = []

    def on_miss(door: FrontDoor, slots: tuple[Any, ...]) -> Entry:
        attempts.append(slots[0])
        if len(attempts) == 1:
            inside.set()
            time.sleep(0.1)
            raise ValueError("first")
        return Entry(lambda x: (x,), lambda x: ("compiled", x))

    door = FrontDoor(lambda x: x, on_miss)
    results: list[Any] = []

    def first() -> None:
        with pytest.raises(ValueError, match="first"):
            door(1)

    def second() -> None:
        inside.wait(TIMEOUT)
        results.append(door(2))

    run_threads(first, second)
    assert (attempts, results) == ([1, 2], [("compiled", 2)])


def test_eager_flag_is_per_thread() -> None:
    seen: list[bool] = []
    previous = set_eager(True)
    try:
        run_threads(lambda: seen.append(is_eager()))
        assert is_eager()
    finally:
        set_eager(previous)
    assert seen == [False]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork_while_another_thread_compiles() -> None:
    inside, leave = threading.Event(), threading.Event()

    def on_miss(door: FrontDoor, slots: tuple[Any, ...]) -> Entry | None:
        if threading.current_thread() is threading.main_thread():
            return Entry(lambda x: (x,), lambda x: "compiled")
        inside.set()
        leave.wait(TIMEOUT)
        return None

    door = FrontDoor(lambda x: "original", on_miss)
    thread = threading.Thread(target=door, args=(1,))
    thread.start()
    assert inside.wait(TIMEOUT)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit(0 if door(1) == "compiled" else 1)
    leave.set()
    thread.join(TIMEOUT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_has_no_scopes_of_other_threads() -> None:
    inside, leave = threading.Event(), threading.Event()

    def elsewhere() -> None:
        with hook_scope(lambda function: None):
            inside.set()
            leave.wait(TIMEOUT)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    assert inside.wait(TIMEOUT)

    def open_in_child() -> int:
        child = os.fork()
        if child == 0:
            os._exit(hook_counters()["open_scopes"])
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert open_in_child() == 0
    with hook_scope(lambda function: None):
        assert open_in_child() == 1
    leave.set()
    thread.join(TIMEOUT)


def test_interrupt_while_waiting() -> None:
    inside, leave = threading.Event(), threading.Event()

    class Alarm(Exception):
        pass

    def handler(number: int, frame: object) -> None:
        raise Alarm

    def on_miss(door: FrontDoor, slots: tuple[Any, ...]) -> None:
        inside.set()
        leave.wait(TIMEOUT)

    door = FrontDoor(lambda x: x, on_miss)
    thread = threading.Thread(target=door, args=(1,))
    thread.start()
    assert inside.wait(TIMEOUT)
    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(Alarm):
            door(1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        leave.set()
        thread.join(TIMEOUT)


def test_small_thread_stack() -> None:
    def depth(n: int) -> int:
        return 0 if n == 0 else 1 + int(door(n - 1))

    door = FrontDoor(depth, lambda door, slots: None)

    def body() -> None:
        assert door(50) == 50
        with pytest.raises(RecursionError):
            door(10**6)

    previous = threading.stack_size(512 * 1024)
    try:
        run_threads(body)
    finally:
        threading.stack_size(previous)
