"""May the program's own code run in place of a graph that has raised? Then nothing outside of the graph may have changed.

A graph that writes to memory from outside, or calls operators of somebody else, has changed nothing as long as it has not come to
the first of these, which is asked when it raises (`torchjit_core.writing`). Only where the program may catch the error it has to be
known before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from torchjit_fx.assertions import CHECK, FINISHED, IN_RANGE, runtime_check
from torchjit_fx.leaves import Function, InputLeaf, Step, Target, TensorLeaf
from torchjit_fx.ownership import owns
from torchjit_fx.region import acts_outside
from torchjit_torch.graph_calls import GraphCall
from torchjit_torch.operators import is_custom_operator

__all__ = ["errors_come_first", "is_repeatable"]

_TESTS = (CHECK, FINISHED, IN_RANGE, runtime_check)
_PYTHON = frozenset({"_operator", "math", "builtins"})
"""Modules of functions that graphs hold for numbers and for parts of results."""


def is_repeatable(steps: Sequence[Step], inputs: Sequence[InputLeaf]) -> bool:
    """Do these steps change nothing outside of the graph but by what `acts_outside`? Random numbers are given back.

    Args:
        steps: those of the graph.
        inputs: its tensors.
    """
    return all(leaf.entry is leaf.found for leaf in inputs) and all(map(_changes_nothing, steps))


def errors_come_first(target: Function, gm: fx.GraphModule, steps: Sequence[Step]) -> bool:
    """Is every error that the program may catch raised before the first write to memory from outside?

    Args:
        target: what the backend made of the graph. Its attribute `writes_last` says what is known of it: True, all tests come before
            the first write; False, they do if they do in the graph.
        gm: the graph; `target` may be a method of it.
        steps: those of the graph, none of which is a custom operator.
    """
    itself = getattr(target, "__self__", None) is gm or (isinstance(target, GraphCall) and target.gm is gm)
    ordered = False if itself else getattr(target, "writes_last", None)
    if ordered is not False:
        return ordered is True
    first = next((i for i, step in enumerate(steps) if acts_outside(step)), len(steps))
    return not any(step.target in _TESTS for step in steps[first:])


def _changes_nothing(step: Step) -> bool:
    """Apart from what `acts_outside`. Not known: functions of somebody else, higher-order operators."""
    if step.mode is not None:
        return True  # see `TorchModes.restoring`
    target = step.target
    if target in _TESTS or is_custom_operator(target):
        return True
    if step.effect and not _draws(step):
        return False
    if isinstance(target, str):
        return step.op == "call_method"
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return True
    return _is_function_of_torch(target)


def _draws(step: Step) -> bool:
    """Does it only draw from the generator of the CPU?"""
    if not step.random or any(isinstance(value, torch.Generator) for value in (*step.args, *step.kwargs.values())):
        return False
    return all(not isinstance(leaf, TensorLeaf) or leaf.record.device.type == "cpu" for leaf in step.results)


_OF_TORCH: set[Any] = set()
"""Functions of torch and Python that were asked about; those of the program do not get here."""


def _is_function_of_torch(target: Target) -> bool:
    if target in _OF_TORCH:
        return True
    if target is torch.autograd.grad:
        return False
    found = (
        target is getattr
        or getattr(target, "__module__", None) in _PYTHON
        or (not isinstance(target, str) and owns(target))
    )
    if found:
        _OF_TORCH.add(target)
    return found
