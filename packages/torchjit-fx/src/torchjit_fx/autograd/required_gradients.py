"""`requires_grad` of a tensor that was there before, switched inside of a region.

The interpreter stores it for real at the region's end. Where it is off, calls are given the tensor without its history (see
`assigned_data`). Where the tensor came without a gradient and gets one, the graph runs with it already switched on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.assigned_data import AssignedData
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.flatten import leaves_in
from torchjit_fx.leaves import Function, InputLeaf, Raw, SymLeaf, TensorLeaf
from torchjit_fx.protocols import CaptureContext

__all__ = ["example_of", "is_refused_by_mode", "preparing", "switch"]


def _requires_grad_now(domain: CallDomain, leaf: InputLeaf) -> bool:
    """As the program sees it here."""
    return leaf.record.requires_grad and id(leaf) not in domain.recorder.data.frozen


def is_refused_by_mode(domain: CallDomain, leaf: TensorLeaf, wanted: object) -> bool:
    """Does eager refuse `requires_grad = wanted`, also where it is so already: of an inference tensor, outside of inference mode?"""
    return wanted is True and bool(leaf.record.inference) and not domain.modes.inference


def switch(domain: CallDomain, leaf: InputLeaf, wanted: bool, capture: CaptureContext) -> bool:
    """`leaf.requires_grad = wanted`.

    Returns:
        Is there something to be stored at the region's end?

    Raises:
        GraphBreak: it cannot be followed, or raises.
    """
    if _requires_grad_now(domain, leaf) is wanted:
        return False
    if not _may_switch(domain, leaf, capture):
        raise GraphBreak(breaks.METADATA_MUTATION, f"requires_grad of {leaf.path}", capture.location())
    domain.memory.note_switch(leaf, capture)
    data = domain.recorder.data
    if leaf.record.requires_grad:
        capture.guard(leaf.leafness(capture.location()))
        if not wanted:
            without = domain.recorder.call(torch.Tensor.detach, (leaf,), {}, capture)
            data.replace(leaf, without, capture.mark())
            data.frozen[id(leaf)] = len(without.memory().leaves)
        elif len(leaf.memory().leaves) > data.frozen[id(leaf)]:
            what = f"requires_grad of {leaf.path}, of which there are views"  # they follow it
            data.break_before(leaf, GraphBreak(breaks.METADATA_MUTATION, what, capture.location()), capture)
        else:
            data.restore(leaf)
            del data.frozen[id(leaf)]
    else:
        _switch_on(domain, leaf, capture)
    return True


def _may_switch(domain: CallDomain, leaf: InputLeaf, capture: CaptureContext) -> bool:
    recorder, r = domain.recorder, leaf.record
    if recorder.scope is not None or recorder.checkpointed or r.inference or domain.modes.inference:
        return False
    if not (r.dtype.is_floating_point or r.dtype.is_complex) or capture.state("intercepted"):
        return False
    plain = leaf.real.is_leaf and not leaf.real._is_view() and not leaf.real._backward_hooks
    return plain and (id(leaf) in recorder.data.frozen or id(leaf) not in recorder.data.values)


def _switch_on(domain: CallDomain, leaf: InputLeaf, capture: CaptureContext) -> None:
    """The graph runs with the gradient on, so nothing may have been done to the tensor without it."""
    given = (other for step in domain.recorder.steps for other in leaves_in((step.args, step.kwargs)))
    if not leaf.is_alone() or any(other is leaf for other in given):
        raise GraphBreak(breaks.METADATA_MUTATION, f"requires_grad of {leaf.path}, used before", capture.location())
    r = leaf.record
    flags = (True, True, r.conj, r.neg, r.inference)
    leaf.record = leaf.entry = domain.fakes.records.get(r.dtype, r.device, r.sizes, r.strides, r.offset, flags)
    leaf.fake = leaf.stand_in = None


def example_of(leaf: InputLeaf, data: AssignedData) -> torch.Tensor:
    """The tensor of this call as the graph will find it."""
    real = leaf.real
    if leaf.entry is leaf.found:
        return _on_their_memory([real], [0])[0] if data.is_reassigned(leaf) else real
    return torch.nn.Parameter(real.detach()) if isinstance(real, torch.nn.Parameter) else real.detach().requires_grad_()


def preparing(target: Function, data: AssignedData, inputs: tuple[Sequence[InputLeaf], Sequence[SymLeaf]]) -> Function:
    """`target`, given its inputs as the graph needs them. `inputs`: its tensors, and the numbers before them.

    With the gradients on that the region switched on. Where the region assigns `data`, on the memory before: a backward pass may
    read the graph's inputs once more.
    """
    tensors, numbers = inputs
    switched = [len(numbers) + i for i, leaf in enumerate(tensors) if leaf.entry is not leaf.found]
    reassigned = [len(numbers) + i for i, leaf in enumerate(tensors) if data.is_reassigned(leaf)]
    if not switched and not reassigned:
        return target

    def run(*given: Raw) -> Raw:
        for place in switched:
            given[place].requires_grad_()
        return target(*(_on_their_memory(given, reassigned) if reassigned else given))

    return run


def _on_their_memory(given: Sequence[Any], places: Sequence[int]) -> list[torch.Tensor]:
    made = list(given)
    with torch.enable_grad():
        for place in places:
            made[place] = made[place].view_as(made[place])
    return made
