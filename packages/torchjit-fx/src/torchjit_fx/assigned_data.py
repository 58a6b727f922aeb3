"""`tensor.data = other` inside of a region, for a tensor that was there before.

The interpreter stores it for real at the region's end. Until then a call that is given the tensor is recorded with the other one, whose
memory it has from here on; where autograd would follow the tensor, its identity counts, and the graph breaks.
"""

from __future__ import annotations

from typing import Any, final

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.flatten import map_raw
from torchjit_fx.leaves import InputLeaf, TensorLeaf

__all__ = ["AssignedData"]

_WITHOUT_HISTORY = frozenset({torch.Tensor.detach, torch.detach})


@final
class AssignedData:
    """The tensors of one region whose data was assigned.

    Attributes:
        values: by the id of a leaf, itself and the one whose memory it has now.
    """

    def __init__(self) -> None:
        self.values: dict[int, tuple[InputLeaf, TensorLeaf]] = {}

    def assign(self, leaf: InputLeaf, value: object, in_scope: bool, capture: Any) -> None:
        """`leaf.data = value`.

        Raises:
            GraphBreak: it changes more than which memory the tensor has, or the code runs later.
        """
        if in_scope or not isinstance(value, TensorLeaf) or not _fits(leaf, value) or self._entangled(leaf, value):
            raise GraphBreak(breaks.TENSOR_ATTRIBUTE_SET, "data", capture.location())
        self.values[id(leaf)] = leaf, value

    def _entangled(self, leaf: InputLeaf, value: TensorLeaf) -> bool:
        """Would the order count in which inputs are given each other's memory at the end?"""
        return value is leaf or id(value) in self.values or any(v is leaf for _, v in self.values.values())

    def seen(
        self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grad: bool, capture: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments of a call, with the tensors that have the memory now; None if that changes nothing.

        Raises:
            GraphBreak: autograd would follow one of them.
        """
        reads = fn in _WITHOUT_HISTORY or (fn is getattr and args[1:] == ("data",))

        changed = False

        def current(leaf: Any) -> Any:
            nonlocal changed
            found = self.values.get(id(leaf))
            if found is None:
                return leaf
            changed = True
            if leaf.record.requires_grad and grad and not reads:
                raise GraphBreak(breaks.TENSOR_ATTRIBUTE_SET, "data of a tensor with gradients", capture.location())
            return found[1]

        seen = map_raw(args, current), {k: map_raw(v, current) for k, v in kwargs.items()}
        return seen if changed else None

    def given_back(self, result: Any, args: tuple[Any, ...]) -> Any:
        """What the program gets where a call returns its first argument, which was another object for the graph."""
        found = self.values.get(id(args[0])) if args else None
        return args[0] if found is not None and result is found[1] else result


def _fits(leaf: InputLeaf, value: TensorLeaf) -> bool:
    mine, other = leaf.record, value.record
    if mine.symbolic or other.symbolic or leaf.real._is_view():
        return False
    plain = not (other.requires_grad or mine.inference or other.inference or other.conj or other.neg)
    return plain and (mine.dtype, mine.device, mine.sizes) == (other.dtype, other.device, other.sizes)
