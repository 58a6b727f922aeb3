"""Operators and short chains that people use, for one CPU: by name a function, its inputs at a middle and a large size, and whether it trains.

Shapes follow what models have: images of 3 or 64 channels, rows of 512 to 4096 features. `large` multiplies the batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Inputs = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Operator:
    """`make(times)` draws the inputs, with a batch so many times as large; `trains`: its backward is measured too."""

    function: Callable[..., Any]
    make: Callable[[int], Inputs]
    trains: bool = True


def _r(*shape: int) -> Tensor:
    return torch.randn(shape)


def _rows(n: int) -> Inputs:
    """256 KB and 16 MB."""
    return (_r(64 * n, 1024),)


def _two(n: int) -> Inputs:
    return (_r(64 * n, 1024), _r(64 * n, 1024))


def _images(n: int) -> Inputs:
    """256 KB, 16 MB."""
    return (_r(max(n // 4, 1), 64, 32 if n < 4 else 64, 32 if n < 4 else 64),)


def _channels_last(n: int) -> Inputs:
    return (_images(n)[0].contiguous(memory_format=torch.channels_last),)


def _signal(n: int) -> Inputs:
    return (_r(n, 64, 1024),)


def _volume(n: int) -> Inputs:
    return (_r(n, 16, 16, 16, 16),)


def _classes(n: int) -> Inputs:
    return (_r(64 * n, 1000), torch.randint(0, 1000, (64 * n,)))


def _pixels(n: int) -> Inputs:
    return (
        torch.randint(0, 256, (max(n // 4, 1), 3, 224, 224), dtype=torch.uint8),
        _r(3, 1, 1),
        _r(3, 1, 1).abs() + 0.5,
    )


def _heads(n: int) -> Inputs:
    return tuple(_r(max(n // 4, 1), 8, 128, 64) for _ in range(3))


def _weights(n: int, count: int) -> Inputs:
    return tuple(torch.rand(64 * n, 1024) for _ in range(count))


def _normalise(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return (x.float() / 255 - mean) / std


def _sgd(p: Tensor, g: Tensor, m: Tensor) -> Inputs:
    m = 0.9 * m + g
    return p - 0.01 * m, m


def _adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Inputs:
    m = torch.lerp(m, g, 0.1)
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def _rotated(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def _dequantised(q: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    return (q.float() - zero) * scale


def _resized(mode: str, **others: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, scale_factor=2, mode=mode, **others)


def operators() -> dict[str, Operator]:
    """By name."""
    index = lambda n: torch.randint(0, 64 * n, (64 * n,))  # noqa: E731
    columns = lambda n: torch.randint(0, 1024, (64 * n, 512))  # noqa: E731
    conv = _r(64, 64, 3, 3) * 0.05
    norm, shift, mean, var = _r(64), _r(64), _r(64), _r(64).abs() + 0.1
    weight, bias = _r(1024), _r(1024)
    dense, dense_bias = _r(1024, 1024) * 0.03, _r(1024)
    mask = torch.rand(128, 128) > 0.2
    table = _r(5000, 512)
    op, still = Operator, lambda f, make: Operator(f, make, trains=False)
    return {
        # images
        "bilinear": op(_resized("bilinear"), _images),
        "bilinear, corners": op(_resized("bilinear", align_corners=True), _images),
        "bilinear, channels-last": op(_resized("bilinear"), _channels_last),
        "bilinear, corners, channels-last": op(_resized("bilinear", align_corners=True), _channels_last),
        "bilinear to half": op(lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), _images),
        "bilinear, 3 channels to 224": op(lambda x: F.interpolate(x, size=(224, 224), mode="bilinear"), lambda n: (_r(max(n // 16, 1), 3, 320, 240),)),
        "resized signal": op(_resized("linear"), _signal),
        "trilinear": op(_resized("trilinear"), _volume),
        "bicubic": op(_resized("bicubic"), _images),
        "nearest": op(_resized("nearest"), _images),
        "nearest, times 3": op(lambda x: F.interpolate(x, scale_factor=3), _images),
        "grid_sample": op(lambda x, g: F.grid_sample(x, g, align_corners=False), lambda n: (*(x := _images(n)), torch.rand(x[0].shape[0], *x[0].shape[2:], 2) * 2 - 1)),
        "max_pool": op(lambda x: F.max_pool2d(x, 2), _images),
        "max_pool, 3x3 stride 2": op(lambda x: F.max_pool2d(x, 3, 2, 1), _images),
        "max_pool, channels-last": op(lambda x: F.max_pool2d(x, 3, 2, 1), _channels_last),
        "avg_pool": op(lambda x: F.avg_pool2d(x, 2), _images),
        "avg_pool, 3x3 stride 1": op(lambda x: F.avg_pool2d(x, 3, 1, 1), _images),
        "avg_pool, channels-last": op(lambda x: F.avg_pool2d(x, 3, 1, 1), _channels_last),
        "adaptive_avg_pool 1": op(lambda x: F.adaptive_avg_pool2d(x, 1), _images),
        "adaptive_avg_pool 7": op(lambda x: F.adaptive_avg_pool2d(x, 7), _images),
        "max_pool1d": op(lambda x: F.max_pool1d(x, 3, 2), _signal),
        "avg_pool1d": op(lambda x: F.avg_pool1d(x, 4), _signal),
        "pixel_shuffle": op(lambda x: F.pixel_shuffle(x, 2), _images),
        "pixel_unshuffle": op(lambda x: F.pixel_unshuffle(x, 2), _images),
        "unfold": op(lambda x: F.unfold(x, 3, padding=1), lambda n: (_r(max(n // 8, 1), 32, 32, 32),)),
        "fold": op(lambda x: F.fold(x, (32, 32), 3, padding=1), lambda n: (_r(max(n // 8, 1), 32 * 9, 1024),)),
        "pixels normalised": still(_normalise, _pixels),
        "pixels to channels-last floats": still(lambda x, m, s: _normalise(x, m, s).contiguous(memory_format=torch.channels_last), _pixels),
        "pixels from channels-last bytes": still(lambda x: x.permute(0, 3, 1, 2).float() / 255, lambda n: (torch.randint(0, 256, (max(n // 4, 1), 224, 224, 3), dtype=torch.uint8),)),
        "floats to bytes": still(lambda x: (x * 255).clamp(0, 255).to(torch.uint8), lambda n: (torch.rand(max(n // 4, 1), 3, 224, 224),)),
        "conv, batch norm, relu": op(lambda x: F.relu(F.batch_norm(F.conv2d(x, conv, padding=1), mean, var, norm, shift)), _images),
        "conv, batch statistics, relu": op(lambda x: F.relu(F.batch_norm(F.conv2d(x, conv, padding=1), None, None, norm, shift, True)), _images),
        # norms and rows
        "softmax": op(lambda x: F.softmax(x, -1), _rows),
        "softmax over channels": op(lambda x: F.softmax(x, 1), _images),
        "log_softmax": op(lambda x: F.log_softmax(x, -1), _rows),
        "logsumexp": op(lambda x: x.logsumexp(-1), _rows),
        "layer_norm": op(lambda x: F.layer_norm(x, (1024,), weight, bias), _rows),
        "rms_norm": op(lambda x: F.rms_norm(x, (1024,), weight), _rows),
        "group_norm": op(lambda x: F.group_norm(x, 8, norm, shift), _images),
        "batch_norm": op(lambda x: F.batch_norm(x, None, None, norm, shift, True), _images),
        "instance_norm": op(lambda x: F.instance_norm(x), _images),
        "normalize": op(lambda x: F.normalize(x, dim=-1), _rows),
        "gelu": op(F.gelu, _rows),
        "gelu, tanh": op(lambda x: F.gelu(x, approximate="tanh"), _rows),
        "silu and product": op(lambda x, y: F.silu(x) * y, _two),
        "relu": op(F.relu, _rows),
        "sigmoid": op(torch.sigmoid, _rows),
        "softplus": op(F.softplus, _rows),
        "exp": op(torch.exp, _rows),
        "add": op(torch.add, _two),
        "add a row": op(lambda x: x + weight, _rows),
        "where": op(lambda x, y: torch.where(x > 0, x, y), _two),
        "clamp": op(lambda x: x.clamp(-1, 1), _rows),
        "dropout": op(lambda x: F.dropout(x, 0.1, True), _rows),
        "masked_fill": op(lambda x, m: x.masked_fill(m, -1e9), lambda n: (*_rows(n), torch.rand(64 * n, 1024) > 0.5)),
        "to bfloat16": op(lambda x: x.to(torch.bfloat16), _rows),
        "sum": op(torch.sum, _rows),
        "mean of rows": op(lambda x: x.mean(-1), _rows),
        "mean of columns": op(lambda x: x.mean(0), _rows),
        "amax": op(lambda x: x.amax(-1), _rows),
        "max with places": op(lambda x: x.max(-1), _rows),
        "argmax": still(lambda x: x.argmax(-1), _rows),
        "argmax of columns": still(lambda x: x.argmax(0), _rows),
        "std": op(lambda x: x.std(-1), _rows),
        "var of columns": op(lambda x: x.var(0), _rows),
        "norm": op(lambda x: x.norm(), _rows),
        "cumsum": op(lambda x: x.cumsum(-1), _rows),
        "cumsum of columns": op(lambda x: x.cumsum(0), _rows),
        "cumprod": still(lambda x: x.cumprod(-1), _rows),
        "topk": op(lambda x: x.topk(8, -1), _rows),
        "sort": op(lambda x: x.sort(-1), _rows),
        "argsort": still(lambda x: x.argsort(-1), _rows),
        "median": still(lambda x: x.median(-1).values, _rows),
        "quantile": still(lambda x: x.quantile(0.9, -1), _rows),
        "unique": still(lambda x: x.unique(), lambda n: (torch.randint(0, 1000, (65536 * n,)),)),
        "bincount": still(lambda x: x.bincount(minlength=1000), lambda n: (torch.randint(0, 1000, (65536 * n,)),)),
        "histc": still(lambda x: x.histc(64), _rows),
        "nonzero": still(lambda x: (x > 1).nonzero(), _rows),
        "masked_select": still(lambda x: x[x > 1], _rows),
        "isnan any": still(lambda x: x.isnan().any(), _rows),
        # places and pieces
        "embedding": op(lambda e, i: F.embedding(i, e), lambda n: (table.clone(), torch.randint(0, 5000, (128 * n,)))),
        "embedding_bag": op(lambda e, i: F.embedding_bag(i, e), lambda n: (table.clone(), torch.randint(0, 5000, (32 * n, 16)))),
        "index_select": op(lambda x, i: x.index_select(0, i), lambda n: (*_rows(n), index(n))),
        "index": op(lambda x, i: x[i], lambda n: (*_rows(n), index(n))),
        "gather": op(lambda x, i: x.gather(1, i), lambda n: (*_rows(n), columns(n))),
        "scatter": op(lambda x, i, s: x.scatter(1, i, s), lambda n: (*_rows(n), columns(n), _r(64 * n, 512))),
        "scatter_add": op(lambda x, i, s: x.scatter_add(1, i, s), lambda n: (*_rows(n), columns(n), _r(64 * n, 512))),
        "index_add": op(lambda x, i, s: x.index_add(0, i, s), lambda n: (*_rows(n), index(n), _r(64 * n, 1024))),
        "index_put, accumulated": still(lambda x, i, s: x.index_put((i,), s, accumulate=True), lambda n: (*_rows(n), index(n), _r(64 * n, 1024))),
        "take_along_dim": op(lambda x, i: x.take_along_dim(i, 1), lambda n: (*_rows(n), columns(n))),
        "one_hot": still(lambda i: F.one_hot(i, 64), lambda n: (torch.randint(0, 64, (512 * n,)),)),
        "one_hot, floats": still(lambda i: F.one_hot(i, 64).float(), lambda n: (torch.randint(0, 64, (512 * n,)),)),
        "cat": op(lambda x, y: torch.cat([x, y], 1), _two),
        "cat of rows": op(lambda x, y: torch.cat([x, y]), _two),
        "cat of channels": op(lambda x, y: torch.cat([x, y], 1), lambda n: (*_images(n), *_images(n))),
        "stack": op(lambda x, y: torch.stack([x, y], -1), _two),
        "pad": op(lambda x: F.pad(x, (1, 1, 1, 1)), _images),
        "pad, reflected": op(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), _images),
        "pad, replicated": op(lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), _images),
        "roll": op(lambda x: x.roll((3, 3), (2, 3)), _images),
        "flip": op(lambda x: x.flip(-1), _images),
        "flip of rows": op(lambda x: x.flip(0), _rows),
        "repeat_interleave": op(lambda x: x.repeat_interleave(4, 1), _rows),
        "repeat_interleave of rows": op(lambda x: x.repeat_interleave(4, 0), _rows),
        "repeat": op(lambda x: x.repeat(2, 2), _rows),
        "transposed copy": op(lambda x: x.t().contiguous(), _rows),
        "permuted copy": op(lambda x: x.permute(0, 2, 3, 1).contiguous(), _images),
        "tril": op(torch.tril, _rows),
        "chunk and cat": op(_rotated, _rows),
        # losses
        "cross_entropy": op(F.cross_entropy, _classes),
        "cross_entropy, smoothed": op(lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), _classes),
        "cross_entropy of images": op(lambda x, y: F.cross_entropy(x, y), lambda n: (_r(max(n // 4, 1), 16, 64, 64), torch.randint(0, 16, (max(n // 4, 1), 64, 64)))),
        "nll_loss": op(F.nll_loss, _classes),
        "mse_loss": op(F.mse_loss, _two),
        "l1_loss": op(F.l1_loss, _two),
        "smooth_l1_loss": op(F.smooth_l1_loss, _two),
        "huber_loss": op(F.huber_loss, _two),
        "bce with logits": op(lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), _two),
        "bce": op(lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), _two),
        "kl_div": op(lambda x, y: F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean"), _two),
        "cosine_similarity": op(lambda x, y: F.cosine_similarity(x, y), _two),
        "cdist": op(torch.cdist, lambda n: (_r(16 * n, 64), _r(256, 64))),
        # products
        "linear": op(lambda x: F.linear(x, dense, dense_bias), lambda n: (_r(16 * n, 1024),)),
        "linear, gelu": op(lambda x: F.gelu(F.linear(x, dense, dense_bias)), lambda n: (_r(16 * n, 1024),)),
        "linear, relu, residual": op(lambda x: x + F.relu(F.linear(x, dense, dense_bias)), lambda n: (_r(16 * n, 1024),)),
        "attention": op(F.scaled_dot_product_attention, _heads),
        "attention, causal": op(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), _heads),
        "attention, masked": op(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask), _heads),
        "attention, written out": op(lambda q, k, v: F.softmax(q @ k.transpose(-2, -1) / 8, -1) @ v, _heads),
        "einsum": op(lambda x, y: torch.einsum("bhqd,bhkd->bhqk", x, y), lambda n: _heads(n)[:2]),
        "bmm": op(torch.bmm, lambda n: (_r(2 * n, 128, 64), _r(2 * n, 64, 128))),
        "outer": op(lambda x, y: x[:, None] * y[None], lambda n: (_r(64 * n), _r(1024))),
        # steps, quantities, waves
        "sgd with momentum": still(_sgd, lambda n: _weights(n, 3)),
        "adam": still(_adam, lambda n: _weights(n, 4)),
        "dequantised rows": still(_dequantised, lambda n: (torch.randint(-128, 127, (64 * n, 1024), dtype=torch.int8), _r(64 * n, 1), _r(64 * n, 1))),
        "dequantised, product": still(lambda q, s, z, x: x @ _dequantised(q, s, z), lambda n: (torch.randint(-128, 127, (1024, 1024), dtype=torch.int8), _r(1024, 1), _r(1024, 1), _r(16 * n, 1024))),
        "quantised": still(lambda x: (x / (x.abs().amax(-1, keepdim=True) / 127)).round().to(torch.int8), _rows),
        "complex product": still(lambda x, y: x * y, lambda n: (torch.randn(64 * n, 512, dtype=torch.complex64), torch.randn(64 * n, 512, dtype=torch.complex64))),
        "complex size": still(lambda x: x.abs(), lambda n: (torch.randn(64 * n, 512, dtype=torch.complex64),)),
        "fft": still(lambda x: torch.fft.rfft(x).abs(), _rows),
        "stft": still(lambda x: torch.stft(x, 256, window=torch.hann_window(256), return_complex=True).abs(), lambda n: (_r(n, 16384),)),
    }  # fmt: skip
