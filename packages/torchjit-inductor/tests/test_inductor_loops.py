"""Loops of C kernels: digits of a variable become loops, pieces of a row are not read lane by lane, scales of channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import check, sample

from torchjit_core.expr import as_expr, constant
from torchjit_inductor import CompiledGraph
from torchjit_inductor.indexing import loop_symbol
from torchjit_inductor.ir.kernel import LoopKernel, LoopVar, Store
from torchjit_inductor.ir.values import load
from torchjit_inductor.schedule.digits import with_split_loops


def c_text(graph: CompiledGraph) -> str:
    return "\n".join(k.source for k in graph.kernels)


def split(size: int, *divisors: int) -> list[int]:
    """Sizes of the loops of a kernel that reads at `x // d` and `x % d` for each of the divisors."""
    x = loop_symbol("x", 0, constant(size))
    index = constant(0)
    for number, d in enumerate(divisors):
        index = index + (as_expr(x) // d) * 3 ** (number + 4) + (as_expr(x) % d) * 5 ** (number + 4)
    store = Store("b", as_expr(x), load("a", index, torch.float32))
    made = with_split_loops(LoopKernel("k", torch.device("cpu"), (LoopVar(x, constant(size)),), (), (store,), ()))
    for at in range(size):
        # The loops run through the same points in the same order.
        values, rest = {}, at
        for var in reversed(made.outer):
            rest, values[var.symbol] = divmod(rest, var.size.value or 1)
        assert made.stores[0].index.evaluate(values) == at
        assert made.stores[0].value.data.index.evaluate(values) == index.evaluate({x: at})
    return [v.size.value or 0 for v in made.outer]


def test_digits_become_loops() -> None:
    assert split(1536, 192) == [8, 192]
    assert split(4096, 1024, 32) == [4, 32, 32]


@pytest.mark.parametrize("divisors", [(100,), (192, 128), (4,)], ids=str)
def test_loops_stay_whole_where_digits_do_not_fit_or_are_short(divisors: tuple[int, ...]) -> None:
    assert split(1536, *divisors) == [1536]


def test_a_concatenation_inside_a_view_has_plain_loops() -> None:
    """The gradient of a fused projection whose rotary part is a piece of each head, as in GPT-NeoX."""
    q, k, v = sample(2, 16, 4, 24), sample(2, 16, 4, 24, seed=1), sample(2, 16, 4, 24, seed=2)

    def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        turned = torch.cat([-q[..., 8:16], q[..., :8], q[..., 16:]], -1)
        rows = torch.cat([turned, k, v], -1).reshape(32, 288)
        return [rows, rows.sum(0)]

    assert " lanes<" not in c_text(check(fn, (q, k, v), tol={"rtol": 1e-5, "atol": 1e-5}))


@pytest.mark.parametrize("dim", [1, 2], ids=["across", "along"])
def test_a_reduction_of_a_concatenation_reads_what_was_stored(dim: int) -> None:
    a, b = sample(4, 50, 24), sample(4, 50, 40, seed=1)

    def fn(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        both = torch.cat([a.relu(), b.exp()], 2)
        return [both, both.mean(dim)]

    assert " lanes<" not in c_text(check(fn, (a, b), kernels=2))


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_scales_of_channels_are_computed_once(weighted: bool, last: bool) -> None:
    x = sample(2, 24, 12, 12)
    x = x.to(memory_format=torch.channels_last) if last else x
    mean, var, weight, bias = (sample(24, seed=n).abs() + 0.5 for n in range(4))

    def fn(
        x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        return F.batch_norm(x, mean, var, weight if weighted else None, bias if weighted else None).relu()

    graph = check(fn, (x, mean, var, weight, bias), kernels=2, aten=None, tol={"rtol": 1e-5, "atol": 1e-5})
    assert [("op_sqrt" in k.source) for k in graph.kernels] == [True, False]


def test_few_elements_of_a_channel_need_no_kernel_for_scales() -> None:
    x, mean, var = sample(4, 24), sample(24), sample(24).abs() + 0.5
    check(lambda x, m, v: F.batch_norm(x, m, v), (x, mean, var), kernels=1, aten=None, tol={"rtol": 1e-5, "atol": 1e-5})


def _costly(x: torch.Tensor) -> torch.Tensor:
    """With functions of which each costs more than to read an element; they have two users."""
    y = torch.tanh(F.softplus(x))
    return y * x + y


@pytest.mark.parametrize(
    ("fn", "kernels"),
    [
        (lambda x: F.batch_norm(_costly(x), None, None, training=True), 2),
        (lambda x: _costly(x).var((0, 2)), 2),
        (lambda x: _costly(x).log_softmax(1), 2),
        (lambda x: F.layer_norm(_costly(x), x.shape[2:]), 1),  # kept in memory of the row
        (lambda x: _costly(x).sum((0, 2)), 1),
        (lambda x: F.batch_norm((x + 1).relu() * (x + 1), None, None, training=True), 1),
        (lambda x: _costly(F.batch_norm(x, None, None, training=True)), 1),
    ],
    ids=["norm of channels", "variance", "columns", "rows", "one pass", "cheap", "behind the norm"],
)
def test_passes_do_not_compute_costly_functions_again(fn: Callable[..., Any], kernels: int) -> None:
    check(fn, (sample(20, 16, 300),), kernels=kernels, aten=None, tol={"rtol": 1e-4, "atol": 1e-4})
