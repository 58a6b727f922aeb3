"""NumPy's functions by what a capture may do with them, and its scalars, which are constants of the graph."""

from __future__ import annotations

import contextlib
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchjit_fx.leaves import Function, Raw, RawArgs, RawKwargs

__all__ = [
    "FOLDED", "IN_PLACE", "NUMPY_FUNCTIONS", "NUMPY_PURE", "NUMPY_SCALARS", "NUMPY_VALUES", "PLAIN_ATOMS",
    "WRITING", "number_in_scalar", "number_limits", "numpy_module", "plain_number", "plain_numbers",
]  # fmt: skip

numpy_module: Any = None
with contextlib.suppress(ImportError):  # torch works without NumPy, and so do we
    import numpy

    numpy_module = numpy

_np = numpy_module

NUMPY_SCALARS: tuple[type[Any], ...] = ()
"""Types of NumPy's numbers: immutable values."""

NUMPY_VALUES: tuple[type[Any], ...] = ()
"""Those, and the types of dtypes."""

NUMPY_PURE: tuple[Any, ...] = ()
"""Methods of numbers that only compute, and give such numbers or Python's; dtypes and the limits of their numbers."""

PLAIN_ATOMS: frozenset[type] = frozenset({bool, int, float, complex, str, type(None), type(Ellipsis)})
"""Python's constants that NumPy's functions take."""

if _np is not None:
    NUMPY_SCALARS = tuple({t: None for t in _np.sctypeDict.values() if issubclass(t, (_np.number, _np.bool_))})
    NUMPY_VALUES = (*NUMPY_SCALARS, *{type(_np.dtype(t)): None for t in NUMPY_SCALARS})
    _computing = [getattr(_np.generic, n) for n in ("item", "tolist", "astype", "round", "conj", "conjugate")]
    NUMPY_PURE = (*_computing, _np.dtype, _np.finfo, _np.iinfo)

# Functions besides ufuncs that only compute. All others (random numbers, files, error states, callbacks) run for real.
_COMPUTING = (
    "prod", "sum", "max", "min", "amax", "amin", "mean", "median", "std", "var", "any", "all", "argmax", "argmin", "isclose",
    "allclose", "dot", "vdot", "inner", "trace", "round", "around", "ptp", "count_nonzero", "ndim", "size", "array_equal",
    "isscalar", "iscomplexobj", "isrealobj", "clip", "interp", "nan_to_num",
    # makers
    "array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "zeros", "ones", "full", "empty", "zeros_like",
    "ones_like", "full_like", "empty_like", "arange", "linspace", "logspace", "geomspace", "eye", "identity", "tri", "tril", "triu",
    "diag", "diagonal", "diagflat", "vander", "meshgrid", "indices", "tril_indices", "triu_indices", "diag_indices", "ix_", "copy",
    "blackman", "hamming", "hanning", "bartlett", "kaiser",
    # shapes
    "reshape", "ravel", "transpose", "permute_dims", "matrix_transpose", "swapaxes", "moveaxis", "rollaxis", "squeeze", "expand_dims",
    "concatenate", "concat", "stack", "unstack", "vstack", "hstack", "dstack", "column_stack", "block", "split", "array_split",
    "hsplit", "vsplit", "dsplit", "broadcast_to", "broadcast_arrays", "broadcast_shapes", "atleast_1d", "atleast_2d", "atleast_3d",
    "flip", "fliplr", "flipud", "rot90", "roll", "tile", "repeat", "resize", "append", "insert", "delete", "pad", "shape",
    # values
    "where", "take", "take_along_axis", "choose", "compress", "extract", "select", "nonzero", "flatnonzero", "argwhere", "sort",
    "argsort", "lexsort", "partition", "argpartition", "searchsorted", "digitize", "bincount", "histogram", "histogram_bin_edges",
    "unique", "unique_values", "unique_counts", "isin", "union1d", "intersect1d", "setdiff1d", "setxor1d", "unravel_index",
    "ravel_multi_index", "cumsum", "cumprod", "diff", "ediff1d", "gradient", "trapezoid", "trapz", "average", "cov", "corrcoef",
    "percentile", "quantile", "nansum", "nanprod", "nanmean", "nanmax", "nanmin", "nanstd", "nanvar", "nanmedian", "nanargmax",
    "nanargmin", "real", "imag", "angle", "sinc", "i0", "unwrap", "array_equiv", "convolve", "correlate", "cross", "kron", "outer",
    "tensordot", "einsum", "matvec", "vecmat", "polyval", "polyfit", "polyadd", "polymul", "polyder", "polyint", "roots", "poly", "can_cast",
    "promote_types", "result_type", "min_scalar_type", "common_type", "isneginf", "isposinf", "iscomplex", "isreal", "fix",
    "packbits", "unpackbits", "astype",
)  # fmt: skip
_WRITING = ("copyto", "put", "place", "putmask", "fill_diagonal", "put_along_axis")
_METHODS = (
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "astype", "choose", "clip", "compress", "conj", "conjugate", "copy",
    "cumprod", "cumsum", "diagonal", "dot", "flatten", "item", "max", "mean", "min", "nonzero", "prod", "ravel", "repeat", "reshape",
    "round", "searchsorted", "squeeze", "std", "sum", "swapaxes", "take", "tobytes", "tolist", "trace", "transpose", "var", "view",
)  # fmt: skip
_WRITING_METHODS = ("fill", "itemset", "partition", "put", "sort")

