"""Objects whose identity is settled: classes, modules, functions, members of enums."""

from __future__ import annotations

import enum
import gc
import operator
import types
from collections.abc import Iterable
from typing import Any, cast

from torchjit_core.paths import AccessPath, Pinned
from torchjit_core.showing import shown
from torchjit_core.storing import relied_on
from torchjit_vm.capture import attributes, elements, members
from torchjit_vm.capture.class_making import is_library
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.exceptions import from_real
from torchjit_vm.capture.iteration import ListIterator
from torchjit_vm.capture.members import (
    ABSENT,
    CLASS,
    CMETHOD,
    DESCRIPTOR,
    FUNCTION,
    IMMUTABLE_TYPE,
    PLAIN,
    PROPERTY,
    STATIC,
    Member,
    find_member,
    has_own_methods,
    member_value,
    walk,
)
from torchjit_vm.capture.objects.constant import compare_real
from torchjit_vm.capture.raw import constant_of, is_constant, to_raw
from torchjit_vm.capture.reading import IMMUTABLE_ATOMS, constant_object, pinned, wrap
from torchjit_vm.capture.reasons import UNKNOWN_ATTRIBUTE, UNKNOWN_OPERATION
from torchjit_vm.capture.special_methods import compute
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import NEW, BoundMethod, Const, DictValue, Known, ListValue, Obj, TupleValue, Value
from torchjit_vm.frame import Frame
from torchjit_vm.type_labels import type_label

__all__: list[str] = []


def _getattribute(domain: CaptureDomain, value: Known, name: str) -> Value | Frame[Value]:
    found = value.attrs.get(name)
    if found is not None:
        return found
    obj = value.obj
    if isinstance(obj, type):
        return _type_attr(domain, value, obj, name)
    if isinstance(obj, types.ModuleType):
        return _module_attr(domain, value, obj, name)
    cls = type(obj)
    if isinstance(obj, types.FunctionType):
        return _real_function_attr(domain, value, obj, name)
    raw = walk(cls.__mro__, name)
    if type(raw) is types.FunctionType:
        domain.guard_class(cls, name, raw)
        return BoundMethod(pinned(domain, raw, name), value)
    if type(raw) is property and type(raw.fget) is types.FunctionType:
        domain.guard_class(cls, name, raw)
        return domain.call(pinned(domain, raw.fget, name), [value], {})
    if type(raw) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        return BoundMethod(pinned(domain, raw, name), value)
    hook = walk(cls.__mro__, "__getattr__")
    if type(hook) is types.FunctionType and not is_library(hook) and not _is_plain(obj, name):
        return domain.call(member_value(domain, find_member(domain, cls, "__getattr__")), [value, Const(name)], {})
    label = getattr(obj, "__name__", cls.__name__)
    if not hasattr(obj, name):
        _rely_on_absence(domain, obj, label, name)
        raise domain.error(AttributeError, f"'{type_label(cls)}' object has no attribute '{name}'")
    real = getattr(obj, name)
    if id(obj) in domain.class_parts:  # another object in the next call, that holds the same
        return pinned(domain, real, label)
    result = wrap(domain, real, Pinned.of(obj, label).attr(name))
    value.attrs[name] = result
    return result


def _rely_on_absence(domain: CaptureDomain, obj: object, label: str, name: str) -> None:
    """The object has no such attribute, and could be given one."""
    if type(obj).__dictoffset__ != 0 and id(obj) not in domain.class_parts:
        domain.guard_lacks(Pinned.of(obj, label), name)


def _is_plain(obj: object, name: str) -> bool:
    """Is there such an attribute, whatever `__getattr__` says?"""
    try:
        object.__getattribute__(obj, name)
    except AttributeError:
        return False
    return True


def _module_attr(domain: CaptureDomain, value: Known, module: types.ModuleType, name: str) -> Value | Frame[Value]:
    path = Pinned.of(module, module.__name__)
    if name in module.__dict__:
        result = wrap(domain, module.__dict__[name], path.instance_attr(name))
    else:
        try:
            real = getattr(module, name)
        except Exception as error:
            hook = module.__dict__.get("__getattr__")
            if type(module) is types.ModuleType and type(hook) is types.FunctionType and not is_library(hook):
                domain.guard_lacks(path, name)
                return domain.call(wrap(domain, hook, path.instance_attr("__getattr__")), [Const(name)], {})
            _rely_on_refusal(domain, module, path, name, error)
            if isinstance(error, AttributeError):
                raise domain.error(AttributeError, str(error)) from None
            raise domain.raised(from_real(domain, error)) from None
        result = wrap(domain, real, path.attr(name))
    value.attrs[name] = result
    return result


