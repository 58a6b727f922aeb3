"""Attribute access: CPython's lookup rules over values, each step guarded."""

from __future__ import annotations

import enum
import functools
import types
from _collections import _tuplegetter  # type: ignore[import-not-found]
from typing import TYPE_CHECKING, Any, cast, final

from torchjit_core.guards import MISSING
from torchjit_core.paths import Pinned
from torchjit_vm.capture.raw import from_raw, to_raw
from torchjit_vm.capture.reading import constant_object, pinned, wrap
from torchjit_vm.capture.reasons import UNKNOWN_ATTRIBUTE, UNKNOWN_OPERATION
from torchjit_vm.capture.types import type_of
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

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = [
    "Member",
    "delete_attr",
    "find_member",
    "load_attr",
    "load_special",
    "load_super_attr",
    "lookup",
    "store_attr",
]

ABSENT, FUNCTION, STATIC, CLASS, PROPERTY, SLOT, GETSET, CMETHOD, DESCRIPTOR, PLAIN = range(10)
_IMMUTABLE_TYPE = 1 << 8


@final
class Member:
    """What a class has under a name: `kind`, the raw object, and whether it is a data descriptor."""

    __slots__ = ("cls", "data", "kind", "name", "raw", "value")

    def __init__(self, cls: type, name: str, raw: Any) -> None:
        self.cls, self.name, self.raw = cls, name, raw
        self.value: Value | None = None
        t = type(raw)
        self.kind = _KINDS.get(t, PLAIN)
        if raw is MISSING:
            self.kind = ABSENT
        elif self.kind == PLAIN:
            if isinstance(raw, property):
                self.kind = PROPERTY
            elif isinstance(raw, classmethod):
                self.kind = CLASS
            elif isinstance(raw, staticmethod):
                self.kind = STATIC
            elif getattr(t, "__get__", None) is not None:
                self.kind = DESCRIPTOR
        self.data = self.kind in (PROPERTY, SLOT, GETSET) or (
            self.kind == DESCRIPTOR and (hasattr(t, "__set__") or hasattr(t, "__delete__"))
        )


_KINDS = {
    types.FunctionType: FUNCTION,
    staticmethod: STATIC,
    classmethod: CLASS,
    property: PROPERTY,
    types.MemberDescriptorType: SLOT,
    types.GetSetDescriptorType: GETSET,
    types.MethodDescriptorType: CMETHOD,
    types.WrapperDescriptorType: CMETHOD,
    types.ClassMethodDescriptorType: DESCRIPTOR,
    types.BuiltinFunctionType: PLAIN,
}


def find_member(domain: CaptureDomain, cls: type, name: str) -> Member:
    """Look a name up along the mro, guarded."""
    found = domain.members.get((cls, name))
    if found is None:
        found = domain.members[cls, name] = Member(cls, name, _walk(cls.__mro__, name))
        if not cls.__flags__ & _IMMUTABLE_TYPE:
            domain.guard_class(cls, name, found.raw)
    return found


def _walk(mro: tuple[type, ...], name: str) -> Any:
    for owner in mro:
        if name in owner.__dict__:
            return owner.__dict__[name]
    return MISSING


def member_value(domain: CaptureDomain, member: Member) -> Value:
    """The raw object of a member as a value."""
    if member.value is None:
        raw = member.raw
        if member.kind in (STATIC, CLASS):
            raw = raw.__func__
        member.value = pinned(domain, raw, f"{member.cls.__qualname__}.{member.name}")
    return member.value


def load_attr(domain: CaptureDomain, value: Value, name: str) -> Value | Frame[Value]:
    """`value.name`.

    Raises:
        Raised: AttributeError, or what a descriptor raises.
        GraphBreak: the attribute is computed by unknown C code.
    """
    if isinstance(value, Obj):
        return _obj_attr(domain, value, name)
    if type(value) is Leaf:
        return _leaf_attr(domain, value, name)
    if type(value) is Known:
        return _known_attr(domain, value, name)
    if type(value) is SuperValue:
        return _super_attr(domain, value, name)
    if type(value) is Const:
        return _const_attr(domain, value, name)
    return _internal_attr(domain, value, name)


