"""Python's conversions and arithmetic, of tensors and of numbers that vary."""

from __future__ import annotations

import operator

import torch

from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.calls.refused import refuse
from torchjit_fx.leaves import Raw, SymLeaf, TensorLeaf
from torchjit_fx.symbols.arithmetic import ARITHMETIC
from torchjit_fx.symbols.unbacked import read_list, read_number
from torchjit_fx.unit_interval import decided

__all__ = ["arithmetic"]


@call_rule(int, float, bool, complex, float.__float__, operator.index, operator.truth, operator.not_)
def _number(call: Call) -> Raw:
    """Python's own conversions: of tensors they read data, of symbolic numbers the domain decides."""
    number = call.args[0]
    if isinstance(number, TensorLeaf):
        known = decided(number) if call.function in (bool, operator.truth, operator.not_) else None
        if known is not None:
            return known is not (call.function is operator.not_)
        if call.function is complex:
            raise call.broken(breaks.DATA_DEPENDENT, f"{call.name}() of a tensor")
        number = read_number(call.domain, number, f"{call.name}() of a tensor", call.capture)
        if type(number) in (int, float, bool):
            return call.function(number)
    if isinstance(number, SymLeaf):
        return call.domain.numbers.convert(call.function, number, lambda f, a: call.record(f, a))
    return NotImplemented


@call_rule(torch.Tensor.item)
def _item(call: Call) -> Raw:
    if len(call.args) == 1 and isinstance(call.args[0], TensorLeaf):
        return read_number(call.domain, call.args[0], f"Tensor.{call.name}", call.capture)
    return refuse(call)


@call_rule(torch.Tensor.tolist)
def _tolist(call: Call) -> Raw:
    if len(call.args) == 1 and isinstance(call.args[0], TensorLeaf):
        known = call.domain.known.tensor(call.args[0], call.capture)
        if known is not None:
            return known.tolist()
        if call.domain.settings.capture_scalar_outputs:
            return read_list(call.domain, call.args[0], call.capture)
    return refuse(call)


@call_rule(*ARITHMETIC - {operator.eq, operator.ne})
def arithmetic(call: Call) -> Raw:
    """Python arithmetic on numbers of which one is a float that varies: no tensor is involved, so no fake is asked."""
    if call.kwargs or not any(type(a) is SymLeaf and isinstance(a.value, torch.SymFloat) for a in call.args):
        return NotImplemented
    if not all(type(a) in (SymLeaf, int, float, bool) for a in call.args):
        return NotImplemented
    return call.domain.arithmetic(call.function, call.args, call.capture)
