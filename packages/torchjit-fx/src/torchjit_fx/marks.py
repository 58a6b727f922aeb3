"""Marks that a program put on the dimensions of a tensor."""

from __future__ import annotations

from typing import Any

import torch

from torchjit_core.marks import SizeMark

__all__ = ["MARKS", "marks_of"]

MARKS = "_torchjit_marks"
"""The attribute of a tensor that holds its marks: a dict from dimension to `SizeMark`."""


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
    found.update(members.get(MARKS, {}))
    return found
