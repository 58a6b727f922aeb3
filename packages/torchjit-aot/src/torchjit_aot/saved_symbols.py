"""Numbers that the backward is given so that it knows the sizes of what is saved: a compiler solves no equations.

A size that depends on data may reach the backward in a sum only: of what a program selects and puts behind other rows.
"""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torch import fx

from torchjit_aot.costs import is_symbolic
from torchjit_aot.joint import JointGraph
from torchjit_aot.partition import Partition
from torchjit_aot.symbols import expression_of
from torchjit_core.expr import Expr, Symbol, constant
from torchjit_torch.node_meta import BACKWARD

__all__ = ["with_symbols"]

_WHY = "sizes of saved values are made of it"


def with_symbols(joint: JointGraph, partition: Partition) -> Partition:
    """Also save the symbols of saved sizes and numbers that are none of these themselves, where the forward has a node for them or a
    value with such a size.

    Args:
        joint: is given a node for a size that nothing has asked for yet.
        partition: what is saved.
    """
    found = [e for node in (*partition.saved, *joint.tangents) for e in _expressions(node)]
    missing = {symbol for e in found for symbol in e.symbols} - {e.as_symbol for e in found}
    if not missing:
        return partition
    added: dict[Symbol, fx.Node] = {}
    for node in list(joint.graph.nodes):
        for dim, e in enumerate(() if BACKWARD.of(node) else _expressions(node)):
            symbol = e.as_symbol
            if symbol in missing and symbol not in added:
                added[symbol] = node if is_symbolic(node) else _asked(joint.graph, node, dim)
    why = dict(zip(partition.saved, partition.why, strict=True)) | dict.fromkeys(added.values(), _WHY)
    saved = tuple(node for node in joint.graph.nodes if node in why)
    return attrs.evolve(partition, saved=saved, why=tuple(why[node] for node in saved))


def _expressions(node: fx.Node) -> list[Expr]:
    """Of a tensor's node the sizes, in order; of a number's node the number."""
    val: Any = node.meta.get("val")
    return [_expression(part) for part in (val.shape if isinstance(val, torch.Tensor) else (val,))]


def _expression(value: Any) -> Expr:
    """A constant for what has no symbols of ours."""
    found = expression_of(value) if isinstance(value, torch.SymInt) else None
    return found if isinstance(found, Expr) else constant(0)


def _asked(graph: fx.Graph, tensor: fx.Node, dim: int) -> fx.Node:
    with graph.inserting_after(tensor):
        made = graph.call_function(torch.ops.aten.sym_size.int, (tensor, dim))
    made.meta["val"] = tensor.meta["val"].shape[dim]
    return made
