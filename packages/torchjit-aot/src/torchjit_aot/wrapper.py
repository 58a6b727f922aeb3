"""Text of the wrappers that run at each call: what goes in, what comes out, whose version counters move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import torch
from torch import fx

from torchjit_aot.aliasing import Constant, FromInput, FromSlot, Ref, ReplayStep
from torchjit_aot.autograd_nodes.freed_history import with_freed_history
from torchjit_aot.compiler_protocol import CompiledGraph, Run
from torchjit_aot.flatten import rebuild_source
from torchjit_aot.synthetic_bases import real_base
from torchjit_aot.untracked import UNTRACKED
from torchjit_core.events import current_compile_id
from torchjit_core.writing import WRITES_FROM

if TYPE_CHECKING:
    from torchjit_aot.joint import JointGraph

__all__ = [
    "CallText",
    "Source",
    "call_graph",
    "in_grad_mode",
    "in_range",
    "range_name",
    "slot_names",
    "slot_versions",
    "untracked",
    "writes",
]


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


def indented(lines: Sequence[str]) -> list[str]:
    """The lines as the body of a statement."""
    return [f"    {line}" for line in lines]


def in_grad_mode(source: Source, enabled: bool, lines: Sequence[str]) -> list[str]:
    """The lines with gradients on or off. It is changed inside of the `try` that brings it back, by one call of a C function:
    a signal's handler that raises finds no moment between the two."""
    set_grad = source.bind(torch._C._set_grad_enabled, "set_grad")
    return [
        f"grad = {source.bind(torch.is_grad_enabled, 'is_grad')}()",
        "try:",
        f"    {set_grad}({enabled})",
        *indented(lines),
        "finally:",
        f"    {set_grad}(grad)",
    ]


def untracked(source: Source, lines: Sequence[str]) -> list[str]:
    """The lines without autocast (the casts are in the graph) and without the tracking of views and versions."""
    guard = f"{source.bind(torch._C._ExcludeDispatchKeyGuard)}({source.bind(UNTRACKED)})"
    return [f"with {guard}:", *indented(lines)]


def call_graph(source: Source, compiled: CompiledGraph, arguments: Sequence[str], name: str) -> list[str]:
    """Lines for the call of a compiled graph, with its results in `s`."""
    return in_range(source, f"{source.bind(compiled, 'compiled')}({', '.join(arguments)})", name)


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


# -------------------------------------------------------------------------------------------------- the call itself


@final
class CallText:
    """The text of what runs at each call, section by section; see `torchjit_aot.runtime`.

    Args:
        joint: what was traced.
        state: tensors that the module holds itself, the last of `joint.inputs` but for the bases.
    """

    def __init__(self, joint: JointGraph, state: Sequence[torch.Tensor]) -> None:
        self.joint, self.source = joint, Source()
        count = len(joint.inputs) - len(state) - len(joint.bases)
        self._parameters = [f"a{i}" for i in range(count)]
        self._names = dict(zip(joint.inputs[:count], self._parameters, strict=True))
        self._held = {
            **dict(zip(joint.inputs[count : count + len(state)], state, strict=True)),
            **dict(joint.constants),
        }
        for number, (i, base) in enumerate(zip(joint.base_inputs, joint.bases, strict=True)):
            self._names[joint.inputs[i]] = f"b{number}"
            made = f"{self.source.bind(real_base)}(a{base.members[0]}, {self.source.bind(base, 'base')})"
            self.source.lines.append(f"b{number} = {made}")

    def name(self, node: fx.Node) -> str:
        """The text for an input of the graph: a parameter, the memory of several, or a bound tensor."""
        return self._names[node] if node in self._names else self.source.bind(self._held[node], "p")

    def names(self, nodes: Sequence[fx.Node]) -> list[str]:
        """The same for several."""
        return [self.name(node) for node in nodes]

    def move_versions(self, *, early: bool) -> bool:
        """Lines that count the writes to inputs: `early` those that eager PyTorch counts before it saves anything. Are there any?"""
        joint, source = self.joint, self.source
        moving = [
            i
            for i in sorted(joint.versions_move)
            if early == (i in joint.versions_early and i not in joint.mutated)
            and i not in joint.mutated_under_grad
            and not joint.sources[i].real.is_inference()
        ]
        if moving:
            names = ", ".join(name for i in moving for name in [self.name(joint.inputs[i])] * writes(joint, i))
            source.bound.setdefault(WRITES_FROM, len(source.lines) + 2)  # the first line is the signature
            source.lines.append(f"{source.bind(torch._C._increment_version)}([{names}])")
        return bool(moving)

    def function(self, slots: Sequence[str], name: str, *, writes_last: bool) -> Run:
        """Compile the text, with lines that make the views that are results, outside of the graph, and return everything.

        Args:
            slots: texts for the results of the graph.
            name: for tracebacks.
            writes_last: see `GraphCompiler`.
        """
        joint, lines = self.joint, self.source.lines
        slots = list(slots)
        for slot, leaves in joint.freed.items():
            given = ", ".join([slots[slot], *(self.name(joint.inputs[i]) for i in leaves)])
            lines.append(f"h{slot} = {self.source.bind(with_freed_history)}({given})")
            slots[slot] = f"h{slot}"
        for index, func, others in joint.reshaped:
            given = ", ".join([self.name(joint.inputs[index]), *(self._argument(a, slots) for a in others)])
            lines.append(f"{self.source.bind(func, 'reshape')}({given})")
        for i, step in enumerate(joint.plan.steps):
            lines += self._replay(f"r{i}", step, slots)
        result = rebuild_source(joint.shape, [self._output(ref, slots) for ref in joint.plan.outputs], self.source.bind)
        lines.append(f"return {result}")
        run: Any = self.source.function("run", ", ".join(self._parameters), f"<torchjit {name}>")
        if writes_last:
            run.writes_last = True
        return run  # type: ignore[no-any-return]

    def _replay(self, variable: str, step: ReplayStep, slots: Sequence[str]) -> list[str]:
        """Lines that make a view again."""
        start = self._output(step.source, slots)
        if step.own_version is not None:
            return [f"{variable} = {start}.data", *_set_versions(self.source, {variable: step.own_version})]
        args = [start, *(self._argument(a, slots) for a in step.args)]
        args += [f"{key}={self._argument(value, slots)}" for key, value in step.kwargs.items()]
        item = "" if step.index is None else f"[{step.index}]"
        line = f"{variable} = {self.source.bind(step.func, 'view')}({', '.join(args)}){item}"
        same = step.grad_mode == torch.is_grad_enabled()
        return [line] if same else in_grad_mode(self.source, step.grad_mode, [line])

    def _output(self, ref: Ref, slots: Sequence[str]) -> str:
        if isinstance(ref, FromInput):
            return self.name(self.joint.inputs[ref.index])
        if isinstance(ref, FromSlot):
            return slots[ref.index]
        if isinstance(ref, Constant):
            value = ref.value
            return repr(value) if value is None or type(value) in (bool, int, str) else self.source.bind(value)
        return f"r{ref.index}"

    def _argument(self, value: Any, slots: Sequence[str]) -> str:
        if isinstance(value, FromSlot):
            return slots[value.index]
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(self._argument(v, slots) for v in value)}]"
        return repr(value) if value is None or type(value) in (bool, int) else self.source.bind(value)


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
