"""Small models of `cpu_models.py` that need no library: kinds of programs that the thirty of libraries do not have."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Built = tuple[nn.Module, dict[str, Any]]


class Block(nn.Module):
    """A transformer's block with causal attention, over (batch, length, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = (
            t.view(n, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.before(x)).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, width))
        return x + self.mlp(self.behind(x))


class GPT(nn.Module):
    """Four blocks over tokens (batch, length)."""

    def __init__(self, width: int = 256, vocabulary: int = 4096) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(128, width)
        self.blocks = nn.Sequential(*(Block(width, 8) for _ in range(4)))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.blocks(x))


def _pair(channels: int, to: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, to, 3, padding=1), nn.GroupNorm(8, to), nn.SiLU(),
        nn.Conv2d(to, to, 3, padding=1), nn.GroupNorm(8, to), nn.SiLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """Three levels over images (batch, 3, height, width)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.down = nn.ModuleList([_pair(3, width), _pair(width, 2 * width), _pair(2 * width, 4 * width)])
        self.up = nn.ModuleList([_pair(6 * width, 2 * width), _pair(3 * width, width)])
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for level, part in enumerate(self.down):
            x = part(x if level == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for part, other in zip(self.up, (kept[1], kept[0]), strict=True):
            x = part(torch.cat([F.interpolate(x, scale_factor=2.0, mode="nearest"), other], 1))
        return self.out(x)


class Recurrent(nn.Module):
    """A recurrent layer and a head over (batch, length, width)."""

    def __init__(self, kind: type[nn.Module], width: int = 128) -> None:
        super().__init__()
        self.layer, self.head = kind(width, width, 2, batch_first=True), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1])


class Dequantized(nn.Module):
    """Products with int8 weights in groups of 64 with scales, as weight-only quantisation has them."""

    def __init__(self, width: int = 1024, layers: int = 4) -> None:
        super().__init__()
        for i in range(layers):
            self.register_buffer(f"weight{i}", torch.randint(-128, 128, (width, width // 64, 64), dtype=torch.int8))
            self.register_buffer(f"scale{i}", torch.rand(width, width // 64, 1) * 1e-3)
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        for i in range(self.layers):
            weight, scale = getattr(self, f"weight{i}"), getattr(self, f"scale{i}")
            x = F.silu(F.linear(x, (weight * scale).flatten(1)))
        return x


class Recommender(nn.Module):
    """Embeddings of categories, their products, an MLP."""

    def __init__(self, tables: int = 12, rows: int = 10_000, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.dense = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 128), nn.ReLU(), nn.Linear(128, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        x = self.dense(numbers)
        found = torch.stack([x, *(table(categories[:, i]) for i, table in enumerate(self.tables))], 1)
        products = (found @ found.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([x, products], 1)))


class Messages(nn.Module):
    """Three layers of a network over a graph with `edges` (2, many)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for layer in self.layers:
            gathered = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
            x = F.relu(layer(torch.cat([x, gathered], 1)))
        return x


class Experts(nn.Module):
    """Eight MLPs, of which each row takes two."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 8)
        self.up, self.down = (
            nn.Parameter(torch.randn(8, width, 2 * width) * 0.05),
            nn.Parameter(torch.randn(8, 2 * width, width) * 0.05),
        )

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        share = torch.zeros(x.shape[0], 8, dtype=x.dtype).scatter(1, chosen, weights)
        hidden = F.silu(torch.einsum("nw,ewh->enh", x, self.up))
        return torch.einsum("enh,ehw,ne->nw", hidden, self.down, share)


class Norms(nn.Module):
    """Pointwise chains between group, instance and batch norms: (batch, 32, height, width)."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, 32), nn.InstanceNorm2d(32), nn.BatchNorm2d(32)])

    def forward(self, x: Tensor) -> Tensor:
        for norm in self.norms:
            y = norm(x)
            x = x + y * torch.tanh(F.softplus(y))
        return x


def _mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


OWN: dict[str, Callable[[], Built]] = {
    "mlp_small": lambda: (_mlp(16, 32, 32, 4), {"input": torch.randn(8, 16)}),
    "mlp_wide": lambda: (_mlp(784, 1024, 1024, 10), {"input": torch.randn(128, 784)}),
    "gpt_small": lambda: (GPT(), {"tokens": torch.randint(0, 4096, (2, 128))}),
    "unet": lambda: (UNet(), {"x": torch.randn(2, 3, 64, 64)}),
    "lstm": lambda: (Recurrent(nn.LSTM), {"x": torch.randn(16, 48, 128)}),
    "gru": lambda: (Recurrent(nn.GRU), {"x": torch.randn(16, 48, 128)}),
    "dequantized": lambda: (Dequantized(), {"x": torch.randn(4, 1024)}),
    "recommender": lambda: (
        Recommender(), {"numbers": torch.rand(256, 13), "categories": torch.randint(0, 10_000, (256, 12))}
    ),
    "messages": lambda: (Messages(), {"x": torch.randn(2000, 64), "edges": torch.randint(0, 2000, (2, 16_000))}),
    "experts": lambda: (Experts(), {"x": torch.randn(128, 256)}),
    "norms": lambda: (Norms(), {"x": torch.randn(8, 32, 56, 56)}),
    "convolutions_1d": lambda: (
        nn.Sequential(*(m for d in (1, 2, 4, 8) for m in (nn.Conv1d(32, 32, 3, dilation=d, padding=d), nn.BatchNorm1d(32), nn.ReLU()))),
        {"input": torch.randn(8, 32, 1024)},
    ),
    "encoder": lambda: (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), 3, enable_nested_tensor=False),
        {"src": torch.randn(8, 64, 128)},
    ),
}  # fmt: skip
