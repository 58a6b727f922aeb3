"""Inputs that share memory while one of them is written to: one base in the graph, views of it for them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from aot_harness import STRICT, graph_of, loss_of, tensors

import torchjit_aot
from torchjit_aot import AotSettings, run_eagerly
from torchjit_aot.overlap import overlaps_partly
from torchjit_core.reasons import GraphBreak

Make = Callable[[], list[torch.Tensor]]


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


LAYOUTS: dict[str, Make] = {
    "halves": lambda: (lambda t: [t[:4], t[4:]])(numbers(8)),
    "overlapping": lambda: (lambda t: [t[:5], t[3:]])(numbers(8)),
    "base_and_views": lambda: (lambda t: [t, t[1], t.t()])(numbers(3, 4)),
    "columns": lambda: (lambda t: [t[:, 1], t[:, ::2], t[1:, 1:].t()])(numbers(3, 4)),
    "with_an_offset": lambda: (lambda t: [t[1:9].view(2, 4), t[5:7]])(numbers(20)[3:]),
}


def write_first(a: torch.Tensor, b: torch.Tensor, *more: torch.Tensor) -> Any:
    a.mul_(2)
    return a.sum() + b.sum(), b * 1


def write_both(a: torch.Tensor, b: torch.Tensor, *more: torch.Tensor) -> Any:
    b.add_(1)
    a.add_(1)
    return a[1:], b, a.sum()


def write_through_a_view(a: torch.Tensor, b: torch.Tensor, *more: torch.Tensor) -> Any:
    v = b.view(-1) if b.is_contiguous() else b[...]
    a.zero_()
    v.add_(3)
    return v, a * b.sum(), b.reshape(-1)


def reshape_and_write(a: torch.Tensor, b: torch.Tensor, *more: torch.Tensor) -> Any:
    a.copy_(a * 2 + b.sum())
    b.unsqueeze_(0)
    b.add_(1)
    return b


def one_reads_the_other(a: torch.Tensor, b: torch.Tensor, *more: torch.Tensor) -> Any:
    a.add_(b[..., :1].clone().sum())
    return a.clone(), b.clone()


PROGRAMS = [write_first, write_both, write_through_a_view, reshape_and_write, one_reads_the_other]


def observe(run: Callable[..., Any], make: Make, *, grad: bool) -> Any:
    """What a user sees of a call: results, who they are, inputs, versions, the weight's gradient."""
    args, w = make(), torch.ones(1, requires_grad=grad)
    versions = [t._version for t in args]
    outputs = tensors(run(*args, w))
    shares = [[t.untyped_storage()._cdata == o.untyped_storage()._cdata for t in args] for o in outputs]
    same = [[t is o for t in args] for o in outputs]
    loss = loss_of(outputs)
    if loss is not None:
        loss.backward()  # type: ignore[no-untyped-call]
    moved = [t._version != v for t, v in zip(args, versions, strict=True)]
    values = [(t.tolist(), t.stride(), t.storage_offset()) for t in (*(o.detach() for o in outputs), *args)]
    return values, shares, same, moved, None if w.grad is None else w.grad.tolist()


def scaled(f: Callable[..., Any]) -> Callable[..., Any]:
    def g(*args: torch.Tensor) -> Any:
        made = f(*args[:-1])
        return made, tensors(made)[0].detach() * args[-1]

    return g


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("f", PROGRAMS)
@pytest.mark.parametrize("grad", [False, True])
def test_equals_eager(layout: str, f: Callable[..., Any], grad: bool) -> None:
    make, g = LAYOUTS[layout], scaled(f)
    example = [*make(), torch.ones(1, requires_grad=grad)]
    compiled = torchjit_aot.compile(graph_of(g, len(example)), example, compiler=run_eagerly, settings=STRICT)
    for _ in range(2):
        assert observe(compiled, make, grad=grad) == observe(g, make, grad=grad)


@pytest.mark.parametrize("grad", [False, True])
def test_other_calls_with_the_same_sizes(grad: bool) -> None:
    """The graph knows how its inputs lie to each other; calls where they lie otherwise are left to eager PyTorch."""
    g = scaled(write_both)
    example = [*LAYOUTS["halves"](), torch.ones(1, requires_grad=grad)]
    compiled = torchjit_aot.compile(graph_of(g, 3), example, compiler=run_eagerly, settings=STRICT)
    others: list[Make] = [
        lambda: [numbers(4), numbers(4) + 10],
        lambda: (lambda t: [t[4:], t[:4]])(numbers(8)),
        lambda: (lambda t: [t[2:6], t[6:]])(numbers(10)),
        lambda: (lambda t: [t[:4], t[2:6]])(numbers(8)),
        lambda: (lambda t: [t, t])(numbers(4)),
    ]
    for make in (*others, LAYOUTS["halves"]):
        assert observe(compiled, make, grad=grad) == observe(g, make, grad=grad)


