"""Capturing a call of a custom autograd function: what the intrinsics of its polyfill do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch.utils.checkpoint import _CachingTorchDispatchMode

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.autograd.custom_gradient import Backward, CapturedFunction
from torchjit_fx.autograd.gradients import gradient_record, layout_of, outside_of_autocast
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.calls.intrinsics import intrinsic_rule
from torchjit_fx.domain_protocol import CallDomain, Feature
from torchjit_fx.intrinsics import (
    abandon_backward,
    enter_backward,
    enter_checkpoint,
    enter_forward,
    finish_function,
    leave_backward,
    leave_checkpoint,
    leave_forward,
    refuse,
)
from torchjit_fx.leaves import Function, Raw, SymLeaf, TensorLeaf
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.scopes import Scope, scope_graph

__all__ = ["FunctionCapture"]


@final
class FunctionCapture:
    """One call of a custom autograd function that is being captured."""

    def __init__(self, domain: CallDomain, tensors: Sequence[TensorLeaf], mark: int) -> None:
        self.domain = domain
        self.tensors = list(tensors)
        self.forward = Scope(domain, mark)
        domain.modes.write(("grad",), False)
        self.forward.begin()
        self.outputs: list[TensorLeaf] = []
        self.saved: list[TensorLeaf] = []
        self.constant: list[TensorLeaf] = []
        self.dirty: list[TensorLeaf] = []
        self.backwards: list[tuple[tuple[bool, ...], Scope, list[TensorLeaf | None], list[TensorLeaf | None]]] = []
        self._gradients: list[TensorLeaf | None] = []
        self._defined: tuple[bool, ...] = ()
        self._backward: Scope | None = None

    def leave_forward(
        self, outputs: list[Raw], saved: list[Raw], constant: list[Raw], dirty: list[Raw], capture: CaptureContext
    ) -> None:
        self.forward.close()
        self.outputs, self.saved, self.constant, self.dirty = outputs, saved, constant, dirty
        for leaf in (*outputs, *saved, *constant, *dirty):
            if not isinstance(leaf, TensorLeaf):
                raise GraphBreak(breaks.UNSUPPORTED_TENSOR, "a result of a custom autograd function")
        if not all(_is_in(leaf, self.tensors) for leaf in dirty):
            raise GraphBreak(breaks.CUSTOM_FUNCTION, "mark_dirty() of what is no argument")

    def enter_backward(self, defined: list[bool], capture: CaptureContext) -> list[TensorLeaf | None]:
        scope = self._backward = Scope(self.domain, self.forward.mark, sees=self.forward)
        modes = self.domain.modes
        modes.write(("grad",), False)
        outside_of_autocast(modes)
        scope.begin()
        self._defined = tuple(defined)
        self._gradients = [
            scope.parameter(TensorLeaf(gradient_record(self.domain.fakes.records, output.record), None))
            if there
            else None
            for output, there in zip(self.outputs, defined, strict=True)
        ]
        capture.forbid_effects(True)
        return self._gradients

    def leave_backward(self, found: list[Raw], capture: CaptureContext) -> None:
        scope = self._close_backward(capture)
        if scope.writes_outside:
            raise GraphBreak(breaks.CUSTOM_FUNCTION, "the backward writes to a tensor that it did not make")
        if not all(leaf is None or isinstance(leaf, TensorLeaf) for leaf in found):
            raise GraphBreak(breaks.CUSTOM_FUNCTION, "the backward gives something that is no tensor")
        self.backwards.append((self._defined, scope, self._gradients, found))

    def _close_backward(self, capture: CaptureContext) -> Scope:
        scope = self._backward
        if scope is None:
            raise RuntimeError("no backward was entered")
        capture.forbid_effects(False)
        scope.close()
        return scope

    def abandon_backward(self, capture: CaptureContext) -> None:
        self._close_backward(capture)

    def finish(self, name: str, materialize: bool, once: bool, capture: CaptureContext) -> list[Raw]:
        """Record the call, unless no tensor comes out of it."""
        if not self.outputs:
            return []
        backward_graphs = []
        kept: list[TensorLeaf | SymLeaf] = []
        for defined, scope, gradients, found in self.backwards:
            asked = _unique([leaf for leaf in found if leaf is not None])
            graph, lifted = scope_graph(scope, [g for g in gradients if g is not None], asked)
            kept += lifted
            backward_graphs.append((defined, graph, gradients, lifted, found, asked))
        kept = _unique(kept)
        saved = [leaf for leaf in _unique(self.saved) if _is_in(leaf, kept)]
        rest = [leaf for leaf in kept if not _is_in(leaf, saved)]
        given = _unique(self.tensors)
        forward, others = scope_graph(self.forward, given, [*self.outputs, *saved, *rest])
        backwards: dict[tuple[bool, ...], Backward] = {}
        for defined, graph, gradients, lifted, found, asked in backward_graphs:
            given_back = [("gradient", i) for i, g in enumerate(gradients) if g is not None]
            sources = (*given_back, *[_source(leaf, saved, rest) for leaf in lifted])
            backwards[defined] = Backward(graph, sources, _places(found, asked))
        call = CapturedFunction(
            name=name,
            forward=forward,
            given=tuple(_place(leaf, self.tensors) for leaf in given),
            outputs=len(self.outputs),
            saved=len(saved),
            constant=frozenset(i for i, leaf in enumerate(self.outputs) if _is_in(leaf, self.constant)),
            dirty=tuple(_place(leaf, self.tensors) for leaf in _unique(self.dirty)),
            layouts=tuple(layout_of(leaf.record) or torch.contiguous_format for leaf in self.outputs),
            materialize=materialize,
            once=once,
            backwards=backwards,
        )
        result = self.domain.recorder.record(call, (tuple(others), *self.tensors), capture)
        return list(result)


def _places(found: Sequence[Raw], asked: Sequence[Raw]) -> tuple[int | None, ...]:
    return tuple(None if leaf is None else _place(leaf, asked) for leaf in found)


def _source(leaf: Raw, saved: Sequence[Raw], rest: Sequence[Raw]) -> tuple[str, int]:
    """Where a backward finds what it takes from the forward."""
    return ("saved", _place(leaf, saved)) if _is_in(leaf, saved) else ("kept", _place(leaf, rest))


def _is_in(leaf: Raw, leaves: Sequence[Raw]) -> bool:
    return any(leaf is other for other in leaves)


def _place(leaf: Raw, leaves: Sequence[Raw]) -> int:
    return next(i for i, other in enumerate(leaves) if leaf is other)


def _unique(leaves: Sequence[Raw]) -> list[Raw]:
    return list({id(leaf): leaf for leaf in leaves}.values())


# ---- the intrinsics


@call_rule(refuse)
def _refuse(call: Call) -> Raw:
    what, *collective = call.args
    raise call.broken(breaks.COLLECTIVE if collective else breaks.CUSTOM_FUNCTION, str(what))


class _OpenFunctions(Feature, list[FunctionCapture]):
    """The custom functions that are being captured, innermost last."""


@intrinsic_rule(enter_forward)
def _enter_forward(domain: CallDomain, tensors: list[Raw], capture: CaptureContext) -> None:
    for leaf in tensors:
        if not isinstance(leaf, TensorLeaf):
            raise GraphBreak(breaks.UNSUPPORTED_TENSOR, "an argument of a custom autograd function")
    domain.of(_OpenFunctions).append(FunctionCapture(domain, tensors, capture.mark()))


for _intrinsic, _method in (
    (leave_forward, FunctionCapture.leave_forward), (enter_backward, FunctionCapture.enter_backward),
    (leave_backward, FunctionCapture.leave_backward), (abandon_backward, FunctionCapture.abandon_backward),
):  # fmt: skip
    intrinsic_rule(_intrinsic)(lambda domain, *args, method=_method: method(domain.of(_OpenFunctions)[-1], *args))


@intrinsic_rule(finish_function)
def _finish(domain: CallDomain, name: str, materialize: bool, once: bool, capture: CaptureContext) -> Raw:
    return domain.of(_OpenFunctions).pop().finish(name, materialize, once, capture)


@intrinsic_rule(enter_checkpoint)
def _enter_checkpoint(domain: CallDomain, context_fn: Raw, *args: Raw) -> None:
    *given, _ = args  # the last is the capture
    domain.recorder.enter_checkpoint(None if context_fn is None else _policy_of(context_fn, *given))


def _policy_of(context_fn: Callable[..., Any], *args: Raw) -> Function:
    """What a selective checkpoint keeps: the function that its contexts ask for each operator."""
    try:
        contexts = context_fn(*args)
    except Exception as error:  # the program's own function: eager PyTorch shows what it raises
        raise GraphBreak(breaks.CUSTOM_FUNCTION, f"a checkpoint's context_fn: {type(error).__name__}") from error
    if not isinstance(contexts[0], _CachingTorchDispatchMode):
        raise GraphBreak(breaks.CUSTOM_FUNCTION, "a checkpoint's contexts of the program's own")
    policy: Callable[..., Any] = contexts[0].policy_fn
    return policy


@intrinsic_rule(leave_checkpoint)
def _leave_checkpoint(domain: CallDomain, capture: CaptureContext) -> None:
    domain.recorder.leave_checkpoint()
