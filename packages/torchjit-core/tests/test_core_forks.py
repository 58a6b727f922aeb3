"""Locks and states of the process in the children of forks, and turns."""

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from torchjit_core.forks import caught_warnings, new_lock, undone_in_children
from torchjit_core.turns import others_may_go_on, turn

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
TIMEOUT = 20


def in_child(says: Callable[[], bool]) -> bool:
    """What a function says in the child of a fork; False where it hangs or raises."""
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(TIMEOUT)
            os._exit(0 if says() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextmanager
def elsewhere(block: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Another thread is inside of a block."""
    inside, leave = threading.Event(), threading.Event()

    def run() -> None:
        with block():
            inside.set()
            leave.wait(TIMEOUT)

    thread = threading.Thread(target=run)
    thread.start()
    assert inside.wait(TIMEOUT)
    try:
        yield
    finally:
        leave.set()
        thread.join(TIMEOUT)


def test_locks_of_other_threads_are_free_in_a_child() -> None:
    lock = new_lock()
    with elsewhere(lambda: lock):
        assert in_child(lambda: lock.acquire(blocking=False))
        assert not lock.acquire(blocking=False)


def test_the_thread_that_forks_keeps_its_locks() -> None:
    lock = new_lock()

    def says() -> bool:
        taken: list[bool] = []
        other = threading.Thread(target=lambda: taken.append(lock.acquire(blocking=False)))
        other.start()
        other.join()
        lock.release()
        return taken == [False]

    with lock:
        assert in_child(says)


def test_states_that_other_threads_set_are_undone_in_a_child() -> None:
    state = []

    @contextmanager
    def changed() -> Iterator[None]:
        state.append(1)
        with undone_in_children(state.clear):
            yield
        state.clear()

    with elsewhere(changed):
        assert in_child(lambda: not state)
        assert state
    assert not state
    with changed():
        assert in_child(lambda: bool(state))


def test_filters_of_warnings_are_the_programs_in_a_child() -> None:
    before = list(warnings.filters)
    with elsewhere(lambda: caught_warnings("ignore")):
        assert warnings.filters != before
        assert in_child(lambda: list(warnings.filters) == before)
    assert list(warnings.filters) == before


def test_a_turn_is_free_in_a_child() -> None:
    def says() -> bool:
        with turn():
            return True

    with elsewhere(turn):
        assert in_child(says)


def test_others_have_their_turn_meanwhile() -> None:
    order: list[str] = []
    done = threading.Event()

    def other() -> None:
        with turn():
            order.append("other")
        done.set()

    thread = threading.Thread(target=other)
    with turn(), turn():
        thread.start()
        assert not done.wait(0.1)
        order.append("mine")
        with others_may_go_on():
            assert done.wait(TIMEOUT)
        with elsewhere(others_may_go_on):  # it has no turn
            pass
        taken = threading.Thread(target=other)
        done.clear()
        taken.start()
        assert not done.wait(0.1)
        order.append("mine again")
    taken.join(TIMEOUT)
    assert order == ["mine", "other", "mine again", "other"]


def test_errors_leave_no_turn_behind() -> None:
    with pytest.raises(KeyError), turn(), others_may_go_on():
        raise KeyError
    with elsewhere(turn):
        pass
