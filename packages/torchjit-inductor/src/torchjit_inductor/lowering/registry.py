"""The table of lowerings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import torch

__all__ = ["LOWERINGS", "find_lowering", "lowering"]

Lowering: TypeAlias = Callable[..., Any]
"""`(builder, meta, *args, **kwargs) -> Lowered | tuple[Lowered, ...]`.

`meta` is the `TensorMeta` of the result (a tuple of them for several results); tensor arguments arrive as `Lowered`,
sizes as `Expr` or int. Raises `NotLowered` to leave this call to aten.
"""

LOWERINGS: dict[Any, Lowering] = {}
_F = TypeVar("_F", bound=Lowering)


def lowering(*names: str) -> Callable[[_F], _F]:
    """Register a lowering for aten overloads, such as `add.Tensor`; names that this torch lacks are skipped."""

    def register(fn: _F) -> _F:
        for name in names:
            namespace, _, rest = name.rpartition("::")
            packet_name, _, overload = rest.partition(".")
            packet = getattr(getattr(torch.ops, namespace or "aten"), packet_name, None)
            op = getattr(packet, overload or "default", None) if packet is not None else None
            if op is not None:
                if op in LOWERINGS:
                    raise ValueError(f"{name} has two lowerings")
                LOWERINGS[op] = fn
        return fn

    return register


def find_lowering(op: object) -> Lowering | None:
    """The lowering of an overload, or None."""
    return LOWERINGS.get(op)
