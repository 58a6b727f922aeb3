"""Small models of equal blocks, each with what is special about it: for test_repeated_blocks.py."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH = 16


class Block(nn.Module):
    """A norm, a gated product, a residual sum."""

    def __init__(self, scale: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.scale, self.dropout = scale, dropout

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.up(self.norm(x)).chunk(2, -1)
        y = self.down(F.gelu(a) * b) * self.scale
        return x + F.dropout(y, self.dropout, self.training)


class Attention(nn.Module):
    """Attention whose scores get a bias that all blocks share, as in t5."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + self.out(torch.softmax(q @ k.mT * 0.25 + bias, -1) @ v)


class Stack(nn.Module):
    """Blocks one behind the other."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def body(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x: Tensor) -> Any:
        return self.last(self.body(self.first(x)))


class AllStates(Stack):
    """Each block's result is one of the model's."""

    def forward(self, x: Tensor) -> Any:
        states = [self.first(x)]
        for block in self.blocks:
            states.append(block(states[-1]))
        return self.last(states[-1]), states


class SharedBias(Stack):
    """A table that gets a gradient from every block."""

    def __init__(self, count: int) -> None:
        super().__init__([Attention() for _ in range(count)])
        self.table = nn.Parameter(torch.randn(6, 6))

    def body(self, x: Tensor) -> Tensor:
        bias = self.table.tanh()
        for block in self.blocks:
            x = block(x, bias)
        return x


class Skipping(Stack):
    """The last blocks get what the first ones made, in the opposite order."""

    def body(self, x: Tensor) -> Tensor:
        half, kept = len(self.blocks) // 2, []
        for block in self.blocks[:half]:
            x = block(x)
            kept.append(x)
        for block in self.blocks[half:]:
            x = block(x) + kept.pop()
        return x


class SumOfAll(Stack):
    """All blocks' results are used at the end."""

    def body(self, x: Tensor) -> Tensor:
        found = []
        for block in self.blocks:
            x = block(x)
            found.append(x.mean())
        return x * torch.stack(found).sum()


class TwoStreams(Stack):
    """Two values go through the blocks, and change places."""

    def body(self, x: Tensor) -> Tensor:
        y = x.sin()
        for block in self.blocks:
            x, y = block(x) + y, x * 0.5
        return x + y


class Checkpointed(Stack):
    """Blocks compute again."""

    def body(self, x: Tensor) -> Tensor:
        for block in self.blocks:  # eagerly without: checkpoint imports torch._dynamo
            x = checkpoint(block, x, use_reentrant=False) if torch.compiler.is_compiling() else block(x)
        return x


class Counting(Block):
    """A buffer that each call writes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.mul_(0.9).add_(x.detach().mean((0, 1)))
        return super().forward(x) + self.seen


class Convolutions(nn.Module):
    """Equal blocks of a ResNet; in training their norms write statistics."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(count))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(count))
        self.last = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, None, :, :].expand(-1, 4, -1, -1)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = torch.relu(x + norm(conv(x)))
        return self.last(x.mean(1))


def shared_parameters(count: int) -> Stack:
    """All blocks have the same `down`."""
    blocks = [Block() for _ in range(count)]
    for block in blocks:
        block.down = blocks[0].down
    return Stack(list(blocks))


def one_block_many_times(count: int) -> Stack:
    """One block, called again and again."""
    return Stack([Block()] * count)


def another_in_the_middle(count: int) -> Stack:
    """The seventh block differs in a number."""
    return Stack([Block(scale=0.5 if k == 6 else 1.0) for k in range(count)])


def two_kinds(count: int) -> Stack:
    """Blocks of two kinds in turn."""
    return Stack([Block(scale=1.0 + k % 2) for k in range(count)])


def growing_scales(count: int) -> Stack:
    """Each block has a number of its own: none equals another."""
    return Stack([Block(scale=1.0 + k / 16) for k in range(count)])


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "plain": lambda n: Stack([Block() for _ in range(n)]),
    "all_states": lambda n: AllStates([Block() for _ in range(n)]),
    "shared_bias": SharedBias,
    "skipping": lambda n: Skipping([Block() for _ in range(n)]),
    "sum_of_all": lambda n: SumOfAll([Block() for _ in range(n)]),
    "two_streams": lambda n: TwoStreams([Block() for _ in range(n)]),
    "checkpointed": lambda n: Checkpointed([Block() for _ in range(n)]),
    "counting": lambda n: Stack([Counting() for _ in range(n)]),
    "convolutions": Convolutions,
    "shared_parameters": shared_parameters,
    "one_block": one_block_many_times,
    "another_in_the_middle": another_in_the_middle,
    "two_kinds": two_kinds,
    "growing_scales": growing_scales,
    "dropout": lambda n: Stack([Block(dropout=0.3) for _ in range(n)]),
}
