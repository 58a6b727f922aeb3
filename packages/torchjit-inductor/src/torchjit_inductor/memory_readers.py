"""Operators that see where elements lie in memory, and the values that must therefore lie as in eager mode.

A layout is ours to choose where only elements are read. `as_strided` reads memory, `view(dtype)` cuts it otherwise, random
numbers are drawn in its order, and an operator of the user's own may do as it likes with a pointer.
"""

from __future__ import annotations

import functools
import operator

import torch
import torch.fx

from torchjit_torch.operators import draws

__all__ = ["observed", "reads_memory", "storage_owner"]

_aten = torch.ops.aten
_OF_ATEN = frozenset(
    {
        _aten.as_strided.default,
        _aten.as_strided_copy.default,
        _aten.as_strided_scatter.default,
        _aten.view.dtype,
        _aten.view_copy.dtype,
    }
)
_ONLY_ELEMENTS = frozenset(
    {"aten", "prims", "prim", "quantized", "onednn", "mkldnn", "torchvision", "torchjit_attention"}
)


@functools.cache
def reads_memory(target: object) -> bool:
    """Does the operator's result depend on the strides of its operands?"""
    if isinstance(target, torch._ops.HigherOrderOperator):
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target in _OF_ATEN or target.namespace not in _ONLY_ELEMENTS:
        return True
    return draws(target) and "attention" not in target._schema.name


def observed(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The nodes whose layout such an operator sees, as its operand or through a view of it."""
    found: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.op == "call_function" and reads_memory(node.target):
            for source in node.all_input_nodes:
                found.update(_shown(source))
            found.add(node)
    return found


def _shown(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The node, and what it is a view of, up to what owns the storage."""
    nodes = [node]
    while (source := _viewed(node)) is not None:
        nodes.append(source)
        node = source
    return nodes


def storage_owner(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose result a view, or a view of a view, shows: it owns the storage that offsets of `as_strided` count from."""
    return _shown(node)[-1]


def _viewed(node: torch.fx.Node) -> torch.fx.Node | None:
    if node.op != "call_function":
        return None
    source = node.args[0] if node.target is operator.getitem else node
    if not isinstance(source, torch.fx.Node) or not _is_view(source.target) or not source.args:
        return None
    first = source.args[0]
    return first if isinstance(first, torch.fx.Node) else None


@functools.cache
def _is_view(target: object) -> bool:
    if target is _aten._unsafe_view.default:
        return True
    returns = getattr(getattr(target, "_schema", None), "returns", ())
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