def lookup(domain: CaptureDomain, value: Value, name: str) -> Value | None:
    """`getattr(value, name)`, or None when that raises AttributeError. Runs descriptors in a nested loop."""
    try:
        return domain.vm.finish(load_attr(domain, value, name))
    except Raised as raised:
        if isinstance(raised.value, Obj) and issubclass(raised.value.cls, AttributeError):
            return None
        raise


def _missing(domain: CaptureDomain, cls: type, name: str) -> Exception:
    return domain.error(AttributeError, f"'{cls.__name__}' object has no attribute '{name}'")


def _obj_attr(domain: CaptureDomain, value: Obj, name: str) -> Value | Frame[Value]:
    cls = value.cls
    hook = find_member(domain, cls, "__getattribute__")
    if hook.kind == FUNCTION:
        return domain.call(member_value(domain, hook), [value, Const(name)], {})
    result = generic_attr(domain, value, name)
    if result is not None:
        return result
    hook = find_member(domain, cls, "__getattr__")
    if hook.kind == FUNCTION:
        return domain.call(member_value(domain, hook), [value, Const(name)], {})
    if hook.kind != ABSENT:
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")
    raise _missing(domain, cls, name)


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
        return None if found is DELETED else cast(Value, found)
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


def items(domain: CaptureDomain, value: TupleValue) -> list[Value]:
    """The items of a tuple."""
    # The two modules know one another: attributes may hold items, and containers have attributes.
    from torchjit_vm.capture import containers  # noqa: PLC0415

    return containers.items(domain, value)


def _data_attr(domain: CaptureDomain, value: Obj, member: Member) -> Value | Frame[Value]:
    name = member.name
    if member.kind == PROPERTY:
        getter = member.raw.fget
        if getter is None:
            raise domain.error(AttributeError, f"property '{name}' of '{value.cls.__name__}' object has no getter")
        return domain.call(pinned(domain, getter, f"{member.cls.__qualname__}.{name}.fget"), [value], {})
    if name == "__class__":
        return Known(value.cls)
    if name == "__dict__":
        return InstanceDict(value)
    if type(value) is FunctionValue:
        return _code_attr(domain, value, name)
    if member.kind == SLOT or _is_exception_field(value, name):
        return _slot(domain, value, name)
    if type(member.raw) is _tuplegetter and isinstance(value, TupleValue):
        index = member.raw.__reduce__()[1][0]
        return items(domain, value)[int(index)]
    if member.kind == DESCRIPTOR:
        return _call_get(domain, member, value)
    if issubclass(value.cls, tuple) and value.real is not NEW:
        return constant_object(domain, getattr(value.real, name))
    raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{value.cls.__name__}.{name}")


def _code_attr(domain: CaptureDomain, value: FunctionValue, name: str) -> Value:
    """A field of a function that the region made, or that is known by its code."""
    simple = {"__name__": value.name, "__qualname__": value.qualname, "__module__": value.globals.get("__name__")}
    if name in value.attrs:
        return cast(Value, value.attrs[name])
    if name in simple:
        return Const(simple[name])
    if name == "__code__":
        return Const(value.code)
    if name == "__doc__":
        text = value.code.co_consts[0] if value.code.co_consts else None
        return Const(text if isinstance(text, str) else None)
    if name == "__closure__":
        return TupleValue(list(value.closure)) if value.closure else Const(None)
    if name == "__defaults__":
        return TupleValue(list(value.defaults)) if value.defaults else Const(None)
    if name == "__annotations__" and value.real is NEW:
        value.attrs[name] = _annotations(domain, value)
        return cast(Value, value.attrs[name])
    raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"function.{name}")


