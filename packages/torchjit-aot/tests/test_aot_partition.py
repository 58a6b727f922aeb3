"""What is saved for the backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from aot_harness import STRICT, graph_of, run_both

import torchjit_aot
from torchjit_aot import AotSettings, joint_graph, min_cut_partition, run_eagerly
from torchjit_aot.costs import bytes_of
from torchjit_aot.decompositions import decompose, default_decompositions
from torchjit_aot.partition import save_what_is_read
from torchjit_aot.timing import flops_of
from torchjit_core.events import listen


def saved(f: Callable[..., Any], *args: torch.Tensor, **options: bool) -> list[str]:
    """Names of the saved values."""
    return [node.name for node in min_cut_partition(joint_graph(f, args), **options).saved]


def test_two_cosines_save_only_the_input() -> None:
    x = torch.randn(4, 5, requires_grad=True)
    events = []
    with listen(lambda kind, fields: events.append((kind, fields))):
        run = torchjit_aot.compile(graph_of(lambda x: x.cos().cos(), 1), [x], compiler=run_eagerly, settings=STRICT)
    (told,) = (fields["tensors"] for kind, fields in events if kind == "saved_tensors")
    assert [(t["name"], t["shape"], t["bytes"]) for t in told] == [("arg0", [4, 5], 80)]
    graphs = {fields["stage"]: fields["code"] for kind, fields in events if kind == "graph"}
    assert set(graphs) == {"joint", "forward"}
    # The joint graph shows what it computes: the result, and the gradient of x.
    assert "return ([cos_default_1], [mul_tensor_1])" in graphs["joint"], graphs["joint"]
    y = run(x)
    (held,) = y.grad_fn.saved_tensors
    assert held is x
    run_both(lambda x: x.cos().cos(), (x,))


def test_long_pointwise_chain_saves_one_tensor() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin().exp().tanh().sigmoid().cos()

    x = torch.randn(4, 5, requires_grad=True)
    assert saved(f, x) == ["arg0"]
    run_both(f, (x,))


def test_matmul_results_are_kept() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).sin().cos()

    assert saved(f, torch.randn(4, 5, requires_grad=True), torch.randn(5, 6, requires_grad=True)) == [
        "arg0",
        "arg1",
        "mm_default",
    ]


@pytest.mark.parametrize(("columns", "kept"), [(200, ["mm_default", "sum_dim_int_list"]), (20, ["cos_default"])])
def test_what_is_in_memory_anyway_is_kept_with_a_little_beside_it(columns: int, kept: list[str]) -> None:
    """As the scores of a loss with a maximum and a sum for each row, rather than their log-softmax."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w + x.sum(1, keepdim=True)).sin()

    args = torch.randn(4, 5, requires_grad=True), torch.randn(5, columns, requires_grad=True)
    assert sorted(saved(f, *args)) == sorted(["arg0", "arg1", *kept])
    run_both(f, args)


@pytest.mark.parametrize("shape", [(4, 70), (2, 50, 3, 3)])
def test_the_logarithm_of_a_row_is_kept_for_its_elements(shape: tuple[int, ...]) -> None:
    """With as many bytes as the sum, of which the backward would take the logarithm at each element."""

    joint = joint_graph(
        F.cross_entropy, [torch.randn(shape, requires_grad=True), torch.zeros(shape[0], *shape[2:], dtype=torch.int64)]
    )
    names = [node.name for node in min_cut_partition(decompose(joint, default_decompositions(), frozenset())).saved]
    assert "log_default" in names and not any(name.startswith("sum_dim") for name in names), names


@pytest.mark.parametrize(
    ("left", "right", "products"),
    [((96, 64), (3, 64, 48), 96 * 64 * 48), ((3, 40, 64), (64, 96), 40 * 64 * 96), ((32, 96), (96, 48), 32 * 96 * 48)],
    ids=["rows", "columns", "depth"],
)
def test_grouped_products_count_what_they_multiply(left: Any, right: Any, products: int) -> None:
    operands = [torch.randn(s).bfloat16().requires_grad_() for s in (left, right)]
    ends = torch.tensor([32, 48, 96], dtype=torch.int32)
    joint = joint_graph(lambda a, b, ends: torch._grouped_mm(a, b, offs=ends), [*operands, ends])
    counts = [flops_of(node) for node in joint.graph.nodes if node.target is torch.ops.aten._grouped_mm.default]
    assert counts == [2.0 * products] * 3


def test_dropout_saves_a_mask() -> None:
    joint = joint_graph(lambda x: F.dropout(x.sin(), 0.5), [torch.randn(4, 5, requires_grad=True)])
    dtypes = [node.meta["val"].dtype for node in min_cut_partition(joint).saved]
    assert sorted(map(str, dtypes)) == ["torch.bool", "torch.float32"]


def test_views_are_not_saved_but_what_they_look_at() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x.t() @ w.view(4, 6)).sum()

    assert saved(f, torch.randn(4, 5, requires_grad=True), torch.randn(24, requires_grad=True)) == ["arg0", "arg1"]


def test_chains_of_residual_sums_end() -> None:
    """x + a + b + c ...: each sum could be computed again from all before it; that is stopped."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            x = x + x.sin() @ w
        return x

    joint = joint_graph(f, [torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)])
    partition = min_cut_partition(joint)
    assert any("would read many" in why for why in partition.why)


def test_recompute_materialized_saves_less() -> None:
    def f(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.gelu(x @ w) @ v

    args = [torch.randn(8, 8, requires_grad=True) for _ in range(3)]
    bytes_saved = [
        sum(bytes_of(n.meta["val"]) for n in min_cut_partition(joint_graph(f, args), recompute_materialized=r).saved)
        for r in (False, True)
    ]
    assert bytes_saved[1] == bytes_saved[0] - 8 * 8 * 4
    run_both(f, args, settings=AotSettings(fallback=False, recompute_materialized=True))


def test_value_of_a_mutated_input_is_kept() -> None:
    def f(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = a.clone().sin() * x
        a.add_(1)
        return y

    run_both(f, (torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)))


@pytest.mark.parametrize("partitioner", [save_what_is_read, min_cut_partition])
def test_partitioner_is_a_choice(partitioner: Any) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.gelu(x @ w), (4,)).softmax(-1)

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    run = torchjit_aot.aot_function(f, partitioner=partitioner, settings=STRICT)
    want = torch.autograd.grad(f(x, w).square().sum(), (x, w))
    have = torch.autograd.grad(run(x, w).square().sum(), (x, w))
    for a, b in zip(want, have, strict=True):
        torch.testing.assert_close(a, b)


def test_min_cut_never_saves_more_than_eager_would() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x + F.gelu(F.layer_norm(x, (8,)) @ w).sigmoid()
        return x

    args = [torch.randn(4, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)]
    totals = [
        sum(bytes_of(n.meta["val"]) for n in cut(joint_graph(f, args)).saved)
        for cut in (min_cut_partition, save_what_is_read)
    ]
    assert totals[0] <= totals[1]
