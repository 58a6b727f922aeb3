"""`stats`: regions, recompiles and graph breaks as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import attrs
import torch

from torchjit_core.location import CodeLocation
from torchjit_core.node_notes import values_of
from torchjit_core.showing import shortened
from torchjit_report.cures import cures
from torchjit_report.recompiles import Recompile
from torchjit_session.call_chain import CallSite, chain_of, shown_calls
from torchjit_session.compilation import Compilation
from torchjit_session.obstacles import Obstacle, by_line
from torchjit_session.region_tree import RegionNode, tree_of
from torchjit_session.site import Site
from torchjit_session.specialization import Specialization

__all__ = ["BreakInfo", "Explanation", "GuardInfo", "KernelInfo", "PhaseInfo", "RegionInfo", "describe"]


@final
@attrs.frozen
class BreakInfo:
    """One graph break: its registered reason, what happened, and where.

    Attributes:
        hints: what to write instead, the best first.
        count: calls that met it.
        continuations: ids of the regions that go on after it up to the next break, one for each of their specialisations.
        calls: the lines of the program that lead to it, outermost first, with the modules on which these calls are made.
    """

    reason_id: str
    headline: str
    detail: str
    hints: tuple[str, ...]
    location: CodeLocation | None
    count: int = 1
    continuations: tuple[str, ...] = ()
    calls: tuple[CallSite, ...] = ()

    @property
    def text(self) -> str:
        """Id, headline and detail in one line."""
        return f"{self.reason_id}: {self.headline}" + (f": {self.detail}" if self.detail else "")

    def __str__(self) -> str:
        return "\n    ".join([self.text, *shown_calls(self.calls, self.location)])


@final
@attrs.frozen
class GuardInfo:
    """A guard.

    Attributes:
        location: the line that relies on it, if one does.
        seconds: of one test of it alone, if that was measured: `explain` does, and calls in `with f.compiled.measuring_guards():`.
    """

    text: str
    location: CodeLocation | None
    seconds: float | None


@final
@attrs.frozen
class KernelInfo:
    """A generated kernel. `origins`: the operators that it computes, with their lines."""

    name: str
    language: str
    graph: str
    origins: tuple[str, ...]


@final
@attrs.frozen
class PhaseInfo:
    """A stretch of compile time.

    Attributes:
        seconds: wall time.
        self_seconds: of that, what no inner phase accounts for.
    """

    name: str
    seconds: float
    self_seconds: float
    phases: tuple[PhaseInfo, ...] = ()


@final
@attrs.frozen
class RegionInfo:
    """One specialisation of one region.

    Attributes:
        cause: "first call", or the guard that missed, as text; `recompile` is the same as data.
        seconds: wall time of capture and compilation.
        hits: calls that it served.
        location: the first line of the function, or the line where a continuation begins.
        checks: its guards, with their lines and what they cost.
        guard_seconds: of one test of all guards, if that was measured.
        kernels: what was generated for it, also for backwards that were compiled later.
        phases: where the time of its compilation went.
    """

    compile_id: str
    function: str
    cause: str
    seconds: float
    graphs: tuple[torch.fx.GraphModule, ...]
    guards: tuple[str, ...]
    breaks: tuple[BreakInfo, ...]
    source: str
    recompile: Recompile | None = None
    hits: int = 0
    location: CodeLocation | None = None
    checks: tuple[GuardInfo, ...] = ()
    guard_seconds: float | None = None
    kernels: tuple[KernelInfo, ...] = ()
    phases: tuple[PhaseInfo, ...] = ()


@final
@attrs.frozen
class Explanation:
    """What compiling did, and why.

    Attributes:
        regions: one per specialisation, in the order in which they were made.
        tree: the same by the place where they start: the function, what goes on after its breaks, and after theirs.
    """

    regions: tuple[RegionInfo, ...]
    tree: tuple[RegionNode, ...] = ()

    @property
    def graphs(self) -> tuple[torch.fx.GraphModule, ...]:
        """All captured graphs."""
        return tuple(g for r in self.regions for g in r.graphs)

    @property
    def graph_count(self) -> int:
        """How many graphs were captured."""
        return len(self.graphs)

    @property
    def breaks(self) -> tuple[BreakInfo, ...]:
        """Every graph break."""
        return tuple(b for r in self.regions for b in r.breaks)

    @property
    def graph_break_count(self) -> int:
        """How many graph breaks were met (a branch on a tensor is one, with two continuations)."""
        return len(self.breaks)

    @property
    def recompiles(self) -> tuple[Recompile, ...]:
        """Every miss that led to another specialisation: guard, value now and then, line, advice."""
        return tuple(r.recompile for r in self.regions if r.recompile is not None)

    @property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """Breaks and recompiles by source line, the line that costs most time first."""
        return by_line(self.regions)

    @property
    def op_count(self) -> int:
        """Calls in all graphs."""
        return sum(n.op.startswith("call_") for g in self.graphs for n in g.graph.nodes)

    @property
    def compile_seconds(self) -> float:
        """Wall seconds of all specialisations. A continuation is compiled when it is reached, so they do not overlap."""
        return sum(r.seconds for r in self.regions)

    def as_dict(self) -> dict[str, Any]:
        """Everything as dicts, lists, texts and numbers, for `json.dumps`. Graphs are their code, with the values of their nodes."""
        made: dict[str, Any] = attrs.asdict(self, filter=lambda field, _: field.name != "tree", value_serializer=_plain)
        made["tree"] = [_names_of_tree(node) for node in self.tree]
        made["obstacles"] = [attrs.asdict(obstacle) | {"seconds": obstacle.seconds} for obstacle in self.obstacles]
        return made

    def __str__(self) -> str:
        lines = [
            f"Graphs: {self.graph_count}   Graph breaks: {self.graph_break_count}   Ops: {self.op_count}   "
            f"Specialisations: {len(self.regions)}   Compile time: {self.compile_seconds:.3f} s"
        ]
        for region in sorted(self.regions, key=lambda r: -r.seconds):
            lines.append(
                f"[{region.compile_id}] {region.function}: {region.seconds:.3f} s, "
                f"{len(region.guards)} guards ({region.cause})"
            )
        number: Counter[str] = Counter()
        for obstacle in self.obstacles:
            number[obstacle.kind] += 1
            lines.append(f"{obstacle.kind} {number[obstacle.kind]}: {obstacle}")
        return "\n".join(lines)


def _plain(_: Any, __: Any, value: Any) -> Any:
    if isinstance(value, torch.fx.GraphModule):
        nodes = value.graph.nodes
        return {"code": value.code.strip(), "nodes": len(nodes), "values": values_of(nodes)}
    return value


def _names_of_tree(node: RegionNode) -> dict[str, Any]:
    return {
        "function": node.function,
        "kind": node.kind,
        "location": attrs.asdict(node.location),
        "specializations": [made.compile_id for made in node.specializations],
        "children": [_names_of_tree(child) for child in node.children],
    }


def describe(compilation: Compilation) -> Explanation:
    """The state of a compilation as data."""
    sites = compilation.sites
    by_key = {site.region.key: site for site in sites}
    hits = {id(entry.data): entry.hits for site in sites for entry in site.door.entries()}
    regions = tuple(_region(site, s, hits.get(id(s), 0), by_key) for site in sites for s in site.specializations)
    return Explanation(regions, tree_of(sites, regions))


def _behind(made: Specialization, sites: Mapping[tuple[Any, ...], Site]) -> tuple[str, ...]:
    """Of the regions that it goes on with, and with which these go on if they end without a break, as at the head of a loop."""
    names: dict[str, None] = {}
    todo = list(made.continuations)
    for key in todo:
        site = sites.get(key)
        for one in site.specializations if site is not None else ():
            if one.compile_id not in names:
                names[one.compile_id] = None
                todo += () if one.breaks else one.continuations
    return tuple(names)


def _region(site: Site, made: Specialization, hits: int, sites: Mapping[tuple[Any, ...], Site]) -> RegionInfo:
    guards = tuple(shortened(str(guard)) for guard in made.guards)
    seconds: Sequence[float | None] = [None] * len(guards) if made.costs is None else made.costs.each
    follow = _behind(made, sites)
    kernels = (fields for kind, fields in made.notes.items if kind == "kernel")
    return RegionInfo(
        compile_id=made.compile_id,
        function=site.name,
        cause=made.cause,
        seconds=made.seconds,
        graphs=tuple(made.graphs),
        guards=guards,
        breaks=tuple(
            BreakInfo(
                b.reason.id, b.reason.headline, shortened(b.detail), cures(b.reason, b.detail), b.location,
                max(hits, 1), follow, chain_of(b, site.callers),
            )
            for b in made.breaks
        ),
        source=made.source,
        recompile=made.recompile,
        hits=hits,
        location=made.location or site.location,
        checks=tuple(
            GuardInfo(text, getattr(guard, "location", None), spent)
            for text, guard, spent in zip(guards, made.guards, seconds, strict=True)
        ),
        guard_seconds=None if made.costs is None else made.costs.all,
        kernels=tuple(KernelInfo(f["name"], f["language"], f["graph"], tuple(f["origins"])) for f in kernels),
        phases=_phases(made),
    )  # fmt: skip


def _phases(made: Specialization) -> tuple[PhaseInfo, ...]:
    """What was noted, one inside of another. A backward that was compiled later comes after the rest."""
    # Imported here: who asks for nothing pays nothing for it.
    from torchjit_report.model import Phase  # noqa: PLC0415
    from torchjit_report.phases import Node, tree  # noqa: PLC0415

    def told(nodes: Iterable[Node]) -> tuple[PhaseInfo, ...]:
        return tuple(PhaseInfo(n.name, n.seconds, n.own, told(n.children)) for n in nodes)

    noted = [Phase(f["name"], f["seconds"], f["end"]) for kind, f in made.notes.items if kind == "phase"]
    return told(tree(noted, made.seconds))
