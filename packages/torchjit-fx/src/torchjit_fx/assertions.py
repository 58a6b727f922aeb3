"""Python's `assert` on a tensor: one operator of the graph that tests it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchjit_fx.leaves import InputLeaf, Storage, TensorLeaf

__all__ = ["CHECK", "FINISHED", "IN_RANGE", "WITHIN", "can_be_tested", "runtime_check"]

_library: Any = torch.library.Library
_LIBRARY = _library("torchjit_checks", "DEF")
_LIBRARY.define(
    "check(Tensor condition, bool expected, str? message) -> ()",
    tags=[torch.Tag.cudagraph_unsafe],  # it reads data
)


def _check(condition: torch.Tensor, expected: bool, message: str | None) -> None:
    if bool(condition) is not expected:
        raise AssertionError(*(() if message is None else (message,)))


def _nothing(condition: torch.Tensor, expected: bool, message: str | None) -> None:
    """On fakes there is no data."""


_LIBRARY.impl("check", _check, "CompositeExplicitAutograd")
torch.library.register_fake("torchjit_checks::check", _nothing, lib=_LIBRARY)
CHECK = torch.ops.torchjit_checks.check.default
"""Without results, so every stage takes it for a call with an effect, and keeps it."""

_LIBRARY.define("finished(Tensor result) -> ()")
_LIBRARY.impl("finished", lambda result: None, "CompositeExplicitAutograd")
torch.library.register_fake("torchjit_checks::finished", lambda result: None, lib=_LIBRARY)
FINISHED = torch.ops.torchjit_checks.finished.default
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


_LIBRARY.define(
    "in_range(Tensor index, SymInt size, bool negative, int? ignored) -> ()",
    tags=[torch.Tag.cudagraph_unsafe],  # it reads data
)
_LIBRARY.impl("in_range", _in_range, "CompositeExplicitAutograd")
torch.library.register_fake("torchjit_checks::in_range", lambda index, size, negative, ignored: None, lib=_LIBRARY)
IN_RANGE = torch.ops.torchjit_checks.in_range.default
"""Raises where an index is out of range for a dimension of that size. `negative`: they may count from its end; `ignored`: it may also be this."""


def _within(values: torch.Tensor, low: float, high: float) -> None:
    if values.numel():
        least, most = (end.item() for end in values.detach().aminmax())
        if not low <= least <= most <= high:  # nor if one is not a number
            raise RuntimeError(f"a value that is not between {low} and {high}")


_LIBRARY.define(
    "within(Tensor values, float low, float high) -> ()",
    tags=[torch.Tag.cudagraph_unsafe],  # it reads data
)
_LIBRARY.impl("within", _within, "CompositeExplicitAutograd")
torch.library.register_fake("torchjit_checks::within", lambda values, low, high: None, lib=_LIBRARY)
WITHIN = torch.ops.torchjit_checks.within.default
"""Raises where a value is not in this range."""


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
