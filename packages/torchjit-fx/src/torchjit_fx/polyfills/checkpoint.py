"""`torch.utils.checkpoint.checkpoint`: the function is captured and its nodes are tagged for recomputation."""

from __future__ import annotations

import functools
import types

import torch
from torch.utils.checkpoint import _DEFAULT_DETERMINISM_MODE, create_selective_checkpoint_contexts, noop_context_fn

from torchjit_fx.intrinsics import Value, enter_checkpoint, leave_checkpoint, refuse
from torchjit_fx.leaves import Function

__all__ = ["checkpoint", "checkpoint_impl"]


def checkpoint(function: Value = None, *args: Value, **kwargs: Value) -> Value:
    """Interpreted instead of `torch.utils.checkpoint.checkpoint`."""
    return _checkpoint(function, args, **kwargs)


def checkpoint_impl(function: Value, args: Value, kwargs: Value, **options: Value) -> Value:
    """Interpreted instead of what `checkpoint` used as a decorator calls."""
    return _checkpoint(function, args, **kwargs, **options)


def _checkpoint(
    function: Value,
    args: Value,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Function = noop_context_fn,
    determinism_check: str = _DEFAULT_DETERMINISM_MODE,
    debug: bool = False,
    early_stop: bool = True,
    respect_saved_tensors_hooks: bool | None = None,
    **kwargs: Value,
) -> Value:
    # The originals of these warn, raise, or do more than recompute.
    if function is None or use_reentrant is None or debug:
        refuse("a checkpoint with debug or without use_reentrant")
    if use_reentrant and (kwargs or context_fn is not noop_context_fn):
        refuse("a context_fn or keyword arguments for the reentrant checkpoint")
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    if use_reentrant and not any([isinstance(a, torch.Tensor) and a.requires_grad for a in args]):
        refuse("no argument requires grad")
    enter_checkpoint(*_selection(context_fn))
    result = function(*args, **kwargs)
    leave_checkpoint()
    return result


def _selection(context_fn: Value) -> tuple[Value, ...]:
    """For `enter_checkpoint`: None, or what makes the contexts and its arguments."""
    if context_fn is noop_context_fn:
        return (None,)
    if isinstance(context_fn, functools.partial) and context_fn.func is create_selective_checkpoint_contexts:
        policy = context_fn.args[0] if context_fn.args else context_fn.keywords["policy_fn_or_list"]
        return context_fn.func, policy
    if isinstance(context_fn, types.FunctionType) and "<locals>" in context_fn.__qualname__:
        # It may be made by the region itself: it is interpreted, and only its policy is an object that there is.
        return create_selective_checkpoint_contexts, context_fn()[0].policy_fn
    return (context_fn,)
