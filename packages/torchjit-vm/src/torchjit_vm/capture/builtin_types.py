"""Calls of built-in types."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable

from torchjit_vm.capture import (
    collecting,
    elements,
    formatting,
    lengths,
    library_numbers,
    members,
    operators,
    sets,
)
from torchjit_vm.capture.atoms import base_of
from torchjit_vm.capture.builtin_table import Builtin, builtin, by_position
from torchjit_vm.capture.construct import fill_deque, fill_dict
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.mirrors import content
from torchjit_vm.capture.special_methods import checked, computed
from torchjit_vm.capture.values import (
    Args,
    AtomObject,
    BoundMethod,
    CellValue,
    Const,
    DictValue,
    Key,
    Kwargs,
    Leaf,
    ListValue,
    Mirror,
    Obj,
    SetValue,
    SliceValue,
    TupleValue,
    Value,
)


@builtin(tuple)
def _tuple(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return TupleValue(collecting.collected(domain, args[0]) if args else [])


def _dict_of(cls: type) -> Builtin:
    def make(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value:
        made = DictValue(cls)
        fill_dict(domain, made, args, kwargs)
        return made

    return make


for _cls in (dict, OrderedDict, defaultdict):
    builtin(_cls)(_dict_of(_cls))


@builtin(set)
def _set(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    return _like(domain, SetValue(_elements(domain, args)), args)


@builtin(frozenset)
def _frozenset(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if args and isinstance(args[0], SetValue) and args[0].cls is frozenset:
        return args[0]
    return _like(domain, SetValue(_elements(domain, args), frozenset), args)


def _like(domain: CaptureDomain, made: SetValue, args: Args) -> SetValue:
    """A set of another set's elements, or of a dict's keys, is laid out at once."""
    source = args[0] if args else None
    entries = made.entries or {}
    if isinstance(source, SetValue):
        layout = sets.layout_of(domain, source)
        made.layout = None if layout is None else set(layout)
    elif isinstance(source, DictValue) and source.cls is dict and sets.is_ordered(entries):
        made.layout = set(dict.fromkeys(entries))
    return made


def _elements(domain: CaptureDomain, args: Args) -> dict[Key, Value]:
    """The elements of a new set; C code takes those of another set whatever its `__iter__` says."""
    if args and isinstance(args[0], SetValue):
        return dict(elements.set_entries(domain, args[0]))
    items = collecting.each(domain, args[0]) if args else ()
    return sets.new_set(domain, items).entries or {}


@builtin(deque)
def _deque(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    made = ListValue([], deque)
    return made if fill_deque(domain, made, args, kwargs) else None


@builtin(bool)
def _bool(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if args and type(args[0]) is Leaf:
        return operators.leaf_call(domain, bool, args)
    return domain.constant(lengths.truth(domain, args[0]) if args else False)


@builtin(str)
def _str(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if not args:
        return Const("")
    return formatting.to_text(domain, args[0], str) if len(args) == 1 and not kwargs else None


def _plain_argument(domain: CaptureDomain, value: Value, dunders: tuple[str, ...]) -> Value:
    """What an atom is without its class, unless that defines the method which counts: the first that is there, also where it is C's."""
    if type(value) is not AtomObject:
        return value
    there = [d for d in dunders if members.find_member(domain, value.cls, d).kind != members.ABSENT]
    return value if there and operators.defines(domain, value, there[0]) else base_of(value)


def _by_method(domain: CaptureDomain, cls: type, dunders: tuple[str, ...], value: Value) -> Value | None:
    """`int(value)` ... by the first of these methods that the class defines; None if it has none."""
    if not isinstance(value, Obj):
        return None
    dunder = next((d for d in dunders if members.find_member(domain, value.cls, d).kind == members.FUNCTION), None)
    answer = None if dunder is None else operators.special_call(domain, value, dunder, [])
    if dunder is None or answer is None:
        return None
    expected: type = {"__index__": int, "__trunc__": object}.get(dunder, cls)
    answer = checked(domain, value, dunder, answer, expected, cls)
    bare = type(answer) is Const and dunder == "__index__" and cls is not int
    if bare or (type(answer) is Const and type(answer.value) is bool):
        return operators.compute(domain, cls, domain.use(answer))
    return answer


def _converted(domain: CaptureDomain, cls: type, dunders: tuple[str, ...], value: Value) -> Value | None:
    """`cls(value)`."""
    if type(value) is Mirror:
        return operators.compute(domain, cls, content(domain, value))
    value = _plain_argument(domain, value, dunders)
    if domain.library_values:
        value = library_numbers.converted(domain, cls, value) or value
    if type(value) is Leaf:
        return operators.leaf_call(domain, cls, [value])
    return _by_method(domain, cls, dunders, value) or computed(domain, cls, [value])


def _number(cls: type, dunders: tuple[str, ...]) -> None:
    def make(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
        if len(args) == 1 and not kwargs:
            return _converted(domain, cls, dunders, args[0])
        # Of several there is no symbolic form.
        named = {k: operators.settled(domain, v) for k, v in kwargs.items()}
        settled = [operators.settled(domain, a) for a in args]
        if any(type(v) is Leaf for v in (*settled, *named.values())):
            return operators.leaf_call(domain, cls, settled, named)
        return computed(domain, cls, settled, named)

    builtin(cls)(make)


_number(int, ("__int__", "__index__", "__trunc__"))
_number(float, ("__float__", "__index__"))
_number(complex, ("__complex__", "__float__", "__index__"))
_number(bytes, ("__bytes__",))


def _slice(domain: CaptureDomain, *bounds: Value) -> Value:
    none = Const(None)
    return SliceValue(none, bounds[0], none) if len(bounds) == 1 else SliceValue(*(*bounds, none)[:3])


_BY_POSITION: dict[object, Callable[..., Value | None]] = {
    slice: _slice,
    range: lambda domain, *bounds: operators.compute(domain, range, *(domain.index(b) for b in bounds)),
    object: lambda domain, *args: None if args else Obj(object),
    types.MethodType: lambda domain, function, self: BoundMethod(function, self),
    types.CellType: lambda domain, content=None: CellValue(content),
    list: lambda domain, *iterable: ListValue(collecting.collected(domain, *iterable) if iterable else []),
}
for _builtin, _rule in _BY_POSITION.items():
    builtin(_builtin)(by_position(_rule))


@builtin(types.SimpleNamespace)
def _namespace(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if args:
        return None
    made = Obj(types.SimpleNamespace)
    made.attrs.update(kwargs)
    return made
