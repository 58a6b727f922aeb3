"""Tracebacks of exceptions that leave a captured region: the files, functions and lines of plain execution."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from vm_lazy import Jit, Num


def _deep(x: Any, n: int) -> Any:
    if n == 0:
        raise ValueError("at the bottom")
    return _deep(x, n - 1)


class Thing:
    """Raises in its methods."""

    def __init__(self, value: Any) -> None:
        if value is None:
            raise TypeError("nothing")
        self.value = value

    @property
    def half(self) -> Any:
        return self.other  # type: ignore[attr-defined]

    def __iter__(self) -> Any:
        yield self.value
        raise KeyError(self.value.value)


def in_recursion(x: Any) -> Any:
    return _deep(x, 3)


def in_an_init(x: Any) -> Any:
    return Thing(
        None,
    )


def in_a_property(x: Any) -> Any:
    thing = Thing(x)
    return thing.half


def in_a_lambda(x: Any) -> Any:
    divide: Any = lambda a: 1 // a  # noqa: E731
    return x, divide(0)


def in_a_key(x: Any) -> Any:
    return sorted([3, 1], key=lambda v: {}[v])


def caught_and_raised_again(x: Any) -> Any:
    try:
        return in_recursion(x)
    except ValueError:
        raise


def caught_and_replaced(x: Any) -> Any:
    try:
        return in_recursion(x)
    except ValueError as error:
        raise RuntimeError("replaced") from error


@contextlib.contextmanager
def _scope(swallowed: Any = ()) -> Iterator[None]:
    try:
        yield
    except swallowed:
        pass
    finally:
        pass


def through_a_context_manager(x: Any) -> Any:
    with _scope():
        in_recursion(x)


def with_an_earlier_traceback(x: Any) -> Any:
    try:
        in_recursion(x)
    except ValueError as error:
        before = error.__traceback__
        try:
            raise error
        except ValueError:
            raise error.with_traceback(before)  # noqa: B904


def at_once(x: Any) -> Any:
    if x is not None:
        raise ValueError(
            x,
        )


PROGRAMS = (
    in_recursion, in_an_init, in_a_property, in_a_lambda, in_a_key, caught_and_replaced, through_a_context_manager, with_an_earlier_traceback, at_once,
)  # fmt: skip


def _places(function: Callable[..., Any]) -> list[tuple[str, int | None]]:
    try:
        function(Num(1))
    except Exception as error:
        shown = traceback.extract_tb(error.__traceback__)
        return [(f.name, f.lineno) for f in shown if f.filename == __file__ and f.name != "_places"]
    return []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_places(program: Callable[..., Any]) -> None:
    expected = _places(program)
    jit = Jit(program)
    assert expected and _places(jit) == expected
    assert jit.breaks == []


def test_places_of_what_is_raised_again() -> None:
    """The lines below the handler stay; the handler's own is that of `raise`."""
    expected, actual = _places(caught_and_raised_again), _places(Jit(caught_and_raised_again))
    assert actual[1:] == expected[1:] and actual[0][0] == expected[0][0]
