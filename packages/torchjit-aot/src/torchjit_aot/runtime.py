"""What runs at each call: a generated straight-line wrapper around the compiled graphs.

The wrapper is written as Python text for one graph, so that a call does only what that graph needs: no loops over
descriptions, no tests of what is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from torchjit_aot.aliasing import FromSlot
from torchjit_aot.autograd_backward import backward_of
from torchjit_aot.autograd_forward import CalledGraph, forward_of
from torchjit_aot.autograd_nodes.delivery import Delivery, announce
from torchjit_aot.autograd_nodes.lazy_backward import Backwards
from torchjit_aot.autograd_nodes.nodes import Part
from torchjit_aot.autograd_nodes.pieces import Groups
from torchjit_aot.compiler_protocol import CompiledGraph, Run, writes_last
from torchjit_aot.graph_function import graph_function
from torchjit_aot.inputs import GraphInput
from torchjit_aot.joint import JointGraph
from torchjit_aot.wrapper import CallText, call_graph, in_grad_mode, range_name, slot_names, slot_versions, untracked

__all__ = ["make_inference", "make_training"]


def _is_direct(joint: JointGraph, inputs: Sequence[fx.Node], state: Sequence[torch.Tensor]) -> bool:
    """Is what the compiled graph takes and returns what the program's does, so that it needs no wrapper?"""
    done_beside = (
        state, joint.bases, joint.versions_move, joint.slot_versions, joint.plan.steps, joint.freed, joint.reshaped,
    )  # fmt: skip
    return tuple(inputs) == joint.inputs and not any(done_beside) and _returns_its_slots(joint)


def _returns_its_slots(joint: JointGraph) -> bool:
    """Is the program's result a flat sequence of the graph's?"""
    kind, _, children = joint.shape if isinstance(joint.shape, tuple) else (None, None, ())
    outputs = joint.plan.outputs
    return (
        kind in (tuple, list)
        and all(isinstance(child, int) for child in children)
        and all(isinstance(ref, FromSlot) and ref.index == i for i, ref in enumerate(outputs))
        and len(outputs) == len(joint.plan.slots)
    )


def make_inference(
    joint: JointGraph, inputs: Sequence[fx.Node], compiled: CompiledGraph, state: Sequence[torch.Tensor], name: str
) -> Run:
    """The callable for a graph without a backward.

    Args:
        joint: what was traced.
        inputs: which of its placeholders the compiled graph takes.
        compiled: returns the slots.
        state: tensors that the module holds itself, the last of `joint.inputs` but for the bases.
        name: for tracebacks.
    """
    must_disable = torch.is_grad_enabled() and any(s.leaf is not None for s in joint.sources)
    autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    guarded = bool(joint.mutated) or autocast or any(_is_made_by_writes(slot) for slot in joint.slots)
    # What is not told its range, such as a recorded CUDA graph, is called from inside of one.
    if not must_disable and not guarded and hasattr(compiled, "range_name") and _is_direct(joint, inputs, state):
        compiled.range_name = range_name(name)
        return compiled
    text = CallText(joint, state)
    call = call_graph(text.source, compiled, text.names(inputs), name)
    call = untracked(text.source, call) if guarded else call
    text.source.lines += in_grad_mode(text.source, False, call) if must_disable else call
    text.move_versions(early=False)
    text.move_versions(early=True)
    slots = slot_names("s", joint)
    text.source.lines += slot_versions(joint, text.source, slots)
    return text.function(slots, name, writes_last=writes_last(compiled))


def _is_made_by_writes(slot: Any) -> bool:
    """Is this result made without any tensor? Such operators fill memory in place, which counts as a write; eager's do not count it."""
    if not isinstance(slot, fx.Node) or not isinstance(slot.target, torch._ops.OpOverload):
        return False
    return not any("Tensor" in str(argument.type) for argument in slot.target._schema.arguments)


