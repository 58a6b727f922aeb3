"""Build the forward, backward and inference graphs from the joint graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import attrs
import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch.fx._lazy_graph_module import _LazyGraphModule

from torchjit_aot.autograd_nodes.needs import ancestors, effects_of_backward
from torchjit_aot.costs import bytes_of, is_symbolic
from torchjit_aot.formulas import Formula
from torchjit_aot.graph_writer import GraphWriter
from torchjit_aot.joint import JointGraph
from torchjit_aot.partition import Partition
from torchjit_aot.record import add_placeholder
from torchjit_core.events import emit_lazy
from torchjit_core.node_notes import lines_of, values_of
from torchjit_torch.node_meta import BACKWARD, RESULTS
from torchjit_torch.operators import has_effect

__all__ = [
    "BuiltGraph",
    "build_backward",
    "build_forward",
    "laid_out",
    "tell_graph",
    "tell_joint",
    "tell_saved",
]

aten = torch.ops.aten


@final
@attrs.frozen(eq=False)
class BuiltGraph:
    """A graph ready for the compiler.

    Attributes:
        gm: the graph.
        inputs: the joint graph's nodes that its placeholders stand for.
        static: positions of the inputs whose storage stays.
    """

    gm: fx.GraphModule
    inputs: tuple[fx.Node, ...]
    static: frozenset[int]

    @property
    def example_inputs(self) -> list[Any]:
        """The placeholders' values."""
        return [node.meta["val"] for node in self.gm.graph.nodes if node.op == "placeholder"]


def _live_nodes(joint: JointGraph) -> list[fx.Node]:
    """The nodes of the forward: what its results need, and what has an effect of its own."""
    wanted = [slot for slot in joint.slots if isinstance(slot, fx.Node)]
    wanted += list(joint.mutated.values())
    wanted += [n for n in joint.graph.nodes if not BACKWARD.of(n) and has_effect(n.target)]
    return wanted


@final
class _Builder:
    """Copies the part of the joint graph that some results need."""

    def __init__(self, joint: JointGraph, formulas: Mapping[fx.Node, Formula] | None = None) -> None:
        self.detached = joint.detached
        self.formulas = formulas or {}
        self.graph = fx.Graph()
        self.copies: dict[fx.Node, fx.Node] = {}

    def add_inputs(self, nodes: Sequence[fx.Node]) -> None:
        for node in nodes:
            made = add_placeholder(self.graph, node.name)
            made.meta = dict(node.meta)
            value = node.meta["val"]
            if isinstance(value, torch.Tensor) and value.requires_grad:
                if node not in self.detached:
                    self.detached[node] = value.detach()
                made.meta["val"] = self.detached[node]
            self.copies[node] = made

    def add(self, node: fx.Node) -> None:
        """Copy a node after the nodes that it reads."""
        stack = [node]
        while stack:
            top = stack[-1]
            if top in self.copies:
                stack.pop()
                continue
            formula = self.formulas.get(top)
            sources = top.all_input_nodes if formula is None else formula.reads
            missing = [source for source in sources if source not in self.copies]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if top.op == "placeholder":
                raise AssertionError(f"{top.name} is not an input of this graph")  # a wrong partition: our bug
            if formula is None:
                self.copies[top] = self.graph.node_copy(top, self.copies.__getitem__)
            else:
                self.copies[top] = self._write(formula, top)

    def _write(self, formula: Formula, node: fx.Node) -> fx.Node:
        writer = GraphWriter(self.graph, node)
        made = formula.write(writer.call, [self.copies[n] for n in formula.reads])
        return laid_out(writer, made, node.meta["val"].stride())

    def read(self, value: Any) -> Any:
        return self.copies[value] if isinstance(value, fx.Node) else value


def laid_out(writer: GraphWriter, node: fx.Node, strides: Sequence[Any]) -> fx.Node:
    """The value with these (dense) strides: the operator behind a formula may lay out its result otherwise, and views of it
    are in the graph."""
    have = node.meta["val"].stride()
    if tuple(str(n) for n in have) == tuple(str(n) for n in strides):
        return node
    order = sorted(range(len(strides)), key=lambda dim: -strides[dim])
    back = [order.index(dim) for dim in range(len(order))]
    turned = writer.call(aten.permute.default, (node, order))
    dense = writer.call(aten.clone.default, (turned,), {"memory_format": torch.contiguous_format})
    return writer.call(aten.permute.default, (dense, back))


