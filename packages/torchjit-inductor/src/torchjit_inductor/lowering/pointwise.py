"""Element by element ops: the ones that are one operation, as tables, then the composed ones."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import partial

import attrs
import torch
from torch.utils._python_dispatch import _disable_current_modes

from torchjit_inductor.ir.dtypes import EIGHT_BIT_FLOATS, FLOATS, compute_dtype, is_float, is_int
from torchjit_inductor.ir.values import Number, Scalar, Value, apply, cast, constant, round_to, where
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.promotion import pointwise, promoted, rounded_number, rounded_scalar
from torchjit_inductor.lowering.registry import lowering
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import Lazy, Lowered, Operand, Strided, TensorMeta, contiguous_strides, full

__all__: list[str] = []

# ---------------------------------------------------------------------- one operation each
FLOAT_UNARY = {
    # aten op: operation; integers are converted to the result's floating type first
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf", "erfc": "erfc",
    "lgamma": "lgamma", "sqrt": "sqrt", "rsqrt": "rsqrt", "reciprocal": "reciprocal", "sigmoid": "sigmoid",
}  # fmt: skip
ROUNDING = ("floor", "ceil", "trunc", "round")
"""On floats; on integers the identity."""
SAME_TYPE_UNARY = {"neg": "neg", "abs": "abs", "sign": "sign", "sgn": "sign", "bitwise_not": "not"}
ARITHMETIC = {
    # operands are promoted to the result's dtype
    "mul.Tensor": "mul", "mul.Scalar": "mul", "maximum": "maximum", "minimum": "minimum", "fmax": "fmax",
    "fmin": "fmin", "atan2": "atan2", "copysign.Tensor": "copysign", "copysign.Scalar": "copysign", "hypot": "hypot",
    "remainder.Tensor": "remainder", "remainder.Scalar": "remainder", "fmod.Tensor": "fmod", "fmod.Scalar": "fmod",
    "bitwise_and.Tensor": "and", "bitwise_and.Scalar": "and", "bitwise_or.Tensor": "or", "bitwise_or.Scalar": "or",
    "bitwise_xor.Tensor": "xor", "bitwise_xor.Scalar": "xor", "bitwise_left_shift.Tensor": "shl",
    "bitwise_right_shift.Tensor": "shr", "nextafter": "nextafter",
}  # fmt: skip
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
TESTS = ("isnan", "isinf", "signbit")
LOGICAL = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}


def _unary(op: str, only_float: bool, b: Builder, meta: TensorMeta, x: Lowered) -> Lowered:
    whole = only_float and not is_float(meta.dtype)
    if whole or (meta.dtype == torch.bool and op in ("abs", "sign")):
        return Lazy(x.sizes, x.dtype, x.device, x.value)  # the same numbers; a result gets memory of its own
    return pointwise(meta, lambda v: apply(op, v), x)


def _safe_divisor(meta: TensorMeta, divisor: Operand) -> bool:
    """Is it a positive number, by which kernels divide integers?"""
    number = _whole(divisor)
    return number is not None and is_int(meta.dtype) and 0 < number <= torch.iinfo(meta.dtype).max


def _whole(operand: Operand) -> int | None:
    """The operand, if it is a whole number that is known now."""
    return operand if isinstance(operand, int) and not isinstance(operand, bool) else None


def _binary(op: str, b: Builder, meta: TensorMeta, x: Operand, y: Operand) -> Lowered:
    operation = op
    if meta.dtype == torch.bool:
        operation = {"mul": "and", "maximum": "or", "minimum": "and"}.get(op, op)
    divides = operation in ("remainder", "fmod") and not _safe_divisor(meta, y)
    if (divides or operation in ("shl", "shr")) and not is_float(meta.dtype):
        # Division by zero raises in eager; shifts by too much are defined there.
        raise NotLowered(f"integer {operation}")
    if operation == "nextafter" and compute_dtype(meta.dtype) != meta.dtype:
        raise NotLowered("nextafter of a 16-bit type")
    if operation in ("remainder", "fmod"):  # a slightly other divisor gives quite another rest
        x, y = rounded_number(x, meta.dtype), rounded_number(y, meta.dtype)
    x, y = rounded_scalar(x, meta), y if op == "mul" else rounded_scalar(y, meta)
    return pointwise(meta, lambda v, w: apply(operation, v, w), x, y)


def _shift(operation: str, b: Builder, meta: TensorMeta, x: Lowered, y: Operand) -> Lowered:
    """By a number of places that leaves some; what eager PyTorch defines for the others is left to it."""
    places = _whole(y)
    if places is None or not is_int(meta.dtype) or not 0 <= places < torch.iinfo(meta.dtype).bits:
        raise NotLowered(f"integer {operation}")
    return pointwise(meta, lambda v, w: apply(operation, v, w), x, y)


def _comparison(op: str, b: Builder, meta: TensorMeta, x: Operand, y: Operand) -> Lowered:
    dtype = promoted((x, y))
    number = _whole(y)
    if number is not None and is_int(dtype) and not _fits(number, dtype):
        raise NotLowered("comparison with a number out of range")
    compared = attrs.evolve(meta, dtype=dtype)
    x, y = (rounded_scalar(rounded_number(o, dtype), compared) for o in (x, y))
    return pointwise(meta, lambda v, w: apply(op, v, w), x, y, dtype=dtype)


def _fits(number: int, dtype: torch.dtype) -> bool:
    info = torch.iinfo(dtype)
    return info.min <= number <= info.max


def _logical(op: str, b: Builder, meta: TensorMeta, x: Operand, y: Operand) -> Lowered:
    return pointwise(meta, lambda v, w: apply(op, truth(v), truth(w)), x, y, dtypes=(None, None))


def _test(op: str, b: Builder, meta: TensorMeta, x: Lowered) -> Lowered:
    if is_float(x.dtype):
        return pointwise(meta, lambda v: apply(op, v), x, dtypes=(None,))
    if op == "signbit":
        raise NotLowered("signbit of integers")
    return pointwise(meta, lambda v: constant(False, torch.bool), x, dtypes=(None,))


for _name, _op in {**FLOAT_UNARY, **SAME_TYPE_UNARY}.items():
    lowering(_name)(partial(_unary, _op, False))
for _name in ROUNDING:
    lowering(_name)(partial(_unary, _name, True))
for _name, _op in ARITHMETIC.items():
    lowering(_name)(partial(_binary, _op))
for _name in COMPARISONS:
    lowering(f"{_name}.Tensor", f"{_name}.Scalar")(partial(_comparison, _name))
for _name, _op in LOGICAL.items():
    lowering(_name)(partial(_logical, _op))
for _name in TESTS:
    lowering(_name)(partial(_test, _name))
lowering("bitwise_left_shift.Tensor_Scalar", "__lshift__.Scalar")(partial(_shift, "shl"))
lowering("bitwise_right_shift.Tensor_Scalar", "__rshift__.Scalar")(partial(_shift, "shr"))


def truth(value: Value) -> Value:
    """value != 0, as bool."""
    return cast(value, torch.bool)


# ---------------------------------------------------------------------- arithmetic with a factor
@lowering("add.Tensor", "add.Scalar")
def _add(b: Builder, meta: TensorMeta, x: Operand, y: Operand, alpha: Scalar = 1) -> Lowered:
    if meta.dtype == torch.bool:
        return pointwise(meta, lambda v, w: apply("or", v, w), x, y if alpha else False)
    return _scaled_sum(meta, lambda v, w: v + w, x, y, alpha)


@lowering("sub.Tensor", "sub.Scalar")
def _sub(b: Builder, meta: TensorMeta, x: Operand, y: Operand, alpha: Scalar = 1) -> Lowered:
    return _scaled_sum(meta, lambda v, w: v - w, x, y, alpha)


def _scaled_sum(
    meta: TensorMeta, total: Callable[[Value, Value], Value], x: Operand, y: Operand, alpha: Scalar
) -> Lowered:
    x, y, factor = (rounded_scalar(o, meta) for o in (x, y, alpha))
    if isinstance(factor, Lowered):
        raise TypeError("a factor is a number")
    # Eager rounds a 16-bit product with alpha where it goes element by element, and not where it goes by vectors.
    return pointwise(meta, lambda v, w: total(v, w if _is_one(factor) else w * factor), x, y)


lowering("rsub.Tensor", "rsub.Scalar")(lambda b, meta, x, y, alpha=1: _sub(b, meta, y, x, alpha))


def _is_one(alpha: Scalar) -> bool:
    return isinstance(alpha, (int, float)) and alpha == 1


@lowering("div.Tensor", "div.Scalar", "true_divide.Tensor")
def _div(b: Builder, meta: TensorMeta, x: Operand, y: Operand) -> Lowered:
    return pointwise(meta, lambda v, w: v / w, rounded_scalar(x, meta), y)


@lowering("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(b: Builder, meta: TensorMeta, x: Operand, y: Operand, rounding_mode: str | None = None) -> Lowered:
    if rounding_mode is None:
        return _div(b, meta, x, y)
    if not is_float(meta.dtype) and not _safe_divisor(meta, y):
        raise NotLowered("integer division raises on zero")
    in_steps = rounding_mode == "trunc" or meta.device.type == "cpu"  # CUDA's floor goes in float32
    if in_steps and compute_dtype(meta.dtype) != meta.dtype and isinstance(y, Lowered):
        return _div_in_steps(meta, x, y, rounding_mode)
    op = {"floor": "floordiv", "trunc": "truncdiv"}[rounding_mode]
    return pointwise(meta, lambda v, w: apply(op, v, w), x, y)


def _div_in_steps(meta: TensorMeta, x: Operand, y: Lowered, rounding_mode: str) -> Lowered:
    """Of a 16-bit type, where eager's kernels round each step: the quotient 26.97 may become 27 before it is truncated."""

    def near(value: Value) -> Value:
        return round_to(value, meta.dtype)

    zero = constant(0.0, torch.float32)

    def floor(v: Value, w: Value) -> Value:  # c10's div_floor_floating
        rest = apply("fmod", v, w)
        quotient = near(near(v - rest) / w)
        other_sign = apply("and", apply("ne", rest, zero), apply("xor", rest < 0, w < 0))
        quotient = where(other_sign, near(quotient - 1), quotient)
        whole = apply("floor", quotient)
        whole = where(quotient - whole > 0.5, near(whole + 1), whole)
        made = where(apply("eq", quotient, zero), apply("copysign", zero, v / w), whole)
        return where(apply("eq", w, zero), v / w, made)

    if rounding_mode == "floor":
        return pointwise(meta, floor, x, y)
    return pointwise(meta, lambda v, w: apply("trunc", near(v / w)), x, y)


