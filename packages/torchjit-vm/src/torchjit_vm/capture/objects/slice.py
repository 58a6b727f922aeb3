"""`slice` objects."""

from __future__ import annotations

from torchjit_vm.capture.comparisons import compare
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.keys import unhashable
from torchjit_vm.capture.members import Member
from torchjit_vm.capture.raw import has_leaf, is_constant, to_raw
from torchjit_vm.capture.reasons import UNHASHABLE
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.slot_wrappers import slot_methods
from torchjit_vm.capture.texts import joined_texts
from torchjit_vm.capture.type_slots import Op, Text, TypeSlots, register
from torchjit_vm.capture.values import Key, SliceValue, TupleValue, Value
from torchjit_vm.decode import VERSION

__all__: list[str] = []


def _richcompare(domain: CaptureDomain, function: Op, self: SliceValue, other: Value) -> Value | None:
    if type(other) is not SliceValue:
        return None
    parts = [TupleValue(_parts(s)) for s in (self, other)]
    return compare(domain, function, parts[0], parts[1])


def _hash(domain: CaptureDomain, self: SliceValue) -> Key:
    if VERSION >= (3, 12):
        raise domain.graph_break(UNHASHABLE, "a slice")
    return unhashable(domain, self)


def _getattr(domain: CaptureDomain, self: SliceValue, member: Member) -> Value | None:
    found: Value | None = getattr(self, member.name) if member.name in SliceValue.__slots__ else None
    return found


def _text(domain: CaptureDomain, self: SliceValue, function: Text) -> str:
    return f"slice({joined_texts(domain, _parts(self))})"


def _rebuild(out: Rebuilder, self: SliceValue) -> str:
    return out.assign(f"slice({out.join(_parts(self))})")


def _parts(self: SliceValue) -> list[Value]:
    return [self.start, self.stop, self.step]


register(
    SliceValue,
    TypeSlots(
        richcompare=_richcompare,
        getattr=_getattr,
        hash=_hash,
        text=_text,
        type_of=lambda domain, self: slice,
        raw=lambda domain, self: slice(*(to_raw(domain, v) for v in _parts(self))),
        is_constant=lambda domain, self: all(is_constant(domain, v) for v in _parts(self)),
        has_leaf=lambda self: any(map(has_leaf, _parts(self))),
        rebuild=_rebuild,
    ),
)
slot_methods(slice)
