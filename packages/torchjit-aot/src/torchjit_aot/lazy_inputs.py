"""Inputs that aten conjugates or negates lazily (`x.conj()`, its `.imag`): graphs take the memory as it is, and do it themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import attrs
import torch
from torch import fx

from torchjit_aot.compiler_protocol import Run
from torchjit_aot.refusals import METADATA_MUTATION
from torchjit_core.reasons import GraphBreak
from torchjit_torch.operators import names_metadata_write

__all__ = ["LazyInputs", "are_lazy", "take_memory"]


@final
@attrs.frozen(eq=False)
class LazyInputs:
    """A graph over the memory of its inputs.

    Attributes:
        gm: starts with the views that the inputs are.
        example_inputs: what it is called with.
        views: by position, the operations that lead from the one to the other, in both directions.
    """

    gm: fx.GraphModule
    example_inputs: list[Any]
    views: dict[int, tuple[Callable[[torch.Tensor], torch.Tensor], ...]]

    def around(self, run: Run) -> Run:
        """Called as the original graph is."""
        views = tuple(self.views.items())

        def call(*args: Any) -> Any:
            given = list(args)
            for k, operations in views:
                for operation in operations:
                    given[k] = operation(given[k])
            return run(*given)

        return call


def are_lazy(example_inputs: Sequence[Any]) -> bool:
    """Is there such an input?"""
    return any(_views(value) for value in example_inputs)


def take_memory(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> LazyInputs:
    """The same computation over plain inputs.

    Raises:
        GraphBreak: sizes or strides of something are changed in place. That may be an input, and what the graph changes then is its own view of the memory.
    """
    for node in gm.graph.nodes:
        if node.op in ("call_method", "call_function") and names_metadata_write(node.target):
            raise GraphBreak(METADATA_MUTATION, f"{node.name}, and an input is a lazily conjugated or negated view")
    graph = fx.Graph()
    output = graph.graph_copy(gm.graph, {})
    graph.output(output)
    views = {k: found for k, value in enumerate(example_inputs) if (found := _views(value))}
    plain = list(example_inputs)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    first = placeholders[-1].next
    for k, operations in views.items():
        node = last = placeholders[k]
        val = node.meta.get("val")
        users = list(node.users)
        for operation in operations:
            plain[k] = operation(plain[k])
            with graph.inserting_before(first):
                last = graph.call_function(operation, (last,))
        for user in users:
            user.replace_input_with(node, last)
        if isinstance(val, torch.Tensor):
            last.meta["val"] = val
            for operation in operations:
                val = operation(val)
            node.meta["val"] = val
    made = fx.GraphModule(gm, graph)
    made.meta = dict(gm.meta)
    return LazyInputs(made, plain, views)


def _views(value: Any) -> tuple[Callable[[torch.Tensor], torch.Tensor], ...]:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return ()
    return (torch.conj,) * value.is_conj() + (torch._neg_view,) * value.is_neg()
