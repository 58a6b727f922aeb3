"""Writing back what the region changed on objects that existed before it.

Nobody can look at these objects while the region runs, so what counts is their state at its end: stores that were undone
write nothing. Objects are written in the order of their first change.
"""

from __future__ import annotations

from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

from torchjit_core.paths import own_attr
from torchjit_vm.capture import runtime
from torchjit_vm.capture.contexts import is_local, write_context_stores
from torchjit_vm.capture.dicts import StoredAgain
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.members import walk
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.type_slots import SLOTS
from torchjit_vm.capture.values import DELETED, NEW, Const, Known, Obj, Value

__all__ = ["unchanged", "write_back"]


def write_back(domain: CaptureDomain, out: Rebuilder) -> None:
    """Write the statements that bring real objects to their final state."""
    write_context_stores(domain, out)
    for value in list(domain.touched):
        write = SLOTS[type(value)].write_back
        if write is not None:
            write(out, value)
        if isinstance(value, (Obj, Known)):
            _attributes(out, value)
    out.flush()
    _leaf_attributes(domain, out)
    out.finish()


def _leaf_attributes(domain: CaptureDomain, out: Rebuilder) -> None:
    """Stores to leaves: to those that were there before, and to new ones that somebody can still see."""
    todo = dict(domain.stored_leaves)
    while ready := [leaf for leaf in todo if leaf.real is not NEW or out.has_leaf(leaf)]:
        for leaf in ready:
            del todo[leaf]
            for name, content in (leaf.attrs or {}).items():
                out.write(f"setattr({out.expr(leaf)}, {name!r}, {out.expr(content)})")
        out.flush()


def unchanged(content: object, before: object) -> bool:
    """Is what is to be stored what the region found there, in every call that its guards let through?

    That the object at capture is the same does not count: another call may find another one, unless it was looked at.
    """
    if content is before:
        return True
    if type(content) is Const and type(before) is Const:
        return content.value is before.value and content.used and before.used
    return False


def _attributes(out: Rebuilder, value: Obj | Known) -> None:
    for name, before in (value.written or {}).items():
        content = value.attrs[name]
        moved = (value, name) in out.domain.of(StoredAgain) and content is not DELETED
        if content is before and not moved:
            continue
        if moved and _keeps_order(value, name):
            out.write(f"{out.runtime(own_attr)}({out.expr(value)}, '__dict__').pop({name!r}, None)")
            before = None
        if content is DELETED or not unchanged(content, before):
            _store(out, value, name, content, before)


def _store(out: Rebuilder, value: Obj | Known, name: str, content: Value, before: Value | None) -> None:
    """Write the statement that stores or deletes an attribute, past what its class has to say."""
    deleted = content is DELETED
    text = "" if deleted else out.expr(content)
    target = out.expr(value)
    if isinstance(value, Obj) and is_local(value.cls):
        function = out.runtime(runtime.discard_local if deleted else runtime.store_local)
        out.write(f"{function}({target}, {name!r})" if deleted else f"{function}({target}, {name!r}, {text})")
    elif isinstance(value, Obj) and _is_hidden(value.cls, name):
        members = f"{out.runtime(own_attr)}({target}, '__dict__')"
        out.write(f"{members}.pop({name!r}, None)" if deleted else f"{members}[{name!r}] = {text}")
    elif deleted:
        remove = "object.__delattr__" if before is not None else out.runtime(runtime.discard)
        out.write(f"{remove}({target}, {name!r})")
    else:
        out.write(f"{'object.__setattr__' if isinstance(value, Obj) else 'setattr'}({target}, {name!r}, {text})")


def _keeps_order(value: Any, name: str) -> bool:
    """Is the attribute in a `__dict__`, where one that is stored again comes last?"""
    in_slot = isinstance(walk(value.cls.__mro__, name), (MemberDescriptorType, GetSetDescriptorType))
    return value.cls.__dictoffset__ != 0 and not in_slot and not is_local(value.cls)


def _is_hidden(cls: type, name: str) -> bool:
    """Does a data descriptor in Python, or a property, come before what the object's own `__dict__` has under the name?"""
    raw = walk(cls.__mro__, name)
    takes = hasattr(type(raw), "__set__") or hasattr(type(raw), "__delete__")
    return takes and not isinstance(raw, (MemberDescriptorType, GetSetDescriptorType))
