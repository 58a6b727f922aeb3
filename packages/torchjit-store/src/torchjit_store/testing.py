"""For tests: references by position in a list, and no external objects."""

from __future__ import annotations

import json
from typing import Any

from torchjit_core.storing import NotStorable
from torchjit_store.document import NOT_STORABLE
from torchjit_store.forms import Document, decode, encode

__all__ = ["NoExternals", "Table", "again"]


class Table:
    """Gives every object back that it was asked about, but those that it refuses."""

    def __init__(self, *refused: object) -> None:
        self.objects: list[object] = []
        self.refused = refused

    def reference(self, obj: object) -> int:
        if any(obj is other for other in self.refused):
            raise NotStorable(NOT_STORABLE, "refused")
        if not any(obj is other for other in self.objects):
            self.objects.append(obj)
        return next(i for i, other in enumerate(self.objects) if other is obj)

    def find(self, data: Any) -> object:
        return self.objects[data]

    def moved(self, filename: str, line: int) -> tuple[str, int]:
        return filename, line


class NoExternals:
    """None."""

    def name(self, obj: object) -> None:
        return None

    def build(self, tag: str, payload: object) -> object:
        raise KeyError(tag)


def again(root: object, table: Table | None = None) -> Any:
    """What comes back, by way of text."""
    table = table or Table()
    document = encode(root, table, NoExternals())
    return decode(Document(json.loads(json.dumps(document.data)), document.blobs), table, NoExternals())
