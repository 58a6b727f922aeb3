"""What the region changes about tensors that were there before, and that the graph does not see: `data` and `requires_grad`.

The interpreter stores it for real at the region's end. Until then a call that is given the tensor is recorded with another one in its
place: for `tensor.data = other` the other one, whose memory it has from here on, and where autograd follows the tensor a view of that
memory whose gradient is the tensor's; for `requires_grad_(False)` the tensor without its history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.flatten import map_raw
from torchjit_fx.leaves import Function, InputLeaf, Raw, RawArgs, RawKwargs, TensorLeaf
from torchjit_fx.protocols import CaptureContext

__all__ = ["AssignedData", "with_gradient_for"]

_WITHOUT_HISTORY = frozenset({torch.Tensor.detach, torch.detach})


@final
class _WithGradientFor(torch.autograd.Function):
    """A view of `memory` whose gradient is that of `tensor`."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return memory.view_as(memory)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def with_gradient_for(tensor: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """The values of `memory`, on its memory, for the gradient of `tensor`, which has the same size."""
    made: torch.Tensor = _WithGradientFor.apply(tensor, memory)
    return made


@final
class AssignedData:
    """The tensors of one region whose `data` or `requires_grad` was assigned.

    Attributes:
        values: by the id of a leaf, itself and the one that calls are given instead.
        marks: where the first of them was given.
        frozen: those whose `requires_grad` was switched off, and how many tensors lay on their memory then.
    """

    def __init__(self) -> None:
        self.values: dict[int, tuple[TensorLeaf, TensorLeaf]] = {}
        self.frozen: dict[int, int] = {}
        self._followed: dict[int, TensorLeaf] = {}
        self._stood_in: dict[int, list[TensorLeaf]] = {}
        self.marks: dict[int, int] = {}

    def assign(self, leaf: InputLeaf, value: object, in_scope: bool, capture: CaptureContext) -> None:
        """`leaf.data = value`.

        Raises:
            GraphBreak: it changes more than which memory the tensor has, or the code runs later.
        """
        if in_scope or not isinstance(value, TensorLeaf) or not _fits(leaf, value) or self._entangled(leaf, value):
            raise GraphBreak(breaks.TENSOR_ATTRIBUTE_SET, "data", capture.location())
        self.replace(leaf, value, capture.mark())

    def has_already(self, leaf: InputLeaf, value: object) -> bool:
        """Does `leaf.data = value` change nothing: as `Module.to` does where a parameter is there already, or `leaf.data += x`?"""
        if value is leaf:
            return True
        if not isinstance(value, TensorLeaf) or type(value) not in (TensorLeaf, InputLeaf) or id(leaf) in self.frozen:
            return False  # an array of NumPy's is a leaf, too
        now = self.now(leaf)
        there = now.storage is not None and now.storage is value.storage and not leaf.real._is_view()
        return there and _place(now) == _place(value)

    def replace(self, leaf: TensorLeaf, value: TensorLeaf, mark: int) -> None:
        """From now on calls are given `value` for `leaf`."""
        self.values[id(leaf)] = leaf, value
        self.marks.setdefault(id(leaf), mark)
        self._stood_in.setdefault(id(leaf), []).append(value)
        self._followed.pop(id(leaf), None)

    def restore(self, leaf: TensorLeaf) -> None:
        """From now on calls are given `leaf` itself again."""
        del self.values[id(leaf)]

    def names(self, leaf: TensorLeaf) -> list[TensorLeaf]:
        """The leaf, and all that calls were given instead."""
        return [leaf, *self._stood_in.get(id(leaf), ())]

    def break_before(self, leaf: TensorLeaf, why: GraphBreak, capture: CaptureContext) -> None:
        """What calls were given instead of the leaf cannot stay: the capture breaks where the first of them was.

        Raises:
            GraphBreak: there was none; the break is here.
        """
        if id(leaf) in self.marks:
            capture.break_at_mark(self.marks[id(leaf)], why)
        raise why

    def is_reassigned(self, leaf: InputLeaf) -> bool:
        """Will the tensor have other memory at the region's end?"""
        return id(leaf) in self.values and id(leaf) not in self.frozen

    def _entangled(self, leaf: InputLeaf, value: TensorLeaf) -> bool:
        """Would the order count in which inputs are given each other's memory at the end?"""
        if id(leaf) in self.frozen:
            return True
        return value is leaf or id(value) in self.values or any(v is leaf for _, v in self.values.values())

    def seen(
        self,
        fn: Function,
        args: RawArgs,
        kwargs: RawKwargs,
        follow: Callable[[TensorLeaf, TensorLeaf], TensorLeaf] | None,
        capture: CaptureContext,
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments of a call, with those that it is given instead; None if that changes nothing.

        Args:
            fn, args, kwargs: the call.
            follow: where autograd records: makes of a tensor and the one whose memory it has what calls are given.
            capture: for the location.

        Raises:
            GraphBreak: autograd would follow one of them, and that cannot be recorded.
        """
        if fn is with_gradient_for:
            return None
        reads = fn in _WITHOUT_HISTORY or (fn is getattr and args[1:] == ("data",))

        changed = False

        def current(leaf: Raw) -> Raw:
            nonlocal changed
            found = self.values.get(id(leaf))
            if found is None:
                return leaf
            changed = True
            if follow is not None and not reads and leaf.record.requires_grad and id(leaf) not in self.frozen:
                if id(leaf) not in self._followed:
                    self._followed[id(leaf)] = follow(*found)
                    self._stood_in[id(leaf)].append(self._followed[id(leaf)])
                return self._followed[id(leaf)]
            return found[1]

        seen = map_raw(args, current), {k: map_raw(v, current) for k, v in kwargs.items()}
        return seen if changed else None

    def given_back(self, result: Raw, args: RawArgs) -> Raw:
        """What the program gets where a call returns its first argument, which was another object for the graph."""
        found = self.values.get(id(args[0])) if args else None
        return args[0] if found is not None and result is found[1] else result

    def now(self, leaf: Raw) -> Raw:
        """What holds the values of a tensor at the region's end."""
        found = self.values.get(id(leaf))
        return leaf if found is None else found[1]


def _fits(leaf: InputLeaf, value: TensorLeaf) -> bool:
    mine, other = leaf.record, value.record
    if mine.symbolic or other.symbolic or leaf.real._is_view():
        return False
    plain = not (other.requires_grad or mine.inference or other.inference or other.conj or other.neg)
    return plain and (mine.dtype, mine.device, mine.sizes) == (other.dtype, other.device, other.sizes)


def _place(leaf: TensorLeaf) -> RawArgs:
    """All that `tensor.data = leaf` gives a tensor besides the storage; the history of `leaf` is none of it."""
    r = leaf.record
    return r.dtype, r.device, r.sizes, r.strides, r.offset, r.inference, r.conj, r.neg
