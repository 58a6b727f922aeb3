"""Whether a recorded call may write what it writes: memory of inputs, of selections, of elements that lie on each other."""

from __future__ import annotations

from typing import final

import attrs

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.eager_rules.memory_checks import overlaps_itself
from torchjit_fx.flatten import Arguments
from torchjit_fx.followed_classes import dispatches
from torchjit_fx.inference import Place
from torchjit_fx.input_memory import InputMemory
from torchjit_fx.leaves import InputLeaf, Target, TensorLeaf
from torchjit_fx.modes import TorchModes
from torchjit_fx.outcomes import Outcome
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.records import TensorRecord
from torchjit_fx.selections import Selections
from torchjit_fx.symbols.numbers import SymbolicNumbers

__all__ = ["WriteChecks"]

_VIEWS_IN_PLACE = frozenset({"t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_"})
"""Methods that change sizes and strides and leave the memory alone: they may be done to the caller's tensor."""


def _is_resized(leaf: TensorLeaf, after: TensorRecord) -> bool:
    """Does a call give a tensor other sizes, which only an empty one on memory of its own can take silently?"""
    return after.sizes != leaf.record.sizes and not (leaf.is_alone() and 0 in leaf.record.sizes)


@final
@attrs.define(eq=False)
class WriteChecks:
    """The writes of one region.

    Args:
        numbers: sizes that vary.
        modes: ambient state.
        inputs: which inputs share memory.
        selections: the rows that it took.
        place: where its graph runs.
    """

    _numbers: SymbolicNumbers
    _modes: TorchModes
    _inputs: InputMemory
    _selections: Selections
    _place: Place
    # Those with symbols; what was decided is guarded.
    _overlapping: dict[TensorRecord, bool] = attrs.field(factory=dict, init=False)

    def check(self, outcome: Outcome, found: Arguments, target: Target, capture: CaptureContext) -> None:
        """A call of `target` writes what its outcome says.

        Raises:
            GraphBreak: eager PyTorch refuses it, or the graph cannot do it to the caller's tensors.
        """
        changed = dict(outcome.changed)
        if outcome.written and found.wrapped:
            raise GraphBreak(breaks.UNSUPPORTED_TENSOR, "a write, with a tensor that consists of others")
        for i in outcome.written:
            leaf = found.leaves[i]
            self._selections.check_write(leaf, self._inputs, capture)
            if self._overlaps_itself(leaf.record):
                raise GraphBreak(breaks.META_FAILED, "a write to elements that share memory", capture.location())
            if target not in _VIEWS_IN_PLACE and i in changed and _is_resized(leaf, changed[i]):
                raise GraphBreak(breaks.METADATA_MUTATION, "a tensor given as out= is resized", capture.location())
            after = changed.get(i, leaf.record)
            for other in leaf.storage.leaves if leaf.storage is not None else [leaf]:
                if isinstance(other, InputLeaf):
                    self._check_input(other, after, capture)
                    reshaped = (after.sizes, after.strides) != (leaf.record.sizes, leaf.record.strides)
                    if other is leaf and reshaped and (after.requires_grad or target not in _VIEWS_IN_PLACE):
                        raise GraphBreak(breaks.METADATA_MUTATION, str(other.path), capture.location())

    def _check_input(self, leaf: InputLeaf, after: TensorRecord, capture: CaptureContext) -> None:
        """Memory of an input is written, through it or another, which is described by `after` then."""
        if leaf.entry.inference:
            self._place.must_be_inside(f"a write to {leaf.path}", capture)
        recorded = after.requires_grad and self._modes.grad
        self._inputs.check_write(leaf, recorded, capture)
        if leaf.entry.requires_grad and self._modes.grad:
            capture.guard(leaf.leafness(capture.location()))
        if recorded and dispatches(leaf.cls):
            raise GraphBreak(breaks.VIEW_INPUT_WRITTEN, str(leaf.path), capture.location())

    def _overlaps_itself(self, record: TensorRecord) -> bool:
        if not record.symbolic:
            return overlaps_itself(record.sizes, record.strides)
        found = self._overlapping.get(record)
        if found is None:
            number = self._numbers.sym_int
            found = overlaps_itself([*map(number, record.sizes)], [*map(number, record.strides)])
            self._overlapping[record] = found
        return found
