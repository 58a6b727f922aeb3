"""A sample of generated kernels, small, for NVIDIA's compute-sanitizer.

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python3 packages/torchjit-inductor/benchmarks/gpu_sanitizer.py
    compute-sanitizer --tool racecheck python3 packages/torchjit-inductor/benchmarks/gpu_sanitizer.py softmax sum_all

Kernels in uneven sizes, so that each has masked lanes: pointwise, transposing, reductions of each kind, scans, positions, products.
Each result is compared with eager's in float64.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor import Inductor, InductorSettings
from torchjit_inductor.triton import backend
from torchjit_inductor.triton.autotune import ProductTuner
from torchjit_inductor.triton.tile_choices import TileChoice

Make = tuple[Any, ...]
BF, I64 = torch.bfloat16, torch.int64
ENDS = (13, 13, 90, 133)


def grouped(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A product of groups of rows, or one for each group of the sum; in float64 group by group."""
    if x.dtype == BF:
        ends = torch.stack([torch.full((), end, dtype=torch.int32, device=x.device) for end in ENDS])
        return torch._grouped_mm(x, w, offs=ends)
    parts = list(itertools.pairwise((0, *ENDS)))
    if w.dim() == 3:
        return torch.cat([x[a:b] @ matrix for (a, b), matrix in zip(parts, w, strict=True)])
    return torch.stack([x[:, a:b] @ w[a:b] for a, b in parts])


CASES: dict[str, tuple[Callable[..., Any], Make]] = {
    "pointwise": (lambda x, y: F.gelu(x * torch.sigmoid(x) + y).tanh(), ((301, 77), (301, 77))),
    "pointwise_16": (lambda x, y: F.gelu(x * torch.sigmoid(x) + y).tanh(), ((301, 77, BF), (301, 77, BF))),
    "transpose": (lambda x, y: x.t() + y, ((77, 301), (301, 77))),
    "cat_pad": (lambda x, y: F.pad(torch.cat([x, y], 1), (3, 2)).relu(), ((33, 41), (33, 7))),
    "softmax": (lambda x: F.softmax(x, -1), ((37, 1001),)),
    "softmax_long": (lambda x: F.softmax(x, -1), ((3, 40001, BF),)),
    "log_softmax_long": (lambda x: F.log_softmax(x, -1), ((3, 40001),)),
    "layer_norm": (lambda x, w: F.layer_norm(x, (1001,), w), ((37, 1001), (1001,))),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), ((7, 5, 33, 31),)),
    "softmax_of_columns": (lambda x: F.softmax(x, 1), ((5, 19, 1003, BF),)),
    "variance_of_columns": (lambda x: x.var(1), ((5, 100, 1003),)),
    "sum_of_odd_rows": (lambda x: x.sum(1), ((3, 301, 1003, BF),)),
    "rotary": (lambda x, c, s: torch.cat([x[..., :33] * c - x[..., 33:] * s, x[..., 33:] * c + x[..., :33] * s], -1), ((3, 77, 66, BF), (77, 33), (77, 33))),
    "depthwise": (lambda x, w: F.conv2d(x, w, padding=1, groups=7), ((3, 7, 33, 37), (7, 1, 3, 3))),
    "norm_stored_across": (lambda x, w: F.layer_norm(x, (1001,), w).transpose(1, 2).contiguous(), ((3, 301, 1001, BF), (1001, BF))),
    "norm_of_crossed": (lambda x, w: F.layer_norm(x.transpose(1, 2), (301,), w), ((3, 301, 1001, BF), (301, BF))),
    "mean_outside": (lambda x: x.mean(3).relu(), ((7, 33, 5, 301),)),
    "sum_outer": (lambda x: x.sum(0), ((3001, 77),)),
    "sum_all": (lambda x: x.sum(), ((1001, 777),)),
    "argmax": (lambda x: x.argmax(-1), ((37, 1001),)),
    "argmax_long": (lambda x: x.argmax(-1), ((3, 40001),)),
    "cumsum": (lambda x: x.cumsum(-1), ((7, 5001),)),
    "embedding": (lambda i, w: F.embedding(i, w) * 2, ((301, I64), (100, 37))),
    "index_put": (lambda x, i, v: x.index_put((i,), v, accumulate=True), ((100, 37), (301, I64), (301, 37))),
    "cross_entropy": (lambda x, y: F.cross_entropy(x, y), ((77, 5003), (77, I64))),
    "adamw": (lambda p, g: (p - 0.1 * g / (g.abs().sqrt() + 1e-8), 0.9 * g), ((10007,), (10007,))),
    "product": (lambda x, w, b: F.gelu(F.linear(x, w, b)), ((133, 200, BF), (77, 200, BF), (77, BF))),
    "product_described": (lambda x, w, b: F.gelu(F.linear(x, w, b)), ((133, 200, BF), (77, 200, BF), (77, BF))),
    "product_of_groups": (lambda x, w: grouped(x, w), ((133, 200, BF), (4, 200, 72, BF))),
    "product_of_groups_described": (lambda x, w: grouped(x, w), ((133, 192, BF), (4, 192, 72, BF))),
    "product_for_each_group": (lambda x, w: grouped(x.t(), w), ((133, 48, BF), (133, 72, BF))),
    "product_in_parts": (lambda x, w: (x @ w).relu(), ((33, 1024, BF), (1024, 48, BF))),
}  # fmt: skip


def tensor(spec: tuple[Any, ...]) -> torch.Tensor:
    """A random tensor of a shape with an optional dtype at its end."""
    dtype = spec[-1] if isinstance(spec[-1], torch.dtype) else torch.float32
    shape = [n for n in spec if isinstance(n, int)]
    return torch.randint(0, 77, shape, device="cuda") if dtype == I64 else torch.randn(shape, device="cuda").to(dtype)


def main() -> int:
    """Run the cases named, or all; returns how many differ."""
    # Every product as a kernel, without measuring.
    parts = {"product_in_parts": 4}
    ProductTuner.promising = lambda self, product: True  # type: ignore[method-assign]
    vars(backend)["settle_products"] = lambda program, fused, timer: program
    chosen: list[TileChoice] = []
    ProductTuner.choice = lambda self, kernel, found, buffers: chosen[-1]  # type: ignore[method-assign]
    wrong = 0
    for name in sys.argv[1:] or CASES:
        function, specs = CASES[name]
        described = name.endswith("described")
        choice = TileChoice(32, 32, 32, 4, 3, parts=parts.get(name, 1), persistent=described, descriptors=described)
        chosen.append(choice)
        inputs = [tensor(s) for s in specs]
        exact = function(*(t.double() if t.is_floating_point() else t for t in inputs))
        with tempfile.TemporaryDirectory() as folder:
            settings = InductorSettings(cache_dir=folder, max_autotune=name.startswith("product"))
            made = Inductor(settings)(make_fx(function)(*inputs), inputs)(*inputs)
        for got, want in zip(made, exact if isinstance(exact, tuple) else (exact,), strict=True):
            loose = 3e-2 if got.dtype == BF else 1e-4
            good = torch.allclose(
                got.double(), want.double(), rtol=loose, atol=loose * max(1.0, float(want.double().std()))
            )
            wrong += not good
            print(name, "agrees" if good else "DIFFERS", flush=True)
    torch.cuda.synchronize()
    return wrong


if __name__ == "__main__":
    sys.exit(main())
