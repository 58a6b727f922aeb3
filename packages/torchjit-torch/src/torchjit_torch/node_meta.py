"""Keys of `meta` by which the packages meet: who writes each, who reads it, and the type of what it holds.

A graph of `torch.fx` passes between packages that do not import each other; what one knows of a node and another needs is under such a key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, final

import attrs
from torch.utils.checkpoint import CheckpointPolicy

__all__ = [
    "BACKWARD",
    "CHECKPOINT_POLICY",
    "CHECKPOINT_REGION",
    "FROM_PLACES",
    "GRADIENT_BUCKETS",
    "RECOMPUTE",
    "RESULTS",
    "HasMeta",
    "Key",
]

T = TypeVar("T")


class HasMeta(Protocol):
    """A node, or a graph module."""

    meta: dict[str, Any]


@final
@attrs.frozen
class Key(Generic[T]):
    """A key, typed.

    Attributes:
        name: as it is in `meta`: part of the packages' contract, and in some cases torch's own.
    """

    name: str

    def of(self, held: HasMeta) -> T | None:
        """What is there, or None."""
        found: T | None = held.meta.get(self.name)
        return found

    def put(self, held: HasMeta, value: T) -> None:
        """Write it."""
        held.meta[self.name] = value

    def drop(self, held: HasMeta) -> None:
        """Remove it, if it is there."""
        held.meta.pop(self.name, None)

    def marks(self, held: HasMeta) -> bool:
        """Is it there, whatever it holds?"""
        return self.name in held.meta


BACKWARD: Key[bool] = Key("backward")
"""The node belongs to the backward part of a joint graph. Written by aot; read by aot and inductor."""
RECOMPUTE: Key[CheckpointPolicy] = Key("recompute")
"""What the program wants of the node's result between forward and backward, as torch writes it. Written by fx and aot; read by aot."""
CHECKPOINT_REGION: Key[int] = Key("ac_graph_id")
"""The number of the checkpoint that the node lies in, as torch writes it. Written by fx; read by aot."""
CHECKPOINT_POLICY: Key[Callable[..., Any]] = Key("ac_policy")
"""The program's function that decides what a checkpoint keeps. Written by fx; read by aot."""
FROM_PLACES: Key[bool] = Key("torchjit_from_places")
"""Of a max pool's backward: its indices are computed from the one int8 tensor of places in windows (row by row) behind them, which kernels
can read instead. Written by aot; read by inductor."""
RESULTS: Key[int] = Key("results")
"""Of a forward graph: how many of its outputs are the program's; the others are saved for the backward. Written by aot; read by the meta-package."""
GRADIENT_BUCKETS: Key[tuple[int, ...]] = Key("gradient_buckets")
"""Of a captured graph below DDP: the bytes of the first buckets of gradients, the last number for all that follow. Written by fx; read by aot."""
