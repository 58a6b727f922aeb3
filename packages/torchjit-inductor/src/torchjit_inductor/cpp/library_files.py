"""What compilers left behind: is a library complete, is it still the one that was built, and which are in use?"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import time
from pathlib import Path

__all__ = ["digest", "is_complete", "is_trusted", "note_used", "used_libraries"]

ENTRY = b"tj_init\0"


def digest(key: str, content: bytes) -> str:
    """What is written beside a library: it holds for this content under this name."""
    return hashlib.sha256(key.encode() + b"\0" + content).hexdigest()


def is_trusted(library: Path) -> bool:
    """Is a finished library there, ours, and what was built for its name?"""
    try:
        found = library.stat()
        if not stat.S_ISREG(found.st_mode):
            return False
        if hasattr(os, "getuid") and (found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022):
            return False
        noted = library.with_suffix(".sha256").read_bytes()
        return noted == digest(library.stem, library.read_bytes()).encode()
    except OSError:
        return False


def is_complete(content: bytes) -> bool:
    """Is it all there? A compiler may report success after a short write, and loading a part of a library may end the process.

    The table of sections is the last thing that linkers write in an ELF file. Of other formats it is known that they are not empty.
    """
    if content[:4] != b"\x7fELF":
        return bool(content)
    try:
        return ENTRY in content and _tables_lie_inside(content)
    except (struct.error, IndexError):
        return False


def _tables_lie_inside(content: bytes) -> bool:
    wide, order = content[4] == 2, "<" if content[5] == 1 else ">"
    head = struct.unpack_from(order + ("16xHHIQQQIHHHHHH" if wide else "16xHHIIIIIHHHHHH"), content)
    _, _, _, _, programs, sections, _, _, program_size, program_count, section_size, section_count, names = head
    ends = (programs + program_count * program_size, sections + section_count * section_size)
    if max(ends) > len(content):
        return False
    program = order + ("4x4xQ8x8xQ" if wide else "4xI8xI")  # offset, bytes in the file
    for k in range(program_count):
        offset, size = struct.unpack_from(program, content, programs + k * program_size)
        if offset + size > len(content):
            return False
    section = order + ("4xI8x8xQQ" if wide else "4xI4x4xII")  # type, offset, size
    kinds = []
    for k in range(section_count):
        kind, offset, size = struct.unpack_from(section, content, sections + k * section_size)
        if kind != _NO_BITS and offset + size > len(content):
            return False
        kinds.append(kind)
    return bool(section_count and kinds[0] == 0 and kinds[names] == _NAMES)


_NAMES = 3  # SHT_STRTAB
_NO_BITS = 8  # SHT_NOBITS


_used: set[Path] = set()


def used_libraries() -> frozenset[Path]:
    """The libraries that this process has built or found."""
    return frozenset(_used)


def note_used(library: Path) -> None:
    """A library of the cache is in use; its time says so, once a day at most."""
    _used.add(library)
    with contextlib.suppress(OSError):
        if time.time() - library.stat().st_mtime > 86400:
            os.utime(library)
