"""Writing back what the region changed on objects that existed before it.

Nobody can look at these objects while the region runs, so what counts is their state at its end: stores that were undone
write nothing. Objects are written in the order of their first change.
"""

from __future__ import annotations

import types
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from torchjit_vm.capture.containers import _real_key
from torchjit_vm.capture.rebuild import Rebuilder, _base
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
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
    for value in list(domain.touched):
        if isinstance(value, CellValue):
            _cell(out, value)
            continue
        if isinstance(value, ListValue):
            _list(out, value)
        elif isinstance(value, DictValue):
            _dict(out, value)
        elif isinstance(value, SetValue):
            _set(out, value)
        _attributes(out, value)
    out.flush()


def _unchanged(value: Any, original: Any) -> bool:
    """Is the object that is to be stored the one that is there?"""
    if isinstance(value, Const):
        return value.value is original
    if isinstance(value, Known):
        return value.obj is original
    return getattr(value, "real", NEW) is original


def _cell(out: Rebuilder, value: CellValue) -> None:
    target = out.expr(value)
    if value.content is None:
        out.write(f"del {target}.cell_contents")
        return
    try:
        if _unchanged(value.content, value.real.cell_contents):
            return
    except ValueError:
        pass
    out.write(f"{target}.cell_contents = {out.expr(value.content)}")


def _attributes(out: Rebuilder, value: Obj | Known) -> None:
    real = value.real if isinstance(value, Obj) else value.obj
    for name in value.written or ():
        content = value.attrs[name]
        members = getattr(real, "__dict__", {})
        original = members[name] if name in members else _slot(real, name)
        if content is DELETED:
            if original is not DELETED:
                out.write(f"object.__delattr__({out.expr(value)}, {name!r})")
        elif not _unchanged(content, original):
            text = out.expr(cast(Value, content))
            store = "object.__setattr__" if isinstance(value, Obj) else "setattr"
            out.write(f"{store}({out.expr(value)}, {name!r}, {text})")


def _slot(real: Any, name: str) -> Any:
    descriptor = getattr(type(real), name, None)
    if not isinstance(descriptor, types.MemberDescriptorType):
        return DELETED
    return getattr(real, name, DELETED)


def _list(out: Rebuilder, value: ListValue) -> None:
    if not value.changed:
        return
    items, real = value.items or [], list(value.real)
    target = out.expr(value)
    same = 0
    while same < min(len(items), len(real)) and _unchanged(items[same], real[same]):
        same += 1
    if same == len(real) == len(items):
        return
    base = "list" if value.cls is not deque else out.runtime(deque)
    if same == len(real):
        if len(items) == same + 1:
            out.write(f"{base}.append({target}, {out.expr(items[-1])})")
        else:
            out.write(f"{base}.extend({target}, [{', '.join(out.expr(v) for v in items[same:])}])")
    elif value.cls is deque:
        out.write(f"{target}.clear()")
        out.write(f"{target}.extend([{', '.join(out.expr(v) for v in items)}])")
    else:
        everything = ", ".join(out.expr(v) for v in items)
        out.write(f"list.__setitem__({target}, slice(None), [{everything}])")


def _dict(out: Rebuilder, value: DictValue) -> None:
    base = _base(value.cls)
    owner = "dict" if base is dict else out.runtime(base)
    for key in value.changed or ():
        entry = value.entries.get(key)
        raw = _real_key(key)
        present = raw is not DELETED and dict.__contains__(value.real, raw)
        if entry is None:
            if present:
                out.write(f"{owner}.__delitem__({out.expr(value)}, {_key(out, raw)})")
            continue
        if present and key not in value.removed and _unchanged(entry[1], dict.__getitem__(value.real, raw)):
            continue
        item = out.expr(entry[1])
        if present and key in value.removed:
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
