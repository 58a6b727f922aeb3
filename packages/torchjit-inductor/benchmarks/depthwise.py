"""Gradients of depthwise convolutions' weights: aten, and the kernels that replace it for wide windows.

    uv run python packages/torchjit-inductor/benchmarks/depthwise.py [--threads 2] [--rounds 12]

Milliseconds, the least of interleaved rounds: processor time of one thread, wall time of several. `forward` is aten's convolution,
for scale: it computes as many products.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from torchjit_inductor.cpp.depthwise import DepthwiseKernels, Taps
from torchjit_inductor.settings import InductorSettings

CASES = [
    # images, channels, side, window, stride
    (4, 144, 56, 3, 1),
    (4, 96, 112, 3, 2),
    (4, 32, 112, 3, 1),
    (4, 58, 28, 3, 1),
    (4, 480, 14, 3, 1),
    (4, 960, 7, 3, 1),
    (4, 144, 56, 5, 2),
    (4, 240, 28, 5, 1),
    (4, 672, 14, 5, 1),
    (4, 1152, 7, 5, 1),
    (4, 96, 56, 7, 1),
    (4, 192, 28, 7, 1),
    (4, 384, 14, 7, 1),
    (4, 768, 7, 7, 1),
    (2, 64, 64, 31, 1),
]


def least(ways: list[Callable[[], Any]], rounds: int, clock: Callable[[], float]) -> list[float]:
    """Milliseconds of each."""
    best = [float("inf")] * len(ways)
    for turn in range(rounds + 1):
        for k, way in enumerate(ways):
            start = clock()
            way()
            if turn:
                best[k] = min(best[k], (clock() - start) * 1e3)
    return best


def measure(case: tuple[int, ...], layout: torch.memory_format, rounds: int, clock: Callable[[], float]) -> list[float]:
    """Forward, the weight's gradient by aten, and by the kernel."""
    images, channels, side, window, stride = case
    x = torch.randn(images, channels, side, side).contiguous(memory_format=layout)
    w = torch.randn(channels, 1, window, window)
    numbers = [stride] * 2, [window // 2] * 2, [1, 1]
    g = torch.randn_like(torch.conv2d(x, w, None, *numbers, channels))
    taps = Taps((window, window), (stride, stride), (window // 2, window // 2), (1, 1), torch.float32)
    kernel = DepthwiseKernels(InductorSettings()).gradient(taps)
    assert kernel is not None
    options = None, *numbers, False, [0, 0], channels, [False, True, False]
    ways = [
        lambda: torch.conv2d(x, w, None, *numbers, channels),
        lambda: torch.ops.aten.convolution_backward(g, x, w, *options),
        lambda: kernel(g, x, False),
    ]
    return least(ways, rounds, clock)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    print("| images, channels, side | window | layout | forward | weights, aten | weights, kernel | aten / kernel |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        images, channels, side, window, stride = case
        for layout in (torch.channels_last, torch.contiguous_format):
            forward, aten, ours = measure(case, layout, options.rounds, clock)
            name = "channels last" if layout == torch.channels_last else "row-major"
            sizes = f"{images}, {channels}, {side}" + (f" by {stride}" if stride > 1 else "")
            print(
                f"| {sizes} | {window} x {window} | {name} | {forward:.2f} | {aten:.2f} | {ours:.2f} | {aten / ours:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
