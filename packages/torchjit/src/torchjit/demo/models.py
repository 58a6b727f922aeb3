"""The two models of the demo, with random weights."""

from __future__ import annotations

import importlib
from typing import final

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["GPT", "resnet18"]


@final
class Block(nn.Module):
    """One pre-norm transformer block: (batch, time, width) -> (batch, time, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, time, width))
        result: torch.Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return result


@final
class GPT(nn.Module):
    """A GPT-style language model: int64 tokens (batch, time) -> logits (batch, time, vocabulary)."""

    def __init__(
        self, layers: int = 12, width: int = 256, heads: int = 8, context: int = 128, vocabulary: int = 1024
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def resnet18() -> nn.Module:
    """torchvision's resnet18 with random weights.

    Raises:
        ModuleNotFoundError: torchvision is not installed (it comes with `torchjit[demo]`).
    """
    # Imported by name here: only the demo needs torchvision, which is an extra.
    module: nn.Module = importlib.import_module("torchvision").models.resnet18(weights=None)
    return module
