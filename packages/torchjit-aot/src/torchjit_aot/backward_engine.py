"""A backward engine in Python, for devices that autograd's own engine refuses.

`torch.autograd.grad` asks for a device context before it runs nodes of CUDA tensors, so it cannot trace CUDA fakes on a
machine without a GPU. This engine calls the same nodes in the same order.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import torch
from torch.autograd.graph import Node

__all__ = ["gradients", "needs_python_engine"]


def needs_python_engine(tensors: Sequence[torch.Tensor]) -> bool:
    """Is there a CUDA fake on a machine without a GPU?"""
    return any(t.device.type == "cuda" for t in tensors) and not torch.cuda.is_available()


def _edge(tensor: torch.Tensor) -> tuple[Node, int]:
    edge = torch.autograd.graph.get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _fit(gradient: torch.Tensor | None, node: Node, slot: int) -> torch.Tensor | None:
    """What autograd's `validate_outputs` does: reduce to the forward's shape, cast to its dtype."""
    if gradient is None:
        return None
    metadata = node._input_metadata[slot]
    if gradient.shape != tuple(metadata.shape):
        gradient = gradient.sum_to_size(tuple(metadata.shape))
    if gradient.dtype != metadata.dtype:
        gradient = gradient.to(metadata.dtype)
    return gradient


def gradients(
    outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """As `torch.autograd.grad(outputs, inputs, tangents, allow_unused=True)`, without hooks.

    Nodes run in falling order of their sequence number, that is, in reversed order of the forward.
    """
    waiting: dict[Node, list[torch.Tensor | None]] = {}
    queue: list[tuple[int, int, Node]] = []

    def feed(node: Node, slot: int, gradient: torch.Tensor | None) -> None:
        buffer = waiting.get(node)
        if buffer is None:
            waiting[node] = buffer = [None] * max(len(node._input_metadata), slot + 1)
            # AccumulateGrad has the highest number, yet nothing comes after it: it runs last, when its sum is complete
            order = 1 if type(node).__name__ == "AccumulateGrad" else -node._sequence_nr()
            heapq.heappush(queue, (order, id(node), node))
        gradient = _fit(gradient, node, slot)  # here, not when the node runs: the sum for a bias is beside what it sums
        if gradient is not None:
            held = buffer[slot]
            buffer[slot] = gradient if held is None else held + gradient

    wanted = [_edge(t) for t in inputs]
    leaves = {node for node, _ in wanted}
    with torch.no_grad():
        for tensor, tangent in zip(outputs, tangents, strict=True):
            feed(*_edge(tensor), tangent)
        done: dict[Node, list[torch.Tensor | None]] = {}
        while queue:
            _, _, node = heapq.heappop(queue)
            incoming = waiting.pop(node)
            if node in leaves:
                done[node] = incoming
                if type(node).__name__ == "AccumulateGrad":
                    continue
            # A node of a `torch.autograd.Function` is no function itself.
            outgoing = node(*incoming) if callable(node) else node.apply(*incoming)  # type: ignore[attr-defined]
            if not isinstance(outgoing, tuple):
                outgoing = (outgoing,)
            for (following, slot), gradient in zip(node.next_functions, outgoing, strict=False):
                if following is not None:
                    feed(following, slot, gradient)
    return [done[node][slot] if node in done else None for node, slot in wanted]
