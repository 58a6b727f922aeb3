"""How a graph's outputs relate to its inputs and to each other, read from one trace.

An output is an input itself; a view of an input; a view of another tensor that is returned; or fresh. Views are made
again outside the compiled graph, by the recorded operators, so that autograd sees the relation that eager PyTorch has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, final

import attrs
import torch
from torch._ops import OpOverload
from torch.autograd.function import BackwardCFunction

from torchjit_aot.overlap import shows_memory_twice
from torchjit_aot.refusals import METADATA_MUTATION, OUTPUT_KIND
from torchjit_aot.symbols import SYMBOLIC_TYPES
from torchjit_core.reasons import GraphBreak
from torchjit_torch.layouts import storage_key

if TYPE_CHECKING:
    from torchjit_aot.inputs import GraphInput
    from torchjit_aot.record import Recorder, ViewStep

__all__ = ["Constant", "FromInput", "FromSlot", "OutputPlan", "Ref", "Replay", "plan_outputs"]

aten = torch.ops.aten
_DETACH = (aten.detach.default, aten.alias.default)


@final
@attrs.frozen
class FromInput:
    """The object that the caller passed as input `index`."""

    index: int


@final
@attrs.frozen
class FromSlot:
    """Item `index` of what the forward returns."""

    index: int


@final
@attrs.frozen
class Replay:
    """Result of step `index` of the plan's replays."""

    index: int


@final
@attrs.frozen(eq=False)
class Constant:
    """A value that is the same on each call."""

    value: Any


Ref: TypeAlias = "FromInput | FromSlot | Replay | Constant"


@final
@attrs.frozen(eq=False)
class ReplayStep:
    """A view operator to call on real tensors, after the compiled forward.

    Attributes:
        source: its first argument.
        func, args, kwargs: the operator; symbolic numbers in `args` are `FromSlot`s.
        index: item of the result, or None.
        grad_mode: as it was recorded.
        own_version: the result counts writes on its own, as `.data` does; where its counter was at the end. None: it does not.
    """

    source: Ref
    func: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    index: int | None
    grad_mode: bool
    own_version: int | None = None


@final
@attrs.define(eq=False)
class OutputPlan:
    """What the forward returns (`slots`: fakes and symbolic numbers) and how the outputs are made from it.

    `apart`: the slots that are `.data` of a tensor that is not returned: autograd does not see writes to them.
    """

    slots: list[Any] = attrs.field(factory=list)
    outputs: list[Ref] = attrs.field(factory=list)
    steps: list[ReplayStep] = attrs.field(factory=list)
    apart: set[int] = attrs.field(factory=set)

    def slot_of(self, value: Any) -> int:
        """The position of this object in `slots`; it is added if it is not there."""
        for position, held in enumerate(self.slots):
            if held is value:
                return position
        self.slots.append(value)
        return len(self.slots) - 1


