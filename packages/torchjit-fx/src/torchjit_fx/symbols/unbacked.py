"""Numbers that only the run knows: values read out of tensors, and what the program says about them."""

from __future__ import annotations

import operator
from typing import Any

import attrs
import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.assertions import runtime_check
from torchjit_fx.calls.call import Call, CallRule, call_rule
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.intrinsics import expect_true
from torchjit_fx.leaves import Raw, SymLeaf, TensorLeaf
from torchjit_fx.protocols import CaptureContext

__all__ = ["SHAPE_QUESTIONS", "check_is_size", "read_list", "read_number"]

_MOST_ITEMS = 1024
"""Of a `tolist()` that becomes single reads."""


def read_number(domain: CallDomain, leaf: TensorLeaf, what: str, capture: CaptureContext) -> Raw:
    """`leaf.item()` as a number of the graph.

    Raises:
        GraphBreak: the settings do not allow it, or it is complex.
    """
    known = domain.known.value(leaf, capture)
    if known is not None:
        return known
    if not domain.settings.capture_scalar_outputs or leaf.record.dtype.is_complex:
        raise GraphBreak(breaks.DATA_DEPENDENT, what, capture.location())
    return domain.recorder.call(torch.Tensor.item, (leaf,), {}, capture)


def read_list(domain: CallDomain, leaf: TensorLeaf, capture: CaptureContext) -> Raw:
    """`leaf.tolist()`."""
    sizes = leaf.record.sizes
    count = 1
    for n in sizes:
        count *= n if type(n) is int else _MOST_ITEMS + 1
    if count > _MOST_ITEMS:
        raise GraphBreak(breaks.DATA_DEPENDENT, "Tensor.tolist", capture.location())
    if not sizes:
        return read_number(domain, leaf, "Tensor.tolist", capture)
    if sizes[0] == 0:
        return []
    rows = domain.recorder.call(torch.Tensor.unbind, (leaf, 0), {}, capture)
    return [read_list(domain, row, capture) for row in rows]


@call_rule(expect_true)
def _expect_true(call: Call) -> Raw:
    """Below `torch._check`: a fact about a number of the run is tested there, and known from here on."""
    leaf = call.args[0]
    if type(leaf) is not SymLeaf or not isinstance(leaf.value, torch.SymBool):
        return leaf
    node: Any = leaf.value.node
    if node.has_hint() or node.is_constant() or call.domain.sizes.known(node.condition) is not None:
        return call.domain.truth(leaf, call.capture)
    where = call.capture.location()
    said = f"torch._check failed: {node.condition}, at {where}: {where.line().strip()}"
    call.domain.recorder.add_test(runtime_check, (leaf, said), call.capture)
    call.domain.sizes.assume(node.condition, call.capture.location())
    return True


@call_rule(torch._check_is_size)
def check_is_size(call: Call) -> Raw:
    """`torch._check_is_size(i, message=None, *, max=None)`: read as Python it warns, which would break the graph."""
    number, most = call.args[0], call.kwargs.get("max")
    if type(number) is not SymLeaf:
        if number < 0 or (most is not None and number > most):
            raise call.broken(breaks.META_FAILED, "torch._check_is_size")
        return None
    for compare, bound in ((operator.ge, 0), (operator.le, most)):
        if bound is not None:
            holds = call.do(compare, (number, bound))
            if not _expect_true(attrs.evolve(call, args=(holds,), kwargs={})):
                raise call.broken(breaks.META_FAILED, "torch._check_is_size")
    return None


def _advise_is_size(call: Call) -> Raw:
    return None  # what it tells torch's own engine follows here from the number's range


def _guard_or(default: bool) -> CallRule:
    def answer(call: Call) -> Raw:
        leaf = call.args[0]
        if type(leaf) is not SymLeaf or not isinstance(leaf.value, torch.SymBool):
            return bool(leaf) if type(leaf) is not SymLeaf else call.domain.truth(leaf, call.capture)
        node: Any = leaf.value.node
        return node._or(default)

    return answer


def _statically_known(call: Call) -> Raw:
    leaf = call.args[0]
    return leaf.value.node.statically_known_true() if type(leaf) is SymLeaf else leaf is True


SHAPE_QUESTIONS: dict[str, CallRule] = {
    "expect_true": _expect_true,
    "_advise_is_size": _advise_is_size,
    "guard_or_false": _guard_or(False),
    "guard_or_true": _guard_or(True),
    "guard_size_oblivious": _guard_or(False),
    "statically_known_true": _statically_known,
}
"""Functions of torch.fx.experimental.symbolic_shapes, by name: importing that module takes half a second."""
