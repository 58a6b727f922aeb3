"""Which values the backward may compute again, and why the others not."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from torchjit_aot.autograd_nodes.needs import Needs
from torchjit_aot.costs import bytes_of, copies_an_input, is_alias, is_fusible, is_reduction, is_symbolic, owner_of
from torchjit_aot.formulas import Formula
from torchjit_torch.node_meta import BACKWARD, CHECKPOINT_REGION, RECOMPUTE
from torchjit_torch.operators import is_random, writes_to

__all__ = ["MATERIALIZED", "banned_nodes", "parents_of"]

_MOST_READS = 4
"""A value whose recomputation reads more tensors of its size than this is saved: chains of residual sums end there."""
_SAVE = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
_RECOMPUTE = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)
MATERIALIZED = "of the backward reads it from memory"
"""The end of the reason of a value that is cheap to compute, but whose reader wants it in memory."""
REMEMBERED = "a result that eager PyTorch saves too: what is written to it counts"


def parents_of(node: fx.Node, formulas: Mapping[fx.Node, Formula]) -> Sequence[fx.Node]:
    """What the node is computed from when the backward computes it."""
    formula = formulas.get(node)
    return node.all_input_nodes if formula is None else formula.reads


def banned_nodes(
    order: Sequence[fx.Node],
    needs: Needs,
    formulas: Mapping[fx.Node, Formula],
    *,
    materialize: bool = False,
    allowed: AbstractSet[fx.Node] = frozenset(),
    kept: AbstractSet[fx.Node] = frozenset(),
) -> dict[fx.Node, str]:
    """The values that are not computed again, with the reason.

    Args:
        order: the values, each after what it is computed from.
        needs: the backward's side.
        formulas: other ways to some values.
        materialize: compute again also what a matrix product of the backward reads from memory.
        allowed: values to compute again whatever it costs.
        kept: values that are saved.
    """
    banned: dict[fx.Node, str] = {}
    reads: dict[fx.Node, frozenset[fx.Node]] = {}
    exits = _results_of_regions(order)
    for node in order:
        tag = RECOMPUTE.of(node)  # the program's own wish, which comes before any allowance
        forced = (node in allowed and tag not in _SAVE) or (tag in _RECOMPUTE and node not in exits)
        why = REMEMBERED if node in kept else _why_never(node, has_formula=node in formulas)
        if why is None and not forced:
            why = _why_not(node, needs, node in formulas, materialize)
        if why is None:
            large = _large_reads(node, [reads[parent] for parent in parents_of(node, formulas)])
            if len(large) <= _MOST_READS or forced or is_alias(node) or is_symbolic(node):
                reads[node] = large
                continue
            why = "recomputing it would read many tensors"
        banned[node] = why
        reads[node] = frozenset([node]) if not isinstance(node.meta["val"], (tuple, list)) else frozenset()
    return banned


def _large_reads(node: fx.Node, cones: Sequence[frozenset[fx.Node]]) -> frozenset[fx.Node]:
    """What its recomputation reads, as far as it is about as large."""
    size = bytes_of(node.meta["val"])
    return frozenset(leaf for leaf in frozenset().union(*cones) if 2 * bytes_of(leaf.meta["val"]) >= size)


def _results_of_regions(order: Sequence[fx.Node]) -> set[fx.Node]:
    """The values that leave a checkpointed region. They are kept, as in eager PyTorch: else one region's recomputation

    would start at the first region's input, and all activations would live at once after all.
    """
    found: set[fx.Node] = set()
    for node in order:
        region = CHECKPOINT_REGION.of(node)
        if region is None or BACKWARD.of(node) or RECOMPUTE.of(node) not in _RECOMPUTE:
            continue
        if any(CHECKPOINT_REGION.of(user) != region for user in node.users if not BACKWARD.of(user)):
            found.add(owner_of(node))
    return found


def _why_never(node: fx.Node, *, has_formula: bool) -> str | None:
    """Why nothing can make the backward compute the value."""
    if node.op == "placeholder":
        return "an input"
    if has_formula:
        return None
    whole = node.args[0] if node.target is operator.getitem else node
    assert isinstance(whole, fx.Node)
    if is_random(whole.target):
        return "random numbers are drawn once"
    if writes_to(whole.target) or (
        isinstance(whole.target, torch._ops.OpOverload) and not whole.target._schema.returns
    ):
        return "it has an effect"
    return None


def _why_not(node: fx.Node, needs: Needs, has_formula: bool, materialize: bool) -> str | None:
    if RECOMPUTE.of(node) in _SAVE:
        return "tagged to be saved"
    if RECOMPUTE.of(node) in _RECOMPUTE and not is_alias(node):
        return "a result of a checkpointed region"
    if copies_an_input(node):
        return "a copy of an input, which may be written to before the backward runs"
    if not is_fusible(node) and not has_formula:
        return _why_not_twice(node)
    if not node.all_input_nodes:
        return None  # made of nothing: never worth saving
    return None if materialize else _why_in_memory(node, needs)


def _why_not_twice(node: fx.Node) -> str:
    """Of an expensive operator."""
    whole = node.args[0] if node.args else None
    if node.op == "call_function" and isinstance(whole, fx.Node) and isinstance(whole.meta["val"], (tuple, list)):
        return f"a result of {_name(whole)}"
    return f"{_name(node)} is not computed twice"


def _why_in_memory(node: fx.Node, needs: Needs) -> str | None:
    """Of a cheap one: does an operator of the backward read the result from memory?"""
    if is_alias(node) or is_symbolic(node):
        return None
    for user in _through_views(node):
        if user in needs.backward and _reads_memory(user) and bytes_of(node.meta["val"]) > 8:
            return f"{_name(user)} {MATERIALIZED}"
    return None


def _reads_memory(node: fx.Node) -> bool:
    """Must what the node reads lie in memory (matrix products, convolutions, attention, unknown operators)?"""
    return not is_fusible(node) and not is_reduction(node)


def _through_views(node: fx.Node) -> list[fx.Node]:
    found: list[fx.Node] = []
    stack = list(node.users)
    while stack:
        user = stack.pop()
        if is_alias(user):
            stack.extend(user.users)
        else:
            found.append(user)
    return found


def _name(node: fx.Node) -> str:
    return getattr(node.target, "__name__", str(node.target))
