"""What compiled graphs run without."""

from __future__ import annotations

import torch

__all__ = ["UNTRACKED"]

UNTRACKED = (
    torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
)
"""Dispatch keys: autocast (the casts are in the graph), and the tracking of views and versions."""
