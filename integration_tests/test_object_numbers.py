"""`id()` of objects and tensors, in comparisons and as keys, also across breaks; objects that only a number tells apart."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchjit

PAIR, NUMBER, REAL, TEXT = (1, 2, 3), 10**6, 1.5, "a long text"
PARAMETER = torch.nn.Parameter(torch.ones(2))
KNOWN = {id(PARAMETER)}
SEEN: dict[Any, Any] = {"a": 1}
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {}
"""What eager says of each, which names no number, is compared in three calls."""
WITHOUT_BREAKS = {"parameters", "new_dict", "shared_copies", "unchanged", "copies_by_memo"}


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS[function.__name__] = function
    return function


def pause() -> None:
    gc.isenabled()
    print(end="")


@program
def compared(x: torch.Tensor) -> Any:
    y = x + 1
    before, mixed = id(y), hash(y)
    pause()
    return id(y) == before, before == id(y), id(x) != before, hash(y) == mixed, sorted([id(y), before])[0] == id(y)


@program
def elements(x: torch.Tensor) -> Any:
    y = x * 2
    seen = {id(x), id(y)}
    pause()
    found = id(y) in seen, id(x) in seen, {id(y)} <= seen
    seen.remove(id(y))
    return found, len(seen), id(y) in seen


@program
def keys(x: torch.Tensor) -> Any:
    y = x + 1
    memo = {id(y): y, id(x): x}
    pause()
    found = memo[id(y)] is y, memo.get(id(x)) is x
    memo.pop(id(y))
    return found, len(memo)


@program
def mixed(x: torch.Tensor) -> Any:
    y = x + 1
    before = id(y)
    pause()
    other = {before: 1}
    return other.get(id(y)), id(y) in [before], before in (id(y),), id(y) in {before}, {id(y)} == {before}


@program
def real_dict(x: torch.Tensor) -> Any:
    list(SEEN)
    SEEN[id(x)] = 2
    found = id(x) in SEEN, SEEN[id(x)], len(SEEN)
    SEEN.pop(id(x))
    return found, list(SEEN)


@program
def walked(x: torch.Tensor) -> Any:
    def walk(node: Any, seen: set[int]) -> Any:
        if id(node) in seen:
            return 0
        key = id(node)
        seen.add(key)
        out = [walk(child, seen) for child in node] if isinstance(node, (list, tuple)) else 1
        seen.remove(key)
        return out

    seen: set[int] = set()
    return walk([(2, 3), [(x, x)], 1000.5], seen), seen


@program
def constants(x: torch.Tensor) -> Any:
    found = []
    for value in (PAIR, REAL, NUMBER, TEXT):
        before = id(value)
        pause()
        found.append(before == id(value))
    return found


@program
def passed_on(x: torch.Tensor) -> Any:
    pair, real, number, text = PAIR, REAL, NUMBER, TEXT
    if pair[0] == 1 and real > 1 and number > 3 and text:
        pause()
    return pair is PAIR, real is REAL, number is NUMBER, text is TEXT


@program
def new_objects(x: torch.Tensor) -> Any:
    def function() -> int:
        return 1

    items: list[Any] = [x + 1]
    numbers = [id(function), id(items), id(items[0])]
    pause()
    return [id(v) == n for v, n in zip((function, items, items[0]), numbers, strict=True)]


@program
def weakly(x: torch.Tensor) -> Any:
    y = x + 1
    reference, before = weakref.ref(y), id(y)
    pause()
    return reference() is y, id(reference()) == before


@program
def arithmetic(x: torch.Tensor) -> Any:
    y = x + 1
    before = id(y)
    pause()
    return before - id(y), id(y) % 2 == before % 2, max(before, id(y)) == before


@program
def parameters(x: torch.Tensor) -> Any:
    return id(PARAMETER) in KNOWN, id(x + 1) in KNOWN


@program
def new_dict(x: torch.Tensor) -> Any:
    y = x + 1
    memo = {id(y): 1, id(x): 2, id(memo_of): 3}
    return memo[id(y)], memo[id(x)], memo[id(memo_of)], id(y) == id(x), id(None) == id(None), id(y) == 0


@program
def unchanged(x: torch.Tensor) -> Any:
    return id(x.contiguous()) == id(x), id(x.add_(0)) == id(x), id(x.detach()) == id(x), x.to(x.dtype) is x


@program
def shared_copies(x: torch.Tensor) -> Any:
    made = copy.deepcopy([x, x, [x]])
    return made[0] is made[1], made[2][0] is made[0], made[0] is x  # type: ignore[index]


def memo_of(value: Any, memo: dict[int, Any]) -> Any:
    """A copier as libraries write them."""
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, list):
        made: Any = []
        memo[id(value)] = made
        made.extend(memo_of(item, memo) for item in value)
        return made
    made = memo[id(value)] = value.clone()
    return made


@program
def copies_by_memo(x: torch.Tensor) -> Any:
    y = x + 1
    source: list[Any] = [y, [y, x], x]
    source.append(source)
    made = memo_of(source, {})
    return made[0] is made[1][0], made[3] is made, made[2] is made[1][1], made[0] is y


def outcomes(call: Callable[[torch.Tensor], Any]) -> list[Any]:
    return [call(torch.ones(2) + n) for n in range(3)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_of_objects(name: str) -> None:
    function = PROGRAMS[name]
    expected = outcomes(function)
    assert outcomes(torchjit.compile(function, backend="eager")) == expected
    if name in WITHOUT_BREAKS:
        assert not torchjit.explain(function)(torch.ones(2)).breaks
