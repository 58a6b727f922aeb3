"""Functions with an LRU cache that were there before: results, what the cache counts and holds, and how often code ran."""

# mypy: ignore-errors

from __future__ import annotations

import functools
import typing
from typing import Any

import pytest
from vm_compare import shape
from vm_lazy import Jit, Num

from torchjit_core.guards import Predicate


class Case:
    """A fresh set of functions with caches, and what has run."""

    def __init__(self) -> None:
        self.ran = ran = []

        @functools.lru_cache
        def number(n, k=0):
            ran.append(("number", n, k))
            return n + k

        @functools.cache
        def table(n):
            ran.append(("table", n))
            return [n]

        @functools.lru_cache(2)
        def two(n):
            ran.append(("two", n))
            return (n, "two")

        @functools.lru_cache(typed=True)
        def kinds(*values):
            ran.append(("kinds", values))
            return str(values)

        @functools.lru_cache
        def fails(n):
            ran.append(("fails", n))
            raise ValueError(n)

        @functools.lru_cache(0)
        def nothing(n):
            ran.append(("nothing", n))
            return [n]

        @functools.lru_cache
        def quietly(n):
            return n * 2

        @functools.cache
        def made(n):
            return [n]

        self.state = state = []

        @functools.cache
        def reads(n):
            return list(state)

        @functools.cache
        def read_number(n):
            return len(state)

        @functools.lru_cache(2)
        def small(n):
            return n * 3, "small"

        @functools.lru_cache(1)
        def small_number(n):
            return n + len(state)

        @functools.cache
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)

        self.functions = [
            number,
            table,
            two,
            kinds,
            nothing,
            quietly,
            made,
            reads,
            read_number,
            small,
            small_number,
            fib,
            fails,
        ]
        for function in self.functions:
            setattr(self, function.__name__, function)

    def seen(self) -> Any:
        return self.ran, [f.cache_info() for f in self.functions]


def hits(x, c, items):
    return c.number(1), c.number(1), c.number(1, k=2), c.number(n=1), x + 1


def objects(x, c, items):
    a = c.table(3)
    a.append(len(items))
    return a is c.table(3), c.table(3), x + 1


def after_changes(x, c, items):
    items.append(1)
    a, b = c.quietly(4), c.quietly(4)
    return a, b, c.quietly(5), c.number(2), items, x + 1


def objects_after_changes(x, c, items):
    items.append(1)
    a, b = c.made(4), c.made(4)
    a.append(2)
    return b, c.made(4) is a, x + 1


def what_was_changed_is_read(x, c, items):
    c.state.append(1)
    return c.reads(0), c.reads(0), c.read_number(0), c.read_number(0), x + 1


def evictions(x, c, items):
    return c.two(1), c.two(2), c.two(3), c.two(1), c.two(1), x + 1


def full(x, c, items):
    return c.small(1), c.small(2), c.small(3), c.small(1), c.small(1), c.small.__name__, c.small(2), x + 1


def full_and_changed(x, c, items):
    a = c.small_number(1), c.small_number(2)
    c.state.append(1)
    return a, c.small_number(2), c.small_number(1), c.small_number(2), x + 1


def full_before(x, c, items):
    first = c.small(1)
    return first, c.small(2 + len(items)), c.small(7), c.small(1) == first, c.small(8), x + 1


def types_of_arguments(x, c, items):
    return c.kinds(1), c.kinds(1.0), c.kinds(True), c.kinds(1, 2), c.kinds(1.0, 2), x + 1


def equal_arguments(x, c, items):
    items.append(0)
    return c.quietly(1.0), c.quietly(True), c.quietly(1), c.number(1, 2), c.number(1.0, 2), x + 1


def errors(x, c, items):
    try:
        c.fails(3)
    except ValueError as error:
        items.append((str(error), c.fails.cache_info().currsize))
    return items, x + 1


