"""Writing back what the region changed on objects that existed before it.

Nobody can look at these objects while the region runs, so what counts is their state at its end: stores that were undone
write nothing. Objects are written in the order of their first change.
"""

from __future__ import annotations

from collections import deque
from types import GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, cast

from torchjit_core.paths import own_attr
from torchjit_vm.capture import runtime
from torchjit_vm.capture.byte_arrays import write_byte_array
from torchjit_vm.capture.contexts import is_local, write_context_stores
from torchjit_vm.capture.dicts import StoredAgain
from torchjit_vm.capture.keys import real_key
from torchjit_vm.capture.members import walk
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.rebuild_containers import storage_class
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
    ByteArray,
    CellValue,
    Const,
    DictValue,
    Known,
    ListValue,
    Obj,
    SetValue,
    Value,
)

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["has_effects", "write_back"]


def has_effects(domain: CaptureDomain) -> bool:
    """Did the region touch anything real?"""
    return bool(domain.touched)


def write_back(domain: CaptureDomain, out: Rebuilder) -> None:
    """Write the statements that bring real objects to their final state."""
    write_context_stores(domain, out)
    for value in list(domain.touched):
        if isinstance(value, CellValue):
            _cell(out, value)
            continue
        if isinstance(value, ByteArray):
            write_byte_array(out, value)
        elif isinstance(value, ListValue):
            _list(out, value)
        elif isinstance(value, DictValue):
            _dict(out, value)
        elif isinstance(value, SetValue):
            _set(out, value)
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


def _unchanged(content: Any, before: Any) -> bool:
    """Is what is to be stored what the region found there, in every call that its guards let through?

    That the object at capture is the same does not count: another call may find another one, unless it was looked at.
    """
    if content is before:
        return True
    if type(content) is Const and type(before) is Const:
        return content.value is before.value and content.used and before.used
    return False


def _cell(out: Rebuilder, value: CellValue) -> None:
    target = out.expr(value)
    if value.content is None:
        out.write(f"del {target}.cell_contents")
    elif not _unchanged(value.content, value.before):
        out.write(f"{target}.cell_contents = {out.expr(value.content)}")


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
        elif not _unchanged(content, before):
            text = out.expr(cast(Value, content))
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


def _store_in_dict(out: Rebuilder, value: Obj, name: str, content: Any, before: Any) -> None:
    members = f"{out.runtime(own_attr)}({out.expr(value)}, '__dict__')"
    if content is DELETED:
        out.write(f"{members}.pop({name!r}, None)")
    elif not _unchanged(content, before):
        out.write(f"{members}[{name!r}] = {out.expr(cast(Value, content))}")


def _store_local(out: Rebuilder, value: Obj, name: str, content: Any, before: Any) -> None:
    if content is DELETED:
        out.write(f"{out.runtime(runtime.discard_local)}({out.expr(value)}, {name!r})")
    elif not _unchanged(content, before):
        text = out.expr(cast(Value, content))
        out.write(f"{out.runtime(runtime.store_local)}({out.expr(value)}, {name!r}, {text})")


def _list(out: Rebuilder, value: ListValue) -> None:
    before, items = value.before, value.items
    if items is None:
        before, items = [], value.added
    if before is None:
        return
    target = out.expr(value)
    same = 0
    while same < min(len(items), len(before)) and _unchanged(items[same], before[same]):
        same += 1
    if same == len(before) == len(items):
        return
    base = out.runtime(deque) if issubclass(value.cls, deque) else "list"
    if same == len(before):
        if len(items) == same + 1:
            out.write(f"{base}.append({target}, {out.expr(items[-1])})")
        else:
            out.write(f"{base}.extend({target}, [{', '.join(out.expr(v) for v in items[same:])}])")
    elif issubclass(value.cls, deque):
        out.write(f"{base}.clear({target})")
        out.write(f"{base}.extend({target}, [{', '.join(out.expr(v) for v in items)}])")
    else:
        everything = ", ".join(out.expr(v) for v in items)
        out.write(f"list.__setitem__({target}, slice(None), [{everything}])")


def _dict(out: Rebuilder, value: DictValue) -> None:
    base = storage_class(value.cls)
    owner = "dict" if base is dict else out.runtime(base)
    for key, before in (value.changed or {}).items():
        entry = value.entries.get(key)
        raw = real_key(key)
        if entry is None:
            if before is None and raw is not DELETED:  # there, or not: the region did not look
                out.write(f"{owner}.pop({out.expr(value)}, {_key(out, raw)}, None)")
            elif before is not DELETED and raw is not DELETED:
                out.write(f"{owner}.__delitem__({out.expr(value)}, {_key(out, raw)})")
            continue
        moved = key in value.removed and before is not DELETED and raw is not DELETED
        if not moved and _unchanged(entry[1], before):
            continue
        item = out.expr(entry[1])
        if moved:
            out.write(f"{owner}.pop({out.expr(value)}, {_key(out, raw)}, None)")
        out.write(f"{owner}.__setitem__({out.expr(value)}, {out.expr(entry[0])}, {item})")


def _key(out: Rebuilder, raw: Any) -> str:
    return out.literal(raw)


def _set(out: Rebuilder, value: SetValue) -> None:
    if not value.changed or value.entries is None:
        return
    target = out.expr(value)
    removed = [e for e in value.real if e not in value.entries]
    added = [v for k, v in value.entries.items() if k not in value.real]
    for element in removed:
        out.write(f"set.discard({target}, {out.literal(element)})")
    for item in added:
        out.write(f"set.add({target}, {out.expr(item)})")