IN_PLACE: dict[Any, Any] = {
    getattr(operator, f"i{name.rstrip('_')}"): getattr(operator, name)
    for name in [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "lshift",
        "rshift",
        "xor",
        "and_",
        "or_",
    ]
}
"""In-place operators, and what they compute."""


def _functions() -> frozenset[int]:
    if _np is None:
        return frozenset()
    kinds = (_np.ufunc, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
    spaces = (_np, _np.random, _np.linalg, _np.fft)
    found = {
        id(getattr(value, "__func__", value))
        for space in spaces
        for name, value in vars(space).items()
        if not name.startswith("_") and callable(value) and not isinstance(value, type)
        # functions of C have types of their own: dispatchers of NumPy, functions and methods of Cython
        if isinstance(value, kinds) or type(value).__name__ in ("_ArrayFunctionDispatcher", "cython_function_or_method")
    }
    methods = [v for n, v in vars(_np.ndarray).items() if isinstance(v, types.MethodDescriptorType) and n[0] != "_"]
    return frozenset({*found, *map(id, methods)})


NUMPY_FUNCTIONS: frozenset[int] = _functions()
"""The ids of NumPy's functions and of the methods of arrays, which live as long as the process."""


def _writing() -> frozenset[int]:
    found = [getattr(_np, name) for name in _WRITING if hasattr(_np, name)]
    return frozenset(map(id, found + [getattr(_np.ndarray, n) for n in _WRITING_METHODS if hasattr(_np.ndarray, n)]))


WRITING: frozenset[int] = frozenset() if _np is None else _writing()
"""Functions and methods that change an array."""


def _folded() -> frozenset[int]:
    spaces = [
        v for space in (_np.linalg, _np.fft) for n, v in vars(space).items() if n[0] != "_" and id(v) in NUMPY_FUNCTIONS
    ]
    ufuncs = [v for v in vars(_np).values() if isinstance(v, _np.ufunc)]
    named = [getattr(_np, name) for name in _COMPUTING if hasattr(_np, name)]
    return frozenset(map(id, [*spaces, *ufuncs, *named, *(getattr(_np.ndarray, n) for n in _METHODS)])) | WRITING


FOLDED: frozenset[int] = frozenset() if _np is None else _folded()
"""Functions and methods that only compute, or write to their arguments: of constants, they are evaluated at capture."""


# These take their dtype from a NumPy scalar.
_TYPED = frozenset({torch.tensor, torch.as_tensor, torch.asarray})


def plain_numbers(fn: Function, args: RawArgs, kwargs: RawKwargs) -> tuple[Any, dict[str, Any]] | None:
    """Arguments with Python numbers in the place of NumPy's, where torch makes no difference between them; else None."""
    if fn in _TYPED:
        data = args[0] if args else None
        if not isinstance(data, NUMPY_SCALARS) or len(args) > 1 or isinstance(data, _np.uint64):
            return None
        kwargs = {"dtype": torch.from_numpy(_np.asarray(data)).dtype} | kwargs
        return (data.item(),), kwargs
    if fn is torch.Tensor.new_tensor:
        return None
    assigns = getattr(fn, "__name__", "") in ("setitem", "__setitem__")
    try:
        return tuple([_plain(a, assigns) for a in args]), {k: _plain(v, assigns) for k, v in kwargs.items()}
    except TypeError:
        return None


def _plain(arg: Raw, assigns: bool) -> Raw:
    if isinstance(arg, NUMPY_SCALARS):
        real = isinstance(arg, _np.integer | _np.floating)
        if not real or (assigns and not isinstance(arg, float | _np.integer)):
            raise TypeError(type(arg).__name__)  # torch takes truth values and complex numbers for floats
        return arg.item()
    if type(arg) in (list, tuple):
        return type(arg)([_plain(a, assigns) for a in arg])
    if type(arg) is slice:
        return slice(_plain(arg.start, assigns), _plain(arg.stop, assigns), _plain(arg.step, assigns))
    if type(arg) is dict:
        return {name: _plain(a, assigns) for name, a in arg.items()}
    return arg


def number_in_scalar(scalar: Any) -> Raw:
    """The Python number that a NumPy scalar holds."""
    return scalar.item()


_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_PLAIN_TYPES = frozenset() if _np is None else frozenset({getattr(_np, n) for n in (*_WHOLE, "float32", "float64")})
_ASSIGNED_TYPES = frozenset() if _np is None else _PLAIN_TYPES - {_np.float32}
_OPERATORS = frozenset(
    getattr(operator, prefix + name.rstrip("_"), None) or getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "xor", "and_", "or_")
    for prefix in ("", "i")
) | {operator.getitem, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge}
_CONVERSIONS = frozenset({int, float, *(() if _np is None else (_np.generic.item, _np.generic.tolist))})
_NEW_TENSOR = frozenset({torch.Tensor.new_tensor})


