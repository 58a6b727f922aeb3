"""The joint graph: forward and backward of a torch-level graph in one trace."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, final

import attrs
import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.stateless import _reparametrize_module

from torchjit_aot.aliasing import OutputPlan, plan_outputs
from torchjit_aot.autograd_nodes.dependence import Dependence
from torchjit_aot.autograd_nodes.freed_history import freed_slots
from torchjit_aot.backward_engine import gradients, needs_python_engine
from torchjit_aot.costs import is_alias
from torchjit_aot.flatten import Shape, flatten
from torchjit_aot.inputs import GraphInput, fake_inputs, lifted_state, no_autocast, tracing_context
from torchjit_aot.record import Recorder
from torchjit_aot.refusals import METADATA_MUTATION, SHARED_STORAGE, TRACE_FAILED
from torchjit_aot.replay import replay
from torchjit_aot.synthetic_bases import SyntheticBase, fake_views
from torchjit_aot.while_traced import WHILE_TRACED
from torchjit_core.reasons import GraphBreak
from torchjit_torch.node_meta import BACKWARD
from torchjit_torch.quiet_fakes import QUIET_FAKES

aten = torch.ops.aten
Slot: TypeAlias = fx.Node | int | float | bool | None
"""A result of the forward: computed, or a number that is known."""

__all__ = [
    "JointGraph",
    "tangent_like",
    "trace_joint",
    "version_moved",
]


@final
@attrs.frozen(eq=False)
class JointGraph:
    """Forward and backward as one graph of aten operators. The object is frozen; passes change the graph, and give another object.

    Attributes:
        graph: the nodes; it has no output node.
        inputs: one placeholder per graph input, then one per lifted parameter or buffer.
        constants: placeholders of real tensors that the trace met.
        tangents: placeholders of the gradients that the backward gets, one per item of `differentiable`.
        slots: what the forward computes and hands to the runtime: nodes, numbers.
        differentiable: positions in `slots` that take part in autograd.
        grads: one per input: node of its gradient, or None.
        plan: how the outputs are made from inputs and slots.
        shape: structure of the original output; its leaves are `plan.outputs`.
        sources: the inputs as they were traced.
        mutated: for each input whose data are written: the node of its final value (none before functionalization).
        mutated_under_grad: the inputs whose autograd history changed: the value is in `slots`.
        versions_move: the inputs whose version counter eager PyTorch would move.
        versions: how often eager PyTorch counts a write to an input, `reshaped` among them, if it does.
        slot_versions: the version counters of results in `slots` that the program has written to; the others' are 0.
        versions_early: those of `versions_move` whose version moves before anything is saved for the backward, which then does not see it.
        written: does the graph have operators with mutable arguments?
        dependence: what the gradients depend on, as traced.
        reshaped: operators that change sizes or strides of inputs in place: (input, operator, other arguments).
        bases: memory that several inputs share; each is an input too, the last ones.
        freed: for each item of `slots` whose backward eager PyTorch refuses, because the graph behind it was freed: the
            inputs that it leads to.
        detached: of inputs that require grad, what the forward and the backwards read; filled as they are built.
    """

    graph: fx.Graph
    fake_mode: FakeTensorMode
    inputs: tuple[fx.Node, ...]
    constants: tuple[tuple[fx.Node, torch.Tensor], ...]
    tangents: tuple[fx.Node, ...]
    slots: tuple[Slot, ...]
    differentiable: tuple[int, ...]
    grads: tuple[fx.Node | None, ...]
    plan: OutputPlan
    shape: Shape
    sources: tuple[GraphInput, ...]
    mutated: Mapping[int, fx.Node]
    mutated_under_grad: Mapping[int, int]
    versions_move: frozenset[int]
    written: bool
    versions: Mapping[int, int]
    slot_versions: Mapping[int, int]
    versions_early: frozenset[int]
    reshaped: tuple[tuple[int, OpOverload, tuple[Any, ...]], ...]
    bases: tuple[SyntheticBase, ...]
    freed: Mapping[int, tuple[int, ...]]
    dependence: Dependence = attrs.field(factory=Dependence)
    detached: dict[fx.Node, torch.Tensor] = attrs.field(factory=dict, repr=False)

    @property
    def base_inputs(self) -> range:
        """The positions of the bases among the inputs."""
        return range(len(self.inputs) - len(self.bases), len(self.inputs))

    @property
    def has_backward(self) -> bool:
        """Is there anything to differentiate?"""
        return any(grad is not None for grad in self.grads)

    def moved(self, now: Callable[[fx.Node], fx.Node], graph: fx.Graph) -> JointGraph:
        """The same with other nodes, in this graph."""
        return attrs.evolve(
            self,
            graph=graph,
            inputs=tuple(map(now, self.inputs)),
            constants=tuple((now(node), tensor) for node, tensor in self.constants),
            tangents=tuple(map(now, self.tangents)),
            slots=tuple(now(slot) if isinstance(slot, fx.Node) else slot for slot in self.slots),
            grads=tuple(grad if grad is None else now(grad) for grad in self.grads),
            mutated={i: now(node) for i, node in self.mutated.items()},
        )


def version_moved(traced: torch.Tensor) -> bool:
    """Did the trace move this input's version? Not by what is done through `.data`, which has a counter of its own."""
    return traced.is_inference() or traced._version != 0


