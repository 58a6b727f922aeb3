"""Dicts, their views and read-only windows, and the attributes of instances."""

from __future__ import annotations

import operator
import types
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

from torchjit_vm.capture import dicts, keys, packing
from torchjit_vm.capture.comparisons import compare_methods, same_or_equal
from torchjit_vm.capture.objects.set import combine_sets, compare_sets
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.set_algebra import is_set_view
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import DictValue, DictView, InstanceDict, Known, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["equal_dicts"]


def _richcompare(domain: CaptureDomain, function: Any, self: DictValue | InstanceDict, other: Value) -> Value | None:
    if function not in (operator.eq, operator.ne) or not isinstance(other, (DictValue, InstanceDict)):
        return None
    return domain.constant(equal_dicts(domain, self, other) is (function is operator.eq))


def equal_dicts(domain: CaptureDomain, left: DictValue | InstanceDict, right: DictValue | InstanceDict) -> bool:
    """`left == right` by the rules of the C classes."""
    left, right = (dicts.instance_snapshot(domain, v) if type(v) is InstanceDict else v for v in (left, right))
    if not (isinstance(left, DictValue) and isinstance(right, DictValue)):
        raise AssertionError("no dicts")
    if dicts.dict_length(domain, left) != dicts.dict_length(domain, right):
        return False
    for key, value in dicts.dict_pairs(domain, left):
        other = dicts.dict_lookup(domain, right, keys.key_of(domain, key))
        if other is None or not same_or_equal(domain, value, other):
            return False
    if issubclass(left.cls, OrderedDict) and issubclass(right.cls, OrderedDict):
        orders = [[keys.key_of(domain, k) for k, _ in dicts.dict_pairs(domain, d)] for d in (left, right)]
        return orders[0] == orders[1]
    return True


_MERGING = (OrderedDict, defaultdict)
"""Classes whose union with a dict is of the class, whichever stands on the left."""


def _binary(domain: CaptureDomain, function: Any, self: DictValue, other: Value, reflected: bool) -> Value | None:
    if function is not operator.or_ or not isinstance(other, DictValue):
        return None
    left, right = (other, self) if reflected else (self, other)
    named = left if issubclass(left.cls, _MERGING) else right
    if issubclass(named.cls, _MERGING) and named.cls not in _MERGING:
        raise domain.graph_break(UNKNOWN_OPERATION, f"{left.cls.__name__} | {right.cls.__name__}")
    made = dicts.copy_dict(domain, left)
    made.cls = named.cls if named.cls in _MERGING else dict
    made.factory = named.factory
    packing.dict_update(domain, made, right)
    return made


def _inplace(domain: CaptureDomain, function: Any, self: DictValue, other: Value) -> Value | None:
    if function is not operator.ior or self.cls is types.MappingProxyType:
        return None
    domain.vm.call(Known(dict.update), [self, other])
    return self


def _view_binary(domain: CaptureDomain, function: Any, self: DictView, other: Value, reflected: bool) -> Value | None:
    return combine_sets(domain, function, self, other, reflected) if is_set_view(self) else None


register(DictValue, TypeSlots(richcompare=_richcompare, binary=_binary, inplace=_inplace))
register(InstanceDict, TypeSlots(richcompare=_richcompare))
register(DictView, TypeSlots(richcompare=compare_sets, binary=_view_binary))
compare_methods(dict, OrderedDict)
