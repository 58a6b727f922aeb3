"""What hooks of saved tensors give back: values are the program's affair, where they lie is what the backward was compiled for.

`save_on_cpu` gives back contiguous tensors, hooks that quantise give others; eager PyTorch's kernels read strides, ours know them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchjit_aot.wrapper import Source

__all__ = ["note_hooked", "unhooked"]


def note_hooked(source: Source, tensors: Sequence[str]) -> list[str]:
    """Lines of the forward that keep how the saved tensors lie in memory, while there are hooks."""
    hooks = source.bind(torch._C._autograd._top_saved_tensors_default_hooks)
    kept = f"ctx.hooked = [{source.bind(_layout)}(t) for t in ({', '.join(tensors)},)]"
    return [f"if {hooks}(False) is not None:", f"    {kept}"]


def unhooked(source: Source) -> list[str]:
    """Lines of the backward that lay out the saved tensors `t` as they were."""
    return [
        "hooked = getattr(ctx, 'hooked', None)",
        "if hooked is not None:",
        f"    t = [*map({source.bind(_laid_out)}, t, hooked)]",
    ]


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _laid_out(tensor: torch.Tensor, layout: tuple[Any, ...]) -> torch.Tensor:
    shape, strides, dtype, device = layout
    if tensor.shape != shape or _layout(tensor) == layout:
        return tensor
    return torch.empty_strided(shape, strides, dtype=dtype, device=device).copy_(tensor)
