"""The registry of rules for calls."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, CallRules
from torchjit_fx.calls.rules import rule_of_call
from torchjit_fx.leaves import TensorLeaf
from torchjit_fx.ownership import CONSTANT_FUNCTIONS, REFUSED, owned_functions
from torchjit_fx.testing import capture_by_proxy


def _call(*args: Any, **kwargs: Any) -> Call:
    nothing: Any = None
    return Call(torch.add, args, kwargs, nothing, nothing)


def test_a_callable_has_one_rule() -> None:
    rules = CallRules()

    @rules(torch.add, torch.sub)
    def rule(call: Call) -> str:
        return call.name

    found = rules.get(torch.sub)
    assert found is rule and found(_call()) == "add"
    with pytest.raises(ValueError, match="two rules"):
        rules(torch.add)(rule)
    rules.rest([torch.add, torch.mul], lambda call: "rest")
    rest = rules.get(torch.mul)
    assert rules.get(torch.add) is rule and rest is not None and rest(_call()) == "rest"
    assert rules.get(torch.div) is None


def test_a_rule_is_about_calls_on_something() -> None:
    rules = CallRules()
    rules(torch.add, on=int)(lambda call: call.args[0] + 1)
    rule = rules.get(torch.add)
    assert rule is not None and rule(_call(2)) == 3
    assert rule(_call("2")) is NotImplemented and rule(_call()) is NotImplemented


def test_arguments_by_name() -> None:
    call = _call(1, other=2)
    assert call.named("input", "other") == {"input": 1, "other": 2}
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        call.args = ()  # type: ignore[misc]


def test_each_call_that_the_domain_owns_to_refuse_or_to_evaluate_has_a_rule() -> None:
    for function in (*REFUSED, *CONSTANT_FUNCTIONS):
        assert rule_of_call(function) is not None
    assert owned_functions() >= set(REFUSED)


@pytest.mark.parametrize("function", [torch.Tensor.size, len, torch.Tensor.dim, torch.Tensor.squeeze])
def test_rules_on_tensors_leave_other_arguments_alone(function: Any) -> None:
    rule = rule_of_call(function)
    assert rule is not None and rule(_call("no tensor")) is NotImplemented
    assert not isinstance("no tensor", TensorLeaf)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: max(x.sum(), 2),
        lambda x: torch.full((2,), x.sum(), requires_grad=True),
        lambda x: x[torch.zeros((), dtype=torch.int64) + x.sum().long(), 1.5],
        lambda x: x.masked_select(x > 0).nonzero(),
    ],
    ids=["extreme", "fill", "select", "shape"],
)
def test_a_second_attempt_that_does_not_know_keeps_the_first_refusal(program: Any) -> None:
    with pytest.raises(GraphBreak) as stop:
        capture_by_proxy(program, torch.ones(2, 2))
    assert stop.value.reason in (breaks.DATA_DEPENDENT, breaks.DYNAMIC_SHAPE, breaks.META_FAILED)
