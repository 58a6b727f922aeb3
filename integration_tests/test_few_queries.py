"""Attention of few queries over many keys: which calls have kernels of their own, and the programs that call these. `test_triton_kernels` runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import few_queries_program
import pytest
import torch
from few_queries_program import CASES, efficient, graph_of, problem_of, wanted
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import torchjit
import torchjit_inductor
from torchjit_inductor.attention.few_queries import FUSED_ATTENTION, FewQueries, few_queries
from torchjit_inductor.attention.kernels import argument_types
from torchjit_inductor.attention.parted import PartedAttention
from torchjit_inductor.attention.parts import join_text, part_text, tiles_of_parts
from torchjit_inductor.attention.writer import Tiles
from torchjit_inductor.triton.backend import TritonBackend
from torchjit_inductor.triton.compile import compile_text

library: Any = torch.ops.aten._scaled_dot_product_efficient_attention


class Driver:
    """Launches nothing."""

    def load(self, code: Any, device: int) -> Any:
        raise AssertionError("no GPU")

    def stream(self, device: int) -> int:
        return 0

    def launcher(self, *rest: Any) -> None:
        return None


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys enough for several programs."""
    for name, (f, (batch, heads, key_heads, queries, _, depth), dtype) in CASES.items():
        monkeypatch.setitem(CASES, name, (f, (batch, heads, key_heads, queries, 2048, depth), dtype))


def _found(f: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> FewQueries | None:
    with FakeTensorMode(), torch.no_grad():
        fakes = [torch.empty(s, dtype=dtype, device="cuda") for s in shapes]
        gm = make_fx(f, tracing_mode="fake")(*fakes)
    (node,) = [n for n in gm.graph.nodes if n.target in FUSED_ATTENTION]
    return few_queries(node)


Q, K, BIAS = (1, 8, 1, 128), (1, 8, 1024, 128), (1, 8, 1, 1024)


def test_calls_with_kernels_of_their_own() -> None:
    found = _found(efficient, Q, K, K, BIAS)
    assert found is not None and found.scale == 0.3 and len(found.operands) == 4
    found = _found(lambda q, k, v: library(q, k, v, None, False)[0], Q, K, K)
    assert found is not None and found.scale == 128**-0.5 and found.bias is None
    grouped = _found(
        lambda q, k, v: torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, False)[0],
        Q,
        *[(1, 2, 1024, 128)] * 2,
    )
    assert grouped is not None


@pytest.mark.parametrize(
    "call, shapes, dtype",
    [
        pytest.param(lambda q, k, v: library(q, k, v, None, False, 0.1)[0], (Q, K, K), torch.half, id="dropout"),
        pytest.param(lambda q, k, v: library(q, k, v, None, False, 0.0, True)[0], (Q, K, K), torch.half, id="causal"),
        pytest.param(lambda q, k, v: library(q, k, v, None, True)[:2], (Q, K, K), torch.half, id="sums are used"),
        pytest.param(efficient, ((1, 8, 17, 128), K, K, (1, 8, 17, 1024)), torch.half, id="many queries"),
        pytest.param(efficient, ((33, *Q[1:]), (33, *K[1:]), (33, *K[1:]), (33, *BIAS[1:])), torch.half, id="many heads"),
        pytest.param(efficient, (Q, (1, 8, 16, 128), (1, 8, 16, 128), (1, 8, 1, 16)), torch.half, id="few keys"),
        pytest.param(efficient, ((1, 8, 1, 64), (1, 8, 1024, 64), (1, 8, 1024, 64), BIAS), torch.half, id="shallow"),
        pytest.param(efficient, (Q, K, K, BIAS), torch.float32, id="float32"),
    ],
)  # fmt: skip
def test_calls_of_the_library(call: Any, shapes: Any, dtype: torch.dtype) -> None:
    assert _found(call, *shapes, dtype=dtype) is None


def test_heads_written_out_are_read_where_they_were(long: None) -> None:
    gm = graph_of("repeated")
    (node,) = [n for n in gm.graph.nodes if n.target in FUSED_ATTENTION]
    call = few_queries(node)
    assert call is not None and call.key.op == call.value.op == "placeholder"


def test_expanded_otherwise_is_not_heads_written_out() -> None:
    def call(q: Any, k: Any, v: Any) -> Any:
        # The heads of the cache one behind the other, then all of them again.
        k, v = (t[:, None].expand(-1, 4, -1, -1, -1).reshape(1, 8, 1024, 128) for t in (k, v))
        return library(q, k, v, None, False)[0]

    found = _found(call, Q, *[(1, 2, 1024, 128)] * 2)
    assert found is not None and found.key.op == found.value.op == "call_function"


