"""What is known about one entry of a site."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, final

import attrs
import torch

from torchjit_core import events
from torchjit_core.guards import Guard
from torchjit_core.location import CodeLocation
from torchjit_report.recompiles import Recompile
from torchjit_session.counters import counters

if TYPE_CHECKING:
    import torchjit_vm
    from torchjit_guards.costs import GuardCosts
    from torchjit_session.eager_facts import EagerFacts
    from torchjit_session.trials import Trials

__all__ = ["Specialization"]


@final
@attrs.define(eq=False, repr=False)
class Specialization:
    """What is known about one entry of a site, for `stats`, `explain` and the report.

    Attributes:
        compile_id: such as `0/1`: site and specialisation.
        cause: "first call", or the guard that missed.
        guards: what it relies on; given as a function, of an entry that was loaded, it is found out when somebody asks.
        graphs: the captured graphs (one, or none).
        breaks: how the region ended, if not by returning.
        source: the emitted code.
        seconds: wall time of capture and compilation.
        recompile: the guard that missed, as data; None for the first call.
        settings: of the process, at that time.
        lender: the compilation whose continuations it goes on in, if another one has made it.
        forced: the backend that the stance forced, if it did.
        used_up: it was for one call.
        continuations: keys of the regions that it goes on with.
        notes: phases and kernels of its compilation, as events.
        costs: of its guards, if they were measured.
        location: for a module, the first line of its `forward`.
        filename, lineno: where the code starts; of a module, its `forward`.
        ranges: of the profiler, by `record_function` in the region.
        symbols: how many sizes and numbers vary.
        texts: of one that was loaded from disk, the code of the graphs, which are not there; a function, as `guards`.
        loaded_ops: of such a one, how many calls are in them.
        unstored: what is left to do to store it on disk.
        eager_facts: of its graphs, of one that was loaded from disk.
        trials: of it and of eager code, if there are any.
        storage: what became of it there: "loaded", "stored", "not stored: " and why; "" where nothing was tried.
    """

    compile_id: str
    cause: str
    recompile: Recompile | None = None
    _guards: tuple[Guard, ...] | Callable[[], tuple[Guard, ...]] = ()
    graphs: list[torch.fx.GraphModule] = attrs.field(factory=list)
    breaks: tuple[Any, ...] = ()
    source: str = ""
    seconds: float = 0.0
    settings: object = None
    lender: object = None
    forced: Any = None
    used_up: bool = False
    continuations: tuple[tuple[Any, ...], ...] = ()
    notes: events.Notes = attrs.field(init=False)
    costs: GuardCosts | None = None
    location: CodeLocation | None = None
    filename: str = ""
    lineno: int = 0
    ranges: tuple[str, ...] = ()
    symbols: int = 0
    _texts: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    loaded_ops: int = 0
    unstored: object = None
    eager_facts: EagerFacts | None = None
    trials: Trials | None = None
    storage: str = ""

    def __attrs_post_init__(self) -> None:
        self.notes = events.Notes(self.compile_id)

    @property
    def guards(self) -> tuple[Guard, ...]:
        return self._guards() if callable(self._guards) else self._guards

    @property
    def texts(self) -> tuple[str, ...]:
        return self._texts() if callable(self._texts) else self._texts

    @property
    def op_count(self) -> int:
        """Calls in the graphs."""
        return self.loaded_ops + sum(1 for g in self.graphs for n in g.graph.nodes if n.op.startswith("call_"))

    def take(self, captured: torchjit_vm.Captured, ranges: Iterable[str], guards: tuple[Guard, ...]) -> None:
        """Note, and count, what a capture gave.

        Args:
            captured: of the VM.
            ranges: see `ranges`.
            guards: all that it relies on.
        """
        self.breaks, self.source, self._guards, self.ranges = captured.breaks, captured.source, guards, tuple(ranges)
        self.continuations = tuple(region.key for region in captured.continuations)
        counters["stats"]["unique_graphs"] += len(self.graphs)
        for record in captured.breaks:
            counters["graph_break"][record.reason.headline] += 1
