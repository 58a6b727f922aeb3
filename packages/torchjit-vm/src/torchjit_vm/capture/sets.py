"""Sets: their order, searched and changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from torchjit_core.paths import Pinned
from torchjit_core.storing import never_stored
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.elements import set_entries
from torchjit_vm.capture.keys import is_number, key_of, note_stored, settle_key
from torchjit_vm.capture.reasons import SET_ORDER
from torchjit_vm.capture.values import NEW, HashKey, IdKey, Key, Ref, SetValue, Value, WeakKey

__all__ = [
    "is_ordered",
    "layout_of",
    "new_set",
    "note_order",
    "set_insert",
    "set_items",
    "set_remove",
    "set_replace",
    "sought_key",
]


def sought_key(domain: CaptureDomain, value: Value, container: SetValue | None) -> object:
    """The key that a set (None: a constant one) is searched for; a set is taken for the frozenset of its elements."""
    if isinstance(value, SetValue) and not issubclass(value.cls, frozenset):
        value = SetValue(dict(set_entries(domain, value)), frozenset)
    key = key_of(domain, value)
    if container is None:
        return settle_key(domain, key)
    if container.real is not NEW or (domain.has_numbers and is_number(key)):
        return settle_key(domain, key, set_entries(domain, container))
    return key


def set_items(domain: CaptureDomain, value: SetValue) -> list[Value]:
    """The elements in the order of iteration, which depends on their hashes."""
    entries = set_entries(domain, value)
    if not (value.layout is None and value.real is NEW and _guard_texts(domain, entries)):
        note_order(domain, entries)
    if not value.changed and value.real is not NEW:
        if value.path is not None:
            domain.guard_order(value.path, value.real)
        return list(entries.values())
    layout = layout_of(domain, value)
    return list(entries.values()) if layout is None else [entries[key] for key in layout]


_FEW = 3


def _guard_texts(domain: CaptureDomain, keys: Collection[object]) -> bool:
    """Rely on the order in which a set of a few texts, put in one by one, iterates in this process. Of few there are so few orders that
    the entries of some processes serve all others (`set(config.layer_types)` in transformers)."""
    if not 1 < len(keys) <= _FEW or not all(type(key) is str for key in keys):
        return False
    added = list(keys)
    expected = list(set(iter(added)))
    text = f"list(set({added!r})) == {expected!r}"
    domain.guard_test(("order", *added), Pinned.of(set, "set"), lambda _: list(set(iter(added))) == expected, text)
    return True


def note_order(domain: CaptureDomain, keys: Collection[object]) -> None:
    """The order of these elements of a set is part of what is computed."""
    if len(keys) > 1 and not all(map(_hashes_alike, keys)):
        frames = domain.vm.frames
        if frames and frames[-1].code.code in domain.policy.order_free:
            return
        never_stored(SET_ORDER, f"{len(keys)} elements")


def _hashes_alike(key: object) -> bool:
    """Has it the same hash in every process?"""
    if type(key) is tuple:
        return all(map(_hashes_alike, key))
    return type(key) in (int, bool, float, complex)


def is_ordered(keys: Iterable[object]) -> bool:
    """Is the order of a set of these keys settled? What is hashed by its identity has none that a program could rely on."""
    return not any(type(key) in (Ref, HashKey, IdKey, WeakKey) for key in keys)


def layout_of(domain: CaptureDomain, value: SetValue) -> set[Key] | None:
    """A set of the keys that iterates as the set does, if there is one (`is_ordered`)."""
    if value.layout is None:
        entries = set_entries(domain, value)
        if not is_ordered(entries):
            return None
        if value.real is not NEW and value.path is not None:
            domain.guard_order(value.path, value.real)
        return set(iter(entries))  # one by one: a dict as a whole would be given room first
    return value.layout


def _set_change(domain: CaptureDomain, value: SetValue) -> dict[Key, Value]:
    """The elements of a set that is about to change. What changes them keeps `layout` up to it, or drops it."""
    found = set_entries(domain, value)
    domain.touch(value)
    value.changed = True
    return found


def new_set(domain: CaptureDomain, values: Iterable[Value], cls: type = set) -> SetValue:
    """A set of these elements: of equal ones the first."""
    made: dict[Key, Value] = {}
    for value in values:
        key = key_of(domain, value)
        made.setdefault(key, value)
        note_stored(key)
    return SetValue(made, cls)


def set_insert(domain: CaptureDomain, value: SetValue, key: object, element: Value) -> None:
    """Add an element."""
    found = _set_change(domain, value)
    if value.real is not NEW and type(key) is IdKey:
        key = settle_key(domain, key, found)
    found.setdefault(key, element)
    note_stored(key)
    if value.layout is not None:
        if is_ordered((key,)):
            value.layout.add(key)
        else:
            value.layout = None


def set_remove(domain: CaptureDomain, value: SetValue, key: object) -> None:
    """Take an element out; its place stays taken for those that come later."""
    if value.layout is None:
        value.layout = layout_of(domain, value)
    _set_change(domain, value).pop(key, None)
    if value.layout is not None:
        value.layout.discard(key)


def set_replace(domain: CaptureDomain, value: SetValue, result: SetValue) -> None:
    """Give a set the elements of another one that nobody else has."""
    found, kept = _set_change(domain, value), dict(result.entries or {})
    found.clear()
    found.update(kept)
    value.layout = result.layout
