"""NumPy's functions on arrays that are tensors of the graph: by torch's own NumPy layer, where that computes what NumPy does.

NumPy says what type and rank a result has, asked with small arrays; where the layer gives another one, or has no such function, the
graph breaks. Functions are left out of the table where values differ: integer powers, divisions that may be by zero, ties of an
unstable sort, views that torch cannot make.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.leaves import SymLeaf, TensorLeaf
from torchjit_fx.numpy_arrays import ArrayLeaf, holds_array, name_of
from torchjit_fx.numpy_calls import IN_PLACE, NUMPY_FUNCTIONS, NUMPY_SCALARS, PLAIN_ATOMS, numpy_module

if TYPE_CHECKING:
    from torchjit_fx.domain import TensorDomain

__all__ = ["array_attribute", "array_rows", "call_arrays", "numpy_call", "of_tensor"]

_np = numpy_module

_COMPUTES = frozenset(
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

_VIEWS = frozenset(
    {"reshape", "ravel", "transpose", "swapaxes", "moveaxis", "squeeze", "expand_dims", "atleast_1d", "atleast_2d"}
)
"""Their results have the memory of their argument where its layout allows."""

_COMPLEX = frozenset(
    {"add", "subtract", "multiply", "divide", "true_divide", "negative", "positive", "absolute", "abs", "conj", "conjugate", "exp",
     "sum", "matmul", "dot", "copy", "concatenate", "stack", "equal", "not_equal", "astype", *_VIEWS}
)  # fmt: skip
_KEYWORDS = frozenset(
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

_OPERATORS: dict[Any, str] = {
    operator.add: "add", operator.sub: "subtract", operator.mul: "multiply", operator.truediv: "true_divide",
    operator.floordiv: "floor_divide", operator.mod: "remainder", operator.pow: "power", operator.matmul: "matmul",
    operator.and_: "bitwise_and", operator.or_: "bitwise_or", operator.xor: "bitwise_xor", operator.eq: "equal",
    operator.ne: "not_equal", operator.lt: "less", operator.le: "less_equal", operator.gt: "greater", operator.ge: "greater_equal",
    operator.neg: "negative", operator.pos: "positive", operator.invert: "invert", operator.abs: "absolute", abs: "absolute",
    pow: "power",
}  # fmt: skip
_READERS = frozenset({float, int, bool, operator.index, operator.truth})


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


def call_arrays(domain: TensorDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], capture: Any) -> Any:
    """A call of a function of NumPy, or of any function that is given an array.

    Raises:
        GraphBreak: it cannot be captured.
    """
    handler = _HANDLERS.get(fn) if _is_hashable(fn) else None
    if handler is not None:
        result = handler(domain, fn, args, kwargs, capture)
        if result is not NotImplemented:
            return result
    if id(fn) not in NUMPY_FUNCTIONS and fn not in _OPERATORS and fn not in IN_PLACE and not _is_python(fn):
        raise GraphBreak(breaks.NUMPY, f"{name_of(fn)} of an array", capture.location())
    folded = domain.arrays.fold(fn, args, kwargs, capture)
    if folded is not NotImplemented:
        return folded
    if domain.recorder.modes.read(("autocast", "cpu")) or torch.get_default_device().type != "cpu":
        raise GraphBreak(breaks.NUMPY, f"{name_of(fn)} under autocast or a default device", capture.location())
    if fn in _READERS or fn in (len, operator.getitem, operator.setitem):
        return _PYTHON[fn](domain, fn, args, capture)
    if fn in IN_PLACE:
        return _in_place(domain, fn, args, capture)
    name = _OPERATORS.get(fn) if id(fn) not in NUMPY_FUNCTIONS else getattr(fn, "__name__", "")
    if name in ("item", "tolist") and len(args) == 1 and not kwargs:
        return domain.call(getattr(torch.Tensor, name), (domain.arrays.tensor(args[0], capture),), {}, capture)
    if (
        fn is operator.pow
        and type(args[1]) is float
        and args[1] == 0.5
        and type(args[0]) is ArrayLeaf
        and _of_floats(domain, args[0], capture)
    ):
        return _graph_call(domain, "sqrt", _np.sqrt, args[:1], {}, capture)  # the operator's way: of -inf it is nan
    return _graph_call(domain, name or "", fn, args, kwargs, capture)


def _is_hashable(fn: Any) -> bool:
    return getattr(type(fn), "__hash__", None) is not None


def _is_python(fn: Any) -> bool:
    return getattr(fn, "__module__", None) in ("builtins", "_operator")


def _refuse(fn: Any, why: str, capture: Any) -> GraphBreak:
    return GraphBreak(breaks.NUMPY, f"{name_of(fn)} {why}", capture.location())


def _graph_call(domain: TensorDomain, name: str, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    if not (name in _COMPUTES or name in _VIEWS) or not _KEYWORDS.issuperset(kwargs):
        raise _refuse(fn, "of an array that depends on a tensor", capture)
    varying = name == "transpose" or name == "reshape"
    if varying and (len(args) > 2 or (len(args) == 2 and type(args[1]) in (int, SymLeaf))):
        args = (args[0], tuple(args[1:]))  # the method's
    args = tuple([_dtype(a) for a in args])
    kwargs = {k: _dtype(v) for k, v in kwargs.items()}
    raw = tuple([_tensors(domain, a, fn, capture) for a in args])
    named = {k: _tensors(domain, v, fn, capture) for k, v in kwargs.items()}
    _check_values(name, fn, args, kwargs, capture)
    if name in _VIEWS:
        result = domain.recorder.call(numpy_call, (name, *raw), named, capture)
        if not isinstance(result, TensorLeaf) or result.record.dtype is not raw[0].record.dtype:
            raise _refuse(fn, "gives another type in torch", capture)
        return domain.arrays.made(result)
    dtype, ndim, scalar = _expected(fn, name, args, kwargs, capture)
    given = {leaf.record.dtype for leaf in _leaves(raw)}
    if dtype.is_floating_point and not any(d.is_floating_point or d.is_complex for d in given):
        raw = tuple(
            [_converted(domain, a, dtype, capture) for a in raw]
        )  # NumPy does so; torch has a default of its own
    result = domain.recorder.call(numpy_call, (name, *raw), named, capture)
    if not isinstance(result, TensorLeaf) or result.record.dtype is not dtype or len(result.record.sizes) != ndim:
        raise _refuse(fn, "gives another type in torch", capture)
    if result.alias or any(result is leaf for leaf in _leaves(raw)):
        result = domain.recorder.call(torch.clone, (result,), {}, capture)
    return domain.arrays.made(result, scalar)


def _converted(domain: TensorDomain, arg: Any, dtype: torch.dtype, capture: Any) -> Any:
    if isinstance(arg, TensorLeaf):
        return domain.recorder.call(torch.Tensor.to, (arg, dtype), {}, capture)
    return type(arg)([_converted(domain, a, dtype, capture) for a in arg]) if type(arg) in (list, tuple) else arg


def _of_floats(domain: TensorDomain, array: ArrayLeaf, capture: Any) -> bool:
    return domain.arrays.tensor(array, capture).record.dtype.is_floating_point


def _leaves(raw: Any) -> list[Any]:
    return [leaf for a in raw for leaf in (a if type(a) in (list, tuple) else (a,)) if isinstance(leaf, TensorLeaf)]


def _expected(fn: Any, name: str, args: Any, kwargs: Any, capture: Any) -> tuple[torch.dtype, int, bool]:
    """Type and rank of NumPy's result, and whether it is a scalar: of arrays with one element, or none, for each dimension."""
    small = tuple([_small(a, name) for a in args])
    named = {k: _small(v, name) for k, v in kwargs.items()}
    try:
        with warnings.catch_warnings(), _np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = fn(*small, **named)
        return _torch_dtype(result.dtype), result.ndim, not isinstance(result, _np.ndarray)
    except Exception as error:  # the run for real shows what it was
        raise _refuse(fn, f": {error}", capture) from error


