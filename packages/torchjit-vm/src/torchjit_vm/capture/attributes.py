"""Attribute access: CPython's lookup rules over values, each step guarded."""

from __future__ import annotations

import _thread
import contextvars
import types
import weakref
from _collections import _tuplegetter  # type: ignore[import-not-found]
from collections.abc import Callable
from typing import TYPE_CHECKING, cast, final

from torchjit_core.guards import MISSING
from torchjit_vm.capture import elements, interception
from torchjit_vm.capture.contexts import is_local, local_attr, token_attr
from torchjit_vm.capture.known_attributes import known_attr
from torchjit_vm.capture.members import (
    ABSENT,
    CLASS,
    CMETHOD,
    DESCRIPTOR,
    FUNCTION,
    IMMUTABLE_TYPE,
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
from torchjit_vm.capture.raw import from_raw
from torchjit_vm.capture.reading import constant_object, namespace, pinned, wrap
from torchjit_vm.capture.reasons import UNKNOWN_ATTRIBUTE
from torchjit_vm.capture.slots import is_exception_field, slot
from torchjit_vm.capture.type_slots import SLOTS
from torchjit_vm.capture.types import is_subtype, type_of
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
    BoundMethod,
    CellValue,
    Const,
    DictValue,
    FunctionValue,
    InstanceDict,
    Known,
    Leaf,
    Obj,
    SliceValue,
    SuperValue,
    TupleValue,
    Value,
)
from torchjit_vm.frame import Frame, Raised
from torchjit_vm.type_labels import type_label

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = [
    "Sought",
    "bind",
    "generic_attr",
    "instance_attr",
    "lies_elsewhere",
    "load_attr",
    "load_special",
    "load_super_attr",
    "lookup",
    "make_super",
    "tell_sought",
]


def load_attr(domain: CaptureDomain, value: Value, name: str) -> Value | Frame[Value]:
    """`value.name`.

    Raises:
        Raised: AttributeError, or what a descriptor raises.
        GraphBreak: the attribute is computed by unknown C code.
    """
    try:
        if isinstance(value, Obj):
            found = _obj_attr(domain, value, name)
        elif type(value) is Leaf:
            found = _leaf_attr(domain, value, name)
        elif type(value) is Known:
            found = known_attr(domain, value, name)
        elif type(value) is SuperValue:
            found = _super_attr(domain, value, name)
        elif type(value) is Const:
            found = _const_attr(domain, value, name)
        else:
            found = _internal_attr(domain, value, name)
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


def missing(domain: CaptureDomain, cls: type, name: str) -> Exception:
    return domain.error(AttributeError, f"'{type_label(cls)}' object has no attribute '{name}'")


_WRAPPERS = (classmethod, staticmethod)
_WRAPPED_FIELDS = frozenset({"__module__", "__name__", "__qualname__", "__doc__", "__annotations__"})
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
    if cls in _WRAPPERS and value.real is NEW and name in _WRAPPED_FIELDS and name not in value.attrs:
        return load_attr(domain, value.attrs["__func__"], name)
    try:
        result = generic_attr(domain, value, name)
    except Raised as raised:  # an empty slot, a property without a getter, a descriptor of C
        asked = find_member(domain, cls, "__getattr__")
        if not is_hook(asked) or not issubclass(type_of(domain, raised.value), AttributeError):
            raise
        result = None
    if type(result) is Frame:  # a property: where it raises AttributeError, `__getattr__` is asked
        asked = find_member(domain, cls, "__getattr__")
        if is_hook(asked):
            result.on_raise = Sought(value, name, member_value(domain, asked), domain)
    if result is not None:
        return result
    hook = find_member(domain, cls, "__getattr__")
    if is_hook(hook):
        return domain.call(member_value(domain, hook), [value, Const(name)], {})
    if hook.kind != ABSENT:
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")
    if name not in value.attrs and value.real is not NEW and hasattr(value.real, name):
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")  # C code that knows more than the mro
    raise missing(domain, cls, name)


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
        getter = member.raw.fget
        if getter is None:
            raise domain.error(AttributeError, f"property '{name}' of '{value.cls.__qualname__}' object has no getter")
        return domain.call(pinned(domain, getter, f"{member.cls.__qualname__}.{name}.fget"), [value], {})
    if name == "__class__":
        return Known(value.cls)
    if name == "__dict__" and not is_local(value.cls):
        return InstanceDict(value)
    if type(value) is FunctionValue:
        return _code_attr(domain, value, name)
    if name == "default_factory" and isinstance(value, DictValue) and value.factory is not None:
        return value.factory
    if member.kind == SLOT or is_exception_field(value, name):
        return slot(domain, value, name)
    if type(member.raw) is _tuplegetter and isinstance(value, TupleValue):
        index = member.raw.__reduce__()[1][0]
        return elements.items(domain, value)[int(index)]
    if member.kind == DESCRIPTOR:
        return _call_get(domain, member, value)
    if value.cls is contextvars.Token and (told := token_attr(domain, value, name)) is not None:
        return told
    of_kind = SLOTS[type(value)].getattr
    known = None if of_kind is None else of_kind(domain, value, name)
    if known is not None:
        return known
    raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{value.cls.__name__}.{name}")


