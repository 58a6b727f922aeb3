"""Operations that raise for what is in their tensors, in a `try` of the program.

In a graph they raise when it runs, past the program's `except`. Then the region's own code runs in its place, and shows where the
error goes. For that the graph must raise wherever the operation does, whatever a compiler makes of it: a step of its own tests the
indices, or sees to it that the operation runs as a whole. Where that is not known, or the code may not run in the graph's place,
the operations run for real, between two graphs.
"""

from __future__ import annotations

import operator
from typing import final

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.assertions import FINISHED, IN_RANGE
from torchjit_fx.calls.call import Call
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.eager_rules.functions import function_rule
from torchjit_fx.eager_rules.runtime_asserts import RuntimeAssert, items
from torchjit_fx.flatten import map_raw
from torchjit_fx.leaves import Function, Raw, RawArgs, RawKwargs, TensorLeaf
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.tracing import Recorder
from torchjit_torch.operators import is_custom_operator

__all__ = ["CaughtErrors", "may_raise", "raises_anything"]


def may_raise(fn: Function, args: RawArgs, kwargs: RawKwargs) -> bool:
    """May this function, or method given by its name, raise for what is in its tensors? GPUs find an index out of range too late for that."""
    if isinstance(fn, str):
        fn = getattr(torch.Tensor, fn, None)
    if raises_anything(fn):
        return True
    rule = function_rule(fn)
    if rule.asserts is items:
        return len(args) > 1 and _is_read(args[1]) and not _on_a_device(args)
    return rule.raises and not (rule.late and _on_a_device((*args, *kwargs.values())))


def raises_anything(fn: Function) -> bool:
    """Nobody knows what an operator of somebody else raises, and it may have done something before: it is called once."""
    return is_custom_operator(fn) and "c10d" not in fn.__module__  # collectives raise nothing that is caught


def _is_read(index: Raw) -> bool:
    items = index if isinstance(index, tuple | list) else (index,)
    return any(isinstance(i, TensorLeaf) and i.record.dtype is not torch.bool for i in items)


def _on_a_device(args: RawArgs) -> bool:
    first = next((a for a in args if isinstance(a, TensorLeaf)), None)
    return first is not None and first.record.device.type != "cpu"


@final
class CaughtErrors:
    """The operations of one region whose errors the program may catch.

    Attributes:
        allowed: they may be captured.
        marks: of those that were.
        in_blocks: there are others in blocks that seldom catch errors: `with`, and a `try` of a library.
        tested: the indices of the call that is being done are tested.
    """

    def __init__(self, domain: CallDomain) -> None:
        self.allowed = domain.settings.errors_in_tries
        self.marks: list[tuple[int, GraphBreak]] = []
        self.in_blocks = False
        self.tested = False

    def call(self, call: Call) -> Raw:
        """Do such a call.

        Raises:
            GraphBreak: it runs for real.
        """
        recorder, capture = call.domain.recorder, call.capture
        why = call.broken(breaks.DATA_ERROR, call.name)
        rule = function_rule(call.function)
        asserts = None if rule.asserts is None else rule.asserts(call.args, call.kwargs)
        if asserts == []:
            return call.plainly()
        stays = self.allowed and capture.runs_again() and recorder.scope is None and not recorder.checkpointed
        if not stays or (asserts is None and not rule.whole):
            raise why
        mark, before = capture.mark(), len(recorder.steps)
        for test in asserts or ():
            _record(test, call.domain, capture)
        self.tested = asserts is not None
        try:
            result = call.plainly()
        except GraphBreak:
            del recorder.steps[before:]
            raise
        finally:
            self.tested = False

        def finish(leaf: Raw) -> Raw:
            if isinstance(leaf, TensorLeaf):
                recorder.add_test(FINISHED, (leaf,), capture)
            return leaf

        if asserts is None:
            map_raw(result, finish)
        self.marks.append((mark, why))
        return result

    def may_assert(self, recorder: Recorder, capture: CaptureContext) -> bool:
        """May an assertion be tested where its error has to come in its place?"""
        if not self.allowed or recorder.checkpointed or not capture.runs_again():
            return False
        where = capture.location()
        self.marks.append((capture.mark(), GraphBreak(breaks.DATA_DEPENDENT, "the truth of a tensor", where)))
        return True

    def settle(self, repeatable: bool, capture: CaptureContext) -> None:
        """The region ends. If its code may not run in place of its graph, the capture breaks at the first of the calls."""
        if self.marks and not repeatable:
            capture.break_at_mark(*self.marks[0])


def _record(test: RuntimeAssert, domain: CallDomain, capture: CaptureContext) -> None:
    """Add it to the graph."""
    op, tensor, *rest = test
    if op is IN_RANGE and isinstance(rest[0], tuple):
        base, dim = rest[0]
        rest[0] = _count(base, domain, capture) if dim is None else domain.dimension(base, dim, capture)
    domain.recorder.add_test(op, (tensor, *rest), capture)


def _count(base: TensorLeaf, domain: CallDomain, capture: CaptureContext) -> Raw:
    count: Raw = 1
    for dim in range(len(base.record.sizes)):
        count = domain.call_plainly(operator.mul, (count, domain.dimension(base, dim, capture)), {}, capture)
    return count