lowering("floor_divide")(partial(_div_mode, rounding_mode="floor"))


@lowering("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(b: Builder, meta: TensorMeta, x: Operand, y: Operand) -> Lowered:
    if not is_float(meta.dtype):
        if isinstance(y, int) and 0 <= y <= 3:
            power = y
            return pointwise(meta, lambda v: _product(v, power), x)
        raise NotLowered("integer power")
    x, y = rounded_scalar(x, meta), rounded_scalar(y, meta)
    # Eager's CPU multiplies bfloat16 numbers one by one.
    steps = meta.device.type == "cpu" and meta.dtype == torch.bfloat16

    def near(v: Value) -> Value:
        return round_to(v, meta.dtype) if steps else v

    if isinstance(y, (int, float)):
        special: dict[float, Callable[[Value], Value]] = {
            0.5: lambda v: apply("sqrt", v),
            2.0: lambda v: v * v,
            3.0: lambda v: near(v * v) * v,
            1.0: lambda v: v,
            -0.5: lambda v: apply("rsqrt", v),
            -1.0: lambda v: apply("reciprocal", v),
            -2.0: lambda v: apply("reciprocal", near(v * v)),
        }
        if float(y) in special:
            return pointwise(meta, special[float(y)], x)
    return pointwise(meta, lambda v, w: apply("pow", v, w), x, y)


def _product(v: Value, times: int) -> Value:
    made = constant(1, v.dtype)
    for _ in range(times):
        made = v if made.op == "constant" else made * v
    return made


@lowering("logical_not")
def _logical_not(b: Builder, meta: TensorMeta, x: Operand) -> Lowered:
    return pointwise(meta, lambda v: apply("not", truth(v)), x, dtypes=(None,))


# ---------------------------------------------------------------------- choice and limits
@lowering("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(b: Builder, meta: TensorMeta, condition: Lowered, x: Operand, y: Operand) -> Lowered:
    return pointwise(meta, where, condition, x, y, dtypes=(torch.bool, meta.dtype, meta.dtype))


@lowering("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(b: Builder, meta: TensorMeta, x: Lowered, mask: Lowered, value: Operand) -> Lowered:
    return pointwise(meta, lambda v, m, w: where(m, w, v), x, mask, value, dtypes=(meta.dtype, torch.bool, meta.dtype))


def _limited(op: str, v: Value, limit: Value) -> Value:
    """The `maximum` or `minimum` with a number. Of 0 and -0 backends take the second operand: the element, as eager does."""
    return apply(op, limit, v)


@lowering("clamp", "clamp.Tensor")
def _clamp(
    b: Builder,
    meta: TensorMeta,
    x: Operand,
    low: Operand | None = None,
    high: Operand | None = None,
    *,
    lone_nan: bool = False,
) -> Lowered:
    """`lone_nan`: a limit that is NaN makes everything NaN in every version."""
    if meta.dtype == torch.bool:
        raise NotLowered("clamp of bool")
    if not meta.dtype.is_floating_point and not meta.dtype.is_complex:
        held = torch.iinfo(meta.dtype)
        if any(type(limit) is int and not held.min <= limit <= held.max for limit in (low, high)):
            # Eager saturates such a limit in some versions and wraps it around in others.
            raise NotLowered("a limit of clamp that its dtype cannot hold")
    limits = [(op, limit) for op, limit in (("maximum", low), ("minimum", high)) if limit is not None]
    number = len(limits) == 1 and not isinstance(limits[0][1], Lowered) and is_float(meta.dtype)
    passes_nan = number and not lone_nan and _passes_nan()

    def formula(v: Value, *ends: Value) -> Value:
        for (op, _), end in zip(limits, ends, strict=True):
            limited = _limited(op, v, end) if end.op == "constant" else apply(op, v, end)
            v = where(apply("isnan", end), v, limited) if passes_nan else limited
        return v

    return pointwise(meta, formula, x, *(limit for _, limit in limits))


@functools.cache
def _passes_nan() -> bool:
    """Does eager's `clamp` ignore its only limit if that is the number NaN? In older versions (2.11), where `clamp_min` does not."""
    with _disable_current_modes(), torch.no_grad():
        return not torch.zeros(1, device="cpu").clamp(min=math.nan).isnan().item()


lowering("clamp_min", "clamp_min.Tensor")(partial(_clamp, lone_nan=True))
lowering("clamp_max", "clamp_max.Tensor")(lambda b, meta, x, high: _clamp(b, meta, x, None, high, lone_nan=True))
lowering("hardtanh")(lambda b, meta, x, low=-1, high=1: _clamp(b, meta, x, low, high))


@lowering("nan_to_num")
def _nan_to_num(
    b: Builder,
    meta: TensorMeta,
    x: Operand,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Lowered:
    if not is_float(meta.dtype):
        return pointwise(meta, lambda v: v, x)
    limits = torch.finfo(meta.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf

    def formula(v: Value) -> Value:
        infinite = where(v > 0, constant(high, v.dtype), constant(low, v.dtype))
        number = where(apply("isinf", v), infinite, v)
        return where(apply("isnan", v), constant(0.0 if nan is None else nan, v.dtype), number)

    return pointwise(meta, formula, x)


# ---------------------------------------------------------------------- conversions
@lowering("_to_copy", "prims::convert_element_type")
def _to_copy(b: Builder, meta: TensorMeta, x: Lowered | float, *_: object, **options: object) -> Lowered:
    if isinstance(x, (bool, int, float)):  # functorch converts wrapped numbers
        return full(x, meta)
    if x.device != meta.device:
        raise NotLowered("copy between devices")
    if x.dtype == meta.dtype:
        return Lazy(x.sizes, x.dtype, x.device, x.value)
    if (x.dtype == torch.bool or meta.dtype == torch.bool or x.dtype in _CASTABLE) and meta.dtype in _CASTABLE:
        return Lazy(meta.sizes, meta.dtype, meta.device, lambda p: cast(x.value(p), meta.dtype))
    if x.dtype in EIGHT_BIT_FLOATS and meta.dtype in FLOATS and isinstance(x, Strided) and x.device.type == "cpu":
        return Lazy(meta.sizes, meta.dtype, meta.device, lambda p: cast(x.value(p), meta.dtype))
    raise NotLowered(f"conversion of {x.dtype} to {meta.dtype}")


_CASTABLE = {
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.bool,
}  # fmt: skip


# ---------------------------------------------------------------------- one formula each
def _lerp(start: Value, end: Value, w: Value) -> Value:
    """Anchored at the nearer end, as in eager."""
    near_start = start + w * (end - start)
    near_end = end - (end - start) * (1 - w)
    return where(apply("abs", w) < 0.5, near_start, near_end)


def _silu_backward(g: Value, v: Value) -> Value:
    s = apply("sigmoid", v)
    return g * s * (1 + v * (1 - s))


def _gelu(v: Value, approximate: str = "none") -> Value:
    if approximate == "none":
        return v * 0.5 * (1 + apply("erf", v * math.sqrt(0.5)))
    inner = math.sqrt(2 / math.pi) * (v + 0.044715 * (v * v * v))
    return 0.5 * v * (1 + apply("tanh", inner))


def _gelu_backward(g: Value, v: Value, approximate: str = "none") -> Value:
    if approximate == "none":
        cdf = 0.5 * (1 + apply("erf", v * math.sqrt(0.5)))
        pdf = apply("exp", v * v * -0.5) * (1 / math.sqrt(2 * math.pi))
        return g * (cdf + v * pdf)
    beta, kappa = math.sqrt(2 / math.pi), 0.044715
    t = apply("tanh", beta * (v + kappa * (v * v * v)))
    left = 0.5 * (1 + t)
    right = 0.5 * v * (1 - t * t) * (beta * (1 + 3 * kappa * (v * v)))
    return g * (left + right)


def _elu(v: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Value:
    return where(v > 0, v * scale, apply("expm1", v * input_scale) * (alpha * scale))


def _softplus(v: Value, beta: Scalar = 1, threshold: Number = 20) -> Value:
    scaled = v * beta
    return where(scaled > threshold, v, apply("log1p", apply("exp", scaled)) / beta)


def _relu6(v: Value) -> Value:
    return _limited("minimum", _limited("maximum", v, constant(0, v.dtype)), constant(6, v.dtype))


FORMULAS: dict[str, tuple[int, Callable[..., Value]]] = {
    "square": (1, lambda v: apply("and", v, v) if v.dtype == torch.bool else v * v),
    "addcmul": (3, lambda v, s, t, value=1: v + ((s * t) if _is_one(value) else (s * value) * t)),
    "addcdiv": (3, lambda v, s, t, value=1: v + ((s / t) if _is_one(value) else (s * value) / t)),
    "lerp.Scalar": (3, _lerp),
    "lerp.Tensor": (3, _lerp),
    "relu": (1, lambda v: _limited("maximum", v, constant(0, v.dtype))),
    # A NaN stays a NaN.
    "threshold": (1, lambda v, threshold, value: where(v <= threshold, constant(value, v.dtype), v)),
    "threshold_backward": (2, lambda g, v, threshold: where(v <= threshold, constant(0, g.dtype), g)),
    "hardtanh_backward": (2, lambda g, v, low, high: where(apply("or", v <= low, v >= high), constant(0, g.dtype), g)),
    "leaky_relu": (1, lambda v, slope=0.01: where(v > 0, v, v * slope)),
    "leaky_relu_backward": (2, lambda g, v, slope, is_result: where(v > 0, g, g * slope)),
    "silu": (1, lambda v: v / (1 + apply("exp", -v))),
    "silu_backward": (2, _silu_backward),
    "gelu": (1, _gelu),
    "gelu_backward": (2, _gelu_backward),
    "tanh_backward": (2, lambda g, y: g * (1 - y * y)),
    "sigmoid_backward": (2, lambda g, y: g * (1 - y) * y),
    "elu": (1, _elu),
    "hardsigmoid": (1, lambda v: _relu6(v + 3) / 6),
    "hardswish": (1, lambda v: v * _relu6(v + 3) / 6),
    "softplus": (1, _softplus),
    # mask * scale first: eager multiplies the gradient by that product.
    "native_dropout_backward": (2, lambda g, m, scale: g * (m * scale)),
}
"""How many operands each has, and its formula, which also gets the numbers behind them."""


def _by_formula(
    count: int, formula: Callable[..., Value], b: Builder, meta: TensorMeta, *given: Operand, **options: object
) -> Lowered:
    return pointwise(meta, lambda *values: formula(*values, *given[count:], **options), *given[:count])


for _name, _row in FORMULAS.items():
    lowering(_name)(partial(_by_formula, *_row))


@lowering("native_dropout")
def _native_dropout(
    b: Builder, metas: tuple[TensorMeta, TensorMeta], x: Lowered, p: float, train: bool | None
) -> tuple[Lowered, Lowered]:
    """The library draws the mask, in the order and with the numbers of eager PyTorch; what it is multiplied with joins other kernels.

    Its own product converts the mask, which takes a tenth of the time of drawing it.
    """
    meta, of_mask = metas
    if not train or x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64) or not 0 < p < 1:
        raise NotLowered("not on a CPU, or no numbers are drawn")
    if any(m.strides != contiguous_strides(m.sizes) for m in metas):
        raise NotLowered("numbers are drawn in the order of memory, which is another one")
    aten = torch.ops.aten
    memory = b.extern(aten.empty.memory_format, ([*of_mask.sizes],), {"dtype": of_mask.dtype}, of_mask)
    mask = b.extern(aten.bernoulli.p, (memory, 1.0 - p), {}, of_mask)
    return pointwise(meta, lambda v, m: (v * cast(m, v.dtype)) * (1.0 / (1.0 - p)), x, mask, dtypes=(None, None)), mask


# ---------------------------------------------------------------------- losses that are pointwise
@lowering("mse_loss_backward")
def _mse_loss_backward(b: Builder, meta: TensorMeta, grad: Lowered, x: Lowered, y: Lowered, reduction: int) -> Lowered:
    scale = 2.0
    if reduction == 1:
        count = 1
        for n in x.sizes:
            if n.value is None:
                raise NotLowered("mean over a symbolic size")
            count *= n.value
        scale = 2.0 / count if count else math.nan
    return pointwise(meta, lambda g, v, w: scale * (v - w) * g, grad, x, y)
