"""Results of one graph whose backwards have nothing in common: each can be run on its own, once, as in eager mode.

After a backward the engine frees what a node has saved. In eager mode the losses
of two networks that a training step computes together have nodes of their own: the second `backward()` works although the first
has freed its part. So here the tensors outlast a backward that some of the components have not been part of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["saved_tensors"]


def saved_tensors(
    ctx: Any, missing: Sequence[bool], components: Sequence[Sequence[int]], reads: Sequence[Sequence[int]]
) -> Sequence[torch.Tensor]:
    """What the forward has saved, for a backward of the components of which a tangent has arrived.

    Args:
        ctx: of the autograd function.
        missing: for each tangent whether it has not arrived.
        components: see `Dependence`.
        reads: see `component_reads`.

    Raises:
        RuntimeError: as in eager mode, a component's backward has freed what it needs, or something has written to it since.
    """
    arrived = {g for g, members in enumerate(components) if not all(missing[k] for k in members)}
    kept = getattr(ctx, "kept", None)
    if kept is None:
        saved: Sequence[torch.Tensor] = ctx.saved_tensors
        waiting = set(range(len(components)))
        versions = [t._version for t in saved]
    else:
        waiting, saved, versions = kept
        if not arrived <= waiting:
            return ctx.saved_tensors  # type: ignore[no-any-return]  # raises: they were freed
        for g in arrived:
            for n in reads[g]:
                _check_version(saved[n], versions[n])
    if torch._C._autograd._get_current_graph_task_keep_graph():
        return saved
    waiting = waiting - arrived
    ctx.maybe_clear_saved_tensors()
    # Detached: what the graph returns would else hold its own node.
    apart = [t.detach() if t.grad_fn is ctx else t for t in saved] if kept is None else saved
    ctx.kept = (waiting, apart, versions) if waiting else None
    return saved


def _check_version(tensor: torch.Tensor, version: int) -> None:
    if tensor._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version {version} instead."
        )
