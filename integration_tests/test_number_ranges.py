"""Numbers that a tensor's dtype cannot hold: eager raises, at each call; and tensors made of numbers that vary have their values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchjit

CALLS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "fill_": lambda v, x: x.fill_(v),
    "full_like": lambda v, x: torch.full_like(x, v),
    "full": lambda v, x: torch.full((2,), v, dtype=x.dtype),
    "new_full": lambda v, x: x.new_full((2,), v),
    "masked_fill_": lambda v, x: x.masked_fill_(x == 0, v),
    "setitem": lambda v, x: x.__setitem__(0, v),
    "masked setitem": lambda v, x: x.__setitem__(x == 0, v),
    "where": lambda v, x: torch.where(x == 0, x, v),
    "clamp": lambda v, x: x.clamp(0, v),
    "clamp_min": lambda v, x: torch.clamp_min(x, v),
    "scatter": lambda v, x: x.scatter_(0, torch.tensor([0]), v),
    "index_fill": lambda v, x: x.index_fill_(0, torch.tensor([0]), v),
    "pad": lambda v, x: torch.nn.functional.pad(x, (1, 1), value=v),
    "alpha": lambda v, x: torch.add(x, x, alpha=v),
    "tensor": lambda v, x: torch.tensor(v, dtype=x.dtype),
    "new_tensor": lambda v, x: x.new_tensor([v]),
    "add": lambda v, x: x + v,
    "power": lambda v, x: x**v,
    "equal": lambda v, x: x == v,
    "arange": lambda v, x: torch.arange(v, v + 3, dtype=x.dtype),
}
SMALL, TOO_LARGE_AT_FIRST, FLOATS = (1, 300, -5, -300), (300, 1), (1.5, 300.5, math.inf, math.nan, -1.0)
LARGE, LARGE_AT_FIRST, LARGE_FLOATS = (1, 7, 2**40, 2**70), (2**40, 1, 2), (1e39, 2.0, 1e-3)
NUMBERS = {
    torch.uint8: (SMALL, TOO_LARGE_AT_FIRST, FLOATS, LARGE),
    torch.int32: (FLOATS, LARGE, LARGE_AT_FIRST),
    torch.bool: (SMALL, FLOATS),
    torch.float16: (SMALL, FLOATS, LARGE, LARGE_FLOATS),
    torch.float32: (LARGE, LARGE_FLOATS),
}
"""For each dtype, the numbers of the calls of one compiled function: those that lie around what it can hold."""


def _told(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)[:40]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return (
            a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a.double(), b.double(), 0, 0, equal_nan=True)
        )
    return type(a) is type(b) and a == b


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", CALLS)
def test_numbers_that_do_not_fit(name: str, dtype: torch.dtype) -> None:
    call = CALLS[name]
    backend = "inductor" if dtype in (torch.uint8, torch.float16) else "aot_eager"
    for numbers in NUMBERS[dtype]:
        torchjit.reset()
        compiled = torchjit.compile(call, backend=backend)
        for number in numbers:
            x, y = torch.zeros(4, dtype=dtype), torch.zeros(4, dtype=dtype)
            want, got = _told(call, number, x), _told(compiled, number, y)
            assert _same(want, got), f"{number} of {numbers}: want {want}, got {got}"
            assert _same(x, y), f"{number} of {numbers}: want {x}, got {y}"


def _tensors(v: Any, x: torch.Tensor) -> tuple[Any, ...]:
    return (
        torch.tensor(v),
        torch.tensor(v, dtype=torch.float64),
        torch.tensor([v, 1]),
        torch.tensor((v, 2.5)),
        torch.tensor([[v, 1, 3], [2, v, v]]),
        torch.tensor([True, v]),
        torch.tensor([v > 3, True]),
        x.new_tensor(v),
        x.new_tensor([v, v + 1]),
        torch.as_tensor([v], dtype=torch.float64),
        torch.asarray([v]),
        torch.tensor(x.shape) * 2,
        torch.tensor([x.shape[0]] * 70),
        torch.FloatTensor([v, 1.5]),
    )


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("numbers", [(1, 7, 9, 2**40 + 3, 2**40 + 5), (1.5, 2.5, 2**50 + 0.125, math.inf)])
def test_tensors_of_numbers_that_vary(backend: str, numbers: tuple[Any, ...]) -> None:
    torchjit.reset()
    compiled = torchjit.compile(_tensors, backend=backend)
    for number in numbers:
        x = torch.ones(2, 3, dtype=torch.float64)
        for want, got in zip(_tensors(number, x), compiled(number, x), strict=True):
            assert want.dtype == got.dtype and torch.equal(want, got), f"{number}: want {want}, got {got}"


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_one_graph_for_all_numbers(backend: str) -> None:
    def make(n: int, x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([n, 2]) + x

    torchjit.reset()
    compiled = torchjit.compile(make, backend=backend, fullgraph=True)
    for n in (1, 7, 8, 2**33, -5):
        assert torch.equal(compiled(n, torch.zeros(2, dtype=torch.int64)), torch.tensor([n, 2]))
    assert torchjit.counters["stats"]["unique_graphs"] == 2  # one for 1, one for the others


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float16])
def test_numbers_that_only_the_run_knows(dtype: torch.dtype, backend: str) -> None:
    def fill(source: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x.fill_(source.sum().item())

    with torchjit.config.patch(capture_scalar_outputs=True):
        compiled = torchjit.compile(fill, backend=backend)
        for number in (3.0, 1e6, 1e30, -2.5):
            source, x, y = torch.tensor([number, 0.0]), torch.zeros(4, dtype=dtype), torch.zeros(4, dtype=dtype)
            want, got = _told(fill, source, x), _told(compiled, source, y)
            assert _same(want, got), f"{number}: want {want}, got {got}"
            assert _same(x, y), f"{number}: want {x}, got {y}"
