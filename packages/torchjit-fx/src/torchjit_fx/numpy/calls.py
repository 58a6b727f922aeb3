"""Calls with arrays that are tensors of the graph: `numpy_functions` has the table of what is captured, `numpy_rules` where values agree,
`numpy_indexing` the items. Where torch gives another type, or has no such function, the graph breaks.
"""

from __future__ import annotations

import operator
from typing import Any

import attrs
import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, CallRule, CallRules, call_rule
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.leaves import Function, Raw, RawArgs, SymLeaf, TensorLeaf
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
from torchjit_fx.protocols import CaptureContext

__all__ = ["array_attribute", "array_rows", "call_arrays", "of_tensor"]

_np = numpy_module
array_rule = CallRules()
"""The rules of calls that are given an array, before NumPy computes with constants."""


def call_arrays(call: Call) -> Raw:
    """A call of a function of NumPy, or of any function that is given an array.

    Raises:
        GraphBreak: it cannot be captured.
    """
    fn, arrays = call.function, call.domain.of(Arrays)
    is_hashable = getattr(type(fn), "__hash__", None) is not None
    handler = array_rule.get(fn) if is_hashable else None
    if handler is not None:
        result = handler(call)
        if result is not NotImplemented:
            return result
    of_numpy = id(fn) in NUMPY_FUNCTIONS
    if not (of_numpy or fn in OPERATORS or fn in IN_PLACE or _is_python(fn)):
        raise call.broken(breaks.NUMPY, f"{name_of(fn)} of an array")
    folded = arrays.fold(fn, call.args, call.kwargs, call.capture)
    if folded is not NotImplemented:
        return folded
    if call.domain.recorder.modes.read(("autocast", "cpu")) or torch.get_default_device().type != "cpu":
        raise call.broken(breaks.NUMPY, f"{name_of(fn)} under autocast or a default device")
    python = _PYTHON.get(fn) if is_hashable else None
    if python is not None:
        return python(call)
    return _compute(getattr(fn, "__name__", "") if of_numpy else OPERATORS.get(fn, ""), call)


def _compute(name: str, call: Call) -> Raw:
    if name in ("item", "tolist") and len(call.args) == 1 and not call.kwargs:
        return call.do(getattr(torch.Tensor, name), (call.domain.of(Arrays).tensor(call.args[0], call.capture),))
    if call.function is operator.pow and _is_root(call):
        return _graph_call("sqrt", attrs.evolve(call, function=_np.sqrt, args=call.args[:1], kwargs={}))
    return _graph_call(name, call)


def _is_root(call: Call) -> bool:
    """Is it `x ** 0.5` of floats? The operator takes another way than `power`: of -inf it is nan."""
    base, exponent = call.args
    if type(exponent) is not float or exponent != 0.5 or type(base) is not ArrayLeaf:
        return False
    return bool(call.domain.of(Arrays).tensor(base, call.capture).record.dtype.is_floating_point)


def _is_python(fn: Function) -> bool:
    return getattr(fn, "__module__", None) in ("builtins", "_operator")


def _graph_call(name: str, call: Call) -> Raw:
    """Record a call of a function that NumPy and torch's NumPy layer have under one name."""
    fn, domain, capture = call.function, call.domain, call.capture
    if not (name in COMPUTES or name in VIEWS) or not KEYWORDS.issuperset(call.kwargs):
        raise refuse(fn, _why_not(fn), capture)
    args = _plain_arguments(name, call.args)
    kwargs = {k: numpy_or_torch_dtype(v) for k, v in call.kwargs.items()}
    raw = tuple([tensors_of(domain, a, fn, capture) for a in args])
    named = {k: tensors_of(domain, v, fn, capture) for k, v in kwargs.items()}
    check_values(name, fn, args, kwargs, capture)
    if name in VIEWS:
        view = domain.recorder.call(numpy_call, (name, *raw), named, capture)
        return domain.of(Arrays).made(_of_type(view, raw[0].record.dtype, None, fn, capture))
    dtype, ndim, scalar = expected(fn, name, args, kwargs, capture)
    if dtype.is_floating_point and not any(_is_inexact(leaf.record.dtype) for leaf in _leaves(raw)):
        # NumPy does so; torch has a default of its own.
        raw = tuple([_converted(domain, a, dtype, capture) for a in raw])
    result = _of_type(domain.recorder.call(numpy_call, (name, *raw), named, capture), dtype, ndim, fn, capture)
    if result.alias or any(result is leaf for leaf in _leaves(raw)):
        result = domain.recorder.call(torch.clone, (result,), {}, capture)
    return domain.of(Arrays).made(result, scalar)


