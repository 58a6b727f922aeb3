"""Real models with random weights: outputs, gradients and buffers against eager, in one graph."""

# mypy: allow-untyped-calls

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchjit
from torchjit.demo.models import GPT, resnet18

CASES: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "resnet18": lambda: (resnet18(), torch.randn(4, 3, 64, 64)),
    "gpt": lambda: (GPT(layers=3, width=64, context=32, vocabulary=100), torch.randint(0, 100, (2, 32))),
    "mlp": lambda: (
        nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.5), nn.Linear(16, 4), nn.Softmax(-1)),
        torch.randn(6, 8),
    ),
    "conv": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.SiLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 5),
        ),
        torch.randn(4, 3, 8, 8),
    ),
    "encoder": lambda: (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), torch.randn(2, 5, 16)),
}


def _relative(got: torch.Tensor, want: torch.Tensor) -> float:
    scale = float(want.double().norm()) or 1.0
    return float((got.double() - want.double()).norm()) / scale


def _train(f: Any, module: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    module.zero_grad(set_to_none=True)
    torch.manual_seed(3)
    out = f(x)
    F.mse_loss(out, torch.ones_like(out)).backward()
    values = {"out": out.detach()}
    values |= {f"grad {k}": p.grad for k, p in module.named_parameters() if p.grad is not None}
    return values | {f"buffer {k}": b.clone() for k, b in module.named_buffers()}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", CASES)
def test_inference_and_training(name: str, backend: str) -> None:
    torch.manual_seed(0)
    module, x = CASES[name]()
    twin = copy.deepcopy(module)
    compiled = torchjit.compile(twin, backend=backend)
    for _ in range(2):
        want, got = _train(module, module, x), _train(compiled, twin, x)
        assert want.keys() == got.keys()
        # A gradient that is zero but for rounding is compared with the size of the others.
        scale = max(float(g.norm()) for k, g in want.items() if k.startswith("grad"))
        for key in want:
            if key.startswith("grad"):
                assert float((got[key] - want[key]).norm()) < 2e-3 * max(float(want[key].norm()), 1e-2 * scale), key
            else:
                assert _relative(got[key], want[key]) < 1e-4, key
    module.eval(), twin.eval()
    with torch.no_grad():
        for _ in range(2):
            assert _relative(compiled(x), module(x)) < 1e-4
    told: Any = compiled.compiled
    assert [len(s.specializations) for s in told.sites] == [2], "one graph for training, one for inference"
    assert not any(s.breaks for s in told.specializations)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_batch_size_becomes_dynamic(backend: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    compiled: Any = torchjit.compile(module, backend=backend)
    for batch in (4, 6, 3, 9):
        x = torch.randn(batch, 8, requires_grad=True)
        (want,) = torch.autograd.grad(module(x).pow(2).sum(), x)
        (got,) = torch.autograd.grad(compiled(x).pow(2).sum(), x)
        assert _relative(got, want) < 1e-5
    assert len(compiled.compiled.specializations) == 2


def test_transformers_bert_with_random_weights() -> None:
    transformers = pytest.importorskip("transformers", reason="the models group is not installed")
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100
    )
    model = transformers.BertModel(config).eval()
    ids = torch.randint(0, 100, (2, 12))
    compiled = torchjit.compile(model, backend="eager")
    with torch.no_grad():
        want, got = model(ids), compiled(ids)
    assert type(got) is type(want)
    torch.testing.assert_close(got.last_hidden_state, want.last_hidden_state)
    torch.testing.assert_close(got.pooler_output, want.pooler_output)
