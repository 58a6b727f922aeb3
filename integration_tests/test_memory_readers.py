"""Programs that read the memory of a computed value find it as in eager mode, whatever layout is chosen for convolutions."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchjit
from torchjit_inductor import layouts


@torch.library.custom_op("torchjit_tests::memory_of", mutates_args=())
def memory_of(x: Tensor) -> Tensor:
    return torch.as_strided(x.detach(), (x.numel(),), (1,)).clone()


@memory_of.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.numel())


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 1)
        self.up = nn.ConvTranspose2d(16, 16, 2, stride=2)


def _padded(net: Any, x: Tensor) -> Any:
    y = F.pad(net.conv(x), (1, 1, 1, 1))
    a, b, c, d = y.stride()
    return y.as_strided((y.shape[0], 16, 2, 5, 6), (a, b, 4 * c, d, c)).contiguous(), y.sum(1)


def _upscaled(net: Any, x: Tensor) -> Any:
    y = net.up(x).relu()
    return y.as_strided((60,), (3,), 2) * 2, y.mean()


def _through_a_view(net: Any, x: Tensor) -> Any:
    y = net.conv(x).relu().transpose(1, 2)[:, 1:]
    return y.as_strided((100,), (1,), 7).sin(), y.sum(1)


def _by_a_custom_operator(net: Any, x: Tensor) -> Any:
    y = net.conv(x)
    return torch.ops.torchjit_tests.memory_of(y.detach()), y.relu()


def _written_by_place(net: Any, x: Tensor) -> Any:
    y = net.conv(x).sigmoid().clone()
    y.as_strided((20,), (7,))[3:9] = 9.0
    return y.cos(), y.sum(1)


def _as_other_numbers(net: Any, x: Tensor) -> Any:
    y = net.conv(x)
    return y.detach().view(torch.int32)[0, 3] >> 16, y.sum(1)


PROGRAMS: list[Callable[..., Any]] = [_padded, _upscaled, _through_a_view, _by_a_custom_operator, _written_by_place, _as_other_numbers]  # fmt: skip


def _all(net: Any, x: Tensor) -> list[Tensor]:
    return [result for program in PROGRAMS for result in program(net, x)]


@pytest.mark.parametrize(
    ("layout", "dynamic", "training"),
    [("rows", None, False), ("rows", None, True), ("rows", True, True), ("channels last", None, False), ("transposed", None, True)],
)  # fmt: skip
def test_memory_is_as_in_eager_mode(
    layout: str, dynamic: bool | None, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "GAIN", 1e9)  # the race is won by the layout that is not the given one
    torch.manual_seed(0)
    net, x = _Net(), torch.randn(4, 16, 12, 12)
    x = x.to(memory_format=torch.channels_last) if layout == "channels last" else x
    x = x.transpose(2, 3) if layout == "transposed" else x
    compiled = torchjit.compile(_all, dynamic=dynamic)
    found = []
    for f in (_all, compiled):
        given = x.clone(memory_format=torch.preserve_format).requires_grad_(training)
        net.zero_grad()
        with torch.set_grad_enabled(training):
            results = f(net, given)
        grads: list[Any] = []
        if training:
            weighted = [(r * torch.arange(r.numel()).view(r.shape).fmod(7)).sum() for r in results if r.requires_grad]
            torch.stack(weighted).sum().backward()
            grads = [given.grad, *(p.grad for p in net.parameters())]
        found.append(([r.detach() for r in results], grads, [r.stride() for r in results]))
    (want, want_grads, strides), (got, grads, got_strides) = found
    for k, (a, b) in enumerate(zip(want, got, strict=True)):
        tolerance = {"atol": 1e-4, "rtol": 1e-4} if a.is_floating_point() else {"atol": 1, "rtol": 0}
        torch.testing.assert_close(b, a, **tolerance, msg=lambda text, k=k: f"{PROGRAMS[k // 2].__name__}: {text}")
    torch.testing.assert_close(grads, want_grads, atol=1e-3, rtol=1e-4)
    assert got_strides == strides
