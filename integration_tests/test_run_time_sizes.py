"""Kernels over sizes that only the run knows: 0, 1 and many elements give eager's results, and no graph is left to aten."""

# mypy: no-warn-return-any

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

import torchjit
from torchjit_core import events

ROWS, WIDTH = 12, 6


@pytest.fixture(autouse=True)
def capture_data_dependent() -> Iterator[None]:
    with torchjit.config.patch(
        capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True, on_error="raise"
    ):  # fmt: skip
        yield


def rows(x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """The chosen rows: how many there are depends on data."""
    return x[chosen]


Step = Callable[[torch.Tensor], Any]
STEPS: dict[str, Step] = {
    "pointwise": lambda y: (y.exp() * 2 + 1, y.sin() - y),
    "softmax over rows": lambda y: y.softmax(0),
    "softmax in rows": lambda y: y.softmax(1) * 2,
    "norm": lambda y: F.layer_norm(y, (WIDTH,)) + 1,
    "sums": lambda y: (y.sum(), y.sum(0), y.sum(1), y.mean(0), y.mean(), (y * 2).prod(0)),
    "variance": lambda y: (y.var(1), y.std(1).sum()),
    "logic": lambda y: ((y > 0).any(0), (y > 0).all(1), (y > 0).all()),
    "extremes in rows": lambda y: (y.amax(1), y.argmin(1), y.max(1).values * 2),
    "transposed": lambda y: (y.t().contiguous() + 1, (y.t() * 2).sum(0)),
    "flat": lambda y: (y.reshape(-1) * 2, y.flatten().sum()),
    "regrouped": lambda y: (y.reshape(-1, 2) + 1).reshape(-1, WIDTH).sum(0),
    "halves": lambda y: torch.cat([y[:, :3] * 2, y[:, 3:] + 1], 1),
    "twice": lambda y: torch.cat([y, y * 2]).sum(1),
    "product": lambda y: (y @ y.t()).relu() + 1,
    "gram": lambda y: (y.t() @ y) * 2 + 1,
    "broadcast": lambda y: y.unsqueeze(1) * y.unsqueeze(0) + y[:, None, :1],
    "running": lambda y: y.cumsum(0) * 2,
    "gathered": lambda y: torch.arange(20.0)[(y * 3).long().clamp(0, 19)] + 1,
    "added": lambda y: torch.zeros(4, WIDTH).index_add(0, (y[:, 0] * 3).long().clamp(0, 3), y) + 1,
    "sizes": lambda y: (y * y.shape[0], torch.full((y.shape[0], 2), 3.0) + y.shape[0], y.shape[0] // 2),
    "ones": lambda y: torch.ones(y.shape[0] + 1) * 2,
    "padded": lambda y: F.pad(y, (1, 2)) * 2,
    "stacked": lambda y: torch.stack([y, y + 1], 1) * 2,
    "half": lambda y: (y.half() * 2).float() + 1,
    "where": lambda y: torch.where(y > 0.5, y, -y) + y.new_zeros(y.shape),
}


def compiled(program: Callable[..., Any], told: list[Any], **options: Any) -> Callable[..., Any]:
    """The program through the inductor; `told` takes the fallbacks of whatever is compiled."""
    fast = torchjit.compile(program, backend="inductor", fullgraph=True, **options)

    def call(*args: Any) -> Any:
        def listener(kind: str, fields: dict[str, Any]) -> None:
            if kind == "fallback":
                told.append(fields["detail"])

        with events.listen(listener):
            return fast(*args)

    call.fast = fast  # type: ignore[attr-defined]
    return call


def same(want: Any, got: Any) -> None:
    wanted, found = tree_leaves(want), tree_leaves(got)
    assert len(wanted) == len(found)
    for a, b in zip(wanted, found, strict=True):
        assert type(a) is type(b)
        torch.testing.assert_close(b, a, equal_nan=True, rtol=1e-4, atol=1e-5)


def choices() -> list[torch.Tensor]:
    r = random.Random(0)
    made = [torch.tensor([r.random() < 0.5 for _ in range(ROWS)]) for _ in range(3)]
    alone = torch.zeros(ROWS, dtype=torch.bool)
    alone[3] = True
    return [*made, torch.zeros(ROWS, dtype=torch.bool), alone, torch.ones(ROWS, dtype=torch.bool)]


@pytest.mark.parametrize("name", STEPS)
def test_rows_that_data_choose(name: str) -> None:
    told: list[Any] = []
    program: Any = compiled(lambda x, chosen: STEPS[name](rows(x, chosen)), told)
    x = torch.rand(ROWS, WIDTH)
    for chosen in choices():
        same(STEPS[name](x[chosen]), program(x, chosen))
    assert not told and len(program.fast.compiled.specializations) == 1


def test_products_of_nothing_are_no_product_of_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of two libraries is faster was measured with other sizes."""
    monkeypatch.setattr("torchjit_inductor.matmul._onednn_wins", lambda *args: True)
    program = compiled(lambda x, chosen: rows(x, chosen).t() @ rows(x, chosen), [])
    x = torch.rand(ROWS, WIDTH)
    for chosen in choices():
        same(x[chosen].t() @ x[chosen], program(x, chosen))


def test_extremes_of_nothing_raise_as_in_eager() -> None:
    told: list[Any] = []
    program = compiled(lambda x, chosen: (x[chosen].amax(0) + 1, x[chosen].argmax()), told)
    x = torch.rand(ROWS, WIDTH)
    program(x, torch.ones(ROWS, dtype=torch.bool))
    with pytest.raises(IndexError, match="amax"):
        program(x, torch.zeros(ROWS, dtype=torch.bool))
    assert not told


@pytest.mark.parametrize("seed", range(6))
def test_random_chains(seed: int) -> None:
    """Several steps over two sets of rows, with numbers read out of tensors between them."""
    r = random.Random(seed)
    names = [n for n in STEPS if n not in ("product", "broadcast", "ones")]
    first, second = r.sample(names, 2)

    def program(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
        left, right = x[a], (x * 2)[b]
        level = x.sum().item()
        n = a.sum().item()
        torch._check(n >= 0)
        torch._check(n <= ROWS)
        return STEPS[first](left * level), STEPS[second](right + n), x[:n].sum(0), left.shape[0] + right.shape[0]

    told: list[Any] = []
    fast = compiled(program, told)
    x = torch.rand(ROWS, WIDTH)
    pool = choices()
    for _ in range(6):
        args = (x, r.choice(pool), r.choice(pool))
        same(program(*args), fast(*args))
    assert not told


@pytest.mark.parametrize("name", ["pointwise", "softmax in rows", "norm", "gram", "regrouped", "halves", "padded"])
def test_training_over_chosen_rows(name: str) -> None:
    def loss(x: torch.Tensor, w: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        return sum((leaf * 2).sin().sum() for leaf in tree_leaves(STEPS[name](rows(x, chosen) * w)))  # type: ignore[return-value]

    told: list[Any] = []
    fast = compiled(loss, told)
    for chosen in choices():
        a = [torch.rand(ROWS, WIDTH, requires_grad=True), torch.ones(WIDTH, requires_grad=True)]
        b = [t.detach().clone().requires_grad_() for t in a]
        want, got = loss(*a, chosen), fast(*b, chosen)
        same(want, got)
        same(torch.autograd.grad(want, a), torch.autograd.grad(got, b))
    assert not told


def test_training_over_chosen_rows_with_others_behind_them() -> None:
    """As edges of a graph with a loop at each node, in two layers: sums of sizes, and equal selections, each with a size of its own."""

    def layer(x: torch.Tensor, w: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        nodes = torch.arange(x.size(0))
        ends = torch.cat([edges[:, edges[0] != edges[1]], torch.stack([nodes, nodes])], 1)
        degree = x.new_zeros(x.size(0)).scatter_add_(0, ends[0], torch.ones((ends.size(1),)))
        sent = (x @ w).index_select(0, ends[0]) * degree[ends[1]].view(-1, 1)
        return x.new_zeros(x.size(0), w.size(1)).scatter_add_(0, ends[1].view(-1, 1).expand_as(sent), sent).relu()

    def loss(x: torch.Tensor, w: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return layer(layer(x, w, edges) @ w.t(), w, edges).sum()

    told: list[Any] = []
    fast = compiled(loss, told)
    for rows_ in (7, 9, 12):
        edges = torch.randint(0, rows_, (2, 3 * rows_))
        a = [torch.rand(rows_, WIDTH), torch.rand(WIDTH, 5, requires_grad=True)]
        b = [a[0], a[1].detach().clone().requires_grad_()]
        want, got = loss(*a, edges), fast(*b, edges)
        same(want, got)
        with events.listen(lambda kind, fields: told.append(fields["detail"]) if kind == "fallback" else None):
            found = torch.autograd.grad(got, b[1])
        same(torch.autograd.grad(want, a[1]), found)
    assert not told


def test_a_test_comes_before_what_relies_on_it() -> None:
    """The slice would read outside of its tensor: no kernel may run before the number is tested."""

    def program(x: torch.Tensor, n: torch.Tensor) -> Any:
        y = x * 2
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= x.shape[0])
        return y, x[:k] + 1, x * 3

    fast = compiled(program, [])
    x = torch.rand(8)
    for k in (3, 0, 8):
        same(program(x, torch.tensor(k)), fast(x, torch.tensor(k)))
    for k in (9, 10**9, -1):
        with pytest.raises(RuntimeError, match="Expected cond to be True"):  # plain Python says it
            fast(x, torch.tensor(k))


def test_an_operation_that_relies_on_equal_sizes_says_so() -> None:
    fast = compiled(lambda x: x[x > 2] + x[x <= 2], [])
    assert fast(torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist() == [4.0, 6.0]
    with pytest.raises(RuntimeError, match=r"relies on u\d == u\d.*comes from .*test_run_time_sizes"):
        fast(torch.tensor([1.0, 3.0, 4.0, 5.0]))


@pytest.mark.parametrize("name", STEPS)
def test_dimensions_marked_unbacked(name: str) -> None:
    told: list[Any] = []
    fast: Any = compiled(lambda x: STEPS[name](x), told)
    first = torch.rand(5, WIDTH)
    torchjit.mark_unbacked(first, 0)
    for x in (first, torch.rand(0, WIDTH), torch.rand(1, WIDTH), torch.rand(2, WIDTH), torch.rand(17, WIDTH)):
        same(STEPS[name](x), fast(x))
    assert not told and len(fast.fast.compiled.specializations) == 1
