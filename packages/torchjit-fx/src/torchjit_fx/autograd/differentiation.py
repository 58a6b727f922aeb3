"""`torch.autograd.grad` on what the region computes, and leaves of autograd that the region makes.

The call becomes a node that makes the real one: autograd walks the graph's own operations, so gradients of gradients, hooks and
errors are torch's own, and AOT's trace looks through it. What comes out is learnt by running the steps so far on fakes with a
history and differentiating those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import attrs
import torch

from torchjit_core.guards import IdIs
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.assertions import CHECK, runtime_check
from torchjit_fx.autograd.histories import HookedInputs, keep_history
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.domain_protocol import CallDomain, Feature
from torchjit_fx.flatten import map_raw
from torchjit_fx.leaves import InputLeaf, Raw, Step, SymLeaf, TensorLeaf
from torchjit_fx.outcomes import follow
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.region import live_steps, used_inputs

__all__ = ["Differentiated", "differentiate", "make_leaf", "note_made_leaf", "refuse_escaping_leaves"]


@final
@attrs.frozen(eq=False, slots=False)
class Differentiated:
    """What stands in a graph for one call of `torch.autograd.grad`: called with the outputs, the inputs, then the weights.

    Attributes:
        outputs, inputs: how many there are.
        weighted: for each output, is there a weight (an item of `grad_outputs`)?
        options: the call's `retain_graph`, `create_graph`, `allow_unused`, `materialize_grads`.
    """

    outputs: int
    inputs: int
    weighted: tuple[bool, ...]
    options: Mapping[str, Any]

    def __attrs_post_init__(self) -> None:
        vars(self).update(__name__="autograd_grad", __qualname__="autograd_grad")  # torch.fx prints a node by these

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        end = self.outputs + self.inputs
        weights = iter(tensors[end:])
        given = [next(weights) if there else None for there in self.weighted]
        # The engine's own threads would not see a trace. What this frees is freed for who traces, too, and must be for the caller.
        traced = torch._C._len_torch_dispatch_stack() > 0
        before = torch._C._is_multithreading_enabled()
        with torch.autograd.set_multithreading_enabled(before and not traced):
            return tuple(
                torch.autograd.grad(tensors[: self.outputs], tensors[self.outputs : end], given, **self.options)
            )


_PARAMETERS = (
    "outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs", "allow_unused", "is_grads_batched",
    "materialize_grads",
)  # fmt: skip
_OPTIONS = {"retain_graph": None, "create_graph": False, "allow_unused": None, "materialize_grads": False}


def _refused(detail: str, capture: CaptureContext) -> GraphBreak:
    return GraphBreak(breaks.AUTOGRAD_CALL, f"autograd.grad {detail}", capture.location())


@call_rule(torch.autograd.grad)
def differentiate(call: Call) -> Raw:
    """`torch.autograd.grad(...)`.

    Raises:
        GraphBreak: it cannot be in the graph. What was recorded so far then runs as torch's own operations, if the call asks for
            a result that can be differentiated again: no compiled backward can.
    """
    given = dict(zip(_PARAMETERS, call.args, strict=False)) | call.kwargs
    try:
        return _differentiate(call.domain, given, call.capture)
    except GraphBreak:
        call.domain.needs_history |= given.get("create_graph") is True
        inputs = given.get("inputs")
        keep_history(call.domain, inputs if isinstance(inputs, tuple | list) else [inputs])
        raise


def _differentiate(domain: CallDomain, given: dict[str, Any], capture: CaptureContext) -> Raw:
    outputs, inputs = _tensors(given["outputs"], capture), _tensors(given["inputs"], capture)
    weights = given.get("grad_outputs")
    weights = list(weights) if isinstance(weights, tuple | list) else [weights] * len(outputs)
    options = {name: given.get(name, default) for name, default in _OPTIONS.items()}
    if given.get("is_grads_batched") or not all(v is None or type(v) is bool for v in options.values()):
        raise _refused("of a batch of gradients", capture)
    if domain.recorder.scope is not None or len(weights) != len(outputs):
        raise _refused("under a transform", capture)
    if any(id(leaf) in domain.recorder.data.values for leaf in (*outputs, *inputs)):
        raise _refused("of a tensor whose data or requires_grad was assigned", capture)
    weight_leaves = _tensors([w for w in weights if w is not None], capture)
    _check_inputs(domain, outputs, inputs, capture)
    call = Differentiated(len(outputs), len(inputs), tuple(w is not None for w in weights), options)
    made = _try(domain, call, [*outputs, *inputs, *weight_leaves], capture)
    if not any(isinstance(gradient, torch.Tensor) for gradient in made):  # nothing that a step would make
        domain.recorder.add_effect(
            "call_function", call, (*outputs, *inputs, *weight_leaves), capture
        )  # it may raise, or free
        return made
    found = domain.recorder.record(lambda *_: made, (*outputs, *inputs, *weight_leaves), capture)
    step = domain.recorder.steps[-1]
    step.target = call
    step.effect = True  # it may free the graph behind it, or find that it cannot differentiate
    return found


def _tensors(value: Raw, capture: CaptureContext) -> list[TensorLeaf]:
    leaves = [value] if isinstance(value, TensorLeaf) else list(value) if isinstance(value, tuple | list) else [value]
    if not all(isinstance(leaf, TensorLeaf) for leaf in leaves):
        raise _refused("of what is no tensor", capture)
    return leaves


def _check_inputs(
    domain: CallDomain, outputs: Sequence[TensorLeaf], inputs: Sequence[TensorLeaf], capture: CaptureContext
) -> None:
    """The way from the outputs to the inputs must lie in the region.

    A tensor from outside may lie behind another one, through operations that the graph does not have.
    """
    asked = [leaf for leaf in inputs if isinstance(leaf, InputLeaf)]
    for leaf in asked:
        if leaf.real._backward_hooks or id(leaf) in domain.of(HookedInputs):
            raise _refused("with respect to a tensor with a hook", capture)
        capture.guard(IdIs(leaf.path.attr("_backward_hooks"), None, capture.location()))
    if not asked:
        return
    used, _ = used_inputs(live_steps(domain.recorder.steps, outputs, domain.modes.graph_initial), outputs)
    for leaf in used:
        if leaf.entry.requires_grad and not (len(asked) == 1 and leaf is asked[0]):
            if not leaf.entry.is_leaf:
                raise _refused(f"through {leaf.path}, which was computed before", capture)
            capture.guard(leaf.leafness(capture.location()))


def _try(domain: CallDomain, call: Differentiated, leaves: Sequence[TensorLeaf], capture: CaptureContext) -> Raw:
    """What the call gives, over fakes of the capture."""
    run = _Rerun(domain)
    steps = live_steps(domain.recorder.steps, leaves, domain.modes.graph_initial)
    try:
        for step in steps:
            run.step(step)
        values = [run.value(leaf) for leaf in leaves]
        if call.options["create_graph"] and any(step.target in _DETERMINANTS for step in steps):
            raise _refused("of a determinant, to be differentiated again", capture)
        with domain.modes.made_real():
            found = domain.metas.evaluate(call, tuple(values), {}, run.symbolic)
    except GraphBreak:
        raise
    except Exception as error:  # whatever it raises on fakes, eager PyTorch has the last word
        raise _refused(f"{type(error).__name__}: {str(error).splitlines()[:1]}", capture) from error
    made: dict[int, torch.Tensor] = {}
    memory = set(run.memory)
    for gradient in found:
        if gradient is not None and id(gradient) not in made:
            if run.storage(gradient) in memory:
                raise _refused("that gives a tensor on the memory of another one", capture)
            memory.add(run.storage(gradient))
            made[id(gradient)] = domain.fakes.make(domain.fakes.describe(gradient))
    return tuple(None if gradient is None else made[id(gradient)] for gradient in found)


_DETERMINANTS: frozenset[Any] = frozenset({torch.det, torch.linalg.det, "det"})
"""For a gradient that is to be differentiated again eager solves with a matrix that is not singular; fakes and traces get the formula for all
matrices, by singular values: another layout, and other roundings. Source: FunctionsManual.cpp (`linalg_det_backward`), torch 2.15."""


@final
class _Rerun:
    """Runs steps once more on fakes of their own, which get the history that the graph's tensors will have."""

    def __init__(self, domain: CallDomain) -> None:
        self.domain = domain
        self.symbolic = False
        self.memory: set[int] = set()
        self._inputs: dict[int, Any] = {}
        self._results: dict[int, Any] = {}

    def storage(self, tensor: torch.Tensor) -> int:
        return int(tensor.untyped_storage()._cdata)

    def value(self, leaf: Raw) -> Raw:
        if type(leaf) is SymLeaf:
            self.symbolic = True
            return leaf.value
        self.symbolic = self.symbolic or leaf.record.symbolic
        if isinstance(leaf, InputLeaf):
            if id(leaf) not in self._inputs:
                self._inputs[id(leaf)] = self.domain.fakes.make(leaf.entry)
            found = self._inputs[id(leaf)]
        else:
            found = follow(self._results[id(leaf.step)], leaf.way)
        self.memory.add(self.storage(found))
        return found

    def step(self, step: Step) -> None:
        if step.mode is not None or step.target in (runtime_check, CHECK):
            return  # each step is given the modes that it ran under
        args, kwargs = map_raw(step.args, self.value), map_raw(step.kwargs, self.value)
        with self.domain.modes.made_real(step.token):
            self._results[id(step)] = self.domain.metas.evaluate(step.target, args, kwargs, self.symbolic)


