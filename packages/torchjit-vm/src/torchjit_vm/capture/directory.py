"""`dir(obj)`."""

from __future__ import annotations

from torchjit_core.paths import Pinned
from torchjit_vm.capture import attributes, dicts, iteration, members
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.values import Const, InstanceDict, Known, ListValue, Obj, Value

__all__ = ["directory"]


def directory(domain: CaptureDomain, value: Value) -> Value | None:
    """`dir(value)`; None for what is left to the real function."""
    if type(value) is Const:
        names = dir(domain.use(value))
    elif type(value) is Known:
        if value.written or any(isinstance(v, Known) for v in domain.touched):
            return None  # what the region stored is not there yet
        names = _of_real(domain, value.obj)
    elif isinstance(value, Obj) and not attributes.lies_elsewhere(value.cls):
        return _of_object(domain, value)
    else:
        return None
    return ListValue([Const(name) for name in names])


def _of_real(domain: CaptureDomain, obj: object) -> list[str]:
    names = sorted(dir(obj))
    if not (isinstance(obj, type) and obj in domain.made_classes):
        label = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", type(obj).__name__)
        path = Pinned.of(obj, str(label))
        domain.guard_test(("dir", id(obj)), path, lambda o: sorted(dir(o)) == names, f"dir({label}) is as it was")
    return names


def _of_object(domain: CaptureDomain, value: Obj) -> Value | None:
    own = members.find_member(domain, value.cls, "__dir__")
    if own.kind == members.FUNCTION:
        found = domain.vm.call(members.member_value(domain, own), [value])
        return domain.vm.call(Known(sorted), [ListValue(iteration.items_of(domain, found))])
    if own.raw is not object.__dict__["__dir__"] or domain.class_stores:
        return None
    names = set(_of_class(domain, value.cls))
    if value.cls.__dictoffset__:
        for key, _ in dicts.instance_pairs(domain, InstanceDict(value)):
            name = domain.use(key)
            if type(name) is not str:
                return None
            names.add(name)
    return ListValue([Const(name) for name in sorted(names)])


def _of_class(domain: CaptureDomain, cls: type) -> list[str]:
    """What instances of a class have; a `__dir__` of its metaclass has no say in it."""
    names = sorted(type.__dir__(cls))
    if cls not in domain.made_classes:
        path = Pinned.of(cls, cls.__qualname__)
        text = f"dir({cls.__qualname__}) is as it was"
        domain.guard_test(("dir of", cls), path, lambda c: sorted(type.__dir__(c)) == names, text)
    return names
