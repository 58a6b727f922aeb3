"""Whole small programs: the captured graph against eager, with gradients and writes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchjit_fx.testing import Captured

Check = Callable[..., Captured]


def r(*shape: int, grad: bool = False, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def _nested(tree: dict[str, Any]) -> Any:
    return {"out": [tree["a"] + tree["b"][0], tree["b"][1].sin()], "shape": tuple(tree["a"].shape)}


def _loop(x: Any) -> Any:
    total = torch.zeros_like(x[0])
    for row in x:
        total = total + row * row
    return total


def _views_then_write(x: Any) -> Any:
    y = x * 2
    v = y.view(-1)[2:6]
    w = y.t()
    v.mul_(3)
    y[0] = 1
    w += 1
    return y, v, w, v.sum()


def _masks(x: Any, m: Any) -> Any:
    y = x.masked_fill(m, 0.0)
    return torch.where(m, y, -y), y.masked_fill_(m, 2.0)


def _no_grad(x: Any, w: Any) -> Any:
    with torch.no_grad():
        a = x @ w
        inner = a.requires_grad
        with torch.enable_grad():
            b = x @ w
    return a, b, inner, b.requires_grad, torch.is_grad_enabled()


def _lstm_cell(x: Any, h: Any, c: Any, wi: Any, wh: Any) -> Any:
    i, f, g, o = (x @ wi + h @ wh).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "relu_sum": (lambda x, y: F.relu(x + y).sum(-1), (r(3, 4), r(3, 4, grad=True))),
    "scalar_ops": (lambda x: 2 - x / 3 + (1.5**x) % 2, (r(4, grad=True),)),
    "comparisons": (lambda x, y: ((x > y), (x == y) | (x <= 0), ~(x != y)), (r(5), r(5))),
    "matmul": (lambda x, y: x @ y + (y.mT @ x.mT).T, (r(3, 4, grad=True), r(4, 3, grad=True))),
    "indexing": (
        lambda x, i: (x[0], x[..., 1:], x[:, None], x[i], x[i, 0], x[[0, 2]], x[-1, ::2]),
        (r(4, 6, grad=True), torch.tensor([0, 3, 1])),
    ),
    "split_chunk_unbind": (lambda x: (*x.split([1, 3]), *x.chunk(2, 1), *x.unbind(0)), (r(4, 6, grad=True),)),
    "max_values": (lambda x: (x.max(1).values, x.max(1)[1], x.sort(0), x.topk(2)), (r(4, 6, grad=True),)),
    "nested_containers": (_nested, ({"a": r(3, grad=True), "b": [r(3), r(3, grad=True)]},)),
    "loop_over_rows": (_loop, (r(3, 4, grad=True),)),
    "views_then_write": (_views_then_write, (r(3, 4, grad=True),)),
    "input_written": (lambda x, y: x.add_(y).mul_(2).sum(), (r(4), r(4))),
    "input_setitem": (lambda x, y: operator.setitem(x, (slice(1, 3), 0), y), (r(4, 2), r(2))),
    "out_argument": (lambda x, y, o: torch.add(x, y, out=o) * 2, (r(4), r(4), torch.empty(4))),
    "masks": (_masks, (r(4, grad=True), torch.tensor([True, False, True, False]))),
    "no_grad": (_no_grad, (r(3, 4), r(4, 2, grad=True))),
    "dropout": (lambda x: (F.dropout(x, 0.5), torch.rand_like(x), F.dropout(x, 0.5, training=False)), (r(50, grad=True),)),
    "random_unused": (lambda x: (torch.rand(3), torch.randn(2, 2) + x)[1], (r(2),)),
    "constructors": (
        lambda x: x + torch.ones(3) * torch.arange(3) + torch.full((3,), 2.5) + torch.tensor([1.0, 2.0, 3.0]),
        (r(3),),
    ),
    "casts": (lambda x: (x.to(torch.float64), x.half().float(), x.long(), x.type_as(x.double()), x.to("cpu"), x.type(torch.half)), (r(5),)),
    "same_object": (lambda x: (x.contiguous(), x.to(torch.float32), x), (r(3, 4, grad=True),)),
    "one_tensor_twice": (lambda x, y: x + y * 2, (lambda t: (t, t))(r(3, grad=True))),
    "detach": (lambda x: (x.detach() * 2, x * x.detach(), x.data + 1), (r(3, grad=True),)),
    "embedding": (lambda i, w: F.embedding(i, w, padding_idx=1), (torch.tensor([[0, 1], [2, 1]]), r(4, 3, grad=True))),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (r(1, 2, 4, 8, grad=True), r(1, 2, 4, 8, grad=True), r(1, 2, 4, 8, grad=True)),
    ),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), (r(3, 4, grad=True), r(4, grad=True), r(4, grad=True))),
    "conv_bn_pool": (
        lambda x, w, m, v: F.max_pool2d(F.batch_norm(F.conv2d(x, w, padding=1), m, v, training=True), 2),
        (r(2, 3, 8, 8), r(4, 3, 3, 3, grad=True), torch.zeros(4), torch.ones(4)),
    ),
    "losses": (
        lambda x, t: (F.cross_entropy(x, t), F.mse_loss(x, x * 2), F.nll_loss(F.log_softmax(x, -1), t, reduction="sum")),
        (r(4, 5, grad=True), torch.tensor([0, 4, 2, 2])),
    ),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), (r(2, 3, 4, grad=True), r(2, 4, 5, grad=True))),
    "stack_cat": (lambda x, y: (torch.stack([x, y]), torch.cat((x, y), -1), torch.hstack([x, y])), (r(2, 3), r(2, 3, grad=True))),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), (r(1, 2, 4, 4, grad=True),)),
    "complex": (lambda x: (torch.view_as_complex(x).conj() * 2).abs(), (r(4, 2, grad=True),)),
    "lstm_cell": (_lstm_cell, (r(2, 3), r(2, 4), r(2, 4), r(3, 16, grad=True), r(4, 16, grad=True))),
    "mha_forward": (
        lambda x, wi, bi, wo, bo: F.multi_head_attention_forward(
            x, x, x, 8, 2, wi, bi, None, None, False, 0.0, wo, bo, need_weights=True
        ),
        (r(5, 1, 8, grad=True), r(24, 8, grad=True), r(24), r(8, 8, grad=True), r(8)),
    ),
    "meshgrid": (lambda x, y: torch.meshgrid(x, y, indexing="ij"), (r(3), r(2))),
    "expand_permute": (lambda x: x.unsqueeze(0).expand(2, -1, -1).permute(2, 0, 1).reshape(-1), (r(3, 4, grad=True),)),
    "aten": (lambda x: torch.ops.aten.add.Tensor(x, torch.ops.aten.sin(x), alpha=2), (r(3, grad=True),)),
    "zero_dim": (lambda x: x.sum() * x.mean() + x.numel() + len(x), (r(3, grad=True),)),
    "inplace_relu": (lambda x, w: F.relu(F.linear(x, w), inplace=True) + 1, (r(3, 4), r(5, 4, grad=True))),
    "foreach": (lambda x, y: torch._foreach_add([x, y], 2.0), (r(3), r(2))),
    "foreach_in_place": (lambda x, y: torch._foreach_mul_([x, y], 2.0), (r(3), r(2))),
    # Of one element: torch 2.11 traces the dimension that is left out.
    "norms_of_one": (
        lambda x: (x[:, :1].norm(dim=-1), x[:1].norm(1, dim=-2), x[:, :1].norm(dim=(-1,), keepdim=True)),
        (r(3, 4, grad=True),),
    ),
    "norms": (lambda x: (x.norm(), torch.linalg.norm(x, dim=1), F.normalize(x)), (r(3, 4, grad=True),)),
    "cumsum_where": (lambda x: x.cumsum(0).clamp(min=0).where(x > 0, x), (r(6, grad=True),)),
    "transposed_in_place": (lambda x, y: ((x * 2).t_().squeeze_(0), y.unsqueeze_(0).transpose_(0, 1), y + 1), (r(3, 1, grad=True), r(4))),
    "integer": (lambda x: (x // 2, x % 3, x << 1, -x, x.bitwise_and(3)), (torch.arange(6),)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, check: Check) -> None:
    fn, args = PROGRAMS[name]
    check(fn, *args)


def test_repeated_capture_uses_the_cache(check: Check) -> None:
    """The second capture answers from the metadata cache; it must not differ."""
    for _ in range(2):
        for fn, args in PROGRAMS.values():
            check(fn, *args)


def test_unused_pure_steps_and_inputs_are_dropped(check: Check) -> None:
    captured = check(lambda x, y: (y.sin(), x * 2)[1], r(3), r(3))
    assert captured.gm is not None
    assert [n.name for n in captured.gm.graph.nodes if n.op == "placeholder"] == ["x"]
    assert len(captured.gm.graph.nodes) == 3


def test_outputs_that_are_inputs_need_no_graph(check: Check) -> None:
    captured = check(lambda x, y: (y, x, y), r(3), r(3))
    assert captured.gm is None


def test_same_output_twice_collapses(check: Check) -> None:
    def fn(x: Any) -> Any:
        y = x + 1
        return y, y, [y]

    captured = check(fn, r(3))
    assert captured.gm is not None
    (output,) = (n for n in captured.gm.graph.nodes if n.op == "output")
    assert len(output.args[0]) == 1


def test_node_metadata(check: Check) -> None:
    captured = check(lambda x: (x + 1).relu(), r(3))
    assert captured.gm is not None
    for node in captured.gm.graph.nodes:
        if node.op == "placeholder":
            assert (
                tuple(node.meta["val"].shape) == (3,) and str(node.meta["path"]) == "x" and node.meta["static"] is False
            )
        elif node.op != "output":
            assert node.meta["location"].filename == __file__
            assert "relu()" in node.meta["stack_trace"]
    assert captured.gm.meta["fake_mode"] is not None


def test_placeholder_names() -> None:
    from torchjit_core.paths import Arg, Pinned
    from torchjit_fx.naming import is_module_state, placeholder_name

    me = Arg.of(0, "self")
    weight = me.instance_attr("_modules").item("layer").instance_attr("_parameters").item("weight")
    assert placeholder_name(weight) == "self_layer_weight"
    assert placeholder_name(Arg.of(1, "x")) == "x"
    assert placeholder_name(Arg.of(1, "batch").item("image")) == "batch_image"
    assert placeholder_name(Arg.of(1, "a-b").item(0).attr("Scale")) == "a_b_0_Scale"
    assert placeholder_name(Pinned.of(object(), "f.<cell table>").cell()) == "table"
    assert placeholder_name(Pinned.of({}, "__main__.__dict__").item("TABLE")) == "TABLE"
    forwarded = ("pixels", "*more")
    assert placeholder_name(Arg.of(1, "args", forwarded).item(0)) == "pixels"
    assert placeholder_name(Arg.of(1, "args", forwarded).item(2)) == "more_1"
    assert placeholder_name(Arg.of(2, "kwargs", forwarded).item("mask").item("1")) == "mask_1"
    assert [placeholder_name(Arg.of(0, name)) for name in ("self", "s0", "u12", "xs0")] == [
        "self_",
        "s0_",
        "u12_",
        "xs0",
    ]
    assert is_module_state(weight) and not is_module_state(me)