def make_leaf(domain: CallDomain, leaf: TensorLeaf, capture: CaptureContext) -> TensorLeaf:
    """`requires_grad_()` of a tensor that the region made: from here on a leaf of autograd, as long as it stays inside."""
    r = leaf.record
    plain = r.dtype.is_floating_point or r.dtype.is_complex
    if (
        isinstance(leaf, InputLeaf)
        or leaf.step is None
        or domain.recorder.scope is not None
        or r.inference
        or not plain
    ):
        raise GraphBreak(breaks.METADATA_MUTATION, "requires_grad", capture.location())
    if leaf.storage is not None and leaf.storage.leaves[-1] is not leaf:
        # Views that were made of it follow it; those that a graph gives back do not know that they were written.
        domain.needs_history |= bool(leaf.storage.written)
        raise GraphBreak(breaks.METADATA_MUTATION, "requires_grad, of a tensor with views", capture.location())
    domain.recorder.add_effect("call_method", "requires_grad_", (leaf,), capture)
    flags = (True, True, r.conj, r.neg, r.inference)
    leaf.record = domain.fakes.records.get(r.dtype, r.device, r.sizes, r.strides, r.offset, flags)
    leaf.fake = leaf.stand_in = None
    domain.of(MadeLeaves)[id(leaf)] = (leaf, capture.mark())
    return leaf


