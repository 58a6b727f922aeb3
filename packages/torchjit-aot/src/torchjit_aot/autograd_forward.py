"""The forward of the autograd function around a compiled graph: it calls the graph, and keeps what the backward needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from torchjit_aot.autograd_nodes.nodes import Part
from torchjit_aot.compiler_protocol import CompiledGraph
from torchjit_aot.double_backward import keep_links, links_of
from torchjit_aot.held_inputs import is_static, note_saved_layout
from torchjit_aot.hooked import note_hooked
from torchjit_aot.joint import JointGraph
from torchjit_aot.wrapper import EXCLUDED, Source, in_range, slot_names, slot_versions, writes

__all__ = ["forward_of", "forward_of_part"]


def forward_of_part(
    joint: JointGraph,
    part: Part,
    passed: Sequence[fx.Node],
    others: Sequence[fx.Node],
    saved: Sequence[fx.Node],
    name: str,
    checked: bool,
) -> Callable[..., Any]:
    """What gives results of the whole graph's forward to autograd.

    Args:
        joint: the whole.
        part: those results.
        passed: the inputs with a gradient, and those that get a history.
        others: further inputs that the backward reads; they come in a tuple with what the forward gave.
        saved: what the whole forward saves.
    """
    source = Source()
    variable = {node: f"a{i}" for i, node in enumerate((*passed, *others))}
    source.lines.append(f"{', '.join(['s', *(variable[node] for node in others)])}, = rest")
    slots = [f"s[{i}]" for i in part.slots]
    returned = list(slots)
    guard = f"{source.bind(torch._C._ExcludeDispatchKeyGuard)}({source.bind(EXCLUDED)})"
    keep_links(source, links_of(part.joint, passed, part.saved), variable)
    _write_under_grad(part.joint, source, variable, slots, returned, guard)
    places = _places_of_saved(joint, saved, len(joint.slots))
    for i, slot in enumerate(joint.slots):
        if isinstance(slot, fx.Node) and slot in places:
            if i in part.slots:
                places[slot] = _apart(joint, i, returned[part.slots.index(i)])
            elif isinstance(slot.meta["val"], torch.Tensor):  # a size may be one as well
                places[slot] += ".detach()"  # two nodes that hold a result of each other would never be freed
    _save_as(source, {node: places[node] if node in places else variable[node] for node in part.saved})
    if checked:
        source.lines += note_saved_layout(source, variable, part.saved)
    source.lines.append("ctx.set_materialize_grads(False)")
    _return(part.joint, source, returned)
    parameters = ["ctx", *(variable[node] for node in passed), "rest"]
    return source.function("forward", ", ".join(parameters), f"<torchjit {name} forward>")  # type: ignore[no-any-return]


def forward_of(
    joint: JointGraph,
    passed: Sequence[fx.Node],
    hidden: Sequence[fx.Node],
    inputs: Sequence[fx.Node],
    saved: Sequence[fx.Node],
    forward: CompiledGraph,
    name: str,
    checked: bool,
) -> Callable[..., Any]:
    """The forward: `(ctx, *passed)`, and `hidden` in a tuple if there are any.

    Args:
        joint: what was traced.
        passed, hidden: the inputs that autograd knows, and those that it does not.
        inputs: which of them the compiled graph takes.
        saved: what it returns for the backward, behind the results.
        forward: the compiled graph.
        name: for the profiler and tracebacks.
        checked: see `make_training`.
    """
    source = Source()
    variable = {node: f"a{i}" for i, node in enumerate((*passed, *hidden))}
    parameters = ["ctx", *(variable[node] for node in passed)]
    if hidden:
        parameters.append("hidden")
        source.lines.append(f"{', '.join(variable[node] for node in hidden)}, = hidden")
    keep_links(source, links_of(joint, passed, saved), variable)
    guard = f"{source.bind(torch._C._ExcludeDispatchKeyGuard)}({source.bind(EXCLUDED)})"
    call = f"{source.bind(forward, 'compiled')}({', '.join(variable[n] for n in inputs)})"
    source.lines += [f"with {guard}:", *(f"    {line}" for line in in_range(source, call, f"{name}_forward"))]
    slots = slot_names("s", joint)
    returned = list(slots)
    _write_under_grad(joint, source, variable, slots, returned, guard)
    source.lines += slot_versions(joint, source, slots)  # before autograd notes the versions of what it saves
    _save(joint, source, variable, saved, dirty_count=len(joint.slots))
    if checked:
        source.lines += note_saved_layout(source, variable, saved)
    source.lines.append("ctx.set_materialize_grads(False)")
    constant = [
        returned[i]
        for i, slot in enumerate(joint.slots)
        if isinstance(slot, fx.Node) and isinstance(slot.meta["val"], torch.Tensor) and i not in joint.differentiable
    ]
    if constant:
        source.lines.append(f"ctx.mark_non_differentiable({', '.join(constant)})")
    _return(joint, source, returned)
    return source.function("forward", ", ".join(parameters), f"<torchjit {name} forward>")  # type: ignore[no-any-return]


def _write_under_grad(
    joint: JointGraph,
    source: Source,
    variable: dict[fx.Node, str],
    slots: Sequence[str],
    returned: list[str],
    guard: str,
) -> None:
    """Lines that write the inputs whose history changes. In `returned` these take the place of their values.

    Args:
        slots: text for each of `joint.slots`.
        guard: text of a context without the tracking of versions.
    """
    dirty = []
    for index, slot in joint.mutated_under_grad.items():
        target = variable[joint.inputs[index]]
        source.lines.append(f"with {guard}: {target}.copy_({slots[slot]})")  # `mark_dirty` counts the write
        returned[slot] = target
        dirty.append(target)
        if (more := writes(joint, index) - 1) > 0:
            source.lines.append(f"{source.bind(torch._C._increment_version)}([{', '.join([target] * more)}])")
    if dirty:
        source.lines.append(f"ctx.mark_dirty({', '.join(dirty)})")


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
    joint: JointGraph, source: Source, variable: dict[fx.Node, str], saved: Sequence[fx.Node], *, dirty_count: int
) -> None:
    places = _places_of_saved(joint, saved, dirty_count)
    for index, slot in joint.mutated_under_grad.items():
        new = joint.slots[slot]
        if isinstance(new, fx.Node) and new in places:
            places[new] = variable[joint.inputs[index]]
    _save_as(source, {node: places[node] if node in places else variable[node] for node in saved})


def _places_of_saved(joint: JointGraph, saved: Sequence[fx.Node], count: int) -> dict[fx.Node, str]:
    """Text for the saved values that are no inputs: the very object that is returned, or one that comes behind the `count` results."""
    computed = [node for node in saved if node.op != "placeholder"]
    places = {node: f"s[{count + k}]" for k, node in enumerate(computed)}
    returned = {
        slot: _apart(joint, i, f"s[{i}]")
        for i, slot in enumerate(joint.slots)
        if isinstance(slot, fx.Node) and slot in places
    }
    return {**places, **returned}


def _apart(joint: JointGraph, slot: int, text: str) -> str:
    """Text for a result as autograd is to remember it: with a version counter of its own where the program's is one."""
    return f"{text}.data" if slot in joint.plan.apart else text


def _save_as(source: Source, texts: dict[fx.Node, str]) -> None:
    tensors = [text for node, text in texts.items() if isinstance(node.meta["val"], torch.Tensor)]
    numbers = [text for node, text in texts.items() if not isinstance(node.meta["val"], torch.Tensor)]
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
