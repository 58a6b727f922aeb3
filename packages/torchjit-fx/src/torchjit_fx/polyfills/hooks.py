"""Hooks on gradients: of tensors that the region makes they are captured; of modules they break before and after the forward."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from torchjit_fx.intrinsics import enter_hook, leave_hook, refuse, remove_hook

__all__ = ["HookHandle", "register_hook", "setup_hook"]


class HookHandle(RemovableHandle):
    """The handle of a hook in the graph, for use inside the region: one that is kept makes the capture break at the registration."""

    def __init__(self, token: Any) -> None:
        self._token = token

    def remove(self) -> None:
        remove_hook(self._token)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, type: Any, value: Any, tb: Any) -> None:
        self.remove()


def register_hook(self: torch.Tensor, hook: Any) -> Any:
    """Interpreted instead of `torch.Tensor.register_hook`."""
    if not self.requires_grad or self.is_leaf:
        refuse("a hook of a leaf, or of a tensor without gradient")
    gradient = enter_hook(self)
    result = hook(gradient)
    return HookHandle(leave_hook(gradient if result is None else result))


def setup_hook(hook: Any, args: Any) -> Any:
    """Interpreted instead of `BackwardHook.setup_input_hook` and `setup_output_hook`.

    User code that runs when gradients are computed hangs on the autograd nodes that these make.
    """
    refuse("a backward hook of a module")
