"""Inference mode as ambient state that is set and read, per thread."""

from __future__ import annotations

import threading
from typing import Any

import torch

__all__ = ["set_inference_mode"]

_C: Any = torch._C
_DEVICES = ("cpu", "cuda")


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.entered: list[tuple[Any, bool]] = []  # the guards of C that are in force, and the mode before each


_state = _PerThread()


def set_inference_mode(value: bool) -> None:
    """Set inference mode alone: torch's guard also changes the grad mode, and what it restores is older than it should be.

    A capture follows the call and makes it real at the end of the region.
    """
    if torch.is_inference_mode_enabled() is value:
        return
    grad = torch.is_grad_enabled()
    autocast = [torch.is_autocast_enabled(device) for device in _DEVICES]
    if _state.entered and _state.entered[-1][1] is value:
        _state.entered.pop()[0].__exit__(None, None, None)
    else:
        guard = _C._InferenceMode(value)
        guard.__enter__()
        _state.entered.append((guard, not value))
    torch._C._set_grad_enabled(grad)
    for device, enabled in zip(_DEVICES, autocast, strict=True):
        torch.set_autocast_enabled(device, enabled)
