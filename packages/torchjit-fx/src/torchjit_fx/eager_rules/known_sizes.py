"""Questions about sizes that vary: the values at capture decide, and what they decide is guarded, as in torch's metadata functions.

Sizes that only the run knows are not asked about.
"""

from __future__ import annotations

import torch

from torchjit_fx.eager_rules.rule import Size, Sizes, Value

__all__ = ["differ", "holds", "seen", "unequal"]


def holds(condition: Value) -> bool:
    """Is a condition on sizes known to hold, or does it at capture, with a guard? Not if only the run knows."""
    if isinstance(condition, torch.SymBool):
        node: Value = condition.node
        return bool(condition) if node.has_hint() else node.maybe_as_bool() is True
    return bool(condition)


def seen(n: Size) -> int | None:
    """The value of a size at capture, None if only the run knows it."""
    if type(n) is int:
        return n
    hint: int | None = n.node.hint
    return hint


def differ(some: Sizes, others: Sizes) -> bool:
    """Are these sizes known not to be the same?"""
    return len(some) != len(others) or any(map(unequal, some, others))


def unequal(a: Size, b: Size) -> bool:
    return a is not None and b is not None and holds(a != b)
