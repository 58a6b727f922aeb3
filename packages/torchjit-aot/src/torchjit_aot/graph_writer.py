"""Writes graphs whose nodes all have their value: new nodes are run on fakes as they are added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
from torch import fx
from torch.fx.node import map_arg

from torchjit_aot.kernel_dtypes import with_kernel_dtypes
from torchjit_aot.record import SOURCE_KEYS, add_placeholder

__all__ = ["GraphWriter", "value_of"]

_INHERITED = (*SOURCE_KEYS, "seq_nr", "backward")
_UNSET = object()


def value_of(node: fx.Node) -> Any:
    """The node's fake tensor, symbolic number, or sequence."""
    return node.meta["val"]


@final
class GraphWriter:
    """Builds a graph from another one.

    Args:
        graph: where to add nodes; a new one by default.
        source: the old node on whose behalf new nodes are added: they inherit its source line.

    Attributes:
        graph: the graph so far.
        source: as above.
    """

    def __init__(self, graph: fx.Graph | None = None, source: fx.Node | None = None) -> None:
        self.graph = graph if graph is not None else fx.Graph()
        self.source = source

    def placeholder(self, node: fx.Node) -> fx.Node:
        """A placeholder like `node`."""
        made = add_placeholder(self.graph, str(node.target))
        made.meta = dict(node.meta)
        return made

    def copy(self, node: fx.Node, read: Callable[[fx.Node], fx.Node]) -> fx.Node:
        """The same call on other arguments; its value is kept."""
        made = self.graph.create_node(node.op, node.target, map_arg(node.args, read), map_arg(node.kwargs, read))
        made.meta = dict(node.meta)
        return made

    def call(
        self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *, value: Any = _UNSET
    ) -> fx.Node:
        """A new call. Its value comes from running it on the arguments' values, unless `value` is given.

        Run this under the fake mode and without grad mode.
        """
        node = self.graph.create_node("call_function", target, tuple(args), dict(kwargs or {}))
        if self.source is not None:
            node.meta.update({key: self.source.meta[key] for key in _INHERITED if key in self.source.meta})
        if value is _UNSET:
            given = map_arg(node.args, value_of)
            value = with_kernel_dtypes(target, given, target(*given, **map_arg(node.kwargs, value_of)))
        node.meta["val"] = value
        return node

    def sizes(self, node: fx.Node) -> list[Any]:
        """The sizes of a tensor, as ints and nodes."""
        return [
            n if isinstance(n, int) else self.call(torch.ops.aten.sym_size.int, (node, dim), value=n)
            for dim, n in enumerate(value_of(node).shape)
        ]
