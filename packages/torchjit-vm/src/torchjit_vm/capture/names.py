"""Global names and cells in the capture domain."""

from __future__ import annotations

import builtins
from typing import cast

from torchjit_vm.capture import classes, dicts
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.reading import namespace, wrap
from torchjit_vm.capture.reasons import CLASS_BODY, UNKNOWN_OPERATION
from torchjit_vm.capture.values import CellValue, Const, DictValue, Value
from torchjit_vm.frame import Frame


def load_global(domain: CaptureDomain, frame: Frame[Value], name: str) -> Value:
    return global_value(domain, frame.globals, name)


def global_value(domain: CaptureDomain, globals: dict[str, object], name: str) -> Value:
    """What code with these globals finds under a name."""
    found = domain.namespaces.get(id(globals))
    if found is None:
        found = namespace(domain, globals)
    if name in found.entries:
        entry = found.entries[name]
        if entry is not None:
            return entry[1]
    elif name in globals and found.path is not None:
        value = wrap(domain, globals[name], found.path.item(name))
        found.entries[name] = (Const(name), value)
        return value
    else:
        found.entries[name] = None
        if found.path is not None:
            domain.guard_contains(found.path, name, False)
    return _builtin_name(domain, globals, name)


def _builtin_name(domain: CaptureDomain, globals: dict[str, object], name: str) -> Value:
    scope = globals.get("__builtins__", builtins)
    if type(scope) is not dict:
        scope = vars(scope)
    space = namespace(domain, scope)
    entry = space.entries.get(name)
    if entry is not None:
        return entry[1]
    if name in scope and space.path is not None:
        value = wrap(domain, scope[name], space.path.item(name))
        space.entries[name] = (Const(name), value)
        return value
    raise domain.error(NameError, f"name '{name}' is not defined", name)


def store_global(domain: CaptureDomain, frame: Frame[Value], name: str, value: Value) -> None:
    dicts.dict_store(domain, namespace(domain, frame.globals), name, Const(name), value)


def delete_global(domain: CaptureDomain, frame: Frame[Value], name: str) -> None:
    space = namespace(domain, frame.globals)
    if dicts.dict_lookup(domain, space, name) is None:
        raise domain.error(NameError, f"name '{name}' is not defined", name)
    dicts.dict_remove(domain, space, name)


def load_name(domain: CaptureDomain, frame: Frame[Value], name: str, namespace: Value) -> Value:
    found = classes.load_name(domain, namespace, name)
    return global_value(domain, frame.globals, name) if found is None else found


def store_name(domain: CaptureDomain, frame: Frame[Value], name: str, value: Value) -> None:
    domain.setitem(_class_namespace(domain, frame, name), Const(name), value)


def delete_name(domain: CaptureDomain, frame: Frame[Value], name: str) -> None:
    space = _class_namespace(domain, frame, name)
    if classes.load_name(domain, space, name) is None:
        raise domain.error(NameError, f"name '{name}' is not defined", name)
    domain.delitem(space, Const(name))


def setup_annotations(domain: CaptureDomain, frame: Frame[Value]) -> None:
    space = _class_namespace(domain, frame, "__annotations__")
    if classes.load_name(domain, space, "__annotations__") is None:
        domain.setitem(space, Const("__annotations__"), DictValue())


def _class_namespace(domain: CaptureDomain, frame: Frame[Value], name: str) -> Value:
    if frame.namespace is None:
        raise domain.graph_break(CLASS_BODY, name)
    return frame.namespace


def cell_get(domain: CaptureDomain, cell: Value) -> Value | None:
    found = cast(CellValue, cell)
    if not found.loaded:
        found.loaded = True
        try:
            content = found.real.cell_contents
        except ValueError:
            # No guard says that a cell is empty, so nothing may rely on it.
            found.loaded = False
            raise domain.graph_break(UNKNOWN_OPERATION, "read of an empty cell") from None
        if found.path is not None:
            found.content = wrap(domain, content, found.path.cell())
    return found.content


def cell_set(domain: CaptureDomain, cell: Value, content: Value | None) -> None:
    found = cast(CellValue, cell)
    domain.touch(found)
    if not found.changed and found.loaded:
        found.before = found.content
    found.content = content
    found.loaded = found.changed = True
