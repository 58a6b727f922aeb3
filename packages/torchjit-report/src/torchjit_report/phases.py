"""Compile time by phase: which phase ran inside of which, and how to draw it.

A `phase` event tells a name, a length and (by its time) an end. Phases nest, and an inner one ends before its outer
one; that is enough to find the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import attrs

from torchjit_report.model import Phase

__all__ = ["OTHER", "Node", "Row", "Segment", "flat", "rows", "segments", "tree"]

OTHER = "other"
"""Name of the part of a compilation that no phase covers."""


@final
@attrs.define
class Node:
    """A phase and the phases inside it. Phases of one name under one parent are added up."""

    name: str
    seconds: float
    children: list[Node] = attrs.field(factory=list)

    @property
    def own(self) -> float:
        """Seconds that no inner phase accounts for. Phases of several threads can overlap, so not below 0."""
        return max(0.0, self.seconds - sum(c.seconds for c in self.children))


@final
@attrs.frozen
class Segment:
    """A piece of a bar: `left` and `width` in percent, `level` from 0 (outermost)."""

    name: str
    seconds: float
    left: float
    width: float
    level: int


@final
@attrs.frozen
class Row:
    """A line of the table under the bar; `share` in percent."""

    name: str
    seconds: float
    share: float
    level: int


def tree(phases: Sequence[Phase], total: float) -> list[Node]:
    """The outermost phases, and `OTHER` if they leave more than 1 % of `total` seconds."""
    roots: list[tuple[float, Node]] = []  # (start, node)
    for phase in phases:
        start = phase.end - phase.seconds
        inside: list[Node] = []
        # An earlier phase lies inside this one if its middle does: clocks are read a little apart.
        while phase.end and roots and roots[-1][0] + roots[-1][1].seconds / 2 >= start:
            inside.append(roots.pop()[1])
        roots.append((start, Node(phase.name, phase.seconds, inside[::-1])))
    found = _merged([node for _, node in roots])
    rest = total - sum(node.seconds for node in found)
    return [*found, Node(OTHER, rest)] if found and rest > 0.01 * total else found


def _merged(nodes: Sequence[Node]) -> list[Node]:
    found: dict[str, Node] = {}
    for node in nodes:
        # A phase directly inside one of its own name is the same phase, told by two packages.
        children = [g for c in node.children for g in (c.children if c.name == node.name else [c])]
        known = found.setdefault(node.name, Node(node.name, 0.0))
        known.seconds += node.seconds
        known.children += children
    for node in found.values():
        node.children = _merged(node.children)
    return list(found.values())


def flat(nodes: Sequence[Node]) -> list[Node]:
    """Each name once, with the time of its own, without the tree; `OTHER` last."""
    own: dict[str, float] = {}
    work = list(nodes)
    while work:
        node = work.pop(0)
        own[node.name] = own.get(node.name, 0.0) + node.own
        work[:0] = node.children
    return sorted((Node(name, seconds) for name, seconds in own.items() if seconds), key=lambda n: n.name == OTHER)


def segments(nodes: Sequence[Node], whole: float) -> Iterator[Segment]:
    """The pieces of a bar with one row per level; inner phases lie under their outer one, from its left."""
    whole = max(whole, sum(n.seconds for n in nodes), 1e-9)  # a nanosecond: nothing to see, but no division by nothing
    return _segments(nodes, 100 / whole, 0.0, 0)


def _segments(nodes: Sequence[Node], scale: float, left: float, level: int) -> Iterator[Segment]:
    for node in nodes:
        yield Segment(node.name, node.seconds, left, node.seconds * scale, level)
        # Overlapping inner phases (of several threads) share the width of the outer one.
        inner = sum(c.seconds for c in node.children)
        yield from _segments(node.children, scale * min(1.0, node.seconds / inner) if inner else scale, left, level + 1)
        left += node.seconds * scale


def rows(nodes: Sequence[Node], whole: float, level: int = 0) -> Iterator[Row]:
    """The tree as table lines, longest first, `OTHER` last."""
    for node in sorted(nodes, key=lambda n: (n.name == OTHER, -n.seconds)):
        yield Row(node.name, node.seconds, min(100.0, 100 * node.seconds / whole) if whole else 0.0, level)
        yield from rows(node.children, whole, level + 1)
