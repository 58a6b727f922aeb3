"""The kernels in a cache folder: how many there are, and none."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import final

import attrs

from torchjit_inductor.cpp.build import KEY_LENGTH
from torchjit_inductor.settings import InductorSettings

__all__ = ["CacheState", "cache_state", "clear_cache"]


@final
@attrs.frozen
class CacheState:
    """What is in a cache folder.

    Attributes:
        folder: where kernels are kept.
        kernels: how many there are.
        measurements: files of what was measured on this machine.
        nbytes: of all files.
        limit: bytes beyond which the kernels that were not used for longest go.
        owner: the user that the folder belongs to; a number where it has no name.
        mode: of the folder, such as `0700`.
    """

    folder: Path
    kernels: int
    measurements: int
    nbytes: int
    limit: int
    owner: str
    mode: str


def cache_state(folder: Path) -> CacheState:
    """Look at a cache folder.

    Raises:
        OSError: it cannot be read.
    """
    names = [path for path in folder.iterdir() if path.is_file()]
    return CacheState(
        folder,
        sum(path.suffix == ".so" for path in names),
        sum(path.suffix == ".json" for path in names),
        sum(_size(path) for path in names),
        InductorSettings().cache_bytes,
        _owner_of(folder),
        f"{stat.S_IMODE(folder.stat().st_mode):04o}",
    )


def clear_cache(folder: Path) -> CacheState:
    """Remove kernels and measurements; libraries that a process has loaded stay loaded. What others put there stays.

    Returns:
        What was there before.

    Raises:
        OSError: a file cannot be removed.
    """
    before = cache_state(folder)
    for path in list(folder.iterdir()):
        if path.is_file() and (len(path.stem) == KEY_LENGTH or path.suffix == ".json" or path.name == "trimmed"):
            path.unlink(missing_ok=True)
    return before


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # another process has removed it just now
        return 0


def _owner_of(folder: Path) -> str:
    try:
        return folder.owner()
    except KeyError:
        return str(folder.stat().st_uid)
