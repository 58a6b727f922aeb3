"""Passes that a user adds: before differentiation, on the joint graph, and on each final graph.

A pass is a callable of an `fx.Graph` that changes it in place, with an `id`: a text that changes when the pass does, for
caches of compiled graphs. Any object with both serves; `graph_pass` makes one of a function.

    from torchjit_aot import AotSettings, graph_pass

    @graph_pass("relu-to-gelu-1")
    def relu_to_gelu(graph):
        for node in graph.nodes:
            if node.target is torch.ops.aten.relu.default:
                node.target = torch.ops.aten.gelu.default

    settings = AotSettings(joint_passes=(relu_to_gelu,))

What the graphs hold: before differentiation, the captured torch-level calls; the joint graph, functional aten operators
whose output node has the results, the gradients and the final values of written inputs; the final graphs, the forward or
inference graph with trailing `aten.copy_`, or the backward. Nodes that a pass adds get their `meta["val"]` after it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, final

import attrs
import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.node import map_arg

from torchjit_core.storing import relied_on

if TYPE_CHECKING:
    from torchjit_aot.joint import JointGraph

__all__ = ["GraphPass", "as_graph_pass", "graph_pass", "run_on_graph", "run_on_joint"]


class GraphPass(Protocol):
    """A change of a graph."""

    @property
    def id(self) -> str:
        """A text that changes when the pass does."""
        ...

    def __call__(self, graph: fx.Graph, /) -> None:
        """Change the graph in place."""
        ...


@final
@attrs.frozen
class _FunctionPass:
    id: str
    function: Callable[[fx.Graph], None] = attrs.field(eq=False)

    def __call__(self, graph: fx.Graph, /) -> None:
        self.function(graph)


def graph_pass(id: str) -> Callable[[Callable[[fx.Graph], None]], GraphPass]:
    """Decorator: a function of a graph as a pass.

    Args:
        id: a text that changes when the pass does.

    Raises:
        ValueError: the id is empty.
    """
    if not id:
        raise ValueError("a pass needs an id, for the cache")
    return lambda function: _FunctionPass(id, function)


def as_graph_pass(given: Any) -> GraphPass:
    """A pass as it is, or one of torch.compile's (`CustomGraphPass`: a callable with a method `uuid`) as a pass.

    Raises:
        ValueError: it is not callable or has no id.
    """
    identify = getattr(given, "uuid", None)
    if isinstance(given, type):
        raise ValueError("a pass is an object, not a class")
    id = identify() if callable(identify) else getattr(given, "id", None)
    if not callable(given) or not isinstance(id, (str, bytes)) or not id:
        raise ValueError("a pass is a callable of a graph with an id: see graph_pass")
    return given if isinstance(id, str) and not callable(identify) else _FunctionPass(str(id), given)


def run_on_graph(graph: fx.Graph, passes: Sequence[GraphPass], fake_mode: FakeTensorMode | None) -> None:
    """Run the passes, check the graph after each, and give new nodes their values.

    Args:
        graph: changed in place.
        passes: in order.
        fake_mode: where values are computed; None: nodes get none (torch-level graphs).

    Raises:
        ValueError: a pass left an invalid graph.
    """
    for each in passes:
        relied_on(_code_of(each))
        each(graph)
        try:
            graph.lint()
        except RuntimeError as error:
            raise ValueError(f"the pass {each.id!r} left an invalid graph: {error}") from error
        if fake_mode is not None:
            with fake_mode, enable_python_dispatcher(), torch.no_grad():
                _fill_values(graph)


def _code_of(given: GraphPass) -> Callable[..., Any]:
    """What runs as the pass: people edit passes and forget the id."""
    function = given.function if isinstance(given, _FunctionPass) else given
    return function if inspect.isroutine(function) else type(function).__call__


def run_on_joint(joint: JointGraph, passes: Sequence[GraphPass]) -> JointGraph:
    """Run the passes on the joint graph; results that they replace are replaced in what is given back, too."""
    keys = list(joint.mutated)
    joint.graph.output((joint.slots, joint.grads, tuple(joint.mutated[k] for k in keys)))
    run_on_graph(joint.graph, passes, joint.fake_mode)
    output = next(n for n in reversed(list(joint.graph.nodes)) if n.op == "output")
    slots, grads, mutated = output.args[0]
    joint.graph.erase_node(output)
    return attrs.evolve(joint, slots=tuple(slots), grads=tuple(grads), mutated=dict(zip(keys, mutated, strict=True)))


def _fill_values(graph: fx.Graph) -> None:
    """Run what has no value yet on fakes."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if "val" not in node.meta:
            args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
            node.meta["val"] = node.target(*args, **kwargs)