def _small(arg: Any, name: str) -> Any:
    if type(arg) is ArrayLeaf:
        if arg.leaf is None:
            sizes, dtype = arg.real.shape, arg.real.dtype
        else:
            sizes, dtype = arg.leaf.record.sizes, _numpy_dtype(arg.leaf.record.dtype)
        made = _np.full([0 if n == 0 else 1 for n in sizes], 0 if name == "take" else 1, dtype)
        return made[()] if arg.scalar else made
    if type(arg) is SymLeaf:
        return 1.0 if isinstance(arg.value, torch.SymFloat) else 1
    if type(arg) in (list, tuple):
        return type(arg)([_small(item, name) for item in arg])
    return _numpy_dtype(arg) if isinstance(arg, torch.dtype) else arg


@functools.cache
def _torch_dtype(dtype: Any) -> torch.dtype:
    """
    Raises:
        TypeError: torch has none.
    """
    return torch.from_numpy(_np.empty(0, dtype)).dtype


@functools.cache
def _numpy_dtype(dtype: torch.dtype) -> Any:
    """
    Raises:
        TypeError: NumPy has none.
    """
    return torch.empty(0, dtype=dtype).numpy().dtype


def _dtype(arg: Any) -> Any:
    """A dtype, a type that stands for one, or anything else."""
    if arg is bool or arg is int or arg is float or arg is complex or isinstance(arg, (type, _np.dtype)):
        try:
            return _torch_dtype(_np.dtype(arg))
        except TypeError:
            return arg
    return arg


