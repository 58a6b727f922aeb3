"""Mathematical functions of vectors: SLEEF's out of libtorch, polynomials, and lane by lane where there is no SLEEF."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from inductor_testing import check, compiled, flat, sample

from torchjit_inductor.cpp import loader, vector_math

UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "sigmoid", "sqrt", "rsqrt", "floor", "ceil", "trunc", "round",
)  # fmt: skip
BINARY = ("pow", "atan2", "hypot", "fmod", "remainder", "floor_divide", "copysign", "nextafter")
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    float("inf"),
    -float("inf"),
    float("nan"),
    1e-30,
    -1e-30,
    1e30,
    -1e30,
    88.8,
    -104.5,
    20.0,
    -20.0,
]
TOLERANCES = {torch.float32: 1e-6, torch.float64: 2e-15}


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """An odd number of values, so that the last vector is partial."""
    tail = [torch.logspace(-20, 20, 200, dtype=dtype), -torch.logspace(-20, 20, 200, dtype=dtype)]
    return torch.cat([torch.tensor(SPECIAL, dtype=dtype), torch.linspace(-12, 12, 1501, dtype=dtype), *tail])


def agree(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, tolerance: float) -> None:
    """Ours is as near to the exact result as eager's, or within a few units in the last place of it."""
    assert torch.equal(ours.isnan(), eager.isnan())
    finite = eager.isfinite() & ours.isfinite()
    assert torch.equal(ours[~finite & ~eager.isnan()], eager[~finite & ~eager.isnan()])
    ours64, eager64, exact64 = (t[finite].double() for t in (ours, eager, exact))
    allowed = torch.maximum((eager64 - exact64).abs(), tolerance * exact64.abs()) + torch.finfo(ours.dtype).tiny
    worst = ((ours64 - exact64).abs() / allowed).nan_to_num().max()
    assert worst <= 2, f"{float(worst)} times as far from the exact result as allowed"
    zero = finite & (eager == 0)
    assert torch.equal(torch.signbit(ours[zero]), torch.signbit(eager[zero]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number(name: str, dtype: torch.dtype) -> None:
    function, x = getattr(torch, name), numbers(dtype)
    if name in ("sinh", "cosh") and dtype is torch.float32:
        x = x[(x.abs() < 88.7) | (x.abs() > 89.5)]  # there some of eager's kernels, for some machines, have overflown
    made = flat(compiled(lambda x: function(x), (x,))(x))[0]
    agree(made, function(x), function(x.double()), TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_numbers(name: str, dtype: torch.dtype) -> None:
    function = getattr(torch, name)
    some = torch.cat([torch.tensor(SPECIAL, dtype=dtype), torch.linspace(-5, 5, 23, dtype=dtype)])
    x, y = (t.reshape(-1).contiguous() for t in torch.meshgrid(some, some, indexing="ij"))
    made = flat(compiled(lambda x, y: function(x, y), (x, y))(x, y))[0]
    # One by one: in eager's vectors a remainder whose quotient overflows is not a number.
    want = torch.stack([function(a, b) for a, b in zip(x, y)])
    torch.testing.assert_close(made, want, rtol=TOLERANCES[dtype], atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_large_arguments_saturate_exactly(name: str) -> None:
    x = torch.cat([torch.linspace(10.2, 100, 999), torch.logspace(2, 38, 50)])
    made = flat(compiled(lambda x: (getattr(torch, name)(x), getattr(torch, name)(-x)), (x,))(x))
    assert made[0].eq(1).all() and made[1].eq(-1).all()


def test_libtorch_has_the_functions() -> None:
    """The speed depends on it: a build without them goes lane by lane."""
    table = vector_math.table(loader._libtorch())
    assert sum(address is not None for address in table) >= len(table) // 3


NO_FUNCTIONS = (ctypes.c_void_p * 200)()  # libraries keep its address


@pytest.fixture
def no_vector_functions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(vector_math, "table", lambda library: NO_FUNCTIONS)
    loader._table.cache_clear()
    yield
    loader._table.cache_clear()


@pytest.mark.usefixtures("no_vector_functions")
def test_without_them_results_are_the_same(tmp_path: Path) -> None:
    x = torch.cat([torch.tensor(SPECIAL), torch.linspace(-5, 5, 101)])
    # A folder of its own: a library that this process has loaded already keeps the table it was given.
    made = flat(compiled(lambda x: (x.sin(), torch.pow(x, x), x.log1p()), (x,), cache_dir=str(tmp_path))(x))
    for ours, eager in zip(made, (x.sin(), torch.pow(x, x), x.log1p()), strict=True):
        torch.testing.assert_close(ours, eager, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("width", [16, 32])
def test_narrower_vectors(width: int, dtype: torch.dtype) -> None:
    """Functions, partial vectors and folds of lanes on the machines of 16 and 32 bytes."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        made = [x.sin(), x.exp(), x.tanh(), x.erf(), torch.pow(x.abs(), y), torch.remainder(x, y), x.copysign(y)]
        return [*made, x.softmax(-1), x.amax(1), x.sum(0), (x > 3).any(1), (x * 20).to(torch.int16).sum(1)]

    x, y = sample(7, 45, dtype=dtype), sample(7, 45, dtype=dtype, seed=1)
    check(fn, (x, y), aten=None, vector_bytes=width, tol={"rtol": 2e-6, "atol": 1e-6})
