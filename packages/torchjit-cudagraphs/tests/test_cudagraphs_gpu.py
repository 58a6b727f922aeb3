"""The same on a real GPU, with `TorchGraphDriver`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import torch

from torchjit_cudagraphs import CudaGraphSettings, Recorded, record

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@attrs.define(eq=False)
class Compiled:
    function: Callable[..., Sequence[Any]]
    static_inputs: frozenset[int] = frozenset()
    mutated_inputs: frozenset[int] = frozenset()
    device: torch.device | None = torch.device("cuda")
    reason_not_recordable: str | None = None

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        return self.function(*inputs)


def test_a_small_network_replays() -> None:
    w1, w2 = torch.randn(64, 256, device="cuda"), torch.randn(256, 64, device="cuda")
    counter = torch.zeros((), device="cuda")

    def network(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, counter: torch.Tensor) -> Sequence[Any]:
        counter.add_(1)
        return (torch.relu(x @ w1) @ w2, x)

    compiled = Compiled(network, frozenset({1, 2, 3}), frozenset({3}))
    f = record(compiled, (torch.randn(8, 64, device="cuda"), w1, w2, counter))
    assert isinstance(f, Recorded)
    kept = []
    for call in range(6):
        x = torch.randn(8 if call % 2 else 16, 64, device="cuda")
        out, same = f(x, w1, w2, counter)
        assert same is x
        kept.append((out, torch.relu(x @ w1) @ w2))
    assert counter.item() == 6
    assert f.recordings == 2
    for out, want in kept:
        torch.testing.assert_close(out, want)


def test_random_numbers_differ_from_replay_to_replay() -> None:
    f = record(Compiled(lambda x: (torch.nn.functional.dropout(x, 0.5),)), (torch.ones(1000, device="cuda"),))
    x = torch.ones(1000, device="cuda")
    f(x)
    assert not torch.equal(f(x)[0], f(x)[0])


def test_a_synchronizing_operation_falls_back() -> None:
    f = record(Compiled(lambda x: (x * x.sum().item(),)), (torch.ones(4, device="cuda"),))
    for i in range(4):
        x = torch.full((4,), float(i), device="cuda")
        torch.testing.assert_close(f(x)[0], x * x.sum())


def test_reused_outputs_and_two_streams() -> None:
    f = record(Compiled(lambda x: (x * 2,)), (torch.ones(4, device="cuda"),), CudaGraphSettings(reuse_outputs=True))
    x = torch.ones(4, device="cuda")
    f(x)
    first = f(x)[0]
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        second = f(x + 1)[0]
    torch.cuda.synchronize()
    assert first.data_ptr() == second.data_ptr()
    assert second.tolist() == [4, 4, 4, 4]
