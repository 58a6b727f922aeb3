"""May the program's own code run in place of a graph that has raised? Then nothing outside of the graph may have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchjit_fx.answers import is_custom_operator
from torchjit_fx.assertions import CHECK, FINISHED, IN_RANGE
from torchjit_fx.data_errors import may_raise
from torchjit_fx.leaves import InputLeaf, Step, TensorLeaf
from torchjit_fx.ownership import owns
from torchjit_fx.random_state import RANDOM_STATE_CALLS
from torchjit_fx.unbacked import runtime_check

__all__ = ["giving_back_random_numbers", "is_repeatable"]

_TESTS = (CHECK, FINISHED, IN_RANGE, runtime_check)
_PYTHON = frozenset({"_operator", "math", "builtins"})
"""Modules of functions that graphs hold for numbers and for parts of results."""


def is_repeatable(steps: Sequence[Step], inputs: Sequence[InputLeaf]) -> bool:
    """Do these steps change nothing outside of the graph, whichever of them raises? Random numbers can be given back.

    Args:
        steps: those of the graph.
        inputs: its tensors.
    """
    if any(leaf.entry is not leaf.found for leaf in inputs) or not all(map(_changes_nothing, steps)):
        return False
    return not any(step.random for step in steps) or any(_raises(step) for step in steps)


def giving_back_random_numbers(target: Callable[..., Any], steps: Sequence[Step]) -> Callable[..., Any]:
    """`target`, made to leave the generator as it was if it raises; the graph of steps that draw nothing as it is."""
    if not any(step.random for step in steps):
        return target
    generator = torch.default_generator

    def run(*inputs: Any) -> Any:
        before = generator.get_state()
        try:
            return target(*inputs)
        except Exception:
            generator.set_state(before)
            raise

    return run


def _raises(step: Step) -> bool:
    """Is it one of the operations that raise for what is in their tensors? To remember the generator's state for others is not worth its time."""
    return step.target in _TESTS or may_raise(step.target, step.args)


def _changes_nothing(step: Step) -> bool:
    """Not known: operators and functions of somebody else, higher-order operators."""
    if step.mode is not None:
        return True  # see `TorchModes.restoring`
    target = step.target
    if target in _TESTS:
        return True
    if (step.effect and not _draws(step)) or any(
        leaf.step is None for storage in step.written for leaf in storage.leaves
    ):
        return False
    if isinstance(target, str):
        return step.op == "call_method"
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return not is_custom_operator(target)
    return _is_function_of_torch(target)


def _draws(step: Step) -> bool:
    """Does it only draw from the generator of the CPU?"""
    if not step.random or any(isinstance(value, torch.Generator) for value in (*step.args, *step.kwargs.values())):
        return False
    return all(not isinstance(leaf, TensorLeaf) or leaf.record.device.type == "cpu" for leaf in step.results)


_OF_TORCH: set[Any] = set()
"""Functions of torch and Python that were asked about; those of the program do not get here."""


def _is_function_of_torch(target: Any) -> bool:
    if target in _OF_TORCH:
        return True
    if target is torch.autograd.grad or target in RANDOM_STATE_CALLS:
        return False
    found = target is getattr or getattr(target, "__module__", None) in _PYTHON or owns(target)
    if found:
        _OF_TORCH.add(target)
    return found