def _annotations(domain: CaptureDomain, value: FunctionValue) -> Value:
    if isinstance(value.annotations, DictValue):
        return value.annotations
    made = DictValue()
    if value.annotations is not None:
        flat = domain.unpack_all(value.annotations)
        for key, content in zip(flat[::2], flat[1::2], strict=True):
            made.entries[domain.use(cast(Const, key))] = (key, content)
    value.annotations = None
    return made


_EXCEPTION_FIELDS = frozenset({"args", "__cause__", "__context__", "__suppress_context__", "__traceback__", "value"})


def _is_exception_field(value: Obj, name: str) -> bool:
    return issubclass(value.cls, BaseException) and name in _EXCEPTION_FIELDS


def _slot(domain: CaptureDomain, value: Obj, name: str) -> Value:
    """A slot of an instance, or a field of a C object that merely holds an object."""
    found = value.attrs.get(name)
    if found is not None and found is not DELETED:
        return cast(Value, found)
    if found is None and value.real is not NEW and value.path is not None:
        try:
            real = getattr(value.real, name)
        except AttributeError:
            raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"empty slot {name}") from None
        result = wrap(domain, real, value.path.attr(name))
        value.attrs[name] = result
        return result
    if type(value) is TupleValue:  # structseq
        names: tuple[str, ...] = getattr(value.cls, "__match_args__", ())
        if name in names and value.items is not None:
            return value.items[names.index(name)]
    if issubclass(value.cls, BaseException) and name != "args":
        return Const(False if name == "__suppress_context__" else None)
    raise _missing(domain, value.cls, name)


def bind(domain: CaptureDomain, member: Member, self_: Value) -> Value | Frame[Value]:
    """A class member that is no data descriptor, as seen through an instance."""
    kind = member.kind
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


def _call_get(domain: CaptureDomain, member: Member, self_: Value) -> Value | Frame[Value]:
    descriptor = type(member.raw)
    if descriptor is types.ClassMethodDescriptorType:
        owner = type_of(domain, self_)
        return constant_object(domain, getattr(owner, member.name))
    if descriptor in domain.policy.value_types or isinstance(self_, Const):
        return constant_object(domain, getattr(cast(Const, self_).value, member.name))
    getter = _walk(descriptor.__mro__, "__get__")
    if type(getter) is types.FunctionType:
        domain.guard_class(descriptor, "__get__", getter)
        label = f"{member.cls.__qualname__}.{member.name}"
        arguments = [pinned(domain, member.raw, label), self_, Known(type_of(domain, self_))]
        return domain.call(Known(getter), arguments, {})
    raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{descriptor.__name__} {member.name}")


def _leaf_attr(domain: CaptureDomain, value: Leaf, name: str) -> Value | Frame[Value]:
    cls = domain.leaves.type_of(value.payload)
    if name == "__class__":
        return Known(cls)
    raw = _walk(cls.__mro__, name)
    if type(raw) in (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType):
        member = domain.members.get((cls, name))
        if member is None:
            member = domain.members[cls, name] = Member(cls, name, raw)
        return BoundMethod(member_value(domain, member), value)
    try:
        result = domain.leaves.getattr(value.payload, name, domain)
    except AttributeError as error:
        raise domain.error(AttributeError, str(error)) from None
    return from_raw(domain, result)


def _const_attr(domain: CaptureDomain, value: Const, name: str) -> Value | Frame[Value]:
    cls = type(value.value)
    raw = _walk(cls.__mro__, name)
    if type(raw) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        return BoundMethod(pinned(domain, raw, f"{cls.__name__}.{name}"), value)
    if raw is MISSING:
        raise _missing(domain, cls, name)
    return constant_object(domain, getattr(domain.use(value), name))


def _known_attr(domain: CaptureDomain, value: Known, name: str) -> Value | Frame[Value]:
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
    raw = _walk(cls.__mro__, name)
    if type(raw) is types.FunctionType:
        domain.guard_class(cls, name, raw)
        return BoundMethod(Known(raw), value)
    if type(raw) is property and type(raw.fget) is types.FunctionType:
        domain.guard_class(cls, name, raw)
        return domain.call(Known(raw.fget), [value], {})
    if type(raw) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        return BoundMethod(Known(raw), value)
    if not hasattr(obj, name):
        raise _missing(domain, cls, name)
    real = getattr(obj, name)
    label = getattr(obj, "__name__", cls.__name__)
    result = wrap(domain, real, Pinned.of(obj, label).attr(name))
    value.attrs[name] = result
    return result