def errors_of_one_call_after_another(x, c, items):
    for n in (1, 2, 1):
        try:
            items.append(c.fails(n))
        except ValueError as error:
            items.append((error.args, error.__context__))
    try:
        raise KeyError
    except KeyError:
        try:
            c.fails(n)
        except ValueError as error:
            items.append(repr(error.__context__))
    return items, x + 1


def unhashable(x, c, items):
    found = []
    for wrong in ([1], {}, (1, [2]), items, {1}):
        try:
            found.append(c.number(wrong))
        except TypeError as error:
            found.append(str(error))
    return found, x + 1


def cleared(x, c, items):
    a = c.quietly(3), c.table(1)
    c.quietly.cache_clear()
    c.table.cache_clear()
    return a, c.quietly(3), c.table(1), a[1] is c.table(1), x + 1


def counted_inside(x, c, items):
    a = c.quietly(3)
    first = c.quietly.cache_info()
    return a, first, c.quietly(3), c.quietly.cache_info(), x + 1


def recursion(x, c, items):
    return c.fib(12), c.fib(7), x + 1


def recursion_after_changes(x, c, items):
    items.append(1)
    return c.fib(6), c.fib(6), c.fib(3), x + 1


def no_room(x, c, items):
    return c.nothing(1), c.nothing(1), x + 1


def broken_between(x, c, items):
    a = c.quietly(8)
    print("break")
    return a, c.quietly(8), c.table(a) is c.table(16), x + 1


PROGRAMS = {
    hits: 0, objects: 0, after_changes: 1, objects_after_changes: 1, what_was_changed_is_read: 1, evictions: None, full: 1, full_and_changed: 1, full_before: 1, types_of_arguments: 0, equal_arguments: None,
    errors: None, errors_of_one_call_after_another: None, unhashable: 0, cleared: None, counted_inside: None, recursion: 0, recursion_after_changes: 1, no_room: 2, broken_between: 1,
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_equal_to_plain_execution(program):
    plain, captured = Case(), Case()
    jit = Jit(program)
    for call in range(4):
        if call == 3:
            for case in (plain, captured):
                for function in case.functions:
                    function.cache_clear()
        found = []
        for function, case in ((program, plain), (jit, captured)):
            found.append((shape(function(Num(1.0), case, []), {}), case.seen()))
        assert found[0] == found[1], call
    first = [b.detail for b in jit.captured[0].breaks]
    if PROGRAMS[program] is not None:
        assert len(first) == min(PROGRAMS[program], 1), first


def test_forms_of_types_are_made_whatever_has_changed():
    def program(x, items):
        items.append(1)
        return str(typing.Optional["NeverSeenBefore"]), x + 1  # noqa: F821  of torch.autograd.profiler.record_function

    for clear in typing._cleanups:
        clear()
    jit = Jit(program)
    assert shape(jit(Num(1.0), []), {}) == shape(program(Num(1.0), []), {})
    assert not jit.captured[0].breaks
    # Another process has not made them when it comes here, and makes equal ones.
    jit = Jit(program, is_user_code=lambda code: code is program.__code__)
    jit(Num(1.0), [])
    assert [g.text for g in jit.captured[0].guards if isinstance(g, Predicate)] == ["type(x) is Num"]


@pytest.mark.parametrize("module", ["transformers.utils.import_utils", __name__])
def test_what_is_installed_does_not_depend_on_what_has_changed(module):
    """Experts of transformers ask for versions after they have written to a tensor; other functions may see the change."""

    @functools.lru_cache
    def is_old(version: str, accept_dev: bool = False) -> bool:
        return version < "2.10"

    is_old.__module__ = module

    def program(x, items):
        items.append(1)
        return is_old("2.11", accept_dev=True), x + 1

    jit = Jit(program)
    assert shape(jit(Num(1.0), []), {}) == shape(program(Num(1.0), []), {})
    assert bool(jit.captured[0].breaks) is (module == __name__)
