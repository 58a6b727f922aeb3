"""What runs at each call: a generated straight-line wrapper around the compiled graphs.

The wrapper is written as Python text for one graph, so that a call does only what that graph needs: no loops over
descriptions, no tests of what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import fx

from torchjit_aot.aliasing import Constant, FromInput, FromSlot, OutputPlan, Ref
from torchjit_aot.backwards import Backwards
from torchjit_aot.compiler_protocol import CompiledGraph, writes_last
from torchjit_aot.flatten import rebuild_source
from torchjit_aot.freed import with_freed_history
from torchjit_aot.gradient_hooks import call_hooks_for_gradients_only
from torchjit_aot.inputs import GraphInput
from torchjit_aot.joint import JointGraph
from torchjit_aot.own_nodes import Part
from torchjit_aot.refusals import DOUBLE_BACKWARD
from torchjit_aot.separate_backwards import needed_by_groups, saved_tensors
from torchjit_aot.shared_inputs import real_base
from torchjit_core.reasons import UserError
from torchjit_core.writing import WRITES_FROM

__all__ = ["Source", "make_inference", "make_training", "make_training_in_parts"]

_EXCLUDED = (
    torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
)
"""Compiled graphs run without autocast (the casts are in the graph) and without view and version tracking."""


_GRADS_IN_A_LIST = hasattr(torch.autograd.Function, "boxed_grads_call")
"""Can a backward take its gradients in a list, so that it can free them (torch 2.15)?"""


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


def _wire_inputs(
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


def _make_bases(joint: JointGraph, source: Source) -> None:
    """Lines that make, from the first of the inputs that share memory, the tensor that spans them."""
    for number, base in enumerate(joint.bases):
        made = f"{source.bind(real_base)}(a{base.members[0]}, {source.bind(base, 'base')})"
        source.lines.append(f"b{number} = {made}")


def _input_name(joint: JointGraph, index: int, source: Source, state: Sequence[torch.Tensor]) -> str:
    return _wire_inputs(joint, [joint.inputs[index]], source, state)[0]


def _replays_and_return(
    joint: JointGraph, source: Source, state: Sequence[torch.Tensor], slots: Sequence[str], *, grad_mode: bool
) -> None:
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
            source.lines.append(f"with {source.bind(torch.set_grad_enabled)}({step.grad_mode}):")
            source.lines.append(f"    r{i} = {call}{item}")
    result = rebuild_source(joint.shape, [text(ref) for ref in plan.outputs], source.bind)
    source.lines.append(f"return {result}")


def _in_range(source: Source, call: str, name: str, result: str = "s") -> list[str]:
    """Lines for the call of a compiled graph, as a range of the profiler while there is one. Nothing else is paid for it."""
    label = source.bind(f"## Call CompiledFxGraph {name} ##", "label")
    return [
        f"if {source.bind(torch._C._autograd._profiler_enabled)}():",
        f"    with {source.bind(torch.profiler.record_function)}({label}):",
        f"        {result} = {call}",
        "else:",
        f"    {result} = {call}",
    ]


def _versions(joint: JointGraph, source: Source, state: Sequence[torch.Tensor], *, early: bool) -> None:
    moving = [
        i
        for i in sorted(joint.versions_move)
        if early == (i in joint.versions_early and i not in joint.mutated)
        and i not in joint.mutated_under_grad
        and not joint.sources[i].real.is_inference()
    ]
    if moving:
        names = ", ".join(name for i in moving for name in [_input_name(joint, i, source, state)] * _writes(joint, i))
        source.bound.setdefault(WRITES_FROM, len(source.lines) + 2)  # the first line is the signature
        source.lines.append(f"{source.bind(torch._C._increment_version)}([{names}])")


def _writes(joint: JointGraph, index: int) -> int:
    """How often a call that writes to this input moves its version; what changes its sizes does so by itself."""
    return joint.versions.get(index, 1) - sum(i == index for i, _, _ in joint.reshaped)


def _slot_versions(joint: JointGraph, source: Source, slots: Sequence[str]) -> list[str]:
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


def _is_direct(joint: JointGraph, inputs: Sequence[fx.Node], state: Sequence[torch.Tensor]) -> bool:
    plan: OutputPlan = joint.plan
    whole = joint.shape if isinstance(joint.shape, tuple) else (None, None, ())
    return (
        list(inputs) == joint.inputs
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
    if not must_disable and not guarded and _is_direct(joint, inputs, state):
        return compiled
    _make_bases(joint, source)
    call = _in_range(
        source, f"{source.bind(compiled, 'compiled')}({', '.join(_wire_inputs(joint, inputs, source, state))})", name
    )
    contexts = []
    if must_disable:
        contexts.append(f"{source.bind(torch.no_grad)}()")
    if guarded:
        contexts.append(f"{source.bind(torch._C._ExcludeDispatchKeyGuard)}({source.bind(_EXCLUDED)})")
    if contexts:
        source.lines += [f"with {', '.join(contexts)}:", *(f"    {line}" for line in call)]
    else:
        source.lines += call
    _versions(joint, source, state, early=False)
    _versions(joint, source, state, early=True)
    slots = _slot_names("s", joint)
    source.lines += _slot_versions(joint, source, slots)
    _replays_and_return(joint, source, state, slots, grad_mode=grad_mode)
    run = source.function("run", _parameters(joint, state), f"<torchjit {name}>")
    if writes_last(compiled):
        run.writes_last = True
    return run  # type: ignore[no-any-return]


def _is_made_by_writes(slot: Any) -> bool:
    """Is this result made without any tensor? Such operators fill memory in place, which counts as a write; eager's do not count it."""
    if not isinstance(slot, fx.Node) or not isinstance(slot.target, torch._ops.OpOverload):
        return False
    return not any("Tensor" in str(argument.type) for argument in slot.target._schema.arguments)


