"""Torch for guards: reading tensors raw, dispatch keys, and the ambient state of a process.

The C program reads a tensor's metadata out of libtorch's `TensorImpl`. Where it lies there is not part of any
interface, so it is found out in each process by looking for values that Python can see, then tested against the
attributes; when anything is not as expected, tensors are tested by their attributes, which is slower and always right.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch.autograd import forward_ad

from torchjit_core import events
from torchjit_core.guards import Ambient, Guard, TensorMatches, ValueEquals
from torchjit_core.paths import Pinned
from torchjit_core.reasons import reason
from torchjit_guards import layout
from torchjit_guards._c import set_tensor_layout
from torchjit_guards.native_reads import (
    autocast_cpu,
    autocast_cuda,
    is_functorch_active,
    is_jit_tracing,
    native_read,
    offer_twins,
    torch_function_disabled,
    tried_twins,
)

__all__ = [
    "NO_RAW_READS",
    "ambient_guards",
    "dispatch_keys",
    "found_out",
    "key_set",
    "native_read",
    "raw_reads",
    "take_over",
    "tensor_spec",
]

NO_RAW_READS = reason(
    "TJ-GRD-001",
    "tensors are guarded by their attributes",
    "The layout of this build's tensors could not be verified, so guards ask each tensor's attributes instead of "
    "reading memory. Results are the same; a call of a compiled function takes some microseconds longer.",
    "Report the torch version; every released version from 2.11 on should be readable.",
)


def only_sees_functions(cls: Any) -> bool:
    """Is it a subclass of torch.Tensor with a `__torch_function__`, and without a dispatcher of its own?"""
    if cls in (torch.Tensor, torch.nn.Parameter) or not issubclass(cls, torch.Tensor):
        return False
    ours: Any = (torch._C._disabled_torch_dispatch_impl, getattr(torch.Tensor, "__torch_dispatch__", None))
    return getattr(cls, "__torch_dispatch__", None) in ours


_offered: tuple[int, ...] | None = None


def found_out() -> tuple[tuple[int, ...] | None, tuple[str, ...]]:
    """What other processes with this very build of torch need not find out anew: for `take_over`."""
    found = raw_reads()
    return None if found is None else found.numbers(), tried_twins()


def take_over(numbers: tuple[int, ...] | None, twins: tuple[str, ...]) -> None:
    """Take what another process has found out; it is tested in brief. For this, nothing may be known here yet."""
    global _offered
    offer_twins(twins)
    if not raw_reads.cache_info().currsize:
        _offered = numbers


def _recalled() -> layout.Layout | None:
    """The layout that was offered, if it is right."""
    if _offered is None:
        return None
    try:
        found = layout.recalled(_offered)
        found.activate()
        layout.verify(found, again=True)
    except layout.CalibrationError:
        return None
    return found


@functools.cache
def raw_reads() -> layout.Layout | None:
    """Find out the layout, or recall it, and hand it to the C program, once. None, announced by a `fallback` event: not possible."""
    known = _recalled()
    if known is not None:
        return known
    try:
        found = layout.calibrate()
        found.activate()
        layout.verify(found)
    except layout.CalibrationError as error:
        set_tensor_layout()
        events.emit_fallback(NO_RAW_READS, str(error))
        return None
    return found


def as_plain(tensor: torch.Tensor, facts: TensorMatches) -> tuple[torch.Tensor, TensorMatches]:
    """A tensor of a subclass as a plain one, and what to ask of that: the program's class has a say in no answer.

    The plain one is made without autograd, so what autograd knows is compared here.
    """
    asked: Any = torch.Tensor
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        plain = torch.Tensor.as_subclass(tensor, torch.Tensor)
        same = asked.requires_grad.__get__(tensor) == facts.requires_grad
        same = same and (facts.is_leaf is None or asked.is_leaf.__get__(tensor) == facts.is_leaf)
    return plain, attrs.evolve(facts, type=torch.Tensor if same else type(None), requires_grad=False, is_leaf=None)


def dispatch_keys(tensor: torch.Tensor) -> torch._C.DispatchKeySet:
    """The tensor's dispatch key set; `.raw_repr()` is the form that `TensorMatches.key_set` compares fastest."""
    return torch._C._dispatch_keys(tensor)


def key_set(form: Any) -> torch._C.DispatchKeySet | str:
    """A `TensorMatches.key_set` as what it is a form of."""
    return torch._C.DispatchKeySet.from_raw_repr(form) if isinstance(form, int) else str(form)


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


_Read = Callable[[], Any]
# What is read each time, and for states that are rarely on, what is read besides once they are.
_READS: tuple[tuple[str, _Read, tuple[str, _Read] | None], ...] = (
    ("grad_mode", torch.is_grad_enabled, None),
    ("inference_mode", torch.is_inference_mode_enabled, None),
    (
        "torch_function_disabled",
        torch_function_disabled,
        ("torch_function_all_disabled", torch._C._is_torch_function_all_disabled),
    ),
    ("function_mode_count", torch._C._len_torch_function_stack, ("function_modes", _function_modes)),
    ("dispatch_mode_count", torch._C._len_torch_dispatch_stack, ("dispatch_modes", _dispatch_modes)),
    ("jit_tracing", is_jit_tracing, None),
    ("functorch", is_functorch_active, None),
    ("autocast_cpu", autocast_cpu, ("autocast_state", _autocast)),
    ("autocast_cuda", autocast_cuda, ("autocast_state", _autocast)),
    ("default_dtype", torch.get_default_dtype, None),
    ("deterministic", torch._C._get_deterministic_algorithms, None),
    ("deterministic_warn_only", torch._C._get_deterministic_algorithms_warn_only, None),
)


_FORWARD_AD = Pinned.of(vars(forward_ad), "vars(torch.autograd.forward_ad)").item("_current_level")
"""The level of forward-mode differentiation: tensors may have tangents there, which nothing about them shows."""


def ambient_guards() -> tuple[Guard, ...]:
    """Guards on the process and thread state that torch's results depend on, as it is now."""
    guards: dict[str, Ambient] = {}
    for name, read, detail in _READS:
        value = read()
        guards[name] = Ambient(name, read, value)
        if detail is not None and value:
            guards[detail[0]] = Ambient(detail[0], detail[1], detail[1]())
    return (*guards.values(), ValueEquals(_FORWARD_AD, forward_ad._current_level))
