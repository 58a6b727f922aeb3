"""The operations that `values.apply` builds, as a table: operands, result, and their meaning as a torch function.

The meaning is on tensors of the operand dtype, element by element; code generators are tested against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import attrs
import torch

from torchjit_inductor.ir.dtypes import is_float, is_int

if TYPE_CHECKING:
    from torchjit_inductor.ir.values import Value

__all__ = ["OPERATIONS", "Operation", "identity", "result_dtype"]


@final
@attrs.frozen
class Operation:
    """One operation.

    Attributes:
        name: what `Value.op` says.
        arity: number of operands, all of one dtype.
        takes: classes of operand dtype: `f` float32/float64, `i` integers, `b` bool.
        gives: `same` as the operands, or `bool`.
        meaning: the torch function that defines it.
    """

    name: str
    arity: int
    takes: str
    gives: str
    meaning: Callable[..., torch.Tensor]


_TABLE: tuple[tuple[str, int, str, str, Callable[..., Any]], ...] = (
    # arithmetic; integers wrap
    ("add", 2, "fi", "same", torch.add),
    ("sub", 2, "fi", "same", torch.sub),
    ("mul", 2, "fi", "same", torch.mul),
    ("div", 2, "f", "same", torch.div),
    ("floordiv", 2, "fi", "same", lambda a, b: torch.div(a, b, rounding_mode="floor")),
    ("truncdiv", 2, "fi", "same", lambda a, b: torch.div(a, b, rounding_mode="trunc")),
    ("remainder", 2, "fi", "same", torch.remainder),  # the divisor's sign
    ("fmod", 2, "fi", "same", torch.fmod),  # the dividend's sign
    ("neg", 1, "fi", "same", torch.neg),
    ("abs", 1, "fi", "same", torch.abs),
    ("sign", 1, "fi", "same", torch.sign),
    ("maximum", 2, "fib", "same", torch.maximum),  # a NaN wins
    ("minimum", 2, "fib", "same", torch.minimum),
    ("fmax", 2, "f", "same", torch.fmax),  # a number wins over a NaN
    ("fmin", 2, "f", "same", torch.fmin),
    ("pow", 2, "fi", "same", torch.pow),
    ("atan2", 2, "f", "same", torch.atan2),
    ("copysign", 2, "f", "same", torch.copysign),
    ("hypot", 2, "f", "same", torch.hypot),
    ("nextafter", 2, "f", "same", torch.nextafter),
    # bits; on bool they are the logical operations
    ("and", 2, "ib", "same", torch.bitwise_and),
    ("or", 2, "ib", "same", torch.bitwise_or),
    ("xor", 2, "ib", "same", torch.bitwise_xor),
    ("not", 1, "ib", "same", torch.bitwise_not),
    ("shl", 2, "i", "same", torch.bitwise_left_shift),
    ("shr", 2, "i", "same", torch.bitwise_right_shift),
    # comparisons
    ("eq", 2, "fib", "bool", torch.eq),
    ("ne", 2, "fib", "bool", torch.ne),
    ("lt", 2, "fib", "bool", torch.lt),
    ("le", 2, "fib", "bool", torch.le),
    ("gt", 2, "fib", "bool", torch.gt),
    ("ge", 2, "fib", "bool", torch.ge),
    ("isnan", 1, "f", "bool", torch.isnan),
    ("isinf", 1, "f", "bool", torch.isinf),
    ("signbit", 1, "fi", "bool", torch.signbit),
    # rounding
    ("floor", 1, "f", "same", torch.floor),
    ("ceil", 1, "f", "same", torch.ceil),
    ("trunc", 1, "f", "same", torch.trunc),
    ("round", 1, "f", "same", torch.round),  # ties to even
    # elementary functions
    ("sqrt", 1, "f", "same", torch.sqrt),
    ("rsqrt", 1, "f", "same", torch.rsqrt),
    ("reciprocal", 1, "f", "same", torch.reciprocal),
    ("exp", 1, "f", "same", torch.exp),
    ("exp2", 1, "f", "same", torch.exp2),
    ("expm1", 1, "f", "same", torch.expm1),
    ("log", 1, "f", "same", torch.log),
    ("log2", 1, "f", "same", torch.log2),
    ("log10", 1, "f", "same", torch.log10),
    ("log1p", 1, "f", "same", torch.log1p),
    ("sin", 1, "f", "same", torch.sin),
    ("cos", 1, "f", "same", torch.cos),
    ("tan", 1, "f", "same", torch.tan),
    ("asin", 1, "f", "same", torch.asin),
    ("acos", 1, "f", "same", torch.acos),
    ("atan", 1, "f", "same", torch.atan),
    ("sinh", 1, "f", "same", torch.sinh),
    ("cosh", 1, "f", "same", torch.cosh),
    ("tanh", 1, "f", "same", torch.tanh),
    ("asinh", 1, "f", "same", torch.asinh),
    ("acosh", 1, "f", "same", torch.acosh),
    ("atanh", 1, "f", "same", torch.atanh),
    ("erf", 1, "f", "same", torch.erf),
    ("erfc", 1, "f", "same", torch.erfc),
    ("lgamma", 1, "f", "same", torch.lgamma),
    ("sigmoid", 1, "f", "same", torch.sigmoid),
)

OPERATIONS: dict[str, Operation] = {row[0]: Operation(*row) for row in _TABLE}


def _kind(dtype: torch.dtype) -> str:
    if is_float(dtype):
        return "f"
    return "i" if is_int(dtype) else "b"


def result_dtype(op: str, args: Sequence[Value]) -> torch.dtype:
    """Check the operands of an operation and give its result's dtype.

    Raises:
        ValueError: unknown operation, wrong number of operands, mixed or unsuitable dtypes.
    """
    found = OPERATIONS.get(op)
    if found is None:
        raise ValueError(f"unknown operation {op!r}")
    dtypes = {a.dtype for a in args}
    if len(args) != found.arity or len(dtypes) != 1:
        raise ValueError(f"{op} takes {found.arity} operands of one dtype, got {[str(a.dtype) for a in args]}")
    dtype = args[0].dtype
    if _kind(dtype) not in found.takes:
        raise ValueError(f"{op} does not take {dtype}")
    return torch.bool if found.gives == "bool" else dtype


def identity(kind: str, dtype: torch.dtype) -> float | int:
    """What leaves a reduction or a scan of a kind unchanged."""
    if kind.endswith(("max", "min")):
        low = kind.endswith("max")
        if is_float(dtype):
            return -math.inf if low else math.inf
        return int(not low) if dtype == torch.bool else torch.iinfo(dtype).min if low else torch.iinfo(dtype).max
    one = int(kind in ("prod", "all"))
    return float(one) if is_float(dtype) else one
