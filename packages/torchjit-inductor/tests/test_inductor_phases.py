"""Vector loops in steps of a few elements: shuffled channels, pairs, pixel shuffles, images with three channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from inductor_testing import check, sample

EXACT = {"rtol": 0, "atol": 0}
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool]


def c_text(graph: Any) -> str:
    return "\n".join(k.source for k in graph.kernels)


def shuffled(x: torch.Tensor, groups: int) -> torch.Tensor:
    """The last dimension's groups, their elements in turns."""
    return x.reshape(*x.shape[:-1], groups, -1).transpose(-1, -2).flatten(-2)


@pytest.mark.parametrize("groups", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("vector_bytes", [16, None])
def test_shuffled_groups(groups: int, vector_bytes: int | None) -> None:
    x, y = sample(5, 9 * groups), sample(5, 18 * groups, seed=1)
    graph = check(
        lambda x, y: [shuffled(x, groups) * 2, shuffled(y + 1, groups)], (x, y), vector_bytes=vector_bytes, tol=EXACT
    )
    assert " lanes<" not in c_text(graph) and "st_interleaved(full" in c_text(graph)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("groups", [2, 3])
def test_shuffles_of_every_type(dtype: torch.dtype, groups: int) -> None:
    x, y = (sample(3, 20 * groups, dtype=dtype, low=0, high=9, seed=n) for n in range(2))
    check(lambda x, y: shuffled(torch.cat([x, y], -1), groups) | y.repeat(1, 2) if dtype == torch.bool else
          shuffled(torch.cat([x, y], -1), groups) * y.repeat(1, 2), (x, y), tol=EXACT)  # fmt: skip


@pytest.mark.parametrize(("channels", "cut"), [(58, 29), (60, 1), (61, 0), (75, 30)])
def test_shuffles_of_shuffles(channels: int, cut: int) -> None:
    """As in ShuffleNet: pieces of a shuffle of a concatenation are joined and shuffled again. Not all steps are whole."""
    a, b, c, shift = sample(6, channels), sample(6, channels, seed=1), sample(6, channels, seed=2), sample(channels)

    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, shift: torch.Tensor) -> list[torch.Tensor]:
        first = shuffled(torch.cat([a, (b - shift).relu()], -1), 2)
        second = shuffled(torch.cat([first[:, cut : cut + channels], c * shift], -1), 2)
        return [second[:, :channels].contiguous(), second[:, channels:].contiguous()]

    check(fn, (a, b, c, shift), tol=EXACT)


def test_a_channel_shuffle_reads_in_order() -> None:
    a, b, scale = sample(2, 58, 5, 5), sample(2, 58, 5, 5, seed=1), sample(58)
    a, b = (t.to(memory_format=torch.channels_last) for t in (a, b))

    def fn(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        x = torch.cat([a, b * scale[:, None, None]], 1).permute(0, 2, 3, 1)
        return shuffled(x, 2).permute(0, 3, 1, 2)

    text = c_text(check(fn, (a, b, scale), kernels=1, tol=EXACT))
    # Each phase reads one of the two images, at consecutive channels.
    assert " lanes<" not in text and text.count("st_interleaved(full") == 1 and text.count("= ld<vf32>(full, ") == 3


@pytest.mark.parametrize("shape", [(3, 40), (2, 7, 22), (4, 1, 16)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_interleaved_rotary_embedding(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, cos, sin = sample(*shape, dtype=dtype), *(sample(shape[-2], shape[-1] // 2, seed=n) for n in range(2))

    def fn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        even, odd = x[..., ::2].float(), x[..., 1::2].float()
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).to(dtype)

    text = c_text(check(fn, (x, cos, sin), kernels=1, tol=EXACT))
    assert " lanes<" not in text and "ld_strided<2" in text


@pytest.mark.parametrize("parts", [2, 3, 4, 5])
def test_stacked_along_the_last_dimension(parts: int) -> None:
    tensors = [sample(7, 13, seed=n) for n in range(parts)]
    graph = check(lambda *t: torch.stack(t, -1) * 2, tensors, kernels=1, tol=EXACT)
    assert " lanes<" not in c_text(graph) and "ld_strided" not in c_text(graph)


def test_images_with_three_channels_last() -> None:
    x, mean = sample(2, 3, 9, 11).to(memory_format=torch.channels_last), sample(3)
    text = c_text(check(lambda x, m: x.float() * 3 - m[:, None, None], (x, mean), kernels=1, tol=EXACT))
    narrow = "VECTOR_TYPES(4)" in text  # a processor without AVX: other loops pay there
    assert narrow or (" lanes<" not in text and "ld_strided<3" in text)


@pytest.mark.parametrize("fn", [
    lambda x: x.view(2, 4, 2, 2, 6, 10).permute(0, 1, 4, 2, 5, 3).reshape(2, 4, 12, 20) + 1,  # a pixel shuffle
    lambda x: x.view(2, 16, 3, 2, 5, 2).permute(0, 1, 3, 5, 2, 4).reshape(2, 64, 3, 5) + 1,
    lambda x: x[..., ::2] + x[..., 1::2].flip(-1),
    lambda x: x[..., ::3].sum(-1),
    lambda x: x[..., 1::4].amax((0, 1)),
    lambda x: x.reshape(2, 16, 30, 2) * x.reshape(2, 16, 30, 2).flip(-1),
], ids=["shuffle", "unshuffle", "every second", "sum", "columns", "swapped"])  # fmt: skip
@pytest.mark.parametrize("vector_bytes", [16, None])
def test_permuted_pixels_and_strides(fn: Callable[..., Any], vector_bytes: int | None) -> None:
    check(fn, (sample(2, 16, 6, 10),), vector_bytes=vector_bytes)


def test_symbolic_sizes() -> None:
    for rows in (1, 5, 40):
        x, y = sample(rows, 6), sample(rows, 6, seed=1)
        check(lambda x, y: torch.stack([x, y + 1], -1).flatten(-2) * 2, (x, y), mode="symbolic", tol=EXACT)


def test_in_place() -> None:
    x, scale = sample(4, 24), sample(2)
    check(lambda x, s: (x * 2).view(4, 12, 2).mul_(s).flatten(-2), (x, scale), tol=EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.bfloat16])
def test_several_interleaved_results(dtype: torch.dtype) -> None:
    """GCC 12 vectorized the loop around them and left out stores."""

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        made = []
        for count in range(2, 9):
            stacked = torch.stack([x.flip(0) if k % 2 else x for k in range(count)], 1)
            made += [stacked.eq(stacked), torch.logical_xor(stacked.eq(stacked), stacked), (stacked * 2).to(dtype)]
        return made

    for size in (64, 61) if dtype == torch.bool else (61,):
        check(fn, (sample(size),))


def test_sizes_may_be_quotients_of_sizes() -> None:
    numbers = torch.arange(132)

    def function(x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return numbers.view(x.shape[0], 132 // x.shape[0]).to(torch.int16).unfold(1, 3, 2).contiguous()

    check(function, (torch.ones(4, 2), numbers), mode="symbolic", aten=None)
