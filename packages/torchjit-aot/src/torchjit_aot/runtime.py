"""What runs at each call: a generated straight-line wrapper around the compiled graphs.

The wrapper is written as Python text for one graph, so that a call does only what that graph needs: no loops over
descriptions, no tests of what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from torchjit_aot.aliasing import FromSlot, OutputPlan
from torchjit_aot.autograd_backward import backward_of
from torchjit_aot.autograd_forward import forward_of, forward_of_part
from torchjit_aot.autograd_nodes.lazy_backward import Backwards
from torchjit_aot.autograd_nodes.nodes import Part
from torchjit_aot.compiler_protocol import CompiledGraph, writes_last
from torchjit_aot.inputs import GraphInput
from torchjit_aot.joint import JointGraph
from torchjit_aot.wrapper import (
    EXCLUDED,
    Source,
    in_grad_mode,
    in_range,
    make_bases,
    move_versions,
    parameters_of,
    range_name,
    replays_and_return,
    slot_names,
    slot_versions,
    wire_inputs,
)
from torchjit_core.writing import WRITES_FROM

__all__ = ["make_inference", "make_training", "make_training_in_parts"]


def _is_direct(joint: JointGraph, inputs: Sequence[fx.Node], state: Sequence[torch.Tensor]) -> bool:
    plan: OutputPlan = joint.plan
    whole = joint.shape if isinstance(joint.shape, tuple) else (None, None, ())
    return (
        tuple(inputs) == joint.inputs
        and not state
        and not joint.bases
        and not joint.versions_move
        and not joint.slot_versions
        and not plan.steps
        and not joint.freed
        and not joint.reshaped
        and whole[0] in (tuple, list)
        and all(isinstance(child, int) for child in whole[2])
        and all(isinstance(ref, FromSlot) and ref.index == i for i, ref in enumerate(plan.outputs))
        and len(plan.outputs) == len(plan.slots)
    )


def make_inference(
    joint: JointGraph, inputs: Sequence[fx.Node], compiled: CompiledGraph, state: Sequence[torch.Tensor], name: str
) -> Callable[..., Any]:
    """The callable for a graph without a backward.

    Args:
        joint: what was traced.
        inputs: which of its placeholders the compiled graph takes.
        compiled: returns the slots.
        state: tensors that the module holds itself, the last of `joint.inputs` but for the bases.
        name: for tracebacks.
    """
    grad_mode = torch.is_grad_enabled()
    must_disable = grad_mode and any(s.leaf is not None for s in joint.sources)
    source = Source()
    autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    guarded = bool(joint.mutated) or autocast or any(_is_made_by_writes(slot) for slot in joint.slots)
    # What is not told its range, such as a recorded CUDA graph, is called from inside of one.
    if not must_disable and not guarded and hasattr(compiled, "range_name") and _is_direct(joint, inputs, state):
        compiled.range_name = range_name(name)
        return compiled
    make_bases(joint, source)
    call = in_range(
        source, f"{source.bind(compiled, 'compiled')}({', '.join(wire_inputs(joint, inputs, source, state))})", name
    )
    if guarded:
        guard = f"{source.bind(torch._C._ExcludeDispatchKeyGuard)}({source.bind(EXCLUDED)})"
        call = [f"with {guard}:", *(f"    {line}" for line in call)]
    source.lines += in_grad_mode(source, False, call) if must_disable else call
    move_versions(joint, source, state, early=False)
    move_versions(joint, source, state, early=True)
    slots = slot_names("s", joint)
    source.lines += slot_versions(joint, source, slots)
    replays_and_return(joint, source, state, slots, grad_mode=grad_mode)
    run = source.function("run", parameters_of(joint, state), f"<torchjit {name}>")
    if writes_last(compiled):
        run.writes_last = True
    return run  # type: ignore[no-any-return]


def _is_made_by_writes(slot: Any) -> bool:
    """Is this result made without any tensor? Such operators fill memory in place, which counts as a write; eager's do not count it."""
    if not isinstance(slot, fx.Node) or not isinstance(slot.target, torch._ops.OpOverload):
        return False
    return not any("Tensor" in str(argument.type) for argument in slot.target._schema.arguments)


def make_training(
    joint: JointGraph,
    inputs: Sequence[fx.Node],
    saved: Sequence[fx.Node],
    forward: CompiledGraph,
    backwards: Backwards,
    state: Sequence[torch.Tensor],
    name: str,
    *,
    checked: bool = True,
) -> Callable[..., Any]:
    """The callable for a graph with a backward: one `autograd.Function`, and the views of its results outside.

    `checked`: the compiled backward relies on the layouts of its inputs.
    """
    passed, hidden = _passed(joint, inputs, saved)
    function = _function(
        forward_of(joint, passed, hidden, inputs, saved, forward, name, checked),
        backward_of(joint, passed, bool(hidden), saved, backwards, name, checked),
    )
    source = Source()
    make_bases(joint, source)
    move_versions(joint, source, state, early=True)
    moved = WRITES_FROM in source.bound
    names = wire_inputs(joint, passed, source, state)
    cut = _without_gradient(joint)
    wired = ", ".join(f"{name}.detach()" if node in cut else name for node, name in zip(passed, names, strict=True))
    if hidden:
        wired += f", ({', '.join(wire_inputs(joint, hidden, source, state))},)"
    call = f"s = {source.bind(function.apply, 'apply')}({wired})"
    if torch.is_grad_enabled():
        source.lines.append(call)
    else:  # the graph begins in a no_grad block and leaves it: what requires grad was made after that
        source.lines += in_grad_mode(source, True, [call])
    move_versions(joint, source, state, early=False)
    names = slot_names("s", joint)
    if len(names) == 1:
        names = ["s"] if isinstance(joint.slots[0], fx.Node) else names
    replays_and_return(joint, source, state, names, grad_mode=torch.is_grad_enabled())
    run = source.function("run", parameters_of(joint, state), f"<torchjit {name}>")
    if writes_last(forward) and not moved:
        run.writes_last = True
    return run  # type: ignore[no-any-return]


