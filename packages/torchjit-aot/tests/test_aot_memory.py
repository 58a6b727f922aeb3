"""What is saved for the backward, and how long it lives."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from aot_harness import graph_of, run_both
from hypothesis import given
from hypothesis import strategies as st
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

import torchjit_aot
from torchjit_aot import AotSettings, default_decompositions, joint_graph, min_cut_partition
from torchjit_aot.costs import bytes_of
from torchjit_aot.joint_passes import prepare_joint
from torchjit_aot.knapsack import best_to_keep
from torchjit_aot.partition import _Cutter

aten = torch.ops.aten
PARTS = AotSettings(fallback=False, decompositions=default_decompositions())
WHOLE_NORMS = AotSettings(
    fallback=False,
    decompositions=default_decompositions(),
    keep_ops=frozenset(
        {
            aten._native_batch_norm_legit_functional.default,
            aten.native_batch_norm_backward.default,
            aten.native_layer_norm.default,
            aten.native_layer_norm_backward.default,
        }
    ),
)


def saved_of(f: Any, args: list[torch.Tensor], settings: AotSettings = PARTS) -> list[fx.Node]:
    """The saved values that are no inputs."""
    partition = min_cut_partition(joint_graph(f, args, settings=settings))
    return [node for node in partition.saved if node.op != "placeholder"]


def size_of(nodes: list[fx.Node]) -> int:
    return sum(bytes_of(n.meta["val"]) for n in nodes)


def test_cross_entropy_saves_no_probabilities() -> None:
    x, w, y = torch.randn(16, 8), torch.randn(100, 8, requires_grad=True), torch.randint(0, 100, (16,))

    def f(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> Any:
        logits = F.linear(x, w)
        return F.cross_entropy(logits, y), logits

    saved = saved_of(f, [x, w, y])
    shapes = [tuple(n.meta["val"].shape) for n in saved if n.meta["val"].numel() >= 16 * 100]
    assert len(shapes) == 1  # the logits, which the caller gets anyway
    run_both(f, [x, w, y], settings=PARTS, exact=False)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_loss_backward_is_a_comparison(reduction: str) -> None:
    x, y = torch.randn(6, 5, requires_grad=True), torch.tensor([0, 4, -100, 2, 2, 1])

    def f(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.nll_loss(F.log_softmax(x, 1), y, weight=w, reduction=reduction)

    run_both(f, [x, torch.rand(5), y], settings=PARTS, exact=False)
    run_both(lambda x, y: F.nll_loss(x, y, reduction=reduction), [x, y], settings=PARTS, exact=False)


def test_relu_behind_batch_norm_is_computed_again() -> None:
    x = torch.randn(4, 3, 6, 6)
    w = torch.randn(5, 3, 3, 3, requires_grad=True)
    scale, shift = torch.rand(5, requires_grad=True), torch.rand(5, requires_grad=True)
    running = [torch.zeros(5), torch.ones(5)]

    def f(x: Any, w: Any, scale: Any, shift: Any, mean: Any, var: Any) -> torch.Tensor:
        y = F.batch_norm(F.conv2d(x, w), mean, var, scale, shift, training=True)
        return F.relu(y).sum((2, 3))

    args = [x, w, scale, shift, *running]
    for settings in (PARTS, WHOLE_NORMS):
        large = [n.target for n in saved_of(f, args, settings) if n.meta["val"].numel() > 5]
        assert large == [aten.convolution.default]
        run_both(f, args, settings=settings, exact=False)


def test_layer_norm_formula_and_dropout_formula() -> None:
    x, w, b = torch.randn(8, 16, requires_grad=True), torch.rand(16), torch.rand(16)

    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.layer_norm(x, (16,), w, b).sin(), 0.3).exp() * 2

    for settings in (PARTS, WHOLE_NORMS):
        kinds = [n.meta["val"].dtype for n in saved_of(f, [x, w, b], settings) if n.meta["val"].numel() == 128]
        assert kinds == [torch.bool]
        run_both(f, [x, w, b], settings=settings, exact=False)


def test_norms_of_what_hardly_varies_are_saved_where_nothing_is_fused() -> None:
    """Their result is rounding, in which the kernel and a formula in its statistics do not agree."""
    x = (torch.randn(1, 6) * 1e6).expand(4, 6).clone().requires_grad_()
    scale, shift, w = (torch.rand(*n, requires_grad=True) for n in ((6,), (6,), (6, 3)))
    running = [torch.zeros(6), torch.ones(6)]

    def batch(x: Any, w: Any, scale: Any, shift: Any, mean: Any, var: Any) -> Any:
        return F.batch_norm(x, mean, var, scale, shift, training=True) @ w

    def layer(x: Any, w: Any, scale: Any, shift: Any) -> Any:
        return F.layer_norm(x.t() + 1e6, (4,), scale[:4], shift[:4]).t() @ w

    run_both(batch, [x, w, scale, shift, *running])
    run_both(layer, [x, w, scale, shift])


@pytest.mark.parametrize(("kernel", "stride", "padding", "ceil"), [(2, 2, 0, False), (3, 2, 1, True), (3, 1, 1, False)])
def test_max_pool_saves_a_byte_for_each_place(kernel: int, stride: int, padding: int, ceil: bool) -> None:
    x = torch.randn(2, 3, 9, 8, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x.sin(), kernel, stride, padding, ceil_mode=ceil)

    assert {n.meta["val"].dtype for n in saved_of(f, [x])} == {torch.int8}
    run_both(f, [x], settings=PARTS, exact=False)
    y = x.detach().to(memory_format=torch.channels_last).requires_grad_()
    run_both(f, [y], settings=PARTS, exact=False)


def test_filled_tensors_are_never_saved() -> None:
    x = torch.randn(4, 4, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones_like(x.sin())

    assert saved_of(f, [x]) == []
    run_both(f, [x], settings=PARTS)


def test_saved_tensors_and_gradients_are_free_during_the_backward() -> None:
    freed: list[bool] = []

    def compiler(gm: fx.GraphModule, example: Any, *, kind: str, **options: Any) -> Any:
        made = torchjit_aot.run_eagerly(gm, example, kind=kind, **options)  # type: ignore[arg-type]
        if kind != "backward":
            return made
        own = made.boxed  # type: ignore[attr-defined]

        def boxed(inputs: list[Any]) -> Any:
            leaves = {x.data_ptr(), w.data_ptr()}
            held = [weakref.ref(t) for t in inputs if t.data_ptr() not in leaves]
            copies = [t.clone() for t in inputs]
            inputs.clear()
            freed.extend(ref() is None for ref in held)
            return own(copies)

        made.boxed = boxed  # type: ignore[attr-defined]
        return made

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x @ w).exp() @ w).exp()

    x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    compiled = torchjit_aot.compile(graph_of(f, 2), [x, w], compiler=compiler, settings=AotSettings(fallback=False))
    out = compiled(x, w)
    want = torch.autograd.grad(f(x, w).sum(), w)[0]
    loss = (out * 1.0).sum()
    del out
    got = torch.autograd.grad(loss, w)[0]
    torch.testing.assert_close(got, want)
    # of the saved tensors, those that nobody else holds went with the list
    assert freed.count(True) >= 2


def test_a_retained_graph_keeps_its_saved_tensors() -> None:
    w = torch.randn(4, 4, requires_grad=True)

    def f(w: torch.Tensor) -> torch.Tensor:
        return (w @ w).sin() @ w

    compiled = torchjit_aot.compile(graph_of(f, 1), [w], compiler=torchjit_aot.run_eagerly)
    loss = compiled(w).sum()
    first = torch.autograd.grad(loss, w, retain_graph=True)[0]
    second = torch.autograd.grad(loss, w)[0]
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, w)


def deep(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = F.dropout(F.gelu(x @ w), 0.2) + x
    return x


def test_the_budget_bounds_what_is_saved() -> None:
    x, w = torch.randn(64, 16), (torch.randn(16, 16) * 0.1).requires_grad_()
    joint = joint_graph(deep, [x, w], settings=PARTS)
    sizes = [
        size_of([n for n in min_cut_partition(joint, memory_budget=b).saved if n.op != "placeholder"])
        for b in (1.0, 0.6, 0.3, 0.0)
    ]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[1] > sizes[3]
    assert sizes[1] <= sizes[3] + 0.6 * (sizes[0] - sizes[3])
    for budget in (0.5, 0.0):
        run_both(deep, [x, w], settings=attrs.evolve(PARTS, memory_budget=budget), exact=False)
    with pytest.raises(ValueError, match="from 0 to 1"):
        min_cut_partition(joint, memory_budget=1.5)


@pytest.mark.parametrize("budget", [0.8, 0.5, 0.2])
def test_the_budget_costs_no_more_than_values_in_order_of_worth(budget: float) -> None:
    def f(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for w in weights:
            total = total + F.gelu(x @ w).exp().sum()
        return total

    weights = [torch.randn(64, n, requires_grad=True) for n in (48, 64, 80, 112, 256, 304)]
    joint = joint_graph(f, [torch.randn(256, 64), *weights], settings=PARTS)
    cutter = _Cutter(joint, materialize=False)
    start = cutter.cut(frozenset())
    ranked = cutter._by_worth()
    least = cutter.cut(frozenset(ranked))
    assert start is not None and least is not None
    target = cutter.bytes(least) + budget * (cutter.bytes(start) - cutter.bytes(least))
    found, plain = cutter.fit(start, budget), cutter._in_order_of_worth(ranked, target)
    assert plain is not None and cutter.bytes(found) <= target
    assert 0 < cutter.seconds(found) <= cutter.seconds(plain)
    assert cutter.seconds(start) < cutter.seconds(found) < cutter.seconds(least)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=8), st.integers(0, 120))
def test_the_knapsack_is_solved(items: list[tuple[int, int]], room: int) -> None:
    sizes, worths = [s for s, _ in items], [float(w) for _, w in items]
    chosen = best_to_keep(sizes, worths, room)
    assert sum(sizes[i] for i in chosen) <= room
    every = [c for n in range(len(items) + 1) for c in itertools.combinations(range(len(items)), n)]
    most = max(sum(worths[i] for i in c) for c in every if sum(sizes[i] for i in c) <= room)
    assert sum(worths[i] for i in chosen) == most


def test_a_large_knapsack_stays_within_its_room() -> None:
    sizes = [(i * 7919) % 100_003 + 1 for i in range(200)]
    worths = [float((i * 104729) % 1009) for i in range(200)]
    room = sum(sizes) // 2
    chosen = best_to_keep(sizes, worths, room)
    assert sum(sizes[i] for i in chosen) <= room
    greedy, left = 0.0, room
    for i in sorted(range(200), key=lambda i: -worths[i] / sizes[i]):
        if sizes[i] <= left:
            greedy, left = greedy + worths[i], left - sizes[i]
    assert sum(worths[i] for i in chosen) >= 0.99 * greedy


def test_time_is_spent_on_what_a_product_wants_in_memory() -> None:
    x, w = torch.randn(64, 16), (torch.randn(16, 16) * 0.1).requires_grad_()

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.gelu(x @ w) @ w

    joint = joint_graph(f, [x, w], settings=PARTS)
    plain, spent = min_cut_partition(joint), min_cut_partition(joint, recompute_time=10.0)
    assert size_of([n for n in plain.saved if n.op != "placeholder"]) == 2 * 64 * 16 * 4
    assert size_of([n for n in spent.saved if n.op != "placeholder"]) == 64 * 16 * 4
    run_both(f, [x, w], settings=attrs.evolve(PARTS, recompute_time=10.0), exact=False)


def test_the_time_allowance_treats_equal_layers_in_step() -> None:
    x, *ws = torch.randn(64, 16), *(torch.randn(16, 16, requires_grad=True) for _ in range(12))

    def f(x: torch.Tensor, *ws: torch.Tensor) -> torch.Tensor:
        for w in ws:
            x = F.gelu(x @ w)
        return x

    joint = joint_graph(f, [x, *ws], settings=PARTS)
    read = [n for n in joint.graph.nodes if n.target is aten.gelu.default][:-1]  # the last one no product reads
    assert len(read) == 11
    patterns = set()
    for share in (0.0, 0.03, 0.06, 0.09, 10.0):
        saved = min_cut_partition(joint, recompute_time=share).saved
        patterns.add("".join("s" if n in saved else "-" for n in read))
    assert patterns == {"s" * 11, "-s-s-s-s-s-", "-" * 11}


def test_tags_of_the_captured_graph_are_honoured() -> None:
    x, w = torch.randn(64, 16), (torch.randn(16, 16) * 0.1).requires_grad_()

    def saved_with(tag: CheckpointPolicy | None) -> list[Any]:
        graph = fx.Graph()
        a, b = graph.placeholder("a"), graph.placeholder("b")
        y = graph.call_function(torch.matmul, (a, b))
        z = graph.call_function(torch.sin, (graph.call_function(F.dropout, (y, 0.5)),))
        for node in graph.nodes:
            if tag is not None and node.op == "call_function":
                node.meta["recompute"] = tag
        graph.output(graph.call_function(torch.mul, (graph.call_function(torch.exp, (z,)), 2)))
        partition = min_cut_partition(prepare_joint(fx.GraphModule({}, graph), [x, w], PARTS))
        return [n.meta["val"].dtype for n in partition.saved if n.op != "placeholder"]

    assert torch.float32 in saved_with(None)
    assert saved_with(CheckpointPolicy.MUST_RECOMPUTE) == [torch.bool]  # what is random is never drawn twice
    assert saved_with(CheckpointPolicy.MUST_SAVE).count(torch.float32) > saved_with(None).count(torch.float32)


@pytest.mark.parametrize("budget", [0.0, 1.0])
def test_tags_come_before_the_budget(budget: float) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.sin(x) @ w).sum()

    joint = joint_graph(f, [torch.randn(64, 64, requires_grad=True) for _ in range(2)])
    (product,) = (n for n in joint.graph.nodes if n.target is aten.mm.default and not n.meta.get("backward"))
    product.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    assert product in min_cut_partition(joint, memory_budget=budget).saved
    product.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    assert product not in min_cut_partition(joint, memory_budget=budget).saved


def test_checkpointed_regions_save_their_results_only() -> None:
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    at = x
    for region in range(3):
        inside = [graph.call_function(torch.matmul, (at, w))]
        inside.append(graph.call_function(F.dropout, (inside[-1], 0.5)))
        inside.append(graph.call_function(F.gelu, (inside[-1],)))
        inside.append(graph.call_function(torch.matmul, (inside[-1], w)))
        at = graph.call_function(torch.add, (inside[-1], at))
        for node in (*inside, at):
            node.meta.update(recompute=CheckpointPolicy.PREFER_RECOMPUTE, ac_graph_id=region)
    graph.output(graph.call_function(torch.tanh, (at,)))
    gm = fx.GraphModule({}, graph)
    args = [torch.randn(64, 16), (torch.randn(16, 16) * 0.1).requires_grad_()]
    partition = min_cut_partition(prepare_joint(gm, args, PARTS))
    saved = [n.meta["val"].dtype for n in partition.saved if n.op != "placeholder"]
    assert saved.count(torch.float32) == 3 and saved.count(torch.bool) == 3  # results and masks
    run = torchjit_aot.compile(gm, args, compiler=torchjit_aot.run_eagerly, settings=PARTS)
    grads = []
    for f in (gm, run):
        torch.manual_seed(0)
        grads.append(torch.autograd.grad(f(*args).sum(), args[1])[0])
    torch.testing.assert_close(grads[1], grads[0])
