"""The digits of a number in indices, put together again, so that loops can be merged."""

from __future__ import annotations

import attrs

from torchjit_core.expr import Expr
from torchjit_inductor.indexing import join_digits
from torchjit_inductor.ir.kernel import LoopKernel, rewrite_stores
from torchjit_inductor.ir.values import Value

__all__ = ["index_expressions", "with_joined_digits"]


def index_expressions(kernel: LoopKernel) -> list[Expr]:
    """Every index of the kernel: loads, stores and computed positions."""
    found = [v.data.index for v in kernel.values if v.op in ("load", "index")]
    return [*found, *(s.index for s in kernel.stores)]


def with_joined_digits(kernel: LoopKernel) -> LoopKernel:
    """The kernel with `indexing.join_digits` done to its indices."""
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