def _why_not(fn: Function) -> str:
    """Why a function is in no graph."""
    drawn = name_of(fn).startswith(("RandomState.", "Generator."))
    return "draws a random number" if drawn else "has no counterpart in a graph"


def _plain_arguments(name: str, args: RawArgs) -> RawArgs:
    """The arguments, with types as torch has them, and the numbers that the method takes one by one as a tuple."""
    apart = len(args) > 2 or (len(args) == 2 and type(args[1]) in (int, SymLeaf))
    given = (args[0], tuple(args[1:])) if apart and name in ("transpose", "reshape") else args
    return tuple([numpy_or_torch_dtype(a) for a in given])


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _of_type(result: Raw, dtype: torch.dtype, ndim: int | None, fn: Function, capture: CaptureContext) -> TensorLeaf:
    """Raises GraphBreak if this is no tensor of this type and rank."""
    leaf = result if isinstance(result, TensorLeaf) and result.record.dtype is dtype else None
    if leaf is None or (ndim is not None and len(leaf.record.sizes) != ndim):
        raise refuse(fn, "gives another type in torch", capture)
    return leaf


def _converted(domain: CallDomain, arg: Raw, dtype: torch.dtype, capture: CaptureContext) -> Raw:
    if isinstance(arg, TensorLeaf):
        return domain.recorder.call(torch.Tensor.to, (arg, dtype), {}, capture)
    return type(arg)([_converted(domain, a, dtype, capture) for a in arg]) if type(arg) in (list, tuple) else arg


def _leaves(raw: Raw) -> list[Raw]:
    return [leaf for a in raw for leaf in (a if type(a) in (list, tuple) else (a,)) if isinstance(leaf, TensorLeaf)]


# ---- operators of Python


def _in_place(call: Call) -> Raw:
    target = call.args[0]
    result = call.do(IN_PLACE[call.function], call.args)
    if type(target) is not ArrayLeaf or target.scalar:
        return result
    memory = call.domain.of(Arrays).tensor(target, call.capture)
    leaf = result.leaf if type(result) is ArrayLeaf else None
    if leaf is None or not same_kind(leaf.record.dtype, memory.record.dtype):
        raise refuse(call.function, "of these types", call.capture)
    call.record(torch.Tensor.copy_, (memory, leaf))
    return target


def _read(call: Call) -> Raw:
    return call.do(call.function, (call.domain.of(Arrays).tensor(call.args[0], call.capture),))


_PYTHON: dict[Any, CallRule] = {
    **dict.fromkeys(IN_PLACE, _in_place),
    **dict.fromkeys((*READERS, len), _read),
    operator.getitem: getitem,
    operator.setitem: setitem,
}


def array_rows(domain: CallDomain, array: ArrayLeaf, capture: CaptureContext) -> list[Raw]:
    """What iteration gives."""
    if array.constant:
        if not array.real.ndim:
            raise refuse(iter, "of a 0-d array", capture)
        return [domain.of(Arrays).fold(operator.getitem, (array, i), {}, capture) for i in range(len(array.real))]
    sizes = domain.of(Arrays).tensor(array, capture).record.sizes
    if array.scalar or not sizes or type(sizes[0]) is not int:
        raise refuse(iter, "of this array", capture)
    return [getitem(Call(operator.getitem, (array, i), {}, domain, capture)) for i in range(sizes[0])]


def array_attribute(domain: CallDomain, array: ArrayLeaf, name: str, capture: CaptureContext) -> Raw:
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


