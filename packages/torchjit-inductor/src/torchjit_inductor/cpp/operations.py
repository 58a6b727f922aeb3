"""The text of operations of the loop IR on scalar and vector operands, and of conversions from and to memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchjit_inductor.ir.values import Value

__all__ = ["from_storage", "operation_text", "to_storage"]


def from_storage(text: str, dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return f"({text} != 0)"
    if dtype == torch.bfloat16:
        return f"from_bf16({text})"
    return f"(f32){text}" if dtype == torch.float16 else text


def to_storage(text: str, dtype: torch.dtype) -> str:
    if dtype == torch.bfloat16:
        return f"to_bf16({text})"
    return f"(f16){text}" if dtype == torch.float16 else text


_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def operation_text(value: Value, args: Sequence[str], mask: object, vector: bool = False) -> str:
    """An operation of the table on operand texts; `mask` wraps the result of a comparison."""
    as_mask = mask if callable(mask) else str
    op, dtype = value.op, value.args[0].dtype
    if op in _INFIX:
        return f"{args[0]} {_INFIX[op]} {args[1]}"
    if op in _COMPARE and dtype == torch.bool and vector:
        # True is -1 in a mask: the order is turned round.
        a, b = args
        return {"lt": f"~{a} & {b}", "le": f"~{a} | {b}", "gt": f"{a} & ~{b}", "ge": f"{a} | ~{b}",
                "eq": f"~({a} ^ {b})", "ne": f"{a} ^ {b}"}[op]  # fmt: skip
    if op in _COMPARE:
        return str(as_mask(f"{args[0]} {_COMPARE[op]} {args[1]}"))
    if op == "neg":
        return f"-{args[0]}"
    if op == "not":
        return f"!{args[0]}" if dtype == torch.bool and not vector else f"~{args[0]}"
    if op == "isnan":
        return str(as_mask(f"{args[0]} != {args[0]}"))
    if op == "isinf":
        infinity = "__builtin_inff()" if dtype == torch.float32 else "__builtin_inf()"
        return str(as_mask(f"op_abs({args[0]}) == {infinity}"))
    if op == "signbit":
        if vector:
            bits = "vi32" if dtype == torch.float32 else "vi64"
            return str(as_mask(f"(({bits}){args[0]}) < 0"))
        return f"__builtin_signbit({args[0]})"
    if not dtype.is_floating_point:
        if op in ("truncdiv", "fmod"):
            return f"{args[0]} {'/' if op == 'truncdiv' else '%'} {args[1]}"
        if op in ("abs", "floordiv", "remainder"):
            return f"op_{op}_int({', '.join(args)})"
    if op in ("maximum", "minimum") and dtype == torch.bool:
        return f"{args[0]} {'|' if op == 'maximum' else '&'} {args[1]}"
    return f"op_{op}({', '.join(args)})"
