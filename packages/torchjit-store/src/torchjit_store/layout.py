"""Nodes to documents: sorted by depth, cycles cut, and those of a kind in batches, as columns of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from torchjit_core.storing import NotStorable
from torchjit_store.document import FORMAT, NOT_STORABLE, Data, Document
from torchjit_store.nodes import ALWAYS_LATE, LATE, Header, Node, shown_type, way_to

__all__ = ["laid_out"]


def laid_out(top: Node, blobs: Sequence[bytes]) -> Document:
    """Numbers for nodes, and batches of those alike: `[kind, header, count, raw data or 0, columns of children in one list]`."""
    nodes = _ordered(top)
    _share_headers([node for node in nodes if node.kind not in _SHARED])
    atoms = [node for node in nodes if node.kind == "atom"]
    late = _batches([node for node in nodes if node.late], lambda node: LATE.index(node.kind))
    rest = _batches([n for n in nodes if not n.late and n.kind != "atom"], lambda node: node.level)
    index = 0
    for batch in (atoms, *late, *rest):
        for node in batch:
            node.index = index
            index += 1
    data = {
        "format": FORMAT,
        "atoms": [node.raw for node in atoms],
        "late": [_written(batch) for batch in late],
        "batches": [_written(batch) for batch in rest],
        "root": top.index,
    }
    return Document(data, tuple(blobs))


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


def _written(batch: list[Node]) -> Data:
    first = batch[0]
    raws = 0 if all(node.raw is None for node in batch) else [node.raw for node in batch]
    flat = [child.index for column in zip(*[node.children for node in batch], strict=True) for child in column]
    return [first.kind, list(first.header), len(batch), raws, flat]


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
