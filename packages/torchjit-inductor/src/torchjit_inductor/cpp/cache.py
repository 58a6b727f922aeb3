"""The kernels in a cache folder: how many there are, and as bytes that another machine loads."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import final

import attrs

from torchjit_core.reasons import UserError, UserTypeError, reason
from torchjit_core.user_warnings import warn_user
from torchjit_inductor.cpp import bundle
from torchjit_inductor.cpp.build import KEY_LENGTH, used_libraries
from torchjit_inductor.settings import InductorSettings

__all__ = ["CacheInfo", "CacheState", "cache_state", "clear_cache", "load_cache_artifacts", "save_cache_artifacts"]

NO_ARTIFACTS = reason(
    "TJ-API-071",
    "what load_cache_artifacts was given cannot be used",
    "It takes the bytes that save_cache_artifacts returned. Nothing was put into the cache; what is missing there is compiled.",
    "Save them again with this version of torchjit.",
)

CacheInfo = bundle.Bundled
"""Names and size of saved kernels."""


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


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """The kernels that this process has used, for `load_cache_artifacts` on machines of the same kind; None if there are none.

    They are libraries for this processor and compiler: elsewhere they are not used.
    """
    data, info = bundle.pack(used_libraries())
    return (data, info) if info.kernels else None


def load_cache_artifacts(serialized_artifacts: bytes, folder: Callable[[], Path]) -> CacheInfo | None:
    """Put what `save_cache_artifacts` gave into a folder. Bytes that are damaged are refused as a whole, with a warning.

    Returns:
        What was loaded, or None.

    Raises:
        UserError: these are no bytes.
    """
    if not isinstance(serialized_artifacts, (bytes, bytearray, memoryview)):
        raise UserTypeError(NO_ARTIFACTS, f"want bytes, got {type(serialized_artifacts).__name__}")
    try:
        return bundle.unpack(bytes(serialized_artifacts), folder())
    except (bundle.BadBundle, OSError) as error:
        warn_user(str(UserError(NO_ARTIFACTS, str(error))))
        return None


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