def build_forward(joint: JointGraph, saved: Sequence[fx.Node], name: str) -> BuiltGraph:
    """The graph of the slots, the mutations, and the saved values that are not inputs."""
    wanted = [*_live_nodes(joint), *saved]
    needed = ancestors(wanted)
    inputs = tuple(
        node for node in (*joint.inputs, *(n for n, _ in joint.constants)) if node in needed or node in _written(joint)
    )
    builder = _Builder(joint)
    with joint.fake_mode, torch.no_grad():
        builder.add_inputs(inputs)
    for node in joint.graph.nodes:
        if node in needed:
            builder.add(node)
    for index, value in joint.mutated.items():
        if index not in joint.mutated_under_grad:
            _write_back(builder, joint, index, value)
    results = [builder.read(slot) for slot in joint.slots]
    results += [builder.copies[node] for node in saved if node.op != "placeholder"]
    builder.graph.output(tuple(results))
    built = _finish(joint, builder, inputs, name)
    RESULTS.put(built.gm, len(joint.slots))  # what follows them is saved for the backward
    return built


def _written(joint: JointGraph) -> set[fx.Node]:
    return {joint.inputs[i] for i in joint.mutated}


def _write_back(builder: _Builder, joint: JointGraph, index: int, value: fx.Node) -> None:
    target = builder.copies[joint.inputs[index]]
    source = builder.copies[value]
    made = builder.graph.call_function(aten.copy_.default, (target, source))
    made.meta = {key: v for key, v in value.meta.items() if key != "val"}
    made.meta["val"] = target.meta["val"]


def build_backward(joint: JointGraph, partition: Partition, name: str) -> BuiltGraph:
    """The graph from saved values and tangents to gradients, with the backward's own effects in their order.

    Recomputed values stand just before their first use.
    """
    grads = [grad for grad in joint.grads if grad is not None]
    inputs = (*partition.saved, *joint.tangents)
    builder = _Builder(joint, partition.formulas)
    effects = effects_of_backward(joint)
    needed = ancestors([*grads, *effects], set(inputs))
    with joint.fake_mode, torch.no_grad(), enable_python_dispatcher():
        builder.add_inputs(inputs)
        for node in joint.graph.nodes:
            if BACKWARD.of(node) and node in needed:
                builder.add(node)
        for grad in grads:
            builder.add(grad)
    builder.graph.output(tuple(builder.copies[g] if g is not None else None for g in joint.grads))
    return _finish(joint, builder, inputs, name)


def _finish(joint: JointGraph, builder: _Builder, inputs: tuple[fx.Node, ...], name: str) -> BuiltGraph:
    static = {node for node, source in zip(joint.inputs, joint.sources, strict=True) if source.static}
    static |= {node for node, _ in joint.constants}
    # Compilers read the graph: its text is written for who calls the module, or looks at it.
    gm = _LazyGraphModule({}, builder.graph, class_name=name if name.isidentifier() else "graph")
    gm.meta["fake_mode"] = joint.fake_mode
    staying = {node for node, source in zip(joint.inputs, joint.sources, strict=True) if source.address_stays}
    if staying:
        for placeholder, node in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
            if node in staying:
                placeholder.meta["address_stays"] = True
    return BuiltGraph(gm, inputs, frozenset(i for i, node in enumerate(inputs) if node in static))


def tell_graph(stage: str, name: str, gm: fx.GraphModule) -> None:
    """Emit a `graph` event."""
    emit_lazy("graph", lambda: _told(stage, name, gm.graph, _code(gm.graph)))


def tell_joint(name: str, joint: JointGraph) -> None:
    """Emit a `graph` event. The joint graph has no output node; what it computes is shown as one: results, writes, gradients."""

    def fields() -> dict[str, Any]:
        shown = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        shown.graph_copy(joint.graph, copies)
        outputs = ([*joint.slots], [*joint.mutated.values()], [*joint.grads])
        shown.output(fx.node.map_arg(tuple(values for values in outputs if values), copies.__getitem__))
        return _told("joint", name, joint.graph, _code(shown))

    emit_lazy("graph", fields)


def _told(stage: str, name: str, graph: fx.Graph, code: str) -> dict[str, Any]:
    nodes = graph.nodes
    return {
        "stage": stage,
        "name": name,
        "code": code,
        "nodes": len(nodes),
        "values": values_of(nodes),
        "lines": lines_of(nodes),
    }


def _code(graph: fx.Graph) -> str:
    return str(graph.python_code("self").src)


def tell_saved(partition: Partition) -> None:
    """Emit a `saved_tensors` event."""

    def fields() -> dict[str, Any]:
        tensors = []
        for node, why in zip(partition.saved, partition.why, strict=True):
            value = node.meta["val"]
            if is_symbolic(node):
                continue
            tensors.append(
                {
                    "name": node.name,
                    "shape": [n if isinstance(n, int) else str(n) for n in value.shape],
                    "dtype": str(value.dtype),
                    "bytes": bytes_of(value),
                    "why": why,
                }
            )
        return {"tensors": tensors}

    emit_lazy("saved_tensors", fields)
