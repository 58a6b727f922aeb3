"""Warnings and log records are put off to the end of the region: the same reports as without capture, in the same order."""

from __future__ import annotations

import copy
import functools
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from vm_lazy import Jit, Num

LOGGER = logging.getLogger("torchjit_vm.tests.reports")
SILENT = logging.getLogger("torchjit_vm.tests.reports.silent")
N = Num


class Records:
    """What is reported, in order: log lines with the place that they come from, and warnings."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(logging.Formatter("%(levelname)s %(message)s %(filename)s:%(lineno)d %(funcName)s"))


@pytest.fixture
def records() -> Iterator[Records]:
    made = Records()
    LOGGER.addHandler(made.handler)
    LOGGER.propagate = False
    LOGGER.setLevel(logging.INFO)
    SILENT.setLevel(logging.CRITICAL)
    yield made
    LOGGER.handlers.clear()


def seen(records: Records, function: Callable[..., Any], *args: Any) -> Any:
    """Everything that a call shows: its result or exception, log lines, warnings, and what became of the arguments."""
    LOGGER.handlers[:] = [records.handler]  # without those of pytest
    records.stream.seek(0)
    records.stream.truncate()
    args = copy.deepcopy(args)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = repr(function(*args))
        except Exception as error:
            result = repr(error)
    lines = [(w.category, str(w.message), w.filename, w.lineno) for w in caught]
    return result, records.stream.getvalue(), lines, repr(args)


def check(records: Records, function: Callable[..., Any], *args: Any, breaks: int = 0, **policy: Any) -> Jit:
    jit = Jit(function, **policy)
    for _ in range(2):
        assert seen(records, jit, *args) == seen(records, function, *args), [c.source for c in jit.captured]
    assert len(jit.breaks) == breaks, [(b.detail, b.location) for c in jit.captured for b in c.breaks]
    return jit


def warns(x: Any) -> Any:
    y = x + 1
    warnings.warn("first", stacklevel=1)
    y = y * 2
    warnings.warn("second", DeprecationWarning, stacklevel=1)
    return y


def helper(x: Any, text: str) -> Any:
    LOGGER.info("in %s", text)
    warnings.warn(text, category=FutureWarning, stacklevel=2)
    return x * 2


def inlined(x: Any, text: str) -> Any:
    y = helper(x, text)
    LOGGER.warning("%d of %s", 3, [1, {"a": text}])
    LOGGER.debug("never")
    return helper(y, text + "!")


def snapshot(x: Any, items: list[int]) -> Any:
    LOGGER.info("before %s", items)
    items.append(3)
    LOGGER.info("after %s", items)
    return x + 1


def leaves_by_exception(x: Any) -> Any:
    LOGGER.warning("careful")
    y = x + 1
    raise ValueError("gone", 3) from None
    return y


def caught_inside(x: Any) -> Any:
    try:
        LOGGER.info("try")
        raise KeyError("k")
    except KeyError:
        LOGGER.info("except")
    finally:
        LOGGER.info("finally")
    return x + 1


def around_a_break(x: Any, log: list[Any]) -> Any:
    LOGGER.info("one")
    log.append(1)
    if x > 0:
        LOGGER.info("two")
    log.append(2)
    return x + 1


def asks(x: Any) -> Any:
    if LOGGER.isEnabledFor(logging.DEBUG):
        x = x * 100
    SILENT.error("not shown %s", x)  # a leaf, which is never formatted
    return x + 1


@pytest.mark.parametrize(
    ("function", "args", "breaks"),
    [
        (warns, (N(1),), 0),
        (inlined, (N(1), "t"), 0),
        (snapshot, (N(1), [1, 2]), 0),
        (leaves_by_exception, (N(1),), 0),
        (caught_inside, (N(1),), 0),
        (around_a_break, (N(1), []), 1),
        (asks, (N(1),), 0),
    ],
    ids=lambda v: v.__name__ if callable(v) else None,
)
def test_same_reports(records: Records, function: Callable[..., Any], args: tuple[Any, ...], breaks: int) -> None:
    check(records, function, *args, breaks=breaks)


def test_a_leaf_in_a_record_breaks(records: Records) -> None:
    """Its value is not known yet, and may change until the end of the region."""

    def shows(x: Any) -> Any:
        y = x + 1
        LOGGER.warning("value %s", y)
        return y.add_(1)

    check(records, shows, N(1), breaks=1)


def test_the_level_is_relied_on(records: Records) -> None:
    jit = check(records, asks, N(1))
    LOGGER.setLevel(logging.DEBUG)
    assert jit(N(1)).value == 101
    LOGGER.setLevel(logging.INFO)
    assert jit(N(1)).value == 2
    assert len(jit.captured) == 2


def test_a_level_that_the_region_sets(records: Records) -> None:
    """The logging system itself changes in between: the call runs for real."""

    def sets(x: Any) -> Any:
        LOGGER.level = logging.ERROR
        LOGGER._cache.clear()  # type: ignore[attr-defined]
        LOGGER.warning("hidden")
        LOGGER.level = logging.INFO
        LOGGER._cache.clear()  # type: ignore[attr-defined]
        return x + 1

    jit = Jit(sets)
    assert seen(records, jit, N(1)) == seen(records, sets, N(1))


class Looks(logging.StreamHandler[io.StringIO]):
    """A handler that shows what the program's state is."""

    state: list[int] = []

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.getMessage()} with {self.state}"


