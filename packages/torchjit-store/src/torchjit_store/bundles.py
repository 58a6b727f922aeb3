"""Entries with their kernels as bytes, for another machine or a container image.

Entries and kernels are code. Bytes that come from elsewhere are taken only if they are signed (HMAC-SHA256) with a key that this
process has, or if the caller says that he trusts them. Nothing is executed or unpickled here, and nothing is written unless all is right.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, final

import attrs

from torchjit_core.reasons import UserError, UserTypeError, reason
from torchjit_core.user_warnings import warn_user
from torchjit_store.private_files import cache_root, made_folder, opened_folder, read_private, write_private

__all__ = ["BadBundle", "CacheInfo", "Untrusted", "load", "opened", "pack", "unpack"]

NO_ARTIFACTS = reason(
    "TJ-API-071",
    "what load_cache_artifacts was given cannot be used",
    "It takes the bytes that save_cache_artifacts returned. Nothing was put into the cache; what is missing there is compiled.",
    "Save them again with this version of torchjit.",
)
UNTRUSTED = reason(
    "TJ-STORE-061",
    "compiled code from elsewhere was not taken",
    "A bundle, or an entry in a remote store, is code that this process would run. It is taken only with a signature by a key that this process has "
    "too, or where the program says that it is trusted.",
    "Set TORCHJIT_BUNDLE_KEY to the same secret where bundles are saved and where they are loaded, or pass key= to both calls.",
    "load_cache_artifacts(data, trust=True) and `torchjit cache import --trust` take what was not signed: only what you would run.",
)
_MAGIC = b"torchjit bundle 2\n"
_SUM = 32  # bytes of a SHA-256
_ENTRY = re.compile(r"entries/([0-9a-f]{2})/(\1[0-9a-f]{62})/([0-9a-f]{64})\.tj")
_KERNEL = re.compile(r"c/([0-9a-f]{40})\.(?:cpp|sha256|so)")
_SUFFIXES = (".cpp", ".sha256", ".so")  # the library last: whoever sees it also sees its digest


@final
class BadBundle(ValueError):
    """The bytes are not what `pack` made, or not all of it. The text says what is wrong."""


@final
class Untrusted(Exception):
    """The bytes are whole, but nobody vouches for them. The text says why."""


@final
@attrs.frozen
class CacheInfo:
    """What is in a bundle.

    Attributes:
        kernels: names in the cache. They hold what a kernel depends on: its text, the compiler, its flags, the processor.
        nbytes: of all files together.
        entries: how many compiled entries.
    """

    kernels: tuple[str, ...]
    nbytes: int
    entries: int = 0


def pack(
    entries: Collection[Path],
    libraries: Collection[Path],
    secret: bytes | None,
    about: Mapping[str, Any] | None = None,
) -> tuple[bytes, CacheInfo]:
    """Entries, the kernels that they name, and more kernels. What is gone, or is not what was stored, is left out.

    Args:
        entries: files of an `EntryFolder`.
        libraries: kernels in the folder beside.
        secret: what the bundle is signed with; None: it is not.
        about: JSON-able, for `opened`; the signature covers it.
    """
    files: dict[str, bytes] = {}
    needed = set(libraries)
    for path in entries:
        name = "/".join(path.parts[-4:])
        content = _content(path)
        if content is not None and _is_entry(name, content):
            files[name] = content
            named = json.loads(content.partition(b"\n")[0]).get("libraries", ())
            needed.update(path.parents[3] / "c" / f"{library}.so" for library in named)
    for library in needed:
        for suffix in _SUFFIXES:
            name = f"c/{library.stem}{suffix}"
            if _KERNEL.fullmatch(name):
                with contextlib.suppress(OSError):  # whoever loads it checks it against its digest
                    files[name] = library.with_suffix(suffix).read_bytes()
    index = [{"name": name, "size": len(files[name])} for name in sorted(files)]
    head = json.dumps({"files": index, "about": about}).encode()
    rest = b"".join((len(head).to_bytes(8, "big"), head, *(files[name] for name in sorted(files))))
    signature = bytes(_SUM) if secret is None else _signature(rest, secret)
    return b"".join((_MAGIC, hashlib.sha256(rest).digest(), signature, rest)), _told(files)


def load(data: object, cache_dir: str | None, secret: bytes | None, *, trust: bool = False) -> CacheInfo | None:
    """`unpack` as users call it: bytes that are damaged are refused as a whole, with a warning.

    Args:
        cache_dir: None is the user's cache folder.

    Returns:
        What was put into the cache folder, or None.

    Raises:
        UserError: these are no bytes, or nobody vouches for them.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise UserTypeError(NO_ARTIFACTS, f"want bytes, got {type(data).__name__}")
    try:
        return unpack(bytes(data), cache_root(cache_dir), secret, trust=trust)
    except Untrusted as error:
        raise UserError(UNTRUSTED, str(error)) from None
    except (BadBundle, OSError) as error:
        warn_user(str(UserError(NO_ARTIFACTS, str(error))))
        return None


