"""Hooks of parameters that get no gradient from a backward of some results.

For autograd a compiled graph is one node, and its engine goes on from it to every input, also to one for which the backward has
no gradient: hooks of that one would be called with None. In eager mode the engine does not get there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

__all__ = ["call_hooks_for_gradients_only"]


@final
class _ForGradients:
    """A tensor's hook that is not called with None."""

    def __init__(self, hook: Callable[[Any], Any]) -> None:
        self.hook = hook

    def __call__(self, gradient: Any) -> Any:
        return None if gradient is None else self.hook(gradient)


def call_hooks_for_gradients_only(node: Any) -> None:
    """Put the hooks of the leaves behind this node of autograd in wrappers, in place: their handles still remove them."""
    for following, _ in node.next_functions:
        leaf = getattr(
            following, "variable", None
        )  # of `AccumulateGrad`; a user's autograd function may have anything there
        hooks: Any = getattr(leaf, "_backward_hooks", None)
        for key, hook in list(hooks.items()) if hooks else ():
            if type(hook) is not _ForGradients:
                hooks[key] = _ForGradients(hook)