def test_a_third_input_that_comes_to_share_the_memory() -> None:
    def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
        a.add_(1)
        return b * 2, c * 3

    apart: Make = lambda: (lambda t: [t[:4], t[4:], numbers(4)])(numbers(8))  # noqa: E731
    together: Make = lambda: (lambda t: [t[:4], t[4:], t[2:6]])(numbers(8))  # noqa: E731
    g = scaled(f)
    example = [*apart(), torch.ones(1)]
    compiled = torchjit_aot.compile(graph_of(g, 4), example, compiler=run_eagerly, settings=STRICT)
    for make in (apart, together):
        assert observe(compiled, make, grad=False) == observe(g, make, grad=False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: (lambda t: [t, t.data[1:]])(numbers(6)),  # its own version counter
        lambda: (lambda t: [t, t[1:].view(torch.int32)])(numbers(6)),
        lambda: (lambda t: [t[:2], t[99998:]])(numbers(100000)),  # far apart: the graph would copy all between
        lambda: (lambda t: [t, t[:1].expand(3)])(numbers(6)),
    ],
)
def test_what_is_left_to_eager(make: Make) -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        a.mul_(2)
        return b + 1

    with pytest.raises(GraphBreak, match="TJ-AOT-003"):
        torchjit_aot.compile(graph_of(f, 2), make(), compiler=run_eagerly, settings=STRICT)
    mine, theirs = make(), make()
    run = torchjit_aot.compile(graph_of(f, 2), make(), compiler=run_eagerly, settings=AotSettings())
    assert torch.equal(run(*mine), f(*theirs))
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_a_write_to_a_part_of_what_is_read_raises_as_in_eager() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        y[1:].add_(y[:-1])
        return y

    with pytest.raises(RuntimeError) as wanted:
        f(numbers(4))
    run = torchjit_aot.compile(graph_of(f, 1), [numbers(4)], compiler=run_eagerly)
    with pytest.raises(RuntimeError) as found:
        run(numbers(4))
    assert str(found.value) == str(wanted.value)


def test_which_tensors_overlap_partly() -> None:
    generator, places = random.Random(1), torch.arange(60)

    def layout() -> torch.Tensor:
        rank = generator.randint(0, 3)
        sizes = [generator.randint(1, 4) for _ in range(rank)]
        strides = [generator.choice([0, 1, 2, 3, 4, 6, 8]) for _ in range(rank)]
        return places.as_strided(
            sizes, strides, generator.randint(0, 59 - 3 * sum(strides)) if sum(strides) < 20 else 0
        )

    for _ in range(500):
        a, b = layout(), layout()
        if any(
            t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) > 59 for t in (a, b)
        ):
            continue
        geometry = [(t.shape, t.stride(), t.storage_offset()) for t in (a, b)]
        meets = bool(set(a.reshape(-1).tolist()) & set(b.reshape(-1).tolist()))
        assert overlaps_partly(a, b) == (meets and geometry[0] != geometry[1]), geometry


def test_interleaved_views_are_compiled() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        y[..., ::2].mul_(y[..., 1::2])
        y[:, 2:].copy_(y[:, :2])
        return y

    run = torchjit_aot.compile(graph_of(f, 1), [numbers(3, 4)], compiler=run_eagerly, settings=STRICT)
    assert torch.equal(run(numbers(3, 4)), f(numbers(3, 4)))


def test_the_backward_keeps_what_a_write_changes() -> None:
    """Eager PyTorch raises in the backward: the memory that it saved was written through another input."""

    def f(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        out = b * w
        a.add_(1)
        return out

    def run(g: Callable[..., Any]) -> str:
        t, w = numbers(8), torch.ones(4, requires_grad=True)
        with pytest.raises(RuntimeError) as raised:
            g(t[:4], t[2:6], w).sum().backward()
        return str(raised.value)[:80]

    t = numbers(8)
    args = [t[:4], t[2:6], torch.ones(4, requires_grad=True)]
    compiled = torchjit_aot.compile(graph_of(f, 3), args, compiler=run_eagerly)
    assert run(compiled) == run(f)


@pytest.mark.parametrize("rows", [slice(0, 3), slice(1, 4)])
def test_a_view_that_gets_a_history(rows: slice) -> None:
    """Its base gets it, too, which an autograd function with several results cannot do."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.mul_(w)
        return x, w * 2

    run = torchjit_aot.compile(graph_of(f, 2), [numbers(3, 4), torch.ones(4, requires_grad=True)], compiler=run_eagerly)
    found = []
    for g in (f, run):
        base, w = numbers(5, 4), torch.full((4,), 2.0, requires_grad=True)
        g(base[rows], w)
        assert base.requires_grad
        base.sum().backward()  # type: ignore[no-untyped-call]
        found.append((base.detach(), w.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])  # type: ignore[arg-type]
