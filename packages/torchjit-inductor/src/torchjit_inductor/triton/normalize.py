"""Bring a kernel into the form that tiling wants: neighbouring loops merged, reductions over all memory split."""

from __future__ import annotations

import attrs

from torchjit_core.expr import Expr
from torchjit_inductor.indexing import join_digits, merge_loops
from torchjit_inductor.ir.kernel import LoopKernel, rewrite_stores
from torchjit_inductor.ir.values import Value

__all__ = ["index_expressions", "merged"]


def index_expressions(kernel: LoopKernel) -> list[Expr]:
    """Every index of the kernel: loads, stores and computed positions."""
    found = [v.data.index for v in kernel.values if v.op in ("load", "index")]
    return [*found, *(s.index for s in kernel.stores)]


def merged(kernel: LoopKernel) -> LoopKernel:
    """The same kernel with neighbouring loops joined wherever every index walks them as one."""
    kernel = _joined(kernel)
    outer, outer_map = merge_loops(kernel.outer, index_expressions(kernel))
    inner, inner_map = merge_loops(kernel.inner, index_expressions(kernel))
    mapping = {**outer_map, **inner_map}
    if not mapping:
        return kernel
    stores = rewrite_stores(kernel.stores, mapping)
    return attrs.evolve(kernel, outer=tuple(outer), inner=tuple(inner), stores=stores)


def _joined(kernel: LoopKernel) -> LoopKernel:
    """The kernel with the digits in its indices put together."""
    indices = index_expressions(kernel)
    if all(join_digits(i) is i for i in indices):
        return kernel

    def replace(value: Value) -> Value | None:
        if value.op not in ("load", "index"):
            return None
        return Value(value.op, value.args, value.dtype, attrs.evolve(value.data, index=join_digits(value.data.index)))

    rewritten = rewrite_stores(kernel.stores, {}, replace)
    stores = tuple(attrs.evolve(s, index=join_digits(s.index)) for s in rewritten)
    return attrs.evolve(kernel, stores=stores)
