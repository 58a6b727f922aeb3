"""Random graphs of pointwise ops, views, reductions and matrix products against eager in float64."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from inductor_fuzz import FLOATS, INTS, Tape, describe, program
from inductor_fuzz import check as fuzzed
from inductor_random import difference
from inductor_testing import cache_dir, flat, trace

from torchjit_inductor import Inductor, InductorSettings

Tensor = torch.Tensor


def _broadcastable(a: Tensor, b: Tensor) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a.shape), reversed(b.shape)))


def _pointwise(x: Tensor, rng: random.Random) -> Tensor:
    choices: list[Callable[[Tensor], Tensor]] = [
        torch.tanh, torch.sigmoid, torch.relu, torch.abs, torch.sin, lambda t: t * 1.5, lambda t: t + 0.25,
        lambda t: t.clamp(-1, 1), lambda t: torch.where(t > 0.1, t, t * 0.1), lambda t: torch.exp(-t * t),
        lambda t: torch.sqrt(t * t + 1), lambda t: torch.nn.functional.gelu(t),
    ]  # fmt: skip
    return rng.choice(choices)(x)


def _binary(x: Tensor, y: Tensor, rng: random.Random) -> Tensor:
    choices: list[Callable[[Tensor, Tensor], Tensor]] = [
        torch.add, torch.sub, torch.mul, torch.maximum, lambda a, b: a / (b * b + 1), lambda a, b: torch.where(a > b, a, b * 0.5),
    ]  # fmt: skip
    return rng.choice(choices)(x, y)


def _view(x: Tensor, rng: random.Random) -> Tensor:
    if x.dim() == 0:
        return x.reshape(1)
    dim = rng.randrange(x.dim())
    kind = rng.randrange(9)
    if kind == 0 and x.dim() > 1:
        order = list(range(x.dim()))
        rng.shuffle(order)
        return x.permute(order)
    if kind == 1:
        return x.reshape(-1)
    if kind == 2 and x.shape[dim] % 2 == 0 and x.dim() < 4:
        return x.reshape(*x.shape[:dim], 2, x.shape[dim] // 2, *x.shape[dim + 1 :])
    if kind == 3 and x.dim() > 1:
        d = rng.randrange(x.dim() - 1)
        return x.reshape(*x.shape[:d], x.shape[d] * x.shape[d + 1], *x.shape[d + 2 :])
    if kind == 4 and x.shape[dim] > 2:
        return x.narrow(dim, 1, x.shape[dim] - 1)
    if kind == 5:
        return torch.cat([x, x * 0.5], dim) if x.numel() < 4000 else x
    if kind == 6:
        return torch.nn.functional.pad(x, (1, 2), value=0.5) if x.numel() < 4000 else x
    if kind == 7:
        return x.flip(dim)
    return x.unsqueeze(dim).expand(*x.shape[:dim], 3, *x.shape[dim:]) if x.numel() < 2000 and x.dim() < 4 else x


def _reduction(x: Tensor, rng: random.Random) -> Tensor:
    if x.dim() == 0:
        return x + 1
    dim, keep = rng.randrange(x.dim()), rng.random() < 0.6
    choices: list[Callable[[Tensor], Tensor]] = [
        lambda t: t.sum(dim, keepdim=keep) * 0.1, lambda t: t.mean(dim, keepdim=keep), lambda t: t.amax(dim, keepdim=keep),
        lambda t: t.softmax(dim), lambda t: t.var(dim, keepdim=keep, correction=0), lambda t: t.log_softmax(dim),
        lambda t: torch.nn.functional.layer_norm(t, t.shape[-1:]), lambda t: t.mean(),
    ]  # fmt: skip
    return rng.choice(choices)(x)


def random_program(seed: int) -> tuple[Callable[..., list[Tensor]], tuple[Tensor, ...]]:
    """A function and its inputs. The function makes the same choices whatever tensors it gets."""
    generator = torch.Generator().manual_seed(seed)
    rng = random.Random(seed)
    shapes = [tuple(rng.choice([1, 2, 3, 4, 6, 8, 16, 17, 33]) for _ in range(rng.randrange(1, 4))) for _ in range(3)]
    inputs = tuple(torch.randn(s, generator=generator) for s in shapes)
    if rng.random() < 0.4:
        inputs = tuple(t.transpose(0, -1).contiguous().transpose(0, -1) for t in inputs)
    length = rng.randrange(4, 18)

    def fn(*tensors: Tensor) -> list[Tensor]:
        rng = random.Random(seed + 1)
        live = list(tensors)
        for _ in range(length):
            x, y, kind = rng.choice(live[-6:]), rng.choice(live), rng.random()
            if kind < 0.3:
                made = _pointwise(x, rng)
            elif kind < 0.5 and _broadcastable(x, y) and max(x.numel(), y.numel()) < 20000:
                made = _binary(x, y, rng)
            elif kind < 0.75:
                made = _view(x, rng)
            elif kind < 0.93:
                made = _reduction(x, rng)
            elif x.dim() == 2 and x.numel() < 4000:
                made = x @ x.t() * 0.1
            else:
                made = _pointwise(x, rng)
            live.append(made)
        return [t + 0 for t in live[-4:]]

    return fn, inputs


def compare(seed: int, mode: str) -> None:
    fn, inputs = random_program(seed)
    graph = Inductor(InductorSettings(cache_dir=cache_dir(), race_matmuls=False))(trace(fn, inputs, mode), inputs)
    assert graph.source, graph.reason_not_recordable
    exact = fn(*(t.double() for t in inputs))
    for k, (got, want) in enumerate(zip(flat(graph(*inputs)), exact)):
        scale = max(1.0, want.abs().max().item()) if want.numel() else 1.0
        torch.testing.assert_close(
            got.double(),
            want,
            rtol=2e-4,
            atol=2e-4 * scale,
            msg=f"seed {seed}, output {k}: {got} instead of {want}\n{graph.source}",
        )


def test_random_graphs() -> None:
    for seed in range(8):
        compare(seed, "fake")


@pytest.mark.slow
def test_many_random_graphs() -> None:
    for seed in range(1000, 1400):
        compare(seed, "fake")


def _differences(first: int, count: int) -> list[str]:
    inductor = Inductor(InductorSettings(cache_dir=cache_dir(), race_matmuls=False))
    found = [difference(seed, inductor) for seed in range(first, first + count)]
    return [text for text in found if text]


def test_random_programs_over_several_dtypes() -> None:
    """Indexing, scatters, scans, integers and bools; `inductor_random.py` runs many more."""
    assert not _differences(0, 8)


@pytest.mark.slow
def test_many_random_programs_over_several_dtypes() -> None:
    assert not _differences(8, 2000)


def test_generated_programs() -> None:
    """All dtypes, gradients, symbolic sizes and strides; `benchmarks/fuzz.py` runs many more."""
    found = {number: fuzzed(number, cache_dir()) for number in range(4)}
    assert not {number: text for number, text in found.items() if text.startswith("wrong")}


TAPES = st.tuples(st.binary(min_size=48, max_size=48), st.binary(min_size=192, max_size=192), st.binary(max_size=4))
"""The choices of inputs, of steps and of settings."""


def _check_chosen(tapes: tuple[bytes, ...]) -> None:
    """Hypothesis looks for the simplest program that is wrong, and prints it."""

    def chooser(number: int) -> Tape:
        return Tape(tapes[number])

    found = fuzzed(0, cache_dir(), chooser)
    if found.startswith("wrong"):
        note(describe(0, cache_dir(), chooser))
    assert not found.startswith("wrong"), found


@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
@given(TAPES)
def test_chosen_programs(tapes: tuple[bytes, ...]) -> None:
    _check_chosen(tapes)


@pytest.mark.slow
@settings(max_examples=500, deadline=None, suppress_health_check=[*HealthCheck])
@given(TAPES)
def test_many_chosen_programs(tapes: tuple[bytes, ...]) -> None:
    _check_chosen(tapes)


def test_programs_have_inputs_of_all_kinds() -> None:
    inputs = [made.value for number in range(400) for made in program(number)[1]]
    assert {t.dtype for t in inputs} == {*FLOATS, *INTS, torch.bool}
    for dtype in (*FLOATS, *INTS, torch.bool):
        held = [t for t in inputs if t.dtype == dtype]
        assert any(not t.dim() for t in held)
        assert any(1 in t.shape for t in held)
        assert any(t.numel() and not t.is_contiguous() and 0 not in t.stride() for t in held)
        assert any(t.numel() and 0 in t.stride() for t in held)
    for kind in (FLOATS, INTS):
        assert any(0 in t.shape for t in inputs if t.dtype in kind)


@pytest.mark.slow
def test_many_generated_programs() -> None:
    found = {number: fuzzed(number, cache_dir()) for number in range(1000, 1500)}
    assert not {number: text for number, text in found.items() if text.startswith("wrong")}


def test_strides_that_are_no_products_of_sizes() -> None:
    """`make_fx` gives such a stride a symbol of its own, which the host program must read."""
    inputs = [torch.randn(9, 32)[:, ::2], torch.randn(10, 7, 3).permute(2, 0, 1)[:, ::2]]
    graph = Inductor(InductorSettings(cache_dir=cache_dir()))(
        trace(lambda x, y: [x.t().sin(), y + 1], inputs, "symbolic"), inputs
    )
    assert graph.source
    for other in (inputs, [torch.randn(4, 50)[:, ::5], torch.randn(12, 8, 6).permute(2, 0, 1)[:, ::3]]):
        for got, want in zip(graph(*other), [other[0].t().sin(), other[1] + 1]):
            torch.testing.assert_close(got, want)
