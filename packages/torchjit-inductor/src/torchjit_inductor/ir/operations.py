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
    ("pow", 2, "f", "same", torch.pow),
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
    *((name, 2, "fib", "bool", getattr(torch, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    *((name, 1, "f", "bool", getattr(torch, name)) for name in ("isnan", "isinf")),
    ("signbit", 1, "fi", "bool", torch.signbit),
    # rounding (`round`: ties to even), elementary functions
    *((name, 1, "f", "same", getattr(torch, name)) for name in (
        "floor", "ceil", "trunc", "round", "sqrt", "rsqrt", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
        "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "sigmoid",
    )),
)  # fmt: skip

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
