"""Assignments to attributes of tensors: `t.grad = g`, `t.data = other`, `t.requires_grad = True`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torchjit_fx.autograd.differentiation import make_leaf
from torchjit_fx.autograd.required_gradients import is_refused_by_mode, switch
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.leaves import InputLeaf, TensorLeaf
from torchjit_fx.properties import may_be_gradient
from torchjit_fx.protocols import CaptureContext

__all__ = ["SETTERS"]


def _set_grad(domain: CallDomain, leaf: TensorLeaf, value: object, capture: CaptureContext) -> bool | None:
    if not isinstance(leaf, InputLeaf) or not may_be_gradient(leaf, value):
        return None
    if leaf.record.requires_grad:
        capture.guard(leaf.leafness(capture.location()))
    return True


def _set_data(domain: CallDomain, leaf: TensorLeaf, value: object, capture: CaptureContext) -> bool | None:
    if not isinstance(leaf, InputLeaf):
        domain.recorder.changes_at_break(leaf)
        return None
    if domain.recorder.data.has_already(leaf, value):
        return False
    domain.recorder.assign_data(leaf, value, capture)
    return True


def _set_requires_grad(domain: CallDomain, leaf: TensorLeaf, value: object, capture: CaptureContext) -> bool | None:
    required = leaf.record.requires_grad
    if value is True and required and (not leaf.record.is_leaf or is_refused_by_mode(domain, leaf, value)):
        return None  # eager refuses the former, unlike `requires_grad_()`
    if isinstance(leaf, InputLeaf) and type(value) is bool:
        if value and required:
            capture.guard(leaf.leafness(capture.location()))
        return switch(domain, leaf, value, capture)
    if isinstance(leaf, InputLeaf) or type(value) is not bool:
        return None
    if required is not value:
        if not value:
            return None
        make_leaf(domain, leaf, capture)
    return False


SETTERS: Final[dict[str, Callable[[CallDomain, TensorLeaf, object, CaptureContext], bool | None]]] = {
    "grad": _set_grad,
    "data": _set_data,
    "requires_grad": _set_requires_grad,
}
"""Of the attributes that may be set: is the interpreter to store the value at the region's end? None: the graph breaks."""
