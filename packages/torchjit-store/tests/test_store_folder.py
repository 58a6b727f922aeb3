"""Entries on disk: what was written is read, whatever else happens to the files; what is not ours is never read."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from torchjit_core.events import listen
from torchjit_core.handlers import hear
from torchjit_store import eviction
from torchjit_store.folder import MAX_ENTRIES, EntryFolder, stored_here

KEY, OTHER = hashlib.sha256(b"a").hexdigest(), hashlib.sha256(b"b").hexdigest()


@pytest.fixture
def seen() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    events: list[tuple[str, dict[str, Any]]] = []
    with listen(lambda kind, fields: events.append((kind, fields))):
        yield events


@pytest.fixture
def folder(tmp_path: Path) -> EntryFolder:
    return EntryFolder(str(tmp_path / "cache"))


def written(folder: EntryFolder, data: bytes = b"content\nwith lines", key: str = KEY, **header: Any) -> Path:
    path = folder.write(key, header, data)
    assert path is not None
    return path


def contents(folder: EntryFolder, key: str = KEY) -> list[bytes]:
    return [bytes(stored.data) for stored in folder.read(key)]


def test_what_is_written_is_read(folder: EntryFolder, seen: list[Any]) -> None:
    assert contents(folder) == []
    path = written(folder, slots=2)
    (stored,) = folder.read(KEY)
    assert (bytes(stored.data), stored.header["slots"], stored.key, stored.path) == (
        b"content\nwith lines",
        2,
        KEY,
        path,
    )
    assert path.parent == folder.root / "entries" / KEY[:2] / KEY
    assert path.stem == hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert written(folder, slots=2) == path and contents(folder, OTHER) == []
    assert written(folder, b"", slots=0) in stored_here() and len(contents(folder)) == 2
    assert list(path.parent.glob(".*")) == [] and seen == []


def test_some_entries_come_first_by_their_headers(folder: EntryFolder) -> None:
    for slots in (1, 2, 3, 4):
        path = written(folder, b"x" * 200_000, slots=slots)
        os.utime(path, (slots, slots))
    assert [stored.header["slots"] for stored in folder.read(KEY)] == [4, 3, 2, 1]
    assert [stored.header["slots"] for stored in folder.read(KEY, lambda header: header["slots"] < 3)] == [2, 1, 4, 3]


def test_a_header_must_be_small_json(folder: EntryFolder) -> None:
    with pytest.raises(ValueError, match="header"):
        folder.write(KEY, {"text": "x" * 70_000}, b"")
    with pytest.raises(TypeError):
        folder.write(KEY, {"text": object()}, b"")
    with pytest.raises(ValueError, match="no key"):
        list(folder.read("../evil"))


def _flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _of_other_key(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(KEY.encode(), OTHER.encode()))
    path.rename(path.with_name(f"{hashlib.sha256(path.read_bytes()).hexdigest()}.tj"))


def _nested(path: Path) -> None:
    path.write_bytes(b"[" * 60_000 + b"\n")


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "cut in the header": lambda path: os.truncate(path, 9),
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "a bit of the data": lambda path: _flip(path, -1),
    "a bit of the header": lambda path: _flip(path, 12),
    "no JSON": lambda path: path.write_bytes(b"\x80\x04cposix\nsystem\n"),
    "nested deeply": _nested,
    "others may write": lambda path: path.chmod(0o620),
    "a pipe": _pipe,
    "of another key": _of_other_key,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_missed_and_removed(damage: str, folder: EntryFolder, seen: list[Any]) -> None:
    good, bad = written(folder, b"good"), written(folder, b"bad")
    DAMAGES[damage](bad)
    assert contents(folder) == [b"good"]
    assert list(good.parent.iterdir()) == [good]
    ((kind, fields),) = seen
    assert kind == "entry_missed" and fields["key"] == KEY and fields["why"]
    assert written(folder, b"bad") == bad and len(contents(folder)) == 2


def test_exchanged_files_are_missed(folder: EntryFolder, seen: list[Any]) -> None:
    one, other = written(folder, b"one"), written(folder, b"other", OTHER)
    one.rename(one.with_suffix(".kept"))
    other.rename(one)
    one.with_suffix(".kept").rename(other)
    assert contents(folder) == contents(folder, OTHER) == [] and len(seen) == 2


def _link_to_file(path: Path) -> None:
    path.rename(path.parents[3] / "elsewhere")
    path.symlink_to(path.parents[3] / "elsewhere")


def _link_to_folder(path: Path) -> None:
    path.parent.rename(path.parents[3] / "elsewhere")
    path.parent.symlink_to(path.parents[3] / "elsewhere")


@pytest.mark.parametrize("link", [_link_to_file, _link_to_folder])
def test_links_are_not_followed(link: Callable[[Path], None], folder: EntryFolder, seen: list[Any]) -> None:
    path = written(folder)
    link(path)
    assert contents(folder) == [] and [kind for kind, _ in seen] == ["entry_missed"]
    assert (folder.root / "elsewhere").exists()


@pytest.mark.parametrize("up", [0, 1, 2])
def test_folders_that_others_may_write_to_are_not_read(up: int, folder: EntryFolder, seen: list[Any]) -> None:
    path = written(folder)
    path.parents[up].chmod(0o770)
    assert contents(folder) == [] and "others may write" in seen[0][1]["why"]
    assert path.exists()
    written(folder)  # closes it
    assert contents(folder) == [b"content\nwith lines"]


def test_what_another_user_owns_is_neither_read_nor_removed(
    folder: EntryFolder, monkeypatch: pytest.MonkeyPatch, seen: list[Any]
) -> None:
    path = written(folder)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    assert contents(folder) == [] and "another user" in seen[0][1]["why"]
    assert folder.write(KEY, {}, b"mine") is None and seen[1][0] == "entry_not_stored"
    monkeypatch.undo()
    assert path.exists() and len(contents(folder)) == 1


# ---------------------------------------------------------------------- disks
def _refusing(number: int) -> Callable[..., Any]:
    def refuses(path: Any, *_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return refuses


@pytest.mark.parametrize("call", ["open", "replace", "scandir", "mkdir"])
@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EIO, errno.ESTALE])
def test_errors_of_a_disk_are_misses(
    call: str, number: int, folder: EntryFolder, monkeypatch: pytest.MonkeyPatch, seen: list[Any]
) -> None:
    if call != "mkdir":
        written(folder)
    with monkeypatch.context() as patched:
        patched.setattr(os, call, _refusing(number))
        reads = contents(folder)
        path = folder.write(OTHER, {}, b"")
    assert reads == ([b"content\nwith lines"] if call == "replace" else [])
    assert (path is None) == (call != "scandir")  # which is asked behind the writing
    assert all(kind in ("entry_missed", "entry_not_stored") for kind, _ in seen) and seen
    assert not [path for path in folder.root.rglob("*.tmp")]


def test_a_full_disk_leaves_nothing_behind(folder: EntryFolder, seen: list[Any]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        assert folder.write(KEY, {}, b"x" * 100_000) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert seen[0][0] == "entry_not_stored" and seen[0][1]["reason"] == "TJ-STORE-060"
    assert [path for path in folder.root.rglob("*") if path.is_file()] == []
    written(folder, b"x" * 100_000)


def test_a_folder_that_is_a_file(tmp_path: Path, seen: list[Any]) -> None:
    (tmp_path / "file").write_text("")
    folder = EntryFolder(str(tmp_path / "file"))
    assert contents(folder) == [] and folder.write(KEY, {}, b"") is None
    assert [kind for kind, _ in seen] == ["entry_missed", "entry_not_stored"]


def test_nobody_knows_a_home(monkeypatch: pytest.MonkeyPatch, seen: list[Any], tmp_path: Path) -> None:
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: Path("~/.cache") / name)
    monkeypatch.chdir(tmp_path)
    folder = EntryFolder(None)
    assert contents(folder) == [] and folder.write(KEY, {}, b"") is None
    assert list(tmp_path.iterdir()) == []


def test_an_alarm_is_the_program_s(folder: EntryFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `TimeoutError` of a handler is an `OSError`, and no miss."""
    written(folder)
    real = os.scandir

    def interrupted(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return real(*arguments)

    raised: list[BaseException] = []

    def handler(*_: Any) -> None:
        raised.append(TimeoutError("from the handler"))
        raise raised[0]

    before = signal.signal(signal.SIGUSR1, handler)
    hear(raised)
    try:
        monkeypatch.setattr(os, "scandir", interrupted)
        with pytest.raises(TimeoutError, match="from the handler"):
            contents(folder)
    finally:
        hear(())
        signal.signal(signal.SIGUSR1, before)


# ---------------------------------------------------------------------- what stays
def test_at_most_so_many_of_a_key(folder: EntryFolder) -> None:
    now = time.time()
    for n in range(MAX_ENTRIES + 3):
        os.utime(written(folder, f"{n}".encode()), (now - 1000 + n,) * 2)
    assert sorted(map(int, contents(folder))) == list(range(3, MAX_ENTRIES + 3))
    assert int(contents(folder)[0]) == MAX_ENTRIES + 2  # the one used last comes first


def test_use_is_noted_once_a_day_whatever_the_clock_says(folder: EntryFolder, tmp_path: Path) -> None:
    library = folder.root / "c" / f"{'0' * 40}.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"")
    path = written(folder, libraries=["0" * 40])
    now = time.time()
    for then, touched in ((now - 3600, False), (now - 90_000, True), (now + 10 * 365 * 86400, True), (0, True)):
        os.utime(path, (then, then))
        os.utime(library, (then, then))
        (stored,) = folder.read(KEY)
        folder.mark_used(stored)
        for file in (path, library):
            assert (abs(file.stat().st_mtime - time.time()) < 60) == touched


def test_an_entry_goes_with_its_kernel(folder: EntryFolder, seen: list[Any]) -> None:
    path = written(folder, libraries=["0" * 40])
    assert contents(folder) == [] and not path.exists() and "kernel" in seen[0][1]["why"]
    for wrong in ("../x", 3):
        written(folder, libraries=[wrong])
        assert contents(folder) == []


def test_one_budget_for_entries_and_kernels(folder: EntryFolder) -> None:
    now = time.time()
    kernels = folder.root / "c"
    kernels.mkdir(parents=True)
    old, new = "0" * 40, "1" * 40
    for name, age in ((old, 300), (new, 100)):
        for suffix in (".so", ".sha256"):
            (kernels / f"{name}{suffix}").write_bytes(b"x" * 1000)
            os.utime(kernels / f"{name}{suffix}", (now - age,) * 2)
    (kernels / "races.json").write_text("{}")
    first, second = written(folder, b"y" * 1800), written(folder, b"z" * 1800, OTHER)
    os.utime(first, (now - 200,) * 2)
    os.utime(second, (now - 50,) * 2)
    assert eviction.trim(folder.root, 0) == 0  # looked an hour ago at most
    stamp = folder.root / "entries" / "trimmed"
    os.utime(stamp, (now + 9e6,) * 2)
    assert eviction.trim(folder.root, 4500) > 3000
    assert not first.parent.exists() and second.exists()
    assert sorted(path.name for path in kernels.iterdir()) == [f"{new}.sha256", f"{new}.so", "races.json"]
    assert abs(stamp.stat().st_mtime - now) < 60


def test_what_killed_writers_left_goes(folder: EntryFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(folder)
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(os, "replace", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        folder.write(KEY, {}, b"never there")
        os._exit(0)
    os.waitpid(child, 0)
    (left,) = path.parent.glob("*.tmp")
    assert contents(folder) == [b"content\nwith lines"]
    written(folder, b"another")
    assert left.exists()  # it may be a living writer's
    os.utime(left, (1000, 1000))
    written(folder, b"a third")
    assert not left.exists() and len(contents(folder)) == 3


def test_many_writers_and_readers(folder: EntryFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 processes write and read the same sites while folders are emptied below them."""
    monkeypatch.setattr(eviction, "HOUR", 0.0)
    small = EntryFolder(str(folder.root), max_bytes=20_000)

    def works(number: int) -> bool:
        for n in range(6):
            key = (KEY, OTHER)[(number + n) % 2]
            data = f"{key} {n}".encode() * 20
            if small.write(key, {"seconds": n}, data) is None:
                return False
            for stored in small.read(key):
                if not bytes(stored.data).startswith(key.encode()):
                    return False
        return True

    children = []
    for number in range(32):
        child = os.fork()
        if child == 0:
            os._exit(0 if works(number) else 1)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 32
    assert not list(folder.root.rglob("*.tmp"))
