"""One budget for entries and kernels: what was not used for longest goes."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from torchjit_core.handlers import let_through

__all__ = ["CacheUse", "cache_use", "trim"]

HOUR = 3600.0
_KERNEL = re.compile(r"[0-9a-f]{40}")
_STAMP = "trimmed"


class _Unit(NamedTuple):
    """Files that go together: an entry, or a library with its text and digest."""

    used: float
    nbytes: int
    paths: tuple[Path, ...]


class CacheUse(NamedTuple):
    """Entries below a cache folder, and bytes of their files."""

    entries: int
    nbytes: int


def cache_use(root: Path) -> CacheUse:
    """What there is of entries. A folder that is not there holds none."""
    units = list(_entries(root))
    return CacheUse(len(units), sum(unit.nbytes for unit in units))


def trim(root: Path, limit: int) -> int:
    """Remove what was not used for longest, entries and kernels alike, until `limit` bytes are left.

    Args:
        root: the cache folder.

    Returns:
        Bytes removed. Looks at most once an hour, since a look lists the folders; never raises for what is on disk.
    """
    stamp = root / "entries" / _STAMP
    try:
        if stamp.exists() and abs(time.time() - stamp.stat().st_mtime) < HOUR:
            return 0
        stamp.touch(mode=0o600)
        os.utime(stamp)
    except OSError:
        let_through()
        return 0
    return _trim([*_entries(root), *_kernels(root)], limit)


def _trim(units: list[_Unit], limit: int) -> int:
    total, removed = sum(unit.nbytes for unit in units), 0
    for unit in sorted(units):
        if total - removed <= limit:
            break
        for path in unit.paths:
            with contextlib.suppress(OSError):
                path.unlink()
        if unit.paths[0].suffix == ".tj":
            with contextlib.suppress(OSError):
                unit.paths[0].parent.rmdir()  # if that was the last one
        removed += unit.nbytes
    return removed


def _entries(root: Path) -> Iterator[_Unit]:
    for shard in _listed(root / "entries"):
        for key in _listed(Path(shard.path)) if shard.is_dir(follow_symlinks=False) else ():
            for file in _listed(Path(key.path)) if key.is_dir(follow_symlinks=False) else ():
                if file.name.endswith(".tj"):
                    with contextlib.suppress(OSError):
                        found = file.stat(follow_symlinks=False)
                        yield _Unit(found.st_mtime, found.st_size, (Path(file.path),))


def _kernels(root: Path) -> Iterator[_Unit]:
    groups: dict[str, list[_Unit]] = {}
    for file in _listed(root / "c"):
        stem = file.name.partition(".")[0]
        if _KERNEL.fullmatch(stem) and file.is_file(follow_symlinks=False):
            with contextlib.suppress(OSError):
                found = file.stat()
                groups.setdefault(stem, []).append(_Unit(found.st_mtime, found.st_size, (Path(file.path),)))
    for units in groups.values():
        yield _Unit(max(u.used for u in units), sum(u.nbytes for u in units), tuple(u.paths[0] for u in units))


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []
