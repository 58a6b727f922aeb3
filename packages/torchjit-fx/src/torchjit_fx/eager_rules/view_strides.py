"""Which views of other sizes eager makes of a tensor, and how these lie.

torch's metadata functions merge and split dimensions one by one, and lose a stride where one of size 1 lies between: they accept
`x.t().unsqueeze(1).view(-1)`, which eager refuses, so that a compiler reads and writes what the program never could.
Source: aten/src/ATen/TensorUtils.cpp (`computeStride_impl`), torch 2.15.
"""

from __future__ import annotations

import torch
from torch._prims_common import infer_size

from torchjit_fx.eager_rules.elementwise_strides import Undecided, decided, is_plain
from torchjit_fx.eager_rules.rule import Size, Sizes

__all__ = ["layout_of_view", "view_strides"]


def layout_of_view(x: torch.Tensor, shape: Sizes) -> tuple[Sizes, Sizes] | None:
    """Sizes and strides of `x.view(shape)`; None where torch's metadata functions are right, or it depends on sizes that only the run knows.

    Raises:
        RuntimeError: eager refuses the view.
    """
    try:
        if is_plain(x):
            return None
        sizes = tuple(infer_size(tuple(shape), x.numel()))
        strides = view_strides(x.shape, x.stride(), sizes)
    except Undecided:
        return None
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return sizes, strides


def view_strides(sizes: Sizes, strides: Sizes, wanted: Sizes) -> Sizes | None:
    """The strides of a view of `wanted` sizes, which have as many elements; None if there is no such view.

    Raises:
        Undecided: it depends on sizes that only the run knows.
    """
    if not sizes:
        return (1,) * len(wanted)
    if any(decided(n == 0) for n in sizes):
        return _of_nothing(sizes, strides, wanted)
    made: list[Size] = [1] * len(wanted)
    left = len(wanted)
    # Of the piece of dimensions that lie as one: its innermost stride, its elements, those placed.
    base, there, here = strides[-1], 1, 1
    for dim in reversed(range(len(sizes))):
        there = there * sizes[dim]
        if dim and (decided(sizes[dim - 1] == 1) or decided(strides[dim - 1] == there * base)):
            continue
        while left and (decided(here < there) or decided(wanted[left - 1] == 1)):
            left -= 1
            made[left] = here * base
            here = here * wanted[left]
        if not decided(here == there):
            return None
        if dim:
            base, there, here = strides[dim - 1], 1, 1
    return None if left else tuple(made)


def _of_nothing(sizes: Sizes, strides: Sizes, wanted: Sizes) -> Sizes:
    if len(sizes) == len(wanted) and all(decided(a == b) for a, b in zip(sizes, wanted, strict=True)):
        return tuple(strides)
    made: list[Size] = [1] * len(wanted)
    for dim in reversed(range(len(wanted) - 1)):
        inner = wanted[dim + 1]
        made[dim] = made[dim + 1] * (1 if decided(inner < 1) else inner)
    return tuple(made)
