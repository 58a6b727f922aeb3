"""Attention whose rows are computed in parts, as it is called: two kernels, of which the second joins what the first left."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

import attrs
import torch

__all__ = ["PartedAttention"]


@final
@attrs.frozen(eq=False)
class PartedAttention:
    """Call it with query, key, value and what the scores read; get the result.

    Attributes:
        part: launches the first kernel: addresses of the arguments, then of the sums of values, the sums of weights and the maxima of the parts.
        join: launches the second one: these three, then addresses of the result and of two float32 a row that nobody reads.
        scratch: numbers in each of these three, each a multiple of 16 bytes.
        sizes, strides: of the result.
        dtype: of the result.
    """

    part: Callable[..., None]
    join: Callable[..., None]
    scratch: tuple[int, int, int]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        device, rows = tensors[0].device, math.prod(self.sizes[:3])
        result = torch.empty_strided(self.sizes, self.strides, dtype=self.dtype, device=device)
        first, second, third = self.scratch
        scratch: Any = torch.empty(first + second + third + 2 * rows, dtype=torch.float32, device=device)
        start = scratch.data_ptr()
        held = [start + 4 * n for n in (0, first, first + second)]
        rest = start + 4 * (first + second + third)
        self.part(*[t.data_ptr() for t in tensors], *held)
        self.join(*held, result.data_ptr(), rest, rest + 4 * rows)
        return result
