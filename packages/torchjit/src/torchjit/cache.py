"""What is kept on disk between processes, kernels and compiled entries: where, and put there from another machine's."""

from __future__ import annotations

from pathlib import Path

from torchjit.config import bundle_secret
from torchjit.environment import read_environment
from torchjit.kernels import kernel_settings
from torchjit_inductor.cpp import folders
from torchjit_inductor.cpp.library_files import is_trusted, used_libraries
from torchjit_store import bundles
from torchjit_store.bundles import CacheInfo
from torchjit_store.folder import stored_here

__all__ = ["CacheInfo", "cache_folder", "load_cache_artifacts", "save_cache_artifacts"]


def save_cache_artifacts(*, key: str | bytes | None = None) -> tuple[bytes, CacheInfo] | None:
    """What this process has compiled or loaded, for `load_cache_artifacts` on machines of the same kind; None if that is nothing.

    Kernels are libraries for this processor and compiler, entries are for these versions besides: elsewhere they are not used.

    Args:
        key: a secret to sign them with. None is TORCHJIT_BUNDLE_KEY, if it is set.
    """
    data, info = bundles.pack(stored_here(), [lib for lib in used_libraries() if is_trusted(lib)], bundle_secret(key))
    return (data, info) if info.kernels or info.entries else None


def load_cache_artifacts(
    serialized_artifacts: bytes, *, key: str | bytes | None = None, trust: bool = False
) -> CacheInfo | None:
    """Put what `save_cache_artifacts` gave into the cache. Bytes that are damaged are refused as a whole, with a warning.

    They are code that this process will run.

    Args:
        key: the secret that they were signed with. None is TORCHJIT_BUNDLE_KEY.
        trust: take them without a signature: only what you would run.

    Returns:
        What was loaded, or None.

    Raises:
        UserError: these are no bytes, or they have no right signature and are not trusted.
    """
    return bundles.load(serialized_artifacts, kernel_settings().cache_dir, bundle_secret(key), trust=trust)


def cache_folder() -> Path:
    """The cache folder, made if need be, whether the cache is on or off.

    Raises:
        OSError: it cannot be made or used.
    """
    return folders.cache_folder(read_environment().cache_dir)
