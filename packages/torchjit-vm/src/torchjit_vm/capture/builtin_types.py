"""Calls of built-in types."""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

from torchjit_vm.capture import (
    collecting,
    elements,
    formatting,
    lengths,
    library_numbers,
    members,
    operators,
    sets,
    slot_results,
)
from torchjit_vm.capture.atoms import base_of
from torchjit_vm.capture.builtin_table import builtin
from torchjit_vm.capture.construct import fill_deque, fill_dict
from torchjit_vm.capture.mirrors import content
from torchjit_vm.capture.raw import constant_of, is_constant
from torchjit_vm.capture.values import (
    AtomObject,
    BoundMethod,
    Const,
    DictValue,
    Key,
    Leaf,
    ListValue,
    Mirror,
    Obj,
    SetValue,
    SliceValue,
    TupleValue,
    Value,
)
from torchjit_vm.capture.values import CellValue as _Cell
from torchjit_vm.frame import Frame

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

_Args = list[Value]
_Kwargs = dict[str, Value]


@builtin(list)
def _list(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return ListValue(collecting.collected(domain, args[0]) if args else [])


@builtin(tuple)
def _tuple(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return TupleValue(collecting.collected(domain, args[0]) if args else [])


for _cls in (dict, OrderedDict, defaultdict):

    def _make_dict(
        domain: CaptureDomain, args: _Args, kwargs: _Kwargs, cls: type = _cls
    ) -> Value | Frame[Value] | None:
        made = DictValue(cls)
        fill_dict(domain, made, args, kwargs)
        return made

    builtin(_cls)(_make_dict)


@builtin(set)
def _set(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return _like(domain, SetValue(_elements(domain, args)), args)


@builtin(frozenset)
def _frozenset(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if args and isinstance(args[0], SetValue) and args[0].cls is frozenset:
        return args[0]
    return _like(domain, SetValue(_elements(domain, args), frozenset), args)


def _like(domain: CaptureDomain, made: SetValue, args: _Args) -> SetValue:
    """A set of another set's elements, or of a dict's keys, is laid out at once."""
    source = args[0] if args else None
    entries = made.entries or {}
    if isinstance(source, SetValue):
        layout = sets.layout_of(domain, source)
        made.layout = None if layout is None else set(layout)
    elif isinstance(source, DictValue) and source.cls is dict and sets.is_ordered(entries):
        made.layout = set(dict.fromkeys(entries))
    return made


def _elements(domain: CaptureDomain, args: _Args) -> dict[Key, Value]:
    """The elements of a new set; C code takes those of another set whatever its `__iter__` says."""
    if args and isinstance(args[0], SetValue):
        return dict(elements.set_entries(domain, args[0]))
    items = collecting.each(domain, args[0]) if args else ()
    return sets.new_set(domain, items).entries or {}


@builtin(deque)
def _deque(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    made = ListValue([], deque)
    return made if fill_deque(domain, made, args, kwargs) else None


@builtin(bool)
def _bool(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if args and type(args[0]) is Leaf:
        return operators.leaf_call(domain, bool, args)
    return domain.constant(lengths.truth(domain, args[0]) if args else False)


@builtin(str)
def _str(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if not args:
        return Const("")
    return formatting.to_text(domain, args[0], str) if len(args) == 1 and not kwargs else None


def _plain_argument(domain: CaptureDomain, value: Value, dunders: tuple[str, ...]) -> Value:
    """What an atom is without its class, unless that defines the method which counts: the first that is there, also where it is C's."""
    if type(value) is not AtomObject:
        return value
    there = [d for d in dunders if members.find_member(domain, value.cls, d).kind != members.ABSENT]
    return value if there and operators.defines(domain, value, there[0]) else base_of(value)


def _by_method(domain: CaptureDomain, cls: Any, dunders: tuple[str, ...], value: Value) -> Value | None:
    """`int(value)` ... by the first of these methods that the class defines; None if it has none."""
    if not isinstance(value, Obj):
        return None
    dunder = next((d for d in dunders if members.find_member(domain, value.cls, d).kind == members.FUNCTION), None)
    answer = None if dunder is None else operators.special_call(domain, value, dunder, [])
    if dunder is None or answer is None:
        return None
    expected: Any = {"__index__": int, "__trunc__": object}.get(dunder, cls)
    answer = slot_results.checked(domain, value, dunder, answer, expected, cls)
    bare = type(answer) is Const and dunder == "__index__" and cls is not int
    if bare or (type(answer) is Const and type(answer.value) is bool):
        return operators.compute(domain, cls, domain.use(answer))
    return answer


def _number(cls: Any, dunders: tuple[str, ...]) -> None:
    def make(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | Frame[Value] | None:
        values = [*args, *kwargs.values()]
        if len(values) == 1 and type(args[0]) is Mirror:
            return operators.compute(domain, cls, content(domain, args[0]))
        if len(values) == len(args) == 1:
            values = args = [_plain_argument(domain, args[0], dunders)]
        if len(values) > 1:  # there is no symbolic form of it
            args, kwargs = (
                [operators.settled(domain, a) for a in args],
                {k: operators.settled(domain, v) for k, v in kwargs.items()},
            )
            values = [*args, *kwargs.values()]
        if domain.library_values and len(values) == len(args) == 1:
            values = args = [library_numbers.converted(domain, cls, args[0]) or args[0]]
        if any(type(a) is Leaf for a in values):
            return operators.leaf_call(domain, cls, args, kwargs)
        answer = _by_method(domain, cls, dunders, args[0]) if len(values) == len(args) == 1 else None
        if answer is not None:
            return answer
        if all(is_constant(domain, a) for a in values):
            real = {k: constant_of(domain, v) for k, v in kwargs.items()}
            function = functools.partial(cls, **real)
            return operators.compute(domain, function, *(constant_of(domain, a) for a in args))
        return None

    builtin(cls)(make)


_number(int, ("__int__", "__index__", "__trunc__"))
_number(float, ("__float__", "__index__"))
_number(complex, ("__complex__", "__float__", "__index__"))
_number(bytes, ("__bytes__",))


@builtin(slice)
def _slice(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    none = Const(None)
    if len(args) == 1:
        return SliceValue(none, args[0], none)
    return SliceValue(args[0], args[1], args[2] if len(args) > 2 else none)


@builtin(range)
def _range(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return operators.compute(domain, range, *(domain.index(a) for a in args))


@builtin(object)
def _object(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return Obj(object) if not args else None


@builtin(types.MethodType)
def _method(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return BoundMethod(args[0], args[1])


@builtin(types.CellType)
def _cell(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return _Cell(args[0] if args else None)


@builtin(types.SimpleNamespace)
def _namespace(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if args:
        return None
    made = Obj(types.SimpleNamespace)
    made.attrs.update(kwargs)
    return made
