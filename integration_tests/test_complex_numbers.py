"""Complex numbers on our backends: aten computes with them, and what comes out of them is real again."""

# mypy: allow-untyped-calls

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import torchjit
from torchjit_core import events

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sums": lambda u: u.sum(0) * u.mean(1) + u.cumsum(1).prod(0) + u.std(),
    "sum of its absolute values": lambda u: u.abs().sum(1) + torch.view_as_real(u).sum((1, 2)),
    "imaginary part of a conjugate": lambda u: u.conj().imag + 1,
    "and of an adjoint": lambda u: (u.mH.imag * u.imag).sum(0),
    "copied": lambda u: u.conj().imag.clone().exp(),
    "of a product": lambda u: (u.mH @ u).imag.sin(),
    "conjugate, resolved and seen as real": lambda u: torch.view_as_real(u.conj().resolve_conj()).sin(),
    "real part of a product with a conjugate": lambda u: (u.mean(0) * u.conj()).real,
    "transformed": lambda u: torch.fft.fft(u.conj()).imag.sin(),
    "polar": lambda u: torch.polar(u.abs(), u.angle()).conj().imag,
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    compiled = torchjit.compile(program, backend=backend, on_error="raise")
    values = torch.randn(3, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    seen = []
    for function in (program, compiled):
        u = values.clone().requires_grad_()
        out = function(u)
        out.abs().sum().backward()
        seen.append((out.detach(), u.grad))
    torch.testing.assert_close(seen[1], seen[0])


def _written(view: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Any]:
    def program(r: Tensor) -> Any:
        x = r * 2
        made = view(x)
        made.add_(3)
        return x, made * 1

    return program


WRITTEN = {
    "conjugate of a view as complex": _written(lambda x: torch.view_as_complex(x).conj()),
    "its imaginary part": _written(lambda x: torch.view_as_complex(x).conj().imag),
    "conjugate of other bits": _written(lambda x: x.view(torch.complex64).conj()),
    "bits of negated numbers": _written(lambda x: torch._neg_view(x.view(torch.float32))),
    "real numbers of negated ones": _written(lambda x: torch._neg_view(torch.view_as_complex(x)).conj().real),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", WRITTEN)
def test_writes_through_lazy_views_of_other_types(name: str, backend: str) -> None:
    program, r = WRITTEN[name], torch.arange(12.0).view(2, 3, 2)
    compiled = torchjit.compile(program, backend=backend, on_error="raise", fullgraph=True)
    for want, got in zip(program(r), compiled(r), strict=True):
        assert torch.equal(got, want)


def _values() -> Tensor:
    return torch.randn(3, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))


LAZY: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor, Tensor], Any]]] = {
    "conjugated": (lambda: _values().conj(), lambda z, x: (z * x, z.imag * x, z[1:])),
    "negated": (lambda: _values().conj().imag, lambda z, x: z * x + z),
    "both": (lambda: torch._neg_view(_values().conj()), lambda z, x: (z * x + 1, z.real)),
    "adjoint": (lambda: _values().mH, lambda z, x: z @ z.mH + x),
    "written": (lambda: _values().conj().imag, lambda z, x: z.add_(x).sum()),
    "returned": (lambda: _values().conj(), lambda z, x: (z, z.conj(), z.t())),
    "of a leaf": (lambda: _values().requires_grad_().conj(), lambda z, x: (z * x).abs().sum()),
    "a leaf": (lambda: _values().conj().requires_grad_(), lambda z, x: (z * x).abs().sum()),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", LAZY)
def test_inputs_that_are_conjugated_or_negated_lazily(name: str, backend: str) -> None:
    make, program = LAZY[name]
    compiled = torchjit.compile(program, backend=backend, fullgraph=True)
    left: list[Any] = []
    for _ in range(2):
        seen = []
        for function in (program, compiled):
            z, x = make(), torch.arange(3.0).requires_grad_("leaf" in name)
            if z.requires_grad:
                z.retain_grad()
            with events.listen(lambda kind, fields: left.append(fields) if kind == "fallback" else None):
                results = [*tree_leaves(function(z, x)), z]
            if name.endswith("leaf"):
                results[0].backward()
                results += [z.grad, x.grad]
            seen.append(([t.detach() for t in results], [(t.is_conj(), t.is_neg(), t.stride()) for t in results]))
        assert seen[0][1] == seen[1][1]
        for want, got in zip(seen[0][0], seen[1][0], strict=True):
            torch.testing.assert_close(got.resolve_conj().resolve_neg(), want.resolve_conj().resolve_neg())
    assert not left


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_writes_through_a_negative_view(backend: str) -> None:
    def program(u: Tensor) -> tuple[Tensor, Tensor]:
        u = u.clone()
        part = u.conj().imag
        part.add_(1)
        part[0] = 5
        return u, part * 2

    u = torch.randn(3, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    compiled = torchjit.compile(program, backend=backend, on_error="raise")
    torch.testing.assert_close(compiled(u), program(u))


RESHAPED: dict[str, Callable[[Tensor], Any]] = {
    "transposed": lambda z: (z.t_(), z * 2),
    "written first": lambda z: (z.mul_(2).unsqueeze_(0), z),
    "as_strided_": lambda z: torch.as_strided_(z, (2, 2), (1, 2)) + 1,
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("lazy", ["conjugated", "negated", "both"])
@pytest.mark.parametrize("name", RESHAPED)
def test_sizes_of_lazy_inputs_changed_in_place(name: str, lazy: str, backend: str) -> None:
    make, program = LAZY[lazy][0], RESHAPED[name]
    compiled = torchjit.compile(program, backend=backend, on_error="raise")
    for _ in range(2):
        want, got = ([*tree_leaves(function(z := make())), z] for function in (program, compiled))
        for left, right in zip(want, got, strict=True):
            assert (left.is_conj(), left.is_neg(), left.stride()) == (right.is_conj(), right.is_neg(), right.stride())
            torch.testing.assert_close(right.resolve_conj().resolve_neg(), left.resolve_conj().resolve_neg())


def test_asking_whether_eager_refuses_a_dtype_says_nothing() -> None:
    """It is asked with tensors of one element, of whose deviation torch warns."""
    u = torch.randn(3, 3, dtype=torch.complex128)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torchjit.compile(lambda u: u.std(), backend="eager")(u)