def changes(x: Any, state: list[int]) -> Any:
    state.append(1)
    LOGGER.info("changed")
    state.append(2)
    return x + 1


def test_a_handler_of_the_program_sees_the_state(records: Records) -> None:
    """It could look at what the region has changed: such a record is made for real."""
    found = []
    for function, breaks in ((changes, 0), (Jit(changes), 1)):
        handler = Looks(io.StringIO())
        handler.state = []
        LOGGER.handlers[:] = [handler]
        function(N(1), handler.state)
        found.append((handler.stream.getvalue(), handler.state))
        if isinstance(function, Jit):
            assert len(function.breaks) == breaks
    assert found[0] == found[1] == ("changed with [1]\n", [1, 2])


def test_warnings_as_errors() -> None:
    """A filter that raises is part of the guards; there the call runs for real, inside the program's own `try`."""

    def tries(x: Any) -> Any:
        try:
            warnings.warn("stop", UserWarning, stacklevel=1)
        except UserWarning as error:
            return str(error)
        return x + 1

    jit = Jit(tries)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert jit(N(1)).value == 2
    assert jit.breaks == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jit(N(1)) == "stop"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert jit(N(1)).value == 2
        assert [str(w.message) for w in caught] == ["stop"]


def test_a_warning_is_shown_once_per_place() -> None:
    """The module's own registry is used, so captured and plain calls together warn once."""

    def once(x: Any) -> Any:
        warnings.warn("only once", stacklevel=1)
        return x + 1

    jit = Jit(once)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        globals().pop("__warningregistry__", None)
        jit(N(1))
        jit(N(1))
        once(N(1))
    assert [str(w.message) for w in caught] == ["only once"]


@functools.cache
def warning_once(text: str) -> None:
    LOGGER.warning(text)


@functools.lru_cache(None)
def _method(self: logging.Logger, *args: Any) -> None:
    self.warning(*args)


def test_functions_that_report_once(records: Records) -> None:
    """The cache decides, at each call, whether there is a report; clearing it brings the report back."""

    def program(x: Any, log: list[int]) -> Any:
        log.append(1)
        LOGGER.info("a")
        warning_once("b")
        _method(LOGGER, "c")
        warning_once("b")
        return x + 1

    jit = Jit(program)
    for clear in (True, False, True):
        found = []
        for function in (program, jit):
            if clear:
                warning_once.cache_clear()
                _method.cache_clear()
            found.append([line.split()[:2] for line in seen(records, function, N(1), [])[1].splitlines()])
            assert found[0] == ([["INFO", "a"], ["WARNING", "b"], ["WARNING", "c"]] if clear else [["INFO", "a"]])
        assert found[0] == found[1]
    assert jit.breaks == [] and len(jit.captured) == 1


