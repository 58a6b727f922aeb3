"""Twins: real objects that stand for values in the namespace of a class that the region makes. See `classes`."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, TypeVar

from torchjit_vm.capture import dicts, elements, sets
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.reasons import CLASS_BODY
from torchjit_vm.capture.runtime import function as real_function
from torchjit_vm.capture.runtime import new as new_instance
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
    AtomObject,
    CellValue,
    Const,
    DictValue,
    FunctionValue,
    Known,
    ListValue,
    Obj,
    SetValue,
    TupleValue,
    Value,
)

__all__ = ["WRAPPED", "StandIns", "stand_in_of"]

WRAPPED: dict[type, tuple[str, ...]] = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel", "__doc__"),
}
"""The attributes of the built-in descriptors, in the order of their arguments."""


_LOOKED_INTO = frozenset({"dataclasses", "enum", "functools"})
"""Modules whose hooks and decorators look inside their objects in a namespace; what they change is read from the twin."""
T = TypeVar("T")


class _Placeholder:
    """Stands for a value that only the graph knows, in the namespace of a twin."""

    __slots__ = ()


class StandIns:
    """Values to the real objects that stand for them, and what must live as long as the capture, whose ids are known."""

    def __init__(self) -> None:
        self.of_values: dict[Value, object] = {}
        self.kept: list[object] = []


def stand_in_of(domain: CaptureDomain, value: Value) -> Any:
    """A real object that stands for a value in the namespace of a twin.

    Raises:
        GraphBreak: there is none.
    """
    found: Any = domain.of(StandIns).of_values.get(value)
    if found is None:
        found = _twin(domain, value)
        if type(value) not in (Const, Known):
            domain.of(StandIns).of_values[value] = found
    return found


def _twin(domain: CaptureDomain, value: Value) -> object:
    if type(value) is Const:
        return domain.use(value)
    if type(value) is Known:
        return value.obj
    if isinstance(value, TupleValue):
        return _tuple_twin(domain, value)
    shared = isinstance(value, (Obj, CellValue)) and not (isinstance(value, SetValue) and value.cls is frozenset)
    real = getattr(value, "real", NEW)
    if shared and real is not NEW:
        return real  # interned under its own identity
    if isinstance(value, FunctionValue):
        return _intern(domain, value, _function_twin(domain, value))
    if isinstance(value, Obj):
        return _object_twin(domain, value)
    return _intern(domain, value, _Placeholder())


def _intern(domain: CaptureDomain, value: Value, twin: T) -> T:
    domain.interned[id(twin)] = value
    domain.stand_in_ids.add(id(twin))
    domain.of(StandIns).kept.append(twin)
    return twin


def _function_twin(domain: CaptureDomain, value: FunctionValue) -> types.FunctionType:
    defaults = tuple(stand_in_of(domain, v) for v in value.defaults)
    cells = tuple(types.CellType() for _ in value.closure)
    twin = real_function(value.code, value.globals, (value.name, value.qualname), defaults, cells)
    if value.kwdefaults is not None:
        twin.__kwdefaults__ = stand_in_of(domain, value.kwdefaults)
    for key, content in value.attrs.items():
        if type(content) is Const and key != "__annotations__":
            setattr(twin, key, domain.use(content))
    annotations = value.annotations or value.attrs.get("__annotations__")
    if isinstance(annotations, DictValue):
        twin.__annotations__ = {
            domain.use(key): stand_in_of(domain, content)
            for key, content in dicts.dict_pairs(domain, annotations)
            if type(key) is Const
        }
    elif value.annotations is not None:
        flat = [stand_in_of(domain, v) for v in domain.unpack_all(value.annotations)]
        twin.__annotations__ = dict(zip(flat[::2], flat[1::2], strict=True))
    return twin


def _tuple_twin(domain: CaptureDomain, value: TupleValue) -> object:
    items = tuple(stand_in_of(domain, v) for v in elements.items(domain, value))
    twin: Any = items if value.cls is tuple else tuple.__new__(value.cls, items)
    return _intern(domain, value, twin) if items else twin


def _object_twin(domain: CaptureDomain, value: Obj) -> object:
    if value.cls in WRAPPED:
        given = [stand_in_of(domain, value.attrs[n]) for n in WRAPPED[value.cls]]
        return _intern(domain, value, value.cls(*given))
    make = _TWINS.get(type(value), _instance_twin)
    try:
        twin = make(domain, value)
        if make is _instance_twin and value.cls.__module__ in _LOOKED_INTO:
            return twin
    except TypeError as error:
        if any(hasattr(value.cls, hook) for hook in ("__get__", "__set__", "__delete__", "__set_name__")):
            raise domain.graph_break(CLASS_BODY, f"{value.cls.__name__} in the class: {error}") from None
        twin = _Placeholder()
    return _intern(domain, value, twin)


def _list_twin(domain: CaptureDomain, value: ListValue) -> object:
    twin: list[object] = new_instance(list, value.cls)
    list.extend(twin, [stand_in_of(domain, v) for v in elements.items(domain, value)])
    return twin


def _dict_twin(domain: CaptureDomain, value: DictValue) -> object:
    twin: dict[object, object] = new_instance(dict, value.cls)
    for key, item in dicts.dict_pairs(domain, value):
        dict.__setitem__(twin, stand_in_of(domain, key), stand_in_of(domain, item))
    return twin


def _set_twin(domain: CaptureDomain, value: SetValue) -> object:
    items = [stand_in_of(domain, v) for v in sets.set_items(domain, value)]
    if issubclass(value.cls, frozenset):
        return new_instance(frozenset, value.cls, items)
    twin: set[object] = new_instance(set, value.cls)
    set.update(twin, items)
    return twin


def _atom_twin(domain: CaptureDomain, value: AtomObject) -> object:
    plain = domain.use(value)
    return new_instance(type(plain), value.cls, plain)


def _instance_twin(domain: CaptureDomain, value: Obj) -> object:
    twin = new_instance(object, value.cls)
    if value.cls.__module__ in _LOOKED_INTO:
        for field, content in value.attrs.items():
            if content is not DELETED:
                object.__setattr__(twin, field, stand_in_of(domain, content))
    return twin


_TWINS: dict[type[Value], Callable[[CaptureDomain, Any], object]] = {
    ListValue: _list_twin,
    DictValue: _dict_twin,
    SetValue: _set_twin,
    AtomObject: _atom_twin,
}
