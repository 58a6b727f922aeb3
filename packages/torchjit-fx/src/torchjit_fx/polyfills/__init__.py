"""Python that the interpreter reads in the place of torch functions that it could not look into.

`POLYFILLS` maps what the program calls to the function that is interpreted instead, in one piece: a break inside means
that the original runs. `REPLACEMENTS` are interpreted as if the program had called them. `polyfill_of` and
`replacement_of` know functions that are found by their code or by their name, so that no module is imported for them.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
import torch._higher_order_ops.scan
import torch._higher_order_ops.while_loop
import torch.utils.checkpoint as torch_checkpoint
from torch._compile import _disable_dynamo
from torch._functorch import eager_transforms
from torch._functorch import vmap as vmap_module
from torch.distributions import Distribution
from torch.optim import adam as adam_module
from torch.optim import sgd as sgd_module
from torch.optim.optimizer import _use_grad_for_differentiable
from torch.utils import _device as device_module
from torch.utils.hooks import BackwardHook, RemovableHandle

from torchjit_core.storing import made_by, maker
from torchjit_fx.intrinsics import Value
from torchjit_fx.leaves import Function
from torchjit_fx.polyfills import transforms
from torchjit_fx.polyfills.attention import QUESTIONS, AttentionParams
from torchjit_fx.polyfills.autograd_function import apply
from torchjit_fx.polyfills.checkpoint import checkpoint, checkpoint_impl
from torchjit_fx.polyfills.collectives import collective_of
from torchjit_fx.polyfills.control_flow import cond, scan, while_loop
from torchjit_fx.polyfills.distributed_tensors import construction_of, whole_call_of
from torchjit_fx.polyfills.flex_attention import (
    NoAnnotation,
    call_flex_attention,
    has_free_unbacked_symbols,
    mark_nothing,
)
from torchjit_fx.polyfills.hooks import (
    handle_init,
    handle_remove,
    register_hook,
    register_post_accumulate_grad_hook,
    setup_input_hook,
    setup_output_hook,
)
from torchjit_fx.polyfills.optimizer import (
    adam_one_by_one,
    captured_step,
    group_tensors_by_device_and_dtype,
    step_of_fused,
    step_without_gradients,
)
from torchjit_fx.polyfills.small import (
    InferenceBlock,
    WithoutDispatch,
    check_with,
    default_torch_function,
    device_constructors,
    device_enter,
    device_exit,
    distribution_init,
    graph_module_call,
    inside_replicas,
    is_nested_int,
    range_enter,
    range_exit,
    range_init,
    requires_grad_,
    wrap_triton,
)

__all__ = ["POLYFILLS", "REPLACEMENTS", "polyfill_of", "replacement_of"]

_torch: Value = torch
_tensor: Value = torch.Tensor
# The package exports functions of the same names.
scan_module: Value = sys.modules["torch._higher_order_ops.scan"]
while_loop_module: Value = sys.modules["torch._higher_order_ops.while_loop"]


def _copy(function: types.FunctionType) -> Function:
    """Another function of the same code, which nothing stands for."""
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made_by(functools.update_wrapper(made, function, updated=()), copy_behind, function)


@functools.cache
def _renamed_copy_of(function: types.FunctionType) -> Function:
    made = _copy(function)
    made.__qualname__ += ".copy"  # it is known by its name
    return made


@maker
def copy_behind(function: types.FunctionType) -> Callable[..., Any] | None:
    """The copy that is interpreted for a function: stored entries ask for it."""
    return POLYFILLS.get(function) or polyfill_of(function)


def _table() -> dict[Any, Callable[..., Any]]:
    base: Value = torch.autograd.Function
    module: Value = torch.nn.Module
    stacked: Value = torch.func.stack_module_state
    recurrent: Value = (torch.nn.RNN.forward, torch.nn.LSTM.forward, torch.nn.GRU.forward)
    table: dict[Any, Callable[..., Any]] = {
        torch_checkpoint.checkpoint: checkpoint,
        torch.Tensor.register_hook: register_hook,
        torch.Tensor.register_post_accumulate_grad_hook: register_post_accumulate_grad_hook,
        torch.Tensor.requires_grad_: requires_grad_,
        RemovableHandle.remove: handle_remove,
        BackwardHook.setup_input_hook: setup_input_hook,
        BackwardHook.setup_output_hook: setup_output_hook,
        torch.cond: cond,
        scan_module.scan: scan,
        while_loop_module.while_loop: while_loop,
        Distribution.__init__: distribution_init,
        vmap_module.vmap_impl: transforms.vmap_impl,
        eager_transforms.grad_impl: transforms.grad_impl,
        eager_transforms.grad_and_value_impl: transforms.grad_and_value_impl,
        eager_transforms.jvp: transforms.jvp,
        eager_transforms.vjp: transforms.vjp,
        eager_transforms.linearize: transforms.linearize,
        transforms.call_jacobian: transforms.captured_jacobian,
        **QUESTIONS,
        _torch._C._group_tensors_by_device_and_dtype: group_tensors_by_device_and_dtype,
        # Where a parameter changes its type, device or `requires_grad`, each parameter would break.
        module._apply: _copy(module._apply),
        module.requires_grad_: _copy(module.requires_grad_),
        # Where the stacked parameters leave the region, each of them would break.
        stacked: _copy(stacked),
        # Of a packed sequence, each of them would break at several reads of its batch sizes.
        **{forward: _copy(forward) for forward in recurrent},
    }
    if hasattr(torch_checkpoint, "_checkpoint_impl"):  # of torch 2.15: what the decorator form calls
        table[torch_checkpoint._checkpoint_impl] = checkpoint_impl
    for cls in base.__mro__:
        found = cls.__dict__.get("apply")
        if found is not None:  # a class method of C, or of Python before torch 2.15
            table[getattr(found, "__func__", found)] = apply
    return table


POLYFILLS = _table()
REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    torch.nn.parallel.DistributedDataParallel._inside_ddp_forward: inside_replicas,
    torch.autograd.profiler.record_function.__init__: range_init,
    torch.autograd.profiler.record_function.__enter__: range_enter,
    torch.autograd.profiler.record_function.__exit__: range_exit,
    _torch._C._InferenceMode: InferenceBlock,
    _torch._C._SDPAParams: AttentionParams,
    _torch._C.DisableTorchFunctionSubclass: WithoutDispatch,
    _tensor.__torch_function__.__func__: default_torch_function,
    RemovableHandle.__init__: handle_init,
    torch.library.wrap_triton: wrap_triton,
    torch.device.__enter__: device_enter,
    device_module._device_constructors: device_constructors,
    torch.device.__exit__: device_exit,
    eager_transforms.jacrev: transforms.jacrev,
    eager_transforms.jacfwd: transforms.jacfwd,
    eager_transforms.hessian: transforms.hessian,
    _torch._check_with: check_with(_copy(_torch._check_with)),
    vmap_module._check_randomness_arg: transforms.check_randomness,
}

_decorate: Value = _use_grad_for_differentiable
_STEP_CODE = _decorate(lambda: None).__code__
_disable: Value = _disable_dynamo
_DISABLING_CODE = _disable(lambda: None).__code__
_script_if_tracing: Value = _torch.jit._script_if_tracing
_SCRIPTED_WHEN_TRACED_CODE = _script_if_tracing(lambda: None).__code__
_SHAPES = "torch.fx.experimental.symbolic_shapes"
_adam: Value = adam_module._single_tensor_adam
_adam_module: Value = adam_module  # these are no part of the stubs
_sgd_module: Value = sgd_module
_BY_NAME: dict[tuple[str, str], Callable[..., Any]] = {
    (_SHAPES, "is_nested_int"): is_nested_int,
    (_SHAPES, "has_free_unbacked_symbols"): has_free_unbacked_symbols,
    ("torch.fx.traceback", "annotate"): NoAnnotation,
    ("torch.fx.graph_module", "_WrappedCall.__call__"): graph_module_call,
    ("torch._dynamo.decorators", "mark_static"): mark_nothing,
    ("torch.optim.adam", "_single_tensor_adam"): adam_one_by_one(_renamed_copy_of(_adam)),
    ("torch.optim.adam", "_fused_adam"): step_of_fused(
        _adam_module._single_tensor_adam, _adam_module._multi_tensor_adam
    ),
    ("torch.optim.sgd", "_fused_sgd"): step_of_fused(_sgd_module._single_tensor_sgd, _sgd_module._multi_tensor_sgd),
    ("torch._higher_order_ops.flex_attention", "FlexAttentionHOP.__call__"): call_flex_attention,
}


def polyfill_of(function: types.FunctionType | type) -> Callable[..., Any] | None:
    """What stands for a function that is known by its code or by its name, or for a class, in one piece."""
    if isinstance(function, type):
        return construction_of(function)
    if function.__code__ is _STEP_CODE:
        return _step_of(function)
    if (function.__module__, function.__qualname__) == _FLEX_ATTENTION or function.__module__ in _REBUILDING_MODULES:
        return _renamed_copy_of(function) if function.__qualname__.isidentifier() else None
    if function.__qualname__ in _UNSWITCHED_STEPS and (function.__module__ or "").startswith("torch.optim."):
        inner = getattr(function, "__wrapped__", None)
        if inner is not None and not hasattr(inner, "__wrapped__"):  # the decorator that is next to the method
            return _step_without_gradients_of(function)
    return collective_of(function) or whole_call_of(function)


_FLEX_ATTENTION = ("torch.nn.attention.flex_attention", "flex_attention")
"""In one piece: below a break, the higher-order operator would not see what its two functions close over."""

_REBUILDING_MODULES = frozenset(
    f"torch.nn.utils.{name}"
    for name in ("fusion", "parametrizations", "parametrize", "prune", "spectral_norm", "weight_norm")
)
"""Their functions give a module another class, other parameters and hooks: what cannot be followed there would break many times."""


_UNSWITCHED_STEPS = frozenset(f"{name}.step" for name in ("Adafactor", "Muon", "SparseAdam"))
"""Of torch's optimizers, those that are decorated with `no_grad`. LBFGS, which calls back, is left to Python."""


@functools.cache
def _step_without_gradients_of(function: Value) -> Function:
    return step_without_gradients(function.__wrapped__)


@functools.cache
def _step_of(function: Value) -> Function:
    return captured_step(function.__wrapped__)


def replacement_of(function: types.FunctionType) -> Callable[..., Any] | None:
    """What is interpreted instead of a function that is known by its name or by its code."""
    if function.__code__ is _DISABLING_CODE and (function.__module__ or "").startswith("torch.optim"):
        inner: Callable[..., Any] = function.__wrapped__  # type: ignore[attr-defined]
        return inner
    if function.__code__ is _SCRIPTED_WHEN_TRACED_CODE:  # below `torch.jit.trace` nothing is compiled
        scripted: Callable[..., Any] = function.__wrapped__  # type: ignore[attr-defined]
        return scripted
    if function.__name__ == "_init_group":  # torch._dynamo, once it is imported, disables these
        original: Callable[..., Any] | None = getattr(function, "_torchdynamo_orig_callable", None)
        return original
    return _BY_NAME.get((function.__module__, function.__qualname__))
