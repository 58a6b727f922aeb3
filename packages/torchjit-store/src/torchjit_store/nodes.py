"""Objects of a graph that is being written, and the way from the root to each of them."""

from __future__ import annotations

from types import CellType, FunctionType
from typing import Any, Final, TypeAlias, final

from torchjit_store import ours
from torchjit_store.document import Data
from torchjit_store.shapes import class_shape

__all__ = ["ALWAYS_LATE", "DEFERRED", "LATE", "NO_HEADER", "ROOT", "Header", "Node", "shown_type", "way_to"]

LATE: Final = ("cell", "globals", "instance", "list", "set", "dict", "ordered", "deque", "state")
"""Kinds whose objects can be made empty and filled at the end, in the order in which they are."""
ALWAYS_LATE: Final = frozenset({"cell", "globals"})
DEFERRED: Final = "deferred"
"""The kind of `Deferred` objects, whose child is read when it is asked for."""

Header: TypeAlias = "tuple[Data, ...]"
NO_HEADER: Final[Header] = ()


@final
class Node:
    """One object. `children` are nodes; `raw` is JSON-able. `parent` is whose child it was first."""

    __slots__ = ("children", "header", "index", "kind", "late", "level", "obj", "parent", "raw", "read", "state")

    def __init__(self, obj: object, parent: Node | None) -> None:
        self.obj, self.parent = obj, parent
        self.kind = ""
        self.header: Header = ()
        self.children: list[Node] = []
        self.raw: Data = None
        self.level = self.index = self.state = 0
        self.late = self.read = False

    def become(self, kind: str, header: Header = (), children: list[Node] | None = None, raw: Data = None) -> None:
        self.kind, self.header, self.raw = kind, header, raw
        self.children = [] if children is None else children


def shown_type(obj: object) -> str:
    """A type, as details name it."""
    cls = type(obj)
    return f"{cls.__module__}.{cls.__qualname__}"


ROOT: Final = "entry"


def way_to(node: Node) -> str:
    """How to come from the root to a node."""
    steps: list[str] = []
    while node.parent is not None:
        steps.append(_step(node.parent, node))
        node = node.parent
    return ROOT + "".join(reversed(steps))


def _step(parent: Node, child: Node) -> str:
    obj: Any = parent.obj
    if isinstance(obj, FunctionType):
        closure = zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True)
        name = next((n for n, cell in closure if cell is child.obj), None)
        return f".closure[{name}]" if name else ".__globals__" if child.obj is obj.__globals__ else ".(function)"
    if isinstance(obj, CellType):
        return ""
    if isinstance(obj, dict):
        return next((f"[{key!r}]" for key, value in list(obj.items()) if value is child.obj), "[...]")
    if isinstance(obj, list | tuple):
        return next((f"[{i}]" for i, value in enumerate(obj) if value is child.obj), "[...]")
    cls: Any = type(obj)
    shape = class_shape(cls) if ours.is_ours(cls.__module__) else None
    if shape is not None:
        names, values = shape.state(obj)
        return next((f".{n}" for n, value in zip(names, values, strict=True) if value is child.obj), ".(state)")
    return f".({type(obj).__name__})"
