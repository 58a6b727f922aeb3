"""Decorators of C: `staticmethod`, `classmethod` and `property` objects that the region makes, and caches."""

from __future__ import annotations

import functools

from torchjit_vm.capture import attributes
from torchjit_vm.capture.builtin_table import builtin, method
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.reading import pinned
from torchjit_vm.capture.stand_in_classes import WRAPPED
from torchjit_vm.capture.values import NEW, Args, Const, Known, Kwargs, Obj, Value
from torchjit_vm.frame import Frame


def _register(cls: type) -> None:
    def make(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
        names = WRAPPED[cls]
        given = dict(zip(names, args, strict=False))
        given.update({("__doc__" if k == "doc" else k): v for k, v in kwargs.items()})
        if len(args) > len(names) or not given.keys() <= set(names) or (cls is not property and len(given) != 1):
            return None
        made = Obj(cls)
        made.attrs = {n: given.get(n, Const(None)) for n in names}
        if cls is property and "fget" in given and "__doc__" not in given:
            made.attrs["__doc__"] = attributes.lookup(domain, given["fget"], "__doc__") or Const(None)
        if cls is not property:
            function = made.attrs["__wrapped__"] = made.attrs["__func__"]
            for name in functools.WRAPPER_ASSIGNMENTS:
                if (told := attributes.lookup(domain, function, name)) is not None:
                    made.attrs[name] = told
        return made

    builtin(cls)(make)


for _cls in WRAPPED:
    _register(_cls)


def _accessor(name: str, field: str) -> None:
    def change(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
        before = args[0]
        if isinstance(before, Obj) and before.cls is property and before.real is NEW:
            fields = dict(before.attrs)
        elif type(before) is Known and type(before.obj) is property:
            fields = {n: pinned(domain, getattr(before.obj, n), f"property.{n}") for n in WRAPPED[property]}
        else:
            return None
        made = Obj(property)
        made.attrs = {**fields, field: args[1]}
        return made

    method(name, property)(change)


for _name, _field in (("setter", "fset"), ("deleter", "fdel")):  # another getter may have another text
    _accessor(_name, _field)


@method("__call__", staticmethod)
def _call_static(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
    function = args[0].attrs.get("__func__") if isinstance(args[0], Obj) else None
    return domain.call(function, args[1:], kwargs) if isinstance(function, Value) else None
