"""Attribute stores and deletions."""

from __future__ import annotations

import functools
import types
from _collections import _tuplegetter  # type: ignore[import-not-found]
from collections import defaultdict

from torchjit_core.guards import MISSING
from torchjit_core.handlers import let_through
from torchjit_vm.capture.attributes import instance_attr, is_exception_field, slot, tell_sought
from torchjit_vm.capture.classes import delete_from_class, store_in_class
from torchjit_vm.capture.contexts import is_local
from torchjit_vm.capture.dicts import StoredAgain
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.interception import overridden
from torchjit_vm.capture.members import (
    ABSENT,
    FUNCTION,
    IMMUTABLE_TYPE,
    PLAIN,
    PROPERTY,
    SLOT,
    Member,
    find_member,
    is_hook,
    member_value,
    store_class_attribute,
    walk,
)
from torchjit_vm.capture.raw import to_raw
from torchjit_vm.capture.reading import pinned
from torchjit_vm.capture.reasons import INTERCEPTED, UNKNOWN_OPERATION
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
    CellValue,
    Const,
    FunctionValue,
    Known,
    Leaf,
    Obj,
    TracebackValue,
    TupleValue,
    Value,
)
from torchjit_vm.decode import VERSION
from torchjit_vm.frame import Completion, Frame, Raised
from torchjit_vm.type_labels import type_label

__all__ = ["delete_attr", "generic_delete", "generic_store", "store_attr", "write"]


def store_attr(domain: CaptureDomain, value: Value, name: str, content: Value) -> Frame[Value] | None:
    """`value.name = content`."""
    if isinstance(value, Obj):
        hook = find_member(domain, value.cls, "__setattr__")
        if is_hook(hook):
            return _ran(domain.call(member_value(domain, hook), [value, Const(name), content], {}))
        _check_plain(domain, value, name)
        return generic_store(domain, value, name, content)
    if type(value) is Leaf:
        _leaf_store(domain, value, name, content)
        return None
    if type(value) is Known and isinstance(value.obj, (types.ModuleType, types.FunctionType)):
        if name.startswith("__"):
            raise domain.graph_break(UNKNOWN_OPERATION, f"store to {name}")
        write(domain, value, name, content)
        return None
    if type(value) is Known and isinstance(value.obj, type):
        return _class_store(domain, value, name, content)
    if type(value) is CellValue and name == "cell_contents":
        domain.cell_set(value, content)
        return None
    if type(value) is Const:
        raise _no_place(domain, value, type(value.value), name)
    raise domain.graph_break(UNKNOWN_OPERATION, f"store to attribute {name} of {type_of(domain, value).__name__}")


def giving_none(frame: Frame[Value] | None) -> Value | Frame[Value]:
    """What a function gives that stores: None, whatever the method gives that it calls."""
    if frame is None:
        return Const(None)
    frame.completion, frame.instead = Completion.REPLACE, Const(None)
    return frame


def _leaf_store(domain: CaptureDomain, value: Leaf, name: str, content: Value) -> None:
    """What the handler does not know is stored as on any object; of the rest it decides."""
    owned = domain.leaves.owns_attribute(value.payload, name)
    if owned and overridden(domain, value):
        raise domain.graph_break(INTERCEPTED, f"store to {name}")
    if not owned or domain.leaves.setattr(value.payload, name, to_raw(domain, content), domain):
        domain.touch(value)
        if value.attrs is None:
            value.attrs = {}
        value.attrs[name] = content
        domain.stored_leaves[value] = None
    else:
        domain.mutated_at = domain.vm.step


def _no_place(domain: CaptureDomain, value: Value, cls: type, name: str) -> Raised:
    """The error for a store to an attribute that the object has no place for."""
    text = f"'{type_label(cls)}' object has no attribute '{name}'"
    if VERSION >= (3, 13):
        text += " and no __dict__ for setting new attributes"
    error = domain.error(AttributeError, text)
    if VERSION >= (3, 13):
        tell_sought(error.value, value, name)
    return error


