"""Warnings that point at the user's line, not at ours."""

from torchjit_core.user_warnings import warn_user

__all__ = ["warn_user"]
