"""Decorators of C: `staticmethod`, `classmethod` and `property` objects that the region makes, and caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchjit_vm.capture import attributes
from torchjit_vm.capture.builtin_table import builtin, method
from torchjit_vm.capture.reading import pinned
from torchjit_vm.capture.stand_in_classes import WRAPPED
from torchjit_vm.capture.values import NEW, Const, Known, Obj, Value
from torchjit_vm.frame import Frame

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain


def _is_none(value: Value) -> bool:
    return type(value) is Const and value.value is None


class DocumentedProperties(set[Value]):
    """Properties whose text is that of their getter."""


def _document(domain: CaptureDomain, made: Obj, getter: Value, untold: bool) -> None:
    """A property without a text has that of its getter."""
    if not untold:
        return
    found = attributes.lookup(domain, getter, "__doc__")
    domain.of(DocumentedProperties).add(made)
    if found is not None:
        made.attrs["__doc__"] = found


def _register(cls: type) -> None:
    def make(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        names = WRAPPED[cls]
        given = dict(zip(names, args, strict=False))
        given.update({("__doc__" if k == "doc" else k): v for k, v in kwargs.items()})
        if len(args) > len(names) or not given.keys() <= set(names) or (cls is not property and len(given) != 1):
            return None
        made = Obj(cls)
        made.attrs = {n: given.get(n, Const(None)) for n in names}
        if cls is property and "fget" in given:
            _document(domain, made, given["fget"], _is_none(given.get("__doc__", Const(None))))
        if cls is not property:
            made.attrs["__wrapped__"] = made.attrs["__func__"]
        return made

    builtin(cls)(make)


for _cls in WRAPPED:
    _register(_cls)


def _accessor(name: str, field: str) -> None:
    def change(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        before = args[0]
        if isinstance(before, Obj) and before.cls is property and before.real is NEW:
            fields = dict(before.attrs)
        elif type(before) is Known and type(before.obj) is property:
            fields = {n: pinned(domain, getattr(before.obj, n), f"property.{n}") for n in WRAPPED[property]}
        else:
            return None
        made = Obj(property)
        made.attrs = {**fields, field: args[1]}
        if field == "fget":
            told = before.attrs.get("__doc__") if isinstance(before, Obj) else None
            _document(domain, made, args[1], told is None or before in domain.of(DocumentedProperties))
        elif isinstance(before, Obj) and before in domain.of(DocumentedProperties):
            domain.of(DocumentedProperties).add(made)
        return made

    method(name, property)(change)


for _name, _field in (("getter", "fget"), ("setter", "fset"), ("deleter", "fdel")):
    _accessor(_name, _field)


@method("__call__", staticmethod)
def _call_static(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | Frame[Value] | None:
    function = args[0].attrs.get("__func__") if isinstance(args[0], Obj) else None
    return domain.call(function, args[1:], kwargs) if isinstance(function, Value) else None
