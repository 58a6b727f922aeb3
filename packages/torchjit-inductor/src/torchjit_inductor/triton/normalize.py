"""Bring a kernel into the form that tiling wants: neighbouring loops merged, reductions over all memory split."""

from __future__ import annotations

import attrs

from torchjit_inductor.indexing import merge_loops
from torchjit_inductor.ir.kernel import LoopKernel, rewrite_stores
from torchjit_inductor.schedule.digits import index_expressions, with_joined_digits

__all__ = ["merged"]


def merged(kernel: LoopKernel) -> LoopKernel:
    """The same kernel with neighbouring loops joined wherever every index walks them as one."""
    kernel = with_joined_digits(kernel)
    outer, outer_map = merge_loops(kernel.outer, index_expressions(kernel))
    inner, inner_map = merge_loops(kernel.inner, index_expressions(kernel))
    mapping = {**outer_map, **inner_map}
    if not mapping:
        return kernel
    stores = rewrite_stores(kernel.stores, mapping)
    return attrs.evolve(kernel, outer=tuple(outer), inner=tuple(inner), stores=stores)
