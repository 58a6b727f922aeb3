"""Compilers that lie, hang or lack room, folders that cannot be used, and what is left of killed builds."""

import ctypes
import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import platformdirs
import pytest

from torchjit_core.events import listen
from torchjit_core.reasons import UserError
from torchjit_core.turns import turn
from torchjit_inductor.codegen_protocol import CompilerMissing
from torchjit_inductor.cpp import build as builds
from torchjit_inductor.cpp import folders, limited
from torchjit_inductor.cpp.build import Compiler, build, find_compiler
from torchjit_inductor.cpp.library_files import is_complete, is_trusted
from torchjit_inductor.cpp.locks import courtesy_lock
from torchjit_inductor.measurements import Measurements

SOURCE = 'extern "C" void tj_init(void* const*) {} extern "C" int number() { return 7; }'


@pytest.fixture(scope="module")
def real() -> Compiler:
    try:
        return find_compiler(None, 16)
    except CompilerMissing:
        pytest.skip("no C++ compiler")


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    before = set(folders._unusable)
    folders._unusable.clear()  # what another file's tests left in this process
    yield
    builds._stuck.clear()
    folders._unusable.clear()
    folders._unusable.update(before)


@pytest.fixture
def wrapped(tmp_path: Path, real: Compiler) -> Callable[[str], Compiler]:
    """A compiler that is a shell script: `$compile` is the real one's command, `$o` its output."""

    def make(body: str) -> Compiler:
        script = tmp_path / f"compiler-{len(list(tmp_path.iterdir()))}"
        out = 'for a in "$@"; do [ "$p" = -o ] && o="$a"; p="$a"; done\n'
        command = " ".join(f"'{word}'" for word in real.command)
        script.write_text(f"#!/bin/sh\n{out}{body}\n".replace("$compile", f'{command} "$@"'))
        script.chmod(0o755)
        return attrs.evolve(real, command=(str(script),))

    return make


def number(library: Path) -> Any:
    return ctypes.CDLL(str(library)).number()


# ---------------------------------------------------------------------- what compilers leave
@pytest.mark.parametrize(
    "damage",
    ['truncate -s 3000 "$o"', ': > "$o"', 'rm "$o"', 'truncate -s -1 "$o"', 'truncate -s 900 "$o"; truncate -s +9000 "$o"',
     'echo text > "$o"', 'cp /bin/sh "$o"'],
)  # fmt: skip
def test_what_is_no_whole_library_is_not_kept(
    damage: str, wrapped: Callable[[str], Compiler], real: Compiler, tmp_path: Path
) -> None:
    cache = str(tmp_path / "cache")
    with pytest.raises(CompilerMissing):
        build([SOURCE], wrapped(f"$compile || exit 1\n{damage}"), cache, 1)
    assert not list((tmp_path / "cache").glob("c/*.so"))
    (library,) = build([SOURCE], real, cache, 1)
    assert number(library) == 7


def test_a_library_is_complete_to_its_last_byte(real: Compiler, tmp_path: Path) -> None:
    (library,) = build([SOURCE], real, str(tmp_path), 1)
    content = library.read_bytes()
    assert is_complete(content)
    assert not any(is_complete(content[:n]) for n in (*range(0, len(content), 97), len(content) - 1))


def _exchange(one: Path, other: Path) -> None:
    for suffix in (".so", ".sha256"):
        a, b = one.with_suffix(suffix), other.with_suffix(suffix)
        content = a.read_bytes()
        a.write_bytes(b.read_bytes())
        b.write_bytes(content)


def _gone_but_for(library: Path, damage: Callable[[Path], Any], path: Path) -> None:
    library.unlink()
    damage(path)


def _folder_instead(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "file").write_text("")


