"""A slice of tools/corpora: real modules and models, everything they produce against eager. The sweeps are commands."""

# mypy: no-warn-return-any

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchjit

TOOL = Path(__file__).parent.parent / "tools" / "corpora"
CASES = 1  # samples of a module of ModuleInfo
QUICK = [
    ("moduleinfo", "nn.BatchNorm1d", "train"),
    ("moduleinfo", "nn.LSTM", "train"),
    ("moduleinfo", "nn.MultiheadAttention", "eval"),
    ("torchvision_models", "squeezenet1_1", "train"),
    ("timm_models", "resnet10t", "train"),
    ("transformers_models", "llama", "train"),
    ("transformers_models", "clip", "eval"),
]
SLOW = [
    ("transformers_models", n, "train")
    for n in ("whisper", "longformer", "deepseek_v3", "swin", "mamba", "wav2vec2", "longt5")
]
SLOW += [("moduleinfo", n, "train") for n in ("nn.LazyConv1d", "nn.GroupNorm")]
SLOW += [("torchvision_models", n, "train") for n in ("detection/fasterrcnn_mobilenet_v3_large_320_fpn", "resnet50")]
SLOW += [("timm_models", n, "train") for n in ("convit_tiny", "crossvit_tiny_240", "swin_s3_tiny_224")]


@pytest.fixture(autouse=True)
def tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOL))


def _check(corpus: str, name: str, mode: str) -> None:
    pytest.importorskip({"timm_models": "timm", "transformers_models": "transformers"}.get(corpus, "torch"))
    measure = importlib.import_module("corpora_tool.measure")
    models = importlib.import_module(f"corpora_tool.{corpus}")
    models.prepare()
    for case in models.build(name, mode, "cpu")[:CASES]:
        # Falling back to eager is a result here, not an error: the sweep's own settings.
        with torchjit.config.patch(on_error="eager"):
            result = measure.measure(case, measure.Plan(theirs=False))
        assert result["status"] == "ok", (case.name, result.get("why"), result.get("trace"))


@pytest.mark.parametrize(("corpus", "name", "mode"), QUICK, ids=lambda v: str(v).removesuffix("_models"))
def test_agrees_with_eager(corpus: str, name: str, mode: str) -> None:
    _check(corpus, name, mode)


@pytest.mark.slow
@pytest.mark.parametrize(("corpus", "name", "mode"), SLOW, ids=lambda v: str(v).removesuffix("_models"))
def test_more_models_agree_with_eager(corpus: str, name: str, mode: str) -> None:
    _check(corpus, name, mode)


def test_a_difference_is_found() -> None:
    values = importlib.import_module("corpora_tool.values")
    want = values.snapshot({"out ": {"a": torch.ones(3), "n": 1}, "grad ": [torch.zeros(2)]})
    got = values.snapshot({"out ": {"a": torch.tensor([1.0, 1.0, 1.1]), "n": 2}, "grad ": [torch.zeros(2)]})
    assert not values.compare(want, want, 1e-4)
    assert {d.label for d in values.compare(got, want, 1e-4)} == {"out ['a']", "out ['n']"}


class Told(nn.Module):
    """Computes otherwise where it is told that it is compiled, and fails there without a mask."""

    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        if mask is None and not torch.compiler.is_compiling():
            mask = torch.ones_like(x)
        return x * mask[:, :1]


def test_an_exception_that_only_the_compiled_branch_raises() -> None:
    x = torch.randn(3, 4)
    compiled = torchjit.compile(Told(), backend="eager")
    for _ in range(6):
        assert torch.equal(compiled(x), x)
    assert torch.equal(torchjit.compile(Told(), backend="eager")(x, 2 * torch.ones(3, 4)), 2 * x)


def test_lazy_modules_are_captured_from_the_second_call_on() -> None:
    module = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    compiled: Any = torchjit.compile(module, backend="eager")
    x = torch.randn(3, 5)
    first = compiled(x)
    assert torch.equal(compiled(x), first)
    assert [len(s.graphs) for s in compiled.compiled.specializations] == [1]


def test_environment_variables_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    @torchjit.compile(backend="eager", fullgraph=True)
    def f(x: torch.Tensor) -> torch.Tensor:
        if os.environ.get("TORCHJIT_TEST_SWITCH", "0") == "1":
            return x + 1
        return x - 1

    x = torch.zeros(2)
    assert float(f(x)[0]) == -1
    monkeypatch.setenv("TORCHJIT_TEST_SWITCH", "1")
    assert float(f(x)[0]) == 1
    monkeypatch.setenv("TORCHJIT_TEST_SWITCH", "2")
    assert float(f(x)[0]) == -1


@pytest.mark.parametrize("n", [3, 4, 2])
def test_sizes_from_constant_tensors(n: int) -> None:
    @torchjit.compile(backend="eager", fullgraph=True)
    def f(x: torch.Tensor) -> torch.Tensor:
        rows = torch.div(x.size(0), n, rounding_mode="trunc")
        return x.view(rows, n).transpose(0, 1).reshape(n, rows) + 1

    x = torch.arange(12.0)
    assert torch.equal(f(x), x.view(12 // n, n).transpose(0, 1).reshape(n, 12 // n) + 1)


def test_modules_made_inside_after_torch_compile_was_used() -> None:
    import torch._dynamo  # its first use replaces nn.Module.__init__

    if sys.modules.get("torch._dynamo.mutation_guard") is not None:
        torch._dynamo.mutation_guard.install_generation_tagging_init()
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def f(x: torch.Tensor) -> torch.Tensor:
        for layer in layers[:2]:
            x = layer(x)
        return x

    x = torch.randn(2, 4)
    assert torch.equal(torchjit.compile(f, backend="eager", fullgraph=True)(x), f(x))
