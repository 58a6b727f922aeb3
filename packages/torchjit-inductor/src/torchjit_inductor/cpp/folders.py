"""The folders that compiled files are in: the cache, what stands in where it is of no use, and scratch folders of builds."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import platform
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import final

from torchjit_core.failures import failures_are_raised
from torchjit_core.forks import new_lock
from torchjit_core.handlers import let_through
from torchjit_core.reasons import UserError, reason
from torchjit_core.user_warnings import warn_user

__all__ = [
    "UnusableFolder",
    "cache_folder",
    "clear",
    "is_noexec",
    "private_folder",
    "scratch_folder",
    "stand_in",
    "usable_folder",
]

UNUSABLE = reason(
    "TJ-IND-009",
    "the cache folder cannot be used",
    "Kernels are kept in a folder between processes, which must allow files to be written and loaded as libraries. "
    "They are compiled in a private temporary folder instead, which goes with this process; the next one compiles again.",
    "Set TORCHJIT_CACHE_DIR to a folder of yours that can be written to and is not mounted noexec.",
    "TORCHJIT_FORCE_DISABLE_CACHES=1 always takes a temporary folder, and says nothing.",
)
SCRATCH = "building"
DAY = 86400
_PRIVATE = "torchjit"


@final
class UnusableFolder(Exception):
    """Compiled files cannot be kept in a folder. The text says which and why."""

    def __init__(self, folder: Path | str, why: object) -> None:
        super().__init__(f"{folder}: {why}")


def _users_folder() -> Path:
    """The user's cache folder.

    Raises:
        RuntimeError: nobody knows where this user's home is.
    """
    import platformdirs  # noqa: PLC0415  # costs a warm start milliseconds, and is not needed where the folder is given

    return platformdirs.user_cache_path("torchjit")


def cache_folder(cache_dir: str | None) -> Path:
    """The cache folder, made if need be, readable by its owner only.

    Args:
        cache_dir: where; None is the user's cache folder.

    Raises:
        OSError: there is none, or it belongs to somebody else.
    """
    try:
        folder = Path(cache_dir).absolute() if cache_dir is not None else _users_folder()
    except RuntimeError as error:  # nobody knows where this user's home is
        raise FileNotFoundError(str(error)) from None
    if not folder.is_absolute():
        raise FileNotFoundError(f"{folder} (this user has no home folder)")
    folder = folder / "c"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user: no code is loaded from there")
    if stat.S_IMODE(found.st_mode) & 0o022:
        folder.chmod(0o700)
    return folder


# ------------------------------------------------------------------------------------------ where the cache is of no use

_lock = new_lock()
_unusable: set[str | None] = set()
_private: dict[int, Path] = {}


def usable_folder(cache_dir: str | None) -> Path:
    """`cache_folder`, or what stands in for it."""
    if cache_dir in _unusable:
        return private_folder()
    try:
        return cache_folder(cache_dir)
    except OSError as error:
        return stand_in(cache_dir, error)


def stand_in(cache_dir: str | None, why: object) -> Path:
    """A private temporary folder, from now on, for a cache folder that turned out to be unusable. Warns once for each.

    Raises:
        UnusableFolder: there is no such folder either.
        UserError: failures of this compilation are to be raised.
    """
    let_through()
    with _lock:
        told = cache_dir in _unusable
        named = cache_dir if cache_dir is not None else str(_users_folder())
        if not told and failures_are_raised():
            raise UserError(UNUSABLE, f"{named}: {why}")
        _unusable.add(cache_dir)
        folder = private_folder()
    if not told:
        detail = f"{named}: {why}; kernels are compiled in {folder}"
        warn_user(f"{UNUSABLE.id}: {UNUSABLE.headline}: {detail}. {' '.join(UNUSABLE.hints)}")
    return folder


def private_folder() -> Path:
    """A folder of this process, which goes when it ends; those of processes that were killed go too.

    Raises:
        UnusableFolder: no temporary folder can be written to.
    """
    with _lock:
        process = os.getpid()  # the child of a fork has its own
        folder = _private.get(process)
        if folder is None or not folder.is_dir():
            parent = _temporary_parent()
            _sweep(parent, f"{_PRIVATE}-")
            try:
                folder = Path(tempfile.mkdtemp(prefix=f"{_PRIVATE}-{_owner()}-", dir=parent))
            except OSError as error:
                raise UnusableFolder(parent, error) from None
            if process not in _private:
                atexit.register(_remove_private, process)
            _private[process] = folder
        return folder


def _remove_private(process: int) -> None:
    if os.getpid() == process:  # and not a child, which runs this too
        shutil.rmtree(_private[process], ignore_errors=True)


def _temporary_parent() -> Path:
    """A folder for temporary files that libraries can be loaded from, if there is one."""
    try:
        usual = Path(tempfile.gettempdir())
    except OSError as error:
        raise UnusableFolder("no temporary folder", error) from None
    for folder in (usual, Path("/dev/shm"), Path("/var/tmp")):
        if os.access(folder, os.W_OK | os.X_OK) and not is_noexec(folder):
            return folder
    return usual


def is_noexec(folder: Path) -> bool:
    """Can no library be loaded from a folder?"""
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)
    except (AttributeError, OSError):  # not known here
        return False


# ------------------------------------------------------------------------------------------ scratch folders


@contextlib.contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """A folder for one build, on the same disk. Those of processes that were killed go.

    Raises:
        OSError: it cannot be made.
    """
    parent = folder / SCRATCH
    try:
        parent.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:  # a file has its name
        with contextlib.suppress(OSError):  # no `clear`: if another thread was faster, its folders are in there
            parent.unlink()
        parent.mkdir(mode=0o700, exist_ok=True)
    _sweep(parent, "")
    with tempfile.TemporaryDirectory(prefix=f"{_owner()}-", dir=parent, ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)


def _owner() -> str:
    return f"{_machine()}-{os.getpid()}"


def _machine() -> str:
    """What numbers of processes belong to: a machine, or a container on it."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:12]


def _sweep(parent: Path, prefix: str) -> None:
    """Remove folders, named by `_owner`, of processes that are gone, and those a day old that nobody can tell of."""
    pattern = re.compile(rf"{prefix}([0-9a-f]{{12}})-(\d+)-")
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            named = pattern.match(entry.name)
            if named is None:
                continue
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                ours = stat.S_ISDIR(found.st_mode) and (not hasattr(os, "getuid") or found.st_uid == os.getuid())
                if ours and (
                    not _lives(int(named[2])) if named[1] == _machine() else time.time() - found.st_mtime > DAY
                ):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def clear(path: Path) -> None:
    """Make room for a file, or a folder, where something of another kind is.

    Raises:
        OSError: it cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists() or path.is_symlink():
        path.unlink()
