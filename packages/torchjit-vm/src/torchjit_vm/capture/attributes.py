"""Attribute access: CPython's lookup rules over values, each step guarded."""

from __future__ import annotations

import _thread
import types
import weakref
from typing import cast, final

from torchjit_core.guards import MISSING, Predicate
from torchjit_core.paths import own_attr
from torchjit_core.storing import never_stored
from torchjit_vm.capture.contexts import is_local, local_attr
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.members import (
    ABSENT,
    CLASS,
    CMETHOD,
    DESCRIPTOR,
    FUNCTION,
    PLAIN,
    PROPERTY,
    SLOT,
    STATIC,
    Member,
    find_member,
    is_hook,
    member_value,
    walk,
)
from torchjit_vm.capture.reading import constant_object, pinned, wrap
from torchjit_vm.capture.reasons import PLACE_OF_CODE, UNKNOWN_ATTRIBUTE
from torchjit_vm.capture.type_slots import SLOTS, TypeSlots, register
from torchjit_vm.capture.types import is_subtype, type_of
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
    BoundMethod,
    Const,
    InstanceDict,
    Known,
    Leaf,
    Obj,
    SuperValue,
    TracebackValue,
    Value,
)
from torchjit_vm.decode import VERSION
from torchjit_vm.frame import Frame, Raised
from torchjit_vm.type_labels import type_label

__all__ = [
    "Sought",
    "bind",
    "generic_attr",
    "instance_attr",
    "is_exception_field",
    "lies_elsewhere",
    "load_attr",
    "load_special",
    "load_super_attr",
    "lookup",
    "make_super",
    "missing",
    "slot",
    "tell_sought",
]


def load_attr(domain: CaptureDomain, value: Value, name: str) -> Value | Frame[Value]:
    """`value.name`.

    Raises:
        Raised: AttributeError, or what a descriptor raises.
        GraphBreak: the attribute is computed by unknown C code.
    """
    try:
        found = (SLOTS[type(value)].getattribute or internal_attr)(domain, value, name)
    except Raised as raised:
        tell_sought(raised.value, value, name)
        raise
    if type(found) is Frame and found.on_raise is None:
        found.on_raise = Sought(value, name)
    return found


@final
class Sought:
    """Called with an exception that leaves a lookup of `value.name`; `fallback` is the `__getattr__` that is asked after it."""

    __slots__ = ("domain", "fallback", "name", "value")

    def __init__(
        self, value: Value, name: str, fallback: Value | None = None, domain: CaptureDomain | None = None
    ) -> None:
        self.value, self.name, self.fallback, self.domain = value, name, fallback, domain

    def __call__(self, exception: Value) -> Value | Frame[Value] | None:
        """What the lookup gives instead, if there is something.

        Raises:
            Raised: what `__getattr__` raises.
        """
        domain = self.domain
        if self.fallback is None or domain is None or not issubclass(type_of(domain, exception), AttributeError):
            tell_sought(exception, self.value, self.name)
            return None
        try:
            found = domain.call(self.fallback, [self.value, Const(self.name)], {})
        except Raised as raised:
            tell_sought(raised.value, self.value, self.name)
            raise
        if type(found) is Frame and found.on_raise is None:
            found.on_raise = Sought(self.value, self.name)
        return found


def tell_sought(exception: Value, value: Value, name: str) -> None:
    """Set `name` and `obj` of an AttributeError that a lookup raises, unless it has one of them.

    Source: set_attribute_error_context in CPython's Objects/object.c.
    """
    if isinstance(exception, Obj) and exception.real is NEW and issubclass(exception.cls, AttributeError):
        attrs = exception.attrs
        if "name" not in attrs and "obj" not in attrs:
            attrs["name"], attrs["obj"] = Const(name), value


def lookup(domain: CaptureDomain, value: Value, name: str) -> Value | None:
    """`getattr(value, name)`, or None when that raises AttributeError. Runs descriptors in a nested loop."""
    try:
        return domain.vm.finish(load_attr(domain, value, name))
    except Raised as raised:
        if isinstance(raised.value, Obj) and issubclass(raised.value.cls, AttributeError):
            return None
        raise


