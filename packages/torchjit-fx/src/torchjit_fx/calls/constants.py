"""Calls whose results are constants of the graph: of plain values, of questions about leaves, of state that a guard holds."""

from __future__ import annotations

import enum
import functools
import operator

import torch

from torchjit_core.guards import Ambient
from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.calls.numbers import arithmetic
from torchjit_fx.flatten import Arguments, UnwritableArgument
from torchjit_fx.function_modes import asks_for_modes
from torchjit_fx.leaves import Function, OpaqueLeaf, Raw, RawArgs, RawKwargs, SymLeaf, TensorLeaf
from torchjit_fx.ownership import DEVICE_QUESTIONS, STATE_FUNCTIONS
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.subclasses import of_another_class

__all__ = ["evaluate"]


def evaluate(call: Call) -> Raw:
    """A function of constants. Over leaves it is asked of the fakes like any other."""
    args = (*call.args, *call.kwargs.values())
    if call.function is torch.is_tensor or call.function is torch.overrides.is_tensor_like:
        return bool(args) and isinstance(args[0], TensorLeaf | OpaqueLeaf)
    if call.function is torch.Size and args:
        return call.capture.new_object(torch.Size, args[0]) if _holds_leaf(args) else torch.Size(*args)
    if asks_for_modes(call.function) and (call.capture.state("intercepted") or _ask_for_classes(args, call.capture)):
        return True
    if _holds_leaf(args):
        if call.function in (torch.result_type, torch.can_cast, torch.promote_types):
            return NotImplemented
        return False  # the questions about torch functions and transforms: a leaf is a plain tensor
    try:
        return _computed(call, args)
    except Exception as error:  # the run for real shows the program its own error
        raise call.broken(breaks.META_FAILED, f"{call.function}: {error}") from error


def _computed(call: Call, args: RawArgs) -> Raw:
    result = call.function(*call.args, **call.kwargs)
    if call.function in STATE_FUNCTIONS:
        _guard_state(call.function, args, call.kwargs, result, call.capture)
    if call.function in DEVICE_QUESTIONS and torch.cuda.is_available() and not _names_a_device(args):
        _guard_state(torch.cuda.current_device, (), {}, torch.cuda.current_device(), call.capture)
    return result


def _guard_state(fn: Function, args: RawArgs, kwargs: RawKwargs, result: Raw, capture: CaptureContext) -> None:
    """`fn(*args)` gave `result`, and must again; the last of `args` are those of `kwargs`."""
    name = fn.__name__ + (f"({', '.join(map(str, args))})" if args else "")
    read = functools.partial(fn, *args[: len(args) - len(kwargs)], **kwargs) if args else fn
    capture.guard(Ambient(name, read, result, capture.location()))


def _names_a_device(args: RawArgs) -> bool:
    """Is a GPU given by its number? `device="cuda"` means the current one."""
    if not args or args[0] is None or isinstance(args[0], bool):
        return False
    return isinstance(args[0], int) or torch.device(args[0]).index is not None


def _ask_for_classes(args: RawArgs, capture: CaptureContext) -> bool:
    """Is one of the tensors, or of those in sequences, of a class that sees calls now?"""
    if not capture.state("subclasses") or capture.state("dispatch_off"):
        return False
    items = [item for arg in args for item in (arg if isinstance(arg, tuple | list) else (arg,))]
    return any(map(of_another_class, items))


def _holds_leaf(args: RawArgs) -> bool:
    try:
        found = Arguments(args, {})
    except UnwritableArgument as error:
        return isinstance(error.args[0], OpaqueLeaf | TensorLeaf)
    return bool(found.leaves or found.sym)


@call_rule(operator.eq, operator.ne)
def _equality(call: Call) -> Raw:
    """`tensor == None`: torch knows no such comparison, so Python compares the two objects."""
    for leaf, other in (call.args, call.args[::-1]):
        if isinstance(leaf, TensorLeaf) and _is_incomparable(other):
            return call.function is operator.ne
    return arithmetic(call)


def _is_incomparable(other: Raw) -> bool:
    if isinstance(other, enum.Enum):
        return type(other).__eq__ in (object.__eq__, str.__eq__)
    return other is None or type(other) in (str, bytes, type)


@call_rule(str, repr, ascii, format)
def _text(call: Call) -> Raw:
    """`str`, `repr`, `format`: of a tensor they print its data; a symbolic number is fixed to its value."""
    if isinstance(call.args[0], SymLeaf):
        return call.function(call.domain.concrete(call.args[0], call.capture), *call.args[1:])
    raise call.broken(breaks.DATA_DEPENDENT, f"{call.name}() of a tensor")
