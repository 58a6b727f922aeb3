"""Inputs that a graph gives another gradient history: whether autograd can do so is seen at each call."""

from __future__ import annotations

from typing import Any

from torchjit_aot.compiler_protocol import Run
from torchjit_aot.joint import JointGraph

__all__ = ["guard_history"]


def guard_history(joint: JointGraph, compiled: Run, eager: Run) -> Run:
    """Look at each call whether an input that gets another gradient history is one that an autograd function cannot give it to.

    That keeps its gradient (`retain_grad()`): eager PyTorch lets it keep that of its new value, the function drops the wish.
    Or it is a view: its base gets the history, too, which autograd refuses for functions with several results. A leaf that is a
    view (`base[:2].requires_grad_()`) is cut off by a write without history: for eager PyTorch its other views are then views of the base.
    """
    count = len(joint.sources) - len(joint.bases)
    changed = [i for i in joint.mutated_under_grad if i < count]
    leaves = [i for i in joint.mutated if i < count and joint.sources[i].leaf is not None] if joint.has_backward else []
    leaves = [i for i in leaves if i not in changed and joint.sources[i].leaf is joint.sources[i].value]
    if not changed and not leaves:
        return compiled
    several = len(joint.slots) > 1

    def checked(*args: Any) -> Any:
        if any(args[i].retains_grad or (several and args[i]._is_view()) for i in changed):
            return eager(*args)
        if any(args[i]._is_view() for i in leaves):
            return eager(*args)
        return compiled(*args)

    return checked
