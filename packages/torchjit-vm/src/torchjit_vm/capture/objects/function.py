"""Functions that the region made or knows by their code, and closure cells."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from torchjit_vm.capture import runtime
from torchjit_vm.capture.effects import unchanged
from torchjit_vm.capture.keys import identity
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import DELETED, CellValue, DictValue, FunctionValue

if TYPE_CHECKING:
    from torchjit_vm.capture.rebuild import Rebuilder

__all__: list[str] = []


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


register(FunctionValue, TypeSlots(hash=identity, rebuild=_rebuild))
register(
    CellValue, TypeSlots(type_of=lambda domain, self: types.CellType, rebuild=_rebuild_cell, write_back=_write_cell)
)
