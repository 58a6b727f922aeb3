"""CPython's own tests, run natively and through `Interpreter(ConcreteDomain)`.

    python packages/torchjit-vm/tests/vm_cpython.py test_grammar test_dict ...

prints each test that passes natively and not interpreted. The tests are those that the running Python brings along.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib
import io
import signal
import sys
import unittest
from collections.abc import Iterator
from typing import Any

from torchjit_vm import interpret

__all__ = ["Failure", "cases", "run_module"]

SECONDS = 20
"""How much processor time one test may take."""


class TooSlow(BaseException):
    """Raised by the alarm: no test catches it."""


class Failure(Exception):
    """A test that passes natively fails when it is interpreted."""

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__(name, error)
        self.name, self.error = name, error

    def __str__(self) -> str:
        text = str(self.error).strip().split("\n")[0]
        return f"{self.name}: {type(self.error).__name__}: {text[:160]}"


def cases(module: Any) -> Iterator[unittest.TestCase]:
    """Every test of a module, each in an instance of its own; doctests are left out."""

    def walk(suite: Any) -> Iterator[unittest.TestCase]:
        for item in suite:
            if isinstance(item, unittest.TestSuite):
                yield from walk(item)
            elif isinstance(item, unittest.TestCase) and hasattr(item, "_testMethodName"):
                yield item

    loader = unittest.TestLoader()
    for name in dir(module):
        cls = getattr(module, name)
        if isinstance(cls, type) and issubclass(cls, unittest.TestCase) and cls.__module__ == module.__name__:
            yield from walk(loader.loadTestsFromTestCase(cls))


def _body(case: Any) -> None:
    """What unittest does with one test."""
    case._callSetUp()
    try:
        getattr(case, case._testMethodName)()
    finally:
        case._callTearDown()
        case.doCleanups()


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    def expire(number: int, frame: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, expire)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _attempt(case: Any, interpreted: bool) -> BaseException | None:
    """The exception that a test ends with; None if it passes."""
    case._outcome = unittest.case._Outcome()  # type: ignore[attr-defined]  # what subTest() asks for
    skipped = getattr(type(case), "__unittest_skip__", False) or getattr(
        getattr(case, case._testMethodName), "__unittest_skip__", False
    )
    if skipped:
        return unittest.SkipTest("skipped")
    names, depth = dict(vars(builtins)), sys.getrecursionlimit()
    try:
        with _limits():
            if interpreted:
                interpret(_body, case)
            else:
                _body(case)
    except BaseException as error:
        return error
    finally:
        _restore(vars(builtins), names)
        sys.setrecursionlimit(depth)
    return None


def _restore(space: dict[str, Any], names: dict[str, Any]) -> None:
    for name in [name for name in space if type(name) is not str or name not in names]:
        del space[name]  # test_iter leaves keys that only equal a name
    space.update(names)


def run_module(name: str, only: str = "") -> tuple[int, list[Failure]]:
    """Run the tests of `test.NAME`.

    Returns:
        How many pass natively, and those among them that fail interpreted.
    """
    with quick_collections():
        return _run_module(name, only)


def _run_module(name: str, only: str) -> tuple[int, list[Failure]]:
    module = importlib.import_module(f"test.{name}")
    passed, failures = 0, []
    prepared: set[type] = set()
    for case in cases(module):
        label = case.id().removeprefix("test.")
        if only not in label:
            continue
        if type(case) not in prepared:
            prepared.add(type(case))
            type(case).setUpClass()
        if _attempt(case, False) is not None:
            continue
        passed += 1
        error = _attempt(type(case)(case._testMethodName), True)
        if error is not None:
            failures.append(Failure(label, error))
    for cls in prepared:
        cls.tearDownClass()  # type: ignore[attr-defined]
    return passed, failures


@contextlib.contextmanager
def quick_collections() -> Iterator[None]:
    """CPython's tests collect garbage dozens of times: without looking at what the rest of this process has made."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        name, _, only = wanted.partition(":")
        count, failed = run_module(name, only)
        print(f"{name}: {count} pass natively, {len(failed)} of them fail interpreted")
        for failure in failed:
            print("   ", failure)
