"""What a gradient looks like before it is there: the metadata that captured backwards and hooks are made for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchjit_fx.leaves import Raw, RawArgs
from torchjit_fx.modes import TorchModes
from torchjit_fx.records import RecordTable, TensorRecord

__all__ = ["gradient_record", "layout_of", "outside_of_autocast"]


def gradient_record(records: RecordTable, r: TensorRecord) -> TensorRecord:
    """The gradient of a tensor: dense in its memory format, contiguous if it has none."""
    layout = layout_of(r) or torch.contiguous_format
    strides: Raw = r.strides if layout_of(r) is layout else _contiguous(r.sizes)
    flags = (False, True, False, False, False)
    return records.get(r.dtype, r.device, r.sizes, strides, 0, flags)


def outside_of_autocast(modes: TorchModes) -> None:
    """Gradients are computed outside of the program's autocast blocks."""
    for device in ("cpu", "cuda"):
        modes.write(("autocast", device), False)


def _contiguous(sizes: Sequence[Any], order: Sequence[int] | None = None) -> RawArgs:
    """Dense strides, innermost last in `order` (row-major by default). A size of 0 counts as 1, as in torch."""
    strides: list[Raw] = [1] * len(sizes)
    step: Raw = 1
    for dim in reversed(range(len(sizes)) if order is None else order):
        strides[dim] = step
        step = step * (max(sizes[dim], 1) if type(sizes[dim]) is int else sizes[dim])
    return tuple(strides)


def layout_of(r: TensorRecord) -> torch.memory_format | None:
    """The memory format that a dense tensor has, None if it has neither of those that there are."""
    if r.strides == _contiguous(r.sizes):
        return torch.contiguous_format
    if len(r.sizes) == 4 and r.strides == _contiguous(r.sizes, (0, 2, 3, 1)):
        return torch.channels_last
    if len(r.sizes) == 5 and r.strides == _contiguous(r.sizes, (0, 2, 3, 4, 1)):
        return torch.channels_last_3d
    return None