def missing(domain: CaptureDomain, cls: type, name: str) -> Raised:
    return domain.error(AttributeError, f"'{type_label(cls)}' object has no attribute '{name}'")


_GENERIC = object.__dict__["__getattribute__"]
_ELSEWHERE = (_thread._local, weakref.ProxyType, weakref.CallableProxyType)


def lies_elsewhere(cls: type) -> bool:
    """Does the C code of the class find attributes that the object itself does not hold: the thread's, another object's?"""
    return issubclass(cls, _ELSEWHERE)


def _obj_attr(domain: CaptureDomain, value: Obj, name: str) -> Value | Frame[Value]:
    cls = value.cls
    hook = find_member(domain, cls, "__getattribute__")
    if hook.kind == FUNCTION:
        return _own_getattribute(domain, value, member_value(domain, hook), name)
    if hook.raw is not _GENERIC and lies_elsewhere(cls) and not is_local(cls):
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")
    try:
        result = generic_attr(domain, value, name)
    except Raised as raised:  # an empty slot, a property without a getter, a descriptor of C
        asked = find_member(domain, cls, "__getattr__")
        if not is_hook(asked) or not issubclass(type_of(domain, raised.value), AttributeError):
            raise
        result = None
    if isinstance(result, Value):
        return result
    hook = find_member(domain, cls, "__getattr__")
    if is_hook(hook):
        asked_value = member_value(domain, hook)
        if result is None:
            return domain.call(asked_value, [value, Const(name)], {})
        result.on_raise = Sought(value, name, asked_value, domain)  # a property: where it raises AttributeError
    if result is not None:
        return result
    if hook.kind != ABSENT or _knows_more(value, name):
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")
    raise missing(domain, cls, name)


def _knows_more(value: Obj, name: str) -> bool:
    """Does C code know more than the mro?"""
    return name not in value.attrs and value.real is not NEW and hasattr(value.real, name)


def _own_getattribute(domain: CaptureDomain, value: Obj, hook: Value, name: str) -> Value | Frame[Value]:
    """A `__getattribute__` in Python; where it raises AttributeError, `__getattr__` is asked."""
    fallback = find_member(domain, value.cls, "__getattr__")
    if fallback.kind == ABSENT:
        return domain.call(hook, [value, Const(name)], {})
    try:
        return domain.vm.call(hook, [value, Const(name)])
    except Raised as raised:
        if not issubclass(type_of(domain, raised.value), AttributeError):
            raise
    if not is_hook(fallback):
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{value.cls.__name__}.{name}")
    return domain.call(member_value(domain, fallback), [value, Const(name)], {})


def generic_attr(domain: CaptureDomain, value: Obj, name: str) -> Value | Frame[Value] | None:
    """`object.__getattribute__`, or None where that raises AttributeError."""
    cls = value.cls
    member = domain.members.get((cls, name)) or find_member(domain, cls, name)
    if member.data:
        return _data_attr(domain, value, member)
    found = instance_attr(domain, value, name)
    if found is not None:
        return found
    return None if member.kind == ABSENT else bind(domain, member, value)


def instance_attr(domain: CaptureDomain, value: Obj, name: str) -> Value | None:
    """What the instance's `__dict__` holds under the name, or None."""
    found = value.attrs.get(name)
    if found is not None:
        return None if found is DELETED else found
    if is_local(value.cls):
        return local_attr(domain, value, name)
    if value.real is NEW or value.path is None:
        return None
    try:
        members = object.__getattribute__(value.real, "__dict__")
    except AttributeError:
        return None
    if name in members:
        result = wrap(domain, members[name], value.path.instance_attr(name))
        value.attrs[name] = result
        return result
    domain.guard_lacks(value.path, name)
    value.attrs[name] = DELETED
    return None


