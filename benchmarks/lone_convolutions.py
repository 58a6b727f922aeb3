"""One convolution and what follows it, on a CPU: speed over eager PyTorch, whose layout it keeps.

    OMP_NUM_THREADS=1 python benchmarks/lone_convolutions.py [--train]

Nine convolutions of two images beside operations of eleven kinds: least processor seconds of calls in turns; in training of forward and backward. Results
are compared with eager's.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import torchjit

CONVOLUTIONS: dict[str, tuple[dict[str, int], int, int, int]] = {
    "1x1": ({"kernel_size": 1}, 32, 64, 28),
    "1x1, many channels": ({"kernel_size": 1}, 256, 64, 14),
    "3x3": ({"kernel_size": 3, "padding": 1}, 16, 32, 32),
    "3x3, 64 channels": ({"kernel_size": 3, "padding": 1}, 64, 64, 56),
    "3x3, stride 2": ({"kernel_size": 3, "stride": 2, "padding": 1}, 3, 32, 112),
    "3x3, 4 groups": ({"kernel_size": 3, "padding": 1, "groups": 4}, 32, 32, 28),
    "depthwise 3x3": ({"kernel_size": 3, "padding": 1, "groups": 32}, 32, 32, 28),
    "depthwise 7x7": ({"kernel_size": 7, "padding": 3, "groups": 96}, 96, 96, 28),
    "patches": ({"kernel_size": 4, "stride": 4}, 3, 96, 112),
}
"""Arguments, channels in and out, side of the image."""


class ChannelNorm(nn.Module):
    """A layer norm over the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: torch.Tensor) -> Any:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Gate(nn.Module):
    """An image times what its means give."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.mean((2, 3), keepdim=True).sigmoid()


BESIDE: dict[str, Callable[[nn.Module, int], nn.Module]] = {
    "alone": lambda c, n: c,
    "relu": lambda c, n: nn.Sequential(c, nn.ReLU()),
    "batch norm, silu": lambda c, n: nn.Sequential(c, nn.BatchNorm2d(n).eval(), nn.SiLU()),
    "group norm, silu": lambda c, n: nn.Sequential(c, nn.GroupNorm(4, n), nn.SiLU()),
    "relu, max pool": lambda c, n: nn.Sequential(c, nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
    "relu, mean": lambda c, n: nn.Sequential(c, nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
    "layer norm of channels": lambda c, n: nn.Sequential(c, ChannelNorm(n)),
    "softmax over channels": lambda c, n: nn.Sequential(c, nn.Softmax(1)),
    "gate": lambda c, n: nn.Sequential(c, Gate()),
    "upsampling": lambda c, n: nn.Sequential(c, nn.Upsample(scale_factor=2)),
    "silu, convolution, tanh": lambda c, n: nn.Sequential(nn.SiLU(), c, nn.Tanh()),
}


def speed(module: nn.Module, x: torch.Tensor, train: bool, seconds: float) -> float:
    """Of compiled code, eager's being 1."""
    compiled = torchjit.compile(module)
    leaves = [x, *module.parameters()]

    def step(f: Callable[..., Any]) -> Any:
        return torch.autograd.grad(f(x).square().sum(), leaves) if train else (f(x),)

    ways = [lambda: step(module), lambda: step(compiled)]
    with torch.set_grad_enabled(train):
        for got, want in zip(ways[1](), ways[0](), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2 * float(want.abs().max()))
        best, rounds, end = [math.inf, math.inf], 0, time.process_time() + seconds
        while rounds < 8 or time.process_time() < end:
            for i, run in enumerate(ways):
                start = time.process_time()
                run()
                best[i] = min(best[i], time.process_time() - start)
            rounds += 1
    return best[0] / best[1]


def main() -> None:
    """Print a row for each kind of operation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.25, help="for each program")
    o = parser.parse_args()
    torch.set_num_threads(1)
    print("| beside the convolution | geometric mean | least | of |\n|---|---|---|---|")
    for kind, make in BESIDE.items():
        found: dict[str, float] = {}
        for name, (options, taken, given, side) in CONVOLUTIONS.items():
            torch.manual_seed(0)
            x = torch.randn(2, taken, side, side, requires_grad=o.train)
            found[name] = speed(make(nn.Conv2d(taken, given, **options), given), x, o.train, o.seconds)  # type: ignore[arg-type]
        least = min(found, key=found.__getitem__)
        mean = math.exp(sum(map(math.log, found.values())) / len(found))
        print(f"| {kind} | {mean:.2f} | {found[least]:.2f} | {least} |", flush=True)


if __name__ == "__main__":
    main()