@final
class _Planner:
    def __init__(self, leaves: list[Any], sources: list[GraphInput], recorder: Recorder, plan: OutputPlan) -> None:
        self.plan = plan
        self.recorder = recorder
        self.input_of = {id(s.value): i for i, s in enumerate(sources) if isinstance(s.value, torch.Tensor)}
        self.input_storages = {storage_key(s.value) for s in sources if isinstance(s.value, torch.Tensor)} | {
            storage_key(node.meta["val"]) for node, _ in recorder.constants
        }
        self.constant_of = {id(node.meta["val"]): real for node, real in recorder.constants}
        self.sharing: dict[int, set[int]] = {}
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                if leaf.layout != torch.strided:
                    raise GraphBreak(OUTPUT_KIND, f"a tensor with layout {leaf.layout}")
                self.sharing.setdefault(storage_key(leaf), set()).add(id(leaf))
        self.roots: dict[int, torch.Tensor] = {}
        self.replayed: dict[tuple[int, bool], Ref] = {}

    def refer(self, leaf: Any) -> Ref:
        if isinstance(leaf, torch.Tensor):
            if id(leaf) in self.input_of:
                return FromInput(self.input_of[id(leaf)])
            if id(leaf) in self.constant_of:
                return Constant(self.constant_of[id(leaf)])
            key = storage_key(leaf)
            if key in self.input_storages or len(self.sharing[key]) > 1 or self._must_be_view(leaf):
                made = self._replay(leaf, drop_detach=leaf.requires_grad)
                if not leaf.requires_grad and self._inherits_history(leaf):
                    self.plan.steps.append(ReplayStep(made, aten.detach.default, (), {}, None, True))
                    return Replay(len(self.plan.steps) - 1)
                return made
            made = FromSlot(self.plan.slot_of(leaf))
            if self._counts_apart(leaf):
                self.plan.apart.add(made.index)
            return made
        if isinstance(leaf, SYMBOLIC_TYPES):
            return FromSlot(self.plan.slot_of(leaf))
        if leaf is None or isinstance(leaf, (int, float, bool, complex, str, torch.dtype, torch.device)):
            return Constant(leaf)
        raise GraphBreak(OUTPUT_KIND, type(leaf).__name__)

    def _must_be_view(self, leaf: torch.Tensor) -> bool:
        """Does autograd go wrong if a write is to a tensor like this that is a view of nothing? It copies it, with its strides."""
        made = leaf.requires_grad and id(leaf) in self.recorder.views and shows_memory_twice(leaf)
        return made and not leaf._backward_hooks and not _made_by_custom_function(leaf)

    def _counts_apart(self, tensor: torch.Tensor) -> bool:
        """Is it a view of a tensor that counts its writes on its own?"""
        while (step := self.recorder.views.get(id(tensor))) is not None:
            if step.func in _DETACH and _count_apart(step.parent, tensor):
                return True
            tensor = step.parent
        return False

    def _inherits_history(self, tensor: torch.Tensor) -> bool:
        """Would the replayed view require grad, because its storage's slot got a history through another alias?"""
        while (step := self.recorder.views.get(id(tensor))) is not None and id(tensor) not in self.input_of:
            if step.func in _DETACH or not step.grad_mode:
                return False
            tensor = step.parent
        return self.roots.get(storage_key(tensor), tensor).requires_grad

    def _replay(self, tensor: torch.Tensor, *, drop_detach: bool) -> Ref:
        """The tensor as the user's base and views of it."""
        if id(tensor) in self.input_of:
            return FromInput(self.input_of[id(tensor)])
        if id(tensor) in self.constant_of:
            return Constant(self.constant_of[id(tensor)])
        key = (id(tensor), drop_detach)
        if key in self.replayed:
            return self.replayed[key]
        step = self.recorder.views.get(id(tensor))
        self._refuse_view(tensor, step, drop_detach)
        made: Ref
        if step is None or self._is_root(tensor, step, drop_detach):
            made = self._root(tensor)
        else:
            source = self._replay(step.parent, drop_detach=drop_detach)
            self.plan.steps.append(self._step(source, step, tensor))
            made = Replay(len(self.plan.steps) - 1)
        self.replayed[key] = made
        return made

    def _is_root(self, tensor: torch.Tensor, step: ViewStep, drop_detach: bool) -> bool:
        """Is what a view operator made no view for autograd?"""
        if drop_detach and step.func in _DETACH:
            return True  # autograd itself wrapped an operator's bare result: this is the one with history
        # A write to it is in its own history, and nowhere else.
        return step.func is aten._unsafe_view.default and self.roots.get(storage_key(tensor), tensor) is tensor

    def _refuse_view(self, tensor: torch.Tensor, step: ViewStep | None, drop_detach: bool) -> None:
        """Look at a result.

        Raises:
            GraphBreak: the user's base and views of it would be something else.
        """
        of_input = storage_key(tensor) in self.input_storages
        if step is None:
            if of_input:
                raise GraphBreak(OUTPUT_KIND, "a view of an input that no view operator made")
            if id(tensor) in self.recorder.snapshots:
                raise GraphBreak(METADATA_MUTATION, "of a tensor with several views among the outputs")
            return
        if _made_by_custom_function(tensor):
            raise GraphBreak(OUTPUT_KIND, "a view with the gradient of a custom autograd function")
        if tensor._backward_hooks:  # the view of the user's base would not have it
            raise GraphBreak(OUTPUT_KIND, "a view with a hook")
        if drop_detach and step.func in _DETACH and (step.parent.requires_grad or of_input):
            raise GraphBreak(OUTPUT_KIND, "a detached view that got a history of its own by a write")

    def _root(self, tensor: torch.Tensor) -> Ref:
        """The slot of the storage's first tensor. Differentiable outputs are planned first, so it is one of them."""
        return FromSlot(self.plan.slot_of(self.roots.setdefault(storage_key(tensor), tensor)))

    def _step(self, source: Ref, step: ViewStep, made: torch.Tensor) -> ReplayStep:
        args = tuple(self._argument(a) for a in step.args)
        own = made._version if step.func in _DETACH and _count_apart(step.parent, made) else None
        return ReplayStep(source, step.func, args, step.kwargs, step.index, step.grad_mode, own)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, SYMBOLIC_TYPES):
            return FromSlot(self.plan.slot_of(value))
        if isinstance(value, (tuple, list)):
            return [self._argument(v) for v in value]
        return value


def plan_outputs(leaves: list[Any], sources: list[GraphInput], recorder: Recorder, under_grad: list[int]) -> OutputPlan:
    """Classify the outputs.

    Args:
        leaves: the outputs, flat.
        sources: the inputs.
        recorder: holds how views were made.
        under_grad: inputs that were mutated with grad mode on: their new values take part in autograd, so each gets a
            slot, before all others.

    Raises:
        GraphBreak: an output that a compiled graph cannot return.
    """
    plan = OutputPlan()
    for index in under_grad:
        plan.slot_of(sources[index].value)
    planner = _Planner(leaves, sources, recorder, plan)
    order = sorted(
        range(len(leaves)), key=lambda i: not (isinstance(leaves[i], torch.Tensor) and leaves[i].requires_grad)
    )
    found = {i: planner.refer(leaves[i]) for i in order}
    plan.outputs = [found[i] for i in range(len(leaves))]
    return plan


def _count_apart(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Does a write to one leave the other's version? `t.data`, which is recorded as `t.detach()`, has a counter of its own."""
    if a.is_inference() or b.is_inference():
        return False
    before, other = a._version, b._version
    torch._C._increment_version([a])
    apart = b._version == other
    torch._C._autograd._unsafe_set_version_counter((a,), (before,))
    return apart


def _made_by_custom_function(tensor: torch.Tensor) -> bool:
    try:
        return isinstance(tensor.grad_fn, BackwardCFunction)
    except RuntimeError:
        # One of several views made by one operator (`split`), whose base was written since: torch refuses to make its
        # node anew. A custom function's views keep theirs.
        return False
