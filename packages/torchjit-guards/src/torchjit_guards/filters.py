"""Upstream's ready-made values of the option `guard_filter_fn`, which leaves out guards.

Here guards cost a few microseconds for all together and are what keeps results right, so none is left out: the option and
these functions are accepted, and every guard is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchjit_core.user_errors import wrong_type

__all__ = [
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
]


def skip_all_guards_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Accepted for upstream's sake; every guard is kept."""
    if not isinstance(guard_entries, Sequence):
        raise wrong_type(
            "guard_entries",
            guard_entries,
            "a list of guards: pass the function itself as options={'guard_filter_fn': ...}",
        )
    return [True] * len(guard_entries)


keep_portable_guards_unsafe = skip_all_guards_unsafe
skip_guard_on_all_nn_modules_unsafe = skip_guard_on_inbuilt_nn_modules_unsafe = skip_all_guards_unsafe
skip_guard_on_globals_unsafe = skip_all_guards_unsafe


def keep_tensor_guards_unsafe(guard_entries: Sequence[Any], keep_parameters: bool = False) -> list[bool]:
    """Accepted for upstream's sake; every guard is kept."""
    return skip_all_guards_unsafe(guard_entries)
