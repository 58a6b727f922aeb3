"""Values and sizes that depend on data stay in the graph where the settings ask for it."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import torchjit
from torchjit_core import events

BACKENDS = ("eager", "aot_eager", "inductor")


@pytest.fixture(autouse=True)
def capture_data_dependent() -> Iterator[None]:
    with torchjit.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


def item(x: torch.Tensor) -> Any:
    n = x.sum().item()
    return x * n, n + 1, n // 2


def float_item(x: torch.Tensor) -> Any:
    v = x.float().mean().item()
    return x * v + 1, v * 2, torch.full((2,), v)


def conversions(x: torch.Tensor) -> Any:
    return int(x[0]) * 2, float(x[1]) + 0.5, x * int(x[2])


def allocate(x: torch.Tensor) -> Any:
    n = x[0].item()
    torch._check_is_size(n)
    return torch.zeros(n, 3) + 1, n


def checked(x: torch.Tensor) -> Any:
    n = x[0].item()
    torch._check(n > 1)
    torch._check(n < 100, lambda: f"too big: {n}")
    return x * 2 if n > 0 else x, torch.ones(n).sum()


def as_list(x: torch.Tensor) -> Any:
    a, b, *rest = x.tolist()
    return x + a, b * 2, rest


def nonzero(x: torch.Tensor) -> Any:
    found = torch.nonzero(x > 1)
    return found, found.shape[0], found * 2 + 1, found.sum()


def masked(x: torch.Tensor) -> Any:
    y = x[x > 1]
    return y * 2, y.sum(), y.shape[0] * 3, y.numel()


def selected(x: torch.Tensor) -> Any:
    return torch.masked_select(x, x > 1).float().exp().sum()


def unique(x: torch.Tensor) -> Any:
    values, inverse = torch.unique(x, return_inverse=True)
    return values * 2, inverse


def repeated(x: torch.Tensor) -> Any:
    return torch.repeat_interleave(torch.arange(x.shape[0]), x) + 1


def written(x: torch.Tensor) -> Any:
    y = x.clone()
    y[y > 1] = 0
    return y


def outer(x: torch.Tensor) -> Any:
    y = x[x > 1].float()
    return y.unsqueeze(1) @ y.unsqueeze(0), y.softmax(0)


def sliced(x: torch.Tensor) -> Any:
    n = x[0].item()
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return x[:n] * 2


def twice(x: torch.Tensor) -> Any:
    low, high = torch.nonzero(x < 2), torch.nonzero(x >= 2)
    return torch.cat([low, high]) + 1, low.shape[0] - high.shape[0]


PROGRAMS = (
    item, float_item, conversions, allocate, checked, as_list, nonzero, masked, selected, unique, repeated, written, outer,
    sliced, twice,
)  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_one_graph_serves_all_data(program: Callable[..., Any], backend: str) -> None:
    compiled: Any = torchjit.compile(program, backend=backend, fullgraph=True)
    refused: list[Any] = []

    def listener(kind: str, fields: dict[str, Any]) -> None:
        # the inductor may leave a graph to aten; the stages before it may not
        if kind == "fallback" and not str(fields["reason"]).startswith("TJ-IND"):
            refused.append(fields)

    with events.listen(listener):
        for data in ([2, 3, 1, 0], [3, 0, 2, 5], [4, 1, 1, 1], [2, 0, 0, 0]):
            x = torch.tensor(data)
            want, got = tree_leaves(program(x)), tree_leaves(compiled(x))
            assert len(want) == len(got)
            for a, b in zip(want, got, strict=True):
                assert type(a) is type(b)
                torch.testing.assert_close(b, a)
    assert len(compiled.compiled.specializations) == 1 and not refused


def test_sizes_may_vary_beside_data() -> None:
    for program in (masked, sliced, nonzero):
        compiled: Any = torchjit.compile(program, backend="aot_eager", fullgraph=True)
        for n in (4, 5, 9):
            x = torch.arange(n) % 4 + 1
            torch.testing.assert_close(tree_leaves(compiled(x)), tree_leaves(program(x)))
        assert len(compiled.compiled.specializations) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_through_a_mask(backend: str) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x[x > 0] * 3).sin().sum()

    compiled = torchjit.compile(loss, backend=backend, fullgraph=True)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(6, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        loss(x).backward()
        compiled(y).backward()
        torch.testing.assert_close(y.grad, x.grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stated_fact_that_fails_is_a_clear_error(backend: str) -> None:
    compiled = torchjit.compile(checked, backend=backend, fullgraph=True)
    compiled(torch.tensor([5, 2]))
    with pytest.raises(RuntimeError, match="too big: 101"):  # plain Python says it
        compiled(torch.tensor([101, 2]))


def test_a_decision_on_data_says_what_to_do() -> None:
    def decides(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x[0].item() > 3 else x

    with pytest.raises(torchjit.exc.Unsupported, match=r"(?s)TJ-GRD-003.*torch\._check"):
        torchjit.compile(decides, backend="eager", fullgraph=True)(torch.tensor([1, 2]))
    compiled = torchjit.compile(decides, backend="eager")
    for data in ([1, 2], [5, 2]):
        torch.testing.assert_close(compiled(torch.tensor(data)), decides(torch.tensor(data)))


def test_without_the_settings_they_break() -> None:
    with torchjit.config.patch(capture_scalar_outputs=False, capture_dynamic_output_shape_ops=False):
        for program, reason in ((item, "TJ-FX-001"), (nonzero, "TJ-FX-002")):
            compiled: Any = torchjit.compile(program, backend="eager")
            compiled(torch.tensor([2, 3]))
            assert [r.reason.id for s in compiled.compiled.specializations for r in s.breaks] == [reason]


def test_squeeze_of_a_size_from_data_breaks() -> None:
    def squeezed(x: torch.Tensor) -> torch.Tensor:
        return x[x > 1].squeeze()

    compiled = torchjit.compile(squeezed, backend="aot_eager")
    for data in ([2, 3, 1], [2, 1, 1], [1, 1, 1]):
        x = torch.tensor(data)
        torch.testing.assert_close(compiled(x), squeezed(x))
