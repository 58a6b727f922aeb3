"""Small functions of torch whose code the interpreter cannot or need not follow."""

from __future__ import annotations

import contextlib

import torch
from torch.utils._device import DeviceContext, _device_constructors

from torchjit_fx.inference_state import set_inference_mode
from torchjit_fx.intrinsics import (
    Value,
    announce_block,
    convert_results,
    enter_range,
    enter_replicas,
    expect_true,
    refuse,
    switch_dispatch,
)

__all__ = [
    "InferenceBlock", "WithoutDispatch", "check_with", "default_torch_function", "device_constructors", "device_enter",
    "device_exit", "distribution_init", "graph_module_call", "inside_replicas", "is_nested_int", "range_enter", "range_exit", "range_init", "requires_grad_", "wrap_triton",
]  # fmt: skip

_SCALAR = torch.Size()


_EXTERNAL_ID = "_cuspy_external_id"
_HAS_EXTERNAL_ID = _EXTERNAL_ID in torch.autograd.profiler.record_function.__init__.__code__.co_names


def check_with(stated: Value) -> Value:
    """Makes what is interpreted instead of `torch._check_with`, which imports what it asks at each call: a module that has a stand-in as long as
    nobody needs it, so that entries on disk would not fit the next process.

    Args:
        stated: a copy of the original, for what is no bool and for facts that do not hold.
    """

    def checked(error_type: Value, cond: Value, message: Value) -> None:
        if isinstance(cond, (bool, torch.SymBool)) and expect_true(cond):
            return
        stated(error_type, cond, message)

    return checked


def range_init(self: Value, name: Value, args: Value = None) -> None:
    """Interpreted instead of `record_function.__init__`, which asks `typing` for a type: what its caches hold is no fact of the program."""
    self.name, self.args = name, args
    self.run_callbacks_on_exit, self.record = True, None
    if _HAS_EXTERNAL_ID:  # since torch 2.15
        setattr(self, _EXTERNAL_ID, None)


def range_enter(self: Value) -> Value:
    """Interpreted instead of `record_function.__enter__`: operations of a graph are fused across the ends of ranges, so its region has them as a whole."""
    enter_range(self.name)
    return self


def inside_replicas(self: Value) -> Value:
    """Interpreted instead of `DistributedDataParallel._inside_ddp_forward`, which says to torch.compile where it is."""
    enter_replicas(self)
    return contextlib.nullcontext()


def range_exit(self: Value, *exc: object) -> None:
    """Interpreted instead of `record_function.__exit__`."""


class InferenceBlock:
    """Interpreted instead of `torch._C._InferenceMode`, the guard that `torch.inference_mode` holds."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        self.before = (torch.is_inference_mode_enabled(), torch.is_grad_enabled())
        set_inference_mode(self.mode)
        torch._C._set_grad_enabled(not self.mode)

    def __exit__(self, *exc: object) -> None:
        set_inference_mode(self.before[0])
        torch._C._set_grad_enabled(self.before[1])


class WithoutDispatch:
    """Interpreted instead of `torch._C.DisableTorchFunctionSubclass`."""

    def __init__(self) -> None:
        announce_block()

    def __enter__(self) -> None:
        self.before = switch_dispatch(True)

    def __exit__(self, *exc: object) -> None:
        switch_dispatch(self.before)


def default_torch_function(cls: Value, func: Value, types: Value, args: Value = (), kwargs: Value = None) -> Value:
    """Interpreted instead of `torch.Tensor.__torch_function__`. Source: torch/_tensor.py (torch 2.15)."""
    for other in types:
        if not issubclass(cls, other):
            return NotImplemented
    before = switch_dispatch(True)
    try:
        return convert_results(func, func(*args, **({} if kwargs is None else kwargs)), cls)
    finally:
        switch_dispatch(before)


def device_enter(self: torch.device) -> torch.device:
    """Interpreted instead of `torch.device.__enter__`."""
    torch._C._push_on_torch_function_stack(DeviceContext(self))
    return self


def device_exit(self: torch.device, *exc: object) -> None:
    """Interpreted instead of `torch.device.__exit__`."""
    torch._C._pop_torch_function_stack()


_constructors: Value = _device_constructors
# By name: a set of functions has another order in each process, and guards of stored entries name positions.
_CONSTRUCTORS = tuple(sorted(_constructors(), key=lambda function: (function.__name__, str(function.__module__))))


def device_constructors() -> tuple[Value, ...]:
    """Interpreted instead of the cached function of this name in `torch.utils._device`, which gives a set of functions."""
    return _CONSTRUCTORS


def is_nested_int(value: Value) -> bool:
    """Sizes of nested tensors do not get into a capture."""
    return False


def distribution_init(
    self: Value, batch_shape: Value = _SCALAR, event_shape: Value = _SCALAR, validate_args: Value = None
) -> None:
    """`Distribution.__init__` without the check of the arguments' values, which torch.compile turns off as well.

    `validate_args=True` asks for the check: then the original runs.
    """
    if validate_args:
        refuse("a distribution that validates its arguments")
    self._batch_shape = batch_shape
    self._event_shape = event_shape
    self._validate_args = False


def graph_module_call(self: Value, obj: Value, *args: Value, **kwargs: Value) -> Value:
    """Interpreted instead of `_WrappedCall.__call__` of `torch.fx`, which calls a `GraphModule` and prints to stderr where it raises."""
    if self.cls_call is not None:
        return self.cls_call(obj, *args, **kwargs)
    return super(self.cls, obj).__call__(*args, **kwargs)


def wrap_triton(triton_kernel: Value, /) -> Value:
    """Interpreted instead of `torch.library.wrap_triton`: the wrapper is for torch's own tracers, and launches what it wraps."""
    return triton_kernel


def requires_grad_(self: Value, requires_grad: bool = True) -> Value:
    """Interpreted instead of `torch.Tensor.requires_grad_`: on a tensor that was there before, an effect.

    What changes nothing is nothing, for results of operations too, where the assignment is refused; of inference tensors
    eager may refuse even that.
    """
    if self.requires_grad is not requires_grad or (requires_grad and self.is_inference()):
        self.requires_grad = requires_grad
    return self
