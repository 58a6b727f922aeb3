"""Nodes to documents: sorted by depth, cycles cut, and those of a kind in batches, as columns of numbers. What may wait is a document of its own."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from torchjit_core.storing import NotStorable
from torchjit_store.document import FORMAT, NOT_STORABLE, Data, Document
from torchjit_store.nodes import ALWAYS_LATE, DEFERRED, LATE, Header, Node, shown_type, way_to

__all__ = ["laid_out"]


def laid_out(top: Node, blobs: Sequence[bytes]) -> Document:
    """Numbers for nodes, and batches of those alike: `[kind, header, count, raw data or 0, how many positions]`.

    The columns of children of all batches of a section follow each other in a blob. What only `Deferred` objects lead to has numbers behind all others, and batches of its own in the last of the blobs.
    """
    nodes = _ordered(top)
    _share_headers([node for node in nodes if node.kind not in _SHARED])
    _mark_read(top, nodes)
    now, deferred = _Section([n for n in nodes if n.read]), _Section([n for n in nodes if not n.read])
    deferred.number(now.number(0))
    kept = list(blobs)
    data = {"format": FORMAT, **now.data(kept), "root": top.index}
    if deferred.nodes:
        kept.append(json.dumps(deferred.data(kept), separators=(",", ":")).encode())
        data["deferred"] = len(kept) - 1
    return Document(data, tuple(kept))


@final
class _Section:
    """A part of the document that is read at once."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.atoms = [node for node in nodes if node.kind == "atom"]
        self.late = _batches([node for node in nodes if node.late], lambda node: LATE.index(node.kind))
        self.rest = _batches([n for n in nodes if not n.late and n.kind != "atom"], lambda node: node.level)

    def number(self, first: int) -> int:
        """Number the nodes in the order in which they are read; what follows the last number."""
        for batch in (self.atoms, *self.late, *self.rest):
            for node in batch:
                node.index = first
                first += 1
        return first

    def data(self, blobs: list[bytes]) -> dict[str, Data]:
        """The section, whose positions are a blob more; all nodes have numbers."""
        positions = array("I")
        data = {
            "atoms": [node.raw for node in self.atoms],
            "late": [_written(batch, positions) for batch in self.late],
            "batches": [_written(batch, positions) for batch in self.rest],
            "positions": len(blobs),
        }
        blobs.append(positions.tobytes())
        return data


_READ_AT_ONCE: Final = frozenset(
    {DEFERRED, "reference", "mro", "class attribute", "external", "made", "state", "generated"}
)
"""Kinds that ask what the program is like, or run code of torchjit's."""


def _mark_read(top: Node, nodes: list[Node]) -> None:
    """Set `read` of what is read at once: what the root leads to but for what is behind `Deferred` objects, and certain kinds."""
    pending = [top, *(node for node in nodes if node.kind in _READ_AT_ONCE)]
    for node in pending:
        node.read = True
    while pending:
        node = pending.pop()
        if node.kind != DEFERRED:
            for child in node.children:
                if not child.read:
                    child.read = True
                    pending.append(child)


_SHARED: Final = frozenset({"path", "atom", "location"})
"""Kinds whose headers are one object each as they are."""


def _share_headers(nodes: list[Node]) -> None:
    """Equal headers are one object: that is faster to compare."""
    shared: dict[Header, Header] = {}
    for node in nodes:
        if node.header:
            node.header = shared.setdefault(node.header, node.header)


def _batches(nodes: list[Node], rank: Callable[[Node], int]) -> list[list[Node]]:
    groups: dict[tuple[Any, ...], list[Node]] = {}
    for node in nodes:
        groups.setdefault((rank(node), node.kind, id(node.header), len(node.children)), []).append(node)
    return [groups[key] for key in sorted(groups, key=lambda key: key[0])]


def _written(batch: list[Node], positions: array[int]) -> Data:
    first = batch[0]
    if first.kind == DEFERRED:
        return [DEFERRED, [], len(batch), [node.children[0].index for node in batch], 0]
    raws = 0 if all(node.raw is None for node in batch) else [node.raw for node in batch]
    flat = [child.index for column in zip(*[node.children for node in batch], strict=True) for child in column]
    positions.extend(flat)
    return [first.kind, list(first.header), len(batch), raws, len(flat)]


def _ordered(top: Node) -> list[Node]:
    """Every node that can be reached, children before parents but for children that are `late`. Sets levels.

    Raises:
        NotStorable: a cycle in which nothing can be made empty.
    """
    while True:
        done = _sorted(top)
        if done is not None:
            return done


def _sorted(top: Node) -> list[Node] | None:
    """The order; None where a cycle had to be cut in its middle: the search begins again."""
    done: list[Node] = []
    roots = [top]
    seen: list[Node] = []
    while roots:
        root = roots.pop()
        if root.state:
            continue
        stack = [(root, iter(root.children))]
        root.state = 1
        seen.append(root)
        while stack:
            node, children = stack[-1]
            for child in children:
                if child.state == 2 or child.late:
                    if not child.state:
                        roots.append(child)
                    continue
                if child.kind in ALWAYS_LATE:
                    child.late = True
                    roots.append(child)
                    continue
                if child.state == 1:
                    if child.kind in LATE:
                        child.late = True
                        continue
                    _cut([n for n, _ in stack], child)
                    for other in seen:
                        other.state = 0
                    return None
                seen.append(child)
                if not child.children:
                    child.state = 2
                    done.append(child)
                    continue
                child.state = 1
                stack.append((child, iter(child.children)))
                break
            else:
                stack.pop()
                node.state = 2
                node.level = 1 + max([c.level for c in node.children if not c.late], default=-1)
                done.append(node)
    return done


def _cut(stack: list[Node], start: Node) -> None:
    """Make a node of the cycle, which is the end of the stack, late."""
    for node in reversed(stack[stack.index(start) :]):
        if node.kind in LATE:
            node.late = True
            return
    raise NotStorable(NOT_STORABLE, f"{way_to(start)}: an object that holds itself: {shown_type(start.obj)}")
