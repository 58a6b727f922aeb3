"""`Captured.functions`: what a capture interpreted, so that whoever keeps it knows what code it rests on."""

from __future__ import annotations

import abc
import functools
import inspect
import math
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Protocol

import pytest
from vm_lazy import Jit, Num

from torchjit_core.guards import Predicate
from torchjit_core.paths import AccessPath
from torchjit_core.storing import NotStorable, collecting_reliance


def helper(x: Any, k: int = 2) -> Any:
    return x * k


def numbers(x: Any) -> Iterator[Any]:
    yield x
    yield helper(x)


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


@wrapping
def wrapped(x: Any) -> Any:
    return x + 1


class Thing:
    @property
    def width(self) -> int:
        return 3

    @staticmethod
    def grown(x: Any) -> Any:
        return x + 4

    def __call__(self, x: Any) -> Any:
        return self.grown(x) * self.width


THING = Thing()


def inlines(x: Any) -> Any:
    return helper(x) + helper(x)


def generates(x: Any) -> Any:
    return sum(numbers(x), x)


def comprehends(x: Any) -> Any:
    return sum([helper(y) for y in (x, x)], x)


def is_decorated(x: Any) -> Any:
    return wrapped(x)


def uses_an_object(x: Any) -> Any:
    return THING(x)


def nests(x: Any) -> Any:
    def inner(y: Any) -> Any:
        return helper(y)

    return inner(x) + (lambda z: z)(x)


def takes_a_function(x: Any, function: Callable[[Any], Any]) -> Any:
    return function(x)


def qualified(function: Callable[..., Any], *args: Any) -> list[str]:
    jit = Jit(function)
    jit(*args)
    found = jit.captured[-1].functions
    assert len(set(map(id, found))) == len(found)
    return sorted((f.__code__ if isinstance(f, FunctionType) else f).co_qualname for f in found)


@pytest.mark.parametrize(
    "function, wanted",
    [
        (inlines, ["helper"]),
        (generates, ["helper", "numbers"]),
        (is_decorated, ["wrapped", "wrapping.<locals>.wrapper"]),
        (uses_an_object, ["Thing.__call__", "Thing.grown", "Thing.width"]),
        (nests, ["helper", "nests.<locals>.<lambda>", "nests.<locals>.inner"]),
    ],
)
def test_all_that_was_interpreted_is_told_once(function: Callable[..., Any], wanted: list[str]) -> None:
    assert qualified(function, Num(1.0)) == sorted([function.__name__, *wanted])


def test_comprehensions_are_told_with_what_they_call() -> None:
    assert {"comprehends", "helper"} <= set(qualified(comprehends, Num(1.0)))


def test_functions_that_are_arguments_are_told() -> None:
    assert qualified(takes_a_function, Num(1.0), lambda y: y + 1) == [
        "takes_a_function",
        "test_functions_that_are_arguments_are_told.<locals>.<lambda>",
    ]


def breaks(x: Any) -> Any:
    y = helper(x)
    print(end="")
    if y > 0:  # a break: the value decides
        y = wrapped(y)
    return y


def test_continuations_tell_their_own() -> None:
    jit = Jit(breaks)
    jit(Num(1.0))
    told = [
        {(f.__code__ if isinstance(f, FunctionType) else f).co_name for f in made.functions} for made in jit.captured
    ]
    assert len(told) > 1 and {"breaks", "helper"} <= told[0]
    assert {"breaks", "wrapped"} <= told[-1] and "helper" not in told[-1]


def names_parameters(x: Any) -> Any:
    return x * len(inspect.signature(helper).parameters) + len(helper.__code__.co_varnames)


def test_what_the_capture_computed_is_no_guard() -> None:
    jit = Jit(names_parameters)
    assert jit(Num(1.0)).value == 4.0
    guards = jit.captured[-1].guards
    paths = [getattr(guard, "path", None) for guard in guards]
    roots = [path.root() for path in paths if isinstance(path, AccessPath)]
    assert roots and not any(type(root.key) in (inspect.Signature, tuple, OrderedDict) for root in roots)
    assert any(getattr(guard, "obj", None) is helper for guard in guards)


def hashes(x: Any) -> Any:
    return x + hash("text") % 7


def hashes_a_number(x: Any) -> Any:
    return x + hash(12)


def assumes(x: Any) -> Any:
    return x * helper(3)


TEXTS = {"one", "two", "three"}


def goes_through_a_set_of_the_code(x: Any) -> Any:
    for text in {"one", "three"}:
        x = x * 2 + len(text)
    return x


