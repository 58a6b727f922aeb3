"""The functions of NumPy that a graph computes, and what it calls for them: torch's own NumPy layer.

Functions are left out where their values differ from NumPy's: see `numpy_rules` for those that differ for some arguments only.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch

__all__ = [
    "COMPUTES", "COUNTING", "KEYWORDS", "OF_COMPLEX", "OPERATORS", "READERS", "SHARED", "VIEWS", "numpy_call",
]  # fmt: skip

COMPUTES = frozenset(
    {
        # element by element
        "negative", "positive", "absolute", "abs", "fabs", "sign", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt",
        "square", "reciprocal", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh",
        "arctanh", "floor", "ceil", "trunc", "rint", "isnan", "isinf", "isfinite", "signbit", "logical_not", "invert", "deg2rad",
        "rad2deg", "degrees", "radians", "add", "subtract", "multiply", "divide", "true_divide", "floor_divide", "remainder", "power",
        "maximum", "minimum", "fmax", "fmin", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and",
        "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "arctan2", "hypot", "copysign", "matmul", "where",
        "clip", "conjugate", "conj",
        # reductions
        "sum", "prod", "mean", "std", "var", "max", "min", "amax", "amin", "argmax", "argmin", "all", "any", "cumsum", "cumprod",
        # products
        "dot", "inner", "vdot", "outer", "tensordot", "trace",
        # makers
        "copy", "zeros_like", "ones_like", "full_like", "concatenate", "stack", "vstack", "hstack", "column_stack", "tile", "repeat",
        "roll", "take", "tril", "triu", "diff", "zeros", "ones", "full", "flatten", "astype", "round", "around",
    }
)  # fmt: skip
"""Their results are new arrays, or scalars."""

VIEWS = frozenset(
    {"reshape", "ravel", "transpose", "swapaxes", "moveaxis", "squeeze", "expand_dims", "atleast_1d", "atleast_2d"}
)
"""Their results have the memory of their argument where its layout allows."""

OF_COMPLEX = frozenset(
    {"add", "subtract", "multiply", "divide", "true_divide", "negative", "positive", "absolute", "abs", "conj", "conjugate", "exp",
     "sum", "matmul", "dot", "copy", "concatenate", "stack", "equal", "not_equal", "astype", *VIEWS}
)  # fmt: skip

COUNTING = frozenset({*VIEWS, "tile", "repeat", "roll", "take", "diff"})
"""Functions that take sizes, counts and places."""

KEYWORDS = frozenset(
    {
        "axis",
        "dtype",
        "keepdims",
        "ddof",
        "axes",
        "decimals",
        "k",
        "n",
        "repeats",
        "reps",
        "shape",
        "fill_value",
        "shift",
    }
)

_METHOD_ONLY = {"flatten": "ravel", "astype": "astype"}

OPERATORS: dict[Any, str] = {
    operator.add: "add", operator.sub: "subtract", operator.mul: "multiply", operator.truediv: "true_divide",
    operator.floordiv: "floor_divide", operator.mod: "remainder", operator.pow: "power", operator.matmul: "matmul",
    operator.and_: "bitwise_and", operator.or_: "bitwise_or", operator.xor: "bitwise_xor", operator.eq: "equal",
    operator.ne: "not_equal", operator.lt: "less", operator.le: "less_equal", operator.gt: "greater", operator.ge: "greater_equal",
    operator.neg: "negative", operator.pos: "positive", operator.invert: "invert", operator.abs: "absolute", abs: "absolute",
    pow: "power",
}  # fmt: skip

READERS = frozenset({float, int, bool, operator.index, operator.truth})

SHARED = frozenset(
    {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
     torch.complex64, torch.complex128}
)  # fmt: skip


@functools.cache
def _layer() -> Any:
    import torch._numpy  # noqa: PLC0415  # a third of a second, for programs that use NumPy

    return torch._numpy


def numpy_call(name: str, *args: Any, **kwargs: Any) -> Any:
    """What a graph calls for a function of NumPy; its arrays are tensors."""
    layer = _layer()

    def array(arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            return layer.ndarray(arg)
        return type(arg)([array(item) for item in arg]) if type(arg) in (list, tuple) else arg

    given = [array(arg) for arg in args]
    if name in _METHOD_ONLY:
        result = getattr(given[0], name)(*given[1:], **kwargs)
    else:
        result = getattr(layer, name)(*given, **kwargs)
    return result.tensor if isinstance(result, layer.ndarray) else result
