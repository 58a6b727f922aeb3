"""The end of a region: the graph of what is needed of its steps, given to the backend, and what surrounds it in a call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torch import fx

from torchjit_core.paths import AccessPath
from torchjit_core.reasons import InvalidIR
from torchjit_core.region import RegionCode
from torchjit_fx import breaks
from torchjit_fx.autograd.differentiation import refuse_escaping_leaves
from torchjit_fx.autograd.histories import keep_history_beyond
from torchjit_fx.autograd.required_gradients import example_of, preparing
from torchjit_fx.calls.ambient import Replicas
from torchjit_fx.data_errors import CaughtErrors
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.kept_results import refuse_kept_results
from torchjit_fx.leaves import InputLeaf, OpaqueLeaf, Raw, SymLeaf, TensorLeaf
from torchjit_fx.numpy.arrays import ArrayLeaf, Arrays, with_arrays
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.random_state import giving_back_random_numbers
from torchjit_fx.region import GraphWriter, emit_graph, live_steps, storage_guards, used_inputs
from torchjit_fx.repeatable import errors_come_first, is_repeatable
from torchjit_fx.subclasses import with_subclasses
from torchjit_fx.tracing import escaped
from torchjit_fx.versions import FIRST_WRITE, lazy_graph_module
from torchjit_fx.wrappers import Wrappers
from torchjit_torch.graph_calls import GraphCall
from torchjit_torch.node_meta import GRADIENT_BUCKETS
from torchjit_torch.operators import is_custom_operator

__all__ = ["compile_region"]


def compile_region(domain: CallDomain, leaves: Sequence[object], capture: CaptureContext) -> RegionCode:
    """Compile what the asked leaves and the outside world need of the steps recorded so far.

    Args:
        domain: of the capture, which is over after this.
        leaves: what the program goes on with after the region.
        capture: the VM's.
    """
    refuse_kept_results(domain.recorder.steps, capture)
    outputs = _Outputs(domain, leaves, capture)
    refuse_escaping_leaves(domain, outputs.asked, capture)
    _keep_what_is_remembered(domain, outputs.asked, capture)
    keep_history_beyond(domain, outputs.asked, capture.names_used())
    asked, wholes = domain.of(Wrappers).taken_apart(outputs.asked, capture)
    domain.recorder.selections.refuse_escaping(asked, capture)
    steps = live_steps(domain.recorder.place.kept(domain.recorder.steps), asked, domain.modes.graph_initial)
    epilogue = domain.modes.epilogue()
    repeatable = capture.runs_again() and is_repeatable(steps, used_inputs(steps, asked)[0])
    acts = any(is_custom_operator(step.target) for step in steps)
    # A compiled graph promises nothing about when custom operators are called.
    domain.of(CaughtErrors).settle(repeatable and not acts, capture)
    if not steps:
        target = with_arrays(None, outputs.makers) if outputs.makers else None
        return RegionCode(target, (), outputs.places, epilogue)
    gm, paths, examples = _graph(domain, steps, asked, capture)
    emit_graph(gm, "captured")
    with domain.recorder.place.made_real():
        target = GraphCall(gm) if domain.needs_history else domain.compile_graph(gm, examples)
    domain.writes_outside = gm.meta[FIRST_WRITE] is not None
    if domain.writes_outside and repeatable:
        domain.of(CaughtErrors).settle(errors_come_first(target, gm, steps), capture)
    inputs = used_inputs(steps, asked)
    target = _surrounded(domain, target, steps, inputs, asked)
    target = domain.of(Wrappers).around(target, inputs, wholes)
    if outputs.makers:
        target = with_arrays(target, outputs.makers)
    if repeatable:
        target = giving_back_random_numbers(target, steps, domain.writes_outside)
    return RegionCode(target, paths, outputs.places, epilogue, repeatable, acts)


class _Outputs:
    """What the program goes on with.

    Attributes:
        asked: the leaves that the graph has to give.
        makers: of the arrays that are made of what it gives.
        places: for each, its number among those, or the path where it is.
    """

    def __init__(self, domain: CallDomain, leaves: Sequence[object], capture: CaptureContext) -> None:
        self.asked: list[TensorLeaf | SymLeaf] = []
        self._numbers: dict[int, int] = {}
        arrays = [leaf for leaf in leaves if type(leaf) is ArrayLeaf and leaf.path is None]
        place = functools.partial(self._place, domain, capture)
        known = [_path_of(domain, leaf) or (None if type(leaf) is ArrayLeaf else place(leaf)) for leaf in leaves]
        self.makers = domain.of(Arrays).makers(arrays, place, capture)
        numbers = iter(range(len(self.asked), len(self.asked) + len(arrays)))
        self.places: tuple[int | AccessPath, ...] = tuple([next(numbers) if k is None else k for k in known])

    def _place(self, domain: CallDomain, capture: CaptureContext, leaf: Raw) -> int:
        leaf = domain.recorder.data.now(leaf)
        if leaf.step is not None and leaf.step.scope is not None:
            escaped(leaf, capture)
        if id(leaf) not in self._numbers:
            self._numbers[id(leaf)] = len(self.asked)
            self.asked.append(leaf)
        return self._numbers[id(leaf)]


def _surrounded(domain: CallDomain, target: Raw, steps: Sequence[Any], inputs: Raw, asked: Sequence[Raw]) -> Raw:
    """The compiled graph, which gives `asked`, with what a call of it needs besides."""
    target = domain.recorder.place.running(target, asked)
    target = with_subclasses(target, inputs, asked)
    target = preparing(target, domain.recorder.data, inputs)
    return domain.modes.restoring(target) if any(step.mode is not None for step in steps) else target


def _keep_what_is_remembered(domain: CallDomain, asked: Sequence[Raw], capture: CaptureContext) -> None:
    """Only what runs operation by operation remembers the same tensors as eager PyTorch, where that matters."""
    matters, before = domain.recorder.remembered(asked)
    domain.needs_history |= matters
    if before is not None:
        capture.break_at_mark(*before)


def _path_of(domain: CallDomain, leaf: object) -> AccessPath | None:
    if isinstance(leaf, InputLeaf | OpaqueLeaf | ArrayLeaf):
        return leaf.path
    if isinstance(leaf, SymLeaf) and leaf.step is None and leaf.expr is not None:
        return domain.numbers.path(leaf.expr)
    return None


def _graph(
    domain: CallDomain, steps: Sequence[Any], asked: Sequence[Raw], capture: CaptureContext
) -> tuple[fx.GraphModule, tuple[AccessPath, ...], list[Any]]:
    tensors, symbols = used_inputs(steps, asked)
    writer = GraphWriter()
    paths: list[AccessPath] = []
    examples: list[Raw] = []
    for leaf in symbols:
        expr = leaf.expr
        path = None if expr is None else domain.numbers.path(expr)
        if expr is None or path is None:
            raise InvalidIR(breaks.SYMBOLIC_UNSUPPORTED, f"{leaf} has neither a step nor a path")
        writer.place(leaf, id(expr), path, leaf.value, False)
        paths.append(path)
        examples.append(domain.numbers.example(leaf))
    for tensor in tensors:
        static = tensor.static and not domain.recorder.data.is_reassigned(tensor)
        writer.place(tensor, id(tensor), tensor.path, domain.fakes.make(tensor.entry), static)
        paths.append(tensor.path)
        examples.append(example_of(tensor, domain.recorder.data))
    for guard in storage_guards(tensors, lambda t: t.real.untyped_storage()._cdata):
        capture.guard(guard)
    if domain.settings.node_values:
        for step in steps:
            for result in step.results:
                if result.fake is None:
                    result.fake = domain.metas.look(result)
    for step in steps:
        writer.write(step)
    writer.finish(asked)
    gm = lazy_graph_module(writer.graph)
    gm.meta |= {"fake_mode": domain.mode, FIRST_WRITE: writer.first_write}
    if (buckets := domain.of(Replicas).buckets) is not None:
        GRADIENT_BUCKETS.put(gm, buckets)
    return gm, tuple(paths), examples
