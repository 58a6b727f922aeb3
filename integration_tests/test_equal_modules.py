"""Equal modules compiled one by one are compiled once, and stay modules of their own."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchjit
from torchjit.compiler import compilation_of


class Block(nn.Module):
    def __init__(self, width: int = 8, scale: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(self.linear(x).relu()) * self.scale


class Breaking(Block):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        torchjit.graph_break()
        return y * 2 + self.linear(y)


class Counter:
    """A backend that counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        self.count += 1
        return gm.forward


def as_method(module: nn.Module, backend: Any, **keywords: Any) -> Any:
    """As `module.compile()` does."""
    return torchjit.compile(module._call_impl, backend=backend, **keywords)


def as_module(module: nn.Module, backend: Any, **keywords: Any) -> Any:
    return torchjit.compile(module, backend=backend, **keywords)


EACH_WAY = pytest.mark.parametrize("compiled_by", [as_method, as_module])
X = torch.linspace(-1, 1, 16).reshape(2, 8)


def trained(calls: Sequence[Callable[[Tensor], Tensor]], blocks: Sequence[nn.Module], x: Tensor) -> list[Any]:
    """The result, and every block's gradients."""
    x = x.clone().requires_grad_()
    y = x
    for call in calls:
        y = call(y)
    y.square().sum().backward()
    grads = [p.grad for b in blocks for p in b.parameters()]
    for block in blocks:
        block.zero_grad()
    return [y.detach(), x.grad, *grads]


@EACH_WAY
def test_one_compilation_for_equal_blocks(compiled_by: Callable[..., Any]) -> None:
    blocks, count = [Block() for _ in range(6)], Counter()
    calls = [compiled_by(b, count, fullgraph=True) for b in blocks]
    for rows in (2, 3, 5):  # the sizes become symbolic, once for all
        x = torch.randn(rows, 8)
        torch.testing.assert_close(trained(calls, blocks, x), trained(blocks, blocks, x))
    assert count.count == 2
    causes = [[s.cause for s in compilation_of(c).specializations] for c in calls]  # type: ignore[union-attr]
    assert all(len(c) == 2 for c in causes)
    assert all(cause.startswith("shared with") for c in causes[1:] for cause in c)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_own_backends(backend: str) -> None:
    blocks = [Block() for _ in range(3)]
    before = torchjit.counters["stats"]["unique_graphs"]
    calls = [torchjit.compile(b, backend=backend) for b in blocks]
    torch.testing.assert_close(trained(calls, blocks, X), trained(blocks, blocks, X))
    with torch.no_grad():
        torch.testing.assert_close([c(X) for c in calls], [b(X) for b in blocks])
    assert torchjit.counters["stats"]["unique_graphs"] == before + 2


def test_what_differs_is_compiled() -> None:
    count = Counter()
    frozen, hooked, own = Block(), Block(), Block()
    frozen.linear.weight.requires_grad_(False)
    seen: list[Tensor] = []
    hooked.linear.register_forward_hook(lambda m, args, y: seen.append(y) or y * 2)  # type: ignore[func-returns-value]
    own.forward = lambda x: x - 1  # type: ignore[method-assign]
    blocks = [Block(), Block(scale=2.0), frozen, hooked, own, Block().eval(), Block().double(), Block()]
    calls = [as_module(b, count) for b in blocks]
    for block, call in zip(blocks, calls, strict=True):
        x = X.to(block.linear.weight.dtype)
        torch.testing.assert_close(call(x), block(x))
    assert count.count == 6  # `eval` changes nothing here, and the last one is equal
    wide = [as_module(Block(4), count) for _ in range(2)]
    for call in wide:
        call(X[:, :4])
    assert count.count == 7
    with torch.no_grad():
        for call in (*calls[:1], *wide):
            call(torch.zeros(2, call.linear.in_features))
    assert count.count == 9


def test_other_settings_share_nothing() -> None:
    count = Counter()
    for keywords in (
        {},
        {"dynamic": True},
        {"fullgraph": True},
        {"isolate_recompiles": True},
        {"isolate_recompiles": True},
    ):
        as_module(Block(), count, **keywords)(X)
    with torchjit.config.patch(automatic_dynamic_shapes=False):
        as_module(Block(), count)(X)
    as_module(Block(), Counter())(X)
    assert count.count == 6


def test_a_name_that_is_registered_anew_is_another_backend() -> None:
    counters = [Counter(), Counter()]
    kept = []
    for count in counters:
        torchjit.register_backend(count, name="counting")
        kept.append(as_module(Block(), "counting"))
        kept[-1](X)
    assert [c.count for c in counters] == [1, 1]


@pytest.mark.usefixtures("older_objects_rest")
@EACH_WAY
def test_a_block_may_go(compiled_by: Callable[..., Any]) -> None:
    count = Counter()
    first, second = Breaking(), Breaking()
    calls = [compiled_by(b, count) for b in (first, second)]
    for call, block in zip(calls, (first, second), strict=True):
        torch.testing.assert_close(call(X), block(X))
    made = count.count
    gone = weakref.ref(first)
    del first, calls[0], call, block
    gc.collect()
    assert gone() is None
    third = Breaking()
    torch.testing.assert_close(calls[0](X), second(X))
    torch.testing.assert_close(compiled_by(third, count)(X), third(X))
    assert count.count == made


def test_graph_breaks_are_shared_too() -> None:
    count, blocks = Counter(), [Breaking() for _ in range(4)]
    calls = [as_module(b, count) for b in blocks]
    torch.testing.assert_close(trained(calls, blocks, X), trained(blocks, blocks, X))
    assert count.count == 2
    assert [c.compiled.stats.graph_break_count for c in calls] == [1, 1, 1, 1]


def test_copies_and_pickles() -> None:
    count, block = Counter(), Block()
    compiled = as_module(block, count)
    compiled(X)
    other = copy.deepcopy(compiled)
    with torch.no_grad():
        other.linear.weight.mul_(2)
    torch.testing.assert_close(other(X), other._torchjit_original(X))
    assert not torch.equal(other(X), compiled(X)) and count.count == 1
    assert type(pickle.loads(pickle.dumps(other))) is Block


def test_reset_forgets_for_all() -> None:
    count = Counter()
    calls = [as_module(Block(), count) for _ in range(3)]
    for call in calls:
        call(X)
    torchjit.reset()
    assert all(not c.compiled.specializations for c in calls)
    for call in calls:
        call(X)
    assert count.count == 2


def test_errors_of_shared_graphs_are_the_programs() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.eye(3))

        def forward(self, i: Tensor) -> Tensor:
            return self.table[i] * 2

    blocks = [Rows(), Rows()]
    calls = [torchjit.compile(b, backend="inductor") for b in blocks]
    right, wrong = torch.tensor([0, 2]), torch.tensor([0, 7])
    for call, block in zip(calls, blocks, strict=True):
        torch.testing.assert_close(call(right), block(right))
        with pytest.raises(IndexError):
            call(wrong)
        torch.testing.assert_close(call(right), block(right))


def test_methods_of_other_objects() -> None:
    class Plain:
        def __init__(self, k: int) -> None:
            self.k = k

        def run(self, x: Tensor) -> Tensor:
            return x * self.k

    count = Counter()
    for k, compiled in ((2, 1), (2, 1), (3, 2)):
        assert torch.equal(torchjit.compile(Plain(k).run, backend=count)(X), X * k)
        assert count.count >= compiled  # one that is gone by now has left nothing


def test_explain_looks_for_itself() -> None:
    block = Block()
    kept = as_module(block, "eager")
    kept(X)
    assert torchjit.explain(block)(X).regions[0].cause == "first call"
