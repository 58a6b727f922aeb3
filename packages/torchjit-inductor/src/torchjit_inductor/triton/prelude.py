"""Device functions that generated kernels call, with eager's meaning where Triton's own operation differs from it."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_launch_dependents as gdc_launch_dependents
from triton.language.extra.cuda import gdc_wait as gdc_wait

# mypy: disable-error-code="no-untyped-def, untyped-decorator, type-arg"

NAN_WINS: Any = tl.constexpr(tl.PropagateNan.ALL)
INTERPRETED: Any = tl.constexpr(triton.knobs.runtime.interpret)


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
def take_larger(best, position, x, at):
    """A lane's running argmax: `x` at position `at` counts if it is larger; a NaN is largest; the first one of equals stays."""
    better = ((x <= best) == 0) & (best == best)
    return tl.where(better, x, best), tl.where(better, at, position)


@triton.jit
def take_smaller(best, position, x, at):
    """`take_larger` for argmin."""
    better = ((x >= best) == 0) & (best == best)
    return tl.where(better, x, best), tl.where(better, at, position)


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
def online_softmax_of_groups(largest, total, x):
    """Take groups of numbers, along the last axis of `x`, into the running maximum and the running sum of exp(x - maximum).

    A group moves the maximum once, so that each number costs an exponential and little else. The fast exponential is exact
    enough in float32, too: its error grows with the distance from the maximum, but there the terms are small.
    """
    last: tl.constexpr = len(x.shape) - 1
    new = maximum(largest, tl.reduce(x, last, maximum))
    base = tl.where(new == float("-inf"), 0.0, new)  # minus infinity less itself is NaN; it adds nothing
    return new, total * tl.exp(largest - base) + tl.sum(tl.exp(x - tl.expand_dims(base, last)), last)


@triton.jit
def quotient(a, b):
    """a / b to two units in the last place; 0 where b is beyond 2**126."""
    if INTERPRETED:
        return a / b
    else:
        return libdevice.fast_dividef(a, b)


@triton.jit
def division_limit(b):
    """The largest magnitude that `exact_quotient` may divide by `b` the short way; -1: none."""
    return tl.where((b > 2.0**-50) & (b < 2.0**50), 2.0**50, -1.0)


# One of four quotients: an approximation to two units in the last place, one to less than one unit, and the correction that then rounds
# correctly (Markstein 1990), as nothing on the way overflows and remainders are exact. Zeros keep their sign.
_SHORT_DIVISION = """
    mul.rn.f32 q, {x}, {inverse};
    neg.f32 m, {x};
    fma.rn.f32 e, {b}, q, m;
    neg.f32 i, {inverse};
    fma.rn.f32 q, e, i, q;
    fma.rn.f32 e, {b}, q, m;
    fma.rn.f32 {out}, e, i, q;
    abs.f32 m, {x};
    setp.gt.or.f32 p, m, {limit}, p;
"""
_QUOTIENTS = 4


def _division_text() -> str:
    names = ("out", "x", "b", "inverse", "limit")
    each = [{name: f"${k * _QUOTIENTS + n}" for k, name in enumerate(names)} for n in range(_QUOTIENTS)]
    short = "".join(_SHORT_DIVISION.format(**of) for of in each)
    long = "".join("    div.rn.f32 {out}, {x}, {b};\n".format(**of) for of in each)
    head = "{\n    .reg .f32 q, e, m, i;\n    .reg .pred p;\n    setp.ne.b32 p, 0, 0;\n"
    return f"{head}{short}    @!p bra DIVIDED;\n{long}DIVIDED:\n}}"


_DIVISION: Any = tl.constexpr(_division_text())
_DIVISION_REGISTERS: Any = tl.constexpr(",".join(["=&f"] * _QUOTIENTS + ["f"] * (4 * _QUOTIENTS)))
_DIVIDED_TOGETHER: Any = tl.constexpr(_QUOTIENTS)


