"""The forward of the autograd function around a compiled graph: it calls the graph, and keeps what the backward needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

import attrs
import torch
from torch import fx

from torchjit_aot.compiler_protocol import CompiledGraph, Run
from torchjit_aot.double_backward import keep_links, links_of
from torchjit_aot.saved_layouts import note_hooked, note_saved_layout
from torchjit_aot.wrapper import Source, call_graph, slot_names, slot_versions, untracked, writes
from torchjit_torch.layouts import is_static

if TYPE_CHECKING:  # a process that loads stored entries traces nothing
    from torchjit_aot.autograd_nodes.nodes import Part
    from torchjit_aot.joint import JointGraph

__all__ = ["CalledGraph", "forward_of"]


@final
@attrs.frozen(eq=False)
class CalledGraph:
    """A compiled forward.

    Attributes:
        compiled: the graph.
        inputs: what it takes, of the joint graph's inputs.
        saved: what it returns for the backward, behind the results; inputs among them it does not return.
    """

    compiled: CompiledGraph
    inputs: tuple[fx.Node, ...]
    saved: tuple[fx.Node, ...]


def forward_of(
    joint: JointGraph,
    part: Part,
    passed: Sequence[fx.Node],
    hidden: Sequence[fx.Node],
    forward: CalledGraph,
    name: str,
    called: bool,
    checked: bool,
    delivers: bool = False,
) -> Run:
    """What gives results of a graph to autograd: `(ctx, *passed)`, and a tuple of what it does not see if there is any.

    Args:
        joint: what was traced.
        part: the results.
        passed, hidden: the inputs that autograd knows, and those that it does not.
        forward: computes all results.
        name: for the profiler and tracebacks.
        called: what the graph gave comes first in the tuple; else this one calls it.
        checked: see `make_training`.
        delivers: it takes what `announce` gives, behind all others.
    """
    source = Source()
    variable = {node: f"a{i}" for i, node in enumerate((*passed, *hidden))}
    parameters = ["ctx", *(variable[node] for node in passed)]
    if rest := [*(["s"] if called else []), *(variable[node] for node in hidden)]:
        parameters.append("rest")
        source.lines.append(f"{', '.join(rest)}, = rest")
    if delivers:
        parameters.append("token")
        source.lines.append("ctx.device = token.device")
    keep_links(source, links_of(part.joint, passed, part.saved), variable)
    if not called:
        call = call_graph(source, forward.compiled, [variable[n] for n in forward.inputs], f"{name}_forward")
        source.lines += untracked(source, call)
    names = slot_names("s", joint)
    slots = [names[i] for i in part.slots]
    returned = _write_under_grad(part.joint, source, variable, slots)
    if not called:
        source.lines += slot_versions(joint, source, slots)  # before autograd notes the versions of what it saves
    _save(joint, part, source, variable, forward.saved, returned)
    if checked:
        source.lines += note_saved_layout(source, variable, part.saved)
    source.lines.append("ctx.set_materialize_grads(False)")
    _mark_constant(part.joint, source, returned)
    _return(part.joint, source, returned)
    return source.function("forward", ", ".join(parameters), f"<torchjit {name} forward>")  # type: ignore[no-any-return]


def _write_under_grad(
    joint: JointGraph, source: Source, variable: dict[fx.Node, str], slots: Sequence[str]
) -> list[str]:
    """Lines that write the inputs whose history changes.

    Args:
        slots: text for each of `joint.slots`.

    Returns:
        The same, with these inputs in the places of their values.
    """
    returned, dirty = list(slots), []
    for index, slot in joint.mutated_under_grad.items():
        target = variable[joint.inputs[index]]
        # `mark_dirty` counts the write
        source.lines += untracked(source, [f"{target}.copy_({slots[slot]})"])
        returned[slot] = target
        dirty.append(target)
        if (more := writes(joint, index) - 1) > 0:
            source.lines.append(f"{source.bind(torch._C._increment_version)}([{', '.join([target] * more)}])")
    if dirty:
        source.lines.append(f"ctx.mark_dirty({', '.join(dirty)})")
    return returned


def _mark_constant(joint: JointGraph, source: Source, returned: Sequence[str]) -> None:
    """A line about the results that are tensors without a gradient, if there are any."""
    tensors = [
        place
        for place, slot in enumerate(joint.slots)
        if isinstance(slot, fx.Node) and isinstance(slot.meta["val"], torch.Tensor)
    ]
    constant = [returned[place] for place in tensors if place not in joint.differentiable]
    if constant:
        source.lines.append(f"ctx.mark_non_differentiable({', '.join(constant)})")


def _return(joint: JointGraph, source: Source, returned: Sequence[str]) -> None:
    """Lines that keep what tangents must be like, where that varies, and give the results to autograd."""
    layouts = [
        _layout_source(source, returned[i], joint.plan.slots[i], tangent.meta["val"])
        for i, tangent in zip(joint.differentiable, joint.tangents, strict=True)
        if not is_static(joint.plan.slots[i])
    ]
    if layouts:
        source.lines.append(f"ctx.layouts = ({', '.join(layouts)},)")
    joined = ", ".join(returned)
    source.lines.append(f"return {joined}" if len(returned) == 1 else f"return ({joined})")


def _save(
    joint: JointGraph,
    part: Part,
    source: Source,
    variable: dict[fx.Node, str],
    saved: Sequence[fx.Node],
    returned: Sequence[str],
) -> None:
    """Lines that keep what the backward reads: the very object that is returned, or one that comes behind the results."""
    computed = (node for node in saved if node.op != "placeholder")
    texts = {**variable, **{node: f"s[{len(joint.slots) + k}]" for k, node in enumerate(computed)}}
    for i, slot in enumerate(joint.slots):
        if isinstance(slot, fx.Node) and slot in texts and slot not in variable:
            own = i in part.slots
            text = returned[part.slots.index(i)] if own else f"s[{i}]"
            # As autograd is to remember it: with a version counter of its own where the program's is one.
            text = f"{text}.data" if i in joint.plan.apart else text
            # Two nodes that hold a result of each other would never be freed.
            apart = not own and isinstance(slot.meta["val"], torch.Tensor)
            texts[slot] = f"{text}.detach()" if apart else text
    tensors = [texts[node] for node in part.saved if isinstance(node.meta["val"], torch.Tensor)]
    numbers = [texts[node] for node in part.saved if not isinstance(node.meta["val"], torch.Tensor)]
    if tensors:
        source.lines.append(f"ctx.save_for_backward({', '.join(tensors)})")
        source.lines += note_hooked(source, tensors)
    if numbers:
        source.lines.append(f"ctx.numbers = ({', '.join(numbers)},)")


def _layout_source(source: Source, returned: str, traced: torch.Tensor, tangent: torch.Tensor) -> str:
    """Text for the sizes and strides that a result's tangent must have: its own, but where it has gaps or overlaps."""
    if [str(n) for n in traced.stride()] == [str(n) for n in tangent.stride()]:
        return f"({returned}.shape, {returned}.stride())"
    return f"({returned}.shape, {source.bind(_dense_strides)}({returned}))"


def _dense_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Those of `tangent_like`, without the memory."""
    return torch.empty_like(tensor, memory_format=torch.preserve_format, device="meta").stride()
