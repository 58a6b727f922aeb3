"""Entries on other machines: a folder of bundles behind any URL that fsspec knows.

    <url>/<k[:2]>/<k>/<digest>.bundle

What lies there is code of whoever can write there, so it is taken by the rules of bundles: signed with this process's key, or
trusted explicitly. The store is a convenience: it may take two seconds, and the first error is told and is the last.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, final

import attrs

from torchjit_core.events import emit
from torchjit_core.handlers import let_through
from torchjit_core.reasons import UserError, reason
from torchjit_core.turns import others_may_go_on
from torchjit_core.user_warnings import warn_user
from torchjit_store.folder import MAX_ENTRIES, EntryFolder
from torchjit_store.settings import StoreSettings

__all__ = ["SECONDS", "RemoteEntries", "entry_folder"]

SECONDS = 2.0
"""How long a program waits for a remote store, in each question and, for what is still being written, at its end."""
UNREACHABLE = reason(
    "TJ-STORE-062",
    "the remote store of compiled entries is not used",
    "TORCHJIT_REMOTE_CACHE names a place where entries are looked for that are not on this machine. A question to it failed or took too long; "
    "this process does not ask again, and compiles what it does not find on its own disk.",
    "The URL is one of fsspec's, such as s3://bucket/folder; `pip install torchjit-store[remote]` and the package that fsspec asks for.",
)
T = TypeVar("T")


def entry_folder(settings: StoreSettings) -> EntryFolder:
    """The folder of entries that settings speak of, with the remote store behind it if there is one."""
    return _entry_folder(attrs.evolve(settings, mode="on", anew=False, carried=None))  # one for all modes


@functools.lru_cache(maxsize=8)
def _entry_folder(settings: StoreSettings) -> EntryFolder:
    remote = settings.remote and RemoteEntries(settings.remote, settings.secret, settings.trusts_remote)
    return EntryFolder(settings.cache_dir, settings.max_bytes, remote or None)


@final
class RemoteEntries:
    """What `EntryFolder` asks for entries that it does not have, and gives those that it has written.

    Args:
        url: such as `s3://bucket/folder`; asked when it is first used.
        secret: what bundles there are signed with; None: they are not.
        trusted: take bundles without a signature.
    """

    def __init__(self, url: str, secret: bytes | None, trusted: bool = False) -> None:
        self._url, self._secret, self._trusted = url.rstrip("/"), secret, trusted
        self._asked: set[str] = set()
        self._failed = False
        self._writing: list[threading.Thread] = []
        atexit.register(self.finish)

    def fetch(self, key: str, root: Path) -> None:
        """Put what there is of a site into a cache folder, at most once for each site. Never raises, and takes `SECONDS` at most."""
        if self._failed or key in self._asked:
            return
        self._asked.add(key)
        try:
            with others_may_go_on():
                bundles = _within(SECONDS, lambda: self._bundles(key))
        except Exception as error:  # whatever a file system of somebody's raises
            let_through()
            self._give_up(error)
            return
        from torchjit_store.bundles import BadBundle, Untrusted, unpack  # noqa: PLC0415  # few programs have a remote store

        for data in bundles:
            try:
                unpack(data, root, self._secret, trust=self._trusted)
            except Untrusted as error:
                self._give_up(error)
                return
            except (BadBundle, OSError) as error:
                emit("entry_missed", key=key, why=f"a bundle in {self._url}: {error}")

    def publish(self, path: Path) -> None:
        """Write an entry of an `EntryFolder` with its kernels, in the background. Never raises."""
        if self._failed:
            return
        from torchjit_store.bundles import pack  # noqa: PLC0415  # as above

        data, info = pack([path], (), self._secret)
        if info.entries:
            self._writing = [thread for thread in self._writing if thread.is_alive()]
            thread = threading.Thread(
                target=self._write, args=(path.parent.name, path.stem, data), name="torchjit store", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # the interpreter ends, or there are too many threads
                return
            self._writing.append(thread)

    def finish(self, seconds: float = SECONDS) -> None:
        """Wait for what is being written."""
        end = time.monotonic() + seconds
        for thread in self._writing:
            thread.join(max(0.0, end - time.monotonic()))

    def _bundles(self, key: str) -> list[bytes]:
        files, path = self._opened(key)
        try:
            names = [str(name) for name in files.ls(path, detail=False)]
        except FileNotFoundError:
            return []
        return [files.cat_file(name) for name in names if name.endswith(".bundle")][:MAX_ENTRIES]

    def _write(self, key: str, digest: str, data: bytes) -> None:
        try:
            files, path = self._opened(key)
            files.makedirs(path, exist_ok=True)
            files.pipe_file(f"{path}/{digest}.bundle", data)
        except Exception as error:  # whatever a file system of somebody's raises
            self._give_up(error)

    def _opened(self, key: str) -> tuple[Any, str]:
        """The file system, and the folder of a site in it."""
        import fsspec  # noqa: PLC0415  an extra, and only for who has set a URL

        files, path = fsspec.core.url_to_fs(self._url)
        return files, f"{path}/{key[:2]}/{key}"

    def _give_up(self, error: Exception) -> None:
        told, self._failed = self._failed, True
        if not told:
            said = str(error) or type(error).__name__
            warn_user(str(UserError(UNREACHABLE, f"{self._url}: {said}")))


def _within(seconds: float, ask: Callable[[], T]) -> T:
    """What `ask` returns or raises.

    Raises:
        TimeoutError: it takes too long; it goes on in its thread.
    """
    outcome: list[T] = []
    raised: list[BaseException] = []

    def asks() -> None:
        try:
            outcome.append(ask())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=asks, name="torchjit store", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not outcome:
        raise TimeoutError(f"no answer within {seconds:g} seconds")
    return outcome[0]
