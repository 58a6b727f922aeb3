"""The corpus under the capture domain and under the concrete one, against CPython."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
import sys
from typing import Any

import pytest
import vm_corpus_breaks
import vm_corpus_c_protocols
import vm_corpus_classes
import vm_corpus_containers
import vm_corpus_coroutines
import vm_corpus_edges
import vm_corpus_exceptions
import vm_corpus_fuzzed
import vm_corpus_groups
import vm_corpus_iteration
import vm_corpus_language
import vm_corpus_library_values
import vm_corpus_made_classes
import vm_corpus_observed
import vm_corpus_protocols
import vm_corpus_random
import vm_corpus_recursion
import vm_corpus_stdlib
import vm_corpus_values
import vm_corpus_walk
import vm_corpus_walk_breaks
import vm_corpus_walk_library
import vm_corpus_walk_objects
import vm_corpus_weak
from vm_compare import check, outcome
from vm_corpus import CORPUS, Program
from vm_lazy import Jit, Num

from torchjit_vm import interpret

_MODULES = (
    vm_corpus_breaks,
    vm_corpus_c_protocols,
    vm_corpus_classes,
    vm_corpus_containers,
    vm_corpus_coroutines,
    vm_corpus_edges,
    vm_corpus_exceptions,
    vm_corpus_fuzzed,
    vm_corpus_groups,
    vm_corpus_iteration,
    vm_corpus_language,
    vm_corpus_library_values,
    vm_corpus_made_classes,
    vm_corpus_observed,
    vm_corpus_protocols,
    vm_corpus_random,
    vm_corpus_recursion,
    vm_corpus_stdlib,
    vm_corpus_values,
    vm_corpus_walk,
    vm_corpus_walk_breaks,
    vm_corpus_walk_library,
    vm_corpus_walk_objects,
    vm_corpus_weak,
)


_SOMETIMES_FEWER = frozenset({"contextlibs", "ctx_redirect", "inspects"})
"""Where test_vm_extending, which teaches the VM io.StringIO, has run before in the process, or inspect has kept a signature."""


@pytest.mark.parametrize("program", CORPUS, ids=[p.function.__name__ for p in CORPUS])
def test_captured(program: Program) -> None:
    """Equal results, changes, output and exceptions, twice; and no more breaks than stated."""
    module = vars(sys.modules[program.function.__module__])
    before = dict(module)
    jit = check(program.function, *program.args)
    module.update(before)
    breaks: list[Any] = [b for c in jit.captured for b in c.breaks]
    if program.breaks is not None:
        told = [(b.reason.id, b.detail) for b in breaks]
        fewer = len(breaks) < program.breaks and program.function.__name__ in _SOMETIMES_FEWER
        assert fewer or len(breaks) == program.breaks, told


@pytest.mark.parametrize("program", CORPUS, ids=[p.function.__name__ for p in CORPUS])
def test_interpreted(program: Program) -> None:
    """The same over the concrete domain."""
    expected = outcome(program.function, copy.deepcopy(program.args))
    actual = outcome(functools.partial(interpret, program.function), copy.deepcopy(program.args))
    assert actual == expected


def test_signature_that_leaves() -> None:
    """It holds the defaults themselves, not what stood for them at capture."""

    def program(x: Num) -> tuple[inspect.Signature, list[int]]:
        items = [1]

        def inner(a: Num = x, *, b: list[int] = items) -> None: ...

        return inspect.signature(inner), items

    jit, number = Jit(program), Num(1.0)
    for _ in range(2):
        signature, items = jit(number)
        assert signature.parameters["a"].default is number
        assert signature.parameters["b"].default is items
    assert set(jit.breaks) == {"TJ-VM-002"}


def test_existing_exception_raised_while_another_is_handled() -> None:
    """Its context is what the region handled, also where the caller handles a third one."""

    def program(error: Exception) -> None:
        try:
            raise KeyError("inside")
        except KeyError:
            raise error

    def contexts(function: Any) -> list[str]:
        error = ValueError("given")
        try:
            raise TypeError("outside")
        except TypeError:
            with contextlib.suppress(ValueError):
                function(error)
        inner = error.__context__
        assert inner is not None
        return [repr(inner), repr(inner.__context__)]

    assert contexts(Jit(program)) == contexts(program) == ["KeyError('inside')", "TypeError('outside')"]


def test_library_functions_need_no_permission() -> None:
    """What stands in for C functions is interpreted whatever the policy says about this package."""

    def compare(a: int, b: int) -> int:
        return b - a

    def program(items: list[int]) -> list[int]:
        return sorted(itertools.islice(itertools.accumulate(items), 1, None), key=functools.cmp_to_key(compare))

    jit = check(program, [1, 2, 3], inline=lambda f: not f.__module__.startswith("torchjit_vm"))
    assert jit.breaks == []
