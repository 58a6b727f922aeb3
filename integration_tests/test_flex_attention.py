"""`flex_attention` inside of compiled code: one node of the graph, equal to eager in results and gradients."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import torchjit

# PyTorch compiles the eager call by torch.compile, and warns about it.
pytestmark = pytest.mark.filterwarnings("ignore")
LENGTH = 130


@pytest.fixture(autouse=True)
def _gradients_on_the_cpu(monkeypatch):
    """Eager PyTorch has them, and refuses them because its kernels have none."""
    monkeypatch.setattr(flex, "_validate_device", lambda *tensors: None)


def _causal(b, h, i, j):
    return i >= j


class Plain(nn.Module):
    def forward(self, q, k, v):
        return flex_attention(torch.cat([q, q], 1), k, v, enable_gqa=True, return_lse=True, scale=0.3)


class Masked(nn.Module):
    """A mask made inside, over documents; rows that see nothing; a learned bias; results laid out as the query."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(2, 2 * LENGTH))
        self.projection = nn.Linear(16, 16)
        self.documents = torch.arange(LENGTH) // 50

    def forward(self, q, k, v):
        documents, window = self.documents, 37

        def mask(b, h, i, j):
            return (documents[i] == documents[j]) & (i - j < window) & (i > 3)

        def score(s, b, h, i, j):
            return s * torch.tanh(self.bias[h, i - j + LENGTH]) + self.bias[h, 0]

        blocks = create_block_mask(mask, None, None, q.shape[2], k.shape[2], device=q.device, BLOCK_SIZE=64)
        q = self.projection(q.transpose(1, 2)).transpose(1, 2)
        return flex_attention(q, k, v, score_mod=score, block_mask=blocks)


class MaskGiven(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = create_block_mask(_causal, None, None, LENGTH, LENGTH, device="cpu")

    def forward(self, q, k, v):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return flex_attention(q, k, v, block_mask=self.blocks)


def _did(model, function):
    torch.manual_seed(0)
    inputs = [torch.randn(2, 2, LENGTH, 16, requires_grad=True) for _ in range(3)]
    out = function(*inputs)
    results = out if isinstance(out, tuple) else (out,)
    sum(r.double().sin().sum() for r in results if r.requires_grad).backward()
    return [r.detach() for r in results], [t.grad for t in (*inputs, *model.parameters())]


_KNOWN: dict[type, object] = {}


def _wanted(cls, model):
    """What eager does, once for both backends: each call compiles."""
    if cls not in _KNOWN:
        _KNOWN[cls] = _did(model, model)
    return _KNOWN[cls]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("cls", [Plain, Masked, MaskGiven])
def test_is_one_node_and_equal_to_eager(cls, backend):
    torch.manual_seed(1)
    model = cls()
    twin = copy.deepcopy(model)
    want, gradients = _wanted(cls, model)
    compiled = torchjit.compile(twin, backend=backend)
    got, found = _did(twin, compiled)
    rough = 2e-2 if cls is MaskGiven else 1e-4
    for g, w in zip(got, want, strict=True):
        assert g.stride() == w.stride()
        torch.testing.assert_close(g, w)
    for g, w in zip(found, gradients, strict=True):
        torch.testing.assert_close(g, w, atol=rough, rtol=rough)
    assert not torchjit.explain(twin)(*[torch.randn(2, 2, LENGTH, 16) for _ in range(3)]).breaks


def test_the_node_holds_the_two_functions():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    q = torch.randn(2, 2, LENGTH, 16)
    torchjit.compile(Masked(), backend=backend, fullgraph=True)(q, q, q)
    (node,) = [n for n in graphs[0].graph.nodes if getattr(n.target, "__name__", "") == "flex_attention"]
    attention = node.target
    assert "eq" in attention.mask.graph.code and "tanh" in attention.score.graph.code
    assert attention.blocks[:2] == (LENGTH, LENGTH) and attention.given_blocks == 8
    assert len(node.args) == 3 + attention.given_blocks + attention.tensors


def test_lengths_that_vary_are_one_specialisation():
    def f(q):
        return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s - (i - j).abs())

    compiled: Any = torchjit.compile(f, backend="aot_eager", dynamic=True)
    for length in (128, 192):
        q = torch.randn(1, 2, length, 8)
        scores = q @ q.mT / 8**0.5 - (torch.arange(length)[:, None] - torch.arange(length)).abs()
        torch.testing.assert_close(compiled(q), scores.softmax(-1) @ q)
    assert len(compiled.compiled.specializations) == 1


def test_wrong_arguments_raise_as_in_eager():
    q = torch.randn(2, 2, 32, 8)
    with pytest.raises(ValueError, match="same number of heads"):
        torchjit.compile(lambda x: flex_attention(x, x[:, :1], x), backend="eager")(q)
