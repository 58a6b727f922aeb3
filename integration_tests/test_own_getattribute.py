"""A `__getattribute__` in Python that is itself compiled: guards and emitted code must not go through it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import torchjit


def _bonus(self: Any, name: str) -> Any:
    return 2.0 if name == "bonus" else object.__getattribute__(self, name)


class Slotted:
    __slots__ = ("n", "t")
    __getattribute__ = _bonus

    def __init__(self) -> None:
        self.n, self.t = 3, torch.ones(2)


class Plain:
    __getattribute__ = _bonus

    def __init__(self) -> None:
        self.n, self.t, self.d = 3, torch.ones(2), {"x": 1}


@pytest.fixture(params=[Slotted, Plain])
def obj(request: pytest.FixtureRequest) -> Iterator[Any]:
    cls = request.param
    made = cls()
    cls.__getattribute__ = torchjit.compile(_bonus, backend="eager")
    yield made
    cls.__getattribute__ = _bonus


def test_every_attribute_is_found_again(obj: Any) -> None:
    for _ in range(2):  # captured, then called by guards
        assert obj.n == 3
        assert obj.t.tolist() == [1.0, 1.0]
        assert obj.bonus == 2.0
        assert obj.__class__ is type(obj)
    obj.n = 4
    assert obj.n == 4
    with pytest.raises(AttributeError, match="nothing"):
        _ = obj.nothing


def test_the_dict_is_the_object_own_one() -> None:
    made = Plain()
    Plain.__getattribute__ = torchjit.compile(_bonus, backend="eager")  # type: ignore[method-assign]
    try:
        for _ in range(2):
            assert made.__dict__ is object.__getattribute__(made, "__dict__")
    finally:
        Plain.__getattribute__ = _bonus  # type: ignore[method-assign]


class Hiding:
    def __init__(self) -> None:
        self.q = 1

    def __getattribute__(self, name: str) -> Any:
        return {"shown": 1} if name == "__dict__" else object.__getattribute__(self, name)


class Bare:
    __slots__ = ()


def _members(obj: Any) -> Any:
    return vars(obj), list(object.__getattribute__(obj, "__dict__"))


def test_vars_asks_the_class() -> None:
    compiled = torchjit.compile(_members, backend="eager")
    made = Hiding()
    assert compiled(made) == _members(made) == ({"shown": 1}, ["q"])
    made.r = 2  # type: ignore[attr-defined]
    assert compiled(made) == _members(made)


def test_vars_of_an_object_without_a_dict() -> None:
    def program(x: torch.Tensor, obj: Any) -> torch.Tensor:
        try:
            vars(obj)
        except TypeError as error:
            return x + len(str(error))
        return x

    x = torch.zeros(2)
    assert torch.equal(torchjit.compile(program, backend="eager", fullgraph=True)(x, Bare()), program(x, Bare()))
