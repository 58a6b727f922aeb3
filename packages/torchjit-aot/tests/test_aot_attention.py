"""Hand-written attention in the forms that programs use, through the fused operator, against eager PyTorch."""

from __future__ import annotations

import collections
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode

import torchjit_aot
from torchjit_aot import AotSettings, run_eagerly
from torchjit_aot.attention import fuse_attention
from torchjit_aot.patterns import either, literal, matches, number, once, spelled, var
from torchjit_core.events import listen

B, H, L, S, D = 2, 3, 5, 7, 8
FUSING = AotSettings(fallback=False, fuse=True)


def qkv(*batch: int, grad: bool = True) -> list[Tensor]:
    return [torch.randn(*batch, n, D).requires_grad_(grad) for n in (L, S, S)]


def padding() -> Tensor:
    """True where a key is hidden; the last row of the batch sees nothing."""
    mask = torch.zeros(B, 1, 1, S, dtype=torch.bool)
    mask[0, ..., 4:] = True
    mask[1] = True
    return mask


def additive() -> Tensor:
    return torch.zeros(L, S).masked_fill(torch.ones(L, S).triu(1) > 0, -math.inf)


def traced(f: Callable[..., Any]) -> fx.GraphModule:
    """The torch-level graph, as capture makes it."""
    return fx.symbolic_trace(f)


FORMS: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {}