def _check_values(name: str, fn: Any, args: Any, kwargs: Any, capture: Any) -> None:
    """Refuse what torch computes otherwise than NumPy for some values."""
    arrays = [a for a in args if type(a) is ArrayLeaf]
    dtypes = [a.leaf.record.dtype if a.leaf is not None else _torch_dtype(a.real.dtype) for a in arrays]
    some_complex = any(d.is_complex for d in dtypes) or any(type(a) is complex for a in args)
    if some_complex and (name not in _COMPLEX or not all(d.is_complex for d in dtypes)):
        raise _refuse(fn, "of complex numbers", capture)
    if torch.float16 in dtypes and name in ("sum", "prod", "mean", "std", "var", "cumsum", "cumprod", "matmul", "dot"):
        raise _refuse(fn, "of half precision", capture)
    floating = any(d.is_floating_point for d in dtypes)
    divisor = args[1] if len(args) > 1 else None
    if name in ("floor_divide", "remainder") and not (type(divisor) in (int, float) and divisor):
        raise _refuse(fn, "that may divide by zero", capture)
    if name == "power" and not (floating or (type(divisor) is int and divisor >= 0)):
        raise _refuse(fn, "of integers", capture)
    if name not in _COUNTING and not all(_fits(n, d) for n in args if type(n) is int for d in dtypes):
        raise _refuse(fn, "of a number out of range", capture)
    if name in ("tensordot", "ceil", "floor", "trunc", "subtract") and torch.bool in dtypes:
        raise _refuse(fn, "of truth values", capture)
    if name == "sign" and floating:
        raise _refuse(fn, "of what may be no number", capture)
    asked = [a for a in (*args[1:], *kwargs.values()) if isinstance(a, torch.dtype) and not _is_floating(a)]
    if asked and name != "astype" and (floating or name in ("mean", "std", "var")):
        raise _refuse(fn, "to integers", capture)
    if name == "squeeze" and (len(args) > 1 or kwargs):
        raise _refuse(fn, "of one axis", capture)  # torch leaves one of another size alone
    if name == "power" and type(divisor) is float and abs(divisor) == 0.5:
        raise _refuse(fn, "by a root", capture)
    if name == "reciprocal" and not floating:
        raise _refuse(fn, "of integers", capture)
    if name == "astype" and (floating or len(args) != 2) and not _is_floating(args[-1]):
        raise _refuse(fn, "to integers", capture)  # numbers out of range
    if name == "repeat" and (len(args) < 2 or type(args[1]) is not int):
        raise _refuse(fn, "of arrays", capture)


_COUNTING = frozenset({*_VIEWS, "tile", "repeat", "roll", "take", "diff"})
"""Functions that take sizes, counts and places."""


def _fits(number: int, dtype: torch.dtype) -> bool:
    """NumPy refuses a Python integer that an array of integers cannot hold."""
    if dtype is torch.bool or dtype.is_floating_point or dtype.is_complex:
        return True
    return torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max


