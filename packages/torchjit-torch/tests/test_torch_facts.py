"""Facts of operators, and keys of metadata."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.fx

from torchjit_torch import node_meta
from torchjit_torch.custom_operators import define_operator
from torchjit_torch.layouts import contiguous_strides
from torchjit_torch.node_meta import BACKWARD, RESULTS, Key
from torchjit_torch.operators import (
    ONLY_COMPUTE,
    aliases_operand,
    draws,
    functional_form,
    has_effect,
    is_custom_operator,
    is_mutable,
    is_random,
    is_view,
    out_of_place,
    writes_metadata,
    writes_to,
    written_arguments,
)

aten = torch.ops.aten


def _every_overload() -> list[torch._ops.OpOverload]:
    packets = (getattr(aten, name) for name in dir(aten))
    return [getattr(p, o) for p in packets if isinstance(p, torch._ops.OpOverloadPacket) for o in p.overloads()]  # type: ignore[no-untyped-call]


def test_what_operators_write() -> None:
    assert writes_to(aten.add_.Tensor) == (0,) and writes_to(aten.add.out) == ("out",)
    assert writes_to(aten.add.Tensor) == () and writes_to(len) == ()
    assert functional_form(aten.add_.Tensor) is functional_form(aten.add.out) is aten.add.Tensor
    assert out_of_place(aten.t_.default) is aten.t.default and writes_metadata(aten.t_.default)
    assert is_mutable(len) and aliases_operand(len), "nobody knows"


def test_what_results_share() -> None:
    assert is_view(aten.transpose.int) and aliases_operand(aten.transpose.int)
    assert not is_view(aten.add_.Tensor) and aliases_operand(aten.add_.Tensor), "the operand itself"
    assert not is_view(aten.lift_fresh.default) and not aliases_operand(aten.mul.Tensor)


def test_what_is_random() -> None:
    assert is_random(aten.bernoulli.default) and draws(aten.bernoulli.default) and has_effect(aten.bernoulli.default)
    assert is_random(aten.native_dropout.default) and not is_random(aten.mul.Tensor) and not draws(len)


def test_facts_of_all_operators_agree() -> None:
    """What writes is mutable; a view shares memory and writes nothing; what computes only has no effect but what its schema says."""
    for op in _every_overload():
        assert bool(writes_to(op)) == is_mutable(op), op
        assert not is_view(op) or (aliases_operand(op) and not writes_to(op)), op
        assert op.namespace in ONLY_COMPUTE


def test_keys_hold_what_is_put() -> None:
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    graph.output(node)
    assert BACKWARD.of(node) is None and not BACKWARD.marks(node)
    BACKWARD.put(node, False)
    assert BACKWARD.of(node) is False and BACKWARD.marks(node) and node.meta["backward"] is False
    BACKWARD.drop(node)
    BACKWARD.drop(node)
    assert not BACKWARD.marks(node)
    module = torch.fx.GraphModule({}, graph)
    RESULTS.put(module, 3)
    assert RESULTS.of(module) == 3


def test_each_key_has_a_name_of_its_own() -> None:
    keys = [held for held in vars(node_meta).values() if isinstance(held, Key)]
    assert len({key.name for key in keys}) == len(keys) == len([n for n in node_meta.__all__ if n.isupper()])
    with pytest.raises(AttributeError):
        keys[0].name = "other"  # type: ignore[misc]


def test_an_import_loads_torch_alone() -> None:
    code = "import sys, torch; had = set(sys.modules); import torchjit_torch.operators; print(sorted(m for m in set(sys.modules) - had if 'torchjit_torch' not in m))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_written_arguments_by_position_and_name() -> None:
    aten = torch.ops.aten
    assert written_arguments(aten.add_.Tensor) == ((0, "self"),)
    assert written_arguments(aten.add.Tensor) == ()
    assert written_arguments(aten.sort.values) == ((3, "values"), (4, "indices"))  # keyword-only ones, too
    assert writes_to(aten.sort.values) == ("values", "indices")


@pytest.mark.parametrize("sizes", [(), (3,), (2, 3, 4), (2, 0, 4), (1, 5, 1, 2)])
def test_contiguous_strides_are_those_of_new_tensors(sizes: tuple[int, ...]) -> None:
    assert contiguous_strides(sizes) == torch.empty(sizes).stride()
    if len(sizes) == 4:
        laid_out = torch.empty(sizes, memory_format=torch.channels_last)
        assert contiguous_strides(sizes, (0, 2, 3, 1)) == laid_out.stride()


def test_operators_of_our_own() -> None:
    def kernel(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    def fake(x: torch.Tensor, n: int) -> torch.Tensor:
        return torch.empty_like(x)

    plain = define_operator("torchjit_test", "times(Tensor x, int n) -> Tensor", kernel, fake)
    recorded = define_operator(
        "torchjit_test", "recorded(Tensor x, int n) -> Tensor", kernel, fake,
        autograd=lambda x, n: x + n, tags=(torch.Tag.cudagraph_unsafe,),
    )  # fmt: skip
    x = torch.ones(3, requires_grad=True)
    assert plain(x, 2).tolist() == [2, 2, 2] and recorded(x, 2).tolist() == [3, 3, 3]
    assert plain(torch.ones(3, device="meta"), 2).shape == (3,)
    assert torch.Tag.cudagraph_unsafe in recorded.tags and torch.Tag.cudagraph_unsafe not in plain.tags


def test_whose_operators_they_are() -> None:
    mine = define_operator("torchjit_test_else", "f(Tensor x) -> ()", lambda x: None, lambda x: None)
    assert is_custom_operator(mine) and is_custom_operator(torch.ops.torchjit_test_else.f)
    for known in (aten.add.Tensor, aten.add, torch.ops.prims.sin.default, torch.sin, "sin", len):
        assert not is_custom_operator(known)
