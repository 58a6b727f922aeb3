"""Gradients asked for with `create_graph=True`: what differentiates them once more is refused, wherever it starts.

The engine only walks over nodes that lead to what gradients are asked for. So the node that refuses leads where eager PyTorch's
gradients lead: to the inputs and the tangents that they depend on. Else `autograd.grad(y + (d**2).sum(), x)` would leave out the
second term without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import attrs
import torch
from torch import fx

from torchjit_aot.refusals import DOUBLE_BACKWARD
from torchjit_core.reasons import UserError

if TYPE_CHECKING:
    from torchjit_aot.joint import JointGraph
    from torchjit_aot.wrapper import Source

__all__ = ["Links", "keep_links", "linked", "links_of", "refuse_double_backward"]


@final
@attrs.frozen(eq=False, repr=False)
class Links:
    """Where a backward finds tensors that lead to the inputs behind its gradients.

    Attributes:
        parameters: positions of inputs among the node's edges, which lead to leaves.
        saved: positions, among the saved tensors, of inputs, or of a result, which leads to them all.
        kept: the inputs for which the forward keeps a tensor.
    """

    parameters: tuple[int, ...]
    saved: tuple[int, ...]
    kept: tuple[fx.Node, ...]


def links_of(joint: JointGraph, passed: Sequence[fx.Node], saved: Sequence[fx.Node]) -> Links:
    """The cheapest links.

    Args:
        joint: what was traced, or a part of it.
        passed: the inputs that autograd knows.
        saved: what the forward keeps for the backward.
    """
    tensors = [node for node in passed if isinstance(node.meta["val"], torch.Tensor)]
    held = [node for node in saved if isinstance(node.meta["val"], torch.Tensor)]
    parameters, found, missing = [], [], []
    for i in sorted(joint.dependence.differentiable):
        node, source = joint.inputs[i], joint.sources[i]
        if joint.grads[i] is None:
            continue
        if source.static and source.leaf is source.value and node in tensors:
            parameters.append(tensors.index(node))
        elif node in held:
            found.append(held.index(node))
        else:
            missing.append(node)
    if missing:
        slots = (joint.slots[i] for i in joint.differentiable if i not in joint.plan.apart)
        own = next((held.index(slot) for slot in slots if isinstance(slot, fx.Node) and slot in held), None)
        if own is not None:
            return Links(tuple(parameters), (*found, own), ())
    return Links(tuple(parameters), tuple(found), tuple(missing))


def keep_links(source: Source, links: Links, variable: dict[fx.Node, str]) -> None:
    """Lines of the forward, where nothing else leads to an input."""
    if links.kept:
        copies = ", ".join(f"{source.bind(_without_memory)}({variable[node]})" for node in links.kept)
        source.lines.append(f"ctx.links = ({copies},)")


def _without_memory(tensor: torch.Tensor) -> torch.Tensor:
    """What has the tensor in its history. A leaf itself: the graph holds it in any case."""
    if tensor.is_leaf:
        return tensor
    with torch.enable_grad():
        return tensor.to("meta")


def linked(
    ctx: Any, held: Sequence[torch.Tensor], tangents: Sequence[Any], parameters: Sequence[int], saved: Sequence[int], kept: bool
) -> list[torch.Tensor]:  # fmt: skip
    """Tensors that lead to all that the gradients depend on.

    Args:
        ctx: the node.
        held: the saved tensors.
        tangents: as they have come.
        parameters, saved: see `Links`.
        kept: does the forward keep tensors?

    Raises:
        RuntimeError: that is not possible: what leads there was freed by a backward of other results.
    """
    nodes = [ctx.next_functions[k][0] for k in parameters]
    found = [getattr(node, "variable", None) for node in nodes]
    found += [held[k] for k in saved]
    if kept:
        found += ctx.links
    if not all(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in found):
        raise RuntimeError(str(UserError(DOUBLE_BACKWARD)))
    return [*found, *(g for g in tangents if g is not None and g.requires_grad)]


def refuse_double_backward(gradients: Sequence[Any], leads: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """Gradients whose differentiation raises; they are constants where nothing is behind them."""
    tensors = [g.detach() for g in gradients if g is not None]
    refusing = torch._C._functions.DelayedError(str(UserError(DOUBLE_BACKWARD)), len(tensors) + len(leads))
    wrapped = refusing(*tensors, *leads)
    remaining = iter(wrapped if isinstance(wrapped, tuple) else (wrapped,))
    return tuple(None if g is None else next(remaining) for g in gradients)