DAMAGES: dict[str, Callable[[Path, Path], Any]] = {
    "exchanged": _exchange,
    "digest cut": lambda one, _: one.with_suffix(".sha256").write_text("0123"),
    "digest of other bytes": lambda one, _: one.with_suffix(".sha256").write_bytes(b"\xff\xfe\x00"),
    "digest is a folder": lambda one, _: _folder_instead(one.with_suffix(".sha256")),
    "library is a folder": lambda one, _: _folder_instead(one),
    "text is a folder": lambda one, _: _gone_but_for(one, _folder_instead, one.with_suffix(".cpp")),
    "lock is a folder": lambda one, _: _gone_but_for(one, _folder_instead, one.with_suffix(".lock")),
    "scratch is a file": lambda one, _: _gone_but_for(one, _file_instead, one.parent / "building"),
    "a byte": lambda one, _: one.write_bytes(one.read_bytes()[:-1] + b"?"),
    "made for another name": lambda one, other: [
        one.with_suffix(s).write_bytes(other.with_suffix(s).read_bytes()) for s in (".so", ".sha256")
    ],
}


def _file_instead(path: Path) -> None:
    path.rmdir()
    path.write_text("")


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entries_are_built_again(damage: str, real: Compiler, tmp_path: Path) -> None:
    other = SOURCE.replace("7", "8")
    entries = build([SOURCE, other], real, str(tmp_path), 1)
    kept = [entry.read_bytes() for entry in entries]
    for entry in entries:  # what is loaded already stays as it is
        entry.rename(entry.with_suffix(".loaded"))
    for entry, content in zip(entries, kept, strict=True):
        entry.write_bytes(content)
        entry.chmod(0o700)
    DAMAGES[damage](*entries)
    assert not is_trusted(entries[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = build([SOURCE, other], real, str(tmp_path), 1)
    assert again == entries
    assert all(map(is_trusted, again))
    assert [number(entry) for entry in again] == [7, 8]


# ---------------------------------------------------------------------- folders
def _refuse(number: int) -> Callable[..., Any]:
    def refuses(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return refuses


def _in_folder(
    monkeypatch: pytest.MonkeyPatch, folder: Path, owner: Any, name: str, refuses: Callable[..., Any]
) -> None:
    real = getattr(owner, name)

    def function(path: Any, *args: Any, **kwargs: Any) -> Any:
        return (refuses if str(path).startswith(str(folder)) else real)(path, *args, **kwargs)

    monkeypatch.setattr(owner, name, function)


@pytest.mark.parametrize("why", ["no folder", "read-only", "full", "compiler finds it full", "noexec", "no home"])
def test_an_unusable_folder_is_replaced_and_told_once(
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    wrapped: Callable[[str], Compiler],
    real: Compiler,
    tmp_path: Path,
) -> None:
    folder, compiler = tmp_path / "cache", real
    cache: str | None = str(folder)
    match why:
        case "no folder":
            folder.write_text("a file")
        case "read-only":
            folder.mkdir()
            _in_folder(monkeypatch, folder, os, "mkdir", _refuse(errno.EROFS))
        case "full":
            _in_folder(monkeypatch, folder, Path, "write_text", _refuse(errno.ENOSPC))
        case "compiler finds it full":
            full = 'echo "ld: final link failed: No space left on device" >&2; exit 1'
            compiler = wrapped(f'case "$o" in {folder}*) {full};; esac\n$compile')
        case "noexec":

            def mapped(_: Any) -> Any:
                raise OSError("x.so: failed to map segment from shared object: Operation not permitted")

            _in_folder(monkeypatch, folder, ctypes, "CDLL", mapped)
        case "no home":
            cache = None
            monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: Path("~/.cache") / name)
            monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for source, value in ((SOURCE, 7), (SOURCE.replace("7", "8"), 8), (SOURCE, 7)):
            (library,) = build([source], compiler, cache, 1)
            assert number(library) == value
            assert not str(library).startswith(str(tmp_path))
    told = [str(w.message) for w in seen if "TJ-IND-009" in str(w.message)]
    assert len(told) == len(seen) == 1
    assert "TORCHJIT_CACHE_DIR" in told[0]
    assert (cache or "torchjit") in told[0]
    assert seen[0].filename == __file__
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize("number_of", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_where_no_file_can_be_locked_kernels_are_kept_all_the_same(
    number_of: int, monkeypatch: pytest.MonkeyPatch, real: Compiler, tmp_path: Path
) -> None:
    monkeypatch.setattr(fcntl, "flock", _refuse(number_of))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (library,) = build([SOURCE], real, str(tmp_path), 1)
        assert build([SOURCE], real, str(tmp_path), 1) == [library]
        assert number(library) == 7 and library.parent == tmp_path / "c"
        assert not folders._unusable and (tmp_path / "c" / "trimmed").exists()
        Measurements(str(tmp_path), "measured", lambda: "this", int).put("a", 3)
        assert Measurements(str(tmp_path), "measured", lambda: "this", int).get("a") == 3


def test_who_holds_a_lock_for_too_long_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, real: Compiler, tmp_path: Path
) -> None:
    (library,) = build([SOURCE], real, str(tmp_path), 1)
    library.unlink()
    monkeypatch.setattr(builds, "PATIENCE", 0.05)
    monkeypatch.setattr(builds, "LOCK_SECONDS", 0.1)
    with courtesy_lock(library.with_suffix(".lock"), 0):
        assert build([SOURCE], real, str(tmp_path), 1) == [library]
    assert is_trusted(library)


def test_no_folder_at_all_is_no_compiler(monkeypatch: pytest.MonkeyPatch, real: Compiler, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    def nowhere() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    monkeypatch.setattr(folders, "_private", {})
    with pytest.raises(CompilerMissing, match="no usable temporary directory"):
        build([SOURCE], real, str(tmp_path / "file"), 1)


# ---------------------------------------------------------------------- time
def test_a_compiler_that_hangs_is_ended_with_what_it_started(
    wrapped: Callable[[str], Compiler], tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    hangs = wrapped(f"sleep 60 & echo $! > {pid}; wait")
    start = time.monotonic()
    with pytest.raises(CompilerMissing, match="TORCHJIT_COMPILER_SECONDS"):
        build([SOURCE], hangs, str(tmp_path / "cache"), 1, seconds=0.5)
    with pytest.raises(CompilerMissing, match="not asked again"):
        build([SOURCE + "//"], hangs, str(tmp_path / "cache"), 1, seconds=60)
    assert time.monotonic() - start < 20
    assert not _lives(int(pid.read_text()))
    assert not list((tmp_path / "cache" / "c" / folders.SCRATCH).iterdir())


def _lives(process: int) -> bool:
    """A killed process whose parent has not asked is still listed."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_long_waits_are_told(
    wrapped: Callable[[str], Compiler],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(limited, "PATIENCE", 0.1)
    seen = []
    with listen(lambda kind, fields: seen.append((kind, fields))):
        (library,) = build([SOURCE], wrapped("sleep 0.5\n$compile"), str(tmp_path / "cache"), 1)
    waits = [fields for kind, fields in seen if kind == "waiting"]
    assert [round(f["seconds"], 1) for f in waits][:2] == [0.1, 0.2]
    assert "compiler-0" in waits[0]["what"]
    assert "waiting for" in caplog.text
    assert number(library) == 7


def test_an_interrupt_ends_all_compilers(wrapped: Callable[[str], Compiler], tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    hangs = wrapped(f"echo $$ >> {pids}; sleep 60")

    class Alarm(Exception):
        pass

    def interrupt(*_: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    start = time.monotonic()
    try:
        with pytest.raises(Alarm):
            build([SOURCE + "//" * k for k in range(3)], hangs, str(tmp_path / "cache"), 2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - start < 20
    assert not any(_lives(int(pid)) for pid in pids.read_text().split())


def test_other_threads_have_their_turn_while_a_compiler_runs(
    wrapped: Callable[[str], Compiler], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    waits = wrapped(f"while [ ! -e {go} ]; do sleep 0.05; done\n$compile")

    def other() -> None:
        with turn():
            go.touch()

    thread = threading.Thread(target=other)
    with turn():
        thread.start()
        (library,) = build([SOURCE], waits, str(tmp_path / "cache"), 1, seconds=30)
    thread.join()
    assert number(library) == 7


# ---------------------------------------------------------------------- what killed builds leave
def test_scratch_folders_of_killed_builds_go(
    wrapped: Callable[[str], Compiler], real: Compiler, tmp_path: Path
) -> None:
    scratch = tmp_path / "cache" / "c" / folders.SCRATCH
    started = tmp_path / "started"
    hangs = wrapped(f"touch {started}; sleep 5")
    process = os.fork()
    if process == 0:
        build([SOURCE], hangs, str(tmp_path / "cache"), 1)
        os._exit(1)
    while not started.exists():
        time.sleep(0.05)
    build([SOURCE.replace("7", "6")], real, str(tmp_path / "cache"), 1)
    assert len(list(scratch.iterdir())) == 1  # of a process that lives
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    elsewhere = scratch / f"{'0' * 12}-1-abc"
    old = scratch / f"{'1' * 12}-1-abc"
    for folder in (elsewhere, old, scratch / "a user's"):
        folder.mkdir()
    os.utime(old, (1000, 1000))
    build([SOURCE], real, str(tmp_path / "cache"), 1)
    assert sorted(f.name for f in scratch.iterdir()) == [elsewhere.name, "a user's"]


def test_private_folders_are_a_process_s_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(folders, "_private", {})
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    gone = tmp_path / f"torchjit-{folders._machine()}-999999999-abc"
    gone.mkdir()
    folder = folders.private_folder()
    assert not gone.exists()
    child = os.fork()
    if child == 0:
        own = folders.private_folder()
        right = own != folder and own.is_dir()
        for process in tuple(folders._private):
            folders._remove_private(process)
        os._exit(0 if right and folder.is_dir() and not own.exists() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert folder == folders.private_folder()
    folder.rmdir()
    assert folders.private_folder().is_dir()


# ---------------------------------------------------------------------- commands
def test_commands_have_arguments(real: Compiler) -> None:
    program = real.command[0]
    found = find_compiler(f"'{program}' -DX=1", 16, "CXX")
    assert found.command == (program, "-DX=1")
    assert found.version == real.version


@pytest.mark.parametrize("command", ["no-such-compiler", "'open", "/dev/null", "false", "  "])
def test_commands_that_do_not_run_are_refused_by_name(command: str) -> None:
    with pytest.raises(UserError, match="CXX") as caught:
        find_compiler(command, 16, "CXX")
    assert repr(command) in str(caught.value)


def test_threads_that_build_first_keep_their_scratch_folders(tmp_path: Path) -> None:
    """The folder around them is made by whoever is first; a file of its name goes. Nobody takes away what another has made."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def build_in(folder: Path, together: threading.Barrier) -> bool:
        together.wait(10)
        with folders.scratch_folder(folder) as scratch:
            (scratch / "kernels.cpp").write_text("")
            together.wait(10)
            return (scratch / "kernels.cpp").exists()

    try:
        with ThreadPoolExecutor(4) as pool:
            for k in range(40):
                folder = tmp_path / str(k)
                folder.mkdir()
                if k % 2:
                    (folder / folders.SCRATCH).touch()
                together = threading.Barrier(4)
                assert all([made.result(30) for made in [pool.submit(build_in, folder, together) for _ in range(4)]])
    finally:
        sys.setswitchinterval(interval)


def test_who_locks_nothing_loads_no_filelock() -> None:
    """Its audit hook makes each `id` of a program ten times slower."""
    program = "import sys, torch; b = set(sys.modules); import torchjit_inductor.compiled; print('filelock' in set(sys.modules) - b)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
