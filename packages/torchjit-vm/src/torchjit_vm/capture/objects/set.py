"""Sets and frozensets."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

from torchjit_vm.capture import collecting, keys, packing, runtime
from torchjit_vm.capture.atoms import is_plain
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.elements import set_entries, stored
from torchjit_vm.capture.iteration import ListIterator
from torchjit_vm.capture.keys import unhashable
from torchjit_vm.capture.members import find_member
from torchjit_vm.capture.method_tables import UNKNOWN, Method, methods
from torchjit_vm.capture.raw import constant_of, is_constant, to_raw
from torchjit_vm.capture.rebuild import Rebuilder, write_attributes
from torchjit_vm.capture.set_algebra import is_set_view, refuse_numbers, set_binary, set_keys, set_source
from torchjit_vm.capture.sets import layout_of, new_set, set_items, set_remove, set_replace, sought_key
from torchjit_vm.capture.slot_wrappers import slot_methods
from torchjit_vm.capture.special_methods import defines
from torchjit_vm.capture.subscripts import key_error
from torchjit_vm.capture.texts import guarded, joined_texts
from torchjit_vm.capture.type_slots import Op, Part, Text, TypeSlots, register
from torchjit_vm.capture.values import NEW, Const, Key, Known, Obj, SetValue, Value
from torchjit_vm.decode import SUBSETS_STOP_EARLY

__all__ = ["combine_sets", "compare_sets"]


def compare_sets(domain: CaptureDomain, function: Op, self: Value, other: Value) -> Value | None:
    """Comparisons of sets, and of the views of dicts that are like them."""
    a, b = set_keys(domain, self), set_keys(domain, other)
    if a is None or b is None:
        return None
    refuse_numbers(domain, a, b)
    return domain.constant(bool(function(a.keys(), b.keys())))


def combine_sets(domain: CaptureDomain, function: Op, self: Value, other: Value, reflected: bool) -> Value | None:
    """Operators of sets and of the views of dicts that are like them; with a view the other side may be any iterable."""
    left, right = (other, self) if reflected else (self, other)
    return set_binary(domain, function, left, right)


_IN_PLACE = {
    operator.ior: operator.or_,
    operator.iand: operator.and_,
    operator.isub: operator.sub,
    operator.ixor: operator.xor,
}


def _inplace(domain: CaptureDomain, function: Op, self: SetValue, other: Value) -> Value | None:
    if function not in _IN_PLACE or issubclass(self.cls, frozenset) or is_set_view(other):
        return None
    result = set_binary(domain, _IN_PLACE[function], self, other, in_place=True)
    if not isinstance(result, SetValue) or result.entries is None:
        return None
    set_replace(domain, self, result)
    return self


def _hash(domain: CaptureDomain, self: SetValue) -> Key:
    return frozenset(set_entries(domain, self)) if issubclass(self.cls, frozenset) else unhashable(domain, self)


def _shown(domain: CaptureDomain, value: SetValue) -> str:
    items = set_items(domain, value)
    if not items:
        return f"{value.cls.__name__}()"
    inside = f"{{{joined_texts(domain, items)}}}"
    return inside if value.cls is set else f"{value.cls.__name__}({inside})"


def _text(domain: CaptureDomain, self: SetValue, function: Text) -> str | None:
    if find_member(domain, self.cls, "__repr__").raw not in (set.__repr__, frozenset.__repr__):
        return None
    if defines(domain, self, "__iter__"):
        return None  # some versions of Python ask its iterator
    return guarded(domain, self, f"{self.cls.__name__}(...)", lambda: _shown(domain, self))


def _copy(domain: CaptureDomain, self: SetValue, part: Part, remember: Callable[[Value], None]) -> Obj:
    made = SetValue(dict(set_entries(domain, self)), self.cls)
    layout = layout_of(domain, self)
    made.layout = None if layout is None else layout.copy()
    return made


_MOST_KEYS = 200


def _growth(keys: list[Any], layout: set[Key]) -> int | None:
    """How many keys a set is given room for at once, to iterate as this one does; None if they are added in turn, or nobody knows."""
    wanted = list(layout)
    if list(set(iter(keys))) == wanted or len(keys) > _MOST_KEYS:
        return None
    return next((n for n in range(len(keys), 0, -1) if list(runtime.grown_set(keys[:n], keys[n:])) == wanted), None)


def _raw(domain: CaptureDomain, self: SetValue) -> set[Any] | frozenset[Any]:
    elements = [to_raw(domain, v) for v in set_items(domain, self)]
    return frozenset(elements) if issubclass(self.cls, frozenset) else set(elements)


def _constant(domain: CaptureDomain, self: SetValue) -> set[Any] | frozenset[Any]:
    elements = [constant_of(domain, v) for v in set_items(domain, self)]
    if issubclass(self.cls, frozenset):
        return frozenset.__new__(self.cls, elements)
    made: set[Any] = set.__new__(cast(Any, self.cls))
    set.update(made, elements)
    return made


def _is_constant(domain: CaptureDomain, self: SetValue) -> bool:
    return is_plain(domain, self) and all(is_constant(domain, v) for v in set_items(domain, self))


def _rebuild(out: Rebuilder, self: SetValue) -> str:
    entries = self.entries or {}
    items = list(entries.values())
    if self.layout is not None and self.cls in (set, frozenset):
        grown = _growth(list(entries), self.layout)
        if grown is not None:
            first, rest = out.join(items[:grown]), out.join(items[grown:])
            made = out.assign(f"{out.runtime(runtime.grown_set)}([{first}], [{rest}])")
            return made if self.cls is set else out.assign(f"{out.runtime(frozenset)}({made})")
    if self.cls is set and items:
        return out.assign("{" + out.join(items) + "}")
    if self.cls in (set, frozenset):
        return out.assign(f"{out.runtime(self.cls)}([{out.join(items)}])")
    base = "frozenset" if issubclass(self.cls, frozenset) else "set"
    arguments = f", [{out.join(items)}]" if base == "frozenset" else ""
    name = out.assign(f"{out.runtime(runtime.new)}({base}, {out.expr(Known(self.cls))}{arguments})")
    if base == "set":
        out.write(f"set.update({name}, [{out.join(items)}])")
    write_attributes(out, self, name)
    return name


def _write_back(out: Rebuilder, self: SetValue) -> None:
    if not self.changed or self.entries is None:
        return
    target = out.expr(self)
    before = set(stored(self.real))
    removed = [e for e in before if e not in self.entries]
    added = [v for k, v in self.entries.items() if k not in before]
    for element in removed:
        out.write(f"set.discard({target}, {out.literal(element)})")
    for item in added:
        out.write(f"set.add({target}, {out.expr(item)})")


# Methods of sets.


def _discard(domain: CaptureDomain, self: SetValue, element: Value) -> None:
    set_remove(domain, self, sought_key(domain, element, self))


def _remove(domain: CaptureDomain, self: SetValue, element: Value) -> None:
    key = sought_key(domain, element, self)
    if key not in set_entries(domain, self):
        raise domain.raised(key_error(domain, element))
    set_remove(domain, self, key)


def _update(domain: CaptureDomain, self: SetValue, *others: Value) -> None:
    for other in others:
        packing.set_update(domain, self, other)


def _clear(domain: CaptureDomain, self: SetValue) -> None:
    set_replace(domain, self, SetValue({}))


def _pop(domain: CaptureDomain, self: SetValue) -> Value:
    items = set_items(domain, self)
    if not items:
        raise domain.raised(key_error(domain, Const("pop from an empty set")))
    if len(items) > 1 and (self.real is NEW or self.changed):
        return UNKNOWN  # which one comes out depends on the history of the set
    found = set_entries(domain, self)
    set_remove(domain, self, next(key for key, element in found.items() if element is items[0]))
    return items[0]


def _plain(domain: CaptureDomain, self: SetValue) -> SetValue:
    """Without its subclass."""
    made = SetValue(dict(set_entries(domain, self)), frozenset if issubclass(self.cls, frozenset) else set)
    layout = layout_of(domain, self)
    made.layout = None if layout is None else layout.copy()
    return made


def _as_set(domain: CaptureDomain, value: Value) -> SetValue:
    return value if isinstance(value, SetValue) else new_set(domain, collecting.each(domain, value))


def _common(domain: CaptureDomain, self: SetValue, other: Value) -> SetValue:
    """What decides the intersection with `other`: C takes no more of an iterable when it has found all that there is."""
    if isinstance(other, SetValue):
        return other
    left = set(set_entries(domain, self))
    ends = bool(left)
    taken: list[Value] = []
    for item in collecting.each(domain, other):
        taken.append(item)
        left.discard(keys.key_of(domain, item))
        if ends and not left:
            break
    return new_set(domain, taken)


def _combining(function: Op) -> Method:
    def combine(domain: CaptureDomain, self: SetValue, *others: Value) -> Value:
        result = _plain(domain, self)
        for number, other in enumerate(others):  # past the operators of a subclass
            elements = _common(domain, result, other) if function is operator.and_ else _as_set(domain, other)
            again = number > 0 and function in (operator.or_, operator.sub)  # C goes on with its result
            result = _combined(domain, function, result if again else _plain(domain, result), other, elements, again)
        return result

    return combine


def _combined(
    domain: CaptureDomain, function: Op, left: SetValue, other: Value, elements: SetValue, in_place: bool
) -> SetValue:
    source = set_source(domain, other, elements)
    return cast(SetValue, set_binary(domain, function, left, elements, source=source, in_place=in_place))


def _changing(function: Op) -> Method:
    def change(domain: CaptureDomain, self: SetValue, *others: Value) -> None:
        for other in [_as_set(domain, v) for v in others] if function is operator.and_ else others:
            elements = _as_set(domain, other)
            set_replace(domain, self, _combined(domain, function, _plain(domain, self), other, elements, True))

    return change


def _is_subset(domain: CaptureDomain, self: SetValue, other: Value) -> Value:
    elements = _common(domain, self, other) if SUBSETS_STOP_EARLY else _as_set(domain, other)
    return domain.constant(set_entries(domain, self).keys() <= set_entries(domain, elements).keys())


def _while_among(wanted: bool) -> Method:
    """A method that takes items as long as they are in the set, or are not."""

    def relate(domain: CaptureDomain, self: SetValue, other: Value) -> Value:
        mine = set_entries(domain, self)
        others = set_items(domain, other) if isinstance(other, SetValue) else collecting.each(domain, other)
        return domain.constant(all((keys.key_of(domain, v) in mine) is wanted for v in others))

    return relate


def _one(function: Method) -> Method:
    """A method of several sets that takes one."""
    return lambda domain, self, other: function(domain, self, other)


for _cls in (set, frozenset):
    methods(
        SetValue,
        _cls,
        copy=_plain,
        union=_combining(operator.or_),
        intersection=_combining(operator.and_),
        difference=_combining(operator.sub),
        symmetric_difference=_one(_combining(operator.xor)),
        issubset=_is_subset,
        issuperset=_while_among(True),
        isdisjoint=_while_among(False),
    )
methods(
    SetValue,
    set,
    add=lambda domain, self, item: packing.set_add(domain, self, item),
    discard=_discard,
    remove=_remove,
    update=_update,
    clear=_clear,
    pop=_pop,
    intersection_update=_changing(operator.and_),
    difference_update=_changing(operator.sub),
    symmetric_difference_update=_one(_changing(operator.xor)),
)
register(
    SetValue,
    TypeSlots(
        richcompare=compare_sets,
        binary=combine_sets,
        inplace=_inplace,
        length=lambda domain, self: len(set_entries(domain, self)),
        iter=lambda domain, self: ListIterator(set_items(domain, self), self),
        contains=lambda domain, self, item: domain.constant(
            sought_key(domain, item, self) in set_entries(domain, self)
        ),
        hash=_hash,
        text=_text,
        copy=_copy,
        raw=_raw,
        is_constant=_is_constant,
        constant=_constant,
        rebuild=_rebuild,
        write_back=_write_back,
    ),
)
slot_methods(set, frozenset)
