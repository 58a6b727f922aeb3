"""Facts about dtypes that lowering and code generation share."""

from __future__ import annotations

import torch

__all__ = [
    "EIGHT_BIT_FLOATS",
    "FLOATS",
    "HALF",
    "INTS",
    "KERNEL_DTYPES",
    "accumulate_dtype",
    "compute_dtype",
    "is_float",
    "is_int",
]

FLOATS: frozenset[torch.dtype] = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
HALF: tuple[torch.dtype, ...] = (torch.float16, torch.bfloat16)
"""Types that memory has, and no value: computed with as float32."""
INTS: frozenset[torch.dtype] = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})
KERNEL_DTYPES: frozenset[torch.dtype] = FLOATS | INTS | {torch.bool}
"""What a generated kernel may load and store; anything else is left to aten."""
EIGHT_BIT_FLOATS: frozenset[torch.dtype] = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})
"""What a generated kernel may multiply (`ir.values.dot`) or, on the CPU, load besides, and do nothing else with."""


def is_float(dtype: torch.dtype) -> bool:
    """A real floating type."""
    return dtype in FLOATS


def is_int(dtype: torch.dtype) -> bool:
    """An integer type; bool is none."""
    return dtype in INTS


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """What values of a storage dtype are computed in: floats of 16 and of 8 bits in float32, the others in themselves."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) or dtype in EIGHT_BIT_FLOATS else dtype


def accumulate_dtype(dtype: torch.dtype) -> torch.dtype:
    """What sums and products of a storage dtype accumulate in, as in eager: integers and bool in int64."""
    if is_float(dtype):
        return compute_dtype(dtype)
    return torch.int64
