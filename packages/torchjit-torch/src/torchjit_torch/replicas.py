"""What is known of `DistributedDataParallel`: how large the buckets are whose gradients it exchanges together.

Source: torch/nn/parallel/distributed.py (torch 2.11 and 2.15).
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

__all__ = ["active_buckets", "buckets_of"]

_FIRST = 1 << 20


def buckets_of(replicas: DistributedDataParallel) -> tuple[int, ...]:
    """The bytes of the first buckets that it makes once it knows in which order gradients come; the last number is that of all others."""
    held: Any = replicas
    each: Any = getattr(held, "bucket_bytes_cap_list", None)  # since torch 2.15
    if each:
        return tuple(map(int, each))
    most = int(held.bucket_bytes_cap)
    first = int(getattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", _FIRST))
    return (min(first, most), most) if getattr(held, "bucket_bytes_cap_default", True) else (most,)


def active_buckets() -> tuple[int, ...] | None:
    """Those of the one whose forward runs now; None if none does."""
    replicas: Any = DistributedDataParallel._active_ddp_module
    return None if replicas is None else buckets_of(replicas)
