"""Calls with arrays that are tensors of the graph: `numpy_functions` has the table of what is captured, `numpy_rules` where values agree,
`numpy_indexing` the items. Where torch gives another type, or has no such function, the graph breaks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.leaves import SymLeaf, TensorLeaf
from torchjit_fx.numpy.arrays import ArrayLeaf, Arrays, holds_array, name_of
from torchjit_fx.numpy.checks import (
    check_values,
    expected,
    numpy_dtype,
    numpy_or_torch_dtype,
    refuse,
    same_kind,
    tensors_of,
)
from torchjit_fx.numpy.facts import IN_PLACE, NUMPY_FUNCTIONS, numpy_module
from torchjit_fx.numpy.functions import COMPUTES, KEYWORDS, OPERATORS, READERS, SHARED, VIEWS, numpy_call
from torchjit_fx.numpy.indexing import getitem, index_arrays, setitem

__all__ = ["array_attribute", "array_rows", "call_arrays", "of_tensor"]

_np = numpy_module


def call_arrays(domain: CallDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], capture: Any) -> Any:
    """A call of a function of NumPy, or of any function that is given an array.

    Raises:
        GraphBreak: it cannot be captured.
    """
    handler = _HANDLERS.get(fn) if _is_hashable(fn) else None
    if handler is not None:
        result = handler(domain, fn, args, kwargs, capture)
        if result is not NotImplemented:
            return result
    if id(fn) not in NUMPY_FUNCTIONS and fn not in OPERATORS and fn not in IN_PLACE and not _is_python(fn):
        raise GraphBreak(breaks.NUMPY, f"{name_of(fn)} of an array", capture.location())
    folded = domain.of(Arrays).fold(fn, args, kwargs, capture)
    if folded is not NotImplemented:
        return folded
    if domain.recorder.modes.read(("autocast", "cpu")) or torch.get_default_device().type != "cpu":
        raise GraphBreak(breaks.NUMPY, f"{name_of(fn)} under autocast or a default device", capture.location())
    if fn in READERS or fn in (len, operator.getitem, operator.setitem):
        return _PYTHON[fn](domain, fn, args, capture)
    if fn in IN_PLACE:
        return _in_place(domain, fn, args, capture)
    name = OPERATORS.get(fn) if id(fn) not in NUMPY_FUNCTIONS else getattr(fn, "__name__", "")
    if name in ("item", "tolist") and len(args) == 1 and not kwargs:
        return domain.call(getattr(torch.Tensor, name), (domain.of(Arrays).tensor(args[0], capture),), {}, capture)
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


def _graph_call(domain: CallDomain, name: str, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    if not (name in COMPUTES or name in VIEWS) or not KEYWORDS.issuperset(kwargs):
        raise refuse(fn, "of an array that depends on a tensor", capture)
    varying = name == "transpose" or name == "reshape"
    if varying and (len(args) > 2 or (len(args) == 2 and type(args[1]) in (int, SymLeaf))):
        args = (args[0], tuple(args[1:]))  # the method's
    args = tuple([numpy_or_torch_dtype(a) for a in args])
    kwargs = {k: numpy_or_torch_dtype(v) for k, v in kwargs.items()}
    raw = tuple([tensors_of(domain, a, fn, capture) for a in args])
    named = {k: tensors_of(domain, v, fn, capture) for k, v in kwargs.items()}
    check_values(name, fn, args, kwargs, capture)
    if name in VIEWS:
        result = domain.recorder.call(numpy_call, (name, *raw), named, capture)
        if not isinstance(result, TensorLeaf) or result.record.dtype is not raw[0].record.dtype:
            raise refuse(fn, "gives another type in torch", capture)
        return domain.of(Arrays).made(result)
    dtype, ndim, scalar = expected(fn, name, args, kwargs, capture)
    given = {leaf.record.dtype for leaf in _leaves(raw)}
    if dtype.is_floating_point and not any(d.is_floating_point or d.is_complex for d in given):
        raw = tuple(
            [_converted(domain, a, dtype, capture) for a in raw]
        )  # NumPy does so; torch has a default of its own
    result = domain.recorder.call(numpy_call, (name, *raw), named, capture)
    if not isinstance(result, TensorLeaf) or result.record.dtype is not dtype or len(result.record.sizes) != ndim:
        raise refuse(fn, "gives another type in torch", capture)
    if result.alias or any(result is leaf for leaf in _leaves(raw)):
        result = domain.recorder.call(torch.clone, (result,), {}, capture)
    return domain.of(Arrays).made(result, scalar)


def _converted(domain: CallDomain, arg: Any, dtype: torch.dtype, capture: Any) -> Any:
    if isinstance(arg, TensorLeaf):
        return domain.recorder.call(torch.Tensor.to, (arg, dtype), {}, capture)
    return type(arg)([_converted(domain, a, dtype, capture) for a in arg]) if type(arg) in (list, tuple) else arg


def _of_floats(domain: CallDomain, array: ArrayLeaf, capture: Any) -> bool:
    return domain.of(Arrays).tensor(array, capture).record.dtype.is_floating_point


def _leaves(raw: Any) -> list[Any]:
    return [leaf for a in raw for leaf in (a if type(a) in (list, tuple) else (a,)) if isinstance(leaf, TensorLeaf)]


# ---- operators of Python


def _in_place(domain: CallDomain, fn: Any, args: Any, capture: Any) -> Any:
    target = args[0]
    result = domain.call(IN_PLACE[fn], args, {}, capture)
    if type(target) is not ArrayLeaf or target.scalar:
        return result
    memory = domain.of(Arrays).tensor(target, capture)
    if (
        type(result) is not ArrayLeaf
        or result.leaf is None
        or not same_kind(result.leaf.record.dtype, memory.record.dtype)
    ):
        raise refuse(fn, "of these types", capture)
    domain.recorder.call(torch.Tensor.copy_, (memory, result.leaf), {}, capture)
    return target


def _read(domain: CallDomain, fn: Any, args: Any, capture: Any) -> Any:
    return domain.call(fn, (domain.of(Arrays).tensor(args[0], capture),), {}, capture)


_PYTHON: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(READERS, _read),
    len: _read,
    operator.getitem: getitem,
    operator.setitem: setitem,
}


def array_rows(domain: CallDomain, array: ArrayLeaf, capture: Any) -> list[Any]:
    """What iteration gives."""
    if array.constant:
        if not array.real.ndim:
            raise refuse(iter, "of a 0-d array", capture)
        return [domain.of(Arrays).fold(operator.getitem, (array, i), {}, capture) for i in range(len(array.real))]
    sizes = domain.of(Arrays).tensor(array, capture).record.sizes
    if array.scalar or not sizes or type(sizes[0]) is not int:
        raise refuse(iter, "of this array", capture)
    return [getitem(domain, operator.getitem, (array, i), capture) for i in range(sizes[0])]


def array_attribute(domain: CallDomain, array: ArrayLeaf, name: str, capture: Any) -> Any:
    """An attribute of an array.

    Raises:
        AttributeError: there is none.
        GraphBreak: it cannot be captured.
    """
    if array.constant and name in ("shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides"):
        return getattr(array.real, name)
    if array.constant and name in ("T", "real", "imag"):
        return domain.of(Arrays).array(getattr(array.real, name))
    leaf = domain.of(Arrays).tensor(array, capture)
    if name == "dtype":
        return numpy_dtype(leaf.record.dtype)
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
        return domain.of(Arrays).made(domain.recorder.call(torch.Tensor.permute, (leaf, order), {}, capture))
    if not hasattr(_np.ndarray, name):
        raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")
    raise GraphBreak(breaks.NUMPY, f"ndarray.{name}", capture.location())


# ---- the border to torch


def of_tensor(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`tensor.numpy()`, and `np.asarray(tensor)`, which asks the tensor for it."""
    leaf = args[0] if len(args) == 1 and not kwargs else None
    if not isinstance(leaf, TensorLeaf):
        raise refuse(fn, "of this", capture)
    record = leaf.record
    readable = record.device.type == "cpu" and not record.requires_grad and not record.conj and not record.neg
    if not readable or _np is None or record.dtype not in SHARED:
        raise GraphBreak(breaks.DATA_DEPENDENT, f"{name_of(fn)} of a tensor of {record.dtype}", capture.location())
    return domain.of(Arrays).of_tensor(leaf, capture)