def plain_number(fn: Raw, cls: type, kinds: Sequence[type]) -> Callable[[Any], Any] | None:
    """What makes a Python number of a NumPy scalar where this call makes no difference between them; None if it may make one.

    Args:
        fn: an operator, a function of torch, or a conversion.
        cls: the scalar's type.
        kinds: of the leaves among the arguments: beside an array the scalar's type counts, and beside numbers alone an
            operator gives a NumPy scalar.
    """
    if fn in _CONVERSIONS:
        return number_in_scalar if cls in _PLAIN_TYPES else None
    if cls not in _PLAIN_TYPES or any(not issubclass(kind, (torch.Tensor, int, float)) for kind in kinds):
        return None
    if fn is operator.setitem or fn is torch.Tensor.__setitem__:
        return number_in_scalar if cls in _ASSIGNED_TYPES else None
    if fn in _OPERATORS:
        return number_in_scalar if any(issubclass(kind, torch.Tensor) for kind in kinds) else None
    return number_in_scalar if _is_of_torch(fn) else None


def _is_of_torch(fn: Function) -> bool:
    """Is it an operation on tensors that is written in C and takes a scalar for the number that it holds?"""
    if isinstance(fn, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return True
    if fn in _TYPED or fn in _NEW_TENSOR:
        return False
    if type(fn) is types.BuiltinFunctionType:
        return any(getattr(space, fn.__name__, None) is fn for space in (torch._C._VariableFunctions, torch._C._nn))
    return isinstance(fn, types.MethodDescriptorType | types.WrapperDescriptorType) and issubclass(
        torch.Tensor, fn.__objclass__
    )


def number_limits(cls: type) -> tuple[float, float] | None:
    """The smallest and the largest number of NumPy's types that compute as Python does, as long as none is out of range."""
    if cls not in _PLAIN_TYPES or cls is _np.float32:  # which rounds
        return None
    kind: Raw = float if cls is _np.float64 else int
    limits = _np.finfo(cls) if kind is float else _np.iinfo(cls)
    return kind(limits.min), kind(limits.max)