@call_rule(torch.Tensor.numpy, torch.Tensor.__array__)
@array_rule(torch.Tensor.numpy, torch.Tensor.__array__)
def of_tensor(call: Call) -> Raw:
    """`tensor.numpy()`, and `np.asarray(tensor)`, which asks the tensor for it."""
    leaf = call.args[0] if len(call.args) == 1 and not call.kwargs else None
    if not isinstance(leaf, TensorLeaf):
        raise refuse(call.function, "of this", call.capture)
    record = leaf.record
    readable = record.device.type == "cpu" and not record.requires_grad and not record.conj and not record.neg
    if not readable or _np is None or record.dtype not in SHARED:
        raise call.broken(breaks.DATA_DEPENDENT, f"{name_of(call.function)} of a tensor of {record.dtype}")
    return call.domain.of(Arrays).made(call.record(torch.Tensor.detach, (leaf,)))


@array_rule(*(() if _np is None else (_np.array, _np.asarray)))
def _make(call: Call) -> Raw:
    """`np.array`, `np.asarray` of a tensor."""
    if call.args and isinstance(call.args[0], TensorLeaf):
        array = of_tensor(call)
        copies = call.function is _np.array
        return _graph_call("copy", attrs.evolve(call, function=_np.copy, args=(array,), kwargs={})) if copies else array
    array = call.args[0] if call.function is _np.asarray and len(call.args) == 1 and not call.kwargs else None
    return array if type(array) is ArrayLeaf and not array.scalar else NotImplemented


@array_rule(torch.from_numpy)
def _from_numpy(call: Call) -> Raw:
    """A tensor on the memory of an array."""
    array = call.args[0] if len(call.args) == 1 and not call.kwargs else None
    if type(array) is not ArrayLeaf or array.scalar:
        return NotImplemented if call.function is not torch.from_numpy else _raise(call)
    first = array.leaf is None
    leaf = call.domain.of(Arrays).tensor(array, call.capture)
    return leaf if first else call.record(torch.Tensor.detach, (leaf,))


@array_rule(torch.tensor, torch.as_tensor, torch.asarray)
def _tensor(call: Call) -> Raw:
    """`torch.tensor`, `as_tensor`, `asarray` of an array."""
    kwargs, copies = call.kwargs, call.function is torch.tensor
    array = call.args[0] if len(call.args) == 1 else None
    if type(array) is not ArrayLeaf or not {"dtype", "device", "requires_grad"}.issuperset(kwargs):
        return _raise(call) if holds_array((*call.args, *kwargs.values())) else NotImplemented
    of_leaf = kwargs.get("requires_grad") or ("requires_grad" in kwargs and not copies)
    if of_leaf or torch.get_default_device().type != "cpu":
        return _raise(call)
    kwargs = {k: v for k, v in kwargs.items() if k != "requires_grad" and v is not None}
    if not copies and not array.scalar:
        result = _from_numpy(attrs.evolve(call, function=torch.from_numpy, args=(array,), kwargs={}))
    elif array.constant:
        result = call.domain.of(Arrays).snapshot(array.real, call.capture)
    else:
        result = call.record(torch.clone, (call.domain.of(Arrays).tensor(array, call.capture),))
    return call.record(torch.Tensor.to, (result,), kwargs) if kwargs else result


def _raise(call: Call) -> Raw:
    raise refuse(call.function, "of this array", call.capture)


@array_rule(operator.getitem, operator.setitem, on=TensorLeaf)
def _subscript(call: Call) -> Raw:
    """A tensor that is indexed by arrays of constants, as NumPy's arrays are."""
    if not holds_array(call.args[1]) or any(map(holds_array, call.args[2:])):
        return _raise(call)
    items: list[Raw] = []
    for item in call.args[1] if type(call.args[1]) is tuple else (call.args[1],):
        if type(item) is ArrayLeaf:
            items.extend(index_arrays(call.domain, item, False, call.capture))
        elif holds_array(item):
            return _raise(call)
        else:
            items.append(item)
    return call.do(call.function, (call.args[0], items[0] if len(items) == 1 else tuple(items), *call.args[2:]))