def _module_attr(domain: CaptureDomain, value: Known, module: types.ModuleType, name: str) -> Value:
    path = Pinned.of(module, module.__name__)
    if name in module.__dict__:
        result = wrap(domain, module.__dict__[name], path.instance_attr(name))
    else:
        try:
            real = getattr(module, name)
        except AttributeError as error:
            raise domain.error(AttributeError, str(error)) from None
        result = wrap(domain, real, path.attr(name))
    value.attrs[name] = result
    return result


_FUNCTION_CONSTANTS = frozenset({"__name__", "__qualname__", "__module__", "__doc__", "__code__"})


def _real_function_attr(domain: CaptureDomain, value: Known, function: types.FunctionType, name: str) -> Value:
    if name in ("__get__", "__call__", "__init__", "__repr__", "__eq__", "__hash__"):
        return BoundMethod(Known(_walk(types.FunctionType.__mro__, name)), value)
    if not hasattr(function, name):
        raise _missing(domain, types.FunctionType, name)
    real = getattr(function, name)
    path = Pinned.of(function, function.__qualname__).attr(name)
    result = Const(real) if name in _FUNCTION_CONSTANTS else wrap(domain, real, path)
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
    member = find_member(domain, cls, name)
    kind = member.kind
    if kind == ABSENT:
        return _metaclass_attr(domain, value, cls, name)
    if kind == CLASS:
        return BoundMethod(member_value(domain, member), value)
    if kind == DESCRIPTOR:
        if type(member.raw) is types.ClassMethodDescriptorType:
            return constant_object(domain, getattr(cls, name))
        getter = _walk(type(member.raw).__mro__, "__get__")
        if type(getter) is types.FunctionType:
            label = f"{cls.__qualname__}.{name}"
            return domain.call(Known(getter), [pinned(domain, member.raw, label), Const(None), value], {})
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")
    return member_value(domain, member)


_TYPE_CONSTANTS: dict[str, Any] = {
    "__name__": lambda domain, cls: Const(cls.__name__),
    "__qualname__": lambda domain, cls: Const(cls.__qualname__),
    "__module__": lambda domain, cls: Const(cls.__module__),
    "__class__": lambda domain, cls: Known(type(cls)),
    "__mro__": lambda domain, cls: TupleValue([Known(c) for c in cls.__mro__]),
    "__bases__": lambda domain, cls: TupleValue([Known(c) for c in cls.__bases__]),
    "__base__": lambda domain, cls: Known(cls.__base__),
}


def _metaclass_attr(domain: CaptureDomain, value: Known, cls: type, name: str) -> Value | Frame[Value]:
    meta: Any = type(cls)
    raw = _walk(meta.__mro__, name)
    if raw is MISSING:
        hook = _walk(meta.__mro__, "__getattr__")
        if type(hook) is types.FunctionType:
            return domain.call(Known(hook), [value, Const(name)], {})
        raise domain.error(AttributeError, f"type object '{cls.__name__}' has no attribute '{name}'")
    if type(raw) is types.FunctionType or type(raw) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        return BoundMethod(Known(raw), value)
    if isinstance(raw, property) and type(raw.fget) is types.FunctionType:
        return domain.call(Known(raw.fget), [value], {})
    raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")


