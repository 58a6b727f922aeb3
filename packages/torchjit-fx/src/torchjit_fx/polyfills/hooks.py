"""Backward hooks of modules: two breaks, one before and one after the module's forward."""

from __future__ import annotations

from typing import Any

from torchjit_fx.intrinsics import refuse

__all__ = ["setup_hook"]


def setup_hook(hook: Any, args: Any) -> Any:
    """Interpreted instead of `BackwardHook.setup_input_hook` and `setup_output_hook`.

    User code that runs when gradients are computed hangs on the autograd nodes that these make.
    """
    refuse("a backward hook of a module")
