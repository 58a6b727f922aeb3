"""The default device that the program sets inside of a region.

The graph runs under the default device of its start; a call that makes a tensor is written with the device that it takes from the
program's, as the mode that torch installs for it does.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
from torch.overrides import get_testing_overrides
from torch.utils._device import _device_constructors

from torchjit_core.guards import Ambient
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.flatten import leaves_in
from torchjit_fx.leaves import Function, Raw, RawArgs, TensorLeaf
from torchjit_fx.modes import DEFAULT_DEVICE
from torchjit_fx.numpy.arrays import Arrays

__all__ = ["get_default_device", "may_make", "set_default_device", "with_device"]

_OF_DATA = frozenset({torch.tensor, torch.as_tensor, torch.asarray})
"""Where no default is set they take the device of a tensor that they are given."""


@functools.cache
def _constructors() -> frozenset[Any]:
    constructors: Raw = _device_constructors
    return frozenset(constructors())


@functools.cache
def _overridable() -> frozenset[Any]:
    return frozenset(get_testing_overrides())


@call_rule(torch.set_default_device)
def set_default_device(call: Call) -> None:
    """`torch.set_default_device(device)`: no step; the process is told at the end of the region."""
    wanted = call.args[0] if call.args else call.kwargs["device"]
    if call.capture.state("intercepted") or call.domain.recorder.scope is not None or call.domain.of(Arrays).used:
        raise call.broken(breaks.NOT_CAPTURABLE, "set_default_device under another mode")
    try:
        device = None if wanted is None else torch.device(wanted)
    except (RuntimeError, TypeError) as error:  # the run for real shows the program its own error
        raise call.broken(breaks.META_FAILED, f"set_default_device: {error}") from error
    before = call.domain.modes.read(DEFAULT_DEVICE)
    if not _is_alone():
        raise call.broken(breaks.NOT_CAPTURABLE, "set_default_device under another mode")
    if before != device:
        initial = call.domain.modes.initial(DEFAULT_DEVICE)
        call.capture.guard(
            Ambient("default_device", call.domain.modes.reader(DEFAULT_DEVICE), initial, call.capture.location())
        )
        call.domain.modes.write(DEFAULT_DEVICE, device)


def _is_alone() -> bool:
    """Is there no other mode in this thread than that of `torch.set_default_device`?"""
    modules: Raw = torch
    context = getattr(modules._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    if context is None:
        return torch._C._len_torch_function_stack() == 0
    return torch._C._len_torch_function_stack() == 1 and getattr(context, "prev_mode", None) is None


def get_default_device(domain: CallDomain) -> torch.device:
    """What `torch.get_default_device()` gives while the program has set another one than that of the start."""
    device = domain.modes.read(DEFAULT_DEVICE) or torch.device("cpu")
    with device:  # a device without an index is told the current one
        return torch.get_default_device()


def may_make(fn: Function) -> bool:
    """Does this function make tensors on the default device?"""
    return fn in _constructors()


def with_device(call: Call) -> dict[str, Raw]:
    """The keywords with which a call does under the graph's default device what it does under the program's.

    Raises:
        GraphBreak: its own insides may ask for the default.
    """
    if may_make(call.function):
        if call.kwargs.get("device") is not None:
            return call.kwargs
        device = call.domain.modes.read(DEFAULT_DEVICE)
        if device is None:
            device = _of_data(call.function, call.args)
        return call.kwargs | {"device": device}
    if isinstance(call.function, types.FunctionType) and call.function not in _overridable():
        raise call.broken(breaks.NOT_CAPTURABLE, f"{call.function.__qualname__} under another default device")
    return call.kwargs


def _of_data(fn: Function, args: RawArgs) -> torch.device:
    if fn not in _OF_DATA or not leaves_in(args):
        return torch.device("cpu")
    if isinstance(args[0], TensorLeaf):
        device: torch.device = args[0].record.device
        return device
    raise GraphBreak(breaks.NOT_CAPTURABLE, f"{fn.__name__} of tensors, where another default device was unset")
