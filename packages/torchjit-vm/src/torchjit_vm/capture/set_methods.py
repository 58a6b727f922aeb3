"""Methods of set and frozenset."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, cast

from torchjit_vm.capture import collecting, elements, keys, packing, sets, subscripts
from torchjit_vm.capture.builtin_table import method, method_of
from torchjit_vm.capture.set_algebra import set_binary, set_source
from torchjit_vm.capture.type_slots import Op
from torchjit_vm.capture.values import NEW, Const, SetValue, Value
from torchjit_vm.decode import SUBSETS_STOP_EARLY

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

_Args = list[Value]
_Kwargs = dict[str, Value]


@method_of(SetValue, "add", set)
def _add(domain: CaptureDomain, own: SetValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    packing.set_add(domain, own, args[0])
    return Const(None)


@method_of(SetValue, "discard", set)
def _discard(domain: CaptureDomain, own: SetValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    key = sets.sought_key(domain, args[0], own)
    sets.set_remove(domain, own, key)
    return Const(None)


@method_of(SetValue, "remove", set)
def _remove(domain: CaptureDomain, own: SetValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    key = sets.sought_key(domain, args[0], own)
    if key not in elements.set_entries(domain, own):
        raise domain.raised(subscripts.key_error(domain, args[0]))
    sets.set_remove(domain, own, key)
    return Const(None)


@method_of(SetValue, "update", set)
def _update(domain: CaptureDomain, own: SetValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    for other in args:
        packing.set_update(domain, own, other)
    return Const(None)


@method_of(SetValue, "clear", set)
def _clear(domain: CaptureDomain, own: SetValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    sets.set_replace(domain, own, SetValue({}))
    return Const(None)


@method_of(SetValue, "copy", set, frozenset)
def _copy(domain: CaptureDomain, own: SetValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    return _plain(domain, own)


def _as_set(domain: CaptureDomain, value: Value) -> SetValue:
    if isinstance(value, SetValue):
        return value
    return sets.new_set(domain, collecting.each(domain, value))


def _common(domain: CaptureDomain, mine: Value, other: Value) -> SetValue:
    """What decides the intersection with `other`: C takes no more of an iterable when it has found all that there is."""
    if isinstance(other, SetValue):
        return other
    wanted = len(elements.set_entries(domain, _as_set(domain, mine)))
    left = set(elements.set_entries(domain, _as_set(domain, mine)))
    taken: list[Value] = []
    for item in collecting.each(domain, other):
        taken.append(item)
        left.discard(keys.key_of(domain, item))
        if wanted and not left:
            break
    return sets.new_set(domain, taken)


def _combination(name: str, function: Op) -> None:
    @method(name, set, frozenset)
    def combine(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        result: Value = args[0]
        if len(args) == 1:
            return _plain(domain, args[0])
        for number, other in enumerate(args[1:]):  # past the operators of a subclass
            elements = _common(domain, result, other) if function is operator.and_ else _as_set(domain, other)
            source = set_source(domain, other, elements)
            again = number > 0 and function in (operator.or_, operator.sub)  # C goes on with its result
            left = result if again else _plain(domain, result)
            result = cast(Value, set_binary(domain, function, left, elements, source=source, in_place=again))
        return result


_combination("union", operator.or_)
_combination("intersection", operator.and_)
_combination("difference", operator.sub)
_combination("symmetric_difference", operator.xor)


@method_of(SetValue, "issubset", set, frozenset)
def _issubset(domain: CaptureDomain, own: SetValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    other = _common(domain, own, args[0]) if SUBSETS_STOP_EARLY else _as_set(domain, args[0])
    mine = elements.set_entries(domain, _as_set(domain, own))
    return domain.constant(mine.keys() <= elements.set_entries(domain, other).keys())


def _decided_by_one(name: str, wanted: bool) -> None:
    """A method that takes items as long as they are in the set, or are not."""

    @method(name, set, frozenset)
    def relate(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        mine = elements.set_entries(domain, _as_set(domain, args[0]))
        given = args[1]
        others = sets.set_items(domain, given) if isinstance(given, SetValue) else collecting.each(domain, given)
        return domain.constant(all((keys.key_of(domain, v) in mine) is wanted for v in others))


_decided_by_one("issuperset", wanted=True)
_decided_by_one("isdisjoint", wanted=False)


@method_of(SetValue, "pop", set)
def _pop(domain: CaptureDomain, own: SetValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    items = sets.set_items(domain, own)
    if not items:
        raise domain.raised(subscripts.key_error(domain, Const("pop from an empty set")))
    if len(items) > 1 and (own.real is NEW or own.changed):
        return None  # which one comes out depends on the history of the set
    found = elements.set_entries(domain, own)
    sets.set_remove(domain, own, next(key for key, element in found.items() if element is items[0]))
    return items[0]


def _in_place(name: str, function: Op) -> None:
    @method_of(SetValue, name, set)
    def combine(domain: CaptureDomain, target: SetValue, args: _Args, kwargs: _Kwargs) -> Value | None:
        others = [_as_set(domain, a) for a in args] if function is operator.and_ else args
        for other in others:
            elements = _as_set(domain, other)
            source = set_source(domain, other, elements)
            found = set_binary(domain, function, _plain(domain, target), elements, source=source, in_place=True)
            sets.set_replace(domain, target, cast(SetValue, found))
        return Const(None)


_in_place("intersection_update", operator.and_)
_in_place("difference_update", operator.sub)
_in_place("symmetric_difference_update", operator.xor)


def _plain(domain: CaptureDomain, value: Value) -> SetValue:
    """Without its subclass."""
    value = cast(SetValue, value)
    made = SetValue(dict(elements.set_entries(domain, value)), frozenset if issubclass(value.cls, frozenset) else set)
    layout = sets.layout_of(domain, value)
    made.layout = None if layout is None else layout.copy()
    return made
