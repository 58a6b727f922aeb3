"""`torch.autograd.Function.apply`. Source: torch/csrc/autograd/python_function.cpp (torch 2.15)."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import _SingleLevelFunction, once_differentiable

from torchjit_fx.intrinsics import (
    Value,
    abandon_backward,
    enter_backward,
    enter_forward,
    finish_function,
    follow_under_transforms,
    leave_backward,
    leave_forward,
    refuse,
)

__all__ = ["Context", "apply"]

_PLAIN_SETUP = _SingleLevelFunction.setup_context
_PLAIN_VJP = _SingleLevelFunction.vjp
_PLAIN_VMAP = torch.autograd.Function.vmap
_decorate: Value = once_differentiable
_ONCE_CODE = _decorate(None).__code__
_MOST_OPTIONAL = 2


class Context:
    """The `ctx` of forward and backward."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self.to_save: tuple[Any, ...] = ()
        self.non_differentiable: tuple[Any, ...] = ()
        self.dirty_tensors: tuple[Any, ...] = ()
        self.materialize_grads = True

    def save_for_backward(self, *tensors: Value) -> None:
        self.to_save = tensors

    def save_for_forward(self, *tensors: Value) -> None:
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Value) -> None:
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Value) -> None:
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Value, ...]:
        return self.to_save


def apply(cls: Value, *args: Value, **kwargs: Value) -> Value:
    """Interpreted instead of `cls.apply`."""
    if kwargs or getattr(cls, "boxed_grads_call", False):
        refuse("keyword arguments, or gradients in a list")
    separate = cls.setup_context is not _PLAIN_SETUP
    follow_under_transforms(separate and _has_plain_batching(cls))
    if separate:
        args = _with_defaults(cls.forward, args)
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    ctx = Context(tuple([isinstance(a, torch.Tensor) and a.requires_grad for a in args]))
    if torch.is_grad_enabled() and any(ctx.needs_input_grad):
        if torch.is_inference_mode_enabled():
            # With `enable_grad` inside of it such functions record, and operators do not.
            refuse("a history in inference mode")
        enter_forward(tensors)
        single, items = _run_forward(cls, ctx, args, separate)
        results = _differentiable(cls, ctx, items, args)
    else:
        with torch.no_grad():
            single, items = _run_forward(cls, ctx, args, separate)
            results = [_as_fresh(o, tensors, ctx) for o in items]
    return results[0] if single else tuple(results)


def _has_plain_batching(cls: Value) -> bool:
    return cls.generate_vmap_rule and cls.vmap is _PLAIN_VMAP


def _differentiable(cls: Value, ctx: Context, items: tuple[Value, ...], args: tuple[Value, ...]) -> list[Value]:
    """End the forward and capture the backwards: the outputs, with a history."""
    made = [o for o in items if isinstance(o, torch.Tensor)]
    saved = [t for t in ctx.to_save if t is not None]
    may_have = [o.is_floating_point() or o.is_complex() for o in made]
    constant = [_is_in(o, ctx.non_differentiable) or not may for o, may in zip(made, may_have)]
    leave_forward(made, saved, list(ctx.non_differentiable), list(ctx.dirty_tensors))
    backward = cls.vjp if cls.vjp is not _PLAIN_VJP else cls.backward
    for defined in _patterns(constant, ctx.materialize_grads):
        gradients = enter_backward(defined)
        if all(defined):
            found = _run_backward(backward, ctx, items, gradients)
        else:
            try:
                found = _run_backward(backward, ctx, items, gradients)
            except Exception:
                # The user's backward need not cope with gradients that are None: this pattern is left out.
                abandon_backward()
                continue
        leave_backward(_gradients_of_tensors(found, args))
    once = getattr(backward, "__code__", None) is _ONCE_CODE
    rest = iter(finish_function(cls.__name__, ctx.materialize_grads, once))
    return [next(rest) if isinstance(o, torch.Tensor) else o for o in items]


def _run_forward(cls: Value, ctx: Context, args: tuple[Value, ...], separate: bool) -> tuple[bool, tuple[Value, ...]]:
    """Whether it gives one value, and all that it gives."""
    if separate:
        outputs = cls.forward(*args)
        cls.setup_context(ctx, args, outputs)
    else:
        outputs = cls.forward(ctx, *args)
    return (False, outputs) if isinstance(outputs, tuple) else (True, (outputs,))


def _with_defaults(forward: Value, args: tuple[Value, ...]) -> tuple[Value, ...]:
    code = forward.__code__
    missing = code.co_argcount - len(args)
    if missing <= 0:
        return args
    defaults = forward.__defaults__ or ()
    if missing > len(defaults):
        refuse("an argument is missing")
    return (*args, *defaults[len(defaults) - missing :])


def _as_fresh(output: Value, tensors: list[Value], ctx: Context) -> Value:
    """An argument that comes back is another tensor object, unless it was written."""
    if isinstance(output, torch.Tensor) and _is_in(output, tensors) and not _is_in(output, ctx.dirty_tensors):
        return output.detach()
    return output


def _is_in(tensor: Value, tensors: Value) -> bool:
    return any([tensor is other for other in tensors])


def _patterns(constant: list[bool], materialize: bool) -> list[list[bool]]:
    """Which gradients may be there. Those of constant outputs are zeros, or None if missing ones are not filled in."""
    if materialize:
        return [[True] * len(constant)]
    patterns: list[list[bool]] = [[]]
    if len(constant) - sum(constant) > _MOST_OPTIONAL:
        refuse("many outputs whose gradients may be missing")
    for fixed in constant:
        choices = [False] if fixed else [True, False]
        patterns = [[*pattern, choice] for pattern in patterns for choice in choices]
    return patterns


def _run_backward(backward: Value, ctx: Context, items: tuple[Value, ...], gradients: list[Value]) -> Value:
    rest = iter(gradients)
    return backward(ctx, *[next(rest) if isinstance(o, torch.Tensor) else None for o in items])


def _gradients_of_tensors(found: Value, args: tuple[Value, ...]) -> list[Value]:
    if not isinstance(found, tuple):
        found = (found,)
    if len(found) < len(args) or any([f is not None for f in found[len(args) :]]):
        refuse("a wrong number of gradients")
    gradients = []
    for value, arg in zip(found, args, strict=False):
        if isinstance(arg, torch.Tensor):
            gradients.append(value if arg.requires_grad else None)
        elif value is not None:
            refuse("a gradient of what is no tensor")
    return gradients