_TOLD = frozenset({"__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__type_params__"})


def _code_attr(domain: CaptureDomain, value: FunctionValue, name: str) -> Value:
    """A field of a function that the region made, or that is known by its code."""
    if name in _TOLD and name not in value.attrs and value.real is not NEW and value.path is not None:
        value.attrs[name] = wrap(domain, getattr(value.real, name), value.path.attr(name))
    if name in value.attrs:
        return value.attrs[name]
    if name == "__globals__":
        return namespace(domain, value.globals)
    if name == "__annotations__" and value.real is NEW:
        value.attrs[name] = _annotations(domain, value)
        return value.attrs[name]
    field = _FIELDS.get(name)
    if field is None:
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"function.{name}")
    return field(value)


def _doc(value: FunctionValue) -> Value:
    text = value.code.co_consts[0] if value.code.co_consts else None
    return Const(text if isinstance(text, str) else None)


_FIELDS: dict[str, Callable[[FunctionValue], Value]] = {
    "__name__": lambda value: Const(value.name),
    "__qualname__": lambda value: Const(value.qualname),
    "__module__": lambda value: Const(value.globals.get("__name__")),
    "__code__": lambda value: Const(value.code),
    "__doc__": _doc,
    "__type_params__": lambda value: TupleValue([]),
    "__closure__": lambda value: TupleValue(list(value.closure)) if value.closure else Const(None),
    "__defaults__": lambda value: TupleValue(list(value.defaults)) if value.defaults else Const(None),
    "__kwdefaults__": lambda value: value.kwdefaults or Const(None),
}


def _annotations(domain: CaptureDomain, value: FunctionValue) -> Value:
    if isinstance(value.annotations, DictValue):
        return value.annotations
    made = DictValue()
    if value.annotations is not None:
        flat = domain.unpack_all(value.annotations)
        for key, content in zip(flat[::2], flat[1::2], strict=True):
            made.entries[domain.use(key)] = (key, content)
    value.annotations = None
    return made


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
    if kind in (PROPERTY, SLOT):
        if isinstance(self_, Obj):
            return _data_attr(domain, self_, member)
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, member.name)
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
        return constant_object(domain, getattr(cast(Const, self_).value, member.name))
    getter = walk(descriptor.__mro__, "__get__")
    if type(getter) is types.FunctionType:
        domain.guard_class(descriptor, "__get__", getter)
        label = f"{member.cls.__qualname__}.{member.name}"
        arguments = [pinned(domain, member.raw, label), self_, Known(type_of(domain, self_))]
        return domain.call(pinned(domain, getter, "__get__"), arguments, {})
    raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{descriptor.__name__} {member.name}")


