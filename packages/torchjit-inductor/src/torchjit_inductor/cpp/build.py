"""Compiling C files, with a cache on disk that is keyed by content."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import final

import attrs
import torch

from torchjit_core.reasons import UserError, reason
from torchjit_core.turns import others_may_go_on
from torchjit_inductor.codegen_protocol import CompilerMissing
from torchjit_inductor.cpp.folders import UnusableFolder, clear, scratch_folder, stand_in, usable_folder
from torchjit_inductor.cpp.library_files import digest, is_complete, is_trusted, note_used
from torchjit_inductor.cpp.limited import PATIENCE, Running, TookTooLong, run_limited, tell_waiting
from torchjit_inductor.cpp.locks import Timeout, courtesy_lock

__all__ = [
    "Compiler",
    "build",
    "default_vector_bytes",
    "find_compiler",
    "machine",
    "trim",
]

ABI = "torchjit-c-1"
KEY_LENGTH = 40
LOCK_SECONDS = 120.0
COMPILER_REFUSED = reason(
    "TJ-IND-010",
    "the compiler that an environment variable names does not run",
    "CXX, or else CC, names the compiler of generated C++. No such program was found, or it does not answer to --version.",
    "Set CXX to a C++ compiler, such as g++ or clang++, or unset it: then the first of g++, clang++ and c++ is taken.",
)


@final
@attrs.frozen
class Compiler:
    """A C++ compiler: the command's words, its version text and the flags that it is called with."""

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]


def default_vector_bytes() -> int:
    """Bytes of the widest vector that torch itself uses on this machine."""
    capability = torch.backends.cpu.get_cpu_capability()
    return {"AVX512": 64, "AVX512_VNNI": 64, "AVX2": 32}.get(str(capability), 16)


def find_compiler(command: str | None, vector_bytes: int, named_by: str | None = None) -> Compiler:
    """The compiler to use: the given one, or the first of g++, clang++, c++ and the wheel `ziglang` that runs.

    Args:
        command: a command, perhaps with arguments, as a shell would take them.
        vector_bytes: width of vectors.
        named_by: the environment variable that gave the command.

    Raises:
        CompilerMissing: none of the candidates runs.
        UserError: the command that an environment variable names does not run.
    """
    names = [command] if command is not None else ["g++", "clang++", "c++"]
    candidates = [found for name in names if (found := _words(name)) is not None]
    if command is None and importlib.util.find_spec("ziglang") is not None:
        candidates.append((sys.executable, "-m", "ziglang", "c++"))
        names.append("the wheel ziglang")
    for candidate in candidates:
        version = _version(candidate)
        if version is not None:
            return Compiler(candidate, version, _flags(version, vector_bytes))
    if named_by is not None:
        raise UserError(COMPILER_REFUSED, f"{named_by}={command!r}")
    raise CompilerMissing(f"no C++ compiler: tried {', '.join(names)}")


def _words(command: str) -> tuple[str, ...] | None:
    """The command's words, the program with its path; None: there is no such program."""
    try:
        name, *arguments = shlex.split(command)
    except ValueError:  # an open quote, or nothing
        return None
    path = shutil.which(name)
    return None if path is None else (path, *arguments)


_versions: dict[tuple[str, ...], str] = {}


def _version(command: tuple[str, ...]) -> str | None:
    if command not in _versions:
        try:
            with others_may_go_on():
                ran = run_limited([*command, "--version"], 20.0, "its version")
        except (OSError, TookTooLong):
            return None
        if ran.status or not ran.output:
            return None
        _versions[command] = ran.output.splitlines()[0]
    return _versions[command]


def _flags(version: str, vector_bytes: int) -> tuple[str, ...]:
    """No -ffast-math and no contraction, and integers wrap around: results must be eager's."""
    flags = ["-x", "c++", "-std=c++17", "-O2", "-fPIC", "-shared", "-w", "-fno-exceptions", "-fno-rtti", "-nostdlib"]
    flags += ["-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fno-semantic-interposition"]
    flags += ["-fwrapv"]
    if platform.machine() in ("x86_64", "AMD64"):
        if vector_bytes >= 32:
            flags.append("-march=native")
        if vector_bytes >= 64:
            flags.append("-mprefer-vector-width=512")
    if "clang" not in version:
        flags += ["-fno-tree-loop-distribute-patterns"]
        # GCC 13 and 14 take elements of one vector for those of another: value numbering, which goes through loops in rounds,
        # follows a load to what was stored, makes a name for that element while it still takes two vectors for equal, and
        # keeps it when it no longer does (`test_parts_of_constants`). It does not follow loads under this limit. The
        # benchmarks' kernels take the same time on average (docs/benchmarks/cpu.md).
        flags += ["--param=sccvn-max-alias-queries-per-access=0"]
    return tuple(flags)


