"""Warnings that point at the user's line, not at ours."""

from __future__ import annotations

import sys
import types
import warnings

__all__ = ["warn_user"]


def warn_user(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """A warning about the innermost line that is neither in a package of this project nor in torch's."""
    level = 1
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and _is_not_the_users(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def _is_not_the_users(module: object) -> bool:
    package = str(module).partition(".")[0]
    return package in ("torch", "torchjit", "contextlib", "concurrent", "threading") or package.startswith("torchjit_")
