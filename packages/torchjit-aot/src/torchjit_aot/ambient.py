"""The program's ambient state that is for its own tensors, put aside while tensors of ours are traced and compiled.

Hooks of saved tensors (a checkpoint's, `save_on_cpu`, the program's own), anomaly mode, and modes of functions and operators would be
given fake tensors, or count what the program does not do. What the program computes under (grad mode, autocast, the default dtype
and device) is part of the trace and stays. A capture runs with hooks aside; under modes other than `torch.device` there is none.
A backward is compiled inside of the program's `backward()`, under whatever is on there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["aside", "modes_aside", "saved_tensor_hooks_aside"]


@contextlib.contextmanager
def saved_tensor_hooks_aside() -> Iterator[None]:
    """No hooks of saved tensors but those that the block itself sets."""
    autograd, taken = torch._C._autograd, []
    try:
        while (hooks := autograd._top_saved_tensors_default_hooks(True)) is not None:
            taken.append(hooks)
            autograd._pop_saved_tensors_default_hooks()
        yield
    finally:
        for hooks in reversed(taken):
            autograd._push_saved_tensors_default_hooks(*hooks)


@contextlib.contextmanager
def modes_aside() -> Iterator[None]:
    """No modes of functions, `torch.device` and `torch.set_default_device` among them, and of operators."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        yield


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """All of it, where the trace is done and its graphs are compiled."""
    with (
        saved_tensor_hooks_aside(),
        torch.inference_mode(False),
        torch.no_grad(),
        torch.autograd.set_detect_anomaly(False, check_nan=torch.is_anomaly_check_nan_enabled()),
        modes_aside(),
    ):
        yield
