"""Regions as a tree: a function, what it goes on with after each break, and what Python calls in between."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, final

import attrs

from torchjit_core.location import CodeLocation

if TYPE_CHECKING:
    from torchjit_session.inspection import RegionInfo
    from torchjit_session.site import Site

__all__ = ["RegionNode", "tree_of"]


@final
@attrs.frozen
class RegionNode:
    """A place where compiled code starts.

    Attributes:
        kind: a `function` that was given to `compile`, a `continuation` behind a graph break, or a `call` that Python makes at one.
        location: its first line.
        specializations: what was made for it.
        children: continuations of its breaks, in the order in which they were met.
    """

    function: str
    kind: Literal["function", "continuation", "call"]
    location: CodeLocation
    specializations: tuple[RegionInfo, ...]
    children: tuple[RegionNode, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        calls = sum(s.hits for s in self.specializations)
        seconds = sum(s.seconds for s in self.specializations)
        count = len(self.specializations)
        lines = [
            f"{self.function}: {count} specialisation{'s' * (count != 1)}, {calls} call{'s' * (calls != 1)}, {seconds:.3f} s"
        ]
        for made in self.specializations:
            lines += [f"  break at line {b.location.lineno}: {b.headline}" for b in made.breaks if b.location]
        for child in self.children:
            lines += [f"  {line}" for line in child._lines()]
        return lines


def tree_of(sites: Iterable[Site], regions: Iterable[RegionInfo]) -> tuple[RegionNode, ...]:
    """One tree for the function, and one for each function that Python called at a break."""
    found = list(sites)
    made: dict[str, list[RegionInfo]] = {}
    for region in regions:
        made.setdefault(region.compile_id.partition("/")[0], []).append(region)
    by_key = {site.region.key: site for site in found}
    parents: dict[tuple[Any, ...], Site] = {}
    for site in found:
        for specialization in site.specializations:
            for key in specialization.continuations:
                if key in by_key and by_key[key] is not site:
                    parents.setdefault(key, site)
    children: dict[int, list[Site]] = {}
    roots = []
    for site in found:
        parent = parents.get(site.region.key) if site.region.offset is not None else None
        if parent is None or _leads_to(site, parent, parents):
            roots.append(site)
        else:
            children.setdefault(parent.number, []).append(site)
    return tuple(_node(site, children, made) for site in roots)


def _leads_to(start: Site, end: Site, parents: dict[tuple[Any, ...], Site]) -> bool:
    """Is `start` above `end`? Continuations of a loop go on with one another."""
    seen: set[int] = set()
    at: Site | None = end
    while at is not None and at.number not in seen:
        if at is start:
            return True
        seen.add(at.number)
        at = parents.get(at.region.key)
    return False


def _node(site: Site, children: dict[int, list[Site]], made: dict[str, list[RegionInfo]]) -> RegionNode:
    kind: Literal["function", "continuation", "call"] = (
        "continuation" if site.region.offset is not None else "call" if site.only_with_tensors else "function"
    )
    return RegionNode(
        site.name, kind, next((s.location for s in site.specializations if s.location), site.location),
        tuple(made.get(str(site.number), ())), tuple(_node(c, children, made) for c in children.get(site.number, ())),
    )  # fmt: skip
