"""The rules of operators: each row says something of an operator that there is, and rows for one operator add up."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchjit_fx.eager_rules.functions import FUNCTIONS, FunctionRule, function_rule
from torchjit_fx.eager_rules.rule import Inside, OperatorRule, Overlap
from torchjit_fx.eager_rules.table import RULES, rule_of
from torchjit_fx.testing import capture_by_proxy

_aten: Any = torch.ops.aten
_OPERATORS = {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}


def test_each_row_names_an_operator() -> None:
    names = {name.split(".")[0] for name in _OPERATORS}
    assert [key for key in RULES if key.split(".")[0] not in names and f"{key}_" not in names] == []
    overloads = {name if "." in name else f"{name}.default" for name in _OPERATORS}
    assert [key for key in RULES if "." in key and key not in overloads] == []


def test_each_row_says_something() -> None:
    assert OperatorRule() not in RULES.values() and FunctionRule() not in FUNCTIONS.values()


def test_rows_for_one_operator_add_up() -> None:
    assert (
        rule_of(_aten.index_add_.default) is not None and rule_of(_aten.index_add_.default).overlap is Overlap.REFUSED
    )
    in_place, functional = rule_of(_aten.masked_scatter_.default), rule_of(_aten.masked_scatter.default)
    assert in_place.shapes is not None and functional.shapes is None and in_place.probe == functional.probe == 1
    power = rule_of(_aten.pow.Tensor_Scalar)
    assert power.number_apart and power.shapes is not None and rule_of(_aten.pow.Scalar).strides is not None
    assert rule_of(_aten.linalg_matrix_exp.default).inside is Inside.CONCATENATION
    assert rule_of(_aten.where.ScalarOther).converts == {"self", "other"}


def test_operators_of_others_have_no_rule() -> None:
    with torch.library._scoped_library("fx_rules_test", "DEF") as library:
        library.define("sum(Tensor x) -> Tensor")
        assert rule_of(torch.ops.fx_rules_test.sum.default) == OperatorRule()


def test_functions_are_found_by_the_name_of_a_method() -> None:
    assert function_rule("view") is function_rule(torch.Tensor.view) is not FunctionRule()
    assert function_rule("as_strided_").beyond and function_rule(torch.as_strided).beyond
    assert function_rule("no_such_method") == function_rule([]) == FunctionRule()


@pytest.mark.parametrize("out", [False, True])
def test_a_power_into_given_memory(out: bool) -> None:
    """Of truth values to the power of one the metadata is wrong; all other powers are in the graph, with `out=` too."""
    x = torch.rand(3, 4).t()

    def program(x: Any, y: Any) -> Any:
        return torch.pow(x, 2, out=y) if out else torch.pow(x, 2)

    captured = capture_by_proxy(program, x, torch.empty(4, 3))
    assert captured.gm is not None and torch.equal(captured(x, torch.empty(4, 3)), x**2)
