"""`flex_attention` on GPUs: its kernels compile, and the programs that call them. `test_triton_kernels` runs the kernels."""

from __future__ import annotations

import operator
import re
from typing import Any

import attrs
import flex_program
import pytest
import torch
from flex_program import (
    CASES,
    DECODING,
    captured,
    captured_varying,
    decoding_inputs,
    even,
    inputs_of,
    problem_of,
    texts_of,
    varied,
    varied_inputs,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import torchjit
import torchjit_aot
import torchjit_inductor
from torchjit_backends.attention import ATTENTION
from torchjit_core import events
from torchjit_fx.control_flow import name_of
from torchjit_fx.flex_operator import FORWARD
from torchjit_inductor.attention import kernels as kernels_of_attention
from torchjit_inductor.attention.kernels import argument_types, tiles_for
from torchjit_inductor.attention.parts import join_text, part_text, tiles_of_parts
from torchjit_inductor.attention.sizes import Varying, by_sizes, even_units
from torchjit_inductor.attention.text import forward_text, keys_text
from torchjit_inductor.attention.writer import KernelText, Tiles
from torchjit_inductor.lowering.registry import LOWERINGS
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.triton.backend import TritonBackend
from torchjit_inductor.triton.compile import MachineCode, compile_text

# PyTorch compiles the making of masks, and warns about it.
pytestmark = pytest.mark.filterwarnings("ignore")


def _call(name: str) -> Any:
    return captured(CASES[name][0], *inputs_of(name))


def test_text_of_a_kernel(golden: Any) -> None:
    golden.check("flex_attention.triton.py", texts_of(_call("windowed"), Tiles(16, 16, 4, 1))[0].source)


@pytest.mark.parametrize("arch", [80, 90])
def test_kernels_compile(arch: int) -> None:
    problem = problem_of(_call("documents"), backward=True)
    text = keys_text(problem, Tiles(16, 16, 4, 2))
    types = argument_types(text, problem)
    code = compile_text(text.source, text.name, types, frozenset(types), arch=arch, num_warps=4, num_stages=2)
    assert code.cubin and ".entry" in code.ptx


def _decoding(name: str) -> Any:
    return captured(DECODING[name][0], *decoding_inputs(name))


@pytest.mark.parametrize(("name", "arch"), [("three_queries", 90), ("one_query", 80)])
def test_kernels_of_parts_compile(name: str, arch: int) -> None:
    problem = problem_of(_decoding(name))
    for text in (part_text(problem, attrs.evolve(DECODING[name][3], stages=2)), join_text(problem, 5)):
        types = argument_types(text, problem)
        code = compile_text(text.source, text.name, types, frozenset(types), arch=arch, num_warps=4, num_stages=2)
        assert code.cubin and ".entry" in code.ptx


def test_kernels_of_varying_sizes_compile() -> None:
    call, fakes = _varying(64)
    text, problem = (
        texts_of(call, Tiles(32, 32, 4, 1), fakes=fakes, known=even)[1],
        problem_of(call, fakes=fakes, known=even),
    )
    assert "*32" in text.source and " < n" not in text.source and "i64" in argument_types(text, problem).values()
    problem = problem_of(call, fakes=fakes)
    text = forward_text(problem, Tiles(32, 32, 4, 2))
    assert " < n" in text.source
    types = argument_types(text, problem)
    code = compile_text(text.source, text.name, types, frozenset(text.parameters), arch=90, num_warps=4, num_stages=2)
    assert code.parameters >= len(text.parameters) + len(text.numbers)


def _varying(length: int) -> Any:
    return captured_varying(varied, varied_inputs(2, 70), varied_inputs(3, length))


def test_kernels_are_made_for_what_is_known_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = TritonBackend(arch=90)._kernels
    (attention, args), fakes = _varying(50)
    made: list[Varying] = []
    launched: list[tuple[int, ...]] = []
    monkeypatch.setattr(kernels, "_launchers", lambda *args: [lambda *a: launched.append(a)])
    call = ATTENTION.describe(name_of(attention), fakes[0], fakes[3:], [])

    def make(varying: Varying) -> Any:
        made.append(varying)
        problem = problem_of((attention, args), fakes=fakes, known=lambda _: varying)
        return kernels.forward(problem, call, torch.device("cpu"))

    problem = problem_of((attention, args), fakes=fakes)
    (batch, length, *rest) = problem.varying.hints
    assert (batch, length) == (3, 50)
    units = even_units(problem.varying, [flex_program._place("", f) for f in fakes[:2]], (32, 32))
    assert units[1] == 128 and set(units) == {1, 128}
    function = by_sizes(problem.varying, units, problem.extents, make)
    for size, known in ((50, (1, 1)), (256, (1, 128)), (384, (1, 128)), (51, (1, 1))):
        q, k, v = (torch.randn(3, size, heads, 16).transpose(1, 2) for heads in (2, 1, 1))
        result, *_ = function(q, k, v, *args[3:], 3, size, *rest)
        assert result.shape == q.shape and launched[-1][-len(units) :][:2] == (3, size // known[1])
    assert [m.units[:2] for m in made] == [(1, 1), (1, 128)] and not any(m.wide for m in made)
    found = by_sizes(
        problem.varying, units, problem.extents, lambda varying: lambda *numbers: (varying.wide, numbers[1])
    )
    assert found(3, 1 << 24, *rest) == (False, 1 << 17)
    assert found(3, (1 << 24) + 1, *rest) == (True, (1 << 24) + 1) and found(1 << 26, 128, *rest) == (True, 1)


def test_few_queries_are_cut_along_the_keys() -> None:
    problem = problem_of(_decoding("three_queries"))  # blocks of 16
    long = attrs.evolve(problem, sizes=(1, 32, 1, 8192), key_heads=8, key_block=128)
    first, *_ = tiles_of_parts(long)
    assert first.packed and first.rows == 16 and 8 * first.parts >= 132
    assert 128 % first.columns == 0 and first.parts * first.columns * 2 <= 8192
    (whole, *_) = tiles_of_parts(attrs.evolve(long, sizes=(32, 32, 1, 8192)))
    assert whole.packed and whole.parts == 1
    (alone, *_) = tiles_of_parts(attrs.evolve(long, key_heads=32))
    assert not alone.packed and alone.parts > 1
    # Lists of blocks for each head, queries of several blocks, many queries, or programs enough.
    by_heads = problem_of(_decoding("masks_of_heads"))
    assert not any(tiles.packed for tiles in tiles_of_parts(attrs.evolve(by_heads, sizes=(1, 4, 3, 4096))))
    assert not tiles_of_parts(attrs.evolve(long, sizes=(1, 32, 200, 8192), query_block=128))
    assert not tiles_of_parts(attrs.evolve(long, sizes=(1, 32, 129, 8192), query_block=1 << 30))
    assert not tiles_of_parts(attrs.evolve(long, sizes=(8, 32, 1, 8192), key_heads=32))


def test_what_parts_compute_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = TritonBackend(arch=90)._kernels
    problem = attrs.evolve(problem_of(_decoding("one_query_of_all_heads")), sizes=(2, 4, 1, 48))
    calls: list[tuple[KernelText, tuple[int, ...]]] = []

    def launchers(texts: Any, *rest: Any) -> Any:
        return [lambda *a, text=each[0]: calls.append((text, a)) for each in texts]

    monkeypatch.setattr(kernels, "_launchers", launchers)
    monkeypatch.setattr(kernels_of_attention, "tiles_of_parts", lambda p: [DECODING["one_query_of_all_heads"][3]])
    attention, args = _decoding("one_query_of_all_heads")
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(t) for t in args]
        call = ATTENTION.describe(name_of(attention), fakes[0], fakes[3:], [])
    results = kernels.forward(problem, call, torch.device("cpu"))(*args)
    (parts, first), (join, last) = calls
    held = dict(zip(parts.parameters, first, strict=True))
    assert [held[n] for n in join.parameters[:3]] == list(last[:3])
    assert list(last[3:]) == [t.data_ptr() for t in results]
    acc, sums, most = last[:3]
    rows = 3 * 2 * 4
    assert sums - acc >= rows * 24 * 4 and most - sums >= rows * 4 and sums % 16 == most % 16 == acc % 16


def test_few_queries_that_do_not_fit_in_parts_are_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = TritonBackend(arch=90)._kernels
    problem = attrs.evolve(problem_of(_decoding("three_queries")), sizes=(1, 4, 3, 4096), key_heads=2)
    names: list[list[str]] = []

    def launchers(texts: Any, *rest: Any) -> Any:
        names.append([each[0].name for each in texts])
        if len(names) == 1:
            raise NotLowered("no tiles that fit")
        return [print]

    monkeypatch.setattr(kernels, "_launchers", launchers)
    assert kernels._forward_launchers(problem, torch.device("cuda", 0)) == ([print], 1)
    assert names == [["attention_of_parts", "join_parts_of_attention"], ["attention"]]


def test_tiles_divide_the_blocks_of_the_mask() -> None:
    problem = problem_of(_call("masked"), backward=True)  # blocks of 32
    for kind in ("attention", "attention_of_queries", "attention_of_keys"):
        assert all(32 % t.rows == 0 and 32 % t.columns == 0 for t in tiles_for(kind, problem))


def _programs(attention: Any, args: list[torch.Tensor], like: Any = None) -> tuple[list[str], list[str]]:
    """The host programs of forward and backward for a GPU, and why a call has no kernel."""
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"a{n}") for n in range(len(args))]
    call = graph.call_function(attention, tuple(inputs))
    graph.output(tuple(graph.call_function(operator.getitem, (call, n)) for n in range(2)))
    like = like or args
    with getattr(like[0], "fake_mode", FakeTensorMode()):
        fakes = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for t in like]
    for t, node in zip(fakes, inputs, strict=True):
        node.meta["val"] = t
    for t, real in zip(fakes, args, strict=True):
        t.requires_grad_(real.requires_grad or any(t is f for f in fakes[:3]))
    backend = TritonBackend(arch=90)
    backend._start = lambda kernel, *rest: lambda: _nothing(kernel.name)  # type: ignore[method-assign,assignment]
    backend._kernels._launchers = lambda texts, *rest: [print] * len(texts)  # type: ignore[method-assign,assignment]
    inductor = torchjit_inductor.Inductor(cuda_backend=backend, attention=ATTENTION)
    sources: list[str] = []
    refused: list[str] = []

    def listener(kind: str, fields: dict[str, Any]) -> None:
        if kind == "host_program":
            sources.append(fields["source"])
        if kind == "fallback":
            refused.append(f"{fields['reason']}: {fields['detail']}")

    settings = torchjit_aot.AotSettings(
        decompositions=torchjit_aot.default_decompositions(), keep_ops=frozenset(LOWERINGS), eager_backward=True, fallback=False
    )  # fmt: skip
    with events.listen(listener):
        torchjit_aot.compile(torch.fx.GraphModule({}, graph), fakes, compiler=inductor, settings=settings)
    return sources, refused