def trace_joint(gm: fx.GraphModule, example_inputs: Sequence[Any], bases: tuple[SyntheticBase, ...] = ()) -> JointGraph:
    """Trace the graph's forward and, if gradients may be asked for, its backward.

    Grad mode and autocast are those of the caller.

    Args:
        gm: the torch-level graph.
        example_inputs: one value per placeholder.
        bases: memory that several inputs share.

    Raises:
        GraphBreak: the graph cannot be compiled.
    """
    state = lifted_state(gm)
    fake_mode, sources = fake_inputs(gm, example_inputs, state)
    recorder = Recorder(fake_mode, WHILE_TRACED)
    alone = {i: source.value for i, source in enumerate(sources)}
    views = _share(bases, sources, fake_mode)
    inputs = [recorder.placeholder(source.name, source.value) for source in sources]
    _take_views(bases, views, inputs, alone, recorder)
    for i in _tensor_positions(sources):
        recorder.symbols.bind_sizes(sources[i].value, inputs[i])
    before = [None if source.leaf is None else source.value.grad_fn for source in sources]
    with tracing_context(fake_mode), QUIET_FAKES:
        result = _run_forward(gm, sources, recorder, len(example_inputs), list(state))
        leaves: list[Any] = []
        shape = flatten(result, leaves)
        under_grad = _changed_history(sources, before)
        tensors = _tensor_positions(sources)
        reshaped = tuple((tensors[number], func, args) for number, func, args in recorder.reshaped)
        _refuse_histories(under_grad, bases, reshaped)
        plan = plan_outputs(leaves, sources, recorder, under_grad)
        freed = freed_slots(gm, plan.slots, sources)
        if any(position in freed for position in range(len(under_grad))):
            raise GraphBreak(TRACE_FAILED, "an input gets a gradient history that was freed")
        versions, slot_versions = _moved_versions(s.value for s in sources), _moved_versions(plan.slots)
        tangents, differentiable, grads = _run_backward(plan.slots, freed, sources, recorder)
    moving = {tensors[n]: node for n, node in recorder.viewed.items() if version_moved(sources[tensors[n]].value)}
    return JointGraph(
        graph=recorder.graph,
        fake_mode=fake_mode,
        inputs=tuple(inputs),
        constants=tuple(recorder.constants),
        tangents=tuple(tangents),
        slots=tuple(recorder.node_of(value) for value in plan.slots),
        differentiable=tuple(differentiable),
        grads=tuple(grads),
        plan=plan,
        shape=shape,
        sources=tuple(sources),
        mutated={},
        mutated_under_grad={i: plan.slot_of(sources[i].value) for i in under_grad},
        versions_move=frozenset(moving),
        versions=versions,
        slot_versions=slot_versions,
        versions_early=_unseen(recorder.graph, {inputs[i]: (i, node) for i, node in moving.items()}),
        written=recorder.written,
        reshaped=reshaped,
        bases=bases,
        freed=freed,
    )


def _refuse_histories(
    under_grad: Sequence[int],
    bases: tuple[SyntheticBase, ...],
    reshaped: Sequence[tuple[int, OpOverload, tuple[Any, ...]]],
) -> None:
    """Look at the inputs that get a gradient history by a write.

    Raises:
        GraphBreak: one of them shares its memory, or gets other sizes too.
    """
    if any(i in base.members for i in under_grad for base in bases):
        raise GraphBreak(SHARED_STORAGE, "and gets a gradient history by the write")
    if any(i in under_grad for i, _, _ in reshaped):
        raise GraphBreak(METADATA_MUTATION, "of an input that gets a gradient history by a write")


def _moved_versions(values: Iterable[Any]) -> dict[int, int]:
    """Where the version counters of fakes are after the forward; only of those that moved."""
    tensors = {i: t for i, t in enumerate(values) if isinstance(t, torch.Tensor) and not t.is_inference()}
    return {i: t._version for i, t in tensors.items() if t._version}


def _share(
    bases: tuple[SyntheticBase, ...], sources: list[GraphInput], fake_mode: FakeTensorMode
) -> list[list[torch.Tensor]]:
    """Put the members of each base on one memory, and the base behind the inputs; returns the members' new values."""
    made = []
    for number, base in enumerate(bases):
        flat, views = fake_views(base, sources, fake_mode, f"base{number}")
        for i, view in zip(base.members, views, strict=True):
            sources[i] = attrs.evolve(sources[i], value=view)
        sources.append(flat)
        made.append(views)
    return made


