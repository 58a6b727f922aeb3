"""Between which numbers values lie, and which positions need no check."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from inductor_testing import check

from torchjit_core.expr import Symbol, as_expr
from torchjit_inductor.ir.intervals import Intervals
from torchjit_inductor.ir.values import Value, apply, cast, constant, index_value, load, round_to, where

ROW = index_value(as_expr(Symbol("x0", 0, 99)))
ANY = index_value(as_expr(Symbol("x1", 0, None)))
READ = load("b", as_expr(Symbol("x0", 0, 99)), torch.float32)
SHORT = load("c", as_expr(Symbol("x0", 0, 99)), torch.int8)
F32, I64 = torch.float32, torch.int64


def _half(x: Value) -> Value:
    return cast((cast(x, F32) + 0.5) * 0.5 - 0.5, I64)


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (ROW, 0, 99),
        (ROW * 3 - 1, -1, 296),
        (-ROW, -99, 0),
        (_half(ROW), 0, 49),
        (cast(apply("floor", cast(ROW, F32) * -0.3), I64), -30, 0),
        (cast(SHORT, I64), -128, 127),
        (apply("maximum", cast(READ, torch.int64), constant(0, I64)), 0, 2**63 - 1),
        (where(READ < 1, constant(3, I64), ROW), 0, 99),
    ],
    ids=str,
)
def test_an_interval_holds_the_value_and_is_narrow(value: Value, low: float, high: float) -> None:
    found = Intervals().of(value)
    assert found is not None
    assert (math.trunc(found[0]), math.trunc(found[1])) == (low, high)


_FAR = cast(ROW, F32) * 1e38  # some of them infinite


@pytest.mark.parametrize(
    "value", [READ, apply("exp", READ), READ - READ, cast(READ, F32) * 0.0, READ < 1, _FAR - _FAR, _FAR * 0.0], ids=str
)
def test_what_may_not_be_a_number_has_none(value: Value) -> None:
    assert Intervals().of(value) is None


def test_what_may_wrap_around_can_be_anything() -> None:
    found = Intervals()
    assert found.of(SHORT * constant(2, torch.int8)) == (-128, 127)
    assert found.within(apply("maximum", _half(ANY), constant(0, I64)), 0, math.inf)
    assert not found.within(ANY * ANY, 0, math.inf)


def test_a_number_that_may_be_infinite_is_no_position() -> None:
    """Of 16 bits what is beyond 65504, which no dtype of a kernel's values says."""
    thousands = cast(ROW, F32) * 1000.0
    for beyond in (_FAR, round_to(thousands, torch.float16)):
        assert not Intervals().within(cast(beyond, I64), 0, math.inf)
    assert Intervals().within(cast(round_to(thousands, torch.bfloat16), I64), 0, 101_000)
    assert Intervals().within(cast(apply("minimum", _FAR, constant(9.0, F32)), I64), 0, 10)


def test_positions_that_overflow_raise() -> None:
    x, far = torch.randn(200_000), torch.arange(100_000)
    functions: tuple[Callable[..., torch.Tensor], ...] = (
        lambda x, i: x[i.half().long()],
        lambda x, i: x[((i * 1e38) - (i * 1e38)).clamp(0, 7).long()],
    )
    for function in functions:
        with pytest.raises(IndexError):
            function(x, far)
        with pytest.raises(IndexError):
            check(lambda x: function(x, torch.arange(100_000)) * 2, [x])


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize(
    "positions",
    [
        lambda i: i.clamp(0, 6),
        lambda i: i.clamp(-7, 6),
        lambda i: i.clamp(min=0) % 7,
        lambda i: (torch.arange(9) * 0.77).long(),
        lambda i: (i.float() * 0.3).clamp(0, 6).long(),
    ],
)
def test_limited_positions_are_read(positions: Callable[[torch.Tensor], torch.Tensor], mode: str) -> None:
    x, i = torch.randn(7, 5), torch.tensor([3, -2, 9, 0, 6, 7, -9, 1, 1])
    check(lambda x, i: x[positions(i)] * 2, [x, i], mode=mode)


def test_a_position_that_no_limit_holds_within_raises() -> None:
    x, i = torch.randn(7, 5), torch.tensor([3, 9])
    with pytest.raises(IndexError, match="9 is out of bounds"):
        check(lambda x, i: x[i.clamp(0, 9)] * 2, [x, i])
