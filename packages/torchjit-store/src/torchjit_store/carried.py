"""Entries of one compiled callable, out of a file that it was saved into: all that there is for it, since nothing is captured beside them.

What is said about them (`about` of a bundle) serves to tell why nothing fits; whether something does is decided by keys, references and
guards, as for entries in a folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

from torchjit_store.bundles import BadBundle
from torchjit_store.folder import StoredBytes
from torchjit_store.key import FORMAT, process_parts

__all__ = ["CarriedEntries", "differences"]

_FIXED = {
    "python": "another Python",
    "machine": "another processor",
    "torch": "another torch",
    "torchjit": "another version of torchjit",
}
"""Parts of a process that do not change while it runs."""
_MOST = 4
"""Differences that are told."""


@final
class CarriedEntries:
    """What `bundles.opened` gave, to be read as an `EntryFolder` is.

    Args:
        about: `process`: parts of the process that compiled them; `sites`: by key, what tells a site from others; `eager`: the regions that ran as
            they are.
        files: entries and kernels.

    Attributes:
        about: as above.
        libraries: the kernels: by name, the library and what is written beside it as its digest.

    Raises:
        BadBundle: an entry needs a kernel that is not among the files.
    """

    def __init__(self, about: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        self.about = about
        self.libraries = {
            name[2:-3]: (content, files.get(f"{name[:-3]}.sha256", b""))
            for name, content in files.items()
            if name.endswith(".so")
        }
        self._entries: dict[str, list[StoredBytes]] = {}
        for name, content in files.items():
            if name.endswith(".tj"):
                stored = self._stored(name, content)
                self._entries.setdefault(stored.key, []).append(stored)

    def _stored(self, name: str, content: bytes) -> StoredBytes:
        line, _, _ = content.partition(b"\n")
        try:
            header = json.loads(line)
            wanted = set(header.get("libraries", ()))
        except (ValueError, AttributeError, TypeError, RecursionError):
            raise BadBundle(f"{name}: its header cannot be read") from None
        key = name.split("/")[2]
        if header.get("format") != FORMAT or header.get("key") != key or not wanted <= self.libraries.keys():
            raise BadBundle(f"{name} is of another format, or a kernel that it needs is not there")
        return StoredBytes(key, header, memoryview(content)[len(line) + 1 :], Path(name))

    def read(self, key: str, first: Callable[[Mapping[str, Any]], bool] | None = None) -> Iterator[StoredBytes]:
        """The entries of a site; see `EntryFolder.read`."""
        entries = self._entries.get(key, ())
        yield from entries if first is None else sorted(entries, key=lambda stored: not first(stored.header))

    def mark_used(self, stored: StoredBytes) -> None:
        """They stay in any case."""

    def misfit(self) -> str:
        """Why no process like this one can use them; "" if it can. Threads and GPUs are not asked yet: a program may set and start them."""
        return _process_text(self.about["process"], process_parts(), tuple(_FIXED))

    def why_not(self, site: Mapping[str, Any]) -> str:
        """Why nothing has the key of a site.

        Args:
            site: the parts that its key was made of; `region` begins with a module and a qualified name.
        """
        text = _process_text(self.about["process"], process_parts(), (*_FIXED, "threads", "gpus"))
        if text:
            return text
        where = _place(site)
        known = [parts for parts in self.about["sites"].values() if _place(parts) == where]
        if not known:
            return "nothing of this function was compiled" + (" behind this place" if where[2] is not None else "")
        return min((list(_telling(parts, site)) for parts in known), key=len)[0]

    def ran_eagerly(self, site: Mapping[str, Any]) -> bool:
        """Could this region not be compiled where the others were?"""
        return _jsoned(site["region"]) in self.about["eager"]

    def has_region(self, site: Mapping[str, Any]) -> bool:
        """Is there an entry of this region, for whatever calls?"""
        return any(_place(parts) == _place(site) for parts in self.about["sites"].values())


def differences(was: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The parts of two JSON-able values that differ: their names with dots, then and now."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted({*was, *now}):
            yield from differences(was.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif was != now:
        yield name, was, now


def _jsoned(value: object) -> Any:
    return json.loads(json.dumps(value))


def _place(parts: Mapping[str, Any]) -> tuple[Any, ...]:
    """Module, qualified name and offset of a site."""
    module, name, _, offset = parts["region"][:4]
    return module, name, offset


def _telling(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, before, after in differences(was, _jsoned(now)):
        if name in ("region", "code"):
            yield "its code was edited, or it is called otherwise" if name == "region" else _code_text(before, after)
        else:
            yield f"{name} was {before!r}, is {after!r}"
    yield "it was compiled for the same; the file is incomplete"


def _code_text(before: Any, after: Any) -> str:
    if before and after and before[:2] == after[:2]:
        return f"the code of {'.'.join(after[:2])} was edited"
    return f"it was compiled for {'.'.join(before[:2]) or 'a function'}, and is called for {'.'.join(after[:2]) or 'a function'}"


def _process_text(was: Mapping[str, Any], now: Mapping[str, Any], names: tuple[str, ...]) -> str:
    told = []
    for name, before, after in differences({n: was.get(n) for n in names}, _jsoned({n: now.get(n) for n in names})):
        part = name.partition(".")[0]
        if part == "torchjit":  # a digest
            told.append(_FIXED[part])
        elif part == "machine":
            more, less = sorted({*after} - {*before}), sorted({*before} - {*after})
            told.append(
                f"{_FIXED[part]} (with {' '.join(more) or 'nothing more'}, without {' '.join(less) or 'nothing'})"
            )
        else:
            told.append(f"{name} was {before!r}, is {after!r}")
    return "; ".join(told[:_MOST])
