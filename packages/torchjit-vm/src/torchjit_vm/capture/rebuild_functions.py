"""Functions in emitted code: from their code, over cells that are filled once everything is made; and bound methods."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from torchjit_vm.capture import runtime
from torchjit_vm.capture.values import DELETED, BoundMethod, CellValue, DictValue, FunctionValue

if TYPE_CHECKING:
    from torchjit_vm.capture.rebuild import Rebuilder

__all__ = ["cell_expr", "function_expr", "method_expr"]


def cell_expr(out: Rebuilder, value: CellValue) -> str:
    name = out.assign(f"{out.runtime(types.CellType)}()")
    out.name(value, name)
    content = value.content
    if content is not None:
        out.put_off(lambda: out.write(f"{name}.cell_contents = {out.expr(content)}"))
    return name


def function_expr(out: Rebuilder, value: FunctionValue) -> str:
    code = out.constant(value.code, f"code_{value.name}")
    globals_ = out.constant(value.globals, "globals_")
    defaults = f"({''.join(out.expr(v) + ', ' for v in value.defaults)})"
    closure = f"({''.join(out.expr(v) + ', ' for v in value.closure)})"
    names = repr((value.name, value.qualname))
    make = out.runtime(runtime.function)
    name = out.assign(f"{make}({code}, {globals_}, {names}, {defaults}, {closure})")
    out.name(value, name)
    if value.kwdefaults is not None:
        out.write(f"{name}.__kwdefaults__ = {out.expr(value.kwdefaults)}")
    if value.annotations is not None:
        items = out.domain.unpack_all(value.annotations) if not isinstance(value.annotations, DictValue) else None
        if items is None:
            out.write(f"{name}.__annotations__ = {out.expr(value.annotations)}")
        else:
            pairs = zip(items[::2], items[1::2], strict=True)
            text = ", ".join(f"{out.expr(k)}: {out.expr(v)}" for k, v in pairs)
            out.write(f"{name}.__annotations__ = {{{text}}}")
    for key, content in value.attrs.items():
        if content is not DELETED:
            out.write(f"setattr({name}, {key!r}, {out.expr(content)})")
    return name


def method_expr(out: Rebuilder, value: BoundMethod) -> str:
    function, self_ = out.expr(value.function), out.expr(value.self_)
    if isinstance(value.function, FunctionValue) or hasattr(getattr(value.function, "obj", None), "__get__"):
        # CPython 3.11 crashes when the C methods of some heap types are bound without the type.
        return out.assign(f"{function}.__get__({self_}, type({self_}))")
    return out.assign(f"{out.runtime(types.MethodType)}({function}, {self_})")
