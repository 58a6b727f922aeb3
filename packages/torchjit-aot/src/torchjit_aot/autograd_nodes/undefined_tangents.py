"""The backward for a call in which some results got no gradient: its own graph, without the terms that only these have.

A loss is often one of several results (`out.loss.backward()`; the logits and the keys and values of a cache come back, too). Zeros
for the others would be written and added, and where a factor is infinite or NaN they are not neutral. Eager PyTorch has no such
terms. So what is known to be zero here is left out, not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import attrs
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from torchjit_aot.graph_writer import GraphWriter
from torchjit_aot.joint import tangent_like
from torchjit_aot.linear import is_zero
from torchjit_aot.simplify import same_kind
from torchjit_aot.split import BuiltGraph, laid_out
from torchjit_torch.layouts import is_static
from torchjit_torch.operators import has_effect, is_view

__all__ = ["Pruned", "prune"]

aten = torch.ops.aten


@final
@attrs.frozen(eq=False)
class Pruned:
    """What is left of a backward.

    Attributes:
        built: the graph. Its placeholders are the saved values and the tangents that it reads or that have come.
        reads: for each tangent whether it is among the placeholders: one that has not come is given as zeros.
        changed: is it another graph than the whole backward?
    """

    built: BuiltGraph
    reads: tuple[bool, ...]
    changed: bool


def prune(
    built: BuiltGraph, missing: Sequence[bool], behind: Sequence[Sequence[int]], fake_mode: FakeTensorMode
) -> Pruned:
    """Take out of a backward graph, in place, what only tangents that have not come lead to.

    Args:
        built: the graph as the joint graph gives it, not yet changed by passes: its last placeholders are the tangents.
        missing: for each tangent whether it has not come.
        behind: for each result, the tangents that it depends on: one whose tangents are all missing becomes None.
        fake_mode: of the graph's values.
    """
    graph = built.gm.graph
    count = len(graph.nodes)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    tangents = placeholders[len(placeholders) - len(missing) :]
    output = graph.output_node()
    gradients: Any = output.args[0]
    results = tuple(
        None if tangents_of and all(missing[k] for k in tangents_of) else result
        for result, tangents_of in zip(gradients, behind, strict=True)
    )
    output.args = (results,)
    absent = {node for node, gone in zip(tangents, missing, strict=True) if gone}
    _erase_unread(graph)
    with fake_mode, torch.no_grad():
        _leave_out(graph, absent)
    _erase_unread(graph)
    gone = [node for node in absent if not node.users]
    for node in gone:
        graph.erase_node(node)
    kept = set(graph.nodes)
    reads = tuple(node in kept for node in tangents)
    inputs = tuple(node for node, placeholder in zip(built.inputs, placeholders, strict=True) if placeholder in kept)
    built.gm.recompile()
    pruned = attrs.evolve(built, inputs=inputs)  # the static ones are among the saved values, which come first
    return Pruned(pruned, reads, changed=bool(gone) or len(graph.nodes) != count)


def _leave_out(graph: fx.Graph, absent: set[fx.Node]) -> None:
    """Where a sum has a term that is known to be zero, take the other; where another operator reads zeros, write these.

    A result that is zero although one of its tangents has come is computed as it was.
    """
    zeros = set(absent)
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if is_zero(node, zeros):
            zeros.add(node)
        elif any(source in zeros for source in node.all_input_nodes):
            other = _other_term(node, zeros)
            if other is not None:
                node.replace_all_uses_with(_in_place_of(node, other, graph))
            else:
                _write_zeros(node, zeros, graph)


def _other_term(node: fx.Node, zeros: set[fx.Node]) -> fx.Node | None:
    """The term that remains of a sum of two tensors."""
    if node.target not in (aten.add.Tensor, aten.sub.Tensor):
        return None
    left, right = node.args[:2]
    if right in zeros:
        kept = left
    elif left in zeros and node.target is aten.add.Tensor and node.kwargs.get("alpha", 1) == 1:
        kept = right
    else:
        return None
    if not isinstance(kept, fx.Node) or not isinstance(kept.meta["val"], torch.Tensor):
        return None
    value, had = kept.meta["val"], node.meta["val"]
    alike = (value.dtype, value.device, str(tuple(value.shape))) == (had.dtype, had.device, str(tuple(had.shape)))
    return kept if alike else None


def _in_place_of(node: fx.Node, other: fx.Node, graph: fx.Graph) -> fx.Node:
    """The remaining term, in the strides of the sum where operators read it: views of it are in the graph.

    A gradient that nothing else reads keeps its own, as in eager PyTorch, where no sum is made.
    """
    if same_kind(other.meta["val"], node.meta["val"]) or all(user.op == "output" for user in node.users):
        return other
    with graph.inserting_before(node):
        writer = GraphWriter(graph, node)
        return laid_out(writer, other, node.meta["val"].stride())


def _write_zeros(node: fx.Node, zeros: set[fx.Node], graph: fx.Graph) -> None:
    """Constants for what is known to be zero, so that nothing of it is computed."""
    with graph.inserting_before(node):
        writer = GraphWriter(graph, node)
        for source in node.all_input_nodes:
            if source in zeros and isinstance(source.meta["val"], torch.Tensor):
                node.replace_input_with(source, _constant(source, zeros, writer))


def _constant(source: fx.Node, zeros: set[fx.Node], writer: GraphWriter) -> fx.Node:
    """Zeros like these. Where sizes vary they are asked of the old value, of which compilers need nothing else."""
    value = source.meta["val"]
    if _is_dense(value):
        if not is_static(value):
            return writer.call(aten.full_like.default, (source, 0))
        options = {"dtype": value.dtype, "device": value.device}
        return laid_out(writer, writer.call(aten.full.default, (list(value.shape), 0), options), value.stride())
    base = source.args[0] if is_view(source.target) else None
    if not isinstance(base, fx.Node) or base not in zeros:
        return source
    made = _constant(base, zeros, writer)
    return writer.copy(source, lambda n: made if n is base else n)


def _is_dense(value: torch.Tensor) -> bool:
    like = tangent_like(value)
    return value.layout == torch.strided and [str(n) for n in like.stride()] == [str(n) for n in value.stride()]


def _erase_unread(graph: fx.Graph) -> None:
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and not has_effect(node.target):
            graph.erase_node(node)