def _make(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`np.array`, `np.asarray` of a tensor."""
    if not (args and isinstance(args[0], TensorLeaf)):
        if fn is _np.asarray and len(args) == 1 and not kwargs and type(args[0]) is ArrayLeaf and not args[0].scalar:
            return args[0]
        return NotImplemented
    array = of_tensor(domain, fn, args, kwargs, capture)
    return _graph_call(domain, "copy", _np.copy, (array,), {}, capture) if fn is _np.array else array


def _from_numpy(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """A tensor on the memory of an array."""
    array = args[0] if len(args) == 1 and not kwargs else None
    if type(array) is not ArrayLeaf or array.scalar:
        return NotImplemented if fn is not torch.from_numpy else _raise(fn, capture)
    first = array.leaf is None
    leaf = domain.of(Arrays).tensor(array, capture)
    return leaf if first else domain.recorder.call(torch.Tensor.detach, (leaf,), {}, capture)


def _tensor(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
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
    copied = (
        domain.of(Arrays).snapshot(array.real, capture) if array.constant else domain.of(Arrays).tensor(array, capture)
    )
    if not array.constant:
        copied = domain.recorder.call(torch.clone, (copied,), {}, capture)
    return domain.recorder.call(torch.Tensor.to, (copied,), kwargs, capture) if kwargs else copied


def _raise(fn: Any, capture: Any) -> Any:
    raise refuse(fn, "of this array", capture)


def _subscript(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """A tensor that is indexed by arrays of constants, as NumPy's arrays are."""
    if not isinstance(args[0], TensorLeaf):
        return NotImplemented
    if not holds_array(args[1]) or any(map(holds_array, args[2:])):
        return _raise(fn, capture)
    items: list[Any] = []
    for item in args[1] if type(args[1]) is tuple else (args[1],):
        if type(item) is ArrayLeaf:
            items.extend(index_arrays(domain, item, False, capture))
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
