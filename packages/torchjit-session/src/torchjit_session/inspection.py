"""`stats`: regions, recompiles and graph breaks as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, final

import attrs
import torch

from torchjit_core.location import CodeLocation
from torchjit_core.node_notes import values_of
from torchjit_core.showing import shortened
from torchjit_report.cures import cures
from torchjit_report.recompiles import Recompile
from torchjit_session.call_chain import chain_of
from torchjit_session.callables import compilation_of
from torchjit_session.compilation import Compilation
from torchjit_session.obstacles import Obstacle, by_line
from torchjit_session.region_info import BreakInfo, GuardInfo, KernelInfo, PhaseInfo, RegionInfo, RegionNode, StoreInfo
from torchjit_session.site import Site
from torchjit_session.specialization import Specialization
from torchjit_store.folder import EntryFolder
from torchjit_store.settings import StoreSettings

__all__ = [
    "BreakInfo", "Explanation", "GuardInfo", "KernelInfo", "PhaseInfo", "RegionInfo", "StoreInfo", "counts_text", "describe", "obstacle_texts", "stats_of",
]  # fmt: skip


@final
@attrs.frozen
class Explanation:
    """What compiling did, and why.

    Attributes:
        regions: one per specialisation, in the order in which they were made.
        tree: the same by the place where they start: the function, what goes on after its breaks, and after theirs.
        store: what became of them on disk; None where nothing is kept there.
    """

    regions: tuple[RegionInfo, ...]
    tree: tuple[RegionNode, ...] = ()
    store: StoreInfo | None = None

    @property
    def graphs(self) -> tuple[torch.fx.GraphModule, ...]:
        """All captured graphs."""
        return tuple(g for r in self.regions for g in r.graphs)

    @property
    def graph_count(self) -> int:
        """How many graphs were captured."""
        return len(self.graphs) + sum(len(r.texts) for r in self.regions)

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
        return sum(r.op_count for r in self.regions)

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
            if region.compared is not None:
                lines.append(f"    {region.compared}")
        if self.store is not None:
            lines += str(self.store).splitlines()
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
    return Explanation(regions, _tree(sites, regions), _store(compilation, regions))


def _store(compilation: Compilation, regions: Sequence[RegionInfo]) -> StoreInfo | None:
    """What the store did; None where it is off, or nothing was tried."""
    settings = compilation.terms.host.store()
    misses = [
        (f"{site.name} ({_short(site.location)})" + f", {n} times" * (n > 1), why)
        for site in compilation.sites if site.shelf is not None for why, n in site.shelf.missed.items()
    ]  # fmt: skip
    if not settings.reads or not (misses or any(region.storage for region in regions)):
        return None
    number = Counter(region.storage.partition(":")[0] for region in regions)
    refused: dict[str, list[str]] = {}
    for region in regions:
        kind, _, why = region.storage.partition(": ")
        if kind == "not stored":
            refused.setdefault(why, []).append(f"{region.function} ({_short(region.location)})")
    return StoreInfo(
        _folder_of(settings), number["loaded"], number["stored"], number["not stored yet"],
        tuple((why, tuple(dict.fromkeys(where))) for why, where in refused.items()), tuple(misses),
    )  # fmt: skip


def _folder_of(settings: StoreSettings) -> str:
    try:
        return str(EntryFolder(settings.cache_dir).root)
    except OSError as error:  # nobody knows where this user's home is
        return str(error)


def _short(where: CodeLocation | None) -> str:
    return "?" if where is None else f"{where.filename}:{where.lineno}"


def stats_of(compiled: Any) -> Explanation:
    """The state of the compilation behind something that `compile` returned, or of a module's own (`module.compile()`)."""
    found = compilation_of(compiled)
    if found is None and isinstance(compiled, torch.nn.Module):
        found = compilation_of(compiled.__dict__.get("_compiled_call_impl"))
    return Explanation(()) if found is None else describe(found)


def counts_text(told: Explanation) -> str:
    """How many graphs and breaks."""
    graphs, breaks = told.graph_count, told.graph_break_count
    return f"{graphs} graph{'s' * (graphs != 1)}, {breaks} break{'s' * (breaks != 1)}"


def obstacle_texts(told: Explanation, kind: str) -> str:
    """Line, reason and cure of each `Break` or `Recompile`, in the words of `torchjit.explain` without its times."""
    texts: list[str] = []
    for obstacle in told.obstacles:
        if obstacle.kind == kind:
            lines = [f"{kind} {len(texts) + 1}: {'; '.join(obstacle.texts)}"]
            lines += obstacle.location.render().splitlines() if obstacle.location else []
            lines += [f"{'hint' if kind == 'Break' else 'avoid it'}: {cure}" for cure in obstacle.cures]
            texts.append("\n" + "\n    ".join(lines))
    return "".join(texts)


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
        storage=made.storage,
        texts=made.texts,
        op_count=made.op_count,
        compared=None if made.trial is None else made.trial.choice,
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


def _tree(found: Sequence[Site], regions: Iterable[RegionInfo]) -> tuple[RegionNode, ...]:
    """One tree for the function, and one for each function that Python called at a break."""
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
