"""Writing back what the region changed on objects that existed before it.

Nobody can look at these objects while the region runs, so what counts is their state at its end: stores that were undone
write nothing. Objects are written in the order of their first change.
"""

from __future__ import annotations

from types import GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, cast

from torchjit_core.paths import own_attr
from torchjit_vm.capture import runtime
from torchjit_vm.capture.contexts import is_local, write_context_stores
from torchjit_vm.capture.dicts import StoredAgain
from torchjit_vm.capture.members import walk
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.type_slots import SLOTS
from torchjit_vm.capture.values import DELETED, NEW, Const, Known, Obj, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["has_effects", "unchanged", "write_back"]


def has_effects(domain: CaptureDomain) -> bool:
    """Did the region touch anything real?"""
    return bool(domain.touched)


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
        if isinstance(value, Obj) and is_local(value.cls):
            _store_local(out, value, name, content, before)
        elif isinstance(value, Obj) and _is_hidden(value.cls, name):
            _store_in_dict(out, value, name, content, before)
        elif content is DELETED:
            remove = "object.__delattr__" if before is not None else out.runtime(runtime.discard)
            out.write(f"{remove}({out.expr(value)}, {name!r})")
        elif not unchanged(content, before):
            text = out.expr(content)
            store = "object.__setattr__" if isinstance(value, Obj) else "setattr"
            out.write(f"{store}({out.expr(value)}, {name!r}, {text})")


def _keeps_order(value: Any, name: str) -> bool:
    """Is the attribute in a `__dict__`, where one that is stored again comes last?"""
    in_slot = isinstance(walk(value.cls.__mro__, name), (MemberDescriptorType, GetSetDescriptorType))
    return value.cls.__dictoffset__ != 0 and not in_slot and not is_local(value.cls)


def _is_hidden(cls: type, name: str) -> bool:
    """Does a data descriptor in Python, or a property, come before what the object's own `__dict__` has under the name?"""
    raw = walk(cls.__mro__, name)
    takes = hasattr(type(raw), "__set__") or hasattr(type(raw), "__delete__")
    return takes and not isinstance(raw, (MemberDescriptorType, GetSetDescriptorType))


def _store_in_dict(out: Rebuilder, value: Obj, name: str, content: object, before: object) -> None:
    members = f"{out.runtime(own_attr)}({out.expr(value)}, '__dict__')"
    if content is DELETED:
        out.write(f"{members}.pop({name!r}, None)")
    elif not unchanged(content, before):
        out.write(f"{members}[{name!r}] = {out.expr(cast(Value, content))}")


def _store_local(out: Rebuilder, value: Obj, name: str, content: object, before: object) -> None:
    if content is DELETED:
        out.write(f"{out.runtime(runtime.discard_local)}({out.expr(value)}, {name!r})")
    elif not unchanged(content, before):
        text = out.expr(cast(Value, content))
        out.write(f"{out.runtime(runtime.store_local)}({out.expr(value)}, {name!r}, {text})")
