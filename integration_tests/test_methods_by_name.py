"""What `in`, `len` and `iter` do, asked for by the method's name (tensordict writes `d.keys().__contains__(k)`)."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchjit

X = torch.ones(2)
KEY = (1, "a")

PROGRAMS: dict[str, Callable[..., Any]] = {
    "key": lambda d, k: (d.keys().__contains__("a"), d.keys().__contains__("b")),
    "key of the arguments": lambda d, k: (d.keys().__contains__(k[1]), d.keys().__contains__(k)),
    "item": lambda d, k: (
        d.items().__contains__(("a", 1)),
        d.items().__contains__(("a", 2)),
        d.items().__contains__(3),
    ),
    "lengths": lambda d, k: (d.keys().__len__(), d.values().__len__(), d.items().__len__()),
    "iterated": lambda d, k: (list(d.keys().__iter__()), list(d.values().__iter__()), list(d.items().__iter__())),
    "unbound": lambda d, k: type(d.keys()).__contains__(d.keys(), "a"),
    "after a write": lambda d, k: (
        d.setdefault("b", 5),
        d.keys().__contains__("b"),
        d.pop("b"),
        d.keys().__contains__("b"),
    ),
    "list": lambda d, k: ([1, 2].__contains__(2), list(k).__contains__(3), [X].__contains__(X)),
    "tuple": lambda d, k: (k.__contains__("a"), tuple.__contains__(k, 2)),
    "deque": lambda d, k: deque(k).__contains__(1),
    "text": lambda d, k: ("abc".__contains__("b"), b"abc".__contains__(97), range(5).__contains__(7)),
    "ordered": lambda d, k: (OrderedDict(d).__contains__("a"), OrderedDict(d).keys().__contains__("b")),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_captured_whole(name: str) -> None:
    def program(x: torch.Tensor, d: dict[str, int], k: tuple[Any, ...]) -> Any:
        return x * 2, PROGRAMS[name](d, k)

    found = torchjit.compile(program, backend="eager", fullgraph=True)(X, {"a": 1}, KEY)
    assert found[1] == program(X, {"a": 1}, KEY)[1]


def test_errors_are_the_methods() -> None:
    def program(x: torch.Tensor, d: dict[str, int]) -> Any:
        told = []
        for ask in (lambda: d.keys().__contains__([]), lambda: d.keys().__contains__(), lambda: "abc".__contains__(1)):  # type: ignore[call-arg,operator]
            try:
                ask()
            except TypeError as error:
                told.append(str(error))
        return x + 1, told

    assert torchjit.compile(program, backend="eager")(X, {"a": 1})[1] == program(X, {"a": 1})[1]


def test_a_class_that_extends_contains() -> None:
    class Loose(list[Any]):
        def __contains__(self, item: object) -> bool:
            return item == "anything" or super().__contains__(item)

    def program(x: torch.Tensor, items: list[Any]) -> Any:
        return x + 1, "anything" in items, 2 in items, 3 in items, list.__contains__(items, "anything")

    found = torchjit.compile(program, backend="eager")(X, Loose([1, 2]))
    assert found[1:] == (True, True, False, False)