def _is_floating(dtype: Any) -> bool:
    return isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype is torch.bool or dtype.is_complex)


def _tensors(domain: TensorDomain, arg: Any, fn: Any, capture: Any) -> Any:
    """The argument for `numpy_call`."""
    if type(arg) is ArrayLeaf:
        return domain.arrays.constant(arg.real, capture) if arg.constant else domain.arrays.tensor(arg, capture)
    if isinstance(arg, NUMPY_SCALARS):  # its type counts
        return domain.recorder.call(torch.full, ((), arg.item()), {"dtype": _torch_dtype(arg.dtype)}, capture)
    if type(arg) in (list, tuple):
        return type(arg)([_tensors(domain, item, fn, capture) for item in arg])
    if type(arg) in PLAIN_ATOMS or type(arg) is SymLeaf or isinstance(arg, torch.dtype):
        return arg
    raise _refuse(fn, f"is given a {type(arg).__name__}", capture)


# ---- operators of Python


def _in_place(domain: TensorDomain, fn: Any, args: Any, capture: Any) -> Any:
    target = args[0]
    result = domain.call(IN_PLACE[fn], args, {}, capture)
    if type(target) is not ArrayLeaf or target.scalar:
        return result
    memory = domain.arrays.tensor(target, capture)
    if (
        type(result) is not ArrayLeaf
        or result.leaf is None
        or not _same_kind(result.leaf.record.dtype, memory.record.dtype)
    ):
        raise _refuse(fn, "of these types", capture)
    domain.recorder.call(torch.Tensor.copy_, (memory, result.leaf), {}, capture)
    return target


def _same_kind(given: torch.dtype, wanted: torch.dtype) -> bool:
    return bool(_np.can_cast(_numpy_dtype(given), _numpy_dtype(wanted), "same_kind"))


def _getitem(domain: TensorDomain, fn: Any, args: Any, capture: Any) -> Any:
    array, index = args
    if type(array) is not ArrayLeaf or array.scalar:
        raise _refuse(fn, "of this", capture)
    leaf = domain.arrays.tensor(array, capture)
    items, advanced = _index(domain, index, False, capture)
    result = domain.recorder.call(operator.getitem, (leaf, items), {}, capture)
    scalar = not advanced and len(items) == len(leaf.record.sizes) and all(type(i) is int for i in items)
    if scalar:
        result = domain.recorder.call(torch.clone, (result,), {}, capture)
    return domain.arrays.made(result, scalar)


def _setitem(domain: TensorDomain, fn: Any, args: Any, capture: Any) -> Any:
    array, index, value = args
    if type(array) is not ArrayLeaf or array.scalar:
        raise _refuse(fn, "of this", capture)
    leaf = domain.arrays.tensor(array, capture)
    plain = type(value) in (int, float, bool) or isinstance(value, NUMPY_SCALARS)
    items, _ = _index(domain, index, plain, capture)
    wanted = leaf.record.dtype
    if type(value) in (int, float, bool):
        kind = torch.float64 if type(value) is float else torch.int64
    else:
        value = _tensors(domain, value, fn, capture)
        kind = value.record.dtype if isinstance(value, TensorLeaf) else torch.complex128
    if type(value) is int and not _fits(value, wanted):
        raise _refuse(fn, "of a number out of range", capture)
    if not (_same_kind(kind, wanted) or (kind is torch.int64 and wanted in (torch.int32, torch.int64))):
        raise _refuse(fn, "of another type", capture)
    domain.recorder.call(operator.setitem, (leaf, items, value), {}, capture)
    return None


def _index(domain: TensorDomain, index: Any, mask_allowed: bool, capture: Any) -> tuple[tuple[Any, ...], bool]:
    """An index for torch, and whether arrays are in it; NumPy and torch differ where numbers stand beside arrays."""
    items: list[Any] = []
    arrays = numbers = 0
    for item in index if type(index) is tuple else (index,):
        if isinstance(item, _np.integer):
            item = int(item)
        if type(item) is int or type(item) is SymLeaf:
            numbers += 1
        elif type(item) is list or type(item) is ArrayLeaf:
            arrays += 1
            found = _index_arrays(domain, item, mask_allowed, capture)
            items.extend(found)
            continue
        elif not (item is None or item is Ellipsis or type(item) is slice):
            raise _refuse(operator.getitem, f"by a {type(item).__name__}", capture)
        items.append(item)
    if arrays and (numbers or (arrays > 1 and any(type(i) is slice or i is None for i in items))):
        raise _refuse(operator.getitem, "by arrays and numbers", capture)
    return tuple(items), bool(arrays)


