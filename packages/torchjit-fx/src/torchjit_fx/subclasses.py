"""Subclasses of torch.Tensor that see calls (`__torch_function__`) and have no dispatcher of their own.

A leaf knows its class. A call that is given one of a subclass goes to that class's `__torch_function__`, which is interpreted; what is
recorded is the call that it makes with such dispatch switched off. So the graph holds plain tensors: it gets its inputs as torch.Tensor,
and what leaves the region becomes a tensor of its class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.flatten import leaves_in
from torchjit_fx.followed_classes import dispatches, is_followed
from torchjit_fx.intrinsics import announce_block, convert_results, switch_dispatch
from torchjit_fx.leaves import Function, InputLeaf, Raw, RawArgs, RawKwargs, SymLeaf, TensorLeaf
from torchjit_fx.ownership import owns
from torchjit_fx.protocols import CaptureContext

__all__ = [
    "as_plain", "has_default_method", "has_lost_history", "is_plain_leaf", "of_another_class", "overriding_classes",
    "refuse_subclasses", "see_subclass", "with_subclasses",
]  # fmt: skip

_enabled: Callable[[], bool] = torch._C._is_torch_function_enabled
_Tensor: Any = torch.Tensor


def see_subclass(capture: CaptureContext) -> bool:
    """A tensor of a subclass is there: from now on calls may go to its class. False if the program switched that off before."""
    if not _enabled():  # guarded by the wiring, like all ambient state
        return False
    if not capture.state("subclasses"):
        capture.set_state("subclasses", True)
    return True


def of_another_class(value: Raw) -> bool:
    """Is it a tensor whose class sees calls?"""
    return isinstance(value, TensorLeaf) and value.cls is not torch.Tensor and dispatches(value.cls)


def overriding_classes(domain: CallDomain, args: RawArgs, kwargs: RawKwargs) -> tuple[type, ...]:
    """The classes whose `__torch_function__` a call is shown to, in the order in which torch asks them: subclasses first."""
    found: list[type] = []
    for leaf in leaves_in((args, kwargs)):
        if of_another_class(leaf) and leaf.cls not in found:
            at = next((i for i, other in enumerate(found) if issubclass(leaf.cls, other)), len(found))
            found.insert(at, leaf.cls)
    return tuple(found)


def refuse_subclasses(values: Raw, capture: CaptureContext) -> None:
    """Raises GraphBreak where code that runs on stand-ins of these values would not know their class."""
    for leaf in leaves_in(values):
        if not of_another_class(leaf) and getattr(getattr(leaf, "record", None), "wrapping", None) is None:
            continue
        raise GraphBreak(breaks.UNSUPPORTED_TENSOR, f"a {leaf.cls.__name__} here", capture.location())


@call_rule(_Tensor.as_subclass, _Tensor._make_subclass)
def _as_subclass(call: Call) -> Raw:
    """`tensor.as_subclass(cls)`, and `Tensor._make_subclass(cls, data)`."""
    makes = call.function is _Tensor._make_subclass
    leaf, cls = (call.args[::-1] if makes else call.args) if len(call.args) == 2 else (None, None)
    if call.kwargs or not isinstance(leaf, TensorLeaf):
        raise call.broken(breaks.NOT_CAPTURABLE, call.name)
    return _alias(call.domain, torch.Tensor.detach if makes else torch.ops.aten.alias.default, leaf, cls, call.capture)


def _alias(domain: CallDomain, fn: Function, leaf: TensorLeaf, cls: Any, capture: CaptureContext) -> TensorLeaf:
    plain = cls is torch.Tensor
    if not isinstance(cls, type) or not (plain or is_followed(cls)) or domain.modes.inference or leaf.record.inference:
        raise GraphBreak(breaks.UNSUPPORTED_TENSOR, f"as {getattr(cls, '__name__', cls)}", capture.location())
    if not plain and not see_subclass(capture):
        raise GraphBreak(breaks.UNSUPPORTED_TENSOR, "a subclass under DisableTorchFunctionSubclass", capture.location())
    made: TensorLeaf = domain.recorder.call(fn, (leaf,), {}, capture)
    made.cls = cls
    return made


@call_rule(convert_results)
def _convert(call: Call) -> Raw:
    """`convert_results(func, result, cls)`. Source: `_convert` in torch/_tensor.py (torch 2.15)."""
    func, result, cls = call.args
    if func in torch.overrides.get_default_nowrap_functions() or cls is torch.Tensor:
        return result
    steps = call.domain.recorder.steps
    made_here = owns(func) and bool(steps)

    def convert(value: Raw) -> Raw:
        if isinstance(value, TensorLeaf):
            if issubclass(value.cls, cls):
                return value
            if made_here and value.step is steps[-1] and value.cls is torch.Tensor:
                value.cls = cls  # nobody has seen it as a plain tensor
                return value
            return _alias(call.domain, torch.ops.aten.alias.default, value, cls, call.capture)
        if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
            items = [convert(item) for item in value]
            return type(value)(items)
        return value

    return convert(result)


def has_default_method(cls: Any) -> bool:
    """Is its `__torch_function__` that of torch.Tensor, which gives results of the class?"""
    return getattr(cls.__torch_function__, "__func__", None) is _Tensor.__torch_function__.__func__


@call_rule(announce_block)
def _announce(call: Call) -> None:
    if not call.capture.state("dispatch_off"):
        call.capture.set_state("block", call.capture.call_mark())


@call_rule(switch_dispatch)
def _switch(call: Call) -> bool:
    before = bool(call.capture.state("dispatch_off"))
    call.capture.set_state("dispatch_off", call.args[0])
    return before


def as_plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as torch.Tensor, for autograd the same."""
    with torch._C.DisableTorchFunctionSubclass(), torch.enable_grad():
        return torch.Tensor.as_subclass(tensor, torch.Tensor)


def has_lost_history(tensor: torch.Tensor) -> bool:
    """Is it a view made under no_grad whose base was written since? Autograd refuses every use of it, and a view is one."""
    try:
        as_plain(tensor)
    except RuntimeError:
        return True
    return False


def is_plain_leaf(tensor: torch.Tensor) -> bool:
    """As autograd has it, without asking the class."""
    with torch._C.DisableTorchFunctionSubclass():
        return bool(_Tensor.is_leaf.__get__(tensor))


def with_subclasses(
    target: Function, inputs: tuple[Sequence[InputLeaf], Sequence[SymLeaf]], asked: Sequence[Raw]
) -> Function:
    """`target`, which computes `asked`, given its tensors as plain ones; its results become tensors of their class.

    `inputs`: its tensors, and the numbers before them.
    """
    tensors, numbers = inputs
    places = [len(numbers) + i for i, leaf in enumerate(tensors) if dispatches(leaf.cls)]
    classes = [
        (i, leaf.cls, leaf.record.requires_grad and not leaf.record.is_leaf)
        for i, leaf in enumerate(asked)
        if isinstance(leaf, TensorLeaf)
        and leaf.cls is not torch.Tensor
        and type(leaf) is not InputLeaf
        and not leaf.record.wrapping
    ]
    if not places and not classes:
        return target

    def run(*given: Raw) -> Raw:
        plain = list(given)
        for place in places:
            plain[place] = as_plain(plain[place])
        results = list(target(*plain))
        with torch._C.DisableTorchFunctionSubclass():
            for i, cls, has_history in classes:  # whatever the caller's mode is: a region may switch it
                with torch.set_grad_enabled(has_history):
                    results[i] = results[i].as_subclass(cls)
        return results

    return run
