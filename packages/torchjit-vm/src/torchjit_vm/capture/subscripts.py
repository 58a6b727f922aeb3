"""Subscripts: reading, storing and deleting items."""

from __future__ import annotations

import operator

from torchjit_vm.capture.atoms import stripped
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.special_methods import defines, has_method, special_call
from torchjit_vm.capture.type_slots import SLOTS
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import AtomObject, Const, Known, Leaf, Obj, Value
from torchjit_vm.type_labels import type_label

__all__ = ["delitem", "getitem", "is_index", "key_error", "setitem"]


def getitem(domain: CaptureDomain, container: Value, key: Value) -> Value:
    """`container[key]`."""
    if type(container) is Leaf:
        return domain.leaf_call(operator.getitem, [container, key])
    if isinstance(container, Obj) and defines(domain, container, "__getitem__"):
        found = special_call(domain, container, "__getitem__", [key])
        if found is not None:
            return found
    container = stripped(domain, container)
    slot = SLOTS[type(container)].getitem
    found = None if slot is None else slot(domain, container, key)
    if found is not None:
        return found
    found = special_call(domain, container, "__getitem__", [key])
    if found is None:
        raise domain.error(TypeError, f"'{type_label(type_of(domain, container))}' object is not subscriptable")
    return found


def key_error(domain: CaptureDomain, key: Value) -> Value:
    """A KeyError for a key."""
    return domain.vm.call(Known(KeyError), [key])


def is_index(domain: CaptureDomain, key: Value) -> bool:
    if type(key) is Leaf:
        return hasattr(domain.leaves.type_of(key.payload), "__index__")
    if isinstance(key, (Const, AtomObject, Known)):  # a member of an IntEnum
        return has_method(domain, key, "__index__")
    return isinstance(key, Obj) and defines(domain, key, "__index__")


def setitem(domain: CaptureDomain, container: Value, key: Value, value: Value) -> None:
    """`container[key] = value`."""
    if type(container) is Leaf:
        domain.leaf_call(operator.setitem, [container, key, value])
        domain.mutated_at = domain.vm.step
        return
    if isinstance(container, Obj) and defines(domain, container, "__setitem__"):
        special_call(domain, container, "__setitem__", [key, value])
        return
    slot = SLOTS[type(container)].setitem
    if slot is None:
        raise _unassignable(domain, container, "store to", "does not support item assignment")
    slot(domain, container, key, value)


def delitem(domain: CaptureDomain, container: Value, key: Value) -> None:
    """`del container[key]`."""
    if isinstance(container, Obj) and defines(domain, container, "__delitem__"):
        special_call(domain, container, "__delitem__", [key])
        return
    slot = SLOTS[type(container)].delitem
    if slot is None:
        # C asks the sequence for it, where the key could be an index.
        indexed = has_method(domain, key, "__index__") and has_method(domain, container, "__len__")
        text = ("doesn't" if indexed else "does not") + " support item deletion"
        raise _unassignable(domain, container, "deletion of", text)
    slot(domain, container, key)


def _unassignable(domain: CaptureDomain, container: Value, deed: str, text: str) -> Exception:
    """The error for an object whose items cannot be changed; a break where C code may do it after all."""
    name = type_label(type_of(domain, container))
    if type(container) in (Obj, Known, Leaf):
        return domain.graph_break(UNKNOWN_OPERATION, f"{deed} an item of {name}")
    return domain.error(TypeError, f"'{name}' object {text}")
