"""What a program sees of the stack after a graph break: its depth, its frames, the tracebacks of its exceptions."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchjit

PROGRAMS: list[Callable[[Any], Any]] = []


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS.append(function)
    return function


class Wrong(Exception):
    pass


def callers() -> list[str]:
    """The names of the frames below `seen`."""
    frame, names = sys._getframe(1), []
    while frame is not None and frame.f_code is not seen.__code__:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


def entries(error: BaseException | None) -> list[tuple[str, int | None]]:
    """Functions and lines of a traceback, without `seen`."""
    found = traceback.extract_tb(error.__traceback__) if error is not None else []
    return [(entry.name, entry.lineno) for entry in found if entry.name != "seen"]


def raises(error: BaseException) -> None:
    raise error


def raises_again() -> None:
    raise  # noqa: PLE0704


@program
def frames_in_an_inlined_function(x):
    def inner(x):
        torchjit.graph_break()
        return callers()

    return inner(x), x + 1, callers()


@program
def frames_at_depth(x):
    def inner(x):
        torchjit.graph_break()
        here = sys._getframe(1)
        return here.f_code.co_name, here.f_lineno - here.f_code.co_firstlineno, callers()

    def outer(x):
        found = inner(x + 1)
        return found, callers()

    return outer(x)


@program
def extracted_stack(x):
    def inner(x):
        torchjit.graph_break()
        return [(f.name, f.lineno) for f in traceback.extract_stack() if f.filename == __file__][-3:]

    def outer(x):
        return inner(x + 1)

    return outer(x)


@program
def raised_after_a_break(x):
    torchjit.graph_break()
    raise Wrong(x.sum().item())


@program
def raised_in_a_callee(x):
    def inner(x):
        torchjit.graph_break()
        raise Wrong

    def outer(x):
        try:
            inner(x)
        except Wrong as error:
            raise ValueError from error

    torchjit.graph_break()
    outer(x)


@program
def raised_again_by_finally(x):
    def inner(x):
        try:
            torchjit.graph_break()
            raises(Wrong())
        finally:
            torchjit.graph_break()

    inner(x)


@program
def raised_again_after_a_break(x):
    try:
        raise Wrong
    except Wrong:
        torchjit.graph_break()
        raise


@program
def raised_again_by_name(x):
    try:
        raises(Wrong())
    except Wrong as error:
        torchjit.graph_break()
        raise error


@program
def raised_again_elsewhere(x):
    try:
        raise Wrong
    except Wrong:
        raises_again()


@program
def looked_at_in_the_region(x):
    try:
        raises(Wrong())
    except Wrong as error:
        return x + 1, len(entries(error)), traceback.format_exc().count("File")


@program
def kept_for_later(x):
    errors = []
    for i in range(2):
        try:
            raises(Wrong(i))
        except Wrong as error:
            errors.append(error)
    torchjit.graph_break()
    return [entries(error) for error in errors]


@program
def recursion_with_breaks(x):
    def again(n):
        if n == 0:
            torchjit.graph_break()
            raise Wrong
        try:
            again(n - 1)
        finally:
            torchjit.graph_break()

    again(3)


def seen(function: Callable[[Any], Any]) -> Any:
    try:
        result = function(torch.ones(2))
    except Exception as error:
        return type(error), entries(error), entries(error.__cause__), entries(error.__context__)
    return repr(result)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_the_stack_is_that_of_plain_python(function):
    want = seen(function)
    compiled = torchjit.compile(function, backend="eager")
    assert [seen(compiled), seen(compiled)] == [want, want]
    assert compiled.compiled.specializations


def test_a_loop_of_breaks_needs_no_more_stack_than_one():
    def loop(x, n):
        for _ in range(n):
            torchjit.graph_break()
            x = x + 1
        return x

    compiled = torchjit.compile(loop, backend="eager")
    n = 2 * sys.getrecursionlimit()
    assert compiled(torch.zeros(()), n).item() == n
