"""The text of each operation of the loop IR in the kernel language.

`accurate` kernels store float32, float64 or integers and follow eager to the last bits; a kernel that stores only
float16 and bfloat16 computes in float32 and may use the GPU's fast float32 functions, whose error is far below the
rounding of the store. The interpreter has no libdevice: `portable` text avoids it where Triton has its own function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import attrs
import torch

from torchjit_inductor.ir.dtypes import is_float, is_int

__all__ = [
    "Dialect",
    "cast_text",
    "joined_text",
    "operation_text",
    "rounded_text",
    "type_name",
    "whole_text",
]

_TYPE_NAMES: dict[torch.dtype, str] = {
    torch.float16: "tl.float16",
    torch.bfloat16: "tl.bfloat16",
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    torch.int8: "tl.int8",
    torch.int16: "tl.int16",
    torch.int32: "tl.int32",
    torch.int64: "tl.int64",
    torch.uint8: "tl.uint8",
    torch.bool: "tl.int1",
    torch.float8_e4m3fn: "tl.float8e4nv",
    torch.float8_e5m2: "tl.float8e5",
}

_INFIX = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_BITS = {torch.int8: 8, torch.int16: 16, torch.int32: 32, torch.int64: 64, torch.uint8: 8}

# Functions of Triton itself, fast ones in float32, that a kernel of half precision may use.
_FAST = {"exp": "tl.exp", "exp2": "tl.exp2", "log": "tl.log", "log2": "tl.log2", "sqrt": "tl.sqrt", "rsqrt": "tl.rsqrt"}
_FASTER = {**_FAST, "erf": "tj.fast_erf", "tanh": "tj.fast_tanh"}
_PORTABLE = {**_FAST, "sin": "tl.sin", "cos": "tl.cos", "erf": "tl.erf", "floor": "tl.floor", "ceil": "tl.ceil"}
_LIBDEVICE = frozenset(
    [
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
        "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "rsqrt", "floor", "ceil", "trunc", "pow",
        "atan2", "copysign", "hypot", "nextafter", "fmod",
    ]
)  # fmt: skip


@final
@attrs.frozen
class Dialect:
    """How to choose between texts of one meaning.

    Attributes:
        accurate: see the module.
        portable: for Triton's interpreter.
        narrow: results of one byte only: so little memory for an element that exact divisions would take longer.
    """

    accurate: bool = True
    portable: bool = False
    narrow: bool = False


def type_name(dtype: torch.dtype) -> str:
    """`tl.float32` ..."""
    return _TYPE_NAMES[dtype]


def operation_text(op: str, dtype: torch.dtype, args: Sequence[str], dialect: Dialect) -> str:
    """An operation on operands of one dtype.

    Args:
        op: a name of `ir.operations`, or `where`.
        dtype: of the operands (of `yes` and `no` for `where`).
        args: their texts, atomic.

    Raises:
        KeyError: the operation has no text.
    """
    if op == "where":
        return f"tl.where({', '.join(args)})"
    if op in _COMPARE:
        if dtype == torch.bool and op not in ("eq", "ne"):
            # A true int1 is -1 when it is compared as signed.
            args = [f"{a}.to(tl.int8)" for a in args]
        return f"{args[0]} {_COMPARE[op]} {args[1]}"
    if op in _INFIX:
        return f"{args[0]} {_INFIX[op]} {args[1]}"
    if is_float(dtype):
        return _float_text(op, dtype, args, dialect)
    return _int_text(op, dtype, args) if is_int(dtype) else _bool_text(op, args)


def _bool_text(op: str, args: Sequence[str]) -> str:
    return {"not": "{0} == 0", "maximum": "{0} | {1}", "minimum": "{0} & {1}"}[op].format(*args)


def _int_text(op: str, dtype: torch.dtype, args: Sequence[str]) -> str:
    signed = dtype != torch.uint8
    texts = {
        "neg": "-{0}",
        "not": "~{0}" if signed else "{0} ^ tl.full([], 255, tl.uint8)",  # whose interpreter inverts by -1
        "abs": "tl.abs({0})" if signed else "{0}",
        "sign": "tj.sign({0})",
        "signbit": "{0} < 0",
        "maximum": "tl.maximum({0}, {1})",
        "minimum": "tl.minimum({0}, {1})",
        "truncdiv": "{0} // {1}",
        "fmod": "{0} % {1}",
        "floordiv": "tj.floor_div({0}, {1})" if signed else "{0} // {1}",
        "remainder": "tj.floor_mod({0}, {1})" if signed else "{0} % {1}",
        "shl": f"tj.shift_left({{0}}, {{1}}, {_BITS[dtype]})",
        "shr": f"tj.shift_right({{0}}, {{1}}, {_BITS[dtype]})",
    }
    return texts[op].format(*args)


def _float_text(op: str, dtype: torch.dtype, args: Sequence[str], dialect: Dialect) -> str:
    exact = dialect.accurate and dtype == torch.float32
    divide = "tl.div_rn({0}, {1})" if exact else "{0} / {1}"
    single = dtype == torch.float32
    texts = {
        "neg": "-{0}",
        "abs": "tl.abs({0})",
        "sign": "tj.sign({0})",
        "isnan": "{0} != {0}",
        "isinf": 'tl.abs({0}) == float("inf")',
        "signbit": "{0}.to(tl.int" + ("32" if single else "64") + ", bitcast=True) < 0",
        "maximum": "tj.maximum({0}, {1})",
        "minimum": "tj.minimum({0}, {1})",
        "fmax": "tl.maximum({0}, {1})",
        "fmin": "tl.minimum({0}, {1})",
        "div": divide,
        "truncdiv": f"libdevice.trunc({divide})",
        "floordiv": "tj.float_floor_div({0}, {1})",
        "remainder": "tj.float_remainder({0}, {1})",
        "reciprocal": divide.format("1.0", "{0}"),
        "round": "tj.whole({0})" if dialect.portable and single else "libdevice.rint({0})",
        "sqrt": "tl.sqrt_rn({0})" if exact else "tl.sqrt({0})",
    }
    if op == "sigmoid":
        divide = "tj.quotient({0}, {1})" if single and not dialect.accurate else divide
        return divide.format("1.0", f"(1.0 + {_function('exp', f'-{args[0]}', dtype, dialect)})")
    if op in texts:
        return texts[op].format(*args)
    return _function(op, ", ".join(args), dtype, dialect)


def _function(op: str, args: str, dtype: torch.dtype, dialect: Dialect) -> str:
    if not dialect.accurate and dtype == torch.float32 and op in _FASTER:
        return f"{_FASTER[op]}({args})"
    if dialect.portable and op in _PORTABLE:
        return f"{_PORTABLE[op]}({args})"
    if op not in _LIBDEVICE:
        raise KeyError(op)
    return f"libdevice.{op}({args})"


def rounded_text(value: str, target: torch.dtype, dialect: Dialect) -> str:
    """The nearest whole number of a float32, the even one of two, as a signed integer."""
    whole = f"tj.whole({value}).to(tl.int32)" if dialect.portable else f"libdevice.float2int_rn({value})"
    return whole if target == torch.int32 else f"{whole}.to({type_name(target)})"


def cast_text(value: str, source: torch.dtype, target: torch.dtype) -> str:
    """Convert between compute dtypes as eager does."""
    if target == torch.bool:
        return f"{value} != 0"
    if is_float(source) and is_int(target) and target not in (torch.int32, torch.int64):
        # Narrow integers take the low bits of a wider conversion, as CUDA C++ does.
        wide = "tl.int64" if target == torch.uint8 else "tl.int32"
        return f"{value}.to({wide}).to({type_name(target)})"
    return f"{value}.to({type_name(target)})"


def joined_text(kind: str, dtype: torch.dtype, a: str, b: str) -> str:
    """Two operands of a reduction or a scan as one."""
    sign = {"sum": "+", "prod": "*", "any": "|", "all": "&"}.get(kind)
    return f"{a} {sign} {b}" if sign else f"{'tj' if is_float(dtype) else 'tl'}.{kind}imum({a}, {b})"


def whole_text(kind: str, dtype: torch.dtype, tile: str, dim: int) -> str:
    """A tile joined along a dimension: `sum`, `prod`, or `max` and `min`, of which a NaN wins."""
    if kind == "prod" or (kind != "sum" and is_float(dtype)):
        return f"tl.reduce({tile}, {dim}, tj.{'product' if kind == 'prod' else f'{kind}imum'})"
    return f"tl.{kind}({tile}, {dim})"