def _super_attr(domain: CaptureDomain, value: SuperValue, name: str) -> Value | Frame[Value]:
    mro = value.owner.__mro__
    after = mro[mro.index(value.cls) + 1 :]
    for owner in after:
        if name in owner.__dict__:
            raw = owner.__dict__[name]
            if not owner.__flags__ & _IMMUTABLE_TYPE:
                domain.guard_class(owner, name, raw)
            member = Member(owner, name, raw)
            instance = not (isinstance(value.self_, Known) and value.self_.obj is value.owner)
            if member.kind == CLASS:
                return BoundMethod(member_value(domain, member), Known(value.owner))
            if not instance:
                return member_value(domain, member)
            return bind(domain, member, value.self_)
        if not owner.__flags__ & _IMMUTABLE_TYPE:
            domain.guard_class(owner, name, _walk(owner.__mro__, name))
    raise domain.error(AttributeError, f"'super' object has no attribute '{name}'")


def load_super_attr(
    domain: CaptureDomain, super_type: Value, cls: Value, self_: Value, name: str
) -> Value | Frame[Value]:
    if not (isinstance(super_type, Known) and super_type.obj is super and isinstance(cls, Known)):
        made = domain.vm.call(super_type, [cls, self_])
        return load_attr(domain, made, name)
    return _super_attr(domain, make_super(domain, cls.obj, self_), name)


def make_super(domain: CaptureDomain, cls: type, self_: Value) -> SuperValue:
    """`super(cls, self_)`."""
    if isinstance(self_, Known) and isinstance(self_.obj, type) and issubclass(self_.obj, cls):
        return SuperValue(cls, self_.obj, self_)
    owner = type_of(domain, self_)
    if not issubclass(owner, cls):
        raise domain.error(TypeError, "super(type, obj): obj must be an instance or subtype of type")
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
    raw = _walk(cls.__mro__, name)
    if type(raw) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        return BoundMethod(Known(raw), value)
    if raw is MISSING:
        raise _missing(domain, cls, name)
    raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")


def load_special(domain: CaptureDomain, value: Value, name: str) -> Value:
    """Look a dunder up on the type, bound; TypeError as `with` says it."""
    cls = type_of(domain, value)
    if type(value) is Leaf:
        return domain.vm.finish(load_attr(domain, value, name))
    member = find_member(domain, cls, name)
    if member.kind == ABSENT:
        missed = " (missed __exit__ method)" if name == "__exit__" else ""
        raise domain.error(TypeError, f"'{cls.__name__}' object does not support the context manager protocol{missed}")
    return domain.vm.finish(bind(domain, member, value))


# Stores.


def store_attr(domain: CaptureDomain, value: Value, name: str, content: Value) -> Frame[Value] | None:
    """`value.name = content`."""
    if isinstance(value, Obj):
        hook = find_member(domain, value.cls, "__setattr__")
        if hook.kind == FUNCTION:
            result = domain.call(member_value(domain, hook), [value, Const(name), content], {})
            return result if type(result) is Frame else None
        return generic_store(domain, value, name, content)
    if type(value) is Leaf:
        domain.leaves.setattr(value.payload, name, to_raw(domain, content), domain)
        domain.mutated_at = domain.vm.step
        return None
    if type(value) is Known and isinstance(value.obj, (types.ModuleType, types.FunctionType)):
        if name.startswith("__"):
            raise domain.graph_break(UNKNOWN_OPERATION, f"store to {name}")
        write(domain, value, name, content)
        return None
    if type(value) is CellValue and name == "cell_contents":
        domain.cell_set(value, content)
        return None
    if type(value) is Const:
        raise _missing(domain, type(value.value), name)
    raise domain.graph_break(UNKNOWN_OPERATION, f"store to attribute {name} of {type_of(domain, value).__name__}")


@functools.cache
def _stores_plainly(cls: type) -> bool:
    """Does C code store attributes of such objects as `object.__setattr__` does? A `threading.local` does not."""
    for base in cls.__mro__:
        store = base.__dict__.get("__setattr__")
        if store is not None and not isinstance(store, types.FunctionType):
            return any(store is plain.__dict__["__setattr__"] for plain in (object, BaseException))
    return True


