"""Symbolic sizes: one compilation serves other sizes. torch's ShapeEnv stands in for any provider of symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from aot_harness import STRICT, assert_same, graph_of, loss_of, tensors
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import torchjit_aot
from torchjit_aot import run_eagerly


def symbolic_graph(
    f: Callable[..., Any], args: Sequence[Any], dynamic: Sequence[Sequence[int]], *, int_inputs: bool = False
) -> tuple[Any, list[Any]]:
    """A graph that calls `f` with symbols for the named dimensions; optionally the symbols are inputs, too."""
    from torch._dynamo.source import ConstantSource  # the stand-in's own bookkeeping needs a source

    mode = FakeTensorMode(shape_env=ShapeEnv())
    gm = graph_of(f, len(args))
    for i, (node, arg, dims) in enumerate(zip(gm.graph.nodes, args, dynamic, strict=False)):
        if not isinstance(arg, torch.Tensor):
            node.meta["val"] = arg
            continue
        kinds = [DimDynamic.DYNAMIC if d in dims else DimDynamic.STATIC for d in range(arg.dim())]
        context = StatelessSymbolicContext(dynamic_sizes=kinds)  # type: ignore[var-annotated]
        node.meta["val"] = mode.from_tensor(arg.detach(), symbolic_context=context, source=ConstantSource(f"a{i}"))
    gm.meta["fake_mode"] = mode
    inputs = list(args)
    if int_inputs:
        first = next(iter(gm.graph.nodes))
        seen: set[str] = set()
        for node, arg in zip(list(gm.graph.nodes), args, strict=False):
            for d, n in enumerate(node.meta["val"].shape):
                if isinstance(n, torch.SymInt) and str(n) not in seen:
                    seen.add(str(n))
                    with gm.graph.inserting_before(first):
                        gm.graph.placeholder(str(n)).meta["val"] = n
                    inputs.insert(len(seen) - 1, arg.shape[d])
        gm.recompile()
    return gm, inputs


def case_view(x: torch.Tensor) -> Any:
    return x.view(x.shape[0], 2, -1).transpose(1, 2).reshape(-1, 2) * x.shape[0]


def case_linear(x: torch.Tensor, w: torch.Tensor) -> Any:
    return F.linear(x, w).relu().sum(0), x.size(0), x.size(0) * 2 + 1


def case_cat(x: torch.Tensor, w: torch.Tensor) -> Any:
    return torch.cat([x, x * 2]).softmax(-1), torch.arange(x.size(0)) + 1


def case_alias(x: torch.Tensor) -> Any:
    y = x * 2
    return x.t(), x.view(-1)[: x.shape[0]], y, y[1:]


def case_expand(x: torch.Tensor) -> Any:
    return x.sum(0, keepdim=True).expand(x.shape[0] + 1, -1) * 2


def case_write(x: torch.Tensor) -> Any:
    y = torch.zeros(x.shape[0] + 2, x.shape[1])
    y[1:-1] = x
    y[0].add_(1)
    return y.view(-1), y


def case_mean(x: torch.Tensor) -> Any:
    return x / x.shape[0] ** 0.5, x.mean(), x.sum() / x.numel()


def case_attention(x: torch.Tensor) -> Any:
    n, d = x.shape
    q = x.view(1, n, 2, d // 2).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(n, d)


def case_pad(x: torch.Tensor) -> Any:
    return F.pad(x, (0, x.shape[0])), x.repeat(2, 1), x.unsqueeze(0).flatten()


def case_dropout(x: torch.Tensor) -> Any:
    return F.dropout(x, 0.5), torch.rand(x.shape[0])


def case_cos(x: torch.Tensor) -> Any:
    return x.cos().cos()


WEIGHT = torch.randn(3, 4).requires_grad_()
CASES = [
    (case_view, ()),
    (case_linear, (WEIGHT,)),
    (case_cat, (WEIGHT,)),
    (case_alias, ()),
    (case_expand, ()),
    (case_write, ()),
    (case_mean, ()),
    (case_attention, ()),
    (case_pad, ()),
    (case_dropout, ()),
    (case_cos, ()),
]


@pytest.mark.parametrize("int_inputs", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(("f", "rest"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_other_sizes(f: Any, rest: tuple[Any, ...], requires_grad: bool, int_inputs: bool) -> None:
    example = torch.randn(6, 4).requires_grad_(requires_grad)
    gm, inputs = symbolic_graph(f, (example, *rest), [(0,), ()], int_inputs=int_inputs)
    compiled = torchjit_aot.compile(gm, inputs, compiler=run_eagerly, settings=STRICT)
    for n in (6, 8, 3):
        x = torch.randn(n, 4)
        observed = []
        for run in (f, lambda *a: compiled(*([n] if int_inputs else []), *a)):
            mine = x.clone().requires_grad_(requires_grad)
            torch.manual_seed(n)
            result = run(mine, *rest)
            loss = loss_of(tensors(result))
            if loss is not None:
                loss.backward()  # type: ignore[no-untyped-call]
            flat = [v for v in (result if isinstance(result, tuple) else (result,)) if not isinstance(v, torch.Tensor)]
            observed.append((tensors(result), flat, mine.grad))
        for a, b in zip(observed[0][0], observed[1][0], strict=True):
            assert_same(a.detach(), b.detach())
        assert observed[0][1] == observed[1][1]
        assert_same(observed[0][2], observed[1][2], exact=False)


def test_graphs_carry_symbols() -> None:
    """Forward and backward get the ints that they need, as inputs or as sizes of tensors."""
    graphs = {}

    def compiler(gm: Any, inputs: Any, **options: Any) -> Any:
        graphs[options["kind"]] = gm
        return run_eagerly(gm, inputs, **options)

    example = torch.randn(6, 4, requires_grad=True)
    gm, inputs = symbolic_graph(lambda x: x.sin().sum(0).expand(x.shape[0], -1) * x.shape[0], (example,), [(0,)])
    compiled = torchjit_aot.compile(gm, inputs, compiler=compiler, settings=STRICT)
    compiled(torch.randn(5, 4, requires_grad=True)).sum().backward()
    for graph in graphs.values():
        for node in graph.graph.nodes:
            assert node.op == "output" or node.meta.get("val") is not None
            for value in (*node.args, *node.kwargs.values()):
                assert not isinstance(value, (torch.SymInt, torch.SymFloat))


@pytest.mark.parametrize("padded", [lambda t: F.pad(t, (1, 1)), lambda t: F.pad(t, (2, 0), value=2.0)])
def test_no_history_outside_of_grad_mode(padded: Any) -> None:
    """torch computes the sizes of some results by code that makes them leaves that require grad."""

    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        torch._C._set_grad_enabled(True)
        made = x * w.sum()
        torch._C._set_grad_enabled(False)
        return made, padded(made)

    x, w = torch.randn(3), torch.randn(4, requires_grad=True)
    with torch.no_grad():
        gm, inputs = symbolic_graph(program, (x, w), [(0,), ()])
        compiled = torchjit_aot.compile(gm, inputs, compiler=run_eagerly, settings=STRICT)
        for n in (3, 5):
            x = torch.randn(n)
            want, got = program(x, w), compiled(x, w)
            assert [t.requires_grad for t in got] == [t.requires_grad for t in want] == [True, False]
            for a, b in zip(want, got, strict=True):
                assert_same(a.detach(), b.detach())
