"""What compiling did, and why, as data and as text: `Explanation`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, final

import attrs
import torch

from torchjit_core.node_notes import values_of
from torchjit_report.recompiles import Recompile
from torchjit_session.obstacles import Obstacle, by_line
from torchjit_session.region_info import BreakInfo, RegionInfo, RegionNode, StoreInfo

__all__ = ["Explanation", "counts_text", "obstacle_texts"]


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
    def kept_eager(self) -> tuple[RegionInfo, ...]:
        """Regions with calls that run as eager code because that was faster, if only those of some sizes, and continuations of such functions."""
        found = {region.compile_id: region for region in self.regions if _runs_eagerly(region)}
        for node in self.tree:
            found.update((region.compile_id, region) for region in _behind_eager(node))
        return tuple(found.values())

    @property
    def compile_seconds(self) -> float:
        """Wall seconds of all specialisations. A continuation is compiled when it is reached, so they do not overlap."""
        return sum(r.seconds for r in self.regions)

    def as_dict(self) -> dict[str, Any]:
        """Everything as dicts, lists, texts and numbers, for `json.dumps`. Graphs are their code, with the values of their nodes."""
        made: dict[str, Any] = attrs.asdict(self, filter=lambda field, _: field.name != "tree", value_serializer=_plain)
        made["tree"] = [_names_of_tree(node) for node in self.tree]
        made["kept_eager"] = [region.compile_id for region in self.kept_eager]
        made["obstacles"] = [attrs.asdict(obstacle) | {"seconds": obstacle.seconds} for obstacle in self.obstacles]
        return made

    def __str__(self) -> str:
        lines = [
            f"Graphs: {self.graph_count}   Graph breaks: {self.graph_break_count}   Ops: {self.op_count}   "
            f"Specialisations: {len(self.regions)}   Compile time: {self.compile_seconds:.3f} s"
        ]
        if any(region.compared for region in self.regions):
            lines.append(self._share_kept_eager())
        for region in sorted(self.regions, key=lambda r: -r.seconds):
            lines.append(
                f"[{region.compile_id}] {region.function}: {region.seconds:.3f} s, "
                f"{len(region.guards)} guards ({region.cause})"
            )
            lines += [f"    {choice}" for choice in region.compared]
        if self.store is not None:
            lines += str(self.store).splitlines()
        number: Counter[str] = Counter()
        for obstacle in self.obstacles:
            number[obstacle.kind] += 1
            lines.append(f"{obstacle.kind} {number[obstacle.kind]}: {obstacle}")
        return "\n".join(lines)

    def _share_kept_eager(self) -> str:
        kept, ops = self.kept_eager, self.op_count
        own = sum(region.op_count for region in kept)
        partly = sum(any(choice.kept != "eager" for choice in region.compared) for region in kept)
        some = f" ({partly} in some sizes only)" if partly else ""
        return (
            f"Kept eager: {len(kept)} of {len(self.regions)} regions{some}, {own} of {ops} operators "
            f"({own / max(ops, 1):.1%})"
        )


def _runs_eagerly(region: RegionInfo) -> bool:
    return any(choice.kept == "eager" for choice in region.compared)


def _behind_eager(node: RegionNode, eager: bool = False) -> Iterator[RegionInfo]:
    """The continuations of functions that run as eager code: nothing calls them any more."""
    if eager:
        yield from node.specializations
    eager = eager or (bool(node.specializations) and all(map(_runs_eagerly, node.specializations)))
    for child in node.children:
        yield from _behind_eager(child, eager and child.kind == "continuation")


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