def make_training(
    joint: JointGraph,
    forward: CalledGraph,
    parts: Sequence[tuple[Part, Backwards]],
    state: Sequence[torch.Tensor],
    name: str,
    *,
    checked: bool = True,
    groups: Groups | None = None,
) -> Run:
    """The callable for a graph with a backward: one `autograd.Function` for each part, and the views of its results outside.

    That of a single part calls the graph. Those of several take what the graph, called before, has computed.

    Args:
        joint: what was traced.
        forward: the compiled forward.
        parts: the results, with their backwards.
        state: see `make_inference`.
        name: for the profiler and tracebacks.
        checked: the compiled backward relies on the layouts of its inputs.
        groups: the inputs whose gradients come together, if there is more than one group; then there is one part.
    """
    text, several = CallText(joint, state), len(parts) > 1
    source = text.source
    moved = text.move_versions(early=True)
    slots = slot_names("s", joint)
    if several:
        call = call_graph(source, forward.compiled, text.names(forward.inputs), f"{name}_forward")
        source.lines += in_grad_mode(source, False, untracked(source, call))
        source.lines += slot_versions(joint, source, slots)
    calls = []
    for n, (part, backwards) in enumerate(parts):
        passed, hidden = _passed_to_part(joint, part) if several else _passed(joint, forward)
        if groups is not None:
            passed, hidden = _first_of(joint, groups, passed, hidden)
            calls.append(_announced(text, groups, name))
        apply = graph_function(
            forward_of(joint, part, passed, hidden, forward, name, several, checked, groups is not None),
            backward_of(part, passed, bool(hidden) or several, backwards, name, checked, groups),
        )
        given = _given(text, passed, hidden, several) + (", token" if groups is not None else "")
        calls.append(f"n{n} = {source.bind(apply, 'apply')}({given})")
        for place, slot in enumerate(part.slots):
            if isinstance(joint.slots[slot], fx.Node):
                slots[slot] = f"n{n}[{place}]" if len(part.slots) > 1 else f"n{n}"
    # Where the graph begins in a no_grad block and leaves it, what requires grad was made after that.
    source.lines += calls if torch.is_grad_enabled() else in_grad_mode(source, True, calls)
    text.move_versions(early=False)
    return text.function(slots, name, writes_last=writes_last(forward.compiled) and not moved)


def _first_of(
    joint: JointGraph, groups: Groups, passed: list[fx.Node], hidden: list[fx.Node]
) -> tuple[list[fx.Node], list[fx.Node]]:
    """What goes through the graph's own autograd function where inputs of the groups behind the first have others."""
    later = {joint.inputs[i] for group in groups[1:] for i in group}
    return [n for n in passed if n not in later], [*hidden, *(n for n in passed if n in later)]


def _announced(text: CallText, groups: Groups, name: str) -> str:
    """The line that makes these others."""
    joint, reach = text.joint, text.joint.dependence.tangents
    deliveries = tuple(Delivery(tuple(reach[i] for i in group), range_name(f"{name}_backward")) for group in groups[1:])
    inputs = ", ".join(f"({', '.join(text.names([joint.inputs[i] for i in group]))},)" for group in groups[1:])
    return f"token = {text.source.bind(announce)}({text.source.bind(deliveries, 'deliveries')}, ({inputs},))"


def _given(text: CallText, passed: Sequence[fx.Node], hidden: Sequence[fx.Node], called: bool) -> str:
    """The text of an autograd function's arguments. `called`: with what the graph gave, which several functions take."""
    # Autograd must not walk through this call to where these come from, or a backward of this graph would free what a backward
    # of theirs still needs.
    cut = {node for node, source in _uninvolved(text.joint) if not source.static}
    cut.update(node for node in hidden if called and isinstance(node.meta["val"], torch.Tensor))
    wired = [f"{text.name(node)}.detach()" if node in cut else text.name(node) for node in (*passed, *hidden)]
    rest = [*(["s"] if called else []), *wired[len(passed) :]]
    return ", ".join([*wired[: len(passed)], *([f"({', '.join(rest)},)"] if rest else [])])


def _uninvolved(joint: JointGraph) -> list[tuple[fx.Node, GraphInput]]:
    """The inputs that autograd knows and that get no gradient."""
    return [
        (node, source)
        for i, (node, grad, source) in enumerate(zip(joint.inputs, joint.grads, joint.sources, strict=True))
        if grad is None and source.leaf is not None and i not in joint.mutated_under_grad
    ]


def _passed(joint: JointGraph, forward: CalledGraph) -> tuple[list[fx.Node], list[fx.Node]]:
    """What goes through an autograd function that calls the graph: its inputs, and inputs that only the backward needs.

    Returns:
        Its arguments; and what it is given in a tuple, which autograd does not see: parameters without a gradient, whose
        hooks would be called with None.
    """
    wanted = [*forward.inputs, *(node for node in forward.saved if node.op == "placeholder")]
    wanted += [node for node, grad in zip(joint.inputs, joint.grads, strict=True) if grad is not None]
    wanted += [joint.inputs[i] for i in joint.mutated_under_grad]
    parameters = {node for node, source in _uninvolved(joint) if source.static}
    passed = list(dict.fromkeys(wanted))
    return [node for node in passed if node not in parameters], [node for node in passed if node in parameters]


def _passed_to_part(joint: JointGraph, part: Part) -> tuple[list[fx.Node], list[fx.Node]]:
    """The same where the graph is called before: the inputs with a gradient or a new history; further ones that the backward reads."""
    written = part.joint.mutated_under_grad
    passed = [n for i, n in enumerate(joint.inputs) if part.joint.grads[i] is not None or i in written]
    return passed, [node for node in part.saved if node.op == "placeholder" and node not in passed]
