"""How what a backward reads lies in memory. Its values are the program's affair, but compiled code knows the strides.

The caller may have given his own tensors memory of another layout by then (`x.data = y`). Hooks of saved tensors may give back others:
`save_on_cpu` gives contiguous tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from torchjit_torch.layouts import is_static

if TYPE_CHECKING:
    from torchjit_aot.wrapper import Source

__all__ = ["check_saved_layout", "note_hooked", "note_saved_layout", "unhooked"]


def _held(saved: Sequence[fx.Node]) -> list[tuple[int, fx.Node]]:
    """The caller's own tensors among the saved ones, with their positions: he may give them other memory (`x.data = y`)."""
    tensors = [node for node in saved if isinstance(node.meta["val"], torch.Tensor)]
    return [(k, node) for k, node in enumerate(tensors) if node.op == "placeholder"]


def _formats(source: Source, tensors: str) -> str:
    """Text for the strides and the bytes of a sequence of tensors. Sizes and dtypes hardly change without either."""
    strides = source.bind(torch._C.TensorBase.stride)
    return f"([*map({strides}, {tensors})], [x.nbytes for x in {tensors}])"


def note_saved_layout(source: Source, variable: dict[fx.Node, str], saved: Sequence[fx.Node]) -> list[str]:
    """Lines that keep the layouts of the caller's saved tensors, where these vary from call to call."""
    held = [node for _, node in _held(saved)]
    if all(is_static(node.meta["val"]) for node in held):
        return []
    return [f"h = ({', '.join(variable[node] for node in held)},)", f"ctx.held = {_formats(source, 'h')}"]


def check_saved_layout(source: Source, saved: Sequence[fx.Node]) -> list[str]:
    """Lines that make the variable `odd` true where the caller's tensors, among the saved ones, have got memory of another layout.

    Compiled code would read it as the old one, or beyond its end. Eager PyTorch reads the tensor that there is.
    """
    held = _held(saved)
    if not held:
        return []
    positions, nodes = [k for k, _ in held], [node for _, node in held]
    first = positions[-1] < len(held)
    lines = [f"h = t[:{len(held)}]" if first else f"h = ({', '.join(f't[{k}]' for k in positions)},)"]
    if all(is_static(node.meta["val"]) for node in nodes):
        values = [node.meta["val"] for node in nodes]
        traced = tuple((v.shape, v.stride(), v.dtype) for v in values)
        test = f"odd = odd or {source.bind(_is_laid_out_otherwise)}(h, {source.bind(traced, 'traced')})"
        # Tensor by tensor, in text: a third of the time of lists that are compared.
        others = (
            f"h[{k}].stride() != {tuple(v.stride())} or h[{k}].nbytes != {v.nbytes}" for k, v in enumerate(values)
        )
        return [*lines, f"if {' or '.join(others)}:", f"    {test}"]
    return [*lines, f"odd = odd or {_formats(source, 'h')} != ctx.held"]


def _is_laid_out_otherwise(
    tensors: Sequence[torch.Tensor], traced: Sequence[tuple[torch.Size, tuple[int, ...], torch.dtype]]
) -> bool:
    """Strides of what has one place, or none, do not count."""
    for tensor, (shape, strides, dtype) in zip(tensors, traced, strict=True):
        if tensor.shape != shape or tensor.dtype != dtype:
            return True
        places = zip(shape, tensor.stride(), strides, strict=True)
        if tensor.numel() and any(a != b for n, a, b in places if n > 1):
            return True
    return False


def note_hooked(source: Source, tensors: Sequence[str]) -> list[str]:
    """Lines of the forward that keep how the saved tensors lie in memory, while there are hooks; else `ctx.hooked` is None."""
    hooks = source.bind(torch._C._autograd._top_saved_tensors_default_hooks)
    kept = f"ctx.hooked = [{source.bind(_layout)}(t) for t in ({', '.join(tensors)},)]"
    return [f"if {hooks}(False) is not None:", f"    {kept}"]


def unhooked(source: Source) -> list[str]:
    """Lines of the backward that lay out the saved tensors `t` as they were."""
    return [
        "if ctx.hooked is not None:",
        f"    t = [*map({source.bind(_laid_out)}, t, ctx.hooked)]",
    ]


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _laid_out(tensor: torch.Tensor, layout: tuple[Any, ...]) -> torch.Tensor:
    shape, strides, dtype, device = layout
    if tensor.shape != shape or _layout(tensor) == layout:
        return tensor
    return torch.empty_strided(shape, strides, dtype=dtype, device=device).copy_(tensor)
