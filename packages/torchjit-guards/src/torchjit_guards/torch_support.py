"""Torch for guards: reading tensors raw, dispatch keys, and the ambient state of a process.

The C program reads a tensor's metadata out of libtorch's `TensorImpl`. Where it lies there is not part of any
interface, so it is found out in each process by looking for values that Python can see, then tested against the
attributes; when anything is not as expected, tensors are tested by their attributes, which is slower and always right.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

import torch

from torchjit_core import events
from torchjit_core.guards import Ambient, TensorMatches
from torchjit_core.reasons import reason
from torchjit_guards import _c, layout

__all__ = [
    "NO_RAW_READS",
    "ambient_address",
    "ambient_guards",
    "dispatch_keys",
    "raw_reads",
    "tensor_spec",
]

NO_RAW_READS = reason(
    "TJ-GRD-001",
    "tensors are guarded by their attributes",
    "The layout of this build's tensors could not be verified, so guards ask each tensor's attributes instead of "
    "reading memory. Results are the same; a call of a compiled function takes some microseconds longer.",
    "Report the torch version; every released version from 2.11 on should be readable.",
)


@functools.cache
def raw_reads() -> layout.Layout | None:
    """Find out the layout and hand it to the C program, once. None, announced by a `fallback` event: not possible."""
    try:
        found = layout.calibrate()
        found.activate()
        layout.verify(found)
    except layout.CalibrationError as error:
        _c.set_tensor_layout()
        events.emit("fallback", reason=NO_RAW_READS.id, headline=NO_RAW_READS.headline, detail=str(error))
        return None
    return found


def dispatch_keys(tensor: torch.Tensor) -> torch._C.DispatchKeySet:
    """The tensor's dispatch key set; `.raw_repr()` is the form that `TensorMatches.key_set` compares fastest."""
    return torch._C._dispatch_keys(tensor)


def tensor_spec(guard: TensorMatches) -> tuple[Any, ...] | None:
    """What the raw test compares: (dtype, device, requires_grad, is_leaf, sizes, strides, offset, key set) as stored.

    None when the tensor has to be tested by attributes: a subclass, an exotic device, or no raw reads at all.
    """
    found = raw_reads()
    if found is None or guard.type not in found.exact or not isinstance(guard.key_set, int | None):
        return None
    dtype, device = found.dtype_code(guard.dtype), found.device_code(guard.device)
    whole = all(type(n) is int for n in (*guard.sizes, *(guard.strides or ()), guard.offset) if n is not None)
    if dtype is None or device is None or not whole:
        return None
    leaf = -1 if guard.is_leaf is None else int(guard.is_leaf)
    return dtype, device, int(guard.requires_grad), leaf, guard.sizes, guard.strides, guard.offset, guard.key_set


@functools.cache
def _grad_mode_address() -> int | None:
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
    try:
        function = ctypes.CDLL(path).aoti_torch_grad_mode_is_enabled
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_bool
    before = torch.is_grad_enabled()
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            if function() is not enabled:
                return None
    return ctypes.cast(function, ctypes.c_void_p).value if function() is before else None


def ambient_address(read: Callable[[], Any]) -> int | None:
    """The address of libtorch's own `bool f(void)` behind `read`, for the reads that have one."""
    return _grad_mode_address() if read is torch.is_grad_enabled else None


def _autocast() -> tuple[Any, ...]:
    devices = ("cpu", "cuda")
    return (
        torch.is_autocast_cache_enabled(),
        *((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices),
    )


def _function_modes() -> tuple[Any, ...]:
    """Type and device (of `torch.device` contexts, `set_default_device`) of each active function mode."""
    modes = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    return tuple((type(mode), getattr(mode, "device", None)) for mode in modes)


def _dispatch_modes() -> tuple[Any, ...]:
    return tuple(type(torch._C._get_dispatch_stack_at(i)) for i in range(torch._C._len_torch_dispatch_stack()))


_READS: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("grad_mode", torch.is_grad_enabled),
    ("inference_mode", torch.is_inference_mode_enabled),
    ("default_dtype", torch.get_default_dtype),
    ("deterministic", torch._C._get_deterministic_algorithms),
    ("deterministic_warn_only", torch._C._get_deterministic_algorithms_warn_only),
    ("torch_function_enabled", torch._C._is_torch_function_enabled),
)
# Rarely on: a count or a flag is read while off, the whole state once on.
_COUNTS: tuple[tuple[str, Callable[[], Any], str, Callable[[], Any]], ...] = (
    ("autocast", torch._C._is_any_autocast_enabled, "autocast_state", _autocast),
    ("function_mode_count", torch._C._len_torch_function_stack, "function_modes", _function_modes),
    ("dispatch_mode_count", torch._C._len_torch_dispatch_stack, "dispatch_modes", _dispatch_modes),
)


def ambient_guards() -> tuple[Ambient, ...]:
    """Guards on the process and thread state that torch's results depend on, as it is now."""
    guards = [Ambient(name, read, read()) for name, read in _READS]
    for name, count, detail_name, detail in _COUNTS:
        value = count()
        guards.append(Ambient(name, count, value))
        if value:
            guards.append(Ambient(detail_name, detail, detail()))
    return tuple(guards)
