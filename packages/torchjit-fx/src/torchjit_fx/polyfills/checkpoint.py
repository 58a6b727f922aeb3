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
    if use_reentrant and context_fn is not noop_context_fn:
        refuse("a context_fn for the reentrant checkpoint")
    if kwargs and use_reentrant:
        refuse("keyword arguments for the reentrant checkpoint")
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    if use_reentrant and not any([isinstance(a, torch.Tensor) and a.requires_grad for a in args]):
        refuse("no argument requires grad")
    if context_fn is noop_context_fn:
        enter_checkpoint(None)
    elif isinstance(context_fn, functools.partial) and context_fn.func is create_selective_checkpoint_contexts:
        given = context_fn.keywords
        enter_checkpoint(context_fn.func, context_fn.args[0] if context_fn.args else given["policy_fn_or_list"])
    elif isinstance(context_fn, types.FunctionType) and "<locals>" in context_fn.__qualname__:
        # It may be made by the region itself: it is interpreted, and only its policy is an object that there is.
        enter_checkpoint(create_selective_checkpoint_contexts, context_fn()[0].policy_fn)
    else:
        enter_checkpoint(context_fn)
    result = function(*args, **kwargs)
    leave_checkpoint()
    return result
