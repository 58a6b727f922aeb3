"""Capturing `torch.cond`, `while_loop` and `scan`: what the intrinsics of their polyfills do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.calls.intrinsics import intrinsic_rule
from torchjit_fx.control_flow import Body, Branches, ControlFlow, Loop, Program, Scan
from torchjit_fx.domain_protocol import CallDomain, Feature
from torchjit_fx.intrinsics import enter_body, finish_control_flow, leave_body
from torchjit_fx.leaves import Raw, SymLeaf, TensorLeaf
from torchjit_fx.modes import AmbientState
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.records import TensorRecord
from torchjit_fx.scopes import Scope, scope_graph

__all__ = ["BodyCapture", "captured_bodies"]


@final
class BodyCapture:
    """A branch or the body of a loop while it is captured.

    Args:
        flat: the tensors that it is called with.
        rows: those from this one on are seen row by row.
    """

    def __init__(self, domain: CallDomain, flat: Sequence[Any], rows: int, mark: int) -> None:
        if not all(isinstance(leaf, TensorLeaf) for leaf in flat):
            raise GraphBreak(breaks.UNSUPPORTED_TENSOR, "an operand of structured control flow")
        self.domain = domain
        self.scope = Scope(domain, mark)
        self.scope.begin()
        self.ambient = AmbientState.of(domain.modes)
        self.given = [
            self.scope.parameter(TensorLeaf(self._seen(leaf.record, i >= rows), None)) for i, leaf in enumerate(flat)
        ]
        self.rows = rows
        self.outputs: list[Any] = []

    def _seen(self, r: TensorRecord, row: bool) -> TensorRecord:
        if row and not r.sizes:
            raise GraphBreak(breaks.CONTROL_FLOW, "a scan over a tensor without dimensions")
        start = 1 if row else 0
        flags = (r.requires_grad, False if r.requires_grad else r.is_leaf, r.conj, r.neg, r.inference)
        records = self.domain.fakes.records
        return records.get(r.dtype, r.device, r.sizes[start:], r.strides[start:], 0, flags)

    def leave(self, outputs: list[Raw]) -> None:
        """It has returned these."""
        self.scope.close()
        self.outputs = outputs
        if not all(isinstance(leaf, TensorLeaf) for leaf in outputs):
            raise GraphBreak(breaks.CONTROL_FLOW, "a branch or body gives something that is no tensor")
        if self.scope.writes_outside or any(step.written and _is_given(step, self.given) for step in self.scope.steps):
            raise GraphBreak(breaks.CONTROL_FLOW, "a branch or body writes to a tensor that it did not make")
        if any(step.effect and step.mode is None for step in self.scope.steps):
            raise GraphBreak(breaks.CONTROL_FLOW, "a branch or body draws random numbers")

    def lifted(self) -> list[TensorLeaf | SymLeaf]:
        """What it uses from outside."""
        return scope_graph(self.scope, self.given, self.outputs)[1]

    def body(self, lifted: Sequence[Any]) -> Body:
        """Its graph, over what it is given and then `lifted`."""
        graph, more = scope_graph(self.scope, [*self.given, *lifted], self.outputs)
        if more:
            raise RuntimeError("the graph of a body has inputs that were not found before")
        return Body(graph, self.ambient)


def _is_given(step: Any, given: Sequence[TensorLeaf]) -> bool:
    return any(leaf in given for storage in step.written for leaf in storage.leaves)


class _Bodies(Feature, list[BodyCapture]):
    """Those of calls that were not recorded yet, in order."""


@intrinsic_rule(enter_body)
def _enter(domain: CallDomain, flat: list[Raw], rows: int, capture: CaptureContext) -> list[Raw]:
    made = BodyCapture(domain, flat, rows, capture.mark())
    domain.of(_Bodies).append(made)
    capture.forbid_effects(True)
    return list(made.given)


@intrinsic_rule(leave_body)
def _leave(domain: CallDomain, outputs: list[Raw], capture: CaptureContext) -> None:
    capture.forbid_effects(False)
    open_bodies = [body for body in domain.of(_Bodies) if not body.scope.closed]
    open_bodies[-1].leave(outputs)


def captured_bodies(domain: CallDomain, count: int) -> tuple[list[Body], list[TensorLeaf], list[SymLeaf]]:
    """The bodies captured last, over the tensors and numbers from outside that any of them uses."""
    bodies = domain.of(_Bodies)[-count:]
    del domain.of(_Bodies)[-count:]
    tensors, numbers = _outside(bodies)
    return [body.body([*tensors, *numbers]) for body in bodies], tensors, numbers


@intrinsic_rule(finish_control_flow)
def _finish(domain: CallDomain, kind: str, first: list[Any], operands: list[Raw], capture: CaptureContext) -> Raw:
    """Record the call.

    Args:
        kind: `cond`, `while_loop` or `scan`.
        first: of `cond`, the condition.
        operands: what the bodies were given, all of them alike.
    """
    carried = domain.of(_Bodies)[-1].rows  # of a scan
    made, tensors, numbers = captured_bodies(domain, 1 if kind == "scan" else 2)
    program: Program
    if kind == "cond":
        program = Branches(*made)
    elif kind == "while_loop":
        condition, step = made
        program = Loop(condition, step, len(operands))
    else:
        program = Scan(made[0], carried, len(operands) - carried)
    given = [*first, *operands, *tensors]
    return list(domain.recorder.record(ControlFlow(kind, program, len(given)), (*given, *numbers), capture))


def _outside(bodies: Sequence[BodyCapture]) -> tuple[list[TensorLeaf], list[SymLeaf]]:
    """The tensors and numbers from outside that any of the bodies uses."""
    tensors: dict[int, TensorLeaf] = {}
    numbers: dict[int, SymLeaf] = {}
    for body in bodies:
        for leaf in body.lifted():
            if isinstance(leaf, TensorLeaf):
                tensors[id(leaf)] = leaf
            elif isinstance(leaf.value, torch.SymInt):
                numbers[id(leaf.expr) if leaf.step is None else id(leaf)] = leaf
            else:
                raise GraphBreak(breaks.CONTROL_FLOW, "a branch or body uses a number that varies and is no int")
    return list(tensors.values()), list(numbers.values())
