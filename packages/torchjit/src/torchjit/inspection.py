"""`explain` and `stats`: recompiles and graph breaks as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import attrs
import torch

from torchjit.compilation import Compilation
from torchjit.compiler import compilation_of, compile
from torchjit.recompiles import Recompile
from torchjit_core.location import CodeLocation

__all__ = ["BreakInfo", "Explanation", "RegionInfo", "describe", "explain"]


@final
@attrs.frozen
class BreakInfo:
    """One graph break: its registered reason, what happened, and where."""

    reason_id: str
    headline: str
    detail: str
    hints: tuple[str, ...]
    location: CodeLocation | None

    def __str__(self) -> str:
        text = f"{self.reason_id}: {self.headline}" + (f": {self.detail}" if self.detail else "")
        return f"{text}\n    {self.location.render()}".replace("\n", "\n    ") if self.location else text


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
        lines += [f"Recompile {number}: {r}" for number, r in enumerate(self.recompiles, 1)]
        for number, info in enumerate(self.breaks, 1):
            lines.append(f"Break {number}: {info}")
            lines += [f"    hint: {hint}" for hint in info.hints]
        return "\n".join(lines)


def describe(compilation: Compilation) -> Explanation:
    """The state of a compilation as data."""
    return Explanation(
        tuple(
            RegionInfo(
                compile_id=s.compile_id,
                function=site.name,
                cause=s.cause,
                seconds=s.seconds,
                graphs=tuple(s.graphs),
                guards=tuple(map(str, s.guards)),
                breaks=tuple(
                    BreakInfo(b.reason.id, b.reason.headline, b.detail, b.reason.hints, b.location) for b in s.breaks
                ),
                source=s.source,
                recompile=s.recompile,
                hits=sum(e.hits for e in site.door.entries() if e.data is s),
            )
            for site in compilation.sites
            for s in site.specializations
        )
    )


def explain(f: Any) -> Callable[..., Explanation]:
    """`explain(f)(*args)`: capture `f` on these arguments, run the graphs eagerly, and say what happened.

    Args:
        f: a function or module, compiled or not; what is already compiled is left alone.
    """
    found = compilation_of(f)
    original = f if found is None else getattr(f, "_torchjit_original", found.function)

    def run(*args: Any, **kwargs: Any) -> Explanation:
        compiled = compile(original, backend="eager", isolate_recompiles=True)
        compiled(*args, **kwargs)
        compilation = compilation_of(compiled)
        if compilation is None:
            # compile() returns its argument when it is disabled: there is nothing to tell.
            return Explanation(())
        return describe(compilation)

    return run
