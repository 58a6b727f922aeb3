"""Hooks on gradients.

Of tensors that the region makes they are captured. Of leaves that were there before they are entries of a dict, stored at the
region's end as other effects are. Of modules they break before and after the forward, where its arguments and results have gradients.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict

import torch
from torch.utils.hooks import BackwardHook, RemovableHandle

from torchjit_fx.intrinsics import Value, enter_hook, hook_leaf, leave_hook, refuse, remove_hook

__all__ = [
    "HookHandle", "handle_init", "handle_number", "handle_remove", "is_known_number", "register_hook",
    "register_post_accumulate_grad_hook", "setup_input_hook", "setup_output_hook", "take_handle_number",
]  # fmt: skip


class HookHandle(RemovableHandle):
    """The handle of a hook in the graph, for use inside the region: one that is kept makes the capture break at the registration."""

    def __init__(self, token: Value) -> None:
        self._token = token

    def remove(self) -> None:
        remove_hook(self._token)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, type: Value, value: Value, tb: Value) -> None:
        self.remove()


def register_hook(self: torch.Tensor, hook: Value) -> Value:
    """Interpreted instead of `torch.Tensor.register_hook`."""
    if not self.requires_grad:
        refuse("a hook of a tensor without gradient")
    if self.is_leaf:
        hook_leaf(self)
        if self._backward_hooks is None:
            self._backward_hooks = OrderedDict()
        return _added(self._backward_hooks, hook)
    gradient = enter_hook(self)
    result = hook(gradient)
    return HookHandle(leave_hook(gradient if result is None else result))


def register_post_accumulate_grad_hook(self: torch.Tensor, hook: Value) -> Value:
    """Interpreted instead of `torch.Tensor.register_post_accumulate_grad_hook`."""
    if not self.requires_grad or not self.is_leaf:
        refuse("a hook of a tensor without gradient, or of no leaf")
    hook_leaf(self)
    if self._post_accumulate_grad_hooks is None:
        self._post_accumulate_grad_hooks = OrderedDict()
    return _added(self._post_accumulate_grad_hooks, hook)


def handle_number() -> int:
    """The next number of a handle: the interpreter draws it at the region's end, so that no region rests on it."""
    raise RuntimeError("this function has a meaning only while it is interpreted")


def is_known_number(number: int) -> bool:
    """Is this the number of a handle that the region made, or one that the capture relies on?"""
    raise RuntimeError("this function has a meaning only while it is interpreted")


def take_handle_number(handle: object) -> int:
    """Draws it."""
    number = RemovableHandle.next_id
    RemovableHandle.next_id = number + 1
    return number


def handle_init(self: RemovableHandle, hooks_dict: Value, *, extra_dict: Value = None) -> None:
    """Interpreted instead of `RemovableHandle.__init__`. Source: torch/utils/hooks.py (torch 2.15)."""
    self.hooks_dict_ref = weakref.ref(hooks_dict)
    self.id = handle_number()
    self.extra_dict_ref = ()
    if isinstance(extra_dict, dict):
        self.extra_dict_ref = (weakref.ref(extra_dict),)
    elif isinstance(extra_dict, list):
        self.extra_dict_ref = tuple([weakref.ref(d) for d in extra_dict])


def handle_remove(self: RemovableHandle) -> None:
    """Interpreted instead of `RemovableHandle.remove`."""
    if not is_known_number(self.id):  # it was another one in another call, as that of a hook which each call registers
        refuse("the removal of a hook that was registered before")
    hooks_dict = self.hooks_dict_ref()
    if hooks_dict is not None and self.id in hooks_dict:
        del hooks_dict[self.id]
    for ref in self.extra_dict_ref:
        extra_dict = ref()
        if extra_dict is not None and self.id in extra_dict:
            del extra_dict[self.id]


def _added(hooks: Value, hook: Value) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def setup_input_hook(self: BackwardHook, args: Value) -> Value:
    """Interpreted instead of `BackwardHook.setup_input_hook`. Source: torch/utils/hooks.py (torch 2.15)."""
    _refuse_gradients(args)
    self.n_inputs = len(args)
    self.input_tensors_index = None
    return args


def setup_output_hook(self: BackwardHook, args: Value) -> Value:
    """Interpreted instead of `BackwardHook.setup_output_hook`. Source: torch/utils/hooks.py (torch 2.15)."""
    results = args if isinstance(args, tuple) else (args,)
    _refuse_gradients(results)
    self.n_outputs = len(results)
    self.output_tensors_index = None
    return args


def _refuse_gradients(values: Value) -> None:
    """User code that runs when gradients are computed hangs on nodes of autograd, if it records at all."""
    if torch.is_grad_enabled():
        for value in values:
            if isinstance(value, torch.Tensor) and value.requires_grad:
                refuse("a backward hook of a module")
