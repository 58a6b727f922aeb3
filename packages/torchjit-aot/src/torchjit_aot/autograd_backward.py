"""The backward of the autograd function around a compiled graph: tangents as the compiled backward can read them, and its call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import fx

from torchjit_aot.autograd_nodes.components import component_reads
from torchjit_aot.autograd_nodes.delivery import begin, hand_on, one_by_one
from torchjit_aot.autograd_nodes.lazy_backward import Backwards
from torchjit_aot.autograd_nodes.leaf_hooks import call_hooks_for_gradients_only
from torchjit_aot.autograd_nodes.nodes import Part
from torchjit_aot.autograd_nodes.pieces import Groups
from torchjit_aot.autograd_nodes.saved_tensors import saved_tensors
from torchjit_aot.autograd_nodes.tangents import DENSE, TELLING, as_plain, without_zeros
from torchjit_aot.compiler_protocol import Run
from torchjit_aot.double_backward import linked, links_of, refuse_double_backward
from torchjit_aot.saved_layouts import check_saved_layout, unhooked
from torchjit_aot.wrapper import Source, in_grad_mode, in_range, indented, untracked
from torchjit_core.reasons import TorchjitError
from torchjit_torch.layouts import is_static

__all__ = ["backward_of"]

_GRADS_IN_A_LIST = hasattr(torch.autograd.Function, "boxed_grads_call")
"""Can a backward take its gradients in a list, so that it can free them (torch 2.15)?"""


def backward_of(
    part: Part,
    passed: Sequence[fx.Node],
    hidden: bool,
    backwards: Backwards,
    name: str,
    checked: bool,
    groups: Groups | None = None,
) -> Run:
    """The backward: the tangents of all results in, the gradients of what was passed to the forward out.

    Args:
        part: the results, and what the forward has kept.
        passed: the inputs that autograd knows.
        hidden: is there more, which comes to the forward in a tuple?
        backwards: of all results, and of some.
        name: for the profiler and tracebacks.
        checked: see `make_training`.
        groups: see there; only the first one's gradients are this function's.
    """
    return _BackwardText(part, passed, hidden, backwards, name, checked, groups).function()


@final
class _BackwardText:
    """The text of a backward, section by section; see `backward_of`."""

    def __init__(
        self,
        part: Part,
        passed: Sequence[fx.Node],
        hidden: bool,
        backwards: Backwards,
        name: str,
        checked: bool,
        groups: Groups | None,
    ) -> None:
        joint = self._joint = part.joint
        self._groups = groups
        self._passed, self._saved, self._backwards, self._name = passed, part.saved, backwards, name
        self._checked = checked
        self._source = Source()
        self._gradients = [f"g{i}" for i in range(len(joint.slots))]
        self._several = len(joint.differentiable) > 1
        self._has_tensors = any(isinstance(n.meta["val"], torch.Tensor) for n in part.saved)
        self._only = f"{self._source.bind(call_hooks_for_gradients_only)}(ctx)"
        own = range(len(joint.inputs)) if groups is None else groups[0]
        grad_of = {joint.inputs[i]: f"d[{k}]" for k, i in enumerate(own) if joint.grads[i] is not None}
        self._reach = tuple(joint.dependence.tangents[i] for i in own)
        self._results = [grad_of.get(node, "None") for node in passed] + ["None"] * hidden
        self._results += ["token"] if groups is not None else []

    def function(self) -> Run:
        """Write and compile it."""
        source, results = self._source, self._results
        self._take_gradients()
        self._take_saved()
        backward = self._choose_backward()
        self._fix_tangents()
        tests = check_saved_layout(source, self._saved) if self._checked else []
        source.lines += tests
        self._call(backward, [*(["t"] if self._has_tensors else []), *(["h"] if tests else []), *self._gradients])
        if self._several:
            reach = source.bind(self._reach, "reach")
            source.lines += [
                "if some:",
                f"    {self._only}",
                f"    d = {source.bind(without_zeros)}(d, missing, {reach})",
            ]
        if self._groups is not None:
            missing = "missing if some else None" if self._several else "None"
            source.lines.append(f"token = {source.bind(hand_on)}(ctx.device, rest, {missing})")
        source.lines.append(f"return {', '.join(results)}" if len(results) > 1 else f"return {results[0]}")
        parameters = ["grads"] if _GRADS_IN_A_LIST else self._gradients
        return source.function("backward", ", ".join(["ctx", *parameters]), f"<torchjit {self._name} backward>")  # type: ignore[no-any-return]

    def _take_gradients(self) -> None:
        """Autograd walks here from a neighbour in a later graph, too, to which no gradient has come."""
        lines, differentiable = self._source.lines, self._joint.differentiable
        if _GRADS_IN_A_LIST:
            lines += [f"{', '.join(self._gradients)}, = grads", "grads.clear()"]
        nothing = f"g{differentiable[0]} is None"
        if self._several:
            lines.append(f"missing = ({', '.join(f'g{i} is None' for i in differentiable)})")
            nothing = "False not in missing"
        lines += [f"if {nothing}:", f"    {self._only}", f"    return {', '.join(['None'] * len(self._results))}"]

    def _take_saved(self) -> None:
        source, components = self._source, self._joint.dependence.components
        if not self._has_tensors:
            return
        if len(components) > 1:
            bound = source.bind(components, "groups"), source.bind(component_reads(self._joint, self._saved), "needed")
            source.lines.append(f"t = {source.bind(saved_tensors)}(ctx, missing, {', '.join(bound)})")
        else:
            source.lines += ["t = ctx.saved_tensors", "ctx.maybe_clear_saved_tensors()"]  # unless the graph is retained
        source.lines += unhooked(source)

    def _choose_backward(self) -> str:
        """Text of the `LazyBackward` to call: that of all results, or of those to which gradients have come."""
        source = self._source
        lazy = source.bind(self._backwards.whole, "backward")
        if not self._several:
            return lazy
        source.lines += [
            f"lazy = {lazy}",
            "some = True in missing",
            "if some:",
            f"    lazy = {source.bind(self._backwards.of_some, 'of_some')}(missing)",
            f"    if isinstance(lazy, {source.bind(TorchjitError)}):",
            "        raise lazy",
            "    lazy, zeros = lazy",
        ]
        return "lazy"

    def _fix_tangents(self) -> None:
        joint = self._joint
        self._source.lines.append("odd = False")
        symbolic = 0
        for k, (i, tangent) in enumerate(zip(joint.differentiable, joint.tangents, strict=True)):
            layout = None
            if not is_static(joint.plan.slots[i]):
                layout, symbolic = f"ctx.layouts[{symbolic}]", symbolic + 1
            wanted = f"zeros[{k}]" if self._several else None
            _fix_tangent(self._source, f"g{i}", tangent.meta["val"], layout, wanted=wanted)

    def _arguments(self) -> list[str]:
        args, tensors, numbers = [], 0, 0
        for node in self._saved:
            if isinstance(node.meta["val"], torch.Tensor):
                args.append(f"t[{tensors}]")
                tensors += 1
            else:
                args.append(f"ctx.numbers[{numbers}]")
                numbers += 1
        args = ["*t"] if tensors and not numbers else args
        return [*args, *(f"g{i}" for i in self._joint.differentiable)]

    def _call(self, backward: str, dead: Sequence[str]) -> None:
        """Lines that call it; `dead` is what nobody reads from then on."""
        source = self._source
        called, result, later = "compiled(inputs)", "d", []
        if self._groups is not None:
            called, result = f"{source.bind(begin)}(compiled, inputs, {source.bind(self._groups, 'groups')})", "d, rest"
            given = f"[{source.bind(refuse_double_backward)}(ds, leads) for ds in rest]"
            later = [f"    rest = {source.bind(one_by_one)}({given})"]
        call = in_range(source, called, f"{self._name}_backward", result)
        guarded = untracked(source, call)
        at_once = untracked(source, [*call, "rest = [*rest]"]) if later else guarded
        links = links_of(self._joint, self._passed, self._saved)
        given = f"{'t' if self._has_tensors else '()'}, ({', '.join(self._gradients)},)"
        given += f", {links.parameters}, {links.saved}, {bool(links.kept)}"
        source.lines += [
            # with `create_graph=True`
            f"leads = {source.bind(linked)}(ctx, {given}) if {source.bind(torch.is_grad_enabled)}() else None",
            f"compiled = {backward}.stepwise() if odd else {backward}.boxed",
            "if compiled is None:",
            f"    compiled = {backward}.compiled_or_error()",
            f"    if isinstance(compiled, {source.bind(TorchjitError)}):",
            "        raise compiled",  # here: the compiler's own frames tell the program nothing
            f"inputs = [{', '.join(self._arguments())}]",
            *(["if some:", "    inputs = [x for x in inputs if x is not None]"] if self._several else []),
            f"del {', '.join(dead)}",
            "if leads is not None:",
            *indented(in_grad_mode(source, False, at_once)),
            f"    d = {source.bind(refuse_double_backward)}(d, leads)",
            *later,
            "else:",
            *indented(guarded),
        ]


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
    keys = f"{source.bind(torch._C._dispatch_keys)}({gradient}).raw_repr()"
    plain = f"type({gradient}) is not {source.bind(torch.Tensor)} or {keys} & {TELLING} != {DENSE}"
    lines = [
        *([f"shape, strides = {layout}"] if layout else []),
        f"if {plain}:",
        f"    {gradient}, is_odd = {source.bind(as_plain)}({gradient}, {strides})",
        "    odd = odd or is_odd",
        f"if {gradient}.stride() != {strides} and not odd:",
        f"    {gradient} = {strided}.copy_({gradient})",
    ]
    if wanted is not None:
        lines = [f"if {gradient} is not None:", *indented(lines)]
        lines += [f"elif {wanted}:", *([f"    shape, strides = {layout}"] if layout else [])]
        lines.append(f"    {gradient} = {strided}.zero_()")
    source.lines += lines
