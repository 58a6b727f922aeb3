"""Subscripts: reading, storing and deleting items."""

from __future__ import annotations

import enum
import operator
import types
from collections import deque
from typing import TYPE_CHECKING

from torchjit_core.showing import shown
from torchjit_vm.capture import (
    attributes,
    byte_arrays,
    collecting,
    dicts,
    elements,
    iteration,
    keys,
    members,
    stores,
)
from torchjit_vm.capture.atoms import stripped
from torchjit_vm.capture.exceptions import from_real
from torchjit_vm.capture.raw import constant_of, is_constant, to_raw
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.special_methods import compute, defines, settled, special_call
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
    AtomObject,
    BoundMethod,
    ByteArray,
    Const,
    DictValue,
    InstanceDict,
    Known,
    Leaf,
    ListValue,
    Obj,
    SetValue,
    SliceValue,
    TupleValue,
    Value,
)
from torchjit_vm.frame import Raised
from torchjit_vm.type_labels import type_label

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["delitem", "dict_item", "getitem", "key_error", "list_store", "sequence_item", "setitem"]


def getitem(domain: CaptureDomain, container: Value, key: Value) -> Value:
    """`container[key]`."""
    if type(container) is Leaf:
        return domain.leaf_call(operator.getitem, [container, key])
    if isinstance(container, Obj) and defines(domain, container, "__getitem__"):
        found = special_call(domain, container, "__getitem__", [key])
        if found is not None:
            return found
    container = stripped(domain, container)
    if type(container) is ByteArray:
        return byte_arrays.byte_operation(domain, operator.getitem, container, key)
    if type(container) is Const:
        if type(container.value) is tuple:
            return getitem(domain, TupleValue([Const(v) for v in domain.use(container)]), key)
        if not hasattr(type(container.value), "__getitem__"):
            raise domain.error(TypeError, f"'{type_label(type(container.value))}' object is not subscriptable")
        key = settled(domain, key)
        index = key if isinstance(key, (Const, SliceValue)) else Const(domain.index(key))
        return compute(domain, operator.getitem, domain.use(container), to_raw(domain, index))
    if isinstance(container, (ListValue, TupleValue)):
        return sequence_item(domain, container, key)
    if isinstance(container, DictValue):
        return dict_item(domain, container, key)
    if isinstance(container, InstanceDict) and type(key) is Const:
        attribute = attributes.instance_attr(domain, container.owner, domain.use(key))
        if attribute is None:
            raise domain.raised(key_error(domain, key))
        return attribute
    if type(container) is Known:
        return _known_item(domain, container, key)
    found = special_call(domain, container, "__getitem__", [key])
    if found is None:
        raise domain.error(TypeError, f"'{type_label(type_of(domain, container))}' object is not subscriptable")
    return found


def key_error(domain: CaptureDomain, key: Value) -> Value:
    """A KeyError for a key."""
    return domain.vm.call(Known(KeyError), [key])


def _known_item(domain: CaptureDomain, container: Known, key: Value) -> Value:
    if isinstance(container.obj, type):
        above = members.find_member(domain, type(container.obj), "__getitem__")
        if above.kind in (members.FUNCTION, members.STATIC, members.PLAIN) and not isinstance(
            container.obj, enum.EnumType
        ):
            return domain.vm.call(domain.vm.finish(attributes.bind(domain, above, container)), [key])
    if isinstance(container.obj, type) and _settled(domain, key):
        member = members.find_member(domain, container.obj, "__class_getitem__")
        if type(getattr(member.raw, "__func__", member.raw)) is types.FunctionType:
            return domain.vm.call(BoundMethod(members.member_value(domain, member), container), [key])
        return compute(domain, operator.getitem, container.obj, constant_of(domain, key))
    raise domain.graph_break(UNKNOWN_OPERATION, f"subscript of {shown(container.obj)}")


def _settled(domain: CaptureDomain, key: Value) -> bool:
    """What a class may be subscripted with: constants and objects of the program (type variables ...), which do not change it."""
    if isinstance(key, (ListValue, TupleValue)):
        return all(_settled(domain, v) for v in elements.items(domain, key))
    if is_constant(domain, key):
        return True
    return isinstance(key, Obj) and key.real is not NEW and key.path is not None and not key.written


def sequence_item(domain: CaptureDomain, container: ListValue | TupleValue, key: Value) -> Value:
    queue = issubclass(container.cls, deque)
    if isinstance(key, SliceValue) and not queue:
        chosen = elements.items(domain, container)[domain.slice(key)]
        if isinstance(container, ListValue):
            return ListValue(chosen)
        # torch.Size keeps its type when it is sliced, as the only tuple subclass that the VM meets with that habit.
        keeps = container.cls is not tuple and getattr(container.cls, "__module__", "") == "torch"
        return TupleValue(chosen, container.cls if keeps and not hasattr(container.cls, "_fields") else tuple)
    if not _is_index(domain, key):
        kind = "list" if isinstance(container, ListValue) else "tuple"
        name = type_label(type_of(domain, key))
        if queue:
            raise domain.error(TypeError, f"sequence index must be integer, not '{name}'")
        raise domain.error(TypeError, f"{kind} indices must be integers or slices, not {name}")
    index = domain.index(key)
    if container.items is None and container.path is not None and -len(container.real) <= index < len(container.real):
        return elements.items(domain, container)[index]
    try:
        return elements.items(domain, container)[index]
    except IndexError:
        kind = "deque" if queue else "list" if isinstance(container, ListValue) else "tuple"
        raise domain.error(IndexError, f"{kind} index out of range") from None


