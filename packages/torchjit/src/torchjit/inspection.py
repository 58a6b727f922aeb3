"""`explain` and `stats`: recompiles and graph breaks as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, final

import attrs
import torch

from torchjit.compilation import Compilation
from torchjit.compiler import BAD_ARGUMENT, compilation_of, compile
from torchjit.cures import cures
from torchjit.exc import UserError
from torchjit.obstacles import Obstacle, by_line
from torchjit.recompiles import Recompile
from torchjit_core.location import CodeLocation
from torchjit_core.showing import shortened

__all__ = ["BreakInfo", "Explanation", "RegionInfo", "describe", "explain"]


@final
@attrs.frozen
class BreakInfo:
    """One graph break: its registered reason, what happened, and where.

    Attributes:
        hints: what to write instead, the best first.
        count: calls that met it.
        continuations: ids of the regions that go on after it, one for each of their specialisations.
    """

    reason_id: str
    headline: str
    detail: str
    hints: tuple[str, ...]
    location: CodeLocation | None
    count: int = 1
    continuations: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Id, headline and detail in one line."""
        return f"{self.reason_id}: {self.headline}" + (f": {self.detail}" if self.detail else "")

    def __str__(self) -> str:
        return f"{self.text}\n    {self.location.render()}".replace("\n", "\n    ") if self.location else self.text


@final
@attrs.frozen
class RegionInfo:
    """One specialisation of one region.

    Attributes:
        cause: "first call", or the guard that missed, as text; `recompile` is the same as data.
        seconds: wall time of capture and compilation.
        hits: calls that it served.
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


@final
@attrs.frozen
class Explanation:
    """What compiling did, and why.

    Attributes:
        regions: one per specialisation, in the order in which they were made.
    """

    regions: tuple[RegionInfo, ...]

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


def describe(compilation: Compilation) -> Explanation:
    """The state of a compilation as data."""
    ids = {site.region.key: tuple(s.compile_id for s in site.specializations) for site in compilation.sites}
    hits = {id(entry.data): entry.hits for site in compilation.sites for entry in site.door.entries()}
    return Explanation(
        tuple(
            RegionInfo(
                compile_id=s.compile_id,
                function=site.name,
                cause=s.cause,
                seconds=s.seconds,
                graphs=tuple(s.graphs),
                guards=tuple(shortened(str(guard)) for guard in s.guards),
                breaks=tuple(
                    BreakInfo(
                        b.reason.id,
                        b.reason.headline,
                        shortened(b.detail),
                        cures(b.reason, b.detail),
                        b.location,
                        max(hits.get(id(s), 0), 1),
                        tuple(name for key in s.continuations for name in ids.get(key, ())),
                    )
                    for b in s.breaks
                ),
                source=s.source,
                recompile=s.recompile,
                hits=hits.get(id(s), 0),
            )
            for site in compilation.sites
            for s in site.specializations
        )
    )


def explain(f: Any, *, dynamic: bool | None = None) -> Callable[..., Explanation]:
    """`explain(f)(*args)`: capture `f` on these arguments, run the graphs eagerly, and say what happened.

    Args:
        f: a function or module, compiled or not; what is already compiled is left alone.
        dynamic: as of `compile`: True makes every size symbolic from the first call, False never.

    Raises:
        UserError: a wrong value; the call raises what `compile` and the function raise.
    """
    found = compilation_of(f)
    original = f if found is None else getattr(f, "_torchjit_original", found.function)

    if dynamic not in (True, False, None):
        raise UserError(BAD_ARGUMENT, f"dynamic={dynamic!r}, want True, False or None")

    def run(*args: Any, **kwargs: Any) -> Explanation:
        compiled = compile(original, backend="eager", isolate_recompiles=True, dynamic=dynamic)
        compiled(*args, **kwargs)
        compilation = compilation_of(compiled)
        if compilation is None:
            # compile() returns its argument when it is disabled: there is nothing to tell.
            return Explanation(())
        return describe(compilation)

    return run
