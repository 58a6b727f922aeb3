"""Index expressions, constants and types as C text."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping

import torch

from torchjit_core.expr import Atom, Expr, Symbol
from torchjit_inductor.indexing import operation_text, written
from torchjit_inductor.ir.dtypes import EIGHT_BIT_FLOATS

__all__ = ["C_TYPES", "STORAGE", "VECTOR", "c_constant", "c_index"]

C_TYPES: dict[torch.dtype, str] = {
    torch.float32: "f32", torch.float64: "f64", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
    torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool",
}  # fmt: skip
"""Types of scalar values."""

STORAGE: dict[torch.dtype, str] = {**C_TYPES, torch.bool: "u8", torch.bfloat16: "u16", torch.float16: "f16"}
STORAGE |= dict.fromkeys(EIGHT_BIT_FLOATS, "u8")
"""Types of buffer elements."""

VECTOR: dict[torch.dtype, str] = {d: f"v{c}" for d, c in C_TYPES.items()} | {torch.bool: "vmask"}
"""Types of vector values."""


def c_index(e: Expr, names: Mapping[Symbol, str] | None = None) -> str:
    """An index expression as C text over 64-bit integers; `names` replaces symbols."""
    names = names or {}
    forms = "i{0}(({1}), ({2}))", "/ %", "floor_{0}(({1}), ({2}))"

    def atom(a: Atom) -> str:
        return names.get(a, a.name) if isinstance(a, Symbol) else operation_text(a, inside, *forms)

    def inside(part: Expr) -> str:
        return c_index(part, names)

    return written(e, atom, lambda n: f"{n}l" if abs(n) > 2**30 else str(n))


def c_constant(value: int | float | bool, dtype: torch.dtype) -> str:
    """A number as a C constant of exactly this value and type."""
    if dtype == torch.bool:
        return "true" if value else "false"
    if dtype not in (torch.float32, torch.float64):
        if value == -(2**63):
            return "(i64)(-9223372036854775807l - 1)"
        return f"(({C_TYPES[dtype]}){int(value)}l)"
    suffix, f = ("f", "f") if dtype == torch.float32 else ("", "")
    number = float(value)
    if dtype == torch.float32:
        number = _single(number)
    if math.isnan(number):
        return f'__builtin_nan{f}("")'
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}__builtin_inf{f}()"
    text = repr(number) if dtype == torch.float64 else _shortest(number)
    if "." not in text and "e" not in text:
        text += ".0"
    return f"({text}{suffix})" if text.startswith("-") else text + suffix


def _shortest(number: float) -> str:
    """The shortest decimal text that reads back as the same float32."""
    for digits in range(1, 10):
        text = f"{number:.{digits}g}"
        if _single(float(text)) == number:
            return text
    return repr(number)


def _single(number: float) -> float:
    """The nearest float32."""
    return ctypes.c_float(number).value
