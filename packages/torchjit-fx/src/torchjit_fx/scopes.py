"""Scopes: steps that become a graph of their own, which a node of the graph outside calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from torch import fx

from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.flatten import map_raw
from torchjit_fx.leaves import Raw, Step, StepScope, SymLeaf, TensorLeaf
from torchjit_fx.region import GraphWriter, live_steps
from torchjit_fx.versions import lazy_graph_module

__all__ = ["Scope", "scope_graph"]


@final
class Scope(StepScope):
    """The steps between `open` and `close`. What they change outside of themselves is undone at the end.

    Whoever closes a scope records the call of its graph, which is what changes things in the graph outside.

    Attributes:
        steps: what was recorded.
    """

    def __init__(self, domain: CallDomain, mark: int, sees: StepScope | None = None) -> None:
        recorder = domain.recorder
        if domain.modes.inference:
            recorder.place.must_be_inside("a graph of its own", None)
        super().__init__(recorder.scope, mark, sees)
        self.domain = domain
        self.steps: list[Step] = []
        self._outside = recorder.steps
        self._modes = domain.modes.snapshot()
        recorder.steps, recorder.scope = self.steps, self
        self.initial: Callable[[Any], Any] = lambda key: None

    def begin(self) -> None:
        """The ambient state now is what the steps start under."""
        self.initial = dict(self.domain.modes.snapshot()).get

    def close(self) -> None:
        """Go on outside."""
        domain = self.domain
        domain.recorder.steps, domain.recorder.scope = self._outside, self.parent
        domain.modes.restore(self._modes)
        for step in self.steps:
            for leaf in step.results:
                if leaf.storage is not None and any(self.is_foreign(other) for other in leaf.storage.leaves):
                    leaf.storage.leaves = [other for other in leaf.storage.leaves if self.is_foreign(other)]
        for storage, written, records in self.foreign.values():
            storage.written = written
            for leaf, record in records:
                leaf.record = record
                leaf.fake = None
        self.closed = True

    def parameter(self, leaf: TensorLeaf) -> TensorLeaf:
        """Make `leaf` an input of this scope's graph."""
        step = Step("placeholder", "input", (), {}, (), None, ())
        step.scope = self
        step.results.append(leaf)
        leaf.step = step
        return leaf


def scope_graph(
    scope: Scope, given: Sequence[Any], asked: Sequence[Raw]
) -> tuple[fx.GraphModule, list[TensorLeaf | SymLeaf]]:
    """The graph of a scope's live steps.

    Args:
        scope: a closed scope.
        given: leaves that are inputs in any case, in this order.
        asked: what the graph returns.

    Returns:
        The graph module, and the leaves from outside that are inputs after those given.
    """
    steps = live_steps(scope.steps, asked, scope.initial, scope)
    writer = GraphWriter()
    lifted: list[TensorLeaf | SymLeaf] = []
    known: set[int] = set()

    def key_of(leaf: Raw) -> int:
        return id(leaf.expr) if type(leaf) is SymLeaf and leaf.step is None else id(leaf)

    def lift(leaf: Raw) -> None:
        is_input = leaf.step is None or leaf.step.scope is not scope or leaf.step.op == "placeholder"
        if is_input and key_of(leaf) not in known:
            known.add(key_of(leaf))
            lifted.append(leaf)

    for leaf in given:
        lift(leaf)
    first = len(lifted)
    for step in steps:
        map_raw((step.args, step.kwargs), lift)
    for leaf in asked:
        lift(leaf)
    for i, leaf in enumerate(lifted):
        writer.lift(leaf, key_of(leaf), f"input{i}")
    for step in steps:
        writer.write(step)
    writer.finish(asked)
    return lazy_graph_module(writer.graph), lifted[first:]