def _data_attr(domain: CaptureDomain, value: Obj, member: Member) -> Value | Frame[Value]:
    name = member.name
    if member.kind == PROPERTY:
        return _property_value(domain, member, value)
    if name == "__class__":
        return Known(value.cls)
    if name == "__dict__" and not is_local(value.cls):
        return InstanceDict(value)
    of_kind = SLOTS[type(value)].getattr
    known = None if of_kind is None else of_kind(domain, value, member)
    if known is not None:
        return known
    if member.kind == SLOT or is_exception_field(value, name):
        return slot(domain, value, name)
    if member.kind == DESCRIPTOR:
        return _call_get(domain, member, value)
    raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{value.cls.__name__}.{name}")


def _property_value(domain: CaptureDomain, member: Member, self_: Value) -> Value | Frame[Value]:
    getter, cls, name = member.raw.fget, type_of(domain, self_), member.name
    if getter is None:
        raise domain.error(AttributeError, f"property '{name}' of '{cls.__qualname__}' object has no getter")
    return domain.call(pinned(domain, getter, f"{member.cls.__qualname__}.{name}.fget"), [self_], {})


_EXCEPTION_FIELDS = frozenset({"args", "__cause__", "__context__", "__suppress_context__", "__traceback__", "value"})


def is_exception_field(value: Obj, name: str) -> bool:
    return issubclass(value.cls, BaseException) and name in _EXCEPTION_FIELDS


def slot(domain: CaptureDomain, value: Obj, name: str) -> Value:
    """A slot of an instance, or a field of a C object that merely holds an object."""
    found = value.attrs.get(name)
    if found is not None and found is not DELETED:
        return found
    if found is None and value.real is not NEW and value.path is not None:
        try:
            real = own_attr(value.real, name)
        except AttributeError:
            _guard_empty(domain, value, name)
            value.attrs[name] = DELETED
            raise _empty(domain, value.cls, name) from None
        result = wrap(domain, real, value.path.attr(name))
        value.attrs[name] = result
        return result
    if issubclass(value.cls, BaseException) and name != "args":
        if name == "__traceback__" and value in domain.thrown:
            return TracebackValue(value, domain.vm.depth(value))
        return Const(False if name == "__suppress_context__" else None)
    raise _empty(domain, value.cls, name)


def _empty(domain: CaptureDomain, cls: type, name: str) -> Exception:
    """The error for a slot that holds nothing; since 3.13 it gives the class with its module."""
    label = type_label(cls)
    if VERSION >= (3, 13):
        label = (
            cls.__qualname__ if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}.{cls.__qualname__}"
        )
    return domain.error(AttributeError, f"'{label}' object has no attribute '{name}'")


def _guard_empty(domain: CaptureDomain, value: Obj, name: str) -> None:
    """Rely on a slot to be empty."""
    descriptor = walk(value.cls.__mro__, name)
    if type(descriptor) is not types.MemberDescriptorType or value.path is None:
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"empty slot {name}")

    def empty(other: object) -> bool:
        try:
            descriptor.__get__(other, type(other))
        except AttributeError:
            return True
        return False

    domain.guard(Predicate(value.path, empty, f"not hasattr({value.path}, {name!r})", domain.location()))


def bind(domain: CaptureDomain, member: Member, self_: Value) -> Value | Frame[Value]:
    """A class member that is no data descriptor, as seen through an instance."""
    kind = member.kind
    if kind == CMETHOD:
        check_owner(domain, member.raw, member.cls)
    if kind in (FUNCTION, CMETHOD):
        return BoundMethod(member_value(domain, member), self_)
    if kind in (STATIC, PLAIN):
        return member_value(domain, member)
    if kind == CLASS:
        return BoundMethod(member_value(domain, member), Known(type_of(domain, self_)))
    if kind == PROPERTY:
        return _property_value(domain, member, self_)
    if kind == SLOT and isinstance(self_, Obj):
        return slot(domain, self_, member.name)
    return _call_get(domain, member, self_)


def check_owner(domain: CaptureDomain, descriptor: object, cls: type) -> None:
    """What CPython's `descr_check` asks: a C method of one class is not bound to objects of another (`push = list.append`)."""
    owner = getattr(descriptor, "__objclass__", cls)
    if owner not in cls.__mro__:
        name = getattr(descriptor, "__name__", "")
        applies = f"descriptor '{name}' for '{type_label(owner)}' objects doesn't apply to a '{type_label(cls)}' object"
        raise domain.error(TypeError, applies)