def _take_views(
    bases: tuple[SyntheticBase, ...],
    views: list[list[torch.Tensor]],
    inputs: list[fx.Node],
    alone: dict[int, Any],
    recorder: Recorder,
) -> None:
    """Write how the members come out of their bases; the members' own placeholders are read by nobody."""
    for flat, base, members in zip(inputs[len(inputs) - len(bases) :], bases, views, strict=True):
        for i, offset, view in zip(base.members, base.offsets, members, strict=True):
            inputs[i].meta["val"] = alone[i]
            node = recorder.graph.call_function(aten.as_strided.default, (flat, view.shape, view.stride(), offset))
            node.meta["val"] = view
            recorder.track(view, node)


def _tensor_positions(sources: list[GraphInput]) -> list[int]:
    """From the number among the tensor inputs to the position among all inputs."""
    return [i for i, source in enumerate(sources) if isinstance(source.value, torch.Tensor)]


def _unseen(graph: fx.Graph, moving: dict[fx.Node, tuple[int, fx.Node]]) -> frozenset[int]:
    """The inputs whose move eager's backward does not see: what it reads of them was saved after it, or nothing was."""
    if not moving:
        return frozenset()
    place = {node: k for k, node in enumerate(graph.nodes)}
    made: dict[int, int] = {}  # from an operator's number to its first node
    for node, k in place.items():
        if not BACKWARD.of(node) and "seq_nr" in node.meta:
            made.setdefault(node.meta["seq_nr"], k)
    unseen = set()
    for node, (i, change) in moving.items():
        views = {node}
        readers = []
        for other in graph.nodes:
            if any(source in views for source in other.all_input_nodes):
                if BACKWARD.of(other):
                    readers.append(other)
                elif is_alias(other):
                    views.add(other)
        if all(made.get(reader.meta.get("seq_nr"), -1) > place[change] for reader in readers):
            unseen.add(i)
    return frozenset(unseen)


def _run_forward(
    gm: fx.GraphModule, sources: list[GraphInput], recorder: Recorder, count: int, state: list[str]
) -> Any:
    values = [source.value for source in sources]
    lifted = dict(zip(state, values[count : count + len(state)], strict=True))
    try:
        with _reparametrize_module(gm, lifted, tie_weights=True), recorder:
            return replay(gm, values[:count], recorder.enter)
    except GraphBreak:
        raise
    except Exception as error:  # whatever an operator raises on fakes, eager PyTorch has the last word
        raise GraphBreak(TRACE_FAILED, f"{type(error).__name__}: {error}") from error


def _changed_history(sources: list[GraphInput], before: list[Any]) -> list[int]:
    values = enumerate(zip((source.value for source in sources), before, strict=True))
    return [i for i, (value, grad_fn) in values if isinstance(value, torch.Tensor) and value.grad_fn is not grad_fn]


def _run_backward(
    slots: list[Any], freed: Container[int], sources: list[GraphInput], recorder: Recorder
) -> tuple[list[fx.Node], list[int], list[fx.Node | None]]:
    outputs = {i: t for i, t in enumerate(slots) if isinstance(t, torch.Tensor) and t.requires_grad and i not in freed}
    leaves = {i: source.leaf for i, source in enumerate(sources) if source.leaf is not None}
    grads: list[fx.Node | None] = [None] * len(sources)
    if not outputs:
        return [], [], grads
    if not leaves:
        raise GraphBreak(TRACE_FAILED, "an output requires grad, and no input does")
    with torch.no_grad():
        tangents = [tangent_like(t) for t in outputs.values()]
    nodes = [recorder.placeholder_first(f"tangent{position}", t) for position, t in enumerate(tangents)]
    found = _differentiate(list(outputs.values()), list(leaves.values()), tangents, recorder)
    for i, grad in zip(leaves, found, strict=True):
        grads[i] = None if grad is None else recorder.node_of(grad)
    if not any(grads):
        # such as a view of a leaf made under no_grad, which is a leaf of its own
        raise GraphBreak(TRACE_FAILED, "an output requires grad, and no input is behind it")
    return nodes, list(outputs), grads


def _differentiate(
    outputs: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    tangents: Sequence[torch.Tensor],
    recorder: Recorder,
) -> Sequence[torch.Tensor | None]:
    """The gradients of the leaves, recorded.

    Raises:
        GraphBreak: an operator of the backward raises on fakes.
    """
    recorder.enter_backward()
    try:
        # eager PyTorch's backward takes no part in the autocast of the forward, if it is called outside, as it should be
        with recorder, no_autocast(), torch.autograd.set_multithreading_enabled(False):
            if needs_python_engine(outputs):
                return gradients(outputs, leaves, tangents)
            return torch.autograd.grad(outputs, leaves, tangents, allow_unused=True)
    except GraphBreak:
        raise
    except Exception as error:  # whatever an operator raises on fakes, eager PyTorch has the last word
        raise GraphBreak(TRACE_FAILED, f"in the backward: {type(error).__name__}: {error}") from error


def tangent_like(output: torch.Tensor) -> torch.Tensor:
    """The gradient that the backward is compiled for: the output's sizes, and its strides where they are dense."""
    return torch.empty_like(output, memory_format=torch.preserve_format, requires_grad=False)
