"""What is known of a compilation, put together: the data of `stats` and of `torchjit.explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from torchjit_core.location import CodeLocation
from torchjit_core.showing import shortened
from torchjit_report.cures import cures
from torchjit_session.call_chain import chain_of
from torchjit_session.explanation import Explanation
from torchjit_session.region_info import BreakInfo, GuardInfo, KernelInfo, PhaseInfo, RegionInfo, RegionNode, StoreInfo
from torchjit_session.site_facts import CompilationFacts, SiteFacts
from torchjit_session.specialization import Specialization
from torchjit_store.folder import EntryFolder
from torchjit_store.settings import StoreSettings

__all__ = ["describe"]


def describe(compilation: CompilationFacts) -> Explanation:
    """The state of a compilation as data."""
    sites = compilation.sites
    by_key = {site.region.key: site for site in sites}
    hits = {id(entry.data): entry.hits for site in sites for entry in site.door.entries()}
    regions = tuple(_region(site, s, hits.get(id(s), 0), by_key) for site in sites for s in site.specializations)
    return Explanation(regions, _tree(sites, regions), _store(compilation, regions))


def _store(compilation: CompilationFacts, regions: Sequence[RegionInfo]) -> StoreInfo | None:
    """What the store did; None where it is off, or nothing was tried."""
    settings = compilation.terms.host.store()
    misses = [
        (f"{site.name} ({_short(site.location)})" + f", {n} times" * (n > 1), why)
        for site in compilation.sites for why, n in site.misses_on_disk.items()
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


def _behind(made: Specialization, sites: Mapping[tuple[Any, ...], SiteFacts]) -> tuple[str, ...]:
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


def _region(site: SiteFacts, made: Specialization, hits: int, sites: Mapping[tuple[Any, ...], SiteFacts]) -> RegionInfo:
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
        compared=() if made.trials is None else made.trials.choices,
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


def _tree(found: Sequence[SiteFacts], regions: Iterable[RegionInfo]) -> tuple[RegionNode, ...]:
    """One tree for the function, and one for each function that Python called at a break."""
    made: dict[str, list[RegionInfo]] = {}
    for region in regions:
        made.setdefault(region.compile_id.partition("/")[0], []).append(region)
    by_key = {site.region.key: site for site in found}
    parents: dict[tuple[Any, ...], SiteFacts] = {}
    for site in found:
        for specialization in site.specializations:
            for key in specialization.continuations:
                if key in by_key and by_key[key] is not site:
                    parents.setdefault(key, site)
    children: dict[int, list[SiteFacts]] = {}
    roots = []
    for site in found:
        parent = parents.get(site.region.key) if site.region.offset is not None else None
        if parent is None or _leads_to(site, parent, parents):
            roots.append(site)
        else:
            children.setdefault(parent.number, []).append(site)
    return tuple(_node(site, children, made) for site in roots)


def _leads_to(start: SiteFacts, end: SiteFacts, parents: dict[tuple[Any, ...], SiteFacts]) -> bool:
    """Is `start` above `end`? Continuations of a loop go on with one another."""
    seen: set[int] = set()
    at: SiteFacts | None = end
    while at is not None and at.number not in seen:
        if at is start:
            return True
        seen.add(at.number)
        at = parents.get(at.region.key)
    return False


def _node(site: SiteFacts, children: dict[int, list[SiteFacts]], made: dict[str, list[RegionInfo]]) -> RegionNode:
    kind: Literal["function", "continuation", "call"] = (
        "continuation" if site.region.offset is not None else "call" if site.only_with_tensors else "function"
    )
    return RegionNode(
        site.name, kind, next((s.location for s in site.specializations if s.location), site.location),
        tuple(made.get(str(site.number), ())), tuple(_node(c, children, made) for c in children.get(site.number, ())),
    )  # fmt: skip