def _class_store(domain: CaptureDomain, value: Known, name: str, content: Value) -> Frame[Value] | None:
    """`cls.name = content`, of data: what classes do with functions and descriptors is left alone."""
    cls: type = value.obj
    hook = find_member(domain, type(cls), "__setattr__")
    if hook.kind == FUNCTION:
        return _ran(domain.call(member_value(domain, hook), [value, Const(name), content], {}))
    if cls in domain.made_classes:
        store_in_class(domain, cls, name, content)
        return None
    kind = type_of(domain, content)
    plain = not any(hasattr(kind, n) for n in ("__get__", "__set__", "__delete__", "__set_name__"))
    meta = find_member(domain, type(cls), name)
    if cls.__flags__ & IMMUTABLE_TYPE or name.startswith("__") or not plain or meta.data:
        raise domain.graph_break(UNKNOWN_OPERATION, f"store to attribute {name} of class {cls.__name__}")
    before = find_member(domain, cls, name)
    if before.kind not in (ABSENT, PLAIN):
        raise domain.graph_break(UNKNOWN_OPERATION, f"store to attribute {name} of class {cls.__name__}")
    store_class_attribute(domain, cls, name, content)
    write(domain, value, name, content)
    return None


@functools.cache
def _stores_plainly(cls: type) -> bool:
    """Does C code store attributes of such objects as `object.__setattr__` does? A proxy does not."""
    if issubclass(cls, (functools.partial, types.SimpleNamespace)) or is_local(cls):
        return True
    for base in cls.__mro__:
        store = base.__dict__.get("__setattr__")
        if store is not None and not is_hook(Member(base, "__setattr__", store)):
            return any(store is plain.__dict__["__setattr__"] for plain in (object, BaseException))
    return True


def _check_plain(domain: CaptureDomain, value: Obj, name: str) -> None:
    if not _stores_plainly(value.cls):
        raise domain.graph_break(UNKNOWN_OPERATION, f"a change of {value.cls.__name__}.{name}")


def write(domain: CaptureDomain, value: Obj | Known, name: str, content: Value) -> None:
    if isinstance(value, Obj):
        if name == "default_factory" and issubclass(value.cls, defaultdict):
            raise domain.graph_break(UNKNOWN_OPERATION, "store to default_factory")
        _check_plain(domain, value, name)
        domain.touch(value)
    else:
        domain.note_change(value)
        domain.touched[value] = None
    if value.written is None:
        value.written = {}
    held = value.attrs.get(name)
    if name not in value.written:
        value.written[name] = held
    elif held is DELETED and content is not DELETED and isinstance(value, Obj):  # it comes after the others now
        value.written[name] = value.written.pop(name)
        if value.written[name] is not DELETED:
            domain.of(StoredAgain).add((value, name))
    if held is DELETED:
        del value.attrs[name]
    value.attrs[name] = content


def _ran(result: Value | Frame[Value]) -> Frame[Value] | None:
    return result if type(result) is Frame else None


def _by_property(domain: CaptureDomain, value: Obj, member: Member, deed: str, *content: Value) -> Frame[Value] | None:
    """By the setter or the deleter of a property."""
    accessor = getattr(member.raw, f"f{deed[:3]}")
    cls = value.cls.__qualname__
    if accessor is None:
        raise domain.error(AttributeError, f"property '{member.name}' of '{cls}' object has no {deed}")
    return _ran(domain.call(pinned(domain, accessor, f"{cls}.{member.name}.f{deed[:3]}"), [value, *content], {}))


def _by_descriptor(
    domain: CaptureDomain, value: Obj, member: Member, hook: str, *content: Value
) -> Frame[Value] | None:
    """By the `__set__` or `__delete__` of what the class has."""
    method = walk(type(member.raw).__mro__, hook)
    if method is MISSING:
        raise domain.error(AttributeError, hook)
    if type(method) is not types.FunctionType:
        deed = "store to" if content else "deletion of"
        raise domain.graph_break(UNKNOWN_OPERATION, f"{deed} {value.cls.__name__}.{member.name}")
    domain.guard_class(type(member.raw), hook, method)
    descriptor = pinned(domain, member.raw, f"{value.cls.__qualname__}.{member.name}")
    return _ran(domain.call(pinned(domain, method, hook), [descriptor, value, *content], {}))


def generic_store(domain: CaptureDomain, value: Obj, name: str, content: Value) -> Frame[Value] | None:
    """`object.__setattr__`."""
    member = find_member(domain, value.cls, name)
    if member.kind == PROPERTY:
        return _by_property(domain, value, member, "setter", content)
    if type(value) is FunctionValue and member.data:
        _function_store(domain, value, name, content)
    elif is_exception_field(value, name):
        _exception_store(domain, value, name, content)
    elif member.kind == SLOT:
        write(domain, value, name, content)
    elif type(member.raw) is _tuplegetter:
        raise domain.error(AttributeError, "can't set attribute")
    elif member.takes_stores:
        return _by_descriptor(domain, value, member, "__set__", content)
    elif not _has_dict(value):
        if member.kind == ABSENT:
            raise _no_place(domain, value, value.cls, name)
        kind = type_label(value.cls)
        raise domain.error(AttributeError, f"'{kind}' object attribute '{name}' is read-only")
    else:
        write(domain, value, name, content)
    return None


