"""Python's `assert` on a tensor: one operator of the graph that tests it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchjit_fx.leaves import InputLeaf, Storage, TensorLeaf
from torchjit_torch.custom_operators import define_operator

__all__ = ["CHECK", "FINISHED", "IN_RANGE", "can_be_tested", "runtime_check"]

_READS_DATA = (torch.Tag.cudagraph_unsafe,)


def _check(condition: torch.Tensor, expected: bool, message: str | None) -> None:
    if bool(condition) is not expected:
        raise AssertionError(*(() if message is None else (message,)))


def _nothing(*args: Any) -> None:
    """On fakes there is no data."""


CHECK = define_operator(
    "torchjit_checks", "check(Tensor condition, bool expected, str? message) -> ()", _check, _nothing, tags=_READS_DATA
)
"""Without results, so every stage takes it for a call with an effect, and keeps it."""

FINISHED = define_operator("torchjit_checks", "finished(Tensor result) -> ()", _nothing, _nothing)
"""Is given a result: the operation that makes it runs, as a whole, whoever needs what it gives."""


def _in_range(index: torch.Tensor, size: int, negative: bool, ignored: int | None) -> None:
    if ignored is not None:
        index = index[index != ignored]
    count = index.numel()
    if not count:
        return
    if count <= _FEW and index.dim() == 1:
        values = index.tolist()
        low, high = min(values), max(values)
    else:
        low, high = (end.item() for end in index.aminmax())
    if high >= size or low < (-size if negative else 0):
        raise IndexError(f"an index out of range for {size} elements")


_FEW = 64
"""Indices that Python looks through as fast as an operation."""


_RANGE = "in_range(Tensor index, SymInt size, bool negative, int? ignored) -> ()"
IN_RANGE = define_operator("torchjit_checks", _RANGE, _in_range, _nothing, tags=_READS_DATA)
"""Raises where an index is out of range for a dimension of that size. `negative`: they may count from its end; `ignored`: it may also be this."""


def can_be_tested(leaf: TensorLeaf, written: Sequence[Storage]) -> bool:
    """May the graph test the truth of this tensor, with nothing written to an input before?

    On a GPU a test in the middle of a graph would keep it from being recorded as a CUDA graph: there it breaks.
    """
    one = all(type(n) is int and n == 1 for n in leaf.record.sizes)
    quiet = not any(isinstance(other, InputLeaf) for storage in written for other in storage.leaves)
    return one and quiet and leaf.record.device.type == "cpu"


def runtime_check(holds: Any, text: str) -> None:
    """What a graph calls where the program stated a fact about a number that only the run knows.

    Raises:
        RuntimeError: it does not hold.
    """
    stated = getattr(holds.node, "stated", None) if isinstance(holds, torch.SymBool) else None
    torch._check(holds if stated is None else stated(text), lambda: text)
