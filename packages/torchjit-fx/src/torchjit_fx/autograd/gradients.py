"""What a gradient looks like before it is there: the metadata that captured backwards and hooks are made for."""

from __future__ import annotations

import torch

from torchjit_fx.leaves import Raw
from torchjit_fx.modes import TorchModes
from torchjit_fx.records import RecordTable, TensorRecord
from torchjit_torch.layouts import contiguous_strides

__all__ = ["gradient_record", "layout_of", "outside_of_autocast"]


def gradient_record(records: RecordTable, r: TensorRecord) -> TensorRecord:
    """The gradient of a tensor: dense in its memory format, contiguous if it has none."""
    layout = layout_of(r) or torch.contiguous_format
    strides: Raw = r.strides if layout_of(r) is layout else contiguous_strides(r.sizes)
    flags = (False, True, False, False, False)
    return records.get(r.dtype, r.device, r.sizes, strides, 0, flags)


def outside_of_autocast(modes: TorchModes) -> None:
    """Gradients are computed outside of the program's autocast blocks."""
    for device in ("cpu", "cuda"):
        modes.write(("autocast", device), False)


def layout_of(r: TensorRecord) -> torch.memory_format | None:
    """The memory format that a dense tensor has, None if it has neither of those that there are."""
    if r.strides == contiguous_strides(r.sizes):
        return torch.contiguous_format
    if len(r.sizes) == 4 and r.strides == contiguous_strides(r.sizes, (0, 2, 3, 1)):
        return torch.channels_last
    if len(r.sizes) == 5 and r.strides == contiguous_strides(r.sizes, (0, 2, 3, 4, 1)):
        return torch.channels_last_3d
    return None
