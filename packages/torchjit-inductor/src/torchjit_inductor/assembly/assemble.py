"""From a kernel's text to machine code by Triton: called here, or run as a program that serves another process.

The program imports Triton and the prelude, neither torch nor the rest of this package, so that it starts in a second:

    python assemble.py      # reads pickled requests from its standard input, writes pickled answers to its standard output
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import importlib
import linecache
import os
import pickle
import selectors
import shutil
import struct
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Mapping
from typing import Any, BinaryIO

__all__ = ["Assembled", "Whole", "assemble", "files_key", "function_of", "read_message", "readable", "write_message"]

Assembled = tuple[str, bytes, str, int, tuple[tuple[tuple[int, int], int], ...]]
"""Name of the entry point, binary, assembly, bytes of shared memory, and for each descriptor among the parameters the tile that
is copied at once and how it lies in shared memory (`CUtensorMapSwizzle`)."""


def function_of(text: str, name: str) -> Any:
    """The `triton.JITFunction` (or interpreted function) of a module's text."""
    # Triton reads a function's source back through `inspect`, which asks linecache: no file is needed.
    filename = f"<torchjit {name} {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": "torchjit_inductor.triton.generated"}
    exec(compile(text, filename, "exec"), namespace)
    return namespace[name]


def assemble(
    text: str,
    name: str,
    arguments: Mapping[str, str],
    aligned: frozenset[str],
    arch: int,
    warps: int,
    stages: int,
    registers: int = 0,
) -> Assembled:
    """Compile a kernel for an NVIDIA GPU. Needs no GPU, and may run in several threads at once.

    Args:
        text: a module with the function.
        name: of the function.
        arguments: type of each parameter, in order: `*bf16`, `i32` ...
        aligned: parameters that are multiples of 16.
        arch: compute capability, 90 for sm_90.
        warps: per program.
        stages: depth of software pipelining.
        registers: of a thread, at most; 0: as many as it takes.
    """
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415  # the serving process sets its path before
    from triton.compiler import ASTSource  # noqa: PLC0415

    names = list(arguments)
    attributes = {(names.index(a),): [["tt.divisibility", 16]] for a in aligned}
    ast = ASTSource(function_of(text, name), signature=dict(arguments), constexprs={}, attrs=attributes)
    # Contracting a*b+c is what nvcc does for eager's kernels, too.
    options: dict[str, Any] = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}
    if registers:
        options["maxnreg"] = registers
    if "tl.device_assert" in text:  # assertions are compiled in this mode only; of its other checks we want none
        options |= {"debug": True, "sanitize_overflow": False}
    compiled = _compile(ast, GPUTarget("cuda", arch, 32), options)
    metadata = compiled.metadata
    copies = tuple(
        ((d["block_size"][0], d["block_size"][1]), d["swizzle"])
        for d in getattr(metadata, "tensordesc_meta", None) or ()
    )
    return metadata.name, compiled.asm["cubin"], compiled.asm["ptx"], metadata.shared, copies


_alone = threading.Lock()


def _compile(source: Any, target: Any, options: dict[str, Any]) -> Any:
    """`triton.compile`, again when two threads of CPython 3.11 or 3.12 were in `ast.parse` at once.

    They share a depth counter there, and the loser gets a SystemError that says nothing about its program.
    """
    import triton  # noqa: PLC0415

    for _ in range(3):
        place = triton.knobs.cache.dir
        try:
            return triton.compile(source, target=target, options=options)
        except OSError as error:
            if not _took_another_cache(error, place):
                raise
        except SystemError as error:
            if "recursion depth" not in str(error):
                raise
    with _alone:
        return triton.compile(source, target=target, options=options)


def _took_another_cache(error: OSError, place: str) -> bool:
    """Could Triton not write to its cache at this place? It gets a temporary folder, for the rest of this process."""
    from triton import knobs  # noqa: PLC0415

    if error.errno not in _UNWRITABLE:
        return False
    with _alone:
        if knobs.cache.dir == place and not _taken:
            folder = tempfile.mkdtemp(prefix="torchjit-triton-")
            atexit.register(_remove, folder, os.getpid())
            _taken.append(folder)
            knobs.cache.dir = folder
            told = f"Triton's cache folder {place} cannot be used: {error}; kernels are compiled in {folder}."
            warnings.warn(
                f"{told} Set TRITON_CACHE_DIR to a folder that can be written to.", RuntimeWarning, stacklevel=2
            )
        return bool(knobs.cache.dir != place)


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EEXIST)
_taken: list[str] = []


# ---------------------------------------------------------------------------------------------- the serving process


def write_message(stream: BinaryIO, message: Any) -> None:
    """One object, with its length before it."""
    data = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def read_message(stream: BinaryIO) -> Any:
    """One object.

    Raises:
        EOFError: the other side is gone.
    """
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    (length,) = struct.unpack("<Q", head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


def readable(stream: Any, seconds: float) -> bool:
    """Wait until there is something to read, or the other side is gone. For any descriptor: `select` takes none above 1023."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(stream, selectors.EVENT_READ)
        return bool(waiting.select(seconds))


def _serve() -> None:
    # What the compiler prints must not come between the answers. Unbuffered, so that `select` tells of every request.
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.path[:], idle_seconds = read_message(Whole(requests))  # type: ignore[arg-type]
    # The prelude, without the packages around it.
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for package, place in (("torchjit_inductor", home), ("torchjit_inductor.triton", os.path.join(home, "triton"))):
        made = types.ModuleType(package)
        made.__path__ = [place]
        sys.modules[package] = made
    for name in ("torchjit_inductor.triton.prelude", "triton.compiler", "triton.compiler.code_generator"):
        importlib.import_module(name)
    _identify_triton_quickly()

    write_message(answers, sorted(sys.modules))  # ready; that torch is not among them is tested
    while readable(requests, idle_seconds):
        try:
            request = read_message(Whole(requests))  # type: ignore[arg-type]
        except EOFError:
            return
        try:
            write_message(answers, (True, assemble(*request)))
        except Exception as error:  # whatever Triton raises: the other side compiles again and sees it
            write_message(answers, (False, f"{type(error).__name__}: {error}"))


def _identify_triton_quickly() -> None:
    """Triton's cache in this process goes by sizes and times of Triton's files.

    Its own key is a hash of their contents, half a second for the 500 MB of its library, in each process that compiles a kernel.
    """
    import triton  # noqa: PLC0415
    from triton.runtime import cache  # noqa: PLC0415

    if hasattr(cache, "triton_key"):  # elsewhere it is a function of the compiler's, which stays as it is
        key = files_key(os.path.dirname(triton.__file__), triton.__version__)
        cache.triton_key = lambda: key


def files_key(folder: str, version: str) -> str:
    """A digest of the names, sizes and times of all files in a folder; bytecode does not count."""
    told = [version]
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        for name in sorted(files):
            facts = os.stat(os.path.join(place, name))
            told.append(f"{place[len(folder) :]}/{name} {facts.st_size} {facts.st_mtime_ns}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


class Whole:
    """An unbuffered stream whose `read` returns as much as was asked for."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, count: int) -> bytes:
        parts = []
        while count and (part := self._stream.read(count)):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


if __name__ == "__main__":
    _serve()