def test_keys_and_values_written_out_unequally_often_are_read_as_written() -> None:
    def call(q: Any, k: Any, v: Any) -> Any:
        k, v = (t[:, :, None].expand(-1, -1, 8 // t.shape[1], -1, -1).reshape(1, 8, 1024, 128) for t in (k, v))
        return library(q, k, v, None, False)[0]

    found = _found(call, Q, (1, 4, 1024, 128), (1, 2, 1024, 128))
    assert found is not None and found.key.op == found.value.op == "call_function"


@pytest.mark.parametrize("name", CASES)
def test_programs_call_the_kernels(name: str, long: None, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = TritonBackend(arch=90, driver=Driver())
    monkeypatch.setattr(backend._kernels, "_fitting", lambda texts, *rest: texts[0])
    gm = graph_of(name)
    inputs = [n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]
    made = torchjit_inductor.Inductor(cuda_backend=backend)(gm, inputs, kind="inference")
    assert "aten" not in made.source.splitlines()[2] and "_scaled_dot_product" in made.source
    assert "aten__scaled_dot_product" not in made.source and "0 kernels" in made.source
    (called,) = [v for v in made._call.__globals__.values() if isinstance(v, PartedAttention)]
    assert called.sizes == (*CASES[name][1][:2], CASES[name][1][3], CASES[name][1][5])


def test_equal_calls_are_one_function(long: None, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = TritonBackend(arch=90, driver=Driver())
    monkeypatch.setattr(backend._kernels, "_fitting", lambda texts, *rest: texts[0])
    (first, _), (again, _), (other, _) = (problem_of(name) for name in ("unmasked", "unmasked", "efficient"))
    device = torch.device("cuda", 0)
    made = [backend._kernels.of_few_queries(p, device) for p in (first, again, other)]
    assert made[0] is made[1] and made[0] is not made[2]


def test_too_few_keys_for_parts_are_the_librarys() -> None:
    gm = graph_of("efficient")
    inputs = [n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]
    made = torchjit_inductor.Inductor(cuda_backend=TritonBackend(arch=90, driver=Driver()))(
        gm, inputs, kind="inference"
    )
    assert "aten__scaled_dot_product_efficient" in made.source


@pytest.mark.parametrize("arch", [80, 90])
def test_kernels_compile(arch: int, long: None) -> None:
    problem, _ = problem_of("repeated")
    first = tiles_of_parts(problem)[0]
    assert first.packed and first.parts > 1
    for text in (part_text(problem, attrs.evolve(first, stages=2)), join_text(problem, first.parts)):
        types = argument_types(text, problem)
        code = compile_text(text.source, text.name, types, frozenset(types), arch=arch, num_warps=4, num_stages=2)
        assert code.cubin and ".entry" in code.ptx


@pytest.mark.parametrize("heads, keys, parts", [(16, 512, 8), (16, 2048, 16), (32, 512, 4), (2, 128, 1)])
def test_tiles_of_a_part(heads: int, keys: int, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two, or one where that leaves half of the multiprocessors without a program."""
    monkeypatch.setitem(
        CASES, "cudnn_grouped", (few_queries_program.cudnn, (1, heads, heads, 1, keys, 128), torch.half)
    )
    problem, _ = problem_of("cudnn_grouped")
    assert (tiles_of_parts(problem) or [Tiles(1, 1, 1, 1)])[0].parts == parts


def test_text_of_a_kernel(golden: Any, long: None) -> None:
    problem, _ = problem_of("efficient")
    golden.check("few_queries.triton.py", part_text(problem, tiles_of_parts(problem)[0]).source)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("name", CASES)
def test_values_on_a_gpu(name: str, mode: str, long: None) -> None:
    def call(q: Any, k: Any, v: Any, bias: Any) -> Any:
        times = q.shape[1] // k.shape[1]
        k, v = (t[:, :, None].expand(-1, -1, times, -1, -1).reshape(t.shape[0], -1, *t.shape[2:]) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.3)

    torchjit.reset()
    inputs = few_queries_program.inputs_of(name, "cuda")
    compiled = torchjit.compile(call, mode=mode, dynamic=False)
    want = wanted("repeated", *inputs)
    with torch.no_grad():
        for _ in range(4):
            got = compiled(*inputs).float()
            assert (got - want).norm() < 1e-2 * want.norm()
