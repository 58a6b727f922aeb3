"""Strides of results whose kernels lay them out otherwise than fake tensors say: the program, which may ask, sees eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import torchjit

CASES: dict[str, Callable[[], Tensor]] = {
    "rows and columns": lambda: torch.randn(3, 4).t(),
    "sequence": lambda: torch.randn(5, 4, 3).transpose(1, 2),
    "expanded": lambda: torch.randn(5, 3, 1).expand(5, 3, 4),
    "permuted images": lambda: torch.randn(3, 2, 4, 5).transpose(0, 1),
    "every second column, channels last": lambda: torch.randn(2, 3, 4, 10).to(memory_format=torch.channels_last)[..., ::2],
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "volumes": lambda: torch.randn(2, 3, 4, 5, 6).permute(0, 1, 4, 3, 2),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "backend"), [*[(n, b) for n in CASES for b in ("eager", "aot_eager")], ("sequence", "inductor")]
)
def test_batch_norms_of_inputs_in_another_order(name: str, backend: str) -> None:
    def program(norm: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, object]:
        y = norm(x)
        return y, y.reshape(-1)[:2], (y.stride(), y.is_contiguous())

    x = CASES[name]()
    norm = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[x.dim()](3)
    for training in (True, False):
        norm.train(training)
        compiled = torchjit.compile(program, backend=backend, fullgraph=True, dynamic=name == "sequence" or None)
        want, got = program(norm, x), compiled(norm, x)
        torch.testing.assert_close(got, want)
        assert got[2] == want[2] and got[0].stride() == want[0].stride()
