"""Instances of classes of C whose state is their attributes: what their methods do, in place of slots of a kind of their own."""

from __future__ import annotations

import operator
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture.builtin_table import method
from torchjit_vm.capture.comparisons import compare, is_
from torchjit_vm.capture.keys import object_key
from torchjit_vm.capture.objects.dict import equal_dicts
from torchjit_vm.capture.reasons import REBUILD, UNKNOWN_CALL
from torchjit_vm.capture.rebuild_objects import object_expr
from torchjit_vm.capture.type_slots import Part, TypeSlots, register
from torchjit_vm.capture.values import Const, InstanceDict, Obj, Value
from torchjit_vm.capture.weak_references import is_reference, referent

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain
    from torchjit_vm.capture.rebuild import Rebuilder

__all__: list[str] = []

_EQUALITY = {"__eq__": operator.eq, "__ne__": operator.ne}


def _compare_namespaces(function: Any) -> Any:
    def run(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self, other = args
        if not (isinstance(self, Obj) and isinstance(other, Obj) and issubclass(other.cls, types.SimpleNamespace)):
            return Const(NotImplemented)
        return domain.constant(
            equal_dicts(domain, InstanceDict(self), InstanceDict(other)) is (function is operator.eq)
        )

    return run


def _compare_references(function: Any) -> Any:
    def run(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self, other = args
        if not (isinstance(self, Obj) and isinstance(other, Obj) and is_reference(self) and is_reference(other)):
            return Const(NotImplemented)
        targets = [referent(domain, v) for v in (self, other)]
        if targets[0] is not None and targets[1] is not None:
            return compare(domain, function, targets[0], targets[1])
        return domain.constant(is_(domain, self, other) is (function is operator.eq))

    return run


def _copy(domain: CaptureDomain, self: Obj, part: Part, remember: Callable[[Value], None]) -> Obj:
    if type(self) is not Obj:
        raise domain.graph_break(UNKNOWN_CALL, "copy of an object with its own rules")
    made = Obj(self.cls)
    remember(made)
    return made


def _rebuild(out: Rebuilder, self: Obj) -> str:
    if type(self) is not Obj:  # a kind that does not say how
        raise GraphBreak(REBUILD, self.cls.__name__, out.domain.location())
    return object_expr(out, self)


register(Obj, TypeSlots(hash=object_key, copy=_copy, rebuild=_rebuild))
for _name, _function in _EQUALITY.items():
    method(_name, types.SimpleNamespace)(_compare_namespaces(_function))
    method(_name, weakref.ReferenceType)(_compare_references(_function))
