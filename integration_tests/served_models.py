"""What test_ahead_of_time compiles in one process and serves in another."""

import torch
from torch import nn
from torch.nn import functional as F

import torchjit


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.out = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(F.gelu(self.wide(x)) * SCALE)


SCALE = 1.375


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(model(x), y)


def in_parts(x: torch.Tensor, seen: list[int]) -> torch.Tensor:
    y = x.sin() * 2
    torchjit.graph_break()
    seen.append(len(seen))
    return helper(y)


def helper(y: torch.Tensor, k: float = 1.625) -> torch.Tensor:
    return (y.cos() * k).sum(0)


def other(x: torch.Tensor) -> torch.Tensor:
    return x.tan() - 1


def models() -> tuple[Mlp, Block]:
    torch.manual_seed(0)
    return Mlp(), Block()
