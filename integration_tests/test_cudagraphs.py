"""`mode="reduce-overhead"` in whole training and inference loops, against eager. On a GPU only."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchjit
from torchjit_core.events import listen

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


class Net(nn.Module):
    """Convolution, batch norm with buffers, attention, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(x.mean(1))


def net() -> Net:
    torch.manual_seed(0)
    return Net().cuda()


def close(got: Any, want: Any) -> None:
    torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-4)


def captures(run: Callable[[], Any]) -> int:
    count = 0

    def hear(kind: str, fields: Any) -> None:
        nonlocal count
        count += kind == "cudagraph_captured"

    with listen(hear):
        run()
    return count


@pytest.mark.parametrize("accumulate", [1, 3])
def test_training_with_an_optimizer(accumulate: int) -> None:
    reference, model = net(), net()
    compiled = torchjit.compile(model, mode="reduce-overhead")
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (reference, model)]
    losses = []

    def train() -> None:
        for step in range(12):
            x = torch.randn(8, 3, 16, 16, device="cuda")
            y = torch.randint(0, 10, (8,), device="cuda")
            pair = []
            for f in (reference, compiled):
                loss = F.cross_entropy(f(x), y)
                loss.backward()
                pair.append(loss)
            close(pair[1], pair[0])
            losses.append(pair)
            for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
                close(ours.grad, theirs.grad)
            if step % accumulate == accumulate - 1:
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)

    assert captures(train) >= 2
    for ours, theirs in zip(model.state_dict().values(), reference.state_dict().values(), strict=True):
        close(ours, theirs)
    for theirs_loss, our_loss in losses:
        close(our_loss, theirs_loss)


def test_retained_graphs_and_held_results() -> None:
    reference, model = net(), net()
    compiled = torchjit.compile(model, mode="reduce-overhead")
    held = []
    for step in range(10):
        x = torch.randn(4, 3, 16, 16, device="cuda")
        ours, theirs = compiled(x), reference(x)
        for f, out in ((model, ours), (reference, theirs)):
            f.zero_grad()
            out.sum().backward(retain_graph=True)
            out.pow(2).sum().backward()
        for a, b in zip(model.parameters(), reference.parameters(), strict=True):
            close(a.grad, b.grad)
        if step % 2:
            held.append((ours, theirs, ours.detach().clone()))
        if step % 3 == 0:  # a forward whose backward never runs
            compiled(x)
            reference(x)
    for ours, theirs, copied in held:
        close(ours, theirs)
        assert torch.equal(ours, copied)


def test_inference_and_training_take_turns_with_changing_sizes() -> None:
    reference, model = net(), net()
    compiled = torchjit.compile(model, mode="reduce-overhead", dynamic=False)
    chosen = random.Random(0)
    for _ in range(40):
        train, grad, batch = chosen.random() < 0.5, chosen.random() < 0.5, chosen.choice([2, 4])
        x = torch.randn(batch, 3, 16, 16, device="cuda")
        for m in (model, reference):
            m.train(train)
            m.zero_grad()
        with torch.set_grad_enabled(grad):
            ours, theirs = compiled(x), reference(x)
        close(ours, theirs)
        if grad:
            ours.sum().backward()
            theirs.sum().backward()
            for a, b in zip(model.parameters(), reference.parameters(), strict=True):
                close(a.grad, b.grad)


def test_graphs_around_a_break_pass_results_on() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x) * 2
        torchjit.graph_break()
        return torch.cos(y) + y

    compiled = torchjit.compile(f, mode="reduce-overhead")
    for _ in range(8):
        x = torch.randn(2048, 512, device="cuda")
        close(compiled(x), f(x))


def test_weights_that_are_replaced_and_updated() -> None:
    model = net().eval()
    compiled = torchjit.compile(model, mode="reduce-overhead")
    x = torch.randn(4, 3, 16, 16, device="cuda")
    with torch.no_grad():
        for step in range(10):
            if step == 4:
                model.head.weight.add_(1)
            if step == 7:
                model.load_state_dict(copy.deepcopy(model.state_dict()))
                model.head = nn.Linear(16, 10).cuda()
            got = compiled(x)
            close(got, Net.forward(model, x))


def test_dropout_masks_differ_and_the_backward_uses_the_same() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5, True) * 3

    compiled = torchjit.compile(f, mode="reduce-overhead")
    seen = []
    for _ in range(6):
        x = torch.ones(4096, device="cuda", requires_grad=True)
        out = compiled(x)
        out.sum().backward()
        assert torch.equal(out.detach() != 0, x.grad != 0)
        seen.append(out.detach() != 0)
    assert all(not torch.equal(a, b) for a, b in zip(seen, seen[1:], strict=False))


@pytest.mark.parametrize("grad", [False, True])
def test_every_size_of_a_dynamic_graph_is_recorded(grad: bool) -> None:
    reference, model = net(), net()
    compiled = torchjit.compile(model, mode="reduce-overhead", dynamic=True)

    def run() -> None:
        for step in range(15):
            x = torch.randn((3, 5, 8)[step % 3], 3, 16, 16, device="cuda")
            with torch.set_grad_enabled(grad):
                ours, theirs = compiled(x), reference(x)
            close(ours, theirs)
            if grad:
                for m, out in ((model, ours), (reference, theirs)):
                    m.zero_grad()
                    out.sum().backward()
                for a, b in zip(model.parameters(), reference.parameters(), strict=True):
                    close(a.grad, b.grad)

    assert captures(run) >= (6 if grad else 3)


class Cached(nn.Module):
    """Attends over what it has seen; the caches gain one position in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(256, 3 * 256, bias=False)
        self.register_buffer("keys", torch.zeros(1, 4, 32, 64))
        self.register_buffer("values", torch.zeros(1, 4, 32, 64))
        self.register_buffer("positions", torch.arange(32))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).view(1, 1, 3, 4, 64).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, at, k)
        self.values[:, :, 0] = v[:, :, 0]
        self.values.index_copy_(2, at, v)
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=(self.positions <= at)[None])
        return y.reshape(1, 256)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_decode_loop_grows_its_caches(mode: str) -> None:
    torch.manual_seed(0)
    reference = Cached().cuda()
    model = copy.deepcopy(reference)
    compiled = torchjit.compile(model, mode=mode)
    with torch.no_grad():
        for step in range(12):
            x, at = torch.randn(1, 256, device="cuda"), torch.tensor([step], device="cuda")
            close(compiled(x, at), reference(x, at))
            close(model.keys, reference.keys)
            close(model.values, reference.values)


def test_a_step_of_max_pooling_and_a_loss_over_a_vocabulary() -> None:
    def f(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        pooled = F.max_pool2d(F.relu(x), 3, 2, 1).flatten(1)
        return F.cross_entropy((pooled @ w).float(), y, ignore_index=-100)

    compiled = torchjit.compile(f, mode="reduce-overhead")
    for layout in (torch.contiguous_format, torch.channels_last):
        for _ in range(4):
            x = torch.randn(8, 16, 14, 14, device="cuda").to(memory_format=layout)
            w, y = torch.randn(784, 5001, device="cuda") / 28, torch.randint(0, 5001, (8,), device="cuda")
            y[0] = -100
            pair = []
            for g in (compiled, f):
                leaves = [t.clone(memory_format=torch.preserve_format).requires_grad_() for t in (x, w)]
                loss = g(*leaves, y)
                loss.backward()
                pair.append([loss.detach(), *(t.grad for t in leaves)])
            close(pair[0], pair[1])
