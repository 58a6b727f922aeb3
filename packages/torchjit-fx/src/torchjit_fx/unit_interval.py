"""Comparisons whose outcome every draw has: `torch.rand([]) < 0.0`, how models spell a layer drop that is off."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from torchjit_fx.leaves import Step, TensorLeaf

__all__ = ["decided"]

_COMPARISONS: dict[Any, Callable[[Any, Any], Any]] = {}
for _name in ("lt", "le", "gt", "ge"):
    for _spelling in (getattr(operator, _name), getattr(torch, _name), _name, f"__{_name}__"):
        _COMPARISONS[_spelling] = getattr(operator, _name)
_SWAPPED = {operator.lt: operator.gt, operator.le: operator.ge, operator.gt: operator.lt, operator.ge: operator.le}


def decided(leaf: TensorLeaf) -> bool | None:
    """The truth of a tensor that compares draws from [0, 1] with a number, where all draws agree; else None.

    Both ends count as possible: in half precision a draw may round to 1.
    """
    step = leaf.step
    if step is None or leaf.way or len(step.args) != 2 or step.kwargs or _is_written(leaf):
        return None
    compare = _COMPARISONS.get(step.target)
    left, right = step.args
    if compare is None:
        return None
    if not isinstance(left, TensorLeaf):
        compare, left, right = _SWAPPED[compare], right, left
    if type(right) not in (int, float) or not isinstance(left, TensorLeaf) or not _is_draw(left):
        return None
    lowest, highest = bool(compare(0.0, right)), bool(compare(1.0, right))
    # Comparisons are monotonous: where the ends agree, so does what lies between. NaN compares as False with all.
    return lowest if lowest is highest else None


def _is_draw(leaf: TensorLeaf) -> bool:
    """One number that `torch.rand` gave."""
    step: Step | None = leaf.step
    one = all(n == 1 for n in leaf.record.sizes)
    return step is not None and step.target is torch.rand and not leaf.way and one and not _is_written(leaf)


def _is_written(leaf: TensorLeaf) -> bool:
    return leaf.storage is not None and leaf.storage.written
