"""The rules of operators: each row says something of an operator that there is, and rows for one operator add up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.eager_rules.functions import FUNCTIONS, FunctionRule, function_rule
from torchjit_fx.eager_rules.rule import Inside, OperatorRule, Overlap
from torchjit_fx.eager_rules.table import RULES, rule_of
from torchjit_fx.settings import FxSettings
from torchjit_fx.testing import capture_by_proxy

_aten: Any = torch.ops.aten
_OPERATORS = {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}


def test_each_row_names_an_operator() -> None:
    names = {name.split(".")[0] for name in _OPERATORS}
    newer = {"linalg_polar"}  # than torch 2.11
    assert {key for key in RULES if key.split(".")[0] not in names and f"{key}_" not in names} <= newer
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


_X, _I = torch.randn(4, 6), torch.tensor([0, 1, 2])
_MASK = torch.zeros(4, 6, dtype=torch.bool)
REFUSED: dict[str, Callable[..., Any]] = {
    "a kernel without the dtype": lambda x, i, m: 1.5 - m,
    "a kernel without truth values": lambda x, i, m: m.abs(),
    "a dimension that is not there": lambda x, i, m: torch.softmax(x, 3),
    "weights of another dtype": lambda x, i, m: F.layer_norm(x, (6,), i.new_ones(6)),
    "a number that does not fit": lambda x, i, m: i.to(torch.uint8).fill_(300),
    "a source of another shape": lambda x, i, m: x.index_add(0, i, x),
    "an index of two dimensions": lambda x, i, m: x.index_select(0, i.view(1, 3)),
    "an index out of range": lambda x, i, m: x.select(0, 9),
    "a scattered selection": lambda x, i, m: torch.select_scatter(x, x, 0, 1),
    "as many sources as indices": lambda x, i, m: i.put(i, i[:2]),
    "a mask of another shape": lambda x, i, m: x.clone().masked_scatter_(m[:, :4], x),
    "an empty image": lambda x, i, m: F.interpolate(x[None, None], size=(0, 2), mode="bilinear"),
    "a range of truth values": lambda x, i, m: torch.arange(3, dtype=torch.bool),
    "beyond the memory": lambda x, i, m: x.as_strided((4, 60), (6, 1)),
    "read and written at once": lambda x, i, m: (y := x.clone())[1:].add_(y[:-1]),
    "read and written by an index": lambda x, i, m: torch.index_select(x, 0, i, out=x[:3]),
    "a view over a gap": lambda x, i, m: x.t().unsqueeze(1).view(-1),
    "pooled integers": lambda x, i, m: F.max_pool1d(m[None], 2),
    "the norms of no tensors": lambda x, i, m: torch._foreach_norm([]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_is_not_in_a_graph(name: str) -> None:
    with pytest.raises((RuntimeError, IndexError, NotImplementedError)):
        REFUSED[name](_X.clone(), _I, _MASK)
    with pytest.raises(GraphBreak) as stop:
        capture_by_proxy(REFUSED[name], _X.clone(), _I, _MASK)
    assert stop.value.reason in (breaks.META_FAILED, breaks.NOT_CAPTURABLE, breaks.UNSUPPORTED_ARGUMENT)


_IMAGES = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
_GAPS = torch.randn(2, 3, 4, 10)[..., ::2].transpose(1, 3)
STRIDES: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: torch.hardswish(x) if hasattr(torch, "hardswish") else F.hardswish(x),
    "two operands": lambda x: x * x.transpose(1, 3).contiguous().transpose(1, 3),
    "a number first": lambda x: torch.pow(2.0, x),
    "a tensor of a number": lambda x: torch.floor_divide(x, 2),
    "a mask": lambda x: x.masked_fill(x > 0, 1.0),
    "like": lambda x: torch.full_like(x, 2),
    "in a format": lambda x: torch.empty_like(x, memory_format=torch.contiguous_format).zero_(),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "rolled": lambda x: torch.roll(x, (1, 2), (0, 3)),
    "rolled flat": lambda x: torch.roll(x, 3),
    "log sigmoid": lambda x: F.logsigmoid(x),
    "filled": lambda x: x.index_fill(1, torch.tensor([0]), 2.0),
    "a huber loss": lambda x: F.huber_loss(x, x + 1, reduction="none"),
    "into an empty one": lambda x: torch.add(x, 1, out=torch.empty(0)),
    "lerp": lambda x: torch.lerp(x, x + 1, 0.5),
}


@pytest.mark.parametrize("x", [_IMAGES, _GAPS, _GAPS[:1, :, :1]], ids=["channels last", "gaps", "size 1"])
@pytest.mark.parametrize("name", STRIDES)
def test_results_lie_where_eager_lays_them(name: str, x: torch.Tensor) -> None:
    captured = capture_by_proxy(STRIDES[name], x, settings=FxSettings(node_values=True))
    assert captured.gm is not None
    (result,) = next(iter(reversed(captured.gm.graph.nodes))).args[0]
    value = result.meta["val"]
    expected = STRIDES[name](x)
    assert (tuple(value.shape), value.stride(), value.dtype) == (
        tuple(expected.shape),
        expected.stride(),
        expected.dtype,
    )


@pytest.mark.parametrize("name", ["_trilinear", "roll", "isin"])
def test_kernels_that_autocast_changes_inside_are_not_in_a_graph(name: str) -> None:
    programs: dict[str, Callable[[Any], Any]] = {
        "_trilinear": lambda x: F.bilinear(x, x, torch.ones(2, 6, 6)),
        "roll": lambda x: torch.roll(x.to(torch.float16), 1),
        "isin": lambda x: torch.isin(x.half(), x.half()),
    }
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(GraphBreak):
        capture_by_proxy(programs[name], _X)


def test_attributes_that_are_set() -> None:
    """Where nothing changes nothing happens; what autograd or a kernel would see otherwise breaks the graph."""

    def program(x: Any) -> Any:
        made = x * 2
        made.requires_grad = False
        return made

    captured = capture_by_proxy(program, torch.ones(2))
    assert torch.equal(captured(torch.ones(2)), torch.full((2,), 2.0))
    for name, value in (("names", ("a",)), ("requires_grad", None), ("data", torch.ones(2))):
        with pytest.raises(GraphBreak) as stop:
            capture_by_proxy(lambda x, name=name, value=value: setattr(x * 2, name, value), torch.ones(2))
        assert stop.value.reason is breaks.TENSOR_ATTRIBUTE_SET
