"""collections.ChainMap in captures: against plain execution, in one region; from outside, across breaks, in copies and errors."""

from __future__ import annotations

import collections
import collections.abc
import copy
from collections import ChainMap, OrderedDict, UserDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from vm_compare import check
from vm_lazy import Jit, Num

Chain: Any = ChainMap


def attempt(*functions: Callable[[], Any]) -> list[Any]:
    found: list[Any] = []
    for function in functions:
        try:
            result = function()
            found.append((type(result).__name__, repr(result)))
        except Exception as error:
            found.append((type(error).__name__, str(error), error.args))
    return found


def constructors(x: Num) -> Any:
    made = attempt(
        lambda: Chain(), lambda: Chain({"a": 1}), lambda: Chain({"a": 1}, {"b": 2}), lambda: Chain.fromkeys("ab", 3),
        lambda: Chain.fromkeys([]), lambda: Chain(a=1), lambda: Chain({1: 2}).new_child(), lambda: Chain(1),
        lambda: Chain({1: 2}).new_child({3: 4}, k=5), lambda: Chain({}, {}).parents, lambda: Chain().parents,
    )  # fmt: skip
    return made, Chain({"x": x})["x"] + 1


def reading(c: Any) -> Any:
    return (
        c["a"], c["b"], c.get("a"), c.get("z"), c.get("z", 5), "a" in c, "z" in c, len(c), bool(c), bool(Chain({}, {})), list(c), c.maps,
        list(c.keys()), list(c.values()), list(c.items()), c.maps[0] is c.parents, dict(c), {**c}, sorted(c), "b" in c.keys(), 3 in c.values(),
    )  # fmt: skip


def changes(c: Any) -> Any:
    c["new"] = 1
    c["a"] = 9
    popped = c.pop("new"), c.pop("none", "default"), c.setdefault("b", 7), c.setdefault("d", 8)
    c.update({"e": 1}, f=2)
    del c["d"]
    c.maps.append({"last": 0})
    c |= {"g": 3}
    return popped, c, c["last"]


def errors(c: Any) -> Any:
    def delete() -> None:
        del c["c"]

    return attempt(
        lambda: c["z"], delete, lambda: c.pop("c"), lambda: c.pop("z"), lambda: Chain().popitem(), lambda: c[[]], lambda: hash(c),
        lambda: c | 1, lambda: 1 | c, lambda: c + c, lambda: c < c, lambda: c.get(), lambda: c.nothing, lambda: Chain(1)["a"],
    )  # fmt: skip


def operators(c: Any, d: Any) -> Any:
    return (
        c == c, c == dict(c), dict(c) == c, c != d, c == 1, Chain({1: 2}) == Chain({}, {1: 2}), c | d, d | c, c | {"q": 1},
        {"q": 1} | c, c.keys() & {"a"}, c.items() - set(), c.keys() == {"a", "b", "c"},
    )  # fmt: skip


def copies(c: Any) -> Any:
    one, two, three = c.copy(), copy.copy(c), copy.deepcopy(c)
    one["a"], three["b"] = 5, 6
    return one, two, three, one.maps[1] is c.maps[1], three.maps[1] is c.maps[1], c


def children(c: Any) -> Any:
    child = c.new_child({"a": 0}).new_child()
    child["deep"] = 1
    return child, child.parents.parents == c, child.maps[-1] is c.maps[-1], child["b"]


def kinds(c: Any) -> Any:
    return (
        isinstance(c, collections.abc.MutableMapping),
        isinstance(c, dict),
        type(c) is Chain,
        iter(c) is c,
        repr(c),
        str(c),
        f"{c}",
    )


def of_other_maps(x: Num) -> Any:
    c = Chain(defaultdict(list), OrderedDict(a=1), UserDict({"u": 2}))
    c["k"].append(x)
    return c["a"], c["k"], c.get("missing"), c.maps[0], len(c)


class Defaulting(ChainMap):  # type: ignore[type-arg]
    def __missing__(self, key: object) -> Any:
        return ("missing", key)


def derived(x: Num) -> Any:
    c = Defaulting({"a": x})
    return c["a"], c["z"], c.get("z"), c.new_child(), type(c.copy()), c | {"q": 1}


def emptied(c: Any) -> Any:
    item = c.popitem()
    c.clear()
    return item, c, len(c)


def _maps() -> Any:
    return Chain({"a": 1, "b": 2}, {"b": 3, "c": 4})


PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (constructors, (Num(1),)), (reading, (_maps(),)), (changes, (_maps(),)), (errors, (_maps(),)), (operators, (_maps(), Chain({"z": 1}))),
    (copies, (_maps(),)), (children, (_maps(),)), (kinds, (_maps(),)), (of_other_maps, (Num(2),)), (derived, (Num(3),)), (emptied, (_maps(),)),
]  # fmt: skip


@pytest.mark.parametrize(("program", "args"), PROGRAMS, ids=[p.__name__ for p, _ in PROGRAMS])
def test_as_plain_python(program: Callable[..., Any], args: tuple[Any, ...]) -> None:
    jit = check(program, *args)
    assert [(b.reason.id, b.detail) for c in jit.captured for b in c.breaks] == []


def broken(c: Any, x: Num) -> Any:
    made = c.new_child({"x": x})
    c["before"] = 1
    keys = iter(made)
    first = next(keys)
    print(float(x) > 1)
    c["after"] = made["before"]
    return made, first, list(keys), made["x"] + 1


def test_across_a_break() -> None:
    jit = check(broken, _maps(), Num(2.0))
    assert sum(len(c.breaks) for c in jit.captured) > 0


def scaled(c: Any, x: Num) -> Any:
    return x * c["scale"]


def test_guards_follow_the_lookup() -> None:
    """Who has the key, and what it holds, is relied on; keys that nobody asks for are not."""
    jit = Jit(scaled)
    maps: list[tuple[Any, float]] = [
        (Chain({"scale": 2}), 2), (Chain({"scale": 2, "other": 1}), 2), (Chain({"scale": 3}), 3),
        (Chain({}, {"scale": 2}), 2), (Chain({"scale": 4}, {"scale": 2}), 4), ({"scale": 2}, 2),
    ]  # fmt: skip
    for c, scale in maps:
        assert jit(c, Num(1.0)).value == scale
    with pytest.raises(KeyError, match="scale"):
        jit(Chain({}), Num(1.0))
    assert len(jit.captured) <= len(maps)
