"""27 memory-bound functions, at sizes for one CPU: what models spend their time on between matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

BF, F32 = torch.bfloat16, torch.float32


def _t(*shape: int, dtype: torch.dtype = BF) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype)


def _adamw(p: Any, g: Any, m: Any, v: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p * 0.9999 - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def functions(rows: int = 512) -> dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]]:
    """By name: a function, and what makes its inputs."""
    r, c = rows, 4096
    w, b = _t(c), _t(c)

    def rope(q: Any, s: Any, d: Any) -> Any:
        return torch.cat([q[..., :64] * s - q[..., 64:] * d, q[..., :64] * d + q[..., 64:] * s], -1)

    def rms(x: Any) -> Any:
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(BF) * w

    def quantize(x: Any) -> Any:
        return (x.float() / (x.float().abs().amax(-1, keepdim=True) / 127)).round().clamp(-128, 127).to(torch.int8)

    images = (max(r // 128, 1), 256, 32, 32)
    return {
        "copy_scale": (lambda x: x * 2.0, lambda: (_t(r, c),)),
        "gelu_chain": (lambda x, y: F.gelu(x * torch.sigmoid(x) + y).tanh(), lambda: (_t(r, c), _t(r, c))),
        "swiglu": (lambda x: F.silu(x[..., : c // 2]) * x[..., c // 2 :], lambda: (_t(r, c),)),
        "add_relu_mul_f32": (lambda x, y, z: F.relu(x + y) * z, lambda: tuple(_t(r, c, dtype=F32) for _ in range(3))),
        "softmax_4k": (lambda x: F.softmax(x, -1), lambda: (_t(r, c),)),
        "softmax_64k": (lambda x: F.softmax(x, -1), lambda: (_t(r // 16, c * 16),)),
        "log_softmax_32k_f32": (lambda x: F.log_softmax(x, -1), lambda: (_t(r // 16, c * 8, dtype=F32),)),
        "layer_norm": (lambda x: F.layer_norm(x, (c,), w, b), lambda: (_t(r, c),)),
        "rms_norm": (rms, lambda: (_t(r, c),)),
        "add_layer_norm": (lambda x, y: F.layer_norm(x + y, (c,), w, b), lambda: (_t(r, c), _t(r, c))),
        "group_norm_silu": (lambda x: F.silu(F.group_norm(x, 32)), lambda: (_t(*images),)),
        "batch_norm_stats": (lambda x: F.relu(F.batch_norm(x, None, None, training=True)), lambda: (_t(*images),)),
        "cross_entropy_32k": (lambda x, y: F.cross_entropy(x.float(), y), lambda: (_t(r // 8, 32768), torch.randint(0, 32768, (r // 8,)))),
        "sum_inner": (lambda x: x.float().sum(-1), lambda: (_t(r, c),)),
        "sum_outer": (lambda x: x.float().sum(0), lambda: (_t(r, c),)),
        "sum_all": (lambda x: x.float().sum(), lambda: (_t(r, c),)),
        "mean_var": (lambda x: torch.var_mean(x.float(), -1), lambda: (_t(r, c),)),
        "argmax": (lambda x: x.argmax(-1), lambda: (_t(r, c),)),
        "transpose_add": (lambda x, y: x.t() + y, lambda: (_t(c, r), _t(r, c))),
        "permute_contiguous": (lambda x: x.permute(0, 2, 1, 3).contiguous(), lambda: (_t(max(r // 256, 1), 512, 32, 128),)),
        "cat_gelu": (lambda x, y: F.gelu(torch.cat([x, y], -1)), lambda: (_t(r, c // 2), _t(r, c // 2))),
        "rope": (rope, lambda: (_t(1, 32, 512, 128), _t(512, 64), _t(512, 64))),
        "embedding_add": (lambda i, e, p: F.embedding(i, e) + p, lambda: (torch.randint(0, 5000, (r,)), _t(5000, c), _t(c))),
        "quant_int8": (quantize, lambda: (_t(r, c),)),
        "dequant_mul": (lambda x, s, y: x.to(BF) * s * y, lambda: (torch.randint(-128, 127, (r, c), dtype=torch.int8), _t(r, 1), _t(r, c))),
        "adamw_step_f32": (_adamw, lambda: tuple(_t(r * c // 4, dtype=F32).abs() for _ in range(4))),
        "cumsum_rows": (lambda x: x.float().cumsum(-1), lambda: (_t(r, c),)),
    }  # fmt: skip
