"""Every rule of a call: importing the modules registers them."""

from __future__ import annotations

from torchjit_fx import control_capture, flex_attention, subclasses
from torchjit_fx.autograd import differentiation, functions, tensor_hooks, transforms
from torchjit_fx.calls import (
    ambient,
    constants,
    creation,
    indexing,
    layers,
    legacy,
    numbers,
    parameters,
    process_groups,
    refused,
    sizes,
)  # fmt: skip
from torchjit_fx.calls.call import CallRule, call_rule
from torchjit_fx.leaves import Function
from torchjit_fx.modes import MODE_READERS, MODE_SETTERS
from torchjit_fx.numpy.calls import call_arrays
from torchjit_fx.numpy.facts import NUMPY_FUNCTIONS
from torchjit_fx.ownership import CONSTANT_FUNCTIONS, REFUSED, is_shape_question, makes_placement
from torchjit_fx.symbols.unbacked import SHAPE_QUESTIONS

__all__ = ["MODULES", "rule_of_call"]

MODULES = (
    ambient, constants, control_capture, creation, differentiation, flex_attention, functions, indexing, layers, legacy, numbers,
    parameters, process_groups, refused, sizes, subclasses, tensor_hooks, transforms,
)  # fmt: skip
"""Whose rules these are."""

call_rule.rest(CONSTANT_FUNCTIONS, constants.evaluate)
call_rule.rest(MODE_SETTERS, ambient.set_mode)
call_rule.rest(MODE_READERS, ambient.read_mode)
call_rule.rest(REFUSED, refused.refuse)


def rule_of_call(function: Function) -> CallRule | None:
    """The rule for calls of a callable, None: they are recorded."""
    if id(function) in NUMPY_FUNCTIONS:
        return call_arrays
    rule = call_rule.get(function)
    if rule is None and is_shape_question(function):
        return SHAPE_QUESTIONS[function.__name__]
    return constants.evaluate if rule is None and makes_placement(function) else rule
