"""What eager refuses and fake tensors accept: dtypes that an operation has no kernel for, or checks for in C++ only.

`1.5 - mask` and `mask.abs()` raise in eager, as do a layer norm with weights of another dtype and a softmax over a
dimension that is not there, or a negative `beta`; torch's metadata functions return a tensor, sometimes of another dtype. So operations that can do with tensors of one
element run once for real, on such tensors, for each combination of dtypes and numbers. What the kernels support depends
on the device: for other devices than the CPU they run on `meta` tensors, which have the checks that all devices share.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

from torchjit_core.forks import caught_warnings
from torchjit_fx.eager_rules.rule import OperatorCall, Overload, Value

__all__ = ["at_capture", "is_elementwise", "kernel_dtype", "refuse_dtypes", "refuse_other_dtype"]

_ABOUT_ARGUMENTS = re.compile(
    r"not implemented for '|dtype|scalar type|result type|[Bb]ool|complex|nteg|floating|long tensor|cannot be converted|Dimension out of range|used as indices"
    r"|negative values for|non-positive values for|must be in range|alpha cannot be|ound should be|>= 0|positive value"
)
_LIMIT = 10_000
_accepted: dict[Any, torch.dtype | None] = {}

_OF_WINDOWS = frozenset({"groups", "kernel_size", "stride", "dilation", "output_size"})
_PADDING = frozenset({"padding", "output_padding"})


def refuse_dtypes(call: OperatorCall) -> None:
    """Raise what eager raises, if an ATen operation refuses tensors of these dtypes, or these numbers; note the dtype of its result.

    Raises:
        Exception: eager's.
    """
    call.kernel_dtype = kernel_dtype(call)


def kernel_dtype(call: OperatorCall) -> torch.dtype | None:
    """The dtype of the (first) result of a call in eager; None where the operator is not tried.

    Raises:
        Exception: eager's.
    """
    func, args, kwargs, rule = call.func, call.args, call.kwargs, call.rule
    size, sizes = _shrunk(func, rule.probe)
    if size == 0 or (rule.empty_index and len(args) > 2 and _is_empty(args[2])):
        return None
    if rule.probe_backward and torch.is_grad_enabled():
        _ask_backward(func, *args[:2])
    key = func, torch.get_default_dtype(), *map(_kind, args), *((name, _kind(value)) for name, value in kwargs.items())
    if key in _accepted:
        return _accepted[key]
    if _NOT_ASKED in key or torch._C._len_torch_dispatch_stack():
        return None
    try:
        first = _tried(call, size, sizes)
    except _Unfit:
        return None
    if len(_accepted) >= _LIMIT:
        _accepted.clear()
    _accepted[key] = first.dtype if isinstance(first, torch.Tensor) else None
    return _accepted[key]


class _Unfit(Exception):
    """There are no such tensors to try with: of a dtype that torch cannot fill."""


def _tried(call: OperatorCall, size: int, sizes: dict[int, int]) -> Value:
    """The (first) result of the operator for real, of small tensors. None if it raises about these.

    Raises:
        Exception: eager's, about dtypes or numbers.
    """
    # Ambient modes of the program and default devices are not to see these calls.
    with torch._C.DisableTorchFunction(), torch.no_grad():
        try:
            made: list[Value] = [_probe(arg, size) for arg in call.args]
            named = {name: _probe(value, size) for name, value in call.kwargs.items()}
        except Exception as error:
            raise _Unfit from error
        made = [_filled(arg, sizes[i]) if i in sizes else arg for i, arg in enumerate(made)]
        draws = torch.Tag.nondeterministic_seeded in call.func.tags
        drawn = torch.default_generator.get_state() if draws else None
        try:
            with caught_warnings("ignore"):  # they would be about these tensors: of too few elements for `std`
                result = call.func(*made, **named)
        except NotImplementedError:  # there is no kernel for these dtypes, in whatever words
            raise
        except Exception as error:
            if _ABOUT_ARGUMENTS.search(str(error)):
                raise
            return None  # others are about shapes and values, which are not those of the call
        finally:
            if drawn is not None:
                torch.default_generator.set_state(drawn)
    return result[0] if isinstance(result, tuple | list) and result else result


def refuse_other_dtype(call: OperatorCall, result: Value) -> None:
    """Raise if the metadata function gives a tensor of another dtype than the kernel: such a call is not for a graph.

    Raises:
        RuntimeError: it does. Eager runs the call.
    """
    kernel, first = call.kernel_dtype, result[0] if isinstance(result, tuple | list) and result else result
    if kernel is not None and isinstance(first, torch.Tensor) and first.dtype is not kernel:
        raise RuntimeError(f"{call.func} gives {kernel}, and its metadata says {first.dtype}")


def _ask_backward(func: Overload, x: torch.Tensor, y: torch.Tensor) -> None:
    """Raise what eager's backward of a loss raises for tensors of these dtypes with and without gradients: eager is to run it all."""
    if x.dtype is y.dtype or not (x.requires_grad or y.requires_grad):
        return
    with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
        ones = [torch.ones(1, dtype=t.dtype, device="cpu", requires_grad=t.requires_grad) for t in (x, y)]
        func(*ones).backward()


