"""Attention of few queries over a static cache (decoding) on a GPU: aten's kernels and ours, by recorded launches over caches that no cache of the GPU holds.

    python3 tools/from_checkout.py python3 benchmarks/gpu_few_queries.py [--variants]

Prints microseconds of a call, the share that keys and values take at 3.35 TB/s, and the distance of both from float32. `--variants` tries other cuts of the keys.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

os.environ.update(TORCHJIT_STORE="off", TORCHJIT_NEVER_SLOWER="off")

SHAPES = (
    # batch, heads, heads of keys, queries, keys, depth
    (1, 16, 16, 1, 512, 128),
    (8, 16, 16, 1, 512, 128),
    (1, 32, 8, 1, 1024, 64),
    (1, 32, 8, 1, 8192, 128),
    (8, 32, 8, 4, 2048, 128),
    (4, 12, 12, 1, 4096, 64),
)
_BYTES_PER_SECOND = 3.35e12
_WARM_CACHE = 128 << 20
_MANY = 64


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Scores under a mask, heads of keys written out as transformers does."""
    times = q.shape[1] // k.shape[1]
    if times > 1:
        k, v = (t[:, :, None].expand(-1, -1, times, -1, -1).reshape(t.shape[0], -1, *t.shape[2:]) for t in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def inputs_of(shape: Sequence[int], count: int) -> list[tuple[Tensor, ...]]:
    """Query, cache, and a mask that hides its last fifth."""
    batch, heads, key_heads, queries, keys, depth = shape
    options: Any = {"device": "cuda", "dtype": torch.bfloat16}
    mask = torch.arange(keys, device="cuda")[None] < keys - keys // 5
    query = torch.randn(batch, queries, heads, depth, **options).transpose(1, 2)
    cache = [[torch.randn(batch, key_heads, keys, depth, **options) for _ in range(2)] for _ in range(count)]
    return [(query, k, v, mask.expand(queries, keys)) for k, v in cache]


def microseconds(f: Callable[..., Tensor], inputs: Sequence[tuple[Tensor, ...]]) -> float:
    """Of a call, by a recording of one call with each of the inputs."""
    for _ in range(3):
        f(*inputs[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for given in inputs:
            f(*given)
    times = []
    for _ in range(12):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        marks[0].record()
        graph.replay()
        marks[1].record()
        torch.cuda.synchronize()
        times.append(marks[0].elapsed_time(marks[1]))
    return 1e3 * min(times) / len(inputs)


@torch.no_grad()
def row(shape: Sequence[int], library: bool = True) -> str:
    """A line of the table."""
    # Imported here: settings of the environment come first.
    import torchjit

    batch, _, key_heads, _, keys, depth = shape
    nbytes = 2 * 2 * batch * key_heads * keys * depth
    inputs = inputs_of(shape, max(4, min(_MANY, _WARM_CACHE // nbytes)))
    torchjit.reset()
    ours: Any = torchjit.compile(attention, dynamic=False)
    exact = attention(*[t.float() if t.is_floating_point() else t for t in inputs[0]]).double()
    errors = [float((f(*inputs[0]).double() - exact).norm() / exact.norm()) for f in (attention, ours)]
    theirs = microseconds(attention, inputs) if library else float("nan")
    took = microseconds(ours, inputs)
    share = nbytes / _BYTES_PER_SECOND / took * 1e6
    return (
        f"{shape!s:32} aten {theirs:7.1f} ours {took:7.1f} us {theirs / took:5.2f} share {share:.2f} "
        f"errors {errors[0]:.1e} {errors[1]:.1e}"
    )


def main() -> None:
    """A row for each shape."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--variants", action="store_true")
    o = parser.parse_args()
    for shape in SHAPES:
        print(row(shape), flush=True)
    if o.variants:
        # Imported here: it imports Triton.
        from torchjit_inductor.attention import parts

        tables = (
            ("tiles of half as many keys", 1, {(2, 64): ((64, 4, 2),), (2, 128): ((32, 4, 2),)}),
            ("a tile is worth a program", 1, {}),
            ("tiles of a quarter, two warps", 1, {(2, 64): ((32, 2, 2),), (2, 128): ((16, 2, 2),)}),
            ("deeper pipeline", 1, {(2, 64): ((64, 4, 4),), (2, 128): ((32, 4, 4),)}),
        )
        kept = dict(parts._TILES)
        for name, least, table in tables:
            parts._LEAST = least
            parts._TILES.clear()
            parts._TILES.update(kept | table)
            print(f"== {name}")
            for shape in SHAPES:
                print(row(shape, library=False), flush=True)


if __name__ == "__main__":
    main()