def _leaf_attr(domain: CaptureDomain, value: Leaf, name: str) -> Value | Frame[Value]:
    cls = domain.leaves.type_of(value.payload)
    if name == "__class__":
        return Known(cls)
    member = domain.members.get((cls, name)) or find_member(domain, cls, name)
    raw = member.raw
    if type(raw) in (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType):
        return BoundMethod(member_value(domain, member), value)
    if raw is MISSING and cls in (int, float, bool):
        raise missing(domain, cls, name)
    if value.attrs is not None and name in value.attrs:
        return value.attrs[name]
    if domain.overrides and member.kind in _OF_PROGRAMS and interception.defined_by_program(domain, value, name):
        if member.kind == PROPERTY:
            return domain.call(pinned(domain, raw.fget, f"{cls.__qualname__}.{name}.fget"), [value], {})
        return bind(domain, member, value)
    if raw is MISSING:
        there = name in getattr(value.real, "__dict__", ())
    else:  # what is public says something about the leaf
        there = name[:1] == "_" and type(raw) is types.GetSetDescriptorType
    if there and value.path is not None and not domain.leaves.owns_attribute(value.payload, name):
        return wrap(domain, getattr(value.real, name), value.path.attr(name))
    return _asked_attr(domain, value, name, overridden=domain.overrides and raw is not MISSING)


def _asked_attr(domain: CaptureDomain, value: Leaf, name: str, overridden: bool) -> Value:
    """An attribute that those say who see calls of the handler, else the handler."""
    answer = interception.intercept(domain, getattr, [value, Const(name)], {}) if domain.interceptors else None
    if answer is None and overridden:
        answer = interception.override(domain, getattr, [value, Const(name)], {})
    if answer is not None:
        return answer
    try:
        result = domain.leaves.getattr(value.payload, name, domain)
    except AttributeError as error:
        raise domain.error(AttributeError, str(error)) from None
    return from_raw(domain, result)


_OF_PROGRAMS = (STATIC, CLASS, PROPERTY, PLAIN)
"""Members that a class of the program gives leaves."""


def _const_attr(domain: CaptureDomain, value: Const, name: str) -> Value | Frame[Value]:
    cls = type(value.value)
    raw = walk(cls.__mro__, name)
    if type(raw) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        return BoundMethod(pinned(domain, raw, f"{cls.__name__}.{name}"), value)
    if raw is MISSING:
        raise missing(domain, cls, name)
    return constant_object(domain, getattr(domain.use(value), name))


_INIT_SUBCLASS = object.__dict__["__init_subclass__"]


def _super_attr(domain: CaptureDomain, value: SuperValue, name: str) -> Value | Frame[Value]:
    if name == "__class__":  # C's own lookup leaves it out
        return Known(super)
    mro = value.owner.__mro__
    domain.guard_mro(value.owner)
    after = mro[mro.index(value.cls) + 1 :]
    for owner in after:
        if name in owner.__dict__:
            raw = owner.__dict__[name]
            if not owner.__flags__ & IMMUTABLE_TYPE:
                domain.guard_class(owner, name, raw)
            member = Member(owner, name, raw)
            instance = not (isinstance(value.self_, Known) and value.self_.obj is value.owner)
            of_c = type(raw) is types.ClassMethodDescriptorType and raw is not _INIT_SUBCLASS
            if of_c and raw not in domain.policy.substitutes:
                return constant_object(domain, raw.__get__(None, value.owner))
            if of_c or member.kind == CLASS or raw is _INIT_SUBCLASS:
                return BoundMethod(member_value(domain, member), Known(value.owner))
            if not instance:
                return member_value(domain, member)
            return bind(domain, member, value.self_)
        if not owner.__flags__ & IMMUTABLE_TYPE:
            domain.guard_class(owner, name, walk(owner.__mro__, name))
    if name == "__self__":
        return value.self_
    if name in ("__thisclass__", "__self_class__"):
        return pinned(domain, value.cls if name == "__thisclass__" else value.owner, name)
    raise domain.error(AttributeError, f"'super' object has no attribute '{name}'")


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


def _internal_attr(domain: CaptureDomain, value: Value, name: str) -> Value | Frame[Value]:
    if type(value) is BoundMethod:
        if name == "__self__":
            return value.self_
        if name == "__func__":
            return value.function
        return load_attr(domain, value.function, name)
    if type(value) is SliceValue and name in ("start", "stop", "step"):
        found: Value = getattr(value, name)
        return found
    if type(value) is CellValue and name == "cell_contents":
        content = domain.cell_get(value)
        if content is None:
            raise domain.error(ValueError, "cell is empty")
        return content
    cls = type_of(domain, value)
    if name == "__class__":
        return Known(cls)
    raw = walk(cls.__mro__, name)
    if type(raw) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        return BoundMethod(Known(raw), value)
    if raw is MISSING:
        raise missing(domain, cls, name)
    raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")


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
