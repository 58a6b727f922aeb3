"""Text of the wrappers that run at each call: what goes in, what comes out, whose version counters move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import fx

from torchjit_aot.aliasing import Constant, FromInput, FromSlot, Ref
from torchjit_aot.autograd_nodes.freed_history import with_freed_history
from torchjit_aot.flatten import rebuild_source
from torchjit_aot.joint import JointGraph
from torchjit_aot.synthetic_bases import real_base
from torchjit_core.events import current_compile_id
from torchjit_core.writing import WRITES_FROM

__all__ = [
    "EXCLUDED",
    "Source",
    "in_grad_mode",
    "in_range",
    "make_bases",
    "move_versions",
    "parameters_of",
    "range_name",
    "replays_and_return",
    "slot_names",
    "slot_versions",
    "wire_inputs",
    "writes",
]

EXCLUDED = (
    torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
)
"""Compiled graphs run without autocast (the casts are in the graph) and without view and version tracking."""


@final
class Source:
    """Python text under construction, with the objects that it names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.bound: dict[str, Any] = {}

    def bind(self, obj: Any, hint: str = "k") -> str:
        """A global name for `obj`."""
        for name, held in self.bound.items():
            if held is obj:
                return name
        name = f"{hint}{len(self.bound)}"
        self.bound[name] = obj
        return name

    def function(self, name: str, parameters: str, filename: str) -> Any:
        """Compile the lines as the body of a function."""
        text = f"def {name}({parameters}):\n" + "".join(f"    {line}\n" for line in self.lines)
        exec(compile(text, filename, "exec"), self.bound)
        made = self.bound[name]
        made.__torchjit_source__ = text
        return made


# -------------------------------------------------------------------------------------------------- the call itself


def wire_inputs(
    joint: JointGraph, inputs: Sequence[fx.Node], source: Source, state: Sequence[torch.Tensor]
) -> list[str]:
    """The text for each of the compiled graph's inputs: a parameter of the wrapper or a bound tensor."""
    count = _count(joint, state)
    names = {node: f"a{i}" for i, node in enumerate(joint.inputs[:count])}
    for node, tensor in zip(joint.inputs[count : count + len(state)], state, strict=True):
        names[node] = source.bind(tensor, "p")
    for number, i in enumerate(joint.base_inputs):
        names[joint.inputs[i]] = f"b{number}"
    for node, tensor in joint.constants:
        names[node] = source.bind(tensor, "c")
    return [names[node] for node in inputs]


def _count(joint: JointGraph, state: Sequence[torch.Tensor]) -> int:
    """How many values the caller passes."""
    return len(joint.inputs) - len(state) - len(joint.bases)


def make_bases(joint: JointGraph, source: Source) -> None:
    """Lines that make, from the first of the inputs that share memory, the tensor that spans them."""
    for number, base in enumerate(joint.bases):
        made = f"{source.bind(real_base)}(a{base.members[0]}, {source.bind(base, 'base')})"
        source.lines.append(f"b{number} = {made}")


def _input_name(joint: JointGraph, index: int, source: Source, state: Sequence[torch.Tensor]) -> str:
    return wire_inputs(joint, [joint.inputs[index]], source, state)[0]


def replays_and_return(
    joint: JointGraph, source: Source, state: Sequence[torch.Tensor], slots: Sequence[str], *, grad_mode: bool
) -> None:
    """Lines that make the views that are results, outside of the graph, and return everything in the program's structure."""
    plan = joint.plan

    def text(ref: Ref) -> str:
        if isinstance(ref, FromInput):
            return _input_name(joint, ref.index, source, state)
        if isinstance(ref, FromSlot):
            return slots[ref.index]
        if isinstance(ref, Constant):
            value = ref.value
            return repr(value) if value is None or type(value) in (bool, int, str) else source.bind(value)
        return f"r{ref.index}"

    def argument(value: Any) -> str:
        if isinstance(value, FromSlot):
            return slots[value.index]
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(argument(v) for v in value)}]"
        return repr(value) if value is None or type(value) in (bool, int) else source.bind(value)

    slots = list(slots)
    for slot, leaves in joint.freed.items():
        given = ", ".join([slots[slot], *(_input_name(joint, i, source, state) for i in leaves)])
        source.lines.append(f"h{slot} = {source.bind(with_freed_history)}({given})")
        slots[slot] = f"h{slot}"
    for index, func, others in joint.reshaped:
        given = ", ".join([_input_name(joint, index, source, state), *(argument(a) for a in others)])
        source.lines.append(f"{source.bind(func, 'reshape')}({given})")
    for i, step in enumerate(plan.steps):
        args = [text(step.source), *(argument(a) for a in step.args)]
        args += [f"{key}={argument(value)}" for key, value in step.kwargs.items()]
        call = f"{source.bind(step.func, 'view')}({', '.join(args)})"
        item = "" if step.index is None else f"[{step.index}]"
        if step.own_version is not None:
            source.lines.append(f"r{i} = {text(step.source)}.data")
            source.lines += _set_versions(source, {f"r{i}": step.own_version})
        elif step.grad_mode == grad_mode:
            source.lines.append(f"r{i} = {call}{item}")
        else:
            source.lines += in_grad_mode(source, bool(step.grad_mode), [f"r{i} = {call}{item}"])
    result = rebuild_source(joint.shape, [text(ref) for ref in plan.outputs], source.bind)
    source.lines.append(f"return {result}")