def _rely_on_refusal(
    domain: CaptureDomain, module: types.ModuleType, path: AccessPath, name: str, refusal: Exception
) -> None:
    """The module has no such attribute, or has code that says so: it is asked in each call, as plain Python would."""
    domain.guard_lacks(path, name)
    if type(module) is types.ModuleType and "__getattr__" not in module.__dict__:
        domain.guard_type(path, types.ModuleType)
        domain.guard_lacks(path, "__getattr__")
        return

    kind, text = type(refusal), str(refusal)

    def refuses(other: object) -> bool:
        try:
            getattr(other, name)
        except Exception as error:
            return type(error) is kind and str(error) == text
        return False

    domain.guard_test(("refuses", path, name), path, refuses, f"not hasattr({path}, {name!r})")


def _real_function_attr(domain: CaptureDomain, value: Known, function: types.FunctionType, name: str) -> Value:
    if name in ("__get__", "__call__", "__init__", "__repr__", "__eq__", "__hash__"):
        return BoundMethod(Known(walk(types.FunctionType.__mro__, name)), value)
    if not hasattr(function, name):
        _rely_on_absence(domain, function, function.__qualname__, name)
        raise domain.error(AttributeError, f"'function' object has no attribute '{name}'")
    real = getattr(function, name)
    path = Pinned.of(function, function.__qualname__).attr(name)
    if id(function) in domain.class_parts and type(real) in IMMUTABLE_ATOMS:
        return Const(real)  # of another function in the next call, which is made as this one was
    result = wrap(domain, real, path)
    value.attrs[name] = result
    return result


def _type_attr(domain: CaptureDomain, value: Known, cls: type, name: str) -> Value | Frame[Value]:
    if isinstance(cls, enum.EnumType) and name in cls.__members__:
        result: Value = pinned(domain, cls.__members__[name], f"{cls.__qualname__}.{name}")
        value.attrs[name] = result
        return result
    simple = _TYPE_CONSTANTS.get(name)
    if simple is not None:
        found: Value = simple(domain, cls)
        return found
    if name == "__dict__":
        return _class_dict(domain, cls)
    hook = find_member(domain, type(cls), "__getattribute__")
    if hook.kind == FUNCTION:
        return domain.call(member_value(domain, hook), [value, Const(name)], {})
    above = find_member(domain, type(cls), name)  # data descriptors of the metaclass come first
    if above.kind == PROPERTY:
        return _metaclass_attr(domain, value, cls, name, above)
    member = find_member(domain, cls, name)
    kind = member.kind
    if kind == ABSENT:
        return _metaclass_attr(domain, value, cls, name, above)
    if kind == CLASS:
        return BoundMethod(member_value(domain, member), value)
    if kind == DESCRIPTOR:
        if type(member.raw) is types.ClassMethodDescriptorType:
            return constant_object(domain, getattr(cls, name))
        getter = walk(type(member.raw).__mro__, "__get__")
        if type(getter) is types.FunctionType:
            label = f"{cls.__qualname__}.{name}"
            return domain.call(
                pinned(domain, getter, name), [pinned(domain, member.raw, label), Const(None), value], {}
            )
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")
    return member_value(domain, member)


def _class_dict(domain: CaptureDomain, cls: type) -> Value:
    """`cls.__dict__`: a read-only dict of the raw members, each relied on."""
    real = cls.__dict__
    made = DictValue(types.MappingProxyType)
    if cls not in domain.made_classes and not cls.__flags__ & IMMUTABLE_TYPE:
        (behind,) = gc.get_referents(real)
        domain.guard_keys(Pinned.of(behind, f"{cls.__qualname__}.__dict__"), tuple(real))
    for name, raw in real.items():
        if not cls.__flags__ & IMMUTABLE_TYPE:
            domain.guard_class(cls, name, raw)
        made.entries[name] = (Const(name), pinned(domain, raw, f"{cls.__qualname__}.{name}"))
    made.real, made.path = real, Pinned.of(cls, cls.__qualname__).attr("__dict__")
    return made


def _text(domain: CaptureDomain, cls: type, name: str) -> Value:
    """A name that a class has, which may be assigned to."""
    found = getattr(cls, name)
    if cls.__flags__ & IMMUTABLE_TYPE or cls in domain.made_classes or type(found) is not str:
        return constant_object(domain, found)
    return wrap(domain, found, Pinned.of(cls, cls.__qualname__).attr(name))


def _inherited(domain: CaptureDomain, cls: type, classes: Iterable[type]) -> Value:
    domain.guard_mro(cls)
    return TupleValue([Known(c) for c in classes])