def goes_through_a_set_it_makes(x: Any) -> Any:
    return x + len("".join({text[0] for text in ("one", "two", "four", "six")}))


def goes_through_a_set_of_two_that_it_makes(x: Any) -> Any:
    return x + [*set(("one", "two", "one"))].index("two")


def goes_through_a_set_of_the_module(x: Any) -> Any:
    return x + [*TEXTS].index("one")


def goes_through_numbers(x: Any) -> Any:
    for number in {3, (1, 2.5), 2}:
        x = x + (number if type(number) is int else 0.5)
    return x


def looks_into_sets(x: Any) -> Any:
    made = TEXTS | {"four"}
    return x + len(made) + ("one" in TEXTS) + ("x" in {"x", "y"}) + (made >= TEXTS)


def shows_an_address(x: Any) -> Any:
    return x + len(f"{helper}")


def hashes_numbers(x: Any) -> Any:
    return x + hash((1, (2.5, True))) % 7


def hashes_a_nan(x: Any) -> Any:
    return x + hash((1, math.nan)) % 7


def asks_a_list_for_its_hash(x: Any) -> Any:
    try:
        return x + hash([1])
    except TypeError:
        return x


def counts_by_an_address(x: Any) -> Any:
    return x + id(helper) % 2


class Unchecked(Protocol):
    def closed(self) -> int: ...


class Hooked(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        raise TypeError(other)


def asks_what_is_refused(x: Any) -> Any:
    found = 0
    for cls in (Unchecked, Hooked):
        try:
            found += isinstance(helper, cls)
        except TypeError:
            found += 2
    return x + found


@pytest.mark.parametrize(
    "function, policy, reasons",
    [
        (asks_what_is_refused, {}, ["TJ-STORE-010"]),
        (goes_through_a_set_of_the_code, {}, ["TJ-STORE-028"]),
        (goes_through_a_set_it_makes, {}, ["TJ-STORE-028"]),
        (goes_through_a_set_of_two_that_it_makes, {}, []),
        (goes_through_a_set_of_the_module, {}, ["TJ-STORE-028"]),
        (goes_through_numbers, {}, []),
        (looks_into_sets, {}, []),
        (shows_an_address, {}, ["TJ-STORE-029"]),
        (counts_by_an_address, {}, ["TJ-STORE-029"]),
        (hashes, {}, ["TJ-STORE-025"]),
        (hashes_a_number, {}, []),
        (hashes_numbers, {}, []),
        (hashes_a_nan, {}, ["TJ-STORE-025"]),
        (asks_a_list_for_its_hash, {}, []),
        (assumes, {"assume_constant": {helper}}, ["TJ-STORE-024"]),
    ],
)
def test_results_that_hold_in_this_process_only_are_never_stored(
    function: Callable[..., Any], policy: dict[str, Any], reasons: list[str]
) -> None:
    with collecting_reliance() as found:
        Jit(function, **policy)(Num(1.0))
    assert sorted({r.reason.id for r in found.values() if isinstance(r, NotStorable)}) == reasons


def only_asks(x: Any) -> Any:
    return x + ("one" in TEXTS)


def test_the_order_of_a_set_is_guarded_where_it_counts() -> None:
    """A set that is only looked into may be another one with the same elements: texts have other hashes in each process."""
    orders = []
    for function in (only_asks, goes_through_a_set_of_the_module, goes_through_a_set_of_two_that_it_makes):
        jit = Jit(function)
        jit(Num(1.0))
        orders.append([g for g in jit.captured[-1].guards if isinstance(g, Predicate) and g.text.startswith("list(")])
    assert [len(found) for found in orders] == [0, 1, 1]


def names_its_place(x: Any) -> Any:
    return x + len(helper.__code__.co_filename)


def test_the_place_of_code_is_never_stored() -> None:
    with collecting_reliance() as found:
        Jit(names_its_place)(Num(1.0))
    assert [r.reason.id for r in found.values() if isinstance(r, NotStorable)] == ["TJ-STORE-026"]


def test_a_module_whose_getattr_answers_everything_has_a_name_in_emitted_code() -> None:
    answering = types.ModuleType("answering")
    answering.__getattr__ = lambda name: 4.0  # type: ignore[method-assign]

    def keeps_it(x: Any) -> Any:
        return [x + answering.level, answering]

    number, module = Jit(keeps_it)(Num(1.0))
    assert number.value == 5.0 and module is answering
