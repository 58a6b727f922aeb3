"""Results of one graph whose backwards have nothing in common: each can be run on its own, once, as in eager mode.

For autograd a compiled graph is one node, and after a backward the engine frees what a node has saved. In eager mode the losses
of two networks that a training step computes together have nodes of their own: the second `backward()` works although the first
has freed its part. So here the tensors outlast a backward that some of the groups have not been part of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from torchjit_aot.joint import JointGraph, bits_of_tangents

__all__ = ["needed_by_groups", "saved_tensors", "separate_groups"]

_ADDITION = torch.ops.aten.add.Tensor


def separate_groups(joint: JointGraph) -> tuple[tuple[int, ...], ...]:
    """The positions of tangents, those together whose backwards share an operator.

    Only the sum of two gradients of an input is no operator in this sense: eager mode adds them when they arrive.
    """
    behind = bits_of_tangents(joint)
    results = {grad for grad in joint.grads if grad is not None}
    sums: set[fx.Node] = set()
    for node in reversed(joint.graph.nodes):
        adds = node.target is _ADDITION and node in behind and (node in results or node.users)
        if adds and all(user in sums for user in node.users):
            sums.add(node)
    group = list(range(len(joint.tangents)))

    def find(k: int) -> int:
        while group[k] != k:
            k = group[k]
        return k

    for node, bits in behind.items():
        if node in sums:
            continue
        first, *others = (k for k in range(len(group)) if bits >> k & 1)
        for other in others:
            group[find(other)] = find(first)
    members: dict[int, list[int]] = {}
    for k in range(len(group)):
        members.setdefault(find(k), []).append(k)
    return tuple(map(tuple, members.values()))


def needed_by_groups(joint: JointGraph, saved: Sequence[fx.Node]) -> tuple[tuple[int, ...], ...]:
    """For each group the positions, among the saved tensors, of those that its backward reads."""
    behind = bits_of_tangents(joint)
    stops = set(saved)
    reaches: dict[fx.Node, int] = {}
    for node in reversed(joint.graph.nodes):
        bits = 0
        for user in node.users:
            bits |= behind.get(user, 0) or (0 if user in stops else reaches.get(user, 0))
        reaches[node] = bits
    tensors = [node for node in saved if isinstance(node.meta["val"], torch.Tensor)]
    return tuple(
        tuple(n for n, node in enumerate(tensors) if any(reaches.get(node, 0) >> k & 1 for k in members))
        for members in joint.groups
    )


def saved_tensors(
    ctx: Any, missing: Sequence[bool], groups: Sequence[Sequence[int]], needed: Sequence[Sequence[int]]
) -> Sequence[torch.Tensor]:
    """What the forward has saved, for a backward of the groups of which a tangent has arrived.

    Args:
        ctx: of the autograd function.
        missing: for each tangent whether it has not arrived.
        groups, needed: see `separate_groups` and `needed_by_groups`.

    Raises:
        RuntimeError: as in eager mode, a group's backward has freed what it needs, or something has written to it since.
    """
    arrived = {g for g, members in enumerate(groups) if not all(missing[k] for k in members)}
    kept = getattr(ctx, "kept", None)
    if kept is None:
        saved: Sequence[torch.Tensor] = ctx.saved_tensors
        waiting = set(range(len(groups)))
        versions = [t._version for t in saved]
    else:
        waiting, saved, versions = kept
        if not arrived <= waiting:
            return ctx.saved_tensors  # type: ignore[no-any-return]  # raises: they were freed
        for g in arrived:
            for n in needed[g]:
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
