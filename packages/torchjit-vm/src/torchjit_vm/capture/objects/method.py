"""Bound methods, and `super` objects."""

from __future__ import annotations

import operator
import types

from torchjit_vm.capture.attributes import bind, load_attr
from torchjit_vm.capture.comparisons import is_, same_or_equal
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.members import CLASS, IMMUTABLE_TYPE, Member, member_value, walk
from torchjit_vm.capture.reading import constant_object, pinned
from torchjit_vm.capture.reasons import UNHASHABLE
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.type_slots import Op, TypeSlots, register
from torchjit_vm.capture.values import BoundMethod, FunctionValue, Key, Known, SuperValue, Value
from torchjit_vm.frame import Frame

__all__: list[str] = []


def _method_attr(domain: CaptureDomain, self: BoundMethod, name: str) -> Value | Frame[Value]:
    own = {"__self__": self.self_, "__func__": self.function}.get(name)
    return load_attr(domain, self.function, name) if own is None else own


_INIT_SUBCLASS = object.__dict__["__init_subclass__"]


def _super_attr(domain: CaptureDomain, self: SuperValue, name: str) -> Value | Frame[Value]:
    if name == "__class__":  # C's own lookup leaves it out
        return Known(super)
    mro = self.owner.__mro__
    domain.guard_mro(self.owner)
    for owner in mro[mro.index(self.cls) + 1 :]:
        if not owner.__flags__ & IMMUTABLE_TYPE:
            domain.guard_class(owner, name, walk(owner.__mro__, name))
        if name in owner.__dict__:
            return _inherited(domain, self, Member(owner, name, owner.__dict__[name]))
    if name == "__self__":
        return self.self_
    if name in ("__thisclass__", "__self_class__"):
        return pinned(domain, self.cls if name == "__thisclass__" else self.owner, name)
    raise domain.error(AttributeError, f"'super' object has no attribute '{name}'")


def _inherited(domain: CaptureDomain, self: SuperValue, member: Member) -> Value | Frame[Value]:
    of_c = type(member.raw) is types.ClassMethodDescriptorType
    if of_c and member.raw is not _INIT_SUBCLASS and member.raw not in domain.policy.substitutes:
        return constant_object(domain, member.raw.__get__(None, self.owner))
    if of_c or member.kind == CLASS:
        return BoundMethod(member_value(domain, member), Known(self.owner))
    if isinstance(self.self_, Known) and self.self_.obj is self.owner:
        return member_value(domain, member)
    return bind(domain, member, self.self_)


def _richcompare(domain: CaptureDomain, function: Op, self: BoundMethod, other: Value) -> Value | None:
    if type(other) is not BoundMethod or function not in (operator.eq, operator.ne):
        return None
    equal = is_(domain, self.self_, other.self_) and same_or_equal(domain, self.function, other.function)
    return domain.constant(equal is (function is operator.eq))


def _hash(domain: CaptureDomain, self: BoundMethod) -> Key:
    raise domain.graph_break(UNHASHABLE, "a bound method")


def _rebuild(out: Rebuilder, self: BoundMethod) -> str:
    function, self_ = out.expr(self.function), out.expr(self.self_)
    if isinstance(self.function, FunctionValue) or hasattr(getattr(self.function, "obj", None), "__get__"):
        # CPython 3.11 crashes when the C methods of some heap types are bound without the type.
        return out.assign(f"{function}.__get__({self_}, type({self_}))")
    return out.assign(f"{out.runtime(types.MethodType)}({function}, {self_})")


def _rebuild_super(out: Rebuilder, self: SuperValue) -> str:
    return out.assign(f"{out.runtime(super)}({out.expr(Known(self.cls))}, {out.expr(self.self_)})")


register(
    BoundMethod,
    TypeSlots(
        getattribute=_method_attr,
        richcompare=_richcompare,
        hash=_hash,
        type_of=lambda domain, self: types.MethodType,
        rebuild=_rebuild,
    ),
)
register(SuperValue, TypeSlots(getattribute=_super_attr, type_of=lambda domain, self: super, rebuild=_rebuild_super))
