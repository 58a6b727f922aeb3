"""Libraries that look for a backend when they are first used: they do so before a capture, which would break there.

Such a search is the same whenever it is made (it fills a cache), and most of what it does no graph can hold: it imports modules and
goes through all subclasses of a class. Each step would be a break, in a loop whose every turn is a region.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["make_first_uses"]

_SAMPLE = torch.Tensor()


def make_first_uses() -> None:
    """Let each library of the table that is imported find its backend for tensors. After the first time it looks up a key."""
    for name, use in _FIRST_USES.items():
        module = sys.modules.get(name)
        if module is not None:
            with contextlib.suppress(
                Exception
            ):  # being imported in another thread, or another version: the program's call will tell
                use(module)


def _einops(backends: Any) -> None:
    if torch.Tensor not in backends._type2backend:
        backends.get_backend(_SAMPLE)


_FIRST_USES: dict[str, Callable[[Any], None]] = {"einops._backends": _einops}
