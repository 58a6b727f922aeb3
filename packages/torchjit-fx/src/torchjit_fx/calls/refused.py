"""Calls that the domain owns only to refuse them with a good reason."""

from __future__ import annotations

import torch

from torchjit_fx.autograd.differentiation import make_leaf
from torchjit_fx.autograd.histories import keep_history
from torchjit_fx.autograd.required_gradients import is_refused_by_mode
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.leaves import Raw, TensorLeaf
from torchjit_fx.ownership import REFUSED

__all__ = ["refuse"]


@call_rule(torch.Tensor.backward, torch.autograd.backward)
def _refuse_backward(call: Call) -> Raw:
    """`backward()`; with `create_graph`, what was recorded so far is differentiated twice."""
    inputs = call.kwargs.get("inputs")
    keep_history(call.domain, inputs if isinstance(inputs, tuple | list) else [inputs])
    call.domain.needs_history |= True in (call.kwargs.get("create_graph"), *call.args[3:4])
    return refuse(call)


@call_rule(torch.Tensor.retain_grad)
def _refuse_retaining(call: Call) -> Raw:
    keep_history(call.domain, call.args[:1])
    return refuse(call)


def refuse(call: Call) -> Raw:
    raise call.broken(REFUSED[call.function], getattr(call.function, "__qualname__", repr(call.function)))


@call_rule(torch.Tensor.type)
def _type(call: Call) -> Raw:
    """`x.type(dtype)` is a cast; `x.type()` a string that fakes do not know."""
    if len(call.args) + len(call.kwargs) > 1:
        return NotImplemented
    return refuse(call)


@call_rule(torch.Tensor.requires_grad_)
def _requires_grad(call: Call) -> Raw:
    """`requires_grad_()`: on a tensor that the region made, or where it changes nothing, as on what a frozen layer gave."""
    wanted = call.kwargs.get("requires_grad", call.args[1] if len(call.args) > 1 else True)
    if isinstance(call.args[0], TensorLeaf) and is_refused_by_mode(call.domain, call.args[0], wanted):
        return refuse(call)
    if isinstance(call.args[0], TensorLeaf) and call.args[0].record.requires_grad is wanted:
        return call.args[0]
    if isinstance(call.args[0], TensorLeaf) and wanted is True:
        return make_leaf(call.domain, call.args[0], call.capture)
    return refuse(call)
