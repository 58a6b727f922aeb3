"""Sorting: one kernel with what is sorted computed in it."""

from __future__ import annotations

import torch

from torchjit_inductor.ir.dtypes import KERNEL_DTYPES
from torchjit_inductor.ir.values import Value, cast, sort
from torchjit_inductor.ir.values import constant as number
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.reductions import Split, over
from torchjit_inductor.lowering.registry import lowering
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import Index, Lazy, Lowered, Read, TensorMeta
from torchjit_inductor.lowering.views import dim_of

MOST_WIDE = 1 << 16
"""Rows of elements of 64 bits, whose words take eight passes to sort by digits; longer ones aten sorts as fast."""
MOST_ON_GPUS = 512
"""Elements of a row that a GPU's kernel sorts in registers. The steps of a sort are written out: Triton takes seconds for longer ones.
Positions have 15 bits (`triton/sorts.py`)."""


@lowering("sort", "sort.stable")
def _sorted(
    b: Builder, metas: tuple[TensorMeta, ...], x: Lowered, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[Lowered, ...]:  # fmt: skip
    """Elements and positions; also where eager need not be stable, as it is on CPUs."""
    if x.dtype not in KERNEL_DTYPES:
        raise NotLowered(f"sort of {x.dtype}")
    if not x.sizes or x.sizes[dim_of(dim, len(x.sizes))].value == 1:
        first, zeros = x.value, number(0, torch.int64)
        return (
            Lazy(x.sizes, x.dtype, x.device, first),
            Lazy(x.sizes, torch.int64, x.device, lambda point: zeros),
        )
    split = Split.of(x, dim)
    size, wide = split.count.value, x.dtype.itemsize == 8
    if x.device.type == "cpu":
        too_long = size is not None and size > (MOST_WIDE if wide else (1 << 31) - 1)
    else:
        too_long = wide or size is None or size > MOST_ON_GPUS
    if too_long:
        raise NotLowered(f"rows of {size} elements of {x.dtype}")

    def body(read: Read, outer: Index, inner: Index) -> list[Value]:
        # Elements that are equal once they are rounded keep their order.
        v = cast(read(x, split.index(outer, inner)), x.dtype)
        return [sort(v, descending=descending), sort(v, descending=descending, positions=True)]

    return over(b, split, [split.full_output(m) for m in metas], body)
