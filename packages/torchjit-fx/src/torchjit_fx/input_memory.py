"""Memory that inputs share: which writes to one of them a graph can express."""

from __future__ import annotations

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.leaves import InputLeaf
from torchjit_fx.protocols import CaptureContext

__all__ = ["InputMemory"]


class InputMemory:
    """Which inputs share memory; asked before a write to one of them.

    Args:
        writes_to_shared: a graph may write to an input that shares memory with another one.
    """

    def __init__(self, *, writes_to_shared: bool = False) -> None:
        self._writes_to_shared = writes_to_shared
        self.by_storage: dict[int, list[InputLeaf]] = {}
        self.leaves: list[InputLeaf] = []
        self.arrays: list[InputLeaf] = []  # on the memory of an array of NumPy: which others lie there is not known
        self._counted = 0
        self._any_written = False
        self._switched: dict[int, tuple[InputLeaf, int]] = {}  # by storage, see `note_switch`

    def forget(self) -> None:
        """Let go of the inputs: the capture is over."""
        self.leaves.clear()
        self.arrays.clear()
        self.by_storage.clear()
        self._switched.clear()

    def add(self, leaf: InputLeaf, capture: CaptureContext) -> None:
        """A new input.

        Raises:
            GraphBreak: it lies on memory that the graph has already written through another input.
        """
        self.leaves.append(leaf)
        if self._switched:
            switched = self._switched.get(leaf.real.untyped_storage()._cdata)
            if switched is not None:
                capture.break_at_mark(switched[1], _follows(switched[0], capture))
        if self._any_written and self.arrays:
            raise GraphBreak(breaks.SHARED_STORAGE_WRITTEN, str(leaf.path), capture.location())
        if self._any_written:
            sharing = self.sharing(leaf)
            for other in sharing:
                if other.storage is not None and other.storage.written and not self._may_write(sharing):
                    raise GraphBreak(breaks.SHARED_STORAGE_WRITTEN, f"{other.path}, {leaf.path}", capture.location())

    def add_array(self, leaf: InputLeaf, capture: CaptureContext) -> None:
        """The input that was added last is an array of NumPy.

        Raises:
            GraphBreak: the graph has already written to an input.
        """
        self.arrays.append(leaf)
        if self._any_written:
            raise GraphBreak(breaks.SHARED_STORAGE_WRITTEN, str(leaf.path), capture.location())

    def _count(self) -> None:
        for leaf in self.leaves[self._counted :]:
            self.by_storage.setdefault(leaf.real.untyped_storage()._cdata, []).append(leaf)
        self._counted = len(self.leaves)

    def sharing(self, leaf: InputLeaf) -> list[InputLeaf]:
        """The inputs on the same memory as `leaf`, itself included."""
        self._count()
        return self.by_storage[leaf.real.untyped_storage()._cdata]

    def _may_write(self, sharing: list[InputLeaf]) -> bool:
        """May a graph write to one of these inputs of one memory? Nothing about the others changes but their values."""
        return self._writes_to_shared and all(
            not leaf.entry.requires_grad and not leaf.entry.symbolic and leaf.entry.dtype is sharing[0].entry.dtype
            for leaf in sharing
        )

    def note_switch(self, leaf: InputLeaf, capture: CaptureContext) -> None:
        """Whether this input requires a gradient is changed here. Its views, which may be other inputs, do as it does.

        Raises:
            GraphBreak: an input shares its memory. One that comes later breaks here, too.
        """
        if len(self.sharing(leaf)) > 1:
            raise _follows(leaf, capture)
        self._switched[leaf.real.untyped_storage()._cdata] = leaf, capture.mark()

    def check_write(self, leaf: InputLeaf, with_history: bool, capture: CaptureContext) -> None:
        """Raise GraphBreak where a write to this input cannot be expressed in the graph."""
        if len(self.sharing(leaf)) > 1 and (with_history or not self._may_write(self.sharing(leaf))):
            others = ", ".join(str(other.path) for other in self.sharing(leaf))
            raise GraphBreak(breaks.SHARED_STORAGE_WRITTEN, others, capture.location())
        if self.arrays and (len(self.leaves) > 1 or with_history):
            raise GraphBreak(breaks.SHARED_STORAGE_WRITTEN, f"{leaf.path}, {self.arrays[0].path}", capture.location())
        if with_history and leaf.real._is_view():
            raise GraphBreak(breaks.VIEW_INPUT_WRITTEN, str(leaf.path), capture.location())
        self._any_written = True


def _follows(leaf: InputLeaf, capture: CaptureContext) -> GraphBreak:
    what = f"requires_grad of {leaf.path}, of which there are views"
    return GraphBreak(breaks.METADATA_MUTATION, what, capture.location())
