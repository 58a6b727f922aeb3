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


READS: list[str] = []


class Watched:
    def __init__(self, n: float = 4) -> None:
        self.n = n

    def __getattribute__(self, name: str) -> Any:
        READS.append(name)
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        raise ValueError("a program's own")


class WatchedList(list[Any]):
    __getattribute__ = Watched.__getattribute__  # type: ignore[assignment]


def _with_breaks(x: torch.Tensor, w: Any, items: Any) -> Any:
    made = Watched(x.ndim)
    torchjit.graph_break()
    x = x + w.n + made.n + len(items)
    return x, made, [w, *items], id(w) == id(made)


def test_capture_reads_no_attribute_that_the_program_does_not() -> None:
    """Not the `__class__` that `isinstance` would ask for, and guards tell what they are about without its `__repr__`."""
    compiled = torchjit.compile(_with_breaks, backend="eager", on_error="raise")
    for _ in range(3):
        READS.clear()
        want = _with_breaks(torch.ones(2), Watched(), WatchedList([1]))[0], list(READS)
        READS.clear()
        got = compiled(torch.ones(2), Watched(), WatchedList([1]))[0], list(READS)
        torch.testing.assert_close(got[0], want[0])
        assert got[1] == want[1]