def _slot_names(prefix: str, joint: JointGraph) -> list[str]:
    return [f"{prefix}[{i}]" if isinstance(s, fx.Node) else repr(s) for i, s in enumerate(joint.slots)]


def _parameters(joint: JointGraph, state: Sequence[torch.Tensor]) -> str:
    return ", ".join(f"a{i}" for i in range(_count(joint, state)))


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
        _forward(joint, passed, hidden, inputs, saved, forward, name, checked),
        _backward(joint, passed, bool(hidden), saved, backwards, name, checked),
    )
    source = Source()
    _make_bases(joint, source)
    _versions(joint, source, state, early=True)
    moved = WRITES_FROM in source.bound
    names = _wire_inputs(joint, passed, source, state)
    cut = _without_gradient(joint)
    wired = ", ".join(f"{name}.detach()" if node in cut else name for node, name in zip(passed, names, strict=True))
    if hidden:
        wired += f", ({', '.join(_wire_inputs(joint, hidden, source, state))},)"
    call = f"s = {source.bind(function.apply, 'apply')}({wired})"
    if torch.is_grad_enabled():
        source.lines.append(call)
    else:  # the graph begins in a no_grad block and leaves it: what requires grad was made after that
        source.lines += [f"with {source.bind(torch.enable_grad)}():", f"    {call}"]
    _versions(joint, source, state, early=False)
    names = _slot_names("s", joint)
    if len(names) == 1:
        names = ["s"] if isinstance(joint.slots[0], fx.Node) else names
    _replays_and_return(joint, source, state, names, grad_mode=torch.is_grad_enabled())
    run = source.function("run", _parameters(joint, state), f"<torchjit {name}>")
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
    _make_bases(joint, source)
    _versions(joint, source, state, early=True)
    moved = WRITES_FROM in source.bound
    guard = f"{source.bind(torch._C._ExcludeDispatchKeyGuard)}({source.bind(_EXCLUDED)})"
    call = f"{source.bind(forward, 'compiled')}({', '.join(_wire_inputs(joint, inputs, source, state))})"
    source.lines.append(f"with {source.bind(torch.no_grad)}(), {guard}:")
    source.lines += [f"    {line}" for line in _in_range(source, call, f"{name}_forward")]
    names = _slot_names("s", joint)
    source.lines += _slot_versions(joint, source, names)
    calls = []
    for n, (part, backwards) in enumerate(parts):
        written = part.joint.mutated_under_grad
        passed = [n for i, n in enumerate(joint.inputs) if part.joint.grads[i] is not None or i in written]
        others = [node for node in part.saved if node.op == "placeholder" and node not in passed]
        function = _function(
            _forward_of_part(joint, part, passed, others, saved, name, checked),
            _backward(part.joint, passed, True, part.saved, backwards, name, checked),
        )
        wired = _wire_inputs(joint, passed, source, state)
        rest = [
            f"{text}.detach()" if isinstance(node.meta["val"], torch.Tensor) else text
            for node, text in zip(others, _wire_inputs(joint, others, source, state), strict=True)
        ]
        calls.append(
            f"n{n} = {source.bind(function.apply, 'apply')}({', '.join([*wired, ''])}({', '.join(['s', *rest])},))"
        )
        for place, slot in enumerate(part.slots):
            names[slot] = f"n{n}[{place}]" if len(part.slots) > 1 else f"n{n}"
    if torch.is_grad_enabled():
        source.lines += calls
    else:
        source.lines += [f"with {source.bind(torch.enable_grad)}():", *(f"    {line}" for line in calls)]
    _versions(joint, source, state, early=False)
    _replays_and_return(joint, source, state, names, grad_mode=torch.is_grad_enabled())
    run = source.function("run", _parameters(joint, state), f"<torchjit {name}>")
    if writes_last(forward) and not moved:
        run.writes_last = True
    return run  # type: ignore[no-any-return]


