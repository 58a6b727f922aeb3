"""Numbers and sizes that change between calls: they become inputs, and results stay eager's to the bit."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import torchjit
from torchjit.exc import UserError

BACKENDS = ("eager", "aot_eager", "inductor")
FLOATS = (0.1, 0.25, 3.5, -2.0, 1e-9, 7.0, 0.0, -0.0, math.inf, math.nan)


def same(want: Any, got: Any, *, exact: bool) -> None:
    """Equal, bit by bit where `exact` (generated kernels may contract a multiplication and an addition)."""
    wanted, found = tree_leaves(want), tree_leaves(got)
    assert len(wanted) == len(found)
    for a, b in zip(wanted, found, strict=True):
        if isinstance(a, torch.Tensor):
            options: dict[str, Any] = {"rtol": 0, "atol": 0} if exact else {}
            torch.testing.assert_close(b, a, equal_nan=True, **options)
        else:
            assert type(a) is type(b) and repr(a) == repr(b)


def compilations(fn: Callable[..., Any], calls: Sequence[tuple[Any, ...]], backend: str, **options: Any) -> int:
    """Call the compiled function with each, compare with eager, and count specialisations."""
    compiled: Any = torchjit.compile(fn, backend=backend, on_error="raise", **options)
    for arguments in calls:
        same(fn(*arguments), compiled(*arguments), exact=backend != "inductor")
    specializations = compiled.compiled.specializations
    assert not [record for s in specializations for record in s.breaks]
    return len(specializations)


def scaled(x: torch.Tensor, a: float) -> Any:
    # Whether `clamp` ignores a NaN depends on the version of torch, and on what other limit there is.
    limited = x.clamp(min=-a), x.clamp(max=a), x.clamp_min(a), x.clamp_max(a), x.clamp(a, 3.0), x.clamp(max=math.nan)
    return x * a + (1 - a), x / 3 - a, torch.add(x, x, alpha=a), *limited, torch.addcmul(x, x, x, value=a)


def calculated(x: torch.Tensor, a: float) -> Any:
    b = math.sin(a) * 2 if not math.isinf(a) else a
    return a * 2 + 1, -a, abs(a), x + max(a, 0.5), a / 3 + 2**a, b - 1, min(a, b), a**2


@pytest.mark.parametrize("backend", BACKENDS)
def test_float_arguments_become_inputs(backend: str) -> None:
    x = torch.randn(4, 3)
    assert compilations(scaled, [(x, a) for a in FLOATS], backend) == 2
    finite = [a for a in FLOATS if math.isfinite(a)]
    assert compilations(calculated, [(x, a) for a in finite], backend) <= 3  # math.isinf is decided


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16, torch.bfloat16, torch.float64])
def test_a_float_promotes_as_a_python_number_does(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1]).to(dtype)
    calls = [(x, a) for a in (0.1, 0.3, 1e30)]
    assert (
        compilations(
            lambda x, a: (x * a, x + a, torch.where(x > 0, a, 0.0), x.new_full((2,), 1) * a), calls, "aot_eager"
        )
        == 2
    )


def test_a_branch_on_a_float_is_guarded_not_the_float() -> None:
    def branch(x: torch.Tensor, a: float) -> torch.Tensor:
        if a > 0.05:
            return x * a
        return x - math.floor(a)

    calls = [(torch.ones(2), a) for a in (0.1, 0.2, 0.3, -0.5, -0.7, 0.4, -1.5)]
    # constant, above, below with floor -1, below with floor -2
    assert compilations(branch, calls, "eager") == 4


def test_a_float_that_returns_as_it_came() -> None:
    def through(x: torch.Tensor, a: float) -> Any:
        return x, a, [a, a * 1.0], {"a": a}

    assert compilations(through, [(torch.ones(2), a) for a in FLOATS], "aot_eager") == 2


def test_gradients_flow_past_a_float() -> None:
    def loss(x: torch.Tensor, a: float) -> torch.Tensor:
        return ((x * a).sin() * x.pow(2)).sum() * (a + 1)

    for backend in ("aot_eager", "inductor"):
        compiled: Any = torchjit.compile(loss, backend=backend, on_error="raise")
        for a in (0.5, 0.25, -1.5, 2.0):
            x = torch.linspace(-1, 1, 5, requires_grad=True)
            y = x.detach().clone().requires_grad_()
            loss(x, a).backward()
            compiled(y, a).backward()
            torch.testing.assert_close(y.grad, x.grad)
        assert len(compiled.compiled.specializations) == 2


def test_int_arguments_become_inputs_zero_and_one_too() -> None:
    x = torch.randn(4)
    assert compilations(lambda x, n: (x * n, x + n % 3, n // 2 - 7), [(x, n) for n in range(-3, 6)], "inductor") == 2


class Scheduled(torch.nn.Module):
    """A model that keeps Python numbers which a training loop changes."""

    def __init__(self) -> None:
        super().__init__()
        self.rate, self.step = 0.1, 0
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return self.inner(x) * self.rate + self.step


@pytest.mark.parametrize("backend", BACKENDS)
def test_attributes_that_change_become_inputs(backend: str) -> None:
    model = Scheduled()
    compiled: Any = torchjit.compile(model, backend=backend, on_error="raise")
    for step in range(6):
        model.rate, model.step = 0.1 / (step + 1), step * step
        want = model(torch.ones(2, 3))
        after, model.step = model.step, step * step
        torch.testing.assert_close(compiled(torch.ones(2, 3)), want)
        assert model.step == after and type(model.step) is int
    assert len(compiled._torchjit_door.compiled.specializations) == 2


def test_numbers_stay_inputs_after_a_graph_break() -> None:
    def broken(x: torch.Tensor, a: float, n: int) -> torch.Tensor:
        y = x * a
        torchjit.graph_break()
        return y + a * n

    compiled: Any = torchjit.compile(broken, backend="eager", on_error="raise")
    for step in range(6):
        same(broken(torch.ones(2), step / 3, step), compiled(torch.ones(2), step / 3, step), exact=True)
    assert [len(site.specializations) for site in compiled.compiled.sites] == [2, 2]


def test_an_integer_is_no_float_and_true_is_no_integer() -> None:
    calls = [(torch.tensor([1, 2]), n) for n in (2, 3, 2.0, 3.0, True, False, 4, 5.0)]
    compilations(lambda x, n: (x * n, n), calls, "eager")


def marked(n: int, mark: Callable[..., None], *arguments: Any, **keywords: Any) -> torch.Tensor:
    x = torch.randn(n, 4)
    mark(x, *arguments, **keywords)
    return x


@pytest.mark.parametrize("backend", BACKENDS)
def test_marked_dynamic_is_a_symbol_at_once(backend: str) -> None:
    calls = [(marked(8, torchjit.mark_dynamic, 0),), (torch.randn(3, 4),), (torch.randn(30, 4),)]
    assert compilations(lambda x: (x * 2).sum(-1) + x.shape[0], calls, backend) == 1
    torchjit.reset()
    calls = [(marked(n, torchjit.mark_static),) for n in (3, 4, 5)]
    assert compilations(lambda x: x * 2, calls, backend) == 3


def test_a_mark_that_cannot_hold_names_the_line() -> None:
    def fixes(x: torch.Tensor) -> torch.Tensor:
        return x.view(8, 4) if x.shape[0] == 8 else x  # this line

    def decides(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 16 else x

    for backend in BACKENDS:
        with pytest.raises(UserError, match=r"TJ-GRD-002.*x\.size\(0\) == 8") as caught:
            torchjit.compile(fixes, backend=backend)(marked(8, torchjit.mark_dynamic, 0))
        assert "# this line" in str(caught.value)
        with pytest.raises(UserError, match=r"TJ-GRD-004.*declared at least 2 and at most 64.*x\.size\(0\) <= 16"):
            torchjit.compile(decides, backend=backend)(marked(8, torchjit.mark_dynamic, 0, min=2, max=64))
    assert compilations(fixes, [(marked(8, torchjit.maybe_mark_dynamic, 0),)], "eager") == 1
    with pytest.raises(UserError, match="TJ-API-012.*dimension 2"):
        torchjit.mark_dynamic(torch.ones(2, 2), 2)


def test_a_hole_in_a_declared_range_names_the_line() -> None:
    def thirds(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] % 3 == 1:  # this line
            return x * 2
        return x

    def pairs(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 2, 4)  # this line

    for backend in BACKENDS:
        for program, holes in ((thirds, "leaves out 2"), (pairs, "leaves out 3")):
            with pytest.raises(UserError, match=rf"TJ-GRD-004.*declared at least 2 and at most 64.*{holes}") as caught:
                torchjit.compile(program, backend=backend)(marked(10, torchjit.mark_dynamic, 0, min=2, max=64))
            assert "# this line" in str(caught.value)
    # without a range the decision is a guard
    calls = [(marked(n, torchjit.mark_dynamic, 0),) for n in (10, 13, 11, 40, 12)]
    assert compilations(thirds, calls, "eager") == 2


def test_an_operation_that_fixes_a_marked_size_names_the_line() -> None:
    """The operation decides inside torch, on fake tensors; that is no reason to run it eagerly instead."""

    def adds(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y + torch.ones(8, 4)  # this line

    for backend in BACKENDS:
        with pytest.raises(UserError, match=r"TJ-GRD-002.*x\.size\(0\) == 8") as caught:
            torchjit.compile(adds, backend=backend)(marked(8, torchjit.mark_dynamic, 0))
        assert "# this line" in str(caught.value)
    assert compilations(adds, [(marked(8, torchjit.maybe_mark_dynamic, 0),)], "eager") == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_strides_that_change_become_symbols(backend: str) -> None:
    calls = [(torch.randn(4, width)[:, :5],) for width in (8, 9, 12, 20, 5)]
    # the last one is dense
    assert compilations(lambda x: (x * 2 + 1, x.sum(0), x[1:] @ x.t()), calls, backend) <= 3


@pytest.mark.parametrize("columns", [2, 40])
def test_sums_over_all_rows_but_one(columns: int) -> None:
    """A reduction whose length is a sum of terms: what a thread has to do was computed from only one of them (a division by zero)."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[1:].sum(0, keepdim=True), (x[1:] * 2).amax(0)

    compiled = torchjit.compile(fn, on_error="raise")
    for rows in (3, 5, 6, 8, 9, 2, 300, 5):
        x = torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns)
        same(fn(x), compiled(x), exact=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_copied_into_tensors(backend: str) -> None:
    """They convert as tensors do (`fill_` refuses 300 for uint8)."""

    def fn(x: torch.Tensor, k: Any) -> tuple[torch.Tensor, ...]:
        a, b, c = torch.zeros(3), x.clone(), torch.zeros(3, dtype=torch.uint8)
        a.copy_(True)  # type: ignore[arg-type]
        b[1:].copy_(k)
        c.copy_(300)  # type: ignore[arg-type]
        d = torch.ones(2, dtype=torch.complex64).copy_(1 + 2j)  # type: ignore[arg-type]
        return a, b, c, d, torch.zeros(2, dtype=torch.int32).copy_(2.75), x * b  # type: ignore[arg-type]

    compiled = torchjit.compile(fn, backend=backend, on_error="raise")
    for k in (1, 2, 7, 2.5, -3.25, True, 0):
        grads = []
        for run in (fn, compiled):
            x = torch.tensor([1.5, -2.0, 3.0], requires_grad=True)
            results = run(x, k)
            results[-1].sum().backward()
            grads.append((*results, x.grad))
        same(*grads, exact=True)


def windows_of_windows(
    x: torch.Tensor, blocks: int, step: Callable[[torch.Tensor], torch.Tensor] = lambda x: x.cummax(0).values
) -> torch.Tensor:
    """Partitions rows, then partitions the partitions: each size divides the one before, as in MaxViT."""
    for _ in range(blocks):
        n = x.shape[0]
        group = n // (n // 8)
        cut = step(x[: group * (n // group)].reshape(n // group, group, -1)).transpose(0, 1)
        x = (cut.reshape(cut.shape[0] * cut.shape[1], -1) + 1).sin()
    return x


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_that_become_too_long_to_write_out_are_fixed(backend: str) -> None:
    calls = [(torch.randn(n, 4), 12) for n in (61, 77)]
    assert compilations(windows_of_windows, calls, backend, dynamic=True) == 2
    few = [(torch.randn(n, 4), 2) for n in (61, 77)]
    assert compilations(windows_of_windows, few, backend, dynamic=True) == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_positions_that_become_too_long_to_write_out_are_stored(dynamic: bool) -> None:
    """In one kernel the position of an element was 2.5 times as long with each block: compiling 12 of them did not end (8: 1,500 times as long)."""
    compiled = torchjit.compile(windows_of_windows, dynamic=dynamic, on_error="raise")
    for n in (61, 77) if dynamic else (61,):
        seen = []
        for run in (windows_of_windows, compiled):
            x = torch.linspace(0, 1, n * 4).reshape(n, 4).requires_grad_()
            y = run(x, 8, torch.sin)
            y.sum().backward()
            seen.append((y, x.grad))
        torch.testing.assert_close(*seen)


def test_sizes_that_are_nothing_at_a_usual_size() -> None:
    """What the compiler estimates them at divided by zero: `n // 100` for an image of 64."""

    def f(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        parts = n // 100
        cut = x[: parts * (n // parts)].reshape(parts, n // parts, -1)
        return cut.transpose(0, 1) + 1

    compiled = torchjit.compile(f, dynamic=True, on_error="raise")
    for n in (200, 350, 501):
        x = torch.linspace(0, 1, n * 4).reshape(n, 4)
        torch.testing.assert_close(compiled(x), f(x))


def test_a_marked_size_that_becomes_too_long_is_an_error() -> None:
    x = torch.randn(61, 4)
    torchjit.mark_dynamic(x, 0)
    with pytest.raises(UserError, match="TJ-GRD-002"):
        torchjit.compile(windows_of_windows, backend="eager", on_error="raise")(x, 12)