def _index_arrays(domain: TensorDomain, item: Any, mask_allowed: bool, capture: Any) -> list[Any]:
    """The tensors that index as an array does: of a mask of constants, its places."""
    if type(item) is list:
        item = domain.arrays.fold(_np.array, (item,), {}, capture)
    if type(item) is not ArrayLeaf or item.scalar:
        raise _refuse(operator.getitem, "by this", capture)
    if item.constant:
        real = item.real
        if real.dtype.kind == "b" and real.ndim:
            return [domain.arrays.constant(places, capture) for places in real.nonzero()]
        if real.dtype.kind != "i" or not real.ndim:
            raise _refuse(operator.getitem, f"by an array of {real.dtype}", capture)
        return [domain.arrays.constant(real.astype(_np.int64), capture)]
    leaf = domain.arrays.tensor(item, capture)
    if leaf.record.dtype is torch.bool and mask_allowed:
        return [leaf]
    if leaf.record.dtype not in (torch.int64, torch.int32) or not leaf.record.sizes:
        raise _refuse(operator.getitem, f"by an array of {leaf.record.dtype}", capture)
    return [domain.recorder.call(torch.Tensor.to, (leaf, torch.int64), {}, capture)]


def _read(domain: TensorDomain, fn: Any, args: Any, capture: Any) -> Any:
    return domain.call(fn, (domain.arrays.tensor(args[0], capture),), {}, capture)


_PYTHON: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_READERS, _read),
    len: _read,
    operator.getitem: _getitem,
    operator.setitem: _setitem,
}


def array_rows(domain: TensorDomain, array: ArrayLeaf, capture: Any) -> list[Any]:
    """What iteration gives."""
    if array.constant:
        if not array.real.ndim:
            raise _refuse(iter, "of a 0-d array", capture)
        return [domain.arrays.fold(operator.getitem, (array, i), {}, capture) for i in range(len(array.real))]
    sizes = domain.arrays.tensor(array, capture).record.sizes
    if array.scalar or not sizes or type(sizes[0]) is not int:
        raise _refuse(iter, "of this array", capture)
    return [_getitem(domain, operator.getitem, (array, i), capture) for i in range(sizes[0])]


def array_attribute(domain: TensorDomain, array: ArrayLeaf, name: str, capture: Any) -> Any:
    """An attribute of an array.

    Raises:
        AttributeError: there is none.
        GraphBreak: it cannot be captured.
    """
    if array.constant and name in ("shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides"):
        return getattr(array.real, name)
    if array.constant and name in ("T", "real", "imag"):
        return domain.arrays.array(getattr(array.real, name))
    leaf = domain.arrays.tensor(array, capture)
    if name == "dtype":
        return _numpy_dtype(leaf.record.dtype)
    if name == "ndim":
        return len(leaf.record.sizes)
    if name == "shape":
        return tuple([domain.dimension(leaf, i, capture) for i in range(len(leaf.record.sizes))])
    if name == "size":
        return domain.call(torch.Tensor.numel, (leaf,), {}, capture)
    if name == "itemsize":
        return leaf.record.dtype.itemsize
    if name == "T" and not array.scalar:
        order = tuple(reversed(range(len(leaf.record.sizes))))
        return domain.arrays.made(domain.recorder.call(torch.Tensor.permute, (leaf, order), {}, capture))
    if not hasattr(_np.ndarray, name):
        raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")
    raise GraphBreak(breaks.NUMPY, f"ndarray.{name}", capture.location())


# ---- the border to torch


