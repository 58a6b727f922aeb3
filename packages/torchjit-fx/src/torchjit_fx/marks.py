"""Marks that a program put on the dimensions of a tensor."""

from __future__ import annotations

from typing import Any

import torch

from torchjit_core.marks import SizeMark

__all__ = ["ADDRESS", "MARKS", "address_mark", "marks_of"]

MARKS = "_torchjit_marks"
"""The attribute of a tensor that holds its marks: a dict from dimension to `SizeMark`."""
ADDRESS = "_torchjit_static_address"
"""The attribute of a tensor whose memory stays where it is: `guarded` or `unguarded`."""


def address_mark(tensor: torch.Tensor) -> str | None:
    """What the program said of the tensor's address: `guarded`, `unguarded` or nothing. A mark of `torch._dynamo` counts too."""
    members: dict[str, Any] = tensor.__dict__
    return (members.get(ADDRESS) or members.get("_dynamo_static_input_type")) if members else None


def marks_of(tensor: torch.Tensor) -> dict[int, SizeMark]:
    """The marks by dimension; those that programs make through `torch._dynamo` count too."""
    members: dict[str, Any] = tensor.__dict__
    if not members:
        return {}
    found: dict[int, SizeMark] = {}
    for name, kind in (
        ("_dynamo_weak_dynamic_indices", "maybe"),
        ("_dynamo_dynamic_indices", "dynamic"),
        ("_dynamo_unbacked_indices", "unbacked"),
        ("_dynamo_static_indices", "static"),
    ):
        for dim in members.get(name, ()):
            found[dim] = SizeMark(kind)  # type: ignore[arg-type]  # one of the literals above
    for declared in members.get("_dynamo_dynamic_range", ()):
        if found.get(declared.dim) == SizeMark("dynamic"):
            found[declared.dim] = SizeMark("dynamic", declared.min, declared.max)
    for dim in members.get("_dynamo_unbacked_indices", ()):
        if found[dim].kind == "unbacked":
            lower, upper = members.get("_dynamo_unbacked_bounds", {}).get(dim, (None, None))
            found[dim] = SizeMark("unbacked", lower, upper, members.get("_dynamo_shape_ids", {}).get(dim))
    found.update(members.get(MARKS, {}))
    return found
