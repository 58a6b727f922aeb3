"""Sets and frozensets."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torchjit_vm.capture import keys
from torchjit_vm.capture.comparisons import compare_methods
from torchjit_vm.capture.set_algebra import is_set_view, set_binary, set_keys
from torchjit_vm.capture.sets import set_replace
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import SetValue, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["combine_sets", "compare_sets"]


def compare_sets(domain: CaptureDomain, function: Any, self: Value, other: Value) -> Value | None:
    """Comparisons of sets, and of the views of dicts that are like them."""
    a, b = set_keys(domain, self), set_keys(domain, other)
    if a is None or b is None:
        return None
    if domain.has_numbers:
        keys.refuse_numbers(domain, a, b)
        keys.refuse_numbers(domain, b, a)
    return domain.constant(bool(function(a.keys(), b.keys())))


def combine_sets(domain: CaptureDomain, function: Any, self: Value, other: Value, reflected: bool) -> Value | None:
    """Operators of sets and of the views of dicts that are like them; with a view the other side may be any iterable."""
    left, right = (other, self) if reflected else (self, other)
    return set_binary(domain, function, left, right)


_IN_PLACE = {
    operator.ior: operator.or_,
    operator.iand: operator.and_,
    operator.isub: operator.sub,
    operator.ixor: operator.xor,
}


def _inplace(domain: CaptureDomain, function: Any, self: SetValue, other: Value) -> Value | None:
    if function not in _IN_PLACE or issubclass(self.cls, frozenset) or is_set_view(other):
        return None
    result = set_binary(domain, _IN_PLACE[function], self, other, in_place=True)
    if not isinstance(result, SetValue) or result.entries is None:
        return None
    set_replace(domain, self, result)
    return self


register(SetValue, TypeSlots(richcompare=compare_sets, binary=combine_sets, inplace=_inplace))
compare_methods(set, frozenset)
