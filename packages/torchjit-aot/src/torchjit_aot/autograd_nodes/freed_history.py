"""Results whose backward raises: `torch.autograd.grad` inside the graph has freed what is behind them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from torchjit_aot.backward_engine import gradients, needs_python_engine
from torchjit_aot.inputs import GraphInput, no_autocast
from torchjit_core.handlers import let_through

__all__ = ["freed_slots", "with_freed_history"]

_DIFFERENTIATES = frozenset({"autograd_grad", "grad"})
"""Names of the functions that differentiate in the middle of a graph: what a capture writes, and torch's own."""


def freed_slots(gm: fx.GraphModule, slots: Sequence[Any], sources: Sequence[GraphInput]) -> dict[int, tuple[int, ...]]:
    """The slots whose backward eager PyTorch refuses, with the inputs that they lead to. The trace is over, its recorder off.

    Args:
        gm: what was traced.
        slots: fakes with their history, and numbers.
        sources: the inputs.
    """
    calls = (node.target for node in gm.graph.nodes if node.op == "call_function")
    if not any(getattr(target, "__name__", None) in _DIFFERENTIATES for target in calls):
        return {}
    leaves = {id(source.leaf): i for i, source in enumerate(sources) if source.leaf is not None}
    asked = {i: t for i, t in enumerate(slots) if isinstance(t, torch.Tensor) and t.requires_grad}
    if not leaves or not _is_freed(list(asked.values()), sources):
        return {}
    return {i: _inputs_behind(t, leaves) for i, t in asked.items() if _is_freed([t], sources)}


def _is_freed(outputs: Sequence[torch.Tensor], sources: Sequence[GraphInput]) -> bool:
    """Does a backward of these outputs raise for that?"""
    leaves = [source.leaf for source in sources if source.leaf is not None]
    tangents = [torch.empty_like(t, requires_grad=False) for t in outputs]
    try:
        with no_autocast(), torch.autograd.set_multithreading_enabled(False):
            if outputs and needs_python_engine(outputs):
                gradients(outputs, leaves, tangents)
            elif outputs:
                torch.autograd.grad(outputs, leaves, tangents, retain_graph=True, allow_unused=True)
    except RuntimeError as error:  # any other one is met again, and handled, where the backward is traced
        return str(error).split("\n", 1)[0] == error_of_freed_graphs().split("\n", 1)[0]
    return False


@functools.cache
def error_of_freed_graphs() -> str:
    """What PyTorch says of a backward through what was freed."""
    with torch._C._DisableTorchDispatch(), torch.enable_grad(), torch.inference_mode(False):
        x = torch.ones((), requires_grad=True)
        y = x.exp()
        torch.autograd.grad(y, x)
        try:
            torch.autograd.grad(y, x)
        except RuntimeError as error:
            let_through()
            return str(error)
    raise RuntimeError("a second backward of a graph that was freed did not raise")


def _inputs_behind(output: torch.Tensor, leaves: dict[int, int]) -> tuple[int, ...]:
    found: set[int] = set()
    seen: set[Any] = set()
    waiting: list[Any] = [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := leaves.get(id(getattr(node, "variable", None)))) is not None:
            found.add(leaf)
        waiting += [following for following, _ in node.next_functions]
    return tuple(sorted(found))


def with_freed_history(value: torch.Tensor, *leaves: torch.Tensor) -> torch.Tensor:
    """`value` with a history that leads to the leaves and whose backward raises as one through a freed graph."""
    raising = torch._C._functions.DelayedError(error_of_freed_graphs(), 1 + len(leaves))
    return raising(value, *leaves)[0]