def at_capture(value: Value) -> Value:
    """The same with the values that sizes and numbers have at capture, where there are some.

    Args:
        value: fake tensors, numbers and plain values in containers.
    """
    if isinstance(value, torch.Tensor):
        sizes, grad = [at_capture(n) for n in value.shape], value.requires_grad
        return torch.empty(sizes, dtype=value.dtype, device=value.device, requires_grad=grad)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        node: Value = value.node
        return _SOME[type(value)] if node.hint is None else node.hint
    if type(value) is dict:
        return {name: at_capture(item) for name, item in value.items()}
    return type(value)(map(at_capture, value)) if type(value) in (tuple, list) else value


_SOME: dict[type, Any] = {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}


def _is_empty(t: Value) -> bool:
    return isinstance(t, torch.Tensor) and any(type(n) is int and n == 0 for n in t.shape)


@functools.cache
def _shrunk(func: Overload, probe: int) -> tuple[int, dict[int, int]]:
    """The size of each dimension in a probe, 0 for none, and the positions of arguments that are sizes, with their value there."""
    if func.namespace != "aten":
        return 0, {}
    if probe:
        return probe, {i: probe * (a.name not in _PADDING) for i, a in enumerate(func._schema.arguments) if _is_size(a)}
    return int(is_elementwise(func)), {}


@functools.cache
def is_elementwise(func: Overload) -> bool:
    """Does torch tag the operator as elementwise? The tag may be on one overload only."""
    name = func._schema.name.removeprefix("aten::")
    packet: Value = getattr(torch.ops.aten, name.removesuffix("_") or name, func.overloadpacket)
    return any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())


def _is_size(argument: Any) -> bool:
    kind = argument.real_type
    while kind.kind() in ("OptionalType", "ListType"):
        kind = kind.getElementType()
    named = argument.name == "group" or argument.name in _OF_WINDOWS or argument.name in _PADDING
    return bool(kind.kind() == "SymIntType" or (named and kind.kind() == "IntType"))


def _filled(value: Value, n: int) -> Value:
    if isinstance(value, list | tuple):
        return [n] * len(value)
    return None if value is None else n


def _kind(value: Value) -> Value:
    """What an answer depends on."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized:
            return _NOT_ASKED
        return value.dtype, value.device.type == "cpu", value.dim()
    if isinstance(value, list | tuple):
        return tuple(map(_kind, value))
    return (type(value), value) if isinstance(value, _KNOWN) else type(value)


_KNOWN = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
_NOT_ASKED: Value = object()


def _probe(value: Value, size: int) -> Value:
    """A small tensor, or a number that is known."""
    if isinstance(value, torch.Tensor):
        device = "cpu" if value.device.type == "cpu" else "meta"
        fill = torch.ones if value.is_floating_point() or value.is_complex() else torch.zeros  # an index is 0
        return fill([size] * value.dim(), dtype=value.dtype, device=device)
    if isinstance(value, list | tuple):
        return [_probe(item, size) for item in value]
    if isinstance(value, torch.Generator):
        return None  # the program's
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return _SOME[type(value)]
    return value
