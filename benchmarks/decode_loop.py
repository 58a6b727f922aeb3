"""Tokens per second of a decode loop: batch 1, a KV cache, Llama 1B shapes; eager, torch.compile and torchjit in one process.

    uv run python benchmarks/decode_loop.py [--layers 16] [--tokens 200] [--device cuda]

Greedy decoding; each compiler's tokens are compared with eager's first ones.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Attention over a cache, gated MLP."""

    def __init__(self, dim: int, heads: int, hidden: int, length: int, batch: int = 1) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)
        self.gate, self.up = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)
        self.register_buffer("keys", torch.zeros(batch, heads, length, dim // heads))
        self.register_buffer("values", torch.zeros(batch, heads, length, dim // heads))

    def forward(self, x: torch.Tensor, at: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """x: [batch, 1, dim]; at: [1], the position; mask: [1, length]."""
        batch = x.shape[0]
        q, k, v = self.qkv(self.n1(x)).view(batch, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        x = x + self.o(y.transpose(1, 2).reshape(batch, 1, -1))
        return x + self.down(F.silu(self.gate(self.n2(x))) * self.up(self.n2(x)))


class Decoder(nn.Module):
    """One step: the next token of the last one."""

    def __init__(
        self, layers: int, dim: int = 2048, heads: int = 16, hidden: int = 5632, vocab: int = 32000, batch: int = 1
    ) -> None:
        super().__init__()
        self.length = 512
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([Block(dim, heads, hidden, self.length, batch) for _ in range(layers)])
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.register_buffer("positions", torch.arange(self.length))

    def forward(self, token: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """token: [batch], at: [1] of int64; returns [batch]."""
        return self.logits(token, at).argmax(-1)

    def logits(self, token: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """As `forward`; returns [batch, vocab]."""
        x = self.embed(token)[:, None]
        mask = (self.positions <= at)[None]
        for block in self.blocks:
            x = block(x, at, mask)
        return self.head(self.norm(x))[:, 0]


@torch.no_grad()
def decode(step: Callable[..., torch.Tensor], tokens: int, device: str) -> tuple[list[int], float]:
    """The tokens, and the median seconds a step."""
    token, at = torch.zeros(1, dtype=torch.int64, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    made, times = [], []
    for _ in range(tokens):
        start = time.perf_counter()
        token = step(token, at)
        made.append(int(token))  # waits, as a program that streams its answer does
        times.append(time.perf_counter() - start)
        at = at + 1
    return made, statistics.median(times[len(times) // 4 :])


def cloning(model: nn.Module) -> Callable[..., torch.Tensor]:
    """torch.compile's CUDA graphs raise here unless results are cloned: the next step would overwrite them."""
    compiled: Any = torch.compile(model, mode="reduce-overhead")
    return lambda *inputs: compiled(*inputs).clone()


def main() -> None:
    """Print a row per compiler."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    o = parser.parse_args()
    import torchjit

    dtype = torch.bfloat16 if o.device == "cuda" else torch.float32
    torch.manual_seed(0)
    model = Decoder(o.layers).to(o.device, dtype).eval()
    compilers: dict[str, Callable[[Any], Any]] = {
        "eager": lambda m: m,
        "torch.compile reduce-overhead": cloning,
        "torchjit": torchjit.compile,
        "torchjit reduce-overhead": lambda m: torchjit.compile(m, mode="reduce-overhead"),
    }
    reference: list[int] = []
    for name, compiler in compilers.items():
        for block in model.blocks:
            block.keys.zero_()
            block.values.zero_()
        made, seconds = decode(compiler(model), o.tokens, o.device)
        reference = reference or made
        same = next((i for i, (a, b) in enumerate(zip(made, reference, strict=True)) if a != b), len(made))
        print(f"{name:32} {1 / seconds:8.1f} tokens/s   first {same} of {len(made)} tokens as eager's", flush=True)


if __name__ == "__main__":
    main()