def _base(domain: CaptureDomain, cls: type) -> Value:
    domain.guard_mro(cls)
    return Const(None) if cls.__base__ is None else Known(cls.__base__)


_TYPE_CONSTANTS: dict[str, Any] = {
    "__name__": lambda domain, cls: _text(domain, cls, "__name__"),
    "__qualname__": lambda domain, cls: _text(domain, cls, "__qualname__"),
    "__module__": lambda domain, cls: _text(domain, cls, "__module__"),
    "__class__": lambda domain, cls: Known(type(cls)),
    "__mro__": lambda domain, cls: _inherited(domain, cls, cls.__mro__),
    "__bases__": lambda domain, cls: _inherited(domain, cls, cls.__bases__),
    "__base__": _base,
}


def _metaclass_attr(domain: CaptureDomain, value: Known, cls: type, name: str, member: Member) -> Value | Frame[Value]:
    """What the metaclass has under a name, as seen through the class."""
    raw = member.raw
    if member.kind == ABSENT:
        hook = find_member(domain, type(cls), "__getattr__")
        if hook.kind == FUNCTION:
            return domain.call(member_value(domain, hook), [value, Const(name)], {})
        raise domain.error(AttributeError, f"type object '{type_label(cls)}' has no attribute '{name}'")
    if member.kind in (FUNCTION, CMETHOD):
        return BoundMethod(member_value(domain, member), value)
    if member.kind == CLASS:
        return BoundMethod(member_value(domain, member), Known(type(cls)))
    if member.kind in (STATIC, PLAIN):
        return member_value(domain, member)
    if member.kind == PROPERTY and type(raw.fget) is types.FunctionType:
        return domain.call(pinned(domain, raw.fget, name), [value], {})
    raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")


def _length(domain: CaptureDomain, self: Known) -> int | None:
    if type(self.obj) is not enum.EnumType:
        return None
    length: Any = compute(domain, len, self.obj)
    return int(length.value)


def _iter(domain: CaptureDomain, self: Known) -> Value | None:
    if not isinstance(self.obj, enum.EnumType):
        return None
    # Does the metaclass leave it to `enum` to say which members are iterated over? Looked up as the program would: a method
    # that somebody puts there later, or in the next process, counts.
    if members.find_member(domain, type(self.obj), "__iter__").raw is not enum.EnumType.__iter__:
        return None
    return ListIterator([Known(m) for m in cast(Any, self.obj)])


def _contains(domain: CaptureDomain, self: Known, item: Value) -> Value | None:
    if not isinstance(self.obj, type) or not isinstance(item, (Const, Known)):
        return None
    if members.find_member(domain, type(self.obj), "__contains__").kind == members.ABSENT:
        return None
    return compute(domain, operator.contains, self.obj, to_raw(domain, item))


def _getitem(domain: CaptureDomain, self: Known, key: Value) -> Value:
    if isinstance(self.obj, type):
        above = members.find_member(domain, type(self.obj), "__getitem__")
        if above.kind in (members.FUNCTION, members.STATIC, members.PLAIN) and not isinstance(self.obj, enum.EnumType):
            return domain.vm.call(domain.vm.finish(attributes.bind(domain, above, self)), [key])
    if isinstance(self.obj, type) and _settled(domain, key):
        member = members.find_member(domain, self.obj, "__class_getitem__")
        if type(getattr(member.raw, "__func__", member.raw)) is types.FunctionType:
            return domain.vm.call(BoundMethod(members.member_value(domain, member), self), [key])
        return compute(domain, operator.getitem, self.obj, constant_of(domain, key))
    raise domain.graph_break(UNKNOWN_OPERATION, f"subscript of {shown(self.obj)}")


def _settled(domain: CaptureDomain, key: Value) -> bool:
    """What a class may be subscripted with: constants and objects of the program (type variables ...), which do not change it."""
    if isinstance(key, (ListValue, TupleValue)):
        return all(_settled(domain, v) for v in elements.items(domain, key))
    if is_constant(domain, key):
        return True
    return isinstance(key, Obj) and key.real is not NEW and key.path is not None and not key.written


def _raw(domain: CaptureDomain, self: Known) -> object:
    """The object itself, for real code, which may ask methods of the program's that nobody sees: they count in other processes."""
    if has_own_methods(type(self.obj)):
        relied_on(self.obj)
    return self.obj


register(
    Known,
    TypeSlots(
        getattribute=_getattribute,
        richcompare=compare_real,
        bool=lambda domain, self: bool(to_raw(domain, self)),
        length=_length,
        iter=_iter,
        contains=_contains,
        getitem=_getitem,
        type_of=lambda domain, self: type(self.obj),
        raw=_raw,
        is_constant=lambda domain, self: True,
    ),
)
