"""Calls that break the graph and then look into the history of what the region has computed."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from torchjit_fx.domain_protocol import CallDomain, Feature
from torchjit_fx.flatten import leaves_in
from torchjit_fx.leaves import InputLeaf, Raw, Step, TensorLeaf

__all__ = ["HookedInputs", "keep_history", "keep_history_beyond"]


def keep_history(domain: CallDomain, tensors: Sequence[Any]) -> None:
    """The program is about to ask for the gradients of these tensors: let the graph not be compiled if it has uses of them.

    What comes out of a compiled graph are results of one node of autograd: none of them is behind another one, so that the
    gradient of the one (`retain_grad`, a hook, `autograd.grad`) would lack what comes through the other.
    """
    for tensor in tensors:
        if isinstance(tensor, TensorLeaf) and tensor.record.requires_grad and not domain.needs_history:
            steps = domain.recorder.steps
            domain.needs_history = _is_made(tensor, steps) and any(_goes_on(step, tensor) for step in steps)


def keep_history_beyond(domain: CallDomain, leaves: Sequence[Raw], names: AbstractSet[str]) -> None:
    """The region ends, and the program goes on with these leaves in code with these names: may it ask for their gradients there?

    The code is only looked at for the names of what asks. Who asks in a function called later is not seen.
    """
    if not names.isdisjoint(_ASKING) or names >= _GRAD:
        keep_history(domain, leaves)


_ASKING = frozenset({"retain_grad", "register_hook"})
_GRAD = frozenset({"autograd", "grad"})


def _is_made(tensor: TensorLeaf, steps: Sequence[Step]) -> bool:
    """Does its history begin in the region?"""
    return not isinstance(tensor, InputLeaf) or any(
        leaf is tensor for step in steps for storage in step.written for leaf in storage.leaves
    )


def _goes_on(step: Step, tensor: TensorLeaf) -> bool:
    """Does something with a gradient come of it in this step?"""
    if not any(leaf is tensor for leaf in leaves_in((step.args, step.kwargs))):
        return False
    return bool(step.written) or any(made.record.requires_grad for made in step.results)


class HookedInputs(Feature, set[int]):
    """The identities of the inputs that the region gave a hook."""
