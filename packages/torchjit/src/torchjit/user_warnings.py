"""Warnings that point at the user's line, not at ours."""

from __future__ import annotations

import os
import sys
import types
import warnings

import torch

__all__ = ["warn_user"]

_NOT_THE_USERS = tuple(os.path.dirname(f) + os.sep for f in (__file__, str(torch.__file__)))


def warn_user(text: str) -> None:
    """A RuntimeWarning about the innermost line that is neither of this package nor of torch."""
    level = 1
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=level)
