"""Device functions that generated kernels call, with eager's meaning where Triton's own operation differs from it."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice

# mypy: disable-error-code="no-untyped-def, untyped-decorator, type-arg"

NAN_WINS: Any = tl.constexpr(tl.PropagateNan.ALL)


@triton.jit
def maximum(a, b):
    """The larger one; a NaN wins."""
    return tl.maximum(a, b, propagate_nan=NAN_WINS)


@triton.jit
def minimum(a, b):
    """The smaller one; a NaN wins."""
    return tl.minimum(a, b, propagate_nan=NAN_WINS)


@triton.jit
def larger(a, b):
    """The larger integer."""
    return tl.maximum(a, b)


@triton.jit
def smaller(a, b):
    """The smaller integer."""
    return tl.minimum(a, b)


@triton.jit
def product(a, b):
    """For `tl.reduce`."""
    return a * b


@triton.jit
def either(a, b):
    """Logical or, for `tl.reduce`."""
    return a | b


@triton.jit
def both(a, b):
    """Logical and, for `tl.reduce`."""
    return a & b


@triton.jit
def first_largest(av, ai, bv, bi):
    """The pair (value, position) of the larger value; a NaN is largest; of equal ones the first position."""
    a_nan = av != av
    b_nan = bv != bv
    wins = (av > bv) | (a_nan & (b_nan == 0))
    ties = (av == bv) | (a_nan & b_nan)
    take_a = wins | (ties & (ai < bi))
    return tl.where(take_a, av, bv), tl.where(take_a, ai, bi)


@triton.jit
def first_smallest(av, ai, bv, bi):
    """The pair (value, position) of the smaller value; a NaN is smallest; of equal ones the first position."""
    a_nan = av != av
    b_nan = bv != bv
    wins = (av < bv) | (a_nan & (b_nan == 0))
    ties = (av == bv) | (a_nan & b_nan)
    take_a = wins | (ties & (ai < bi))
    return tl.where(take_a, av, bv), tl.where(take_a, ai, bi)


@triton.jit
def welford(a_mean, a_m2, a_count, b_mean, b_m2, b_count):
    """Join the means and sums of squared distances of two sets (Chan, Golub and LeVeque 1979)."""
    count = a_count + b_count
    share = tl.where(count == 0, 0.0, b_count / count)
    delta = b_mean - a_mean
    return a_mean + delta * share, a_m2 + b_m2 + delta * delta * a_count * share, count


@triton.jit
def _joined(largest, total, x, e):
    """One step of the online softmax (Milakov and Gimelshein 2018), `e` being exp(-|x - largest|)."""
    new = maximum(largest, x)
    e = tl.where(new == float("-inf"), 0.0, e)  # minus infinity less itself is NaN; it adds nothing
    return new, tl.where(x > largest, total * e + 1.0, total + e)


@triton.jit
def online_softmax(largest, total, x):
    """Take `x` into the running maximum and the running sum of exp(x - maximum), with one exponential."""
    return _joined(largest, total, x, libdevice.exp(-tl.abs(x - largest)))


@triton.jit
def online_softmax_fast(largest, total, x):
    """`online_softmax` with the GPU's fast exponential."""
    return _joined(largest, total, x, tl.exp(-tl.abs(x - largest)))


@triton.jit
def floor_div(a, b):
    """Integer division towards minus infinity."""
    q = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), q - 1, q)


@triton.jit
def floor_mod(a, b):
    """Integer remainder with the divisor's sign."""
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def float_remainder(a, b):
    """Remainder of floats with the divisor's sign, as `torch.remainder`."""
    r = libdevice.fmod(a, b)
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def float_floor_div(a, b):
    """`torch.div(a, b, rounding_mode="floor")` of floats, the steps of c10's div_floor_floating."""
    r = libdevice.fmod(a, b)
    q = (a - r) / b
    q = tl.where((r != 0) & ((b < 0) != (r < 0)), q - 1, q)
    whole = libdevice.floor(q)
    whole = tl.where(q - whole > 0.5, whole + 1, whole)
    whole = tl.where(q != 0, whole, libdevice.copysign(q * 0, a / b))
    return tl.where(b == 0, a / b, whole)


@triton.jit
def sign(a):
    """-1, 0 or 1; 0 for a NaN."""
    return (a > 0).to(a.dtype) - (a < 0).to(a.dtype)


@triton.jit
def shift_left(a, b, bits: tl.constexpr):
    """0 when the distance is negative or all the bits."""
    return tl.where((b < 0) | (b >= bits), 0, a << b)


@triton.jit
def shift_right(a, b, bits: tl.constexpr):
    """Only sign bits when the distance is negative or all the bits."""
    return tl.where((b < 0) | (b >= bits), tl.where(a < 0, -1, 0).to(a.dtype), a >> b)
