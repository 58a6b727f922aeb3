"""The text of operations of the loop IR on scalar and vector operands, and of conversions from and to memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from torchjit_inductor.ir.dtypes import EIGHT_BIT_FLOATS
from torchjit_inductor.ir.values import Value

__all__ = ["from_storage", "mantissa_bits", "operation_text", "to_storage"]


def from_storage(text: str, dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return f"({text} != 0)"
    if dtype == torch.bfloat16:
        return f"from_bf16({text})"
    if dtype in EIGHT_BIT_FLOATS:
        return f"from_f8<{mantissa_bits(dtype)}>({text})"
    return f"(f32){text}" if dtype == torch.float16 else text


def to_storage(text: str, dtype: torch.dtype) -> str:
    if dtype == torch.bfloat16:
        return f"to_bf16({text})"
    return f"(f16){text}" if dtype == torch.float16 else text


def mantissa_bits(dtype: torch.dtype) -> int:
    """Of a floating type, as stored."""
    return -round(math.log2(torch.finfo(dtype).eps))


_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_TESTS = frozenset(("isnan", "isinf", "signbit"))

_ON_ALL = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "and": "{0} & {1}", "or": "{0} | {1}",
    "xor": "{0} ^ {1}", "shl": "{0} << {1}", "shr": "{0} >> {1}", "neg": "-{0}", "not": "~{0}",
}  # fmt: skip
_ON_INTEGERS = {
    **_ON_ALL, "truncdiv": "{0} / {1}", "fmod": "{0} % {1}", "abs": "op_abs_int({0})", "floordiv": "op_floordiv_int({0}, {1})",
    "remainder": "op_remainder_int({0}, {1})",
}  # fmt: skip
_ON_BOOLS = {**_ON_INTEGERS, "not": "!{0}", "maximum": "{0} | {1}", "minimum": "{0} & {1}"}
# True is -1 in a mask: the order is turned round.
_ON_MASKS = {
    **_ON_BOOLS, "not": "~{0}", "lt": "~{0} & {1}", "le": "~{0} | {1}", "gt": "{0} & ~{1}", "ge": "{0} | ~{1}", "eq": "~({0} ^ {1})",
    "ne": "{0} ^ {1}",
}  # fmt: skip
"""Texts of operations on operands of any dtype, or of one kind; what is not there is a function of its name."""


def operation_text(value: Value, args: Sequence[str], mask: Callable[[str], str], vector: bool = False) -> str:
    """An operation of the table on operand texts; `mask` wraps the result of a comparison."""
    op, dtype = value.op, value.args[0].dtype
    if op in _TESTS:
        return _test_text(op, dtype, args[0], mask, vector)
    if op in _COMPARE and not (dtype == torch.bool and vector):
        return mask(f"{args[0]} {_COMPARE[op]} {args[1]}")
    if dtype == torch.bool:
        texts = _ON_MASKS if vector else _ON_BOOLS
    else:
        texts = _ON_ALL if dtype.is_floating_point else _ON_INTEGERS
    return texts[op].format(*args) if op in texts else f"op_{op}({', '.join(args)})"


def _test_text(op: str, dtype: torch.dtype, operand: str, mask: Callable[[str], str], vector: bool) -> str:
    single = dtype == torch.float32
    if op == "isnan":
        return mask(f"{operand} != {operand}")
    if op == "isinf":
        return mask(f"op_abs({operand}) == __builtin_inf{'f' if single else ''}()")
    if vector:
        return mask(f"(({'vi32' if single else 'vi64'}){operand}) < 0")
    return f"__builtin_signbit({operand})"
