"""Which convolutions of an inference graph run in channels-last layout: a short race for each new shape decides.

Inside a graph only its outputs have promised strides. Where a convolution is faster with its channels innermost, what
feeds it is stored that way, and what comes out stays that way until something else wants it otherwise.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import _disable_current_modes

from torchjit_inductor.matmul import best_times

__all__ = ["channels_last_strides", "preferred_layouts"]

_RACES: dict[tuple[Any, ...], tuple[float, float]] = {}
"""Seconds in row-major and in channels-last layout, by shapes, arguments and threads. Facts about this process."""

GAIN = 0.8
"""Channels-last must take at most this share of the time, since other steps may pay for the change."""
MAX_FLOPS = 2e10


def preferred_layouts(gm: torch.fx.GraphModule) -> set[torch.fx.Node]:
    """The nodes whose result should be stored channels-last because of the convolutions that read it."""
    times: dict[torch.fx.Node, list[tuple[float, float]]] = {}
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is torch.ops.aten.convolution.default:
            source = node.args[0]
            if isinstance(source, torch.fx.Node) and source.op == "call_function":
                raced = _race(node)
                if raced is not None:
                    times.setdefault(source, []).append(raced)
    return {n for n, found in times.items() if sum(t[1] for t in found) < GAIN * sum(t[0] for t in found)}


def channels_last_strides(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Strides of a 4-d tensor with the channels innermost."""
    _, c, h, w = sizes
    return (c * h * w, c - c + 1, c * w, c)


def _race(node: torch.fx.Node) -> tuple[float, float] | None:
    """Seconds in both layouts, or None where the choice does not arise."""
    x, weight, *rest = node.args
    if not isinstance(x, torch.fx.Node) or not isinstance(weight, torch.fx.Node):
        return None
    a, w = x.meta["val"], weight.meta["val"]
    sizes = (*a.shape, *w.shape)
    if not all(isinstance(n, int) for n in sizes) or a.dim() != 4 or w.dim() != 4 or a.device.type != "cpu":
        return None
    bias, *options = rest
    transposed = options[3]
    out = node.meta["val"].shape
    flops = 2.0 * node.meta["val"].numel() * w[0].numel()
    if a.dtype != torch.float32 or transposed or a.shape[1] < 4 or min(*a.shape[2:], *out[2:]) < 2 or flops > MAX_FLOPS:
        return None
    if not a.is_contiguous() or not all(
        isinstance(n, int) for group in options for n in (group if isinstance(group, (list, tuple)) else (group,))
    ):
        return None
    key = (*sizes, bias is None, str(options), torch.get_num_threads())
    if key not in _RACES:
        with _disable_current_modes(), torch.no_grad():
            plain = torch.full(tuple(a.shape), 0.5)
            last = plain.contiguous(memory_format=torch.channels_last)
            filters = torch.full(tuple(w.shape), 0.5)
            shift = None if bias is None else torch.ones(w.shape[0])
            run = torch.ops.aten.convolution.default
            _RACES[key] = best_times(
                lambda: run(plain, filters, shift, *options), lambda: run(last, filters, shift, *options)
            )
    return _RACES[key]