def write(domain: CaptureDomain, value: Obj | Known, name: str, content: Any) -> None:
    if isinstance(value, Obj):
        if not _stores_plainly(value.cls):
            raise domain.graph_break(UNKNOWN_OPERATION, f"store to an attribute of {value.cls.__name__}")
        domain.touch(value)
    else:
        domain.mutated_at = domain.vm.step
        domain.touched[value] = None
    value.attrs[name] = content
    if value.written is None:
        value.written = {}
    value.written[name] = None


def generic_store(domain: CaptureDomain, value: Obj, name: str, content: Value) -> Frame[Value] | None:
    """`object.__setattr__`."""
    member = find_member(domain, value.cls, name)
    if member.kind == PROPERTY:
        if member.raw.fset is None:
            kind = value.cls.__name__
            raise domain.error(AttributeError, f"property '{name}' of '{kind}' object has no setter")
        label = f"{value.cls.__qualname__}.{name}.fset"
        result = domain.call(pinned(domain, member.raw.fset, label), [value, content], {})
        return result if type(result) is Frame else None
    if type(value) is FunctionValue and member.data:
        _function_store(domain, value, name, content)
        return None
    if member.kind == SLOT or _is_exception_field(value, name):
        if type(member.raw) is not types.MemberDescriptorType and not _is_exception_field(value, name):
            raise domain.graph_break(UNKNOWN_OPERATION, f"store to {name}")
        write(domain, value, name, content)
        return None
    if member.data:
        return _descriptor_store(domain, value, member, content)
    if not _has_dict(value):
        if member.kind == ABSENT:
            raise _missing(domain, value.cls, name)
        kind = value.cls.__name__
        raise domain.error(AttributeError, f"'{kind}' object attribute '{name}' is read-only")
    write(domain, value, name, content)
    return None


def _has_dict(value: Obj) -> bool:
    return type(value) is FunctionValue or value.cls.__dictoffset__ != 0


def _descriptor_store(domain: CaptureDomain, value: Obj, member: Member, content: Value) -> Frame[Value] | None:
    setter = _walk(type(member.raw).__mro__, "__set__")
    if type(setter) is not types.FunctionType:
        raise domain.graph_break(UNKNOWN_OPERATION, f"store to {value.cls.__name__}.{member.name}")
    domain.guard_class(type(member.raw), "__set__", setter)
    descriptor = pinned(domain, member.raw, f"{value.cls.__qualname__}.{member.name}")
    result = domain.call(Known(setter), [descriptor, value, content], {})
    return result if type(result) is Frame else None


def _function_store(domain: CaptureDomain, value: FunctionValue, name: str, content: Value) -> None:
    """Store to a field of a function."""
    if name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__"):
        write(domain, value, name, content)
        if type(content) is Const and name in ("__name__", "__qualname__"):
            setattr(value, name.strip("_"), domain.use(content))
    elif name == "__code__" and value.real is NEW and type(content) is Const:
        domain.touch(value)
        value.code = domain.use(content)
    else:
        raise domain.graph_break(UNKNOWN_OPERATION, f"store to function.{name}")


def delete_attr(domain: CaptureDomain, value: Value, name: str) -> Frame[Value] | None:
    """`del value.name`."""
    if not isinstance(value, Obj):
        raise domain.graph_break(UNKNOWN_OPERATION, f"deletion of attribute {name}")
    hook = find_member(domain, value.cls, "__delattr__")
    if hook.kind == FUNCTION:
        result = domain.call(member_value(domain, hook), [value, Const(name)], {})
        return result if type(result) is Frame else None
    return generic_delete(domain, value, name)


def generic_delete(domain: CaptureDomain, value: Obj, name: str) -> Frame[Value] | None:
    """`object.__delattr__`."""
    member = find_member(domain, value.cls, name)
    if member.data and member.kind != SLOT:
        raise domain.graph_break(UNKNOWN_OPERATION, f"deletion of {value.cls.__name__}.{name}")
    present = _slot(domain, value, name) if member.kind == SLOT else instance_attr(domain, value, name)
    if present is None:
        raise domain.error(AttributeError, f"'{value.cls.__name__}' object has no attribute '{name}'")
    write(domain, value, name, DELETED)
    return None