def form(make: Callable[[], list[Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def added(f: Callable[..., Any]) -> Callable[..., Any]:
        FORMS[f.__name__] = (f, make)
        return f

    return added


@form(lambda: qkv(B, H))
def divided(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return torch.matmul(F.softmax(torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(D), dim=-1), v)


@form(lambda: qkv(B, H))
def multiplied(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return ((q @ k.transpose(2, 3)) * D**-0.5).softmax(-1) @ v


@form(lambda: qkv(B, H))
def scaled_before(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return torch.softmax((q * 0.3) @ k.transpose(-1, -2), -1) @ v


@form(lambda: qkv(B, H))
def without_scale(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return torch.softmax(q.matmul(k.permute(0, 1, 3, 2)), dim=3).matmul(v)


@form(lambda: qkv(B * H))
def batched_products(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return torch.bmm(F.softmax(torch.bmm(q, k.transpose(1, 2)) / 2.5, dim=-1), v)


@form(lambda: qkv(B, H))
def einsums(q: Tensor, k: Tensor, v: Tensor) -> Any:
    scores = torch.einsum("b h i d, b h j d -> b h i j", q, k) * D**-0.5
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(dim=-1), v)


@form(lambda: [torch.randn(B, n, H, D, requires_grad=True) for n in (L, S, S)])
def heads_moved(q: Tensor, k: Tensor, v: Tensor) -> Any:
    q, kt, v = q.permute(0, 2, 1, 3), k.permute(0, 2, 3, 1), v.permute(0, 2, 1, 3)
    out = torch.matmul(torch.softmax(torch.matmul(q, kt) / 2.0, -1), v)
    return out.permute(0, 2, 1, 3).contiguous().view(B, L, H * D)


@form(lambda: [*qkv(B, H), additive()])
def added_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Any:
    weights = F.softmax(torch.matmul(q, k.transpose(2, 3)) * 0.3 + mask, dim=-1, dtype=torch.float32).to(torch.float32)
    return torch.matmul(F.dropout(weights, p=0.0, training=True), v).transpose(1, 2).contiguous()


@form(lambda: [*qkv(B, H), torch.zeros(B, 1, L, S).masked_fill(padding(), torch.finfo(torch.float32).min)])
def added_mask_of_lowest_numbers(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Any:
    return torch.softmax(mask + q @ k.transpose(-2, -1) / 3.0, -1) @ v


@form(lambda: [*qkv(B, H), torch.zeros(B, 1, 1, S).masked_fill(padding(), -math.inf)])
def added_mask_with_rows_that_see_nothing(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Any:
    return torch.softmax(q @ k.transpose(-2, -1) / 3.0 + mask, -1) @ v


@form(lambda: [*qkv(B, H), padding()])
def filled_with_infinity(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Any:
    return torch.softmax((q @ k.transpose(-2, -1) * 0.4).masked_fill(hidden, float("-inf")), -1) @ v


@form(lambda: [*qkv(B, H), padding()])
def filled_with_a_low_number(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Any:
    scores = (q @ k.transpose(-2, -1) / math.sqrt(D)).masked_fill(hidden, -1e9)
    return F.dropout(torch.softmax(scores, -1), 0.1, training=False) @ v


@form(lambda: [*qkv(B, H), ~padding()])
def chosen_with_where(q: Tensor, k: Tensor, v: Tensor, shown: Tensor) -> Any:
    return torch.softmax(torch.where(shown, q @ k.transpose(-2, -1) / 2.0, -1e30), -1) @ v


@form(lambda: [t.detach().bfloat16().requires_grad_() for t in qkv(B, H)])
def half_precision_with_a_wide_softmax(q: Tensor, k: Tensor, v: Tensor) -> Any:
    weights = F.softmax((q @ k.transpose(-2, -1) * 0.35).float(), dim=-1).to(torch.bfloat16)
    return weights @ v


def compile_counted(
    f: Callable[..., Any], args: list[Any], settings: AotSettings = FUSING
) -> tuple[Any, collections.Counter[str]]:
    counts: collections.Counter[str] = collections.Counter()

    def hear(kind: str, fields: dict[str, Any]) -> None:
        if kind == "rewrites":
            counts.update(fields["counts"])

    with listen(hear):
        return torchjit_aot.compile(traced(f), args, compiler=run_eagerly, settings=settings), counts


def outcome(run: Callable[..., Any], args: list[Any]) -> list[Any]:
    mine = [t.detach().clone().requires_grad_(t.requires_grad) for t in args]
    out = run(*mine)
    if out.requires_grad:
        out.backward(torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype))
    return [out, out.stride(), *[t.grad for t in mine]]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", FORMS)
def test_forms_are_fused_and_equal_eager(name: str, training: bool) -> None:
    torch.manual_seed(0)
    f, make = FORMS[name]
    args = make() if training else [t.detach() for t in make()]
    compiled, counts = compile_counted(f, args)
    assert counts["attention"] == (0 if training and "added" in name else 1)
    close: dict[str, Any] = {"rtol": 5e-2, "atol": 5e-2} if "half" in name else {"rtol": 1e-4, "atol": 1e-5}
    for want, have in zip(outcome(f, args), outcome(compiled, args), strict=True):
        if isinstance(want, Tensor):
            torch.testing.assert_close(have, want, equal_nan=True, **close)
        else:
            assert want == have


class Heads(torch.nn.Module):
    """Its parameters are used in another order than they are declared, and one not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = torch.nn.Parameter(torch.randn(D, D))
        self.out, self.value, self.key = (torch.nn.Linear(D, D) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        value, key = self.value(x), self.key(x)
        weights = torch.softmax(x @ key.transpose(-2, -1) / 2.0, -1)
        return self.out(weights @ value)  # type: ignore[no-any-return]


def test_a_module_keeps_its_parameters_in_place() -> None:
    module, x = Heads(), torch.randn(B, L, D)
    compiled, counts = compile_counted(module, [x])
    assert counts["attention"] == 1
    torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)


def weights_returned(q: Tensor, k: Tensor, v: Tensor) -> Any:
    weights = torch.softmax(q @ k.transpose(-2, -1), -1)
    return weights @ v, weights


def wrong_dimension(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return torch.softmax(q @ k.transpose(-2, -1), 2) @ v


def active_dropout(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return F.dropout(torch.softmax(q @ k.transpose(-2, -1), -1), 0.5, True) @ v


def written_in_between(q: Tensor, k: Tensor, v: Tensor) -> Any:
    scores = (q * 1) @ k.transpose(-2, -1)
    other = v * 2
    weights = torch.softmax(scores, -1)
    other.mul_(2)
    return weights @ other


def small_fill(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return torch.softmax((q @ k.transpose(-2, -1)).masked_fill(q[..., :1] > 0, -5.0), -1) @ v


@pytest.mark.parametrize("f", [weights_returned, wrong_dimension, active_dropout, written_in_between, small_fill])
def test_what_is_left_alone_equals_eager(f: Callable[..., Any]) -> None:
    args = qkv(B, H)
    compiled, counts = compile_counted(f, args)
    assert counts["attention"] == 0
    torch.manual_seed(1)
    want = f(*args)
    torch.manual_seed(1)
    torch.testing.assert_close(compiled(*args), want)


def test_a_mask_that_needs_a_gradient_is_left_alone() -> None:
    args = [*qkv(B, H), torch.randn(L, S, requires_grad=True)]
    compiled, counts = compile_counted(FORMS["added_mask"][0], args)
    assert counts["attention"] == 0
    for want, have in zip(outcome(FORMS["added_mask"][0], args), outcome(compiled, args), strict=True):
        torch.testing.assert_close(have, want)


def mask_written_in_between(q: Tensor, k: Tensor, v: Tensor) -> Any:
    hidden = q[..., :1] > 0
    scores = (q @ k.transpose(-2, -1)).masked_fill(hidden, float("-inf"))
    torch.bitwise_and(hidden, False)
    return torch.softmax(scores, -1) @ v


def dropped_in_place_in_between(q: Tensor, k: Tensor, v: Tensor) -> Any:
    other = q * 1
    scores = other @ k.transpose(-2, -1)
    F.dropout(other, 0.5, True, True)
    return torch.softmax(scores, -1) @ v


@pytest.mark.parametrize("f", [mask_written_in_between, dropped_in_place_in_between])
def test_writes_in_between_are_seen(f: Callable[..., Any]) -> None:
    gm = traced(f)
    for node in gm.graph.nodes:
        if node.target is torch.bitwise_and:
            node.target = operator.iand  # which Python does not call on what stands for a tensor while it is traced
    gm.recompile()
    counted: collections.Counter[str] = collections.Counter()
    assert not fuse_attention(gm.graph, counted)


@pytest.mark.parametrize(("device", "keys", "fused"), [("cuda", 49, False), ("cpu", 49, True)])
def test_few_keys_with_an_added_mask_stay_products_on_gpus(device: str, keys: int, fused: bool) -> None:
    gm = traced(lambda q, k, v, mask: ((q * 0.5) @ k.transpose(-2, -1) + mask).softmax(-1) @ v)
    counted: collections.Counter[str] = collections.Counter()
    assert fuse_attention(gm.graph, counted)
    gm.recompile()
    with FakeTensorMode(), torch.no_grad():
        q, k, v = (torch.empty(2, 3, keys, 32, device=device) for _ in range(3))
        assert gm(q, k, v, torch.empty(1, 3, keys, keys, device=device)).shape == q.shape
    assert (counted["attention"] == 1) == fused


def test_nothing_is_fused_unless_asked_for() -> None:
    _, counts = compile_counted(divided, qkv(B, H), AotSettings(fallback=False))
    assert counts["attention"] == 0


def test_patterns_bind_variables_and_backtrack() -> None:
    add = spelled("x y", {torch.add: "x y", "add": "x y"})
    sin = spelled("x", {torch.sin: "x", "sin": "x"})
    graph = traced(lambda a, b: torch.add(torch.sin(a), torch.add(a, 2, alpha=1).sin())).graph
    root = next(
        n
        for n in graph.nodes
        if n.target is torch.add and isinstance(n.args[1], fx.Node) and n.args[1].op != "placeholder"
    )
    assert [m["u"].name for m in matches(add(sin(var("u")), var("v")), root)] == ["a"]
    assert not list(matches(add(sin(var("u")), sin(var("u"))), root))  # the same name is the same node
    assert not list(matches(sin(either(add(var("u"), number("n")), var("u"))), root))
    last = root.args[1]
    assert [m.get("n") for m in matches(sin(either(add(var("u"), number("n")), var("u"))), last)] == [
        None
    ]  # alpha is not declared
    shared = traced(lambda a: (torch.sin(a), torch.add(torch.sin(a), 1))).graph
    node = next(n for n in shared.nodes if n.target is torch.add)
    assert list(matches(add(once(sin(var("u"))), literal(1)), node))
    again = traced(lambda a: (lambda s: (s, torch.add(s, 1)))(torch.sin(a))).graph
    node = next(n for n in again.nodes if n.target is torch.add)
    assert not list(matches(add(once(sin(var("u"))), literal(1)), node))
