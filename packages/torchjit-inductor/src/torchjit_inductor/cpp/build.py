"""Compiling C files, with a cache on disk that is keyed by content."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import final

import attrs
import platformdirs
import torch
from filelock import FileLock, Timeout

from torchjit_inductor.codegen_protocol import CompilerMissing

__all__ = ["Compiler", "build", "cache_folder", "default_vector_bytes", "find_compiler", "machine", "trim"]

ABI = "torchjit-c-1"
KEY_LENGTH = 40


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


def find_compiler(command: str | None, vector_bytes: int) -> Compiler:
    """The compiler to use: the given one, or the first of g++, clang++, c++ and the wheel `ziglang` that runs.

    Raises:
        CompilerMissing: none of the candidates runs.
    """
    names = [command] if command is not None else ["g++", "clang++", "c++"]
    candidates: list[tuple[str, ...]] = [(path,) for name in names if (path := shutil.which(name)) is not None]
    if command is None and importlib.util.find_spec("ziglang") is not None:
        candidates.append((sys.executable, "-m", "ziglang", "c++"))
        names.append("the wheel ziglang")
    for candidate in candidates:
        version = _version(candidate)
        if version is not None:
            return Compiler(candidate, version, _flags(version, vector_bytes))
    raise CompilerMissing(f"no C++ compiler: tried {', '.join(names)}")


@functools.cache
def _version(command: tuple[str, ...]) -> str | None:
    try:
        ran = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.splitlines()[0] if ran.returncode == 0 and ran.stdout else None


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
    sources: Sequence[str], compiler: Compiler, cache_dir: str | None, jobs: int | None, cache_bytes: int = 1 << 30
) -> list[Path]:
    """Compile each source into a shared library, or find it in the cache.

    Args:
        cache_bytes: what the cache may hold; the libraries that were not used for longest go.

    Raises:
        CompilerMissing: the compiler rejects a file (the message holds what it said).
    """
    folder = cache_folder(cache_dir)
    targets = [folder / f"{_key(source, compiler)}.so" for source in sources]
    todo = []
    for source, target in dict(zip(sources, targets, strict=True)).items():
        if _trusted(target):
            _mark_used(target)
        else:
            todo.append((source, target))
    if jobs is None:
        jobs = min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if len(todo) == 1:
        _compile_once(todo[0][0], todo[0][1], compiler)
    elif todo:
        with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
            for _ in pool.map(lambda job: _compile_once(job[0], job[1], compiler), todo):
                pass
    if todo:
        trim(folder, cache_bytes, keep=targets)
    return targets


def _mark_used(target: Path) -> None:
    """Note, at most once a day, that a library is in use."""
    with contextlib.suppress(OSError):
        if time.time() - target.stat().st_mtime > 86400:
            os.utime(target)


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
        with FileLock(folder / "trim.lock", timeout=0):
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


def cache_folder(cache_dir: str | None) -> Path:
    """The cache folder, made if need be, readable by its owner only.

    Raises:
        PermissionError: it belongs to somebody else.
    """
    folder = Path(cache_dir) if cache_dir is not None else Path(platformdirs.user_cache_dir("torchjit"))
    folder = folder / "c"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user: no code is loaded from there")
    if stat.S_IMODE(found.st_mode) & 0o022:
        folder.chmod(0o700)
    return folder


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


def _trusted(target: Path) -> bool:
    """Is a finished library there, ours, and unchanged since it was written?"""
    try:
        found = target.stat()
        if hasattr(os, "getuid") and (found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022):
            return False
        return target.with_suffix(".sha256").read_text() == hashlib.sha256(target.read_bytes()).hexdigest()
    except OSError:
        return False


def _compile_once(source: str, target: Path, compiler: Compiler) -> None:
    """Compile unless another process does: then wait for it and take what it made."""
    lock = target.with_suffix(".lock")
    with contextlib.suppress(Timeout), FileLock(lock, timeout=120):
        if not _trusted(target):
            _compile(source, target, compiler)
        lock.unlink(missing_ok=True)
        return
    _compile(source, target, compiler)  # whoever holds the lock is stuck; the last step of a build is atomic


def _compile(source: str, target: Path, compiler: Compiler) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        text, library = Path(scratch) / "kernels.cpp", Path(scratch) / "kernels.so"
        text.write_text(source)
        ran = subprocess.run(
            [*compiler.command, *compiler.flags, str(text), "-o", str(library), "-lm", "-lgcc"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ran.returncode:
            raise CompilerMissing(f"{' '.join(compiler.command)} rejected a kernel:\n{ran.stderr[:4000]}")
        library.chmod(0o700)
        digest = Path(scratch) / "digest"
        digest.write_text(hashlib.sha256(library.read_bytes()).hexdigest())
        # The library last: whoever sees it also sees its digest.
        os.replace(text, target.with_suffix(".cpp"))
        os.replace(digest, target.with_suffix(".sha256"))
        os.replace(library, target)
