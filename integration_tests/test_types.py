"""What is decorated keeps its signature for `inspect`; for type checkers: `typed_program.py`, which tools/check_types.sh reads."""

import asyncio
import functools
import inspect
from typing import Any

import pytest
import torch

import torchjit


@torchjit.compile(backend="eager")
def scaled(x: torch.Tensor, by: float = 2.0, *, shift: float = 1.0) -> torch.Tensor:
    """Scale and shift."""
    return x * by + shift


@torchjit.compile(backend="eager")
async def later(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@torchjit.compile(backend="eager")
def parts(x: torch.Tensor, n: int = 2) -> Any:
    for i in range(n):
        yield x + i


@torchjit.compile(backend="eager")
async def parts_later(x: torch.Tensor) -> Any:
    yield x


class Holder:
    @torchjit.compile(backend="eager")
    def method(self, x: torch.Tensor, by: int = 3) -> torch.Tensor:
        return x * by


def test_a_function_looks_as_before() -> None:
    plain: Any = scaled.__wrapped__
    assert inspect.signature(scaled) == inspect.signature(plain)
    assert scaled.__defaults__ == (2.0,)
    assert scaled.__kwdefaults__ == {"shift": 1.0}
    assert (scaled.__name__, scaled.__doc__, scaled.__module__) == ("scaled", "Scale and shift.", __name__)
    assert scaled.__code__ is plain.__code__
    assert inspect.getfullargspec(scaled) == inspect.getfullargspec(plain)
    assert inspect.unwrap(scaled) is plain
    assert inspect.getsource(scaled) == inspect.getsource(plain)
    assert str(inspect.signature(Holder().method)) == "(x: torch.Tensor, by: int = 3) -> torch.Tensor"
    assert Holder().method.__defaults__ == (3,)


def test_kinds_of_functions_are_told() -> None:
    assert inspect.iscoroutinefunction(later)
    assert asyncio.iscoroutinefunction(later)
    assert inspect.isgeneratorfunction(parts)
    assert inspect.isasyncgenfunction(parts_later)
    assert inspect.iscoroutinefunction(functools.partial(later, torch.ones(2)))
    for kind in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        assert not kind(scaled)
        assert not kind(Holder().method)


def test_defaults_can_be_set() -> None:
    def shifted(x: torch.Tensor, by: int = 1, *, more: int = 0) -> torch.Tensor:
        return x + by + more

    fast: Any = torchjit.compile(shifted, backend="eager")
    x = torch.zeros(2)
    assert fast(x).tolist() == [1, 1]
    fast.__defaults__ = (5,)
    assert fast(x).tolist() == shifted(x).tolist() == [5, 5]
    fast.__kwdefaults__ = {"more": 2}
    assert fast(x).tolist() == shifted(x).tolist() == [7, 7]
    del fast.__defaults__
    with pytest.raises(TypeError, match="by"):
        fast(x)


def test_what_is_no_function_has_no_code() -> None:
    class Called:
        __slots__ = ()

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    fast = torchjit.compile(Called(), backend="eager")
    assert fast(torch.zeros(1)).item() == 1
    builtin = torchjit.compile(torch.sin, backend="eager")
    assert builtin(torch.zeros(1)).item() == 0
    assert builtin.__name__ == "sin"
