"""`x[t]` with a number `t` in a tensor: PyTorch reads the number and gives a view; a graph takes a copy of the row.

The two cannot be told apart as long as the row stays inside of the region and neither it nor what it came from is written. Where that
turns out not to hold, the capture breaks before the indexing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.input_memory import InputMemory
from torchjit_fx.leaves import InputLeaf, Raw, TensorLeaf
from torchjit_fx.protocols import CaptureContext

__all__ = ["Selections"]


@final
class Selections:
    """The rows that one region took."""

    def __init__(self) -> None:
        self._taken: list[tuple[TensorLeaf, TensorLeaf, int]] = []

    def add(self, base: TensorLeaf, row: TensorLeaf, mark: int) -> None:
        """`row` stands for a view of `base`; `mark`: where it was taken."""
        self._taken.append((base, row, mark))

    def check_write(self, written: TensorLeaf, inputs: InputMemory, capture: CaptureContext) -> None:
        """`written` is about to be written."""
        for base, row, mark in self._taken:
            touched = written.memory() in (base.memory(), row.memory())
            if not touched and isinstance(base, InputLeaf) and isinstance(written, InputLeaf):
                touched = written in inputs.sharing(base)
            if touched:
                self._break(mark, "which is written later", capture)

    def refuse_escaping(self, asked: Sequence[Raw], capture: CaptureContext) -> None:
        """The region ends; `asked` leave it."""
        if not self._taken:
            return
        memory = [leaf.storage for leaf in asked if isinstance(leaf, TensorLeaf) and leaf.storage is not None]
        for _, row, mark in self._taken:
            if row in asked or row.storage in memory:
                self._break(mark, "which leaves the region", capture)

    def refuse_place(self, leaf: TensorLeaf, capture: CaptureContext) -> None:
        """Somebody asks where in its storage a tensor begins."""
        for _, row, mark in self._taken:
            if row is leaf or row.storage is leaf.storage is not None:
                self._break(mark, "whose place is asked", capture)

    def _break(self, mark: int, why: str, capture: CaptureContext) -> None:
        stop = GraphBreak(breaks.DATA_DEPENDENT, f"the number in an index, for a view {why}", capture.location())
        capture.break_at_mark(mark, stop)
