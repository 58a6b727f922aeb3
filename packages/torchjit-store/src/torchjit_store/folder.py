"""The folder of entries: a file for each, never changed once it is there, found by the key of its site.

    <cache folder>/entries/<k[:2]>/<k>/<digest>.tj

The file's first line is its header as JSON; the entry's bytes follow. Its name is the SHA-256 of the whole file. Readers take no lock,
and writers replace: a file is there as a whole or not at all. Nothing in here raises on account of a disk: what cannot be read is a
miss, what cannot be written is not stored, and an event tells why.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, final

import attrs

from torchjit_core.events import emit
from torchjit_core.handlers import let_through
from torchjit_core.reasons import reason
from torchjit_store.eviction import CacheUse, cache_use, trim
from torchjit_store.key import FORMAT
from torchjit_store.private_files import (
    BLOCK,
    DAY,
    NotOurs,
    cache_root,
    made_folder,
    opened_folder,
    read_private,
    write_private,
)

__all__ = ["ENTRIES", "EntryFolder", "StoredBytes", "stored_here"]

NOT_WRITTEN = reason(
    "TJ-STORE-060",
    "an entry could not be written",
    "Compiled entries are kept in a folder between processes. The folder or the disk did not take this one; the next process compiles it again.",
    "`torchjit cache info` tells where the folder is and whether it can be used; TORCHJIT_CACHE_DIR names another one.",
)
ENTRIES = "entries"
MAX_ENTRIES = 32
"""Of one key; those that were not used for longest go."""
_NAME = re.compile(r"[0-9a-f]{64}\.tj")
_KEY = re.compile(r"[0-9a-f]{64}")
_LIBRARY = re.compile(r"[0-9a-f]{40}")


class _Damaged(Exception):
    """A file of an entry is not what was written."""


@final
@attrs.frozen(repr=False)
class StoredBytes:
    """An entry as it lies on disk; its digest, owner and mode are right.

    Attributes:
        key: of its site.
        header: the first line. `libraries`, if it is there, names kernels that the entry needs.
        data: what follows.
        path: of the file.
    """

    key: str
    header: Mapping[str, Any]
    data: memoryview = attrs.field(repr=False)
    path: Path


class Remote(Protocol):
    """Entries elsewhere; neither method raises."""

    def fetch(self, key: str, root: Path) -> None:
        """Put entries of a site into the cache folder `root`."""

    def publish(self, path: Path) -> None:
        """Take a copy of an entry that has been written."""


_here: dict[Path, None] = {}


def stored_here() -> tuple[Path, ...]:
    """The files of the entries that this process has written or used, in that order."""
    return tuple(_here)


@final
class EntryFolder:
    """The entries below a cache folder.

    Args:
        cache_dir: None is the user's cache folder.
        max_bytes: of entries and kernels together.
        remote: where entries are looked for that are not here, and where those written here go, too.
    """

    def __init__(self, cache_dir: str | None, max_bytes: int = 1 << 30, remote: Remote | None = None) -> None:
        self._cache_dir, self._max_bytes, self._remote = cache_dir, max_bytes, remote

    @property
    def root(self) -> Path:
        """The cache folder, which need not exist.

        Raises:
            OSError: nobody knows where this user's home is.
        """
        return cache_root(self._cache_dir)

    def paths(self) -> list[Path]:
        """The files of all entries, checked or not."""
        try:
            return sorted(path for path in (self.root / ENTRIES).glob("??/*/*.tj") if _NAME.fullmatch(path.name))
        except OSError:
            let_through()
            return []

    def clear(self) -> CacheUse:
        """Remove all entries.

        Returns:
            What was there.

        Raises:
            OSError: they cannot be removed.
        """
        use = cache_use(self.root)
        if (self.root / ENTRIES).exists():
            shutil.rmtree(self.root / ENTRIES)
        return use

    def verify(self) -> tuple[int, int]:
        """Read all entries; what is damaged goes, as in `read`.

        Returns:
            How many are right, and how many were not.
        """
        paths = self.paths()
        right = sum(
            1
            for key in {path.parent.name for path in paths if _KEY.fullmatch(path.parent.name)}
            for _ in self.read(key)
        )
        return right, len(paths) - right

    # -------------------------------------------------------------------------------------- reading

    def read(self, key: str, first: Callable[[Mapping[str, Any]], bool] | None = None) -> Iterator[StoredBytes]:
        """The entries of a site, the one that was used last first; then those that only the remote store has. Never raises for what is on disk.

        Args:
            key: what `site_key` gave.
            first: told the headers; those for which it is true come before the others. It must not trust what it sees: a header is
                verified with the rest of the file.
        """
        names = self._names(key)
        yield from self._each(key, names, first)
        if self._remote is not None and self._fetched(self._remote, key):  # whoever goes on has found none that fits
            yield from self._each(key, [name for name in self._names(key) if name not in names], first)

    def _fetched(self, remote: Remote, key: str) -> bool:
        try:
            remote.fetch(key, self.root)
        except OSError:  # of the folder here
            let_through()
            return False
        return True

    def _each(
        self, key: str, names: list[str], first: Callable[[Mapping[str, Any]], bool] | None
    ) -> Iterator[StoredBytes]:
        later: list[str] = []
        for name in names:
            try:
                found = self._read(key, name, first if len(names) > 1 else None)
            except _NotNow:
                later.append(name)
                continue
            if found is not None:
                yield found
        for name in later:
            found = self._read(key, name, None)
            if found is not None:
                yield found

    def _names(self, key: str) -> list[str]:
        try:
            with opened_folder(self.root, *_place(key)) as at:
                return [name for _, name in sorted(_listed(at), reverse=True)]
        except FileNotFoundError:
            pass
        except OSError as error:
            let_through()
            emit("entry_missed", key=key, why=f"the folder cannot be read: {error}")
        return []

    def _read(self, key: str, name: str, wanted: Callable[[Mapping[str, Any]], bool] | None) -> StoredBytes | None:
        try:
            root = self.root
            with opened_folder(root, *_place(key)) as at:
                try:
                    header, data = _verified(key, name, at, wanted)
                    _need_libraries(root, header)
                except (_Damaged, NotOurs) as error:
                    _remove(name, at)
                    emit("entry_missed", key=key, why=f"{name}: {error}")
                    return None
        except FileNotFoundError:  # removed meanwhile
            return None
        except OSError as error:
            let_through()
            emit("entry_missed", key=key, why=f"{name} cannot be read: {error}")
            return None
        return StoredBytes(key, header, data, root.joinpath(*_place(key), name))

    def mark_used(self, stored: StoredBytes) -> None:
        """An entry serves this process: it and its kernels stay longest. Times of files are touched once a day at most."""
        _here[stored.path] = None
        libraries = [stored.path.parents[3] / "c" / f"{name}.so" for name in stored.header.get("libraries", ())]
        for path in (stored.path, *libraries):
            with contextlib.suppress(OSError):
                if abs(time.time() - path.stat().st_mtime) > DAY:  # in the future, too: clocks jump
                    os.utime(path)

    # -------------------------------------------------------------------------------------- writing

    def write(self, key: str, header: Mapping[str, Any], data: bytes) -> Path | None:
        """Store an entry. The same entry of another process is the same file.

        Args:
            key: what `site_key` gave.
            header: JSON-able; `format` and `key` are added.
            data: the entry.

        Returns:
            Where it is; None if it could not be written, which an event tells.

        Raises:
            TypeError: the header is no JSON.
            ValueError: it is longer than a block.
        """
        line = json.dumps({**header, "format": FORMAT, "key": key}, separators=(",", ":")).encode() + b"\n"
        if len(line) > BLOCK:
            raise ValueError(f"a header of {len(line)} bytes; at most {BLOCK} are read for it")
        content = line + data
        name = f"{hashlib.sha256(content).hexdigest()}.tj"
        try:
            path = self._write(key, name, content)
        except OSError as error:
            let_through()
            emit("entry_not_stored", key=key, reason=NOT_WRITTEN.id, detail=str(error))
            return None
        _here[path] = None
        if self._remote is not None:
            self._remote.publish(path)
        trim(path.parents[3], self._max_bytes)
        return path

    def _write(self, key: str, name: str, content: bytes) -> Path:
        root, place = self.root, _place(key)
        for last in (False, True):
            try:
                made_folder(root, *place)
                with opened_folder(root, *place) as at:
                    write_private(name, content, at)
                    _limit(at, name)
                break
            except FileNotFoundError:  # another process has removed the empty folder just now
                if last:
                    raise
        return root.joinpath(*place, name)


class _NotNow(Exception):
    """An entry's header is not the one that is looked for."""


