"""Constants, and instances of classes derived from str, int, float, complex and bytes."""

from __future__ import annotations

import operator

from torchjit_core.paths import Pinned
from torchjit_vm.capture import runtime
from torchjit_vm.capture.atoms import base_of, is_plain
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.iteration import ListIterator, RangeIterator, SequenceIterator
from torchjit_vm.capture.lengths import truth
from torchjit_vm.capture.members import DESCRIPTOR, SLOT, Member
from torchjit_vm.capture.mirrors import operation
from torchjit_vm.capture.objects.instance import real_object
from torchjit_vm.capture.operators import RICH, as_tuple
from torchjit_vm.capture.raw import to_raw
from torchjit_vm.capture.reading import constant_object
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.rebuild import Rebuilder, write_attributes
from torchjit_vm.capture.sets import note_order, sought_key
from torchjit_vm.capture.special_methods import compute, is_not_implemented, settled
from torchjit_vm.capture.subscripts import getitem
from torchjit_vm.capture.type_slots import Op, TypeSlots, register
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import NEW, AtomObject, Const, Known, Leaf, Mirror, SliceValue, TupleValue, Value
from torchjit_vm.type_labels import type_label

__all__ = ["compare_real"]


def compare_real(domain: CaptureDomain, function: Op, self: Const | Known, other: Value) -> Value | None:
    if type(other) in (Const, Known):
        return compute(domain, function, to_raw(domain, self), to_raw(domain, other))
    return _compare_plain(domain, function, self, base_of(other)) if type(other) is AtomObject else None


def _compare_atom(domain: CaptureDomain, function: Op, self: AtomObject, other: Value) -> Value | None:
    plain = base_of(other) if type(other) is AtomObject else other
    return _compare_plain(domain, function, base_of(self), plain)


def _compare_plain(domain: CaptureDomain, function: Op, self: Const | Known, other: Value) -> Value | None:
    """By the method of the plain type, which knows nothing of the classes derived from it."""
    if type(other) not in (Const, Known):
        return None
    real = to_raw(domain, self)
    result = compute(domain, getattr(type(real), RICH[function][0]), real, to_raw(domain, other))
    return None if is_not_implemented(result) else result


def _repeat(domain: CaptureDomain, self: Const, count: int) -> Value:
    return compute(domain, operator.mul, domain.use(self), count)


def _length(domain: CaptureDomain, self: Const) -> int:
    real = domain.use(self)
    compute(domain, len, real)  # it may raise
    return len(real)


def _iter(domain: CaptureDomain, self: Const) -> Value:
    real = self.value
    if isinstance(real, range):
        return RangeIterator(domain.use(self))
    if isinstance(real, frozenset):
        note_order(domain, real)
    if isinstance(real, (str, bytes, frozenset)):
        return ListIterator([Const(c) for c in domain.use(self)])
    if isinstance(real, tuple):
        return SequenceIterator(TupleValue([Const(c) for c in domain.use(self)]))
    raise domain.error(TypeError, f"'{type_label(type(real))}' object is not iterable")


def _contains(domain: CaptureDomain, self: Const, item: Value) -> Value | None:
    if isinstance(item, Const):
        return compute(domain, operator.contains, domain.use(self), domain.use(item))
    if type(item) is Mirror and isinstance(self.value, (str, bytes)):
        return operation(domain, operator.contains, self, item)
    if not isinstance(self.value, (str, bytes, frozenset)):
        return None
    known, cls = domain.use(self), type_of(domain, item)
    if isinstance(known, frozenset):
        return domain.constant(sought_key(domain, item, None) in known)
    if issubclass(cls, (str, bytes, int)) or type(item) is Leaf:
        raise domain.graph_break(UNKNOWN_OPERATION, f"{cls.__name__} in {type(known).__name__}")
    if isinstance(known, str):
        raise domain.error(TypeError, f"'in <string>' requires string as left operand, not {type_label(cls)}")
    raise domain.error(TypeError, f"a bytes-like object is required, not '{type_label(cls)}'")


def _getitem(domain: CaptureDomain, self: Const, key: Value) -> Value:
    if type(self.value) is tuple:
        return getitem(domain, as_tuple(self), key)
    if not hasattr(type(self.value), "__getitem__"):
        raise domain.error(TypeError, f"'{type_label(type(self.value))}' object is not subscriptable")
    key = settled(domain, key)
    index = key if isinstance(key, (Const, SliceValue)) else Const(domain.index(key))
    return compute(domain, operator.getitem, domain.use(self), to_raw(domain, index))


def _type(domain: CaptureDomain, self: Const) -> type:
    if not self.used and self.path is not None:
        domain.guard_type(self.path, type(self.value))
    return type(self.value)


register(
    Const,
    TypeSlots(
        richcompare=compare_real,
        repeat=_repeat,
        length=_length,
        iter=_iter,
        contains=_contains,
        getitem=_getitem,
        type_of=_type,
        raw=lambda domain, self: domain.use(self),
        is_constant=lambda domain, self: True,
        has_leaf=lambda self: self.made is not None and not self.used,
    ),
)


def _getattr(domain: CaptureDomain, self: AtomObject, member: Member) -> Value | None:
    """Of the plain value: `real`, `denominator`."""
    if member.kind in (SLOT, DESCRIPTOR) or member.name == "__weakref__":
        return None
    return constant_object(domain, getattr(domain.use(base_of(self)), member.name))


def _raw(domain: CaptureDomain, self: AtomObject) -> object:
    """The plain value; one that is settled as it is."""
    settled_object = self.real is not NEW and type(self.path) is Pinned
    return real_object(domain, self) if settled_object else domain.use(base_of(self))


def _rebuild(out: Rebuilder, self: AtomObject) -> str:
    plain = base_of(self)
    made = f"{type(plain.value).__name__}, {out.expr(Known(self.cls))}, {out.expr(plain)}"
    name = out.assign(f"{out.runtime(runtime.new)}({made})")
    write_attributes(out, self, name)
    return name


register(
    AtomObject,
    TypeSlots(
        richcompare=_compare_atom,
        bool=lambda domain, self: truth(domain, base_of(self)),
        iter=lambda domain, self: _iter(domain, base_of(self)),
        getattr=_getattr,
        raw=_raw,
        is_constant=is_plain,
        rebuild=_rebuild,
        copy=lambda domain, self, part, remember: AtomObject(base_of(self), self.cls),
    ),
)
