"""Functions that the region made or knows by their code, and closure cells."""

from __future__ import annotations

import types
from collections.abc import Callable

from torchjit_vm.capture import runtime
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.effects import unchanged
from torchjit_vm.capture.keys import identity
from torchjit_vm.capture.members import Member
from torchjit_vm.capture.reading import namespace, wrap
from torchjit_vm.capture.reasons import UNKNOWN_ATTRIBUTE
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import DELETED, NEW, CellValue, Const, DictValue, FunctionValue, TupleValue, Value

__all__: list[str] = []


_TOLD = frozenset({"__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__type_params__"})


def _getattr(domain: CaptureDomain, value: FunctionValue, member: Member) -> Value:
    """A field of a function that the region made, or that is known by its code."""
    name = member.name
    if name in _TOLD and name not in value.attrs and value.real is not NEW and value.path is not None:
        value.attrs[name] = wrap(domain, getattr(value.real, name), value.path.attr(name))
    if name in value.attrs:
        return value.attrs[name]
    if name == "__globals__":
        return namespace(domain, value.globals)
    if name == "__annotations__" and value.real is NEW:
        value.attrs[name] = _annotations(domain, value)
        return value.attrs[name]
    field = _FIELDS.get(name)
    if field is None:
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"function.{name}")
    return field(value)


def _doc(value: FunctionValue) -> Value:
    text = value.code.co_consts[0] if value.code.co_consts else None
    return Const(text if isinstance(text, str) else None)


_FIELDS: dict[str, Callable[[FunctionValue], Value]] = {
    "__name__": lambda value: Const(value.name),
    "__qualname__": lambda value: Const(value.qualname),
    "__module__": lambda value: Const(value.globals.get("__name__")),
    "__code__": lambda value: Const(value.code),
    "__doc__": _doc,
    "__type_params__": lambda value: TupleValue([]),
    "__closure__": lambda value: TupleValue(list(value.closure)) if value.closure else Const(None),
    "__defaults__": lambda value: TupleValue(list(value.defaults)) if value.defaults else Const(None),
    "__kwdefaults__": lambda value: value.kwdefaults or Const(None),
}


def _annotations(domain: CaptureDomain, value: FunctionValue) -> Value:
    if isinstance(value.annotations, DictValue):
        return value.annotations
    made = DictValue()
    if value.annotations is not None:
        flat = domain.unpack_all(value.annotations)
        for key, content in zip(flat[::2], flat[1::2], strict=True):
            made.entries[domain.use(key)] = (key, content)
    value.annotations = None
    return made


def _cell_attr(domain: CaptureDomain, self: CellValue, member: Member) -> Value | None:
    if member.name != "cell_contents":
        return None
    content = domain.cell_get(self)
    if content is None:
        raise domain.error(ValueError, "cell is empty")
    return content


def _write_cell(out: Rebuilder, self: CellValue) -> None:
    target = out.expr(self)
    if self.content is None:
        out.write(f"del {target}.cell_contents")
    elif not unchanged(self.content, self.before):
        out.write(f"{target}.cell_contents = {out.expr(self.content)}")


def _rebuild_cell(out: Rebuilder, self: CellValue) -> str:
    name = out.assign(f"{out.runtime(types.CellType)}()")
    out.name(self, name)
    content = self.content
    if content is not None:
        out.put_off(lambda: out.write(f"{name}.cell_contents = {out.expr(content)}"))
    return name


def _rebuild(out: Rebuilder, self: FunctionValue) -> str:
    code = out.constant(self.code, f"code_{self.name}")
    globals_ = out.constant(self.globals, "globals_")
    defaults = f"({''.join(out.expr(v) + ', ' for v in self.defaults)})"
    closure = f"({''.join(out.expr(v) + ', ' for v in self.closure)})"
    names = repr((self.name, self.qualname))
    make = out.runtime(runtime.function)
    name = out.assign(f"{make}({code}, {globals_}, {names}, {defaults}, {closure})")
    out.name(self, name)
    if self.kwdefaults is not None:
        out.write(f"{name}.__kwdefaults__ = {out.expr(self.kwdefaults)}")
    if self.annotations is not None:
        items = out.domain.unpack_all(self.annotations) if not isinstance(self.annotations, DictValue) else None
        if items is None:
            out.write(f"{name}.__annotations__ = {out.expr(self.annotations)}")
        else:
            pairs = zip(items[::2], items[1::2], strict=True)
            text = ", ".join(f"{out.expr(k)}: {out.expr(v)}" for k, v in pairs)
            out.write(f"{name}.__annotations__ = {{{text}}}")
    for key, content in self.attrs.items():
        if content is not DELETED:
            out.write(f"setattr({name}, {key!r}, {out.expr(content)})")
    return name


register(FunctionValue, TypeSlots(getattr=_getattr, hash=identity, rebuild=_rebuild))
register(
    CellValue,
    TypeSlots(
        getattr=_cell_attr, type_of=lambda domain, self: types.CellType, rebuild=_rebuild_cell, write_back=_write_cell
    ),
)