def _place(key: str) -> tuple[str, str, str]:
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no key of a site")
    return (ENTRIES, key[:2], key)


def _listed(at: int) -> Iterator[tuple[float, str]]:
    """Time of last use and name of each entry in a folder."""
    with os.scandir(at) as found:
        for entry in found:
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    yield entry.stat(follow_symlinks=False).st_mtime, entry.name


def _verified(
    key: str, name: str, at: int, wanted: Callable[[Mapping[str, Any]], bool] | None
) -> tuple[Mapping[str, Any], memoryview]:
    """Header and data of a file that is what was written.

    Raises:
        _Damaged: it is not.
        _NotNow: `wanted` said so.
        OSError: see `read_private`.
    """
    with contextlib.closing(read_private(name, at)) as blocks:
        first = next(blocks)
        line, newline, _ = first.partition(b"\n")
        try:
            header = json.loads(line) if newline else None
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("key") != key:
            raise _Damaged("its header is not that of an entry of this key")
        if wanted is not None and not wanted(header):
            raise _NotNow
        content = first + next(blocks)
    if hashlib.sha256(content).hexdigest() != name.removesuffix(".tj"):
        raise _Damaged("its digest differs")
    return header, memoryview(content)[len(line) + 1 :]


def _need_libraries(root: Path, header: Mapping[str, Any]) -> None:
    """Raises _Damaged: a kernel that the entry needs is gone."""
    for name in header.get("libraries", ()):
        if not isinstance(name, str) or not _LIBRARY.fullmatch(name) or not (root / "c" / f"{name}.so").exists():
            raise _Damaged(f"its kernel {name} is gone")


def _remove(name: str, at: int) -> None:
    """Remove a file of this user's that is of no use; a link is somebody's."""
    with contextlib.suppress(OSError):
        if os.stat(name, dir_fd=at, follow_symlinks=False).st_uid == os.getuid():
            os.unlink(name, dir_fd=at)


def _limit(at: int, written: str) -> None:
    """At most so many entries of one key; what writers that were killed have left goes, too."""
    with contextlib.suppress(OSError):
        for _, name in sorted(_listed(at), reverse=True)[MAX_ENTRIES:]:
            if name != written:
                os.unlink(name, dir_fd=at)
        with os.scandir(at) as found:
            for entry in found:
                if entry.name.endswith(".tmp") and abs(time.time() - entry.stat(follow_symlinks=False).st_mtime) > DAY:
                    os.unlink(entry.name, dir_fd=at)
