"""Functions that the region made or knows by their code, and closure cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchjit_vm.capture.effects import unchanged
from torchjit_vm.capture.keys import identity
from torchjit_vm.capture.rebuild_functions import cell_expr, function_expr
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import CellValue, FunctionValue

if TYPE_CHECKING:
    from torchjit_vm.capture.rebuild import Rebuilder

__all__: list[str] = []


def _write_cell(out: Rebuilder, self: CellValue) -> None:
    target = out.expr(self)
    if self.content is None:
        out.write(f"del {target}.cell_contents")
    elif not unchanged(self.content, self.before):
        out.write(f"{target}.cell_contents = {out.expr(self.content)}")


register(FunctionValue, TypeSlots(hash=identity, rebuild=function_expr))
register(CellValue, TypeSlots(rebuild=cell_expr, write_back=_write_cell))