def _forward_of_part(
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
    guard = f"{source.bind(torch._C._ExcludeDispatchKeyGuard)}({source.bind(_EXCLUDED)})"
    _write_under_grad(part.joint, source, variable, slots, returned, guard)
    places = _places_of_saved(joint, saved, len(joint.slots))
    for i, slot in enumerate(joint.slots):
        if isinstance(slot, fx.Node) and slot in places:
            if i in part.slots:
                places[slot] = _apart(joint, i, returned[part.slots.index(i)])
            else:
                places[slot] += ".detach()"  # two nodes that hold a result of each other would never be freed
    _save_as(source, {node: places[node] if node in places else variable[node] for node in part.saved})
    if checked:
        source.lines += _note_held(source, variable, part.saved)
    source.lines.append("ctx.set_materialize_grads(False)")
    _return(part.joint, source, returned)
    parameters = ["ctx", *(variable[node] for node in passed), "rest"]
    return source.function("forward", ", ".join(parameters), f"<torchjit {name} forward>")  # type: ignore[no-any-return]


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


def _forward(
    joint: JointGraph,
    passed: Sequence[fx.Node],
    hidden: Sequence[fx.Node],
    inputs: Sequence[fx.Node],
    saved: Sequence[fx.Node],
    forward: CompiledGraph,
    name: str,
    checked: bool,
) -> Callable[..., Any]:
    source = Source()
    variable = {node: f"a{i}" for i, node in enumerate((*passed, *hidden))}
    parameters = ["ctx", *(variable[node] for node in passed)]
    if hidden:
        parameters.append("hidden")
        source.lines.append(f"{', '.join(variable[node] for node in hidden)}, = hidden")
    guard = f"{source.bind(torch._C._ExcludeDispatchKeyGuard)}({source.bind(_EXCLUDED)})"
    call = f"{source.bind(forward, 'compiled')}({', '.join(variable[n] for n in inputs)})"
    source.lines += [f"with {guard}:", *(f"    {line}" for line in _in_range(source, call, f"{name}_forward"))]
    slots = _slot_names("s", joint)
    returned = list(slots)
    _write_under_grad(joint, source, variable, slots, returned, guard)
    source.lines += _slot_versions(joint, source, slots)  # before autograd notes the versions of what it saves
    _save(joint, source, variable, saved, dirty_count=len(joint.slots))
    if checked:
        source.lines += _note_held(source, variable, saved)
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
        if (more := _writes(joint, index) - 1) > 0:
            source.lines.append(f"{source.bind(torch._C._increment_version)}([{', '.join([target] * more)}])")
    if dirty:
        source.lines.append(f"ctx.mark_dirty({', '.join(dirty)})")


def _return(joint: JointGraph, source: Source, returned: Sequence[str]) -> None:
    """Lines that keep what tangents must be like, where that varies, and give the results to autograd."""
    layouts = [
        _layout_source(source, returned[i], joint.plan.slots[i], tangent.meta["val"])
        for i, tangent in zip(joint.differentiable, joint.tangents, strict=True)
        if not _is_static(joint.plan.slots[i])
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
        if joint.slots[slot] in places:
            places[joint.slots[slot]] = variable[joint.inputs[index]]
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
    if numbers:
        source.lines.append(f"ctx.numbers = ({', '.join(numbers)},)")


def _held(saved: Sequence[fx.Node]) -> list[tuple[int, fx.Node]]:
    """The caller's own tensors among the saved ones, with their positions: he may give them other memory (`x.data = y`)."""
    tensors = [node for node in saved if isinstance(node.meta["val"], torch.Tensor)]
    return [(k, node) for k, node in enumerate(tensors) if node.op == "placeholder"]


def _formats(source: Source, tensors: str) -> str:
    """Text for the strides and the bytes of a sequence of tensors. Sizes and dtypes hardly change without either."""
    strides, sizes = source.bind(torch._C.TensorBase.stride), source.bind(_BYTES)
    return f"([*map({strides}, {tensors})], [*map({sizes}, {tensors})])"


def _note_held(source: Source, variable: dict[fx.Node, str], saved: Sequence[fx.Node]) -> list[str]:
    """Lines that keep the layouts of the caller's saved tensors, where these vary from call to call."""
    held = [node for _, node in _held(saved)]
    if all(_is_static(node.meta["val"]) for node in held):
        return []
    return [f"h = ({', '.join(variable[node] for node in held)},)", f"ctx.held = {_formats(source, 'h')}"]


_BYTES: Any = vars(torch._C.TensorBase)["nbytes"].__get__


def _test_held(source: Source, saved: Sequence[fx.Node]) -> list[str]:
    """Lines that make the variable `odd` true where the caller's tensors, among the saved ones, have got memory of another layout.

    Compiled code would read it as the old one, or beyond its end. Eager PyTorch reads the tensor that there is.
    """
    held = _held(saved)
    if not held:
        return []
    positions, nodes = [k for k, _ in held], [node for _, node in held]
    lines = [
        f"h = t[:{len(held)}]" if positions[-1] < len(held) else f"h = ({', '.join(f't[{k}]' for k in positions)},)"
    ]
    if all(_is_static(node.meta["val"]) for node in nodes):
        values = [node.meta["val"] for node in nodes]
        quick = ([v.stride() for v in values], [v.nbytes for v in values])
        traced = tuple((v.shape, v.stride(), v.dtype) for v in values)
        test = f"odd = odd or {source.bind(_is_laid_out_otherwise)}(h, {source.bind(traced, 'traced')})"
        return [*lines, f"if {_formats(source, 'h')} != {source.bind(quick, 'quick')}:", f"    {test}"]
    return [*lines, f"odd = odd or {_formats(source, 'h')} != ctx.held"]


def _is_laid_out_otherwise(
    tensors: Sequence[torch.Tensor], traced: Sequence[tuple[torch.Size, tuple[int, ...], torch.dtype]]
) -> bool:
    """Strides of what has one place, or none, do not count."""
    for tensor, (shape, strides, dtype) in zip(tensors, traced, strict=True):
        if tensor.shape != shape or tensor.dtype != dtype:
            return True
        places = zip(shape, tensor.stride(), strides, strict=True)
        if tensor.numel() and any(a != b for n, a, b in places if n > 1):
            return True
    return False


def _layout_source(source: Source, returned: str, traced: torch.Tensor, tangent: torch.Tensor) -> str:
    """Text for the sizes and strides that a result's tangent must have: its own, but where it has gaps or overlaps."""
    if [str(n) for n in traced.stride()] == [str(n) for n in tangent.stride()]:
        return f"({returned}.shape, {returned}.stride())"
    return f"({returned}.shape, {source.bind(_dense_strides)}({returned}))"


def _dense_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Those of `tangent_like`, without the memory."""
    return torch.empty_like(tensor, memory_format=torch.preserve_format, device="meta").stride()


def _is_static(value: torch.Tensor) -> bool:
    return all(type(n) is int for n in (*value.shape, *value.stride()))


def _backward(
    joint: JointGraph,
    passed: Sequence[fx.Node],
    hidden: bool,
    saved: Sequence[fx.Node],
    backwards: Backwards,
    name: str,
    checked: bool,
) -> Callable[..., Any]:
    source = Source()
    gradients = [f"g{i}" for i in range(len(joint.slots))]
    if _GRADS_IN_A_LIST:
        source.lines += [f"{', '.join(gradients)}, = grads", "grads.clear()"]
    grad_of = {
        node: f"d[{i}]"
        for i, (node, grad) in enumerate(zip(joint.inputs, joint.grads, strict=True))
        if grad is not None
    }
    has_tensors = any(isinstance(n.meta["val"], torch.Tensor) for n in saved)
    several = len(joint.differentiable) > 1
    if several:
        given = ", ".join(f"g{i} is None" for i in joint.differentiable)
        source.lines.append(f"missing = ({given})")
    # Autograd walks here from a neighbour in a later graph, too, to which no gradient has come.
    results = [grad_of.get(node, "None") for node in passed] + ["None"] * hidden
    nothing = "False not in missing" if several else f"g{joint.differentiable[0]} is None"
    only = f"{source.bind(call_hooks_for_gradients_only)}(ctx)"
    source.lines += [f"if {nothing}:", f"    {only}", f"    return {', '.join(['None'] * len(results))}"]
    if has_tensors and len(joint.groups) > 1:
        groups, needed = source.bind(joint.groups, "groups"), source.bind(needed_by_groups(joint, saved), "needed")
        source.lines.append(f"t = {source.bind(saved_tensors)}(ctx, missing, {groups}, {needed})")
    elif has_tensors:
        source.lines += ["t = ctx.saved_tensors", "ctx.maybe_clear_saved_tensors()"]  # unless the graph is retained
    lazy = source.bind(backwards.whole, "backward")
    if several:
        source.lines += [
            f"lazy = {lazy}",
            "some = True in missing",
            "if some:",
            f"    lazy, zeros = {source.bind(backwards.of_some, 'of_some')}(missing)",
        ]
        lazy = "lazy"
    source.lines.append("odd = False")
    symbolic = 0
    for k, (i, tangent) in enumerate(zip(joint.differentiable, joint.tangents, strict=True)):
        layout = None
        if not _is_static(joint.plan.slots[i]):
            layout, symbolic = f"ctx.layouts[{symbolic}]", symbolic + 1
        _fix_tangent(source, f"g{i}", tangent.meta["val"], layout, wanted=f"zeros[{k}]" if several else None)
    tests = _test_held(source, saved) if checked else []
    source.lines += tests
    args, tensors, numbers = [], 0, 0
    for node in saved:
        if isinstance(node.meta["val"], torch.Tensor):
            args.append(f"t[{tensors}]")
            tensors += 1
        else:
            args.append(f"ctx.numbers[{numbers}]")
            numbers += 1
    args = ["*t"] if tensors and not numbers else args
    args += [f"g{i}" for i in joint.differentiable]
    guard = f"{source.bind(torch._C._ExcludeDispatchKeyGuard)}({source.bind(_EXCLUDED)})"
    ranged = _in_range(source, "compiled(inputs)", f"{name}_backward", "d")
    dead = [*(["t"] if has_tensors else []), *(["h"] if tests else []), *gradients]
    source.lines += [
        f"compiled = {lazy}.stepwise() if odd else {lazy}.boxed or {lazy}.compile()",
        f"inputs = [{', '.join(args)}]",
        *(["if some:", "    inputs = [x for x in inputs if x is not None]"] if several else []),
        f"del {', '.join(dead)}",
        f"if {source.bind(torch.is_grad_enabled)}():",
        f"    with {source.bind(torch.no_grad)}(), {guard}:",
        *(f"        {line}" for line in ranged),
        f"    d = {source.bind(_refuse_double_backward)}(d)",
        "else:",
        f"    with {guard}:",
        *(f"        {line}" for line in ranged),
    ]
    if several:
        reach = source.bind(joint.behind, "reach")
        source.lines += ["if some:", f"    {only}", f"    d = {source.bind(_without_zeros)}(d, missing, {reach})"]
    source.lines.append(f"return {', '.join(results)}" if len(results) > 1 else f"return {results[0]}")
    parameters = ["grads"] if _GRADS_IN_A_LIST else gradients
    return source.function("backward", ", ".join(["ctx", *parameters]), f"<torchjit {name} backward>")  # type: ignore[no-any-return]


def _without_zeros(
    gradients: Sequence[Any], missing: tuple[bool, ...], reach: tuple[tuple[int, ...], ...]
) -> tuple[Any, ...]:
    """None, as eager PyTorch has it, for inputs that only unused results lead to."""
    return tuple(
        None if behind and all(missing[k] for k in behind) else gradient
        for gradient, behind in zip(gradients, reach, strict=True)
    )


def _fix_tangent(source: Source, gradient: str, like: torch.Tensor, layout: str | None, *, wanted: str | None) -> None:
    """Other strides than the traced ones become those, what is not plain memory becomes that, None becomes zeros if need be.

    Args:
        source: the backward's text.
        gradient: the tangent's variable. The variable `odd` becomes true if it holds a tensor subclass.
        like: the tangent as it was traced.
        layout: text of a tuple (sizes, strides) if they are not known before the call.
        wanted: text of whether the backward reads zeros in place of None; None if there is always a gradient.
    """
    options = f"dtype={source.bind(like.dtype)}, device={source.bind(like.device)}"
    shape, strides = ("shape", "strides") if layout else (tuple(like.shape), tuple(like.stride()))
    strided = f"{source.bind(torch.empty_strided)}({shape}, {strides}, {options})"
    bits = " or ".join(f"{gradient}.{test}()" for test in _LAZY_BITS if like.is_complex() or test != "is_conj")
    keys = f"{source.bind(torch._C._dispatch_keys)}({gradient}).raw_repr()"
    plain = f"type({gradient}) is not {source.bind(torch.Tensor)} or {keys} & {_TELLING} != {_DENSE}"
    lines = [
        *([f"shape, strides = {layout}"] if layout else []),
        f"if {plain} or {bits}:",
        f"    {gradient}, is_odd = {source.bind(_as_plain)}({gradient}, {strides})",
        "    odd = odd or is_odd",
        f"if {gradient}.stride() != {strides} and not odd:",
        f"    {gradient} = {strided}.copy_({gradient})",
    ]
    if wanted is not None:
        lines = [f"if {gradient} is not None:", *(f"    {line}" for line in lines)]
        lines += [f"elif {wanted}:", *([f"    shape, strides = {layout}"] if layout else [])]
        lines.append(f"    {gradient} = {strided}.zero_()")
    source.lines += lines


_LAZY_BITS = ("is_neg", "_is_zerotensor", "is_conj")
"""Tensors for which one of these holds are not what lies in their memory."""


_DENSE = torch._C.DispatchKeySet(torch._C.DispatchKey.Dense).raw_repr()
_TELLING = _DENSE | torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchBatched).raw_repr()
"""Of these keys, sparse, quantized and nested tensors lack the first, and so do those of a backward with `is_grads_batched`;
those under `torch.func.vmap` have the second."""


def _as_plain(tangent: torch.Tensor, strides: tuple[int, ...]) -> tuple[torch.Tensor, bool]:
    """The tangent as compiled code can read it, and whether it is a subclass or batched, which it cannot read at all."""
    if isinstance(tangent, torch.nn.Parameter) and type(tangent) is torch.nn.Parameter:
        tangent = tangent.detach()
    if type(tangent) is not torch.Tensor:
        return tangent if tangent.stride() == strides else tangent.contiguous(), True
    if tangent.layout != torch.strided:
        tangent = tangent.to_dense()
    if torch._C._dispatch_keys(tangent).raw_repr() & _TELLING != _DENSE:
        return tangent, True
    if tangent._is_zerotensor():
        tangent = torch.zeros(tangent.shape, dtype=tangent.dtype, device=tangent.device)
    return tangent.resolve_conj().resolve_neg(), False


def _refuse_double_backward(gradients: Sequence[Any]) -> tuple[Any, ...]:
    """Gradients whose differentiation raises, for `create_graph=True`."""
    message = str(UserError(DOUBLE_BACKWARD))
    tensors = [g for g in gradients if g is not None]
    wrapped = torch._C._functions.DelayedError(message, len(tensors))(*(g.detach().requires_grad_() for g in tensors))
    remaining = iter(wrapped if isinstance(wrapped, tuple) else (wrapped,))
    return tuple(None if g is None else next(remaining) for g in gradients)
