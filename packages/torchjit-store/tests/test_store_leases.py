"""Leases: one compiles and the others wait, but never for the dead, for themselves, or for long."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchjit_store import leases
from torchjit_store.folder import EntryFolder
from torchjit_store.leases import Lease, compiling

KEY = hashlib.sha256(b"a").hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> EntryFolder:
    return EntryFolder(str(tmp_path / "cache"))


def path_of(folder: EntryFolder) -> Path:
    return folder.root / "entries" / KEY[:2] / f"{KEY}.lease"


def child(body: Callable[[], Any]) -> int:
    process = os.fork()
    if process == 0:
        try:
            os._exit(0 if body() else 1)
        finally:
            os._exit(2)
    return process


def succeeded(process: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def held_by_another(folder: EntryFolder, seconds: float) -> int:
    """A process that has the lease for some time."""

    def body() -> bool:
        with compiling(folder, KEY) as mine:
            time.sleep(seconds)
            return bool(mine)

    process = child(body)
    while not (path_of(folder).exists() and path_of(folder).stat().st_size):
        time.sleep(0.002)
    return process


def test_one_of_many_compiles_and_the_others_load_what_it_stored(folder: EntryFolder) -> None:
    compiled = folder.root.parent / "compiled"

    def body() -> bool:
        for last in (False, True):
            if list(folder.read(KEY)):
                return True
            with compiling(folder, KEY) as mine:
                if mine:
                    with compiled.open("a") as out:
                        out.write("x")
                    time.sleep(0.1)
                    return folder.write(KEY, {"seconds": 0.1}, b"entry") is not None
        return False

    processes = [child(body) for _ in range(8)]
    assert all([succeeded(process) for process in processes])
    # A process that has looked for entries before the first one was stored may take the lease behind it.
    assert 1 <= len(compiled.read_text()) <= 2
    assert not path_of(folder).exists() and len(list(folder.read(KEY))) == 1


def test_a_wait_ends_with_the_lease(folder: EntryFolder) -> None:
    process = held_by_another(folder, 0.15)
    start = time.monotonic()
    with compiling(folder, KEY) as mine:
        assert not mine and 0.02 < time.monotonic() - start < 2
    assert succeeded(process)
    with compiling(folder, KEY) as mine:
        assert mine


def test_nobody_waits_longer_than_twice_the_compilation(folder: EntryFolder) -> None:
    process = held_by_another(folder, 3.0)
    start = time.monotonic()
    with compiling(folder, KEY, seconds=0.05) as mine:
        assert not mine and 0.08 < time.monotonic() - start < 2.5
    assert path_of(folder).exists() and succeeded(process)


def test_a_dead_owner_holds_nobody(folder: EntryFolder) -> None:
    process = held_by_another(folder, 60)
    waits: list[float] = []

    def waiting() -> None:
        start = time.monotonic()
        Lease(folder, KEY).wait(30)
        waits.append(time.monotonic() - start)

    thread = threading.Thread(target=waiting)
    thread.start()
    time.sleep(0.05)
    os.kill(process, signal.SIGKILL)
    thread.join()
    assert waits[0] < 5
    os.waitpid(process, 0)  # until then its number was taken
    with compiling(folder, KEY) as mine:
        assert mine
    assert not path_of(folder).exists()


@pytest.mark.parametrize(
    ("content", "age", "holds"),
    [
        (b'{"space": "another machine", "process": 1, "started": "5"}', 0, True),
        (b'{"space": "another machine", "process": 1, "started": "5"}', 3000, False),
        (b'{"space": "another machine", "process": 1, "started": "5"}', -3000, False),  # the clock was set back
        (b"", 0, True), (b"", 60, False), (b"\xff[", 60, False), (b"[]", 60, False), (b'{"space": 1}', 60, False),
    ],
)  # fmt: skip
def test_leases_of_others_and_damaged_ones_expire(content: bytes, age: float, holds: bool, folder: EntryFolder) -> None:
    lease = path_of(folder)
    lease.parent.mkdir(parents=True, mode=0o700)
    lease.parent.parent.chmod(0o700)
    lease.write_bytes(content)
    lease.chmod(0o600)
    os.utime(lease, (time.time() - age,) * 2)
    assert Lease(folder, KEY).take() is (not holds)


def test_a_number_of_a_process_that_comes_again_is_another_process(
    folder: EntryFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(leases, "_started", lambda process: "long ago")
        assert Lease(folder, KEY).take() is True
    assert Lease(folder, KEY).take() is True


def test_a_process_does_not_wait_for_itself(folder: EntryFolder) -> None:
    with compiling(folder, KEY) as outer, compiling(folder, KEY) as inner:
        assert outer and inner and path_of(folder).exists()
    assert not path_of(folder).exists()


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_where_no_lease_can_be_written_everybody_compiles(
    number: int, folder: EntryFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuses)
    with compiling(folder, KEY) as mine:
        assert mine


def test_an_error_gives_the_lease_back(folder: EntryFolder) -> None:
    with pytest.raises(ZeroDivisionError), compiling(folder, KEY):
        assert path_of(folder).exists()
        raise ZeroDivisionError
    assert not path_of(folder).exists()


@pytest.mark.parametrize("comes", [True, False])
def test_what_is_compiled_later_is_waited_for_once(
    comes: bool, folder: EntryFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backward keeps its forward's lease: until it is there, or for so long, and the next time not at all."""
    monkeypatch.setattr(leases, "_in_vain", [])
    ready, go = os.pipe()

    def body() -> bool:
        with compiling(folder, KEY) as turn:
            turn.keep(60 if comes else 0.3)
        assert turn.kept
        os.write(go, b"x")
        time.sleep(0.15 if comes else 30)
        turn.done()
        return not path_of(folder).exists()

    process = child(body)
    os.read(ready, 1)
    start = time.monotonic()
    with compiling(folder, KEY) as turn:
        assert not turn and 0.02 < time.monotonic() - start < 10
        assert bool(leases._in_vain) is not comes
    if comes:
        assert succeeded(process)
    else:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    os.close(ready)
    os.close(go)
    assert not path_of(folder).exists()
