"""`Tensor.register_hook` on a tensor that the region makes: a node that registers the captured hook for real.

Hooks of leaves that were there before are stores of the program's (see `polyfills.hooks`).
"""

from __future__ import annotations

from typing import Any, final

import attrs
import torch
from torch import fx

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.autograd.gradients import gradient_record, layout_of, outside_of_autocast
from torchjit_fx.autograd.histories import HookedInputs, keep_history
from torchjit_fx.calls.intrinsics import intrinsic_rule
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.intrinsics import enter_hook, hook_leaf, leave_hook, remove_hook
from torchjit_fx.leaves import InputLeaf, Raw, Step, TensorLeaf
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.scopes import Scope, scope_graph

__all__ = ["HOOK_DICTS", "CapturedHook"]

HOOK_DICTS = frozenset({"_backward_hooks", "_post_accumulate_grad_hooks"})
"""Attributes of tensors that hold the hooks of leaves: dicts of the program's functions, or None."""


@final
@attrs.frozen(eq=False, slots=False)
class CapturedHook:
    """What stands in a graph for one call of `register_hook`: called as `(tensor, *lifted)`.

    Autograd calls the hook's graph on the whole gradient of the tensor, also of uses before this node; whoever traces the
    graph with autograd sees through it.

    Attributes:
        graph: takes the gradient and what the hook uses from outside, gives the new gradient.
        layout: the memory format that the gradient had at capture, or None if unknown.
    """

    graph: fx.GraphModule
    layout: torch.memory_format | None

    def __attrs_post_init__(self) -> None:
        vars(self).update(__name__="tensor_hook", __qualname__="tensor_hook")  # torch.fx prints a node by these

    def __call__(self, tensor: torch.Tensor, *lifted: Raw) -> None:
        def hook(gradient: torch.Tensor) -> torch.Tensor:
            given = gradient if self.layout is None else gradient.contiguous(memory_format=self.layout)
            result: torch.Tensor = self.graph(given, *lifted)[0]
            return result

        tensor.register_hook(hook)  # type: ignore[no-untyped-call]


@final
@attrs.define(eq=False)
class HookCapture:
    """A hook that is being captured."""

    tensor: TensorLeaf
    scope: Scope
    gradient: TensorLeaf
    needed_history: bool


@final
class Hooks:
    """The hooks of one capture.

    Attributes:
        open: those that are being captured, innermost last.
        steps: by the identity of the leaf that stands for each.
    """

    def __init__(self, domain: CallDomain) -> None:
        self.open: list[HookCapture] = []
        self.steps: dict[int, Step] = {}


@intrinsic_rule(enter_hook)
def _enter(domain: CallDomain, tensor: Raw, capture: CaptureContext) -> TensorLeaf:
    needed = domain.needs_history
    keep_history(domain, [tensor])  # if the hook breaks the graph
    if not isinstance(tensor, TensorLeaf) or isinstance(tensor, InputLeaf) or domain.recorder.scope is not None:
        raise GraphBreak(breaks.AUTOGRAD_CALL, "a hook of a tensor that was there before, or under a transform")
    scope = Scope(domain, capture.mark())
    domain.modes.write(("grad",), False)
    outside_of_autocast(domain.modes)
    scope.begin()
    gradient = scope.parameter(TensorLeaf(gradient_record(domain.fakes.records, tensor.record), None))
    domain.of(Hooks).open.append(HookCapture(tensor, scope, gradient, needed))
    capture.forbid_effects(True)
    return gradient


@intrinsic_rule(leave_hook)
def _leave(domain: CallDomain, result: Raw, capture: CaptureContext) -> TensorLeaf:
    """Gives what stands for the hook: a leaf of the closed scope, so that a handle that is kept breaks at the mark."""
    capture.forbid_effects(False)
    found = domain.of(Hooks).open.pop()
    found.scope.close()
    seen, want = found.gradient, found.tensor.record
    if not isinstance(result, TensorLeaf) or (result.record.sizes, result.record.dtype) != (want.sizes, want.dtype):
        raise GraphBreak(breaks.AUTOGRAD_CALL, "a hook that gives another kind of gradient")
    if found.scope.writes_outside or any(_writes(step, seen) for step in found.scope.steps):
        raise GraphBreak(breaks.AUTOGRAD_CALL, "a hook that writes to a tensor that it did not make")
    if any(step.effect and step.mode is None for step in found.scope.steps):
        raise GraphBreak(breaks.AUTOGRAD_CALL, "a hook that draws random numbers")
    graph, lifted = scope_graph(found.scope, [seen], [result])
    call = CapturedHook(graph, layout_of(seen.record))
    domain.recorder.record(call, (found.tensor, *lifted), capture)
    domain.of(Hooks).steps[id(seen)] = domain.recorder.steps[-1]
    domain.needs_history = found.needed_history
    return seen


def _writes(step: Step, gradient: TensorLeaf) -> bool:
    return any(leaf is gradient for storage in step.written for leaf in storage.leaves)


@intrinsic_rule(remove_hook)
def _remove(domain: CallDomain, token: Any, capture: CaptureContext) -> None:
    """The step has no other effect: without it nobody needs it."""
    domain.of(Hooks).steps[id(token)].effect = False


@intrinsic_rule(hook_leaf)
def _hook_leaf(domain: CallDomain, tensor: Raw, capture: CaptureContext) -> None:
    """The interpreter stores it at the region's end, which is early enough: nothing is differentiated by then but in the graph."""
    if not isinstance(tensor, InputLeaf) or tensor.entry is not tensor.found:
        raise GraphBreak(breaks.AUTOGRAD_CALL, "a hook of a leaf that the region made")
    if domain.recorder.scope is not None or id(tensor) in domain.recorder.data.values:
        raise GraphBreak(breaks.AUTOGRAD_CALL, "a hook under a transform, or of a tensor whose data was assigned")
    domain.of(HookedInputs).add(id(tensor))
