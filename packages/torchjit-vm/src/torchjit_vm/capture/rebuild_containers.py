"""Containers in emitted code: displays where there are such, else made empty and filled by the methods of their C class."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchjit_vm.capture import runtime
from torchjit_vm.capture.rebuild_objects import write_attributes
from torchjit_vm.capture.values import (
    DictValue,
    DictView,
    Known,
    ListValue,
    SetValue,
    SliceValue,
    TupleValue,
    Value,
)

_MOST_KEYS = 200

if TYPE_CHECKING:
    from torchjit_vm.capture.rebuild import Rebuilder

__all__ = [
    "dict_expr",
    "list_expr",
    "set_expr",
    "slice_expr",
    "storage_class",
    "tuple_expr",
    "view_expr",
]

_BASES = (OrderedDict, defaultdict, dict, list, set, frozenset, tuple)


def storage_class(cls: type) -> type:
    """The C class that stores the items of a container class."""
    for owner in cls.__mro__:
        if owner in _BASES:
            return owner
    return object


def _early(out: Rebuilder, value: Value, empty: str, fill: Callable[[str], None]) -> str | None:
    """Make a value that contains itself before its contents."""
    if value not in out.early:
        return None
    name = out.assign(empty)
    out.name(value, name)
    out.put_off(lambda: fill(name))
    return name


def list_expr(out: Rebuilder, value: ListValue) -> str:
    items = value.items or []
    if value.cls is deque:
        bound = "" if value.limit is None else f", {value.limit}"
        made = out.runtime(deque)
        early = _early(out, value, f"{made}([]{bound})", lambda name: out.write(f"{name}.extend([{out.join(items)}])"))
        return early or out.assign(f"{made}([{out.join(items)}]{bound})")
    if value.cls is not list:
        base = out.runtime(deque) if issubclass(value.cls, deque) else "list"
        name = out.assign(f"{out.runtime(runtime.new)}({base}, {out.expr(Known(value.cls))})")
        out.name(value, name)
        if value.limit is not None:
            out.write(f"{base}.__init__({name}, maxlen={value.limit})")
        out.write(f"{base}.extend({name}, [{out.join(items)}])")
        write_attributes(out, value, name)
        return name
    early = _early(out, value, "[]", lambda name: out.write(f"{name}.extend([{out.join(items)}])"))
    return early or out.assign(f"[{out.join(items)}]")


def tuple_expr(out: Rebuilder, value: TupleValue) -> str:
    items = value.items or []
    text = f"({out.join(items)}{',' if len(items) == 1 else ''})"
    if value.cls is tuple:
        return text if not items else out.assign(text)
    cls = out.expr(Known(value.cls))
    if isinstance(value.cls.__new__, types.BuiltinFunctionType) and value.cls.__new__ is not tuple.__new__:
        return out.assign(f"{cls}({text})")
    name = out.assign(f"tuple.__new__({cls}, {text})")
    write_attributes(out, value, name)
    return name


def dict_expr(out: Rebuilder, value: DictValue) -> str:
    pairs = [e for e in value.entries.values() if e is not None]
    if value.cls is dict:
        early = _early(out, value, "{}", lambda name: _fill_dict(out, name, value))
        return early or out.assign("{" + ", ".join(f"{out.expr(k)}: {out.expr(v)}" for k, v in pairs) + "}")
    if value.behind is not None:
        return out.assign(f"{out.runtime(types.MappingProxyType)}({out.expr(value.behind)})")
    if value.cls is defaultdict:
        factory = "None" if value.factory is None else out.expr(value.factory)
        name = out.assign(f"{out.runtime(defaultdict)}({factory})")
    elif value.cls is OrderedDict:
        name = out.assign(f"{out.runtime(OrderedDict)}()")
    else:
        base = storage_class(value.cls)
        name = out.assign(f"{out.runtime(runtime.new)}({out.runtime(base)}, {out.expr(Known(value.cls))})")
        if value.factory is not None:
            out.write(f"{name}.default_factory = {out.expr(value.factory)}")
    out.name(value, name)
    _fill_dict(out, name, value)
    write_attributes(out, value, name)
    return name


def _fill_dict(out: Rebuilder, name: str, value: DictValue) -> None:
    pairs = [e for e in value.entries.values() if e is not None]
    if pairs:
        text = ", ".join(f"({out.expr(k)}, {out.expr(v)})" for k, v in pairs)
        out.write(f"{out.runtime(runtime.fill_dict)}({out.runtime(storage_class(value.cls))}, {name}, [{text}])")


def _growth(keys: list[Any], layout: set[Any]) -> int | None:
    """How many keys a set is given room for at once, to iterate as this one does; None if they are added in turn, or nobody knows."""
    wanted = list(layout)
    if list(set(iter(keys))) == wanted or len(keys) > _MOST_KEYS:
        return None
    return next((n for n in range(len(keys), 0, -1) if list(runtime.grown_set(keys[:n], keys[n:])) == wanted), None)


def set_expr(out: Rebuilder, value: SetValue) -> str:
    entries = value.entries or {}
    items = list(entries.values())
    if value.layout is not None and value.cls in (set, frozenset):
        grown = _growth(list(entries), value.layout)
        if grown is not None:
            first, rest = out.join(items[:grown]), out.join(items[grown:])
            made = out.assign(f"{out.runtime(runtime.grown_set)}([{first}], [{rest}])")
            return made if value.cls is set else out.assign(f"{out.runtime(frozenset)}({made})")
    if value.cls is set and items:
        return out.assign("{" + out.join(items) + "}")
    if value.cls in (set, frozenset):
        return out.assign(f"{out.runtime(value.cls)}([{out.join(items)}])")
    base = "frozenset" if issubclass(value.cls, frozenset) else "set"
    arguments = f", [{out.join(items)}]" if base == "frozenset" else ""
    name = out.assign(f"{out.runtime(runtime.new)}({base}, {out.expr(Known(value.cls))}{arguments})")
    if base == "set":
        out.write(f"set.update({name}, [{out.join(items)}])")
    write_attributes(out, value, name)
    return name


def view_expr(out: Rebuilder, value: DictView) -> str:
    target, cls = out.expr(value.target), value.target.cls
    if cls.__flags__ & (1 << 9) and cls is not OrderedDict:  # a class may have a method of that name
        return out.assign(
            f"{out.runtime(OrderedDict if issubclass(cls, OrderedDict) else dict)}.{value.kind}({target})"
        )
    return out.assign(f"{target}.{value.kind}()")


def slice_expr(out: Rebuilder, value: SliceValue) -> str:
    return out.assign(f"slice({out.expr(value.start)}, {out.expr(value.stop)}, {out.expr(value.step)})")