def test_reorderable_functions(capsys: pytest.CaptureFixture[str]) -> None:
    """`print`, if the policy says so: the values of leaves are those of the end."""

    def shows(x: Any, items: list[int]) -> Any:
        print("start", len(items), sep="-")
        items.append(1)
        y = x + 1
        print(items, y)
        return y * 2

    plain, captured = [1], [1]
    shows(N(1), plain)
    expected = capsys.readouterr().out
    jit = Jit(shows, reorderable=(print,))
    assert jit(N(1), captured).value == 4
    assert capsys.readouterr().out == expected and plain == captured
    assert jit.breaks == []
    assert len(Jit(shows).breaks) == 0  # nothing ran yet
    broken = Jit(shows)
    broken(N(1), [1])
    assert len(broken.breaks) == 2


class Shouting(io.StringIO):
    def write(self, text: str) -> int:
        return super().write(text.upper())


def test_print_to_a_file_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose `write` is Python code could look at anything."""

    def shows(x: Any) -> Any:
        print("hello")
        return x + 1

    jit = Jit(shows, reorderable=(print,))
    jit(N(1))
    assert jit.breaks == []
    out = Shouting()
    monkeypatch.setattr(sys, "stdout", out)
    jit(N(1))
    assert out.getvalue() == "HELLO\n" and len(jit.breaks) == 1


# What such a function did until it turned out that it does more than report.


def unknown() -> int:
    return os.getpid() * 0


def fails_in_a_handler(n: int) -> int:
    try:
        raise KeyError(n)
    except KeyError:
        LOGGER.warning("handled")
        return n + unknown()


def fails_in_a_finally(n: int) -> int:
    try:
        raise KeyError(n)
    except KeyError:
        pass
    finally:
        try:
            raise OSError
        except OSError:
            LOGGER.warning("finally")
            n += unknown()
    return n


def fails_in_a_generator(n: int) -> int:
    def items() -> Iterator[int]:
        try:
            raise KeyError
        except KeyError:
            LOGGER.warning("begun")
            yield n
            yield unknown()

    return sum(items())


def fails_beside_a_generator(n: int) -> int:
    def items() -> Iterator[int]:
        try:
            yield n
        finally:
            LOGGER.warning("closed")

    held = items()
    LOGGER.warning("has %d", next(held))
    return next(held, 0) + unknown()


def raises_in_a_handler(n: int) -> int:
    LOGGER.warning("raises")
    try:
        raise KeyError(n)
    except KeyError:
        try:
            raise OSError
        finally:
            unknown()


@pytest.mark.parametrize(
    "body",
    [fails_in_a_handler, fails_in_a_finally, fails_in_a_generator, fails_beside_a_generator, raises_in_a_handler],
)
def test_what_is_tried_leaves_nothing_behind(records: Records, body: Callable[[int], int]) -> None:
    """A later exception does not come from the handlers in which the trial ended, and its generators need no end."""

    def contexts(error: BaseException | None) -> list[str]:
        return [] if error is None else [repr(error), *contexts(error.__context__)]

    def program(x: Any, function: Any) -> Any:
        y = x
        try:
            y = x + function(2)
        except OSError:
            pass
        try:
            raise RuntimeError("later")
        except RuntimeError as error:
            return y, contexts(error), sys.exc_info()[0]

    jit = Jit(program)
    plain, captured = functools.cache(body), functools.cache(body)
    for _ in range(2):
        assert seen_once(records, jit, captured) == seen_once(records, program, plain)


def seen_once(records: Records, function: Callable[..., Any], cached: Any) -> Any:
    return seen(records, lambda x: function(x, cached), N(1))