@triton.jit
def exact_quotient(a, b, inverse, limit):
    """a / b where many numbers share a divisor: its rounded inverse and `division_limit` are known.

    Correctly rounded, but to a unit in the last place where `a` is below 2**-100. A division takes two operations of the slow unit for an
    element (the inverse, and a look at the operands), this one none.
    """
    if INTERPRETED:
        return a / b
    else:
        return tl.inline_asm_elementwise(
            _DIVISION, _DIVISION_REGISTERS, [a, b, inverse, limit], tl.float32, True, _DIVIDED_TOGETHER
        )


@triton.jit
def whole(x):
    """The nearest whole number of a float32, the even one of two: `libdevice.rint` for the interpreter."""
    size = tl.abs(x)
    near = (size + 8388608.0) - 8388608.0
    near = tl.where(size < 8388608.0, near, size)
    return tl.where(x < 0, -near, near)


@triton.jit
def fast_erf(x):
    """The error function to 4e-7 of its value: the rational function of Eigen's `erf` for float32."""
    x = maximum(minimum(x, 4.0), -4.0)
    s = x * x
    p = s * -2.72614225801306e-10 + 2.77068142495902e-08
    p = s * p - 2.10102402082508e-06
    p = s * p - 5.69250639462346e-05
    p = s * p - 7.34990630326855e-04
    p = s * p - 2.95459980854025e-03
    p = s * p - 1.60960333262415e-02
    q = s * -1.45660718464996e-05 - 2.13374055278905e-04
    q = s * q - 1.68282697438203e-03
    q = s * q - 7.37332916720468e-03
    q = s * q - 1.42647390514189e-02
    return quotient(x * p, q)


@triton.jit
def fast_tanh(x):
    """The hyperbolic tangent to 4e-7 of its value: the rational function of Eigen's `tanh` for float32."""
    x = maximum(minimum(x, 7.90531110763549805), -7.90531110763549805)
    s = x * x
    p = s * -2.76076847742355e-16 + 2.00018790482477e-13
    p = s * p - 8.60467152213735e-11
    p = s * p + 5.12229709037114e-08
    p = s * p + 1.48572235717979e-05
    p = s * p + 6.37261928875436e-04
    p = s * p + 4.89352455891786e-03
    q = s * 1.19825839466702e-06 + 1.18534705686654e-04
    q = s * q + 2.26843463243900e-03
    q = s * q + 4.89352518554385e-03
    return quotient(x * p, q)


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


@triton.jit
def sort_key(word, low, half: tl.constexpr, down: tl.constexpr):
    """What is sorted for an element: above the element as an integer of the same order, below what tells it from its equals.

    Args:
        word: of 32 bits; of 16 where `half`.
        low: of as many bits: twice the position, and 1 for -0.
        half: the key has 32 bits instead of 64.
        down: the largest first.
    """
    word = ~word if down else word
    if half:
        return (word << 16) | low
    else:
        return (word.to(tl.int64) << 32) | low.to(tl.int64)


@triton.jit
def float_sort_key(x, at, half: tl.constexpr, down: tl.constexpr):
    """`sort_key` of a float of 32 bits, or of 16 where `half`, at position `at`: NaN last, -0 beside 0."""
    most: tl.constexpr = 0x7FFF if half else 0x7FFFFFFF
    bits = x.to(tl.int16 if half else tl.int32, bitcast=True).to(tl.int32)
    negative = bits == -most - 1
    word = tl.where(x != x, most, tl.where(negative, 0, bits ^ ((bits >> 31) & most)))
    return sort_key(word, at * 2 + negative.to(tl.int32), half, down)


@triton.jit
def sorted_word(key, half: tl.constexpr, down: tl.constexpr):
    """The integer that stands for an element."""
    word = (key >> (16 if half else 32)).to(tl.int32)
    return ~word if down else word


@triton.jit
def sorted_bits(key, half: tl.constexpr, down: tl.constexpr):
    """The bits of a float."""
    most: tl.constexpr = 0x7FFF if half else 0x7FFFFFFF
    word = sorted_word(key, half, down)
    bits = word ^ ((word >> 31) & most) | ((key & 1).to(tl.int32) << (15 if half else 31))
    return bits.to(tl.int16) if half else bits


@triton.jit
def sorted_position(key, half: tl.constexpr):
    """Where an element was."""
    return ((key & (0xFFFF if half else 0xFFFFFFFF)) >> 1).to(tl.int64)