def in_grad_mode(source: Source, enabled: bool, lines: Sequence[str]) -> list[str]:
    """The lines with gradients on or off. It is changed inside of the `try` that brings it back, by one call of a C function:
    a signal's handler that raises finds no moment between the two."""
    set_grad = source.bind(torch._C._set_grad_enabled, "set_grad")
    return [
        f"grad = {source.bind(torch.is_grad_enabled, 'is_grad')}()",
        "try:",
        f"    {set_grad}({enabled})",
        *(f"    {line}" for line in lines),
        "finally:",
        f"    {set_grad}(grad)",
    ]


def range_name(name: str) -> str:
    """What ranges of calls of a graph are called, as upstream's, with the compile id."""
    key = current_compile_id()
    return f"## Call CompiledFxGraph {name}{f' {key}' if key else ''} ##"


def in_range(source: Source, call: str, name: str, result: str = "s") -> list[str]:
    """Lines for the call of a compiled graph, as a range of the profiler while there is one. Nothing else is paid for it."""
    label = source.bind(range_name(name), "label")
    return [
        f"if {source.bind(torch._C._autograd._profiler_enabled)}():",
        f"    with {source.bind(torch.profiler.record_function)}({label}):",
        f"        {result} = {call}",
        "else:",
        f"    {result} = {call}",
    ]


def move_versions(joint: JointGraph, source: Source, state: Sequence[torch.Tensor], *, early: bool) -> None:
    """Lines that count the writes to inputs: `early` those that eager PyTorch counts before it saves anything."""
    moving = [
        i
        for i in sorted(joint.versions_move)
        if early == (i in joint.versions_early and i not in joint.mutated)
        and i not in joint.mutated_under_grad
        and not joint.sources[i].real.is_inference()
    ]
    if moving:
        names = ", ".join(name for i in moving for name in [_input_name(joint, i, source, state)] * writes(joint, i))
        source.bound.setdefault(WRITES_FROM, len(source.lines) + 2)  # the first line is the signature
        source.lines.append(f"{source.bind(torch._C._increment_version)}([{names}])")


def writes(joint: JointGraph, index: int) -> int:
    """How often a call that writes to this input moves its version; what changes its sizes does so by itself."""
    return joint.versions.get(index, 1) - sum(i == index for i, _, _ in joint.reshaped)


def slot_versions(joint: JointGraph, source: Source, slots: Sequence[str]) -> list[str]:
    """The line that counts the program's writes to results, which are written once."""
    under_grad = joint.mutated_under_grad.values()
    return _set_versions(source, {slots[i]: n for i, n in joint.slot_versions.items() if i not in under_grad})


def _set_versions(source: Source, versions: dict[str, int]) -> list[str]:
    moved = {name: n for name, n in versions.items() if n}
    if not moved:
        return []
    given = f"({', '.join(moved)},), {tuple(moved.values())}"
    return [f"{source.bind(_count_writes)}({given})"]


def _count_writes(tensors: tuple[torch.Tensor, ...], versions: tuple[int, ...]) -> None:
    for tensor, version in zip(tensors, versions, strict=True):
        if not tensor.is_inference():
            torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def slot_names(prefix: str, joint: JointGraph) -> list[str]:
    """The text for each result of the compiled graph, which are items of `prefix`; constants are none."""
    return [f"{prefix}[{i}]" if isinstance(s, fx.Node) else repr(s) for i, s in enumerate(joint.slots)]


def parameters_of(joint: JointGraph, state: Sequence[torch.Tensor]) -> str:
    """The wrapper's own parameters."""
    return ", ".join(f"a{i}" for i in range(_count(joint, state)))
