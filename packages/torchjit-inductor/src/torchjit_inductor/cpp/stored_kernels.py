"""Kernels of compiled entries on disk: there they are the name of a library in the cache, and of a function in it."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from torchjit_core.handlers import let_through
from torchjit_core.reasons import reason
from torchjit_core.storing import NotStorable, cache_in_use, library_maker, made_by
from torchjit_inductor.cpp.folders import cache_folder, private_folder
from torchjit_inductor.cpp.library_files import digest, is_trusted, note_used
from torchjit_inductor.cpp.loader import load, opened, wrapped

__all__ = ["hold_library", "kernel_of", "load_storable"]

KERNEL_GONE = reason(
    "TJ-STORE-041",
    "a kernel is not in the cache any more",
    "A compiled entry on disk refers to C kernels in the same cache folder. One of them is gone, or is not what was built, so the entry is "
    "made anew.",
)
_NAME = re.compile(r"[0-9a-f]{40}")


def load_storable(library: Path, names: Sequence[str], cache_dir: str | None) -> list[Callable[..., None]]:
    """`load`; functions of a library that stays, in the cache folder, can be stored."""
    functions = load(library, names)
    if _stays(library, cache_dir):
        for function, name in zip(functions, names, strict=True):
            made_by(function, kernel_of, library.stem, name)
    return functions


def _stays(library: Path, cache_dir: str | None) -> bool:
    """Is it in the cache, and not in what stands in for that while this process lives?"""
    with contextlib.suppress(OSError):
        return library.parent == cache_folder(cache_dir)
    return False


_restored: dict[tuple[Path, str, str], Callable[..., None]] = {}
_held: dict[str, ctypes.CDLL] = {}
_numbers = itertools.count(1)


def hold_library(key: str, content: bytes, noted: bytes) -> None:
    """Load a library that is in no folder, for `kernel_of`. Nothing is written to a disk where Linux keeps files in memory.

    Args:
        key: the library's name.
        content: of it; somebody has vouched for it.
        noted: what was written beside it when it was built.

    Raises:
        NotStorable: it is not what was built, or cannot be loaded here.
    """
    if key in _held:
        return
    if not _NAME.fullmatch(key) or noted != digest(key, content).encode():
        raise NotStorable(KERNEL_GONE, f"{key} is not what was built")
    try:
        _held[key] = _opened(key, content)
    except OSError as error:
        raise NotStorable(KERNEL_GONE, f"{key}: {error}") from None


def _opened(key: str, content: bytes) -> ctypes.CDLL:
    with contextlib.suppress(AttributeError, OSError):  # no Linux, or it is forbidden
        file = os.memfd_create(key)
        with os.fdopen(file, "wb") as out:
            out.write(content)
            out.flush()
            # A loader knows libraries by their paths, and this number comes again once the file is closed: no two paths are equal.
            return opened(Path("/proc/self/fd", *["../fd"] * next(_numbers), str(file)))
    let_through()
    path = private_folder() / f"{key}.so"
    path.write_bytes(content)
    return opened(path)


@library_maker
def kernel_of(key: str, name: str) -> Callable[..., None]:
    """A kernel of a library in the cache folder that the entry is read from.

    Args:
        key: the library's name.
        name: of the kernel in it.

    Raises:
        NotStorable: it is not there, or not what was built.
    """
    try:
        if key in _held:
            return wrapped(_held[key], [name])[0]
        folder = _folder(cache_in_use())
        function = _restored.get((folder, key, name))
        if function is None:
            function = _restored[folder, key, name] = _loaded(folder / f"{key}.so", key, name)
    except (OSError, AttributeError) as error:
        raise NotStorable(KERNEL_GONE, f"{name} of {key}: {error}") from None
    return function


def _loaded(library: Path, key: str, name: str) -> Callable[..., None]:
    handle = _trusted.get(library)
    if handle is None:
        if not _NAME.fullmatch(key) or not is_trusted(library):
            raise NotStorable(KERNEL_GONE, str(library))
        handle = _trusted[library] = opened(library)
        note_used(library)
    (function,) = wrapped(handle, [name])
    made_by(function, kernel_of, key, name)
    return function


_folders: dict[str, Path] = {}


def _folder(cache_dir: str | None) -> Path:
    """`cache_folder`; one that is given is looked at once, since an entry has many kernels."""
    found = None if cache_dir is None else _folders.get(cache_dir)
    if found is None:
        found = cache_folder(cache_dir)
        if cache_dir is not None:
            _folders[cache_dir] = found
    return found


_trusted: dict[Path, ctypes.CDLL] = {}
"""Libraries that this process has looked at and loaded: an entry has many kernels of one."""
