"""The rules for common calls over symbolic sizes say what torch's own metadata functions say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchjit_fx import tracing
from torchjit_fx.eager_rules import symbolic_outcomes
from torchjit_fx.settings import FxSettings
from torchjit_fx.testing import SimpleSizes, capture_by_proxy

X, W, B = torch.randn(6, 4, 8), torch.randn(5, 8), torch.randn(5)
FLAT = torch.randn(6, 8)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "view": (lambda x: (x.view(x.shape[0] * 4, 8), x.view(-1, 2, 4), x.view(x.shape[0], 1, -1), x.view(-1)), (X,)),
    "reshape": (lambda x: (x.reshape((x.shape[0], -1)), torch.reshape(x, (-1, 8)), x.reshape(x.shape)), (X,)),
    "reshape of a transposed": (lambda x: x.transpose(0, 1).reshape(4, -1), (X,)),
    "linear": (lambda x, w, b: (F.linear(x, w, b), F.linear(x, w), F.linear(x.transpose(0, 1), w)), (X, W, B)),
    "addmm": (lambda x, w, b: torch.addmm(b, x, w.t()), (FLAT, W, B)),
    "layer_norm": (lambda x, b: (F.layer_norm(x, (8,)), F.layer_norm(x, (8,), b, b)), (X, torch.randn(8))),
    "batch_norm": (lambda x, m: F.batch_norm(x, m, m.abs(), m, m), (X, torch.randn(4))),
    "batch_norm in training": (lambda x, m: F.batch_norm(x, m, m.abs() + 1, training=True), (X, torch.randn(4))),
}


def described(fn: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> list[Any]:
    captured = capture_by_proxy(
        fn, *args, sizes=SimpleSizes(lambda p: str(p) == "x.size(0)"), settings=FxSettings(node_values=True)
    )
    found = []
    assert captured.gm is not None
    for node in captured.gm.graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor):
            found.append((str(node), str(val.shape), str(val.stride()), val.dtype, val.requires_grad, val.is_leaf))
    return found


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_rules_agree_with_torch(name: str, grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, args = PROGRAMS[name]
    args = tuple(a.clone().requires_grad_(grad and not (i == 1 and "batch_norm" in name)) for i, a in enumerate(args))
    ruled = described(fn, args)
    monkeypatch.setattr(tracing, "outcome_by_rule", lambda *arguments: None)
    assert ruled == described(fn, args)


def test_rules_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    original = symbolic_outcomes.outcome_by_rule

    def noted(*arguments: Any) -> Any:
        found = original(*arguments)
        made.append(found is not None)
        return found

    monkeypatch.setattr(tracing, "outcome_by_rule", noted)
    for name in ("view", "linear", "addmm", "layer_norm", "batch_norm"):
        made.clear()
        described(*PROGRAMS[name])
        assert any(made), name
