"""The objects that an entry refers to, in another process: found and verified before anything of the entry is used."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NoReturn, final

from torchjit_core.storing import NotStorable
from torchjit_store.fingerprints import describe
from torchjit_store.ours import resolve
from torchjit_store.reached import reach_digest
from torchjit_store.stale import Stale
from torchjit_store.steps import follow
from torchjit_store.table import MISSED, REGISTRIES, Data, digest, label, leads, registered

__all__ = ["Finder", "Stale"]


@final
class Finder:
    """The objects of a table in this process, all of them found and verified.

    Args:
        table: from `Origins.table`.
        roots: as for `Origins`, of this process.

    Raises:
        Stale: one is not there, or is not what it was.
    """

    def __init__(self, table: Data, roots: Iterable[object] = ()) -> None:
        self._rows = table["rows"]
        self._roots = tuple(roots)
        self._objects: list[Any] = []
        texts = []
        for row, (step, parent, key, fingerprint) in enumerate(self._rows):
            obj = self._found(row, step, parent, key)
            self._objects.append(obj)
            if fingerprint is not None:
                texts.append(_text_of(obj))
        if digest("\0\0".join(texts)) != table["digest"]:  # one digest for all: the others say which
            self._find_changed(texts)
        for row, step, key, part in table["parts"]:
            if not self._holds(self._objects[row], step, key, self._objects[part]):
                raise Stale(f"{label(self._rows, row)} changed")
        for row, reached in table["relied_on"]:
            if _reach_of(self._objects[row]) != reached:
                raise Stale(f"what {label(self._rows, row)} reaches changed")
        self._places = self._moves(table["places"])

    def find(self, data: Data) -> object:
        """The object of a reference.

        Raises:
            Stale: it is no reference of this table.
        """
        if type(data) is not int or not 0 <= data < len(self._objects):
            raise Stale("a reference without a row")
        return self._objects[data]

    def moved(self, filename: str, line: int) -> tuple[str, int]:
        """Where a place of the time of saving is now: functions move in files, and files move."""
        best: tuple[int, str, int] | None = None
        for first, last, now, shift in self._places.get(filename, ()):
            if first <= line <= last and (best is None or last - first < best[0]):
                best = last - first, now, shift
        return (filename, line) if best is None else (best[1], line + best[2])

    def forget_objects(self) -> None:
        """Keep none of them alive: from now on only `moved` answers."""
        self._rows, self._roots, self._objects = [], (), []

    def _found(self, row: int, step: str, parent: int | None, key: Any) -> Any:
        if step == "module":
            try:
                return sys.modules.get(key) or resolve(key, "")
            except LookupError:  # the program imports its own
                raise Stale(f"{key} is not imported") from None
        if step in REGISTRIES.values():
            return registered(step, key)
        if step == "method":
            return getattr(key[0], key[1])  # of a str or a number
        if step == "root":
            if key >= len(self._roots):
                raise Stale("other arguments")
            return self._roots[key]
        try:
            return follow(self._objects[parent], step, key)  # type: ignore[index]  # only roots and modules have no parent
        except MISSED:
            raise Stale(f"{label(self._rows, row)} is gone") from None

    def _find_changed(self, texts: list[str]) -> NoReturn:
        now = iter(texts)
        for row, (_, _, _, fingerprint) in enumerate(self._rows):
            if fingerprint is not None and digest(next(now)) != fingerprint:
                raise Stale(f"{label(self._rows, row)} changed")
        raise Stale("a table that does not agree with itself")

    def _holds(self, obj: Any, step: str, key: Any, part: Any) -> bool:
        if step == "member":
            return type(obj) is frozenset and any(member is part for member in obj)
        return leads(obj, step, key, part)

    def _moves(self, places: list[list[Any]]) -> dict[str, list[tuple[int, int, str, int]]]:
        moves: dict[str, list[tuple[int, int, str, int]]] = {}
        for row, filename, first, last in places:
            code = self._objects[row]
            moves.setdefault(filename, []).append((first, last, code.co_filename, code.co_firstlineno - first))
        return moves


def _reach_of(obj: Any) -> str:
    try:
        return reach_digest(obj)
    except NotStorable:
        return ""


def _text_of(obj: Any) -> str:
    try:
        return describe(obj).text
    except NotStorable:
        return "opaque"