def build(
    sources: Sequence[str],
    compiler: Compiler,
    cache_dir: str | None,
    jobs: int | None,
    cache_bytes: int = 1 << 30,
    seconds: float = 600.0,
) -> list[Path]:
    """Compile each source into a shared library that can be loaded, or find it in the cache. Other threads may capture meanwhile.

    A cache folder that is of no use is replaced by a private temporary one, with a warning.

    Args:
        cache_bytes: what the cache may hold; the libraries that were not used for longest go.
        seconds: that a run of the compiler may take.

    Raises:
        CompilerMissing: the compiler rejects a file, takes too long or writes no library (the message holds what it said).
    """
    with others_may_go_on():
        try:
            folder = usable_folder(cache_dir)
            try:
                return _build_into(folder, sources, compiler, jobs, cache_bytes, seconds)
            except UnusableFolder as unusable:
                folder = stand_in(cache_dir, unusable)
                return _build_into(folder, sources, compiler, jobs, cache_bytes, seconds)
        except UnusableFolder as unusable:
            raise CompilerMissing(f"there is no folder for compiled kernels: {unusable}") from None


def _build_into(
    folder: Path, sources: Sequence[str], compiler: Compiler, jobs: int | None, cache_bytes: int, seconds: float
) -> list[Path]:
    targets = [folder / f"{_key(source, compiler)}.so" for source in sources]
    todo = []
    for source, target in dict(zip(sources, targets, strict=True)).items():
        if not is_trusted(target):
            todo.append((source, target))
    if jobs is None:
        jobs = min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    _compile_all(todo, compiler, max(1, jobs), seconds)
    if todo:
        trim(folder, cache_bytes, keep=targets)
    for source, target in zip(sources, targets, strict=True):
        if not target.exists():  # another process has trimmed the folder just now
            _compile_once(source, target, compiler, seconds, None)
        _try_to_load(target)
        note_used(target)
    return targets


def _compile_all(todo: Sequence[tuple[str, Path]], compiler: Compiler, jobs: int, seconds: float) -> None:
    if len(todo) == 1:
        _compile_once(*todo[0], compiler, seconds, None)
    elif todo:
        running = Running()
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            try:
                for made in [pool.submit(_compile_once, *job, compiler, seconds, running) for job in todo]:
                    made.result()
            except BaseException:  # an interrupt, too: the pool waits for its threads
                pool.shutdown(wait=False, cancel_futures=True)
                running.stop()
                raise


def _try_to_load(library: Path) -> None:
    """Raises what keeps a library from being loaded: a folder without the right to, or what the compiler has made."""
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        if re.search("failed to map|not permitted|denied", str(error), re.IGNORECASE):
            raise UnusableFolder(library.parent, f"no library can be loaded from it ({error})") from None
        library.unlink(missing_ok=True)
        raise CompilerMissing(f"what the compiler made cannot be loaded: {error}") from None


def trim(folder: Path, limit: int, keep: Sequence[Path] = ()) -> int:
    """Remove the libraries that were not used for longest until `limit` bytes are left; leftovers of dead builds too.

    Args:
        keep: libraries that stay.

    Returns:
        Bytes removed. Looks at most once an hour, since a look lists the folder.
    """
    stamp = folder / "trimmed"
    with contextlib.suppress(OSError, Timeout):
        if stamp.exists() and time.time() - stamp.stat().st_mtime < 3600:
            return 0
        with courtesy_lock(folder / "trim.lock", 0):
            stamp.touch()
            return _trim(folder, limit, {p.stem for p in keep})
    return 0


def _trim(folder: Path, limit: int, keep: set[str]) -> int:
    groups: dict[str, list[Path]] = {}
    for path in folder.iterdir():
        if path.is_file() and len(path.stem) == KEY_LENGTH:
            groups.setdefault(path.stem, []).append(path)
    used = {stem: max(p.stat().st_mtime for p in paths) for stem, paths in groups.items()}
    sizes = {stem: sum(p.stat().st_size for p in paths) for stem, paths in groups.items()}
    total, removed = sum(sizes.values()), 0
    for stem in sorted(groups, key=lambda s: used[s]):
        if total - removed <= limit:
            break
        if stem not in keep:
            for path in groups[stem]:
                path.unlink(missing_ok=True)
            removed += sizes[stem]
    return removed