def _exception_store(domain: CaptureDomain, value: Obj, name: str, content: Value) -> None:
    own = type(content) is TracebackValue and content.exception is value
    if type(content) is TracebackValue and own and value.real is NEW and name not in value.attrs:
        domain.vm.rewind(value, content.depth)  # its own, of a while ago
    else:
        write(domain, value, name, _exception_field(domain, name, content))


_FIELDS: dict[str, tuple[type, str]] = {
    "__cause__": (BaseException, "exception cause must be None or derive from BaseException"),
    "__context__": (BaseException, "exception context must be None or derive from BaseException"),
    "__traceback__": (types.TracebackType, "__traceback__ must be a traceback or None"),
}


def _exception_field(domain: CaptureDomain, name: str, content: Value) -> Value:
    """What a field of an exception takes."""
    if name == "args":
        return content if type_of(domain, content) is tuple else TupleValue(domain.unpack_all(content))
    kind, text = _FIELDS.get(name, (object, ""))
    if not _is_none(content) and not issubclass(type_of(domain, content), kind):
        raise domain.error(TypeError, text)
    return content


def _has_dict(value: Obj) -> bool:
    return type(value) is FunctionValue or value.cls.__dictoffset__ != 0 or is_local(value.cls)


_TOLD = frozenset({"__name__", "__qualname__", "__doc__", "__module__", "__annotations__"})


def _function_store(domain: CaptureDomain, value: FunctionValue, name: str, content: Value) -> None:
    """Store to a field of a function."""
    if name == "__type_params__" and isinstance(content, TupleValue) and not domain.unpack_all(content):
        return  # as it is
    if name == "__code__" and value.real is NEW and type(content) is Const:  # torch.no_grad() renames what it wraps
        domain.touch(value)
        value.code = domain.use(content)
        return
    if name not in _TOLD:
        raise domain.graph_break(UNKNOWN_OPERATION, f"store to function.{name}")
    write(domain, value, name, content)
    if type(content) is Const and name in ("__name__", "__qualname__"):
        setattr(value, name.strip("_"), domain.use(content))


def _is_none(value: Value) -> bool:
    return type(value) is Const and value.value is None


def delete_attr(domain: CaptureDomain, value: Value, name: str) -> Frame[Value] | None:
    """`del value.name`."""
    if (
        type(value) is Known
        and value.obj in domain.made_classes
        and walk(type(value.obj).__mro__, "__delattr__") is type.__dict__["__delattr__"]
    ):
        delete_from_class(domain, value.obj, name)
        return None
    if not isinstance(value, Obj):
        raise domain.graph_break(UNKNOWN_OPERATION, f"deletion of attribute {name}")
    hook = find_member(domain, value.cls, "__delattr__")
    if is_hook(hook):
        return _ran(domain.call(member_value(domain, hook), [value, Const(name)], {}))
    _check_plain(domain, value, name)
    return generic_delete(domain, value, name)


@functools.cache
def _empty_slot(cls: type, name: str) -> str:
    """What this version of Python says about the deletion of an empty slot."""

    class Empty:
        __slots__ = ("slot",)
        slot: object

    try:
        del Empty().slot
    except AttributeError as error:
        let_through()
        return str(error).replace("'Empty'", f"'{type_label(cls)}'").replace("slot", name)
    raise AssertionError("an empty slot was deleted")


def generic_delete(domain: CaptureDomain, value: Obj, name: str) -> Frame[Value] | None:
    """`object.__delattr__`."""
    member = find_member(domain, value.cls, name)
    if member.kind == PROPERTY:
        return _by_property(domain, value, member, "deleter")
    if member.takes_stores and member.kind != SLOT:
        return _by_descriptor(domain, value, member, "__delete__")
    if member.kind == SLOT:
        try:
            slot(domain, value, name)
        except Raised:
            raise domain.error(AttributeError, _empty_slot(value.cls, name)) from None
    elif instance_attr(domain, value, name) is None:
        if value.cls.__dictoffset__ == 0:
            raise _no_place(domain, value, value.cls, name)
        raise domain.error(AttributeError, f"'{type_label(value.cls)}' object has no attribute '{name}'")
    write(domain, value, name, DELETED)
    return None
