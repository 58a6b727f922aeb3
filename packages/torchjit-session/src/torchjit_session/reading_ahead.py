"""Bytecode files of packages that are about to be imported, read by a few threads: imports read file behind file.

Where opening a file takes a millisecond or more (file systems of containers, networks), some hundreds of them are most of a cold
first call. Where it takes less, threads would cost more than they save, and nothing is read ahead.
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import cache_from_source, find_spec
from typing import final

__all__ = ["read_ahead"]

_READERS = 8
_TOGETHER = 4
"""So many files are a piece of work for a reader."""
_PROBES = 3
_SLOW = 0.0003
"""Seconds that a file takes where reading ahead is worth its while: 0.03 ms are usual of a disk's cache."""

_read: dict[str, bytes] = {}
"""Bytecode, by the file's path."""
_by_one = threading.Lock()


@final
class _Loader(SourceFileLoader):
    """Python's own, which compares bytecode with its source's time and size; a file's bytes may be here already."""

    def get_data(self, path: str) -> bytes:
        data = _read.pop(path, None)
        return super().get_data(path) if data is None else data


@contextlib.contextmanager
def read_ahead(packages: Sequence[str]) -> Iterator[None]:
    """Inside, modules of these packages, of which some may be missing, are imported with fewer waits for files.

    Nothing is read for a second thread at the same time.
    """
    folders = [(name, folder) for name in packages for folder in _folders(name)]
    if not _by_one.acquire(blocking=False):
        yield
        return
    try:
        if _are_slow(folders):
            with _readers(folders):
                yield
        else:
            yield
    finally:
        _read.clear()
        _by_one.release()


@contextlib.contextmanager
def _readers(folders: Sequence[tuple[str, str]]) -> Iterator[None]:
    """Inside, threads read what lies in these packages' folders and below."""
    threads = ThreadPoolExecutor(_READERS, "torchjit-reads")
    before: dict[str, FileFinder] = {}

    def look_into(package: str, folder: str) -> None:
        # OSError: there is no such folder; RuntimeError: there are no threads, or no more reading is wanted.
        with contextlib.suppress(OSError, RuntimeError):
            entries = list(os.scandir(folder))
            if not any(entry.name.endswith(".py") for entry in entries) or not _place_finder(folder, before):
                return
            paths = _waiting(package, entries)
            for start in range(0, len(paths), _TOGETHER):
                threads.submit(_read_files, paths[start : start + _TOGETHER])
            for entry in entries:
                if entry.is_dir() and not entry.name.startswith("_"):
                    threads.submit(look_into, f"{package}.{entry.name}", entry.path)

    try:
        with contextlib.suppress(RuntimeError):
            for package, folder in folders:
                threads.submit(look_into, package, folder)
        yield
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
        for folder, finder in before.items():
            sys.path_importer_cache[folder] = finder


def _folders(name: str) -> Sequence[str]:
    with contextlib.suppress(ValueError):  # something else is in its place
        if (spec := find_spec(name)) is not None:
            return tuple(spec.submodule_search_locations or ())
    return ()


def _waiting(package: str, entries: Iterable[os.DirEntry[str]]) -> list[str]:
    """Of what lies in this package's folder the sources of modules that are not imported yet."""
    names = {e.path: e.name[:-3] for e in entries if e.name.endswith(".py")}
    modules = {path: package if name == "__init__" else f"{package}.{name}" for path, name in names.items()}
    return [path for path, module in modules.items() if module not in sys.modules]


def _are_slow(folders: Sequence[tuple[str, str]]) -> bool:
    """Does reading a file take long here? Files that were read before would not tell: some systems keep those, and only those, at hand."""
    took = []
    for package, folder in folders:
        with contextlib.suppress(OSError):
            for path in _waiting(package, os.scandir(folder))[:1]:
                start = time.perf_counter()
                _read_files([path])
                took.append(time.perf_counter() - start)
        if len(took) == _PROBES:
            break
    return min(took, default=0.0) >= _SLOW


def _place_finder(folder: str, before: dict[str, FileFinder]) -> bool:
    """Have modules of this folder found by one whose loaders ask here first. False: somebody else's finder is there."""
    finder = pkgutil.get_importer(folder)
    if type(finder) is not FileFinder:
        return False
    before[folder] = finder
    sys.path_importer_cache[folder] = FileFinder(
        folder,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (_Loader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )
    return True


def _read_files(sources: Sequence[str]) -> None:
    """Read their bytecode, where there is some."""
    for source in sources:
        with contextlib.suppress(OSError, NotImplementedError):  # the latter: an interpreter that keeps no bytecode
            path = cache_from_source(source)
            _read[path] = SourceFileLoader("", source).get_data(path)