def of_tensor(domain: TensorDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`tensor.numpy()`, and `np.asarray(tensor)`, which asks the tensor for it."""
    leaf = args[0] if len(args) == 1 and not kwargs else None
    if not isinstance(leaf, TensorLeaf):
        raise _refuse(fn, "of this", capture)
    record = leaf.record
    readable = record.device.type == "cpu" and not record.requires_grad and not record.conj and not record.neg
    if not readable or _np is None or record.dtype not in _SHARED:
        raise GraphBreak(breaks.DATA_DEPENDENT, f"{name_of(fn)} of a tensor of {record.dtype}", capture.location())
    return domain.arrays.of_tensor(leaf, capture)


_SHARED = frozenset(
    {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
     torch.complex64, torch.complex128}
)  # fmt: skip


def _make(domain: TensorDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`np.array`, `np.asarray` of a tensor."""
    if not (args and isinstance(args[0], TensorLeaf)):
        if fn is _np.asarray and len(args) == 1 and not kwargs and type(args[0]) is ArrayLeaf and not args[0].scalar:
            return args[0]
        return NotImplemented
    array = of_tensor(domain, fn, args, kwargs, capture)
    return _graph_call(domain, "copy", _np.copy, (array,), {}, capture) if fn is _np.array else array


def _from_numpy(domain: TensorDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """A tensor on the memory of an array."""
    array = args[0] if len(args) == 1 and not kwargs else None
    if type(array) is not ArrayLeaf or array.scalar:
        return NotImplemented if fn is not torch.from_numpy else _raise(fn, capture)
    first = array.leaf is None
    leaf = domain.arrays.tensor(array, capture)
    return leaf if first else domain.recorder.call(torch.Tensor.detach, (leaf,), {}, capture)


def _tensor(domain: TensorDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`torch.tensor`, `as_tensor`, `asarray` of an array."""
    array = args[0] if len(args) == 1 else None
    if type(array) is not ArrayLeaf or not {"dtype", "device", "requires_grad"}.issuperset(kwargs):
        return _raise(fn, capture) if holds_array(args) or holds_array(tuple(kwargs.values())) else NotImplemented
    if (
        kwargs.get("requires_grad")
        or torch.get_default_device().type != "cpu"
        or ("requires_grad" in kwargs and fn is not torch.tensor)
    ):
        return _raise(fn, capture)
    kwargs = {k: v for k, v in kwargs.items() if k != "requires_grad" and v is not None}
    if fn is not torch.tensor and not array.scalar:
        shared = _from_numpy(domain, torch.from_numpy, (array,), {}, capture)
        return domain.recorder.call(torch.Tensor.to, (shared,), kwargs, capture) if kwargs else shared
    copied = domain.arrays.snapshot(array.real, capture) if array.constant else domain.arrays.tensor(array, capture)
    if not array.constant:
        copied = domain.recorder.call(torch.clone, (copied,), {}, capture)
    return domain.recorder.call(torch.Tensor.to, (copied,), kwargs, capture) if kwargs else copied


def _raise(fn: Any, capture: Any) -> Any:
    raise _refuse(fn, "of this array", capture)


def _subscript(domain: TensorDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """A tensor that is indexed by arrays of constants, as NumPy's arrays are."""
    if not isinstance(args[0], TensorLeaf):
        return NotImplemented
    if not holds_array(args[1]) or any(map(holds_array, args[2:])):
        return _raise(fn, capture)
    items: list[Any] = []
    for item in args[1] if type(args[1]) is tuple else (args[1],):
        if type(item) is ArrayLeaf:
            items.extend(_index_arrays(domain, item, False, capture))
        elif holds_array(item):
            return _raise(fn, capture)
        else:
            items.append(item)
    return domain.call(fn, (args[0], items[0] if len(items) == 1 else tuple(items), *args[2:]), {}, capture)


_HANDLERS: dict[Any, Callable[..., Any]] = {
    torch.from_numpy: _from_numpy,
    torch.tensor: _tensor,
    torch.as_tensor: _tensor,
    torch.asarray: _tensor,
    torch.Tensor.numpy: of_tensor,
    torch.Tensor.__array__: of_tensor,
    operator.getitem: _subscript,
    operator.setitem: _subscript,
}
if _np is not None:
    _HANDLERS.update(dict.fromkeys((_np.array, _np.asarray), _make))