def _function(forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward), "boxed_grads_call": True}
    return type("CompiledGraphFunction", (torch.autograd.Function,), members)


def make_training_in_parts(
    joint: JointGraph,
    inputs: Sequence[fx.Node],
    saved: Sequence[fx.Node],
    forward: CompiledGraph,
    parts: Sequence[tuple[Part, Backwards]],
    state: Sequence[torch.Tensor],
    name: str,
    *,
    checked: bool = True,
) -> Callable[..., Any]:
    """As `make_training`, with one forward and an `autograd.Function` for each part, which takes what the forward has computed."""
    source = Source()
    make_bases(joint, source)
    move_versions(joint, source, state, early=True)
    moved = WRITES_FROM in source.bound
    guard = f"{source.bind(torch._C._ExcludeDispatchKeyGuard)}({source.bind(EXCLUDED)})"
    call = f"{source.bind(forward, 'compiled')}({', '.join(wire_inputs(joint, inputs, source, state))})"
    lines = in_range(source, call, f"{name}_forward")
    source.lines += in_grad_mode(source, False, [f"with {guard}:", *(f"    {line}" for line in lines)])
    names = slot_names("s", joint)
    source.lines += slot_versions(joint, source, names)
    calls = []
    for n, (part, backwards) in enumerate(parts):
        written = part.joint.mutated_under_grad
        passed = [n for i, n in enumerate(joint.inputs) if part.joint.grads[i] is not None or i in written]
        others = [node for node in part.saved if node.op == "placeholder" and node not in passed]
        function = _function(
            forward_of_part(joint, part, passed, others, saved, name, checked),
            backward_of(part.joint, passed, True, part.saved, backwards, name, checked),
        )
        wired = wire_inputs(joint, passed, source, state)
        rest = [
            f"{text}.detach()" if isinstance(node.meta["val"], torch.Tensor) else text
            for node, text in zip(others, wire_inputs(joint, others, source, state), strict=True)
        ]
        calls.append(
            f"n{n} = {source.bind(function.apply, 'apply')}({', '.join([*wired, ''])}({', '.join(['s', *rest])},))"
        )
        for place, slot in enumerate(part.slots):
            names[slot] = f"n{n}[{place}]" if len(part.slots) > 1 else f"n{n}"
    if torch.is_grad_enabled():
        source.lines += calls
    else:
        source.lines += in_grad_mode(source, True, calls)
    move_versions(joint, source, state, early=False)
    replays_and_return(joint, source, state, names, grad_mode=torch.is_grad_enabled())
    run = source.function("run", parameters_of(joint, state), f"<torchjit {name}>")
    if writes_last(forward) and not moved:
        run.writes_last = True
    return run  # type: ignore[no-any-return]


def _without_gradient(joint: JointGraph) -> set[fx.Node]:
    """The inputs that autograd knows and that get no gradient: it must not walk through this call to where they come from,
    or a backward of this graph would free what a backward of theirs still needs."""
    return {node for node, source in _uninvolved(joint) if not source.static}


def _uninvolved(joint: JointGraph) -> list[tuple[fx.Node, GraphInput]]:
    return [
        (node, source)
        for i, (node, grad, source) in enumerate(zip(joint.inputs, joint.grads, joint.sources, strict=True))
        if grad is None and source.leaf is not None and i not in joint.mutated_under_grad
    ]


def _passed(
    joint: JointGraph, inputs: Sequence[fx.Node], saved: Sequence[fx.Node]
) -> tuple[list[fx.Node], list[fx.Node]]:
    """What goes through the autograd function: the forward's inputs, and inputs that only the backward needs.

    Returns:
        Its arguments; and what it is given in a tuple, which autograd does not see: parameters without a gradient, whose
        hooks would be called with None.
    """
    passed = list(inputs)
    wanted = [node for node in saved if node.op == "placeholder"]
    wanted += [node for node, grad in zip(joint.inputs, joint.grads, strict=True) if grad is not None]
    wanted += [joint.inputs[i] for i in joint.mutated_under_grad]
    for node in wanted:
        if node not in passed:
            passed.append(node)
    parameters = {node for node, source in _uninvolved(joint) if source.static}
    return [node for node in passed if node not in parameters], [node for node in passed if node in parameters]
