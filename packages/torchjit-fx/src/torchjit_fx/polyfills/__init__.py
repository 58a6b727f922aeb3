"""Python that the interpreter reads in the place of torch functions that it could not look into.

`POLYFILLS` maps what the program calls to the function that is interpreted instead, in one piece: a break inside means
that the original runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch.utils.hooks import BackwardHook

from torchjit_fx.polyfills.autograd_function import apply
from torchjit_fx.polyfills.checkpoint import checkpoint, checkpoint_impl
from torchjit_fx.polyfills.hooks import setup_hook

__all__ = ["POLYFILLS"]


def _table() -> dict[Any, Callable[..., Any]]:
    base: Any = torch.autograd.Function
    table: dict[Any, Callable[..., Any]] = {
        torch_checkpoint.checkpoint: checkpoint,
        BackwardHook.setup_input_hook: setup_hook,
        BackwardHook.setup_output_hook: setup_hook,
    }
    if hasattr(torch_checkpoint, "_checkpoint_impl"):  # of torch 2.15: what the decorator form calls
        table[torch_checkpoint._checkpoint_impl] = checkpoint_impl
    for cls in base.__mro__:
        found = cls.__dict__.get("apply")
        if found is not None:  # a class method of C, or of Python before torch 2.15
            table[getattr(found, "__func__", found)] = apply
    return table


POLYFILLS = _table()
