"""The short division by a divisor that many elements share: its assembly, run with exact arithmetic, and on a GPU."""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch

from torchjit_inductor.triton import prelude
from torchjit_inductor.triton.compile import jit_function


def _single(value: Fraction) -> float:
    """The nearest float32, the even one of two."""
    if not value:
        return 0.0
    exponent = max(value.numerator.bit_length() - value.denominator.bit_length(), -125)
    step = Fraction(2) ** (exponent - 24)
    if abs(value) / step >= 2**24 and abs(value) / (2 * step) >= 2**23:
        step *= 2
    while abs(value) / step >= 2**24:
        step *= 2
    found = float(round(value / step) * step)
    return found if abs(found) < 2.0**128 else math.copysign(math.inf, found)


def _bits(value: float) -> int:
    return int(struct.unpack("I", struct.pack("f", value))[0])


def _number(bits: int) -> float:
    return float(struct.unpack("f", struct.pack("I", bits & 0xFFFFFFFF))[0])


def _exactly(function: Callable[..., Any], *args: float) -> float:
    """A rounded operation."""
    if all(map(math.isfinite, args)) and not (function is _divided and args[1] == 0.0):
        exact = function(*map(Fraction, args))
        if exact:
            return _single(exact)
    # Zeros have signs here.
    return float(function(*(torch.tensor(a, dtype=torch.float64) for a in args)))


def _multiplied(a: Any, b: Any) -> Any:
    return a * b


def _fused(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def _divided(a: Any, b: Any) -> Any:
    return a / b


def _short(x: float, b: float) -> tuple[float, bool]:
    """What the assembly computes for one element, and whether it asks for the long way."""
    inverse = _exactly(_divided, 1.0, b)
    limit = 2.0**50 if 2.0**-50 < b < 2.0**50 else -1.0
    held: dict[str, Any] = {"X": x, "B": b, "I": inverse, "L": limit, "p": False}
    text = prelude._SHORT_DIVISION.format(x="X", b="B", inverse="I", limit="L", out="O")
    for line in filter(None, map(str.strip, text.splitlines())):
        op, _, rest_of_line = line.rstrip(";").partition(" ")
        to, *names = (name.strip() for name in rest_of_line.split(","))
        args = [held[n] if n in held else int(n, 0) for n in names]
        if op == "mul.rn.f32":
            held[to] = _exactly(_multiplied, *args)
        elif op == "fma.rn.f32":
            held[to] = _exactly(_fused, *args)
        elif op == "neg.f32":
            held[to] = -args[0]
        elif op == "abs.f32":
            held[to] = abs(args[0])
        elif op == "setp.gt.or.f32":
            held[to] = args[0] > args[1] or args[2]
        else:
            raise AssertionError(op)
    return held["O"], held["p"]


def _operands() -> list[tuple[float, float]]:
    draw = random.Random(0)
    found = [(_number(draw.getrandbits(32)), _number(draw.getrandbits(31))) for _ in range(100)]
    for _ in range(400):
        # Ordinary sizes, significands of few bits among them: quotients that are exact, or nearly halfway between two numbers.
        bits = draw.choice((1, 2, 3, 8, 11, 24))
        x = _single(Fraction(draw.choice((-1, 1)) * draw.getrandbits(bits)) * Fraction(2) ** draw.randint(-60, 30))
        b = _single(
            (draw.getrandbits(draw.choice((1, 3, 24))) + draw.choice((1, 2**23))) * Fraction(2) ** draw.randint(-60, 20)
        )
        found.append((x, b))
        near = _single(Fraction(b) * (2 * Fraction(draw.getrandbits(24) | 1 << 23) + 1) / 2)
        found.append((near, b))
    special = (0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 3.4e38, 1.0, 2.0**-49, 2.0**50, 2.0**-50, -3.0)
    return found + list(itertools.product(special, special))


def test_the_short_way_rounds_correctly_or_asks_for_the_long_one() -> None:
    asked = 0
    for x, b in _operands():
        got, long = _short(x, b)
        asked += long
        if long:
            continue
        want = _exactly(_divided, x, b)
        unit = 1 if 0 < abs(x) < 2.0**-100 else 0
        assert abs(_bits(got) - _bits(want)) <= unit or (math.isnan(got) and math.isnan(want)), (x, b, got, want)
        assert math.isnan(x) or (2.0**-50 < b < 2.0**50 and abs(x) <= 2.0**50)
    assert asked < len(_operands()) // 2


DIVIDED = """
@triton.jit
def divided(x0, b0, out0):
    row = tl.program_id(0)
    at = row * 4096 + tl.arange(0, 4096)
    x, b = tl.load(x0 + at), tl.load(b0 + row)
    tl.store(out0 + at, tj.exact_quotient(x, b, tl.div_rn(1.0, b), tj.division_limit(b)))
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_quotients_by_shared_numbers_are_eagers() -> None:
    bits = torch.randint(-(2**31), 2**31, (4096, 4096), device="cuda").to(torch.int32).view(torch.float32)
    ordinary = torch.randn(4096, 4096, device="cuda") * torch.rand(4096, 1, device="cuda")
    ordinary[:, ::5] = ordinary[:, ::5].bfloat16().float()
    ordinary[:, ::7] = 0.0
    ordinary[:, ::9] = -0.0
    kernel = jit_function(DIVIDED, "divided")
    for x, column in itertools.product((bits, ordinary), (bits[:, 3], ordinary[:, 1], ordinary.abs().amax(1))):
        b = column.clone()
        got, want = torch.empty_like(x), x / b[:, None]
        kernel[(4096,)](x, b, got)
        assert torch.equal(got.isnan(), want.isnan())
        # Below 2**-100 a unit in the last place may be missing.
        counts = ~want.isnan() & ((x == 0) | (x.abs() > 2.0**-100))
        assert counts.sum() > 1000000
        assert torch.equal(got.view(torch.int32)[counts], want.view(torch.int32)[counts])
