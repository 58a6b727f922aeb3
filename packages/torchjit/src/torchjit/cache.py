"""The kernels that are kept on disk: where, and put there from another machine's."""

from __future__ import annotations

from pathlib import Path

from torchjit.environment import read_environment
from torchjit.kernels import kernel_settings
from torchjit_inductor.cpp import cache, folders
from torchjit_inductor.cpp.cache import CacheInfo, save_cache_artifacts

__all__ = ["CacheInfo", "cache_folder", "load_cache_artifacts", "save_cache_artifacts"]


def load_cache_artifacts(serialized_artifacts: bytes) -> CacheInfo | None:
    """Put what `save_cache_artifacts` gave into the cache. Bytes that are damaged are refused as a whole, with a warning.

    The kernels are code that this process will run: load only what you would run.

    Returns:
        What was loaded, or None.

    Raises:
        UserError: these are no bytes.
    """
    return cache.load_cache_artifacts(serialized_artifacts, lambda: folders.usable_folder(kernel_settings().cache_dir))


def cache_folder() -> Path:
    """The cache folder, made if need be, whether the cache is on or off.

    Raises:
        OSError: it cannot be made or used.
    """
    return folders.cache_folder(read_environment().cache_dir)
