"""Norms over groups of few channels that lie side by side: channel by channel first, with all channels in vectors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import check, compiled, flat
from torch import Tensor

aten = torch.ops.aten


def image(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """With its channels innermost; its second dimension is the channels."""
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes))) * 2 + 1
    return x.to(dtype).contiguous(memory_format=torch.channels_last if len(sizes) == 4 else torch.channels_last_3d)


def statistics(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    return list(aten.native_group_norm(x, weight, bias, x.shape[0], x.shape[1], x[0, 0].numel(), 4, 1e-5))


def of_groups(x: Tensor) -> list[Tensor]:
    """Other reductions than norms, and several of them."""
    groups = x.permute(0, 2, 3, 1).view(*x.shape[:1], *x.shape[2:], -1, 4)
    return [groups.sum((1, 2, 4)), groups.amax((1, 2, 4)) - groups.amin((1, 2, 4)), groups.var((1, 2, 4))]


CASES: dict[str, tuple[Callable[..., list[Tensor]], tuple[Tensor, ...]]] = {
    "sizes": (
        lambda two, four, ten, one: [
            F.group_norm(two, 12), F.silu(F.group_norm(four, 8)), F.group_norm(ten, 4).relu(), F.group_norm(one, 2),
        ],
        (image(3, 24, 8, 8), image(2, 32, 9, 11), image(2, 40, 12, 10), image(1, 6, 30, 7)),
    ),
    "what is stored": (
        lambda x, y, w, t: [
            *statistics(x, w, w), x + y, F.group_norm(x + y, 8) * y, F.group_norm(y - t[:, :, None, None], 16, w),
        ],
        (image(2, 32, 9, 9), image(2, 32, 9, 9).add(0.5), torch.rand(32), torch.rand(2, 32)),
    ),
    "layouts": (
        lambda volume, tokens, x: [
            F.group_norm(volume, 8), F.group_norm(tokens.transpose(1, 2), 4).transpose(1, 2), F.group_norm(x, 8).contiguous(),
        ],
        (image(2, 32, 5, 6, 5), torch.randn(2, 80, 24), image(2, 32, 9, 9)),
    ),
    "half precision": (lambda x: [F.group_norm(x, 8).tanh()], (image(2, 32, 9, 9, dtype=torch.bfloat16),)),
}  # fmt: skip


@pytest.mark.parametrize(("name", "width"), [*((name, 32) for name in CASES), ("sizes", 16), ("sizes", 64)])
def test_channels_then_groups(name: str, width: int) -> None:
    function, inputs = CASES[name]
    tol = {"rtol": 1.6e-2, "atol": 1e-2} if name == "half precision" else {"rtol": 1e-4, "atol": 1e-4}
    graph = check(function, inputs, vector_bytes=width, tol=tol, aten=None)
    norms = sum("_apply_" in k.name for k in graph.kernels)
    assert norms == {"sizes": 4, "what is stored": 3, "layouts": 3, "half precision": 1}[name]


def test_other_reductions_of_groups() -> None:
    graph = check(of_groups, (image(2, 32, 10, 9),), tol={"rtol": 1e-4, "atol": 1e-4})
    assert any("_channels_" in k.name for k in graph.kernels)


def test_elements_that_are_equal_have_no_variance() -> None:
    """Exactly none (eager computes some) in a group whose channels are equal, and that of its channels in another."""
    x = torch.full((2, 8, 20, 20), 1e4 / 3).contiguous(memory_format=torch.channels_last)
    one, zero = torch.ones(8), torch.zeros(8)
    graph = compiled(statistics, (x, one, zero))
    _, mean, scale = flat(graph(x, one, zero))
    assert torch.equal(mean, torch.full((2, 4), 1e4 / 3))
    torch.testing.assert_close(scale, torch.full((2, 4), 1e-5**-0.5))
    _, mean, scale = flat(graph(x * 0 + torch.arange(8.0)[None, :, None, None], one, zero))
    torch.testing.assert_close(mean, torch.tensor([0.5, 2.5, 4.5, 6.5]).expand(2, 4))
    torch.testing.assert_close(scale, torch.full((2, 4), (0.25 + 1e-5) ** -0.5))


def test_nan_and_infinity_stay_in_their_group() -> None:
    x = image(1, 8, 9, 9)
    x[0, 1, 3, 3], x[0, 6, 0, 0] = torch.nan, torch.inf
    check(lambda x: F.group_norm(x, 4), (x,), tol={"rtol": 1e-4, "atol": 1e-4})


@pytest.mark.parametrize(
    "x",
    [torch.randn(2, 32, 9, 9), image(2, 32, 3, 3), image(2, 256, 9, 9)],
    ids=["row-major", "few pixels", "many channels"],
)
def test_other_images_are_one_kernel(x: Tensor) -> None:
    check(lambda x: F.group_norm(x, 2), (x,), kernels=1, tol={"rtol": 1e-4, "atol": 1e-4})
