"""Compiled kernels as bytes that another machine of the same kind puts into its cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, final

import attrs

from torchjit_inductor.cpp.library_files import digest, is_complete, is_trusted

__all__ = ["BadBundle", "Bundled", "pack", "unpack"]

_MAGIC = b"torchjit kernels 1\n"
_SUM = 32  # bytes of a SHA-256
_NAME = re.compile(r"[0-9a-f]{40}")
_SUFFIXES = (".so", ".cpp")


@final
class BadBundle(ValueError):
    """The bytes are not what `pack` made, or not all of it. The text says what is wrong."""


@final
@attrs.frozen
class Bundled:
    """What is in a bundle.

    Attributes:
        kernels: names in the cache. They hold what a kernel depends on: its text, the compiler, its flags, the processor.
        nbytes: of their files together.
    """

    kernels: tuple[str, ...]
    nbytes: int


def pack(libraries: Collection[Path]) -> tuple[bytes, Bundled]:
    """The libraries with their texts; those that are gone, or are not what was built, are left out."""
    index: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for library in sorted(libraries):
        if not is_trusted(library):
            continue
        for suffix in _SUFFIXES:
            try:
                content = library.with_suffix(suffix).read_bytes()
            except OSError:
                continue
            index.append({"name": library.stem, "suffix": suffix, "size": len(content)})
            blobs.append(content)
    head = json.dumps(index).encode()
    rest = b"".join((len(head).to_bytes(8, "big"), head, *blobs))
    return _MAGIC + hashlib.sha256(rest).digest() + rest, _told(index)


def unpack(data: bytes, folder: Path) -> Bundled:
    """Put what is in a bundle into a cache folder. Nothing is written unless all of it is right; no code runs.

    Raises:
        BadBundle: the bytes are something else, or damaged.
        OSError: a file cannot be written.
    """
    index, blobs = _read(data)
    for entry, content in zip(index, blobs, strict=True):
        if entry["suffix"] == ".so" and not is_complete(content):
            raise BadBundle(f"the library {entry['name']} is not complete")
    for entry, content in zip(index, blobs, strict=True):
        target = folder / f"{entry['name']}{entry['suffix']}"
        if entry["suffix"] == ".so":
            if is_trusted(target):
                continue
            _write(target.with_suffix(".sha256"), digest(target.stem, content).encode(), 0o600)
        _write(target, content, 0o700 if entry["suffix"] == ".so" else 0o600)
    return _told(index)


def _read(data: bytes) -> tuple[list[dict[str, Any]], list[bytes]]:
    if not data.startswith(_MAGIC):
        raise BadBundle("these are no kernels that save_cache_artifacts of this version has saved")
    said, rest = data[len(_MAGIC) :][:_SUM], data[len(_MAGIC) + _SUM :]
    if hashlib.sha256(rest).digest() != said:
        raise BadBundle("the bytes are damaged: their checksum differs")
    length = int.from_bytes(rest[:8], "big")
    try:
        index = json.loads(rest[8 : 8 + length])
        sizes = [entry["size"] for entry in index]
        named = all(_NAME.fullmatch(entry["name"]) and entry["suffix"] in _SUFFIXES for entry in index)
    except (ValueError, TypeError, KeyError) as error:
        raise BadBundle(f"the list of its files cannot be read: {error!r}") from None
    if not named or any(type(size) is not int or size < 0 for size in sizes) or 8 + length + sum(sizes) != len(rest):
        raise BadBundle("the list of its files is wrong")
    blobs, at = [], 8 + length
    for size in sizes:
        blobs.append(rest[at : at + size])
        at += size
    return index, blobs


def _told(index: list[dict[str, Any]]) -> Bundled:
    kernels = tuple(entry["name"] for entry in index if entry["suffix"] == ".so")
    return Bundled(kernels, sum(entry["size"] for entry in index))


def _write(target: Path, content: bytes, mode: int) -> None:
    """As a whole or not at all."""
    handle, name = tempfile.mkstemp(dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
