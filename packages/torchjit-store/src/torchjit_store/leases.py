"""One process compiles, the others wait for what it stores: a file for each site, made by whoever comes first.

A training step's entry is stored once its backward has been compiled: whoever has compiled the forward keeps the lease until then, though no longer
than the forward took, unless the backward is being compiled by then.

No process depends on another's: whoever waits does so for twice the time that the compilation took before (or a minute is taken for it), and
then compiles by itself. A lease whose owner is gone, or that is older than any wait, holds nobody.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import final

from torchjit_core.events import emit
from torchjit_core.handlers import let_through
from torchjit_core.turns import others_may_go_on
from torchjit_store.folder import ENTRIES, EntryFolder
from torchjit_store.private_files import made_folder, opened_folder, read_private, write_private

__all__ = ["Lease", "Turn", "compiling"]

UNKNOWN = 60.0
"""Seconds that a compilation is taken to last of which nothing is known."""
LONGEST = 600.0
WRITING = 5.0
"""Seconds that a lease may have no owner yet."""
_FIRST, _LAST = 0.01, 0.25
"""Seconds between two looks, from the first to the last."""


@contextlib.contextmanager
def compiling(folder: EntryFolder, key: str, seconds: float | None = None) -> Iterator[Turn]:
    """Enter to compile a site that no entry fits.

    Args:
        key: of the site.
        seconds: what its compilation took before, as headers of its entries say; None: not known.

    Gives:
        What is true: compile now; others wait until the block ends, or longer if `keep` says so. False: another process has compiled meanwhile,
        or was waited for in vain: look into the folder again, then compile.
    """
    lease = Lease(folder, key)
    held = lease.take()
    first = held is not False  # where no lease can be written everybody compiles
    if not first:
        lease.wait(min(2 * (UNKNOWN if seconds is None else seconds), LONGEST))
        held = lease.take()  # whoever comes now waits for this process
    turn = Turn(lease if held else None, first)
    try:
        yield turn
    finally:
        if not turn.kept:
            turn.done()


@final
class Turn:
    """What `compiling` gives.

    Attributes:
        kept: others wait still when the block has ended.
    """

    def __init__(self, lease: Lease | None, first: bool) -> None:
        self._lease, self._first = lease, first
        self.kept = False

    def __bool__(self) -> bool:
        return self._first

    def keep(self, seconds: float = LONGEST) -> None:
        """Others shall wait for more that is compiled, until `done`, but so many seconds at most from now."""
        if self._lease is not None:
            self.kept = self._lease.last(seconds)

    def done(self) -> None:
        """Others need not wait any longer."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.give_back()


_in_vain: list[str] = []
"""Keys of leases that were kept for what did not come: this process waits for none of that kind any more."""


@final
class Lease:
    """The right to compile a site while others wait."""

    def __init__(self, folder: EntryFolder, key: str) -> None:
        self._folder, self._key = folder, key
        self._owner = {"space": _space(), "process": os.getpid(), "started": _started(os.getpid())}
        self._mine = json.dumps(self._owner).encode()

    def take(self) -> bool | None:
        """True: it is this process's from now on. False: another one has it. None: this process has it already, or there are no leases here."""
        try:
            path = self._path()
            made_folder(path.parents[2], ENTRIES, path.parent.name)
            for _ in range(3):
                try:
                    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                except FileExistsError:
                    if self._read(path) == self._mine:  # this process would wait for itself
                        return None
                    if not self._is_dead(path):
                        return False
                    with contextlib.suppress(FileNotFoundError):
                        path.unlink()
                    continue
                with os.fdopen(file, "wb") as out:
                    out.write(self._mine)
                return True
        except OSError as error:
            let_through()
            emit("entry_missed", key=self._key, why=f"no lease: {error}")
            return None
        return False

    def give_back(self) -> None:
        """Others need not wait any longer."""
        with contextlib.suppress(OSError):
            path = self._path()
            if self._read(path) == self._mine:  # and not another's, who took this process for dead
                path.unlink()

    def last(self, seconds: float) -> bool:
        """Hold others for so many seconds from now, if it is this process's still."""
        try:
            path = self._path()
            if self._read(path) != self._mine:
                return False
            self._mine = json.dumps({**self._owner, "seconds": seconds}).encode()
            with opened_folder(path.parents[2], ENTRIES, path.parent.name) as at:
                write_private(path.name, self._mine, at)
        except OSError:
            let_through()
            return False
        return True

    def wait(self, seconds: float) -> bool:
        """Wait until the lease is given back or its owner is dead; False: that takes too long."""
        pause, end = _FIRST, time.monotonic() + seconds
        with others_may_go_on():
            while time.monotonic() < end:
                try:
                    path = self._path()
                    if not path.exists() or self._is_dead(path):
                        return True
                except OSError:
                    let_through()
                    return True
                time.sleep(min(pause, max(0.0, end - time.monotonic())))
                pause = min(pause * 1.5, _LAST)
        return False

    def _path(self) -> Path:
        return self._folder.root / ENTRIES / self._key[:2] / f"{self._key}.lease"

    def _read(self, path: Path) -> bytes:
        with opened_folder(path.parents[2], ENTRIES, path.parent.name) as at:
            return b"".join(read_private(path.name, at))

    def _is_dead(self, path: Path) -> bool:
        """Is its owner gone, or is it older than anybody waits? One of another machine is judged by its age alone."""
        try:
            age = abs(time.time() - path.lstat().st_mtime)
            held = json.loads(self._read(path))
            space, process, started = held["space"], int(held["process"]), held["started"]
            most = float(held.get("seconds", 2 * LONGEST))
        except FileNotFoundError:
            return True
        except OSError:
            let_through()
            return False
        except (ValueError, TypeError, KeyError):  # it is just being written, or damaged
            return age > WRITING
        if space == _space() and _started(process) != started:
            return True
        if most < LONGEST and (_in_vain or age > most):
            _in_vain.append(self._key)
            return True
        return age > most


def _space() -> str:
    """What numbers of processes belong to: a machine that is up, or a container on it."""
    try:
        space = os.readlink("/proc/self/ns/pid")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        space = boot = ""
    return hashlib.sha256(f"{platform.node()} {space} {boot}".encode()).hexdigest()[:16]


def _started(process: int) -> str:
    """When a process began, as the kernel counts; empty if there is none, or it has ended: numbers of processes come again."""
    try:
        state, *facts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return "" if state in "ZX" else facts[18]
    except (OSError, ValueError, IndexError):
        return ""
