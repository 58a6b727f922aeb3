"""Files and folders that nobody but this user can have written: what is read from there may become code."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator, Iterator
from pathlib import Path

from torchjit_core.handlers import let_through

__all__ = [
    "BLOCK",
    "NotOurs",
    "cache_root",
    "made_folder",
    "opened_folder",
    "read_private",
    "write_private",
]

BLOCK = 1 << 16
DAY = 86400.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would wait for a writer


class NotOurs(OSError):
    """A file or folder belongs to somebody else, others may write to it, or it is of another kind."""


def cache_root(cache_dir: str | None) -> Path:
    """The folder that everything is below which processes keep for one another.

    Raises:
        OSError: nobody knows where this user's home is.
    """
    if cache_dir is not None:
        return Path(cache_dir).absolute()
    import platformdirs  # noqa: PLC0415  # costs a warm start milliseconds, and is not needed where the folder is given

    try:
        folder = platformdirs.user_cache_path("torchjit")
    except RuntimeError as error:
        raise FileNotFoundError(str(error)) from None
    if not folder.is_absolute():
        raise FileNotFoundError(f"{folder} (this user has no home folder)")
    return folder


def _is_private(found: os.stat_result) -> bool:
    """Is it this user's, and may nobody else write to it?"""
    return found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o022


@contextlib.contextmanager
def opened_folder(root: Path, *names: str) -> Iterator[int]:
    """A descriptor of the folder `root/names...`, each of which but the root is checked.

    Raises:
        NotOurs: one of them is not private, or a link.
        OSError: there is none.
    """
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            inner = os.open(name, _FOLDER, dir_fd=at)
            os.close(at)
            at = inner
            if not _is_private(os.fstat(at)):
                raise NotOurs(f"{root.joinpath(*names)}: {name} belongs to another user, or others may write to it")
        yield at
    finally:
        os.close(at)


def made_folder(root: Path, *names: str) -> None:
    """Make `root/names...`, for this user alone. One of this user's that others may write to is closed to them.

    Raises:
        OSError: it cannot be made.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = root
    for name in names:
        folder = folder / name
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not _is_private(found):
            folder.chmod(0o700)


def read_private(name: str, at: int) -> Generator[bytes, None, None]:
    """The bytes of a file: its first block, then the rest.

    Args:
        at: descriptor of its folder.

    Raises:
        NotOurs: it is not private, or not a regular file.
        OSError: it cannot be read.
    """
    file = os.open(name, _FILE, dir_fd=at)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or not _is_private(found):
            raise NotOurs(f"{name} is no regular file, belongs to another user, or others may write to it")
        with os.fdopen(file, "rb", closefd=False) as content:
            yield content.read(BLOCK)
            yield content.read()
    finally:
        os.close(file)


def write_private(name: str, content: bytes, at: int, mode: int = 0o600) -> None:
    """Write a file as a whole or not at all; one of that name is replaced.

    Raises:
        OSError: it cannot be written.
    """
    temporary = f".{os.getpid()}-{os.urandom(8).hex()}.tmp"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=at)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(content)
        os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=at)
        let_through()
        raise
