"""Convolutions on a GPU with their channels outermost and innermost, beside what `convolution_times` estimates that the second gains.

    python packages/torchjit-inductor/benchmarks/gpu_convolutions.py [--dtypes float32 bfloat16] [--only TEXT]

A line for each shape and dtype: milliseconds of the forward row-major and channels-last, what that gains and what is estimated; the same of the
backward with both gradients. Operands are in their layout already, algorithms are cuDNN's own choice, medians of 12. Operands are warm.
"""

from __future__ import annotations

import argparse
import math
from typing import Any, final

import attrs
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor import convolution_times
from torchjit_inductor.convolution_times import contest, estimated_gain
from torchjit_inductor.triton.timing import device_seconds

aten = torch.ops.aten


@final
@attrs.frozen
class Shape:
    """A convolution: of so many images, channels before and after, sizes, window, stride, groups; transposed?"""

    images: int
    channels: int
    sizes: tuple[int, ...]
    results: int
    window: tuple[int, ...]
    stride: int = 1
    groups: int = 1
    transposed: bool = False

    def __str__(self) -> str:
        def by(numbers: tuple[int, ...]) -> str:
            return "x".join(map(str, numbers))

        kind = "transposed " if self.transposed else ""
        more = (f", stride {self.stride}" if self.stride > 1 else "") + (
            f", {self.groups} groups" if self.groups > 1 else ""
        )
        return f"{kind}{by(self.window)} {self.channels} -> {self.results} of {by((self.images, *self.sizes))}{more}"

    def nodes(self, dtype: torch.dtype) -> tuple[torch.fx.Node, torch.fx.Node]:
        """The forward and its backward, traced."""
        filters = (
            (self.channels, self.results // self.groups)
            if self.transposed
            else (self.results, self.channels // self.groups)
        )
        rank = len(self.sizes)
        options = (
            [self.stride] * rank, [n // 2 if self.stride == 1 else 0 for n in self.window], [1] * rank, self.transposed, [0] * rank, self.groups,
        )  # fmt: skip

        def step(x: torch.Tensor, w: torch.Tensor) -> Any:
            y = aten.convolution(x, w, None, *options)
            return aten.convolution_backward(y, x, w, None, *options, [True, True, False])[:2]

        with FakeTensorMode():
            x = torch.empty(self.images, self.channels, *self.sizes, dtype=dtype, device="cuda")
            gm = make_fx(step)(x, torch.empty(*filters, *self.window, dtype=dtype, device="cuda"))
        forward, backward = (n for n in gm.graph.nodes if "convolution" in str(n.target))
        return forward, backward


SHAPES = (
    Shape(32, 128, (128, 256), 128, (3, 7), groups=128), Shape(64, 8, (512, 512), 8, (3, 1), groups=8), Shape(16, 64, (1024, 1024), 128, (1, 1)),
    Shape(16, 16, (1024, 1024), 128, (3, 3)), Shape(128, 64, (128, 128), 128, (3, 3)), Shape(128, 8, (128, 128), 64, (3, 3)),
    Shape(64, 64, (56, 56), 64, (3, 3)), Shape(64, 128, (28, 28), 128, (3, 3)), Shape(64, 512, (7, 7), 512, (3, 3)),
    Shape(64, 3, (224, 224), 64, (7, 7), 2), Shape(64, 256, (56, 56), 64, (1, 1)), Shape(64, 1024, (14, 14), 512, (1, 1)),
    Shape(64, 512, (28, 28), 1024, (1, 1), 2), Shape(64, 96, (112, 112), 96, (3, 3), groups=96), Shape(64, 240, (28, 28), 240, (5, 5), groups=240),
    Shape(64, 96, (56, 56), 96, (7, 7), groups=96), Shape(64, 64, (56, 56), 128, (3, 3), groups=64), Shape(64, 256, (28, 28), 256, (3, 3), groups=32),
    Shape(64, 64, (56, 56), 64, (3, 3), groups=2), Shape(64, 240, (28, 28), 240, (1, 1), groups=4),
    Shape(32, 64, (256, 256), 64, (3, 3), transposed=True), Shape(64, 256, (32, 32), 128, (4, 4), 2, transposed=True),
    Shape(32, 32, (512, 512), 16, (3, 3), transposed=True), Shape(128, 3, (24, 32, 32), 24, (3, 3, 3)), Shape(16, 32, (32, 32, 32), 64, (3, 3, 3)),
    Shape(16, 64, (16, 32, 32), 64, (3, 3, 3)), Shape(16, 32, (16, 32, 32), 64, (3, 3, 3), 2, transposed=True), Shape(16, 64, (16, 64, 64), 128, (1, 1, 1)),
    Shape(16, 64, (16, 56, 56), 64, (3, 3, 3), groups=64), Shape(8, 128, (64, 64), 128, (3, 3)), Shape(64, 3, (224, 224), 96, (4, 4), 4),
    Shape(64, 3, (224, 224), 768, (16, 16), 16), Shape(8, 32, (512, 256), 64, (5, 9)), Shape(1, 512, (14, 14), 512, (1, 1)),
    Shape(64, 17, (128, 128), 33, (3, 3)), Shape(64, 4, (256, 256), 8, (3, 3)), Shape(64, 16, (256, 256), 16, (3, 3)),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--only", default="", help="shapes whose words have this in them")
    chosen = parser.parse_args()
    convolution_times.with_measured_algorithm = lambda op: op  # type: ignore[assignment]  # cuDNN's own choice
    for shape in SHAPES:
        for name in chosen.dtypes if chosen.only in str(shape) else ():
            line = f"{shape!s:52} {name:9}"
            for node in shape.nodes(getattr(torch, name)):
                row, last = (
                    1e3 * s
                    for s in device_seconds(contest(node, shape.images), cold=False, device=torch.device("cuda"))
                )
                estimate = 1e3 * estimated_gain(node)
                right = math.copysign(1, row - last) == math.copysign(1, estimate) or abs(row - last) < 0.05 * row
                line += f"  {row:8.3f} {last:8.3f} {row - last:8.3f} ~ {estimate:8.3f} {'' if right else '!'}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
