"""The border to the leaf handler: values to raw objects and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.policy import NewObject
from torchjit_vm.capture.reading import MADE_ATOMS, pinned
from torchjit_vm.capture.reasons import OPAQUE_OBJECT
from torchjit_vm.capture.type_slots import SLOTS
from torchjit_vm.capture.values import Const, DictValue, Leaf, ListValue, SetValue, SliceValue, TupleValue, Value

__all__ = ["constant_of", "from_raw", "has_leaf", "is_constant", "no_raw_form", "to_raw"]


def to_raw(domain: CaptureDomain, value: Value) -> Any:
    """Constants as themselves, leaves as payloads, containers rebuilt.

    Raises:
        GraphBreak: the value has no raw form.
    """
    slot = SLOTS[type(value)].raw
    if slot is None:
        raise no_raw_form(domain, value)
    return slot(domain, value)


def no_raw_form(domain: CaptureDomain, value: Value) -> GraphBreak:
    return domain.graph_break(OPAQUE_OBJECT, getattr(value, "cls", type(value)).__name__)


def from_raw(domain: CaptureDomain, raw: Any) -> Value:
    """Wrap what the leaf handler gave back."""
    t = type(raw)
    if t in domain.leaves.leaf_types:
        found = domain.payloads.get(id(raw))
        if found is None:
            found = domain.payloads[id(raw)] = Leaf(raw)
        return found
    if t in MADE_ATOMS or t in domain.policy.value_types:
        return Const(raw)
    for kinds, make in _CONTAINERS:
        if isinstance(raw, kinds):
            return make(domain, raw)
    return pinned(domain, raw, getattr(raw, "__name__", t.__name__))


def _each(domain: CaptureDomain, raw: Iterable[object]) -> list[Value]:
    return [from_raw(domain, r) for r in raw]


def _new_object(domain: CaptureDomain, raw: NewObject) -> Value:
    items = _each(domain, raw.items)
    return TupleValue(items, raw.type) if issubclass(raw.type, tuple) else ListValue(items, raw.type)


def _dict(domain: CaptureDomain, raw: dict[Any, object]) -> Value:
    made = DictValue(type(raw))
    made.entries = {key: (from_raw(domain, key), from_raw(domain, item)) for key, item in raw.items()}
    return made


_CONTAINERS: tuple[tuple[Any, Callable[[CaptureDomain, Any], Value]], ...] = (
    (NewObject, _new_object),
    (tuple, lambda domain, raw: TupleValue(_each(domain, raw), type(raw))),
    (list, lambda domain, raw: ListValue(_each(domain, raw), type(raw))),
    (dict, _dict),
    ((set, frozenset), lambda domain, raw: SetValue(dict(zip(raw, _each(domain, raw), strict=True)), type(raw))),
    (slice, lambda domain, raw: SliceValue(*_each(domain, (raw.start, raw.stop, raw.step)))),
)


def has_leaf(value: Value) -> bool:
    """Is the value a leaf, or a loaded container with one?"""
    slot = SLOTS[type(value)].has_leaf
    return slot is not None and slot(value)


def is_constant(domain: CaptureDomain, value: Value) -> bool:
    """Can the value be computed with at capture?"""
    slot = SLOTS[type(value)].is_constant
    return slot is not None and slot(domain, value)


def constant_of(domain: CaptureDomain, value: Value) -> Any:
    """The real object of a constant (see `is_constant`), containers rebuilt, each of its class."""
    slot = SLOTS[type(value)].constant
    return to_raw(domain, value) if slot is None else slot(domain, value)