def _is_index(domain: CaptureDomain, key: Value) -> bool:
    if isinstance(key, (Const, AtomObject)):
        return hasattr(type_of(domain, key), "__index__")
    if type(key) is Leaf:
        return hasattr(domain.leaves.type_of(key.payload), "__index__")
    if type(key) is Known:
        return hasattr(type(key.obj), "__index__")  # a member of an IntEnum
    return isinstance(key, Obj) and defines(domain, key, "__index__")


def dict_item(domain: CaptureDomain, container: DictValue, key: Value) -> Value:
    found = dicts.dict_lookup(domain, container, keys.key_of(domain, key))
    if found is not None:
        return found
    missing = members.find_member(domain, container.cls, "__missing__")
    if type(missing.raw) is types.FunctionType:
        result = special_call(domain, container, "__missing__", [key])
        if result is not None:
            return result
    if container.factory is not None and not (type(container.factory) is Const and container.factory.value is None):
        made = domain.vm.call(container.factory, [])
        dicts.dict_store(domain, container, keys.key_of(domain, key), key, made)
        return made
    raise domain.raised(key_error(domain, key))


def setitem(domain: CaptureDomain, container: Value, key: Value, value: Value) -> None:
    if type(container) is Leaf:
        domain.leaf_call(operator.setitem, [container, key, value])
        domain.mutated_at = domain.vm.step
        return
    if isinstance(container, Obj) and defines(domain, container, "__setitem__"):
        special_call(domain, container, "__setitem__", [key, value])
    elif isinstance(container, ByteArray):
        byte_arrays.byte_operation(domain, operator.setitem, container, key, value)
    elif isinstance(container, ListValue):
        list_store(domain, container, key, value)
    elif isinstance(container, DictValue) and container.cls is not types.MappingProxyType:
        dicts.dict_store(domain, container, keys.key_of(domain, key), key, value)
    elif isinstance(container, InstanceDict) and type(key) is Const:
        stores.write(domain, container.owner, domain.use(key), value)
    else:
        name = type_label(type_of(domain, container))
        if isinstance(container, (TupleValue, Const, DictValue)):
            raise domain.error(TypeError, f"'{name}' object does not support item assignment")
        raise domain.graph_break(UNKNOWN_OPERATION, f"store to an item of {name}")


def _list_index(domain: CaptureDomain, key: Value) -> int:
    if not _is_index(domain, key):
        name = type_label(type_of(domain, key))
        if hasattr(type_of(domain, key), "__index__"):  # a number that only the run knows
            raise domain.graph_break(UNKNOWN_OPERATION, f"{name} as an index")
        raise domain.error(TypeError, f"list indices must be integers or slices, not {name}")
    return domain.index(key)


def _out_of_range(container: ListValue) -> str:
    return f"{'deque' if issubclass(container.cls, deque) else 'list assignment'} index out of range"


def list_store(domain: CaptureDomain, container: ListValue, key: Value, value: Value) -> None:
    if isinstance(key, SliceValue):
        where = domain.slice(key)
        new = _assigned(domain, value, where)
        try:
            elements.change(domain, container)[where] = new
        except ValueError as error:
            raise domain.raised(from_real(domain, error)) from None
        return
    index = _list_index(domain, key)
    target = elements.items(domain, container)
    if not -len(target) <= index < len(target):
        raise domain.error(IndexError, _out_of_range(container))
    elements.change(domain, container)[index] = value


def _assigned(domain: CaptureDomain, value: Value, where: slice) -> list[Value]:
    """The items that are stored to a slice."""
    if not isinstance(value, (ListValue, TupleValue)) or defines(domain, value, "__iter__"):
        try:
            value = iteration.get_iter(domain, value)
        except Raised as raised:
            if issubclass(type_of(domain, raised.value), TypeError):
                compute(domain, operator.setitem, [], where, 0)  # which raises, in the words of this Python
            raise
    return collecting.collected(domain, value)


def delete_from_list(domain: CaptureDomain, container: ListValue, key: Value) -> None:
    """`del container[key]` by the list's own rules."""
    where = domain.slice(key) if isinstance(key, SliceValue) else _list_index(domain, key)
    target = elements.items(domain, container)
    if not isinstance(where, slice) and not -len(target) <= where < len(target):
        raise domain.error(IndexError, _out_of_range(container))
    del elements.change(domain, container)[where]


def delitem(domain: CaptureDomain, container: Value, key: Value) -> None:
    if isinstance(container, Obj) and defines(domain, container, "__delitem__"):
        special_call(domain, container, "__delitem__", [key])
    elif isinstance(container, ByteArray):
        byte_arrays.byte_operation(domain, operator.delitem, container, key)
    elif isinstance(container, ListValue):
        delete_from_list(domain, container, key)
    elif isinstance(container, DictValue) and container.cls is not types.MappingProxyType:
        found = keys.key_of(domain, key)
        if dicts.dict_lookup(domain, container, found) is None:
            raise domain.raised(key_error(domain, key))
        dicts.dict_remove(domain, container, found)
    elif isinstance(container, InstanceDict) and type(key) is Const:
        name = domain.use(key)
        if attributes.instance_attr(domain, container.owner, name) is None:
            raise domain.raised(key_error(domain, key))
        stores.write(domain, container.owner, name, DELETED)
    elif isinstance(container, (TupleValue, Const, DictValue, SetValue)):
        cls = type_of(domain, container)
        indexed = hasattr(type_of(domain, key), "__index__") and hasattr(cls, "__len__")  # C asks the sequence for it
        verb = "doesn't" if indexed else "does not"
        raise domain.error(TypeError, f"'{type_label(cls)}' object {verb} support item deletion")
    else:
        raise domain.graph_break(UNKNOWN_OPERATION, f"deletion of an item of {type_of(domain, container).__name__}")