def _key(source: str, compiler: Compiler) -> str:
    text = "\0".join((ABI, compiler.version, *compiler.flags, machine(), source))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


@functools.cache
def machine() -> str:
    """What -march=native depends on."""
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {_model_name()}"


def _model_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line.strip() for line in lines if line.startswith(("model name", "CPU part"))), "")
    except OSError:
        return platform.processor()


def _compile_once(source: str, target: Path, compiler: Compiler, seconds: float, running: Running | None) -> None:
    """Compile unless another process does: then wait for it and take what it made.

    Raises:
        CompilerMissing: see `build`.
        UnusableFolder: files cannot be written there.
    """
    lock = target.with_suffix(".lock")
    try:
        if lock.is_dir():
            clear(lock)
        with _locked(lock):
            if not is_trusted(target):
                _compile(source, target, compiler, seconds, running)
            lock.unlink(missing_ok=True)
    except OSError as error:
        raise UnusableFolder(target.parent, error) from None


@contextlib.contextmanager
def _locked(lock: Path) -> Iterator[None]:
    """The lock of a build, or none where whoever has it is stuck: the last step of a build is atomic."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(courtesy_lock(lock, PATIENCE))
        except Timeout:
            tell_waiting(f"another process that makes the same kernel ({lock})", PATIENCE, LOCK_SECONDS)
            with contextlib.suppress(Timeout):
                held.enter_context(courtesy_lock(lock, max(LOCK_SECONDS - PATIENCE, 0)))
        yield


def _compile(source: str, target: Path, compiler: Compiler, seconds: float, running: Running | None) -> None:
    with scratch_folder(target.parent) as scratch:
        text, library = scratch / "kernels.cpp", scratch / "kernels.so"
        text.write_text(source, encoding="utf-8")
        said = _run(compiler, [str(text), "-o", str(library), "-lm", "-lgcc"], scratch, seconds, running)
        try:
            content = library.read_bytes()
        except FileNotFoundError:
            content = b""
        if not is_complete(content):
            if said or _is_full(scratch):
                raise UnusableFolder(target.parent, said or "no space left")
            raise CompilerMissing(f"{' '.join(compiler.command)} ended well, but wrote no complete library")
        library.chmod(0o700)
        noted = scratch / "digest"
        noted.write_text(digest(target.stem, content))
        # The library last: whoever sees it also sees its digest.
        for made, suffix in ((text, ".cpp"), (noted, ".sha256"), (library, ".so")):
            place = target.with_suffix(suffix)
            if place.is_dir():
                clear(place)
            os.replace(made, place)


_stuck: dict[tuple[str, ...], str] = {}
"""Compilers that did not come to an end, and what was said: each graph of a program would wait as long again."""


def _run(compiler: Compiler, arguments: list[str], scratch: Path, seconds: float, running: Running | None) -> str:
    """Run the compiler; its own temporary files are in the scratch folder too.

    Returns:
        What it said about a folder that is full or cannot be written, or nothing.

    Raises:
        CompilerMissing: it rejects the file, cannot be started, or takes too long.
    """
    command = " ".join(compiler.command)
    if compiler.command in _stuck:
        raise CompilerMissing(_stuck[compiler.command])
    try:
        ran = run_limited(
            [*compiler.command, *compiler.flags, *arguments], seconds, "a kernel",
            env={**os.environ, "TMPDIR": str(scratch), "LC_ALL": "C"}, running=running,
        )  # fmt: skip
    except OSError as error:
        raise CompilerMissing(f"{command} cannot be run: {error}") from None
    except TookTooLong as error:
        _stuck[compiler.command] = f"{error}; it is not asked again (TORCHJIT_COMPILER_SECONDS sets the limit)"
        raise CompilerMissing(_stuck[compiler.command]) from None
    said = next((line for line in ran.errors.splitlines() if _NO_ROOM.search(line)), "")
    if ran.status and not said:
        raise CompilerMissing(f"{command} rejected a kernel:\n{ran.errors[:4000]}")
    return said


_NO_ROOM = re.compile("No space left on device|Disk quota exceeded|Read-only file system|File too large")


def _is_full(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < 1 << 20
