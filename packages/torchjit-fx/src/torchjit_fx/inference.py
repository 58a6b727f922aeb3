"""Inference mode that a region enters or leaves: in which mode its graph runs.

In inference mode, if all of the region's calls are. Otherwise outside, with gradients off where the program is in inference mode: the
values are the same, and what the program made there becomes an inference tensor when it leaves the graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import final

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.leaves import Function, Raw, Step, SymLeaf
from torchjit_fx.modes import GRAD, INFERENCE, TorchModes
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.records import DETACHED

__all__ = ["Place"]


@final
class Place:
    """Where the graph of one region runs.

    Attributes:
        inside: a step runs in inference mode only, as a write to an inference tensor does.
        outside: a step does not belong to inference mode.
    """

    def __init__(self, modes: TorchModes) -> None:
        self.modes = modes
        self.inside = False
        self.outside = False

    def must_be_inside(self, what: str, capture: CaptureContext | None) -> None:
        """Raises GraphBreak where that is too late."""
        if self.outside:
            location = None if capture is None else capture.location()
            raise GraphBreak(breaks.MODE_OBJECT, f"{what} in inference mode, after calls outside of it", location)
        self.inside = True

    def must_be_outside(self, capture: CaptureContext) -> None:
        """Raises GraphBreak where that is too late."""
        if self.inside:
            raise GraphBreak(breaks.MODE_OBJECT, "calls outside of inference mode, after it", capture.location())
        self.outside = True

    @property
    def moves(self) -> bool:
        """Is it another mode than the region starts in?"""
        return self.modes.inference_changed and self.outside is bool(self.modes.initial(INFERENCE))

    def kept(self, steps: Sequence[Step]) -> Sequence[Step]:
        """The steps without those that say nothing there: in inference mode no grad mode counts."""
        if self.outside or not self.modes.inference_changed:
            return steps
        return [step for step in steps if step.mode is None or step.mode[0] != GRAD]

    @contextlib.contextmanager
    def made_real(self) -> Iterator[None]:
        """The process is in that mode while the block runs; outside, with gradients off, as the graph finds it."""
        if not self.moves:
            yield
            return
        with torch.inference_mode(not self.outside), torch.no_grad():
            yield

    def running(self, target: Function, asked: Sequence[Raw]) -> Function:
        """`target`, which gives the values of `asked`, made to run in that mode and to give inference tensors."""
        places = {
            i: leaf.record.inference == DETACHED
            for i, leaf in enumerate(asked)
            if type(leaf) is not SymLeaf and leaf.record.inference
        }
        if not self.modes.inference_changed:
            return target
        moved = self._moved(target) if self.moves else target
        return _as_inference_tensors(moved, places) if self.outside and places else moved

    def _moved(self, target: Function) -> Function:
        def run(*inputs: Raw) -> Raw:
            with self.made_real():
                return target(*inputs)

        return run


def _as_inference_tensors(target: Function, places: Mapping[int, bool]) -> Function:
    """`target`, whose results at `places` become inference tensors on the same memory, those detached where that is true."""

    def run(*inputs: Raw) -> Raw:
        found = list(target(*inputs))
        for i, detached in places.items():
            made = _as_inference(found[i])
            found[i] = made.detach() if detached else made
        return found

    return run


def _as_inference(value: torch.Tensor) -> torch.Tensor:
    if value.is_inference():
        return value
    conj, neg = value.is_conj(), value.is_neg()
    plain = value.detach()
    plain = torch._neg_view(plain) if neg else plain
    plain = plain.conj() if conj else plain
    with torch.inference_mode():
        made = torch.empty(0, dtype=plain.dtype, device=plain.device)
        made.set_(plain.untyped_storage(), plain.storage_offset(), plain.size(), plain.stride())
        made = made.conj() if conj else made
        return torch._neg_view(made) if neg else made