def _call_get(domain: CaptureDomain, member: Member, self_: Value) -> Value | Frame[Value]:
    descriptor = type(member.raw)
    if descriptor is types.ClassMethodDescriptorType:
        owner = type_of(domain, self_)
        return constant_object(domain, getattr(owner, member.name))
    if descriptor in domain.policy.value_types or isinstance(self_, Const):
        return _of_constant(domain, cast(Const, self_).value, member.name)
    getter = walk(descriptor.__mro__, "__get__")
    if type(getter) is types.FunctionType:
        domain.guard_class(descriptor, "__get__", getter)
        label = f"{member.cls.__qualname__}.{member.name}"
        arguments = [pinned(domain, member.raw, label), self_, Known(type_of(domain, self_))]
        return domain.call(pinned(domain, getter, "__get__"), arguments, {})
    raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{descriptor.__name__} {member.name}")


def load_super_attr(
    domain: CaptureDomain, super_type: Value, cls: Value, self_: Value, name: str
) -> Value | Frame[Value]:
    if not (isinstance(super_type, Known) and super_type.obj is super and isinstance(cls, Known)):
        made = domain.vm.call(super_type, [cls, self_])
        return load_attr(domain, made, name)
    return load_attr(domain, make_super(domain, cls.obj, self_), name)


def _refusal(cls: type, obj: object) -> str:
    """What `super` says, in the words of this Python, where the object is no instance."""
    try:
        super(cls, obj)
    except TypeError as error:
        return str(error)
    raise AssertionError("super() has taken an object of another class")


def make_super(domain: CaptureDomain, cls: type, self_: Value) -> SuperValue:
    """`super(cls, self_)`."""
    if isinstance(self_, Known) and isinstance(self_.obj, type) and is_subtype(self_.obj, cls):
        return SuperValue(cls, self_.obj, self_)
    owner = type_of(domain, self_)
    if not is_subtype(owner, cls):
        plain = type(owner.__name__, (), {})()
        raise domain.error(TypeError, _refusal(type(cls.__name__, (), {}), plain))
    return SuperValue(cls, owner, self_)


def _of_constant(domain: CaptureDomain, real: object, name: str) -> Value:
    """An attribute of a value that nothing changes."""
    if type(real) is types.CodeType and name in _PLACES:
        never_stored(PLACE_OF_CODE, f"{real.co_qualname}.__code__.{name}")
    return constant_object(domain, getattr(real, name))


_PLACES = frozenset({"co_filename", "co_firstlineno", "co_lines", "co_positions"})


def internal_attr(domain: CaptureDomain, value: Value, name: str) -> Value | Frame[Value]:
    """An attribute of what is no instance: a method of C, or what the kind knows."""
    cls = type_of(domain, value)
    if name == "__class__":
        return Known(cls)
    raw = walk(cls.__mro__, name)
    if type(raw) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        return BoundMethod(pinned(domain, raw, f"{cls.__name__}.{name}"), value)
    if raw is MISSING:
        raise missing(domain, cls, name)
    if type(value) is Const:
        return _of_constant(domain, domain.use(value), name)
    slot = SLOTS[type(value)].getattr
    found = None if slot is None else slot(domain, value, Member(cls, name, raw))
    if found is None:
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")
    return found


def load_special(domain: CaptureDomain, value: Value, name: str) -> Value:
    """Look a dunder up on the type, bound; TypeError as `with` says it."""
    cls = type_of(domain, value)
    if type(value) is Leaf:
        return domain.vm.finish(load_attr(domain, value, name))
    member = find_member(domain, cls, name)
    if member.kind == ABSENT:
        missed = f" (missed {name} method)" if name in ("__exit__", "__aexit__") else ""
        how = "asynchronous " if name in ("__aenter__", "__aexit__") else ""
        text = f"'{type_label(cls)}' object does not support the {how}context manager protocol{missed}"
        raise domain.error(TypeError, text)
    return domain.vm.finish(bind(domain, member, value))


register(Obj, TypeSlots(getattribute=_obj_attr))