def _nothing(name: str) -> Any:
    return torchjit_inductor.codegen_protocol.CompiledKernel(name, "", print)


@pytest.mark.parametrize("name", ["windowed", "learned"])
def test_each_direction_is_one_call(name: str) -> None:
    attention, args = _call(name)
    (forward, backward), refused = _programs(attention, args)
    assert not refused
    assert "0 kernels, 1 aten calls" in forward and "forward_default" in forward
    assert "1 kernels, 1 aten calls" in backward  # the kernel: sums of result times gradient
    assert f"backward_default_{3 if name == 'learned' else 2}" in backward


def test_sizes_that_vary_are_arguments_of_the_calls() -> None:
    (attention, args), fakes = _varying(50)
    (forward, backward), refused = _programs(attention, args, fakes)
    assert not refused and "forward_default" in forward and "backward_default" in backward
    assert re.search(r"= call_\d+\(.*(, s\d+){3}\)  # forward_default", forward)


def test_gradients_that_no_kernel_adds_up_stay_an_operator() -> None:
    rows = torch.randn(16, 4, requires_grad=True)

    def sums(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s + rows[i].sum()

    attention, args = captured(lambda q: flex_attention(q, q, q, score_mod=sums), torch.randn(1, 2, 16, 8))
    (forward, backward), refused = _programs(attention, args)
    assert "torchjit_attention_backward" in backward and refused


def test_what_no_kernel_does_stays_an_operator() -> None:
    def odd(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s + torch.special.bessel_j0(s)

    attention, args = captured(lambda q: flex_attention(q, q, q, score_mod=odd), torch.randn(1, 2, 16, 8))
    with torch.no_grad():
        (forward, *_), refused = _programs(attention, args)
    assert "torchjit_attention_forward" in forward
    assert refused and all(r.startswith("TJ-IND-008") and "bessel_j0" in r for r in refused)


@pytest.mark.parametrize("name", ["masked", "windowed", "learned"])
def test_gradients_by_the_operator_are_those_of_autograd(name: str) -> None:
    attention, args = _call(name)
    query, key, value, *more = [t.float() if t.is_floating_point() else t for t in args]
    gradient, of_total = torch.randn(*query.shape[:3], value.shape[3]), torch.randn(query.shape[:3])
    want = flex_program.wanted((attention, [query, key, value, *more]), gradient, of_total)
    shift = (want[0] * gradient).sum(-1) - of_total / torch.tensor(2.0).log()
    with torch.enable_grad():
        wanted = [n for n, t in enumerate(more) if t.requires_grad]
        got = attention.dense_gradients(query, key, value, more, want[1], gradient, shift, wanted)
    torch.testing.assert_close(list(got), want[3:], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["windowed", "learned"])
def test_the_operator_is_differentiable_twice(name: str) -> None:
    attention, args = _call(name)
    tensors = [t.float() if t.is_floating_point() else t for t in args]
    found = []
    for function in (lambda *a: FORWARD(*a[:3], list(a[3:]), name_of(attention)), attention.dense):
        given = [t.detach().requires_grad_(n < 3 or t.requires_grad) for n, t in enumerate(tensors)]
        leaves = [t for t in given if t.requires_grad]
        result, total, _ = function(*given)
        loss = (result.sin() + total.nan_to_num(neginf=0).unsqueeze(-1)).square().sum()
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        second = torch.autograd.grad(sum(g.cos().sum() for g in first), leaves)
        found.append([*first, *second])
    torch.testing.assert_close(found[0], found[1], atol=1e-3, rtol=1e-3)


def test_what_triton_does_not_compile_has_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = TritonBackend(arch=90)._kernels
    problem = problem_of(_call("masked"))
    texts = [forward_text(problem, tiles) for tiles in tiles_for("attention", problem)]
    monkeypatch.setattr(kernels_of_attention, "compile_text", lambda *args, **options: 1 / 0)
    with pytest.raises(NotLowered, match="ZeroDivisionError"):
        kernels._launchers([texts], problem, torch.device("cuda", 0))
    small = MachineCode("attention", b"", "", 128, 100 << 10, 1)
    large = attrs.evolve(small, shared=300 << 10)
    written = []

    def compiled(*args: Any, num_stages: int, **options: Any) -> MachineCode:
        written.append(num_stages)
        return small if num_stages == 1 else large

    monkeypatch.setattr(kernels_of_attention, "compile_text", compiled)
    kernels._launchers([texts], problem, torch.device("cuda", 0))
    assert written[0] > 1 and written[-1] == 1


def test_a_mask_without_query_blocks_has_no_gradient_by_kernels() -> None:
    blocks = BlockMask.from_kv_blocks(*_lists(), BLOCK_SIZE=16, mask_mod=flex_program.causal, compute_q_blocks=False)
    attention, args = captured(lambda q: flex_attention(q, q, q, block_mask=blocks), torch.randn(1, 1, 32, 16))
    sources, _ = _programs(attention, args)
    assert len(sources) == 2 and "bmm" in sources[0] and "torchjit_attention" not in sources[0]


def _lists() -> tuple[torch.Tensor, torch.Tensor]:
    counts = torch.tensor([[[1, 2]]], dtype=torch.int32)
    return counts, torch.tensor([[[[0, 1], [0, 1]]]], dtype=torch.int32)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("batch", "heads", "key_heads", "queries", "keys"),
    [(1, 8, 2, 1, 3000), (2, 4, 4, 3, 1024), (1, 8, 1, 16, 2048), (70, 4, 2, 1, 300), (1, 2, 2, 100, 5000)],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_few_queries_agree_with_all_scores(
    batch: int, heads: int, key_heads: int, queries: int, keys: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    rest, slopes = keys - queries - 40, torch.linspace(0.1, 1, heads, device="cuda")
    mask = create_block_mask(lambda b, h, i, j: (i + rest >= j) & (i != 2), None, None, queries, keys, device="cuda")

    def function(q: Any, k: Any, v: Any) -> Any:
        def biased(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return s + slopes[h] * (j - i - rest) * 0.01

        return flex_attention(q, k, v, score_mod=biased, block_mask=mask, enable_gqa=True, return_lse=True)

    shapes = (heads, queries, 64), (key_heads, keys, 64), (key_heads, keys, 32)
    made = [torch.randn(batch, *shape, device="cuda").to(dtype) for shape in shapes]
    fallen: list[str] = []
    torchjit.reset()
    with events.listen(lambda kind, fields: fallen.append(str(fields)) if kind == "fallback" else None):
        got = torchjit.compile(function)(*made)
    want = torchjit.compile(function, backend="eager")(*(t.float() for t in made))
    assert not fallen
    for g, w in zip(got, want, strict=True):
        bound = 2e-5 if dtype == torch.float32 else 1e-2
        torch.testing.assert_close(g.float(), w, rtol=bound, atol=bound * float(w[w.isfinite()].abs().max()))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_lengths_that_vary_agree_with_all_scores() -> None:
    table = torch.randn(4, 4096, device="cuda", requires_grad=True)

    def function(q: Any, k: Any, v: Any, mask: Any, parts: Any) -> Any:
        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return torch.where(parts[b, i] == parts[b, j], s, s * 0.5) + table[h, i - j + 2000]

        return flex_attention(q, k, v, score_mod=score, block_mask=mask, enable_gqa=True, return_lse=True)

    fallen: list[str] = []
    torchjit.reset()
    compiled, eager = torchjit.compile(function), torchjit.compile(function, backend="eager")
    for batch, length in ((2, 200), (3, 300), (3, 512), (5, 777), (1, 384), (6, 1)):
        torch.manual_seed(length)
        made = [torch.randn(batch, length, h, 64, device="cuda").transpose(1, 2).requires_grad_() for h in (4, 2, 2)]
        mask = create_block_mask(
            lambda b, h, i, j: (i >= j) & (i != 7), None, None, length, length, device="cuda", BLOCK_SIZE=64
        )
        parts = torch.arange(batch * length, device="cuda", dtype=torch.int32).view(batch, length) // 50
        gradients = torch.randn(batch, 4, length, 64, device="cuda"), torch.randn(batch, 4, length, device="cuda")
        found = []
        for f in (compiled, eager):
            with events.listen(lambda kind, fields: fallen.append(str(fields)) if kind == "fallback" else None):
                results = f(*made, mask, parts)
                found.append([*results, *torch.autograd.grad(results, [*made, table], gradients)])
        assert not fallen
        for got, want in zip(*found, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4 * float(want[want.isfinite()].abs().max()))
