"""`flex_attention`: its two functions are captured once each, and the call becomes one node."""

from __future__ import annotations

import contextlib

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from torchjit_fx.intrinsics import Value, enter_body, finish_flex_attention, leave_body, refuse

__all__ = ["NoAnnotation", "call_flex_attention", "has_free_unbacked_symbols", "mark_nothing"]


class NoAnnotation:
    """In the place of `torch.fx.traceback.annotate`, which marks nodes for torch's own tracers."""

    def __init__(self, annotation_dict: Value) -> None:
        self.annotation = annotation_dict

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


def mark_nothing(*args: Value, **kwargs: Value) -> None:
    """Interpreted instead of `torch._dynamo.mark_static`: every size that a region does not mark may be a symbol."""


def has_free_unbacked_symbols(value: Value) -> bool:
    """By this torch skips comparisons of sizes that only the run knows; here such a comparison breaks the graph."""
    return False


class IndexByTensors(TorchFunctionMode):
    """A tensor without dimensions as an index is no number that only the data know.

    Source: TransformGetItemToIndex in torch/_dynamo/_trace_wrapped_higher_order_op.py (torch 2.15).
    """

    def __torch_function__(self, func: Value, types: Value, args: Value = (), kwargs: Value = None) -> Value:
        if func is torch.Tensor.__getitem__:
            indices = tree_leaves(args[1])
            if all([isinstance(i, (torch.Tensor, int)) and not isinstance(i, bool) for i in indices]):
                found = args[0]
                for dim in reversed(range(len(indices))):  # fakes under vmap take no index of theirs beside others
                    if isinstance(indices[dim], int):
                        found = found.select(dim, indices[dim])
                tensors = [i for i in indices if isinstance(i, torch.Tensor)]
                return torch.ops.aten.index(found, tensors) if tensors else found
        return func(*args, **(kwargs or {}))


def call_flex_attention(
    self: Value,
    query: Value,
    key: Value,
    value: Value,
    score_mod: Value,
    block_mask: Value,
    scale: Value,
    kernel_options: Value,
    score_mod_other_buffers: Value = (),
    mask_mod_other_buffers: Value = (),
) -> Value:
    """Interpreted instead of the higher-order operator's `__call__`."""
    if score_mod_other_buffers or mask_mod_other_buffers:
        refuse("flex_attention that is given the buffers of its functions")
    device = query.device.type
    off: Value = contextlib.nullcontext()
    operands = [query, key, value]
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        operands = [t.to(dtype) if t.is_floating_point() and t.dtype is not torch.float64 else t for t in operands]
        off = torch.autocast(device, enabled=False)
    with off:
        # What the functions see of these is one element; nothing else uses them, so they are in no graph.
        precision = torch.float64 if operands[0].dtype is torch.float64 else torch.float32
        score = torch.empty(1, dtype=precision, device=query.device)
        index = torch.empty(1, dtype=torch.int64, device=query.device)
        _capture(score_mod, [score, index, index, index, index])
        _capture(block_mask[-1], [index, index, index, index])
        return tuple(finish_flex_attention(operands, list(block_mask[:-1]), scale, kernel_options))


def _capture(function: Value, elements: list[Value]) -> None:
    seen = enter_body(elements, 0)
    with IndexByTensors():
        result = function(*seen)
    leave_body([result])
