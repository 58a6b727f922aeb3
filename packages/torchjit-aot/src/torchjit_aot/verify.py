"""What holds of every functional joint graph, checked after each pass under test (`AotSettings.verify`)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from torchjit_aot.joint import JointGraph
from torchjit_core.reasons import InvalidIR, reason
from torchjit_torch.operators import writes_to

__all__ = ["verify"]

BROKEN_JOINT = reason(
    "TJ-AOT-013",
    "a pass left a joint graph that does not hold together",
    "Checked under test only: a pass of torchjit's, or one of the program's, lost a node that the runtime refers to.",
)


def verify(joint: JointGraph) -> None:
    """Check a functional joint graph.

    Raises:
        InvalidIR: it refers to nodes that it does not have, writes to something, or has values without metadata.
    """
    try:
        joint.graph.lint()
    except RuntimeError as error:
        raise InvalidIR(BROKEN_JOINT, str(error)) from error
    for what in (*_lengths(joint), *_strangers(joint), *_nodes(joint)):
        raise InvalidIR(BROKEN_JOINT, what)


def _lengths(joint: JointGraph) -> Iterator[str]:
    if not len(joint.inputs) == len(joint.sources) == len(joint.grads):
        yield f"{len(joint.inputs)} inputs, {len(joint.sources)} sources, {len(joint.grads)} gradients"
    if len(joint.tangents) != len(joint.differentiable):
        yield f"{len(joint.tangents)} tangents for {len(joint.differentiable)} results"
    if len(joint.slots) != len(joint.plan.slots):
        yield f"{len(joint.slots)} results where the runtime expects {len(joint.plan.slots)}"


def _strangers(joint: JointGraph) -> Iterator[str]:
    here = set(joint.graph.nodes)
    named = {
        "an input": joint.inputs,
        "a constant": [node for node, _ in joint.constants],
        "a tangent": joint.tangents,
        "a result": joint.slots,
        "a gradient": joint.grads,
        "a new value of an input": joint.mutated.values(),
    }
    for what, values in named.items():
        for node in values:
            if isinstance(node, fx.Node) and node not in here:
                yield f"{what}, {node.name}, is not in the graph"


def _nodes(joint: JointGraph) -> Iterator[str]:
    for node in joint.graph.nodes:
        if "val" not in node.meta:
            yield f"{node.name} has no value"
        elif node.op == "call_function" and writes_to(node.target):
            yield f"{node.name} writes: {node.target}"
