"""Indices that are numbers which vary: one compilation serves them, and reads and writes what eager PyTorch does."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import torchjit

CHOSEN = torch.tensor([2, 0])
SEVEN = torch.full((1, 1), 7.0)
MASK = torch.tensor([True, False, True, True, False, False])
READS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "first": lambda x, i: x[i] * 2,
    "a view": lambda x, i: (x[i], x[i] is not x),
    "two": lambda x, i: x[i, i - 1] + x[1, i],
    "behind a slice": lambda x, i: x[1:, i] * 2,
    "behind an ellipsis": lambda x, i: x[..., i, :2] + x[i, ..., 1, None],
    "with None": lambda x, i: (x[None, i, None], x[i, None].stride(), x[CHOSEN, None, i] + 1),
    "beside chosen rows": lambda x, i: (x[CHOSEN, i], x[i, CHOSEN] * 2, x[:, i, CHOSEN]),
    "beside a mask": lambda x, i: x[MASK, i] + 1,
    "behind a mask of two dimensions": lambda x, i: x[x[..., 0] > 50, i],
    "computed": lambda x, i: (x[-i] + 1, x[i // 2 : i, i] * 2),
}


def assign(x: torch.Tensor, i: int) -> Any:
    y = x.clone()
    y[i] = 1.0
    y[:, i] = y[:, 0] + 1
    y[1, i] += 3
    y[i, 1, i] = SEVEN
    y[CHOSEN, i] = 5.0
    x[0, i] = -1.0
    return y


WRITES = {"assigned": assign}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_one_compilation_serves_all_places(name: str, backend: str) -> None:
    program = {**READS, **WRITES}[name]
    compiled: Any = torchjit.compile(program, backend=backend, fullgraph=True)
    with torchjit.config.patch(capture_dynamic_output_shape_ops="mask" in name):
        for i in (2, 3, 4, 5, -2, -3):
            x = torch.arange(216.0).reshape(6, 6, 6)
            y = x.clone()
            want, got = tree_leaves(program(x, i)), tree_leaves(compiled(y, i))
            for a, b in zip([*want, x], [*got, y], strict=True):
                torch.testing.assert_close(b, a, check_stride="mask" not in name)
    assert len(compiled.compiled.specializations) <= 3  # the sign is decided, too


def test_gradients_and_places_out_of_range() -> None:
    def program(x: torch.Tensor, i: int) -> torch.Tensor:
        return (x[i] * x[:, i]).sum()

    compiled = torchjit.compile(program, backend="aot_eager")
    for i in (1, 2, 3, -1, 2):
        x = torch.arange(16.0).reshape(4, 4).requires_grad_()
        y = x.detach().clone().requires_grad_()
        program(x, i).backward()
        compiled(y, i).backward()
        torch.testing.assert_close(y.grad, x.grad)
    for i in (4, 9, -5):
        with pytest.raises(IndexError, match=f"index {i} is out of bounds for dimension 0 with size 4"):
            compiled(x, i)


def test_places_out_of_range_are_caught_where_eager_raises() -> None:
    def program(x: torch.Tensor, i: int) -> Any:
        try:
            return x[i] * 2
        except IndexError as error:
            return str(error)

    for backend in ("eager", "inductor"):
        compiled = torchjit.compile(program, backend=backend)
        x = torch.arange(12.0).view(3, 4)
        for i in (1, 2, 3, 5, -3, -4, 0):
            want, got = program(x, i), compiled(x, i)
            assert got == want if isinstance(want, str) else torch.equal(got, want)


def write_behind_a_view(x: torch.Tensor, t: torch.Tensor) -> Any:
    row = x[t.item()]
    chosen = row[CHOSEN]
    total = row.sum()
    x.mul_(2)
    return chosen, total


def write_through_a_view(x: torch.Tensor, t: torch.Tensor) -> Any:
    k = t.item()
    x[k].mul_(2)
    total = x.sum(0)
    x[k].add_(1)
    return total, x[k] * 1


@pytest.mark.parametrize("program", [write_behind_a_view, write_through_a_view])
@pytest.mark.parametrize("dynamic", [None, True])
def test_views_at_numbers_of_the_run_are_read_before_what_they_show_is_written(program: Any, dynamic: Any) -> None:
    """A view that an operator made is another name of the memory: kernels must not change places over it."""
    with torchjit.config.patch(capture_scalar_outputs=True, on_error="raise"):
        compiled = torchjit.compile(program, dynamic=dynamic, fullgraph=True)
        for number in (2, 0, -1):
            x = torch.arange(12.0).view(3, 4)
            y, t = x.clone(), torch.tensor(number)
            for a, b in zip((*program(x, t), x), (*compiled(y, t), y), strict=True):
                torch.testing.assert_close(b, a)


def row_or_zero(x: torch.Tensor, t: torch.Tensor) -> Any:
    try:
        return x[t.item()] * 2
    except IndexError:
        return x[0] * 0


SLICES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "end": lambda x, t: x[: t.item()] * 2,
    "start": lambda x, t: x[t.item() :] * 2,
    "both": lambda x, t: x[1 : t.item()].sum() + x[t.item() : 8].sum(),
    "from the back": lambda x, t: x[-t.item() :] + 1,
    "window": lambda x, t: x[t.item() : t.item() + 3] + 1,
    "step": lambda x, t: x[t.item() :: 2] + 1,
    "length": lambda x, t: x[: t.item()].shape[0] * 2,
    "row": lambda x, t: x[t.item()] * 2,
    "tensors": lambda x, t: (x[:t] * 2, x.view(5, 2)[1:, :t]),
    "view": lambda x, t: x[: t.item()],
    "rejoined": lambda x, t: torch.cat([x[: t.item()], x[t.item() :]]) * 2,
    "written": lambda x, t: x[t.item() :].mul_(2).sum(),
    "caught": row_or_zero,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", SLICES)
def test_slices_by_numbers_that_only_the_run_knows(name: str, backend: str) -> None:
    program = SLICES[name]
    with torchjit.config.patch(capture_scalar_outputs=True, on_error="raise"):
        compiled: Any = torchjit.compile(program, backend=backend, fullgraph=name != "caught")
        for number in (3, 5, 0, 9, 1, -2, 13, -20):
            x = torch.arange(10.0)
            y, t = x.clone(), torch.tensor(number)
            try:
                want = program(x, t)
            except IndexError as error:
                with pytest.raises(IndexError, match=str(error)[:20]):
                    compiled(y, t)
                continue
            for a, b in zip(tree_leaves((want, x)), tree_leaves((compiled(y, t), y)), strict=True):
                torch.testing.assert_close(b, a)
        assert len(compiled.compiled.specializations) <= (1 if name != "caught" else 4)


def test_of_one_row_it_may_be_none() -> None:
    def program(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        k = t.item()
        torch._check(k >= 0)
        return x[:1][:k] * 2

    with torchjit.config.patch(capture_scalar_outputs=True):
        compiled = torchjit.compile(program, backend="aot_eager", fullgraph=True)
        for k in (0, 1, 4):
            torch.testing.assert_close(
                compiled(torch.ones(3), torch.tensor(k)), program(torch.ones(3), torch.tensor(k))
            )


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_gradients_through_slices_whose_ends_are_computed(backend: str) -> None:
    """The backward is given a difference of two numbers, and neither of them."""

    def program(x: torch.Tensor, t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        n, m = t.item(), u.item()
        return x[n - m : -n].sum(0) * 2

    with torchjit.config.patch(capture_scalar_outputs=True):
        compiled = torchjit.compile(program, backend=backend, fullgraph=True)
        for n, m in ((3, 1), (2, 4), (1, 1)):
            x = torch.arange(36.0).reshape(6, 6).requires_grad_()
            y = x.detach().clone().requires_grad_()
            t, u = torch.tensor(n), torch.tensor(m)
            program(x, t, u).sum().backward()
            compiled(y, t, u).sum().backward()
            torch.testing.assert_close(y.grad, x.grad)