def unpack(data: bytes, root: Path, secret: bytes | None, *, trust: bool = False) -> CacheInfo:
    """Put what is in a bundle into a cache folder. Nothing is written unless all of it is right; no code runs.

    Raises:
        BadBundle: the bytes are something else, or damaged.
        Untrusted: they are not signed with `secret`, and not trusted either.
        OSError: a file cannot be written.
    """
    _, files = opened(data, secret, trust=trust)
    for folder in sorted({name.rpartition("/")[0] for name in files}):  # `c` first: entries need their kernels
        names = folder.split("/")
        made_folder(root, *names)
        with opened_folder(root, *names) as at:
            for name in sorted(name for name in files if name.rpartition("/")[0] == folder):
                write_private(name.rpartition("/")[2], files[name], at, mode=0o700 if name.endswith(".so") else 0o600)
    return _told(files)


def opened(data: bytes, secret: bytes | None, *, trust: bool = False) -> tuple[Any, dict[str, bytes]]:
    """What is said about a bundle, and its files by their names below a cache folder.

    Raises:
        BadBundle: the bytes are something else, or damaged.
        Untrusted: they are not signed with `secret`, and not trusted either.
    """
    rest = _vouched_for(data, secret, trust=trust)
    length = int.from_bytes(rest[:8], "big")
    try:
        head = json.loads(bytes(rest[8 : 8 + length]))
        index = [(entry["name"], entry["size"]) for entry in head["files"]]
        about = head["about"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadBundle(f"the list of its files cannot be read: {error!r}") from None
    return about, dict(_files(index, rest[8 + length :]))


def _vouched_for(data: bytes, secret: bytes | None, *, trust: bool) -> memoryview:
    """What follows the signature."""
    start = len(_MAGIC) + 2 * _SUM
    if not data.startswith(_MAGIC) or len(data) < start + 8:
        raise BadBundle("this is nothing that save_cache_artifacts of this version has saved")
    said, signature = data[len(_MAGIC) : start - _SUM], data[start - _SUM : start]
    rest = memoryview(data)[start:]
    if hashlib.sha256(rest).digest() != said:
        raise BadBundle("the bytes are damaged: their checksum differs")
    if not trust:
        if secret is None:
            raise Untrusted("this process has no key to check a signature with")
        if not hmac.compare_digest(signature, _signature(rest, secret)):
            signed = signature != bytes(_SUM)
            raise Untrusted("it is signed with another key" if signed else "it is not signed")
    return rest


def _files(index: list[tuple[Any, Any]], content: memoryview) -> Iterator[tuple[str, bytes]]:
    if any(type(name) is not str or type(size) is not int or size < 0 for name, size in index):
        raise BadBundle("the list of its files is wrong")
    if sum(size for _, size in index) != len(content):
        raise BadBundle("the list of its files is wrong")
    at = 0
    for name, size in index:
        file = bytes(content[at : at + size])
        if not (_KERNEL.fullmatch(name) or _is_entry(name, file)):
            raise BadBundle(f"{name!r} is no entry and no kernel")
        yield name, file
        at += size


def _is_entry(name: str, content: bytes) -> bool:
    found = _ENTRY.fullmatch(name)
    return found is not None and hashlib.sha256(content).hexdigest() == found[3]


def _content(entry: Path) -> bytes | None:
    """An entry's bytes, if it is there and nobody else can have written it."""
    with contextlib.suppress(OSError), opened_folder(entry.parents[3], *entry.parts[-4:-1]) as at:
        return b"".join(read_private(entry.name, at))
    return None


def _signature(rest: bytes | memoryview, secret: bytes) -> bytes:
    return hmac.new(secret, rest, hashlib.sha256).digest()


def _told(files: Mapping[str, bytes]) -> CacheInfo:
    kernels = tuple(sorted(name[2:-3] for name in files if name.endswith(".so")))
    return CacheInfo(kernels, sum(map(len, files.values())), sum(name.endswith(".tj") for name in files))
