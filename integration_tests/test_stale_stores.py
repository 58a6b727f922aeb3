"""A store that changed nothing in the call that was captured: in a later call it may change something."""

# mypy: no-warn-return-any

from __future__ import annotations

import enum
import functools
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fuzz_effects import difference

import torchjit


class Owner:
    kind: Any = None

    def __init__(self, **members: Any) -> None:
        vars(self).update(members)


class Slotted:
    __slots__ = ("x",)

    def __init__(self) -> None:
        self.x = None


def _set(owner: Any) -> None:
    owner.x = None


def _set_and_delete(owner: Any) -> None:
    owner.x = 1
    del owner.x


def _copy(owner: Any) -> None:
    owner.x = owner.y


def _read_and_restore(owner: Any) -> None:
    before, owner.x = owner.x, 7
    owner.x = before


def _decide_and_set(owner: Any) -> None:
    if owner.x is None:
        owner.x = 3
    owner.x = None


def _item(owner: Any) -> None:
    owner[0] = 1


def _swap(owner: Any) -> None:
    owner[0], owner[1] = owner[1], owner[0]


def _slice(owner: Any) -> None:
    owner[1:] = [2]


def _clear_and_fill(owner: Any) -> None:
    owner.clear()
    owner.append(2)


def _add_and_remove(owner: Any) -> None:
    owner["k"] = 1
    del owner["k"]


def _add_and_pop(owner: Any) -> None:
    owner["k"] = 1
    owner.pop("k")


def _add_two(owner: Any) -> None:
    owner["k"] = 1
    owner["z"] = 2


def _remove_and_add(owner: Any) -> None:
    owner["k"] = 0
    del owner["k"]
    owner["k"] = 1


def _update(owner: Any) -> None:
    owner.update(k=1)


def _class_store(owner: Any) -> None:
    type(owner).kind = None


ONE = object()
CASES: list[tuple[Callable[[Any], None], Callable[[], Any], Callable[[Any], Any]]] = [
    (_set, lambda: Owner(x=None), lambda o: setattr(o, "x", 5)),
    (_set, Slotted, lambda o: setattr(o, "x", 5)),
    (_set, lambda: torch.nn.Linear(2, 2), lambda o: setattr(o, "x", 5)),
    (_set_and_delete, Owner, lambda o: setattr(o, "x", 5)),
    (_copy, lambda: Owner(x=ONE, y=ONE), lambda o: setattr(o, "x", 5)),
    (_copy, lambda: Owner(x=3, y=3), lambda o: setattr(o, "y", 5)),
    (_read_and_restore, lambda: Owner(x=4), lambda o: setattr(o, "x", 5)),
    (_decide_and_set, lambda: Owner(x=None), lambda o: setattr(o, "x", 5)),
    (_item, lambda: [1, 2], lambda o: o.__setitem__(0, 5)),
    (_item, lambda: deque([1, 2]), lambda o: o.__setitem__(0, 5)),
    (_item, lambda: {0: 1}, lambda o: o.__setitem__(0, 5)),
    (_item, lambda: OrderedDict({0: 1}), lambda o: o.__setitem__(0, 5)),
    (_swap, lambda: [1, 1], lambda o: o.__setitem__(0, 5)),
    (_slice, lambda: [1, 2], lambda o: o.__setitem__(1, 5)),
    (_clear_and_fill, lambda: [2], lambda o: o.__setitem__(0, 5)),
    (_add_and_remove, dict, lambda o: o.__setitem__("k", 5)),
    (_add_and_pop, dict, lambda o: o.__setitem__("k", 5)),
    (_add_two, lambda: {"k": 1}, lambda o: o.pop("k")),
    (_remove_and_add, lambda: {"k": 1, "z": 2}, lambda o: o.update(k=5, a=6)),
    (_remove_and_add, lambda: {"z": 2}, lambda o: o.update(k=5, a=6)),
    (_update, lambda: {"k": 1}, lambda o: o.update(k=3)),
    (_class_store, lambda: type("Own", (Owner,), {"kind": None})(), lambda o: setattr(type(o), "kind", 5)),
]


def _state(owner: Any) -> Any:
    if isinstance(owner, list | deque):
        return list(owner)
    if isinstance(owner, dict):
        return list(owner.items())
    names = [name for name in ("x", "y", "kind") if hasattr(owner, name)]
    return [(name, getattr(owner, name)) for name in names]


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: f"{CASES[i][0].__name__}-{i}")
def test_a_store_is_made_in_every_call(case: int) -> None:
    store, make, change = CASES[case]

    def f(owner: Any, x: torch.Tensor) -> torch.Tensor:
        store(owner)
        return x + 1

    found = []
    for run in (f, torchjit.compile(f, backend="eager", fullgraph=True)):
        owner, states = make(), []
        for _ in range(3):
            run(owner, torch.ones(2))
            states.append(_state(owner))
            change(owner)
        found.append(states)
    assert found[0] == found[1]


SETTING: Any = None


def test_stores_to_globals_and_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    setting: Any = None

    def f(x: torch.Tensor) -> torch.Tensor:
        global SETTING
        nonlocal setting
        SETTING = setting = None
        return x + 1

    fast = torchjit.compile(f, backend="eager", fullgraph=True)
    for value in (None, 5, None, 6):
        monkeypatch.setitem(globals(), "SETTING", value)
        setting = value
        fast(torch.ones(2))
        assert (SETTING, setting) == (None, None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [43, 57, 101, *range(12)])  # the first ones were wrong once
def test_random_programs_leave_the_state_that_eager_leaves(seed: int) -> None:
    assert difference(seed) is None


def test_attributes_that_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no such attribute at the first call may be given one."""
    module = types.ModuleType("given_later")
    monkeypatch.setitem(sys.modules, "given_later", module)

    def counted(x: torch.Tensor) -> torch.Tensor:
        counted.calls = getattr(counted, "calls", 0) + 1  # type: ignore[attr-defined]
        return x * counted.calls  # type: ignore[attr-defined]

    @functools.lru_cache
    def cached() -> int:
        return 1

    class Kind(enum.Enum):
        A = 1

    owners: tuple[Any, ...] = (module, cached, Kind.A, counted)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
        return counted(counted(x)), [getattr(owner, "tag", None) for owner in (module, cached, Kind.A, counted)]

    compiled = torchjit.compile(f, backend="eager")
    x = torch.ones(2)
    for number in range(2):
        torch.testing.assert_close(compiled(x)[0], x * (2 * number + 1) * (2 * number + 2))
    for number, owner in enumerate(owners):
        owner.tag = number
        assert compiled(x)[1] == [getattr(other, "tag", None) for other in owners]