@final
class MadeLeaves(Feature, dict[int, tuple[TensorLeaf, int]]):
    """The leaves of autograd that the region made, and where: the capture breaks there if one has to leave it."""


def note_made_leaf(domain: CallDomain, made: Raw, capture: CaptureContext) -> None:
    """What `torch.zeros(2, requires_grad=True)` and its kind make is a leaf of autograd, as long as it stays inside."""
    if type(made) is TensorLeaf and made.step is not None and made.record.requires_grad and made.record.is_leaf:
        domain.of(MadeLeaves)[id(made)] = (made, capture.mark())


def refuse_escaping_leaves(domain: CallDomain, asked: Sequence[Raw], capture: CaptureContext) -> None:
    """A leaf that the region made must be one for the caller too, whose gradient is there after a backward."""
    for leaf in asked:
        if not domain.of(MadeLeaves) or not isinstance(leaf, TensorLeaf) or not leaf.record.requires_grad:
            continue
        for other in [leaf] if leaf.storage is None else leaf.storage.leaves:
            if id(other) in domain.of(MadeLeaves):
                why = GraphBreak(
                    breaks.METADATA_MUTATION, "requires_grad of a tensor that leaves the region", capture.location()
                )
                capture.break_at_mark(domain.of(MadeLeaves)[id(other)][1], why)
