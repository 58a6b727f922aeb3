"""Calls of `flex_attention`, and what their kernels compute under Triton's interpreter, which is chosen when Triton is imported.

TRITON_INTERPRET=1 python integration_tests/flex_program.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import torchjit
import torchjit_inductor.compiled  # noqa: F401  # registers all lowerings
from torchjit_backends.attention import ATTENTION
from torchjit_core.expr import Symbol, constant
from torchjit_fx.control_flow import name_of
from torchjit_fx.flex_attention import FlexAttention
from torchjit_inductor.attention.kernels import attention_problem
from torchjit_inductor.attention.parts import join_text, part_text
from torchjit_inductor.attention.sizes import Varying, numbers_of, varying_sizes
from torchjit_inductor.attention.text import forward_text, keys_text, queries_text
from torchjit_inductor.attention.writer import AttentionProblem, KernelText, Tiles
from torchjit_inductor.lowering.sizes import expression, meta_of
from torchjit_inductor.lowering.tensors import Strided, TensorMeta
from torchjit_inductor.triton.compile import jit_function

Call = tuple[FlexAttention, list[torch.Tensor]]


def captured(f: Callable[..., Any], *inputs: torch.Tensor) -> Call:
    """What `f` calls `flex_attention` with, once captured."""
    seen: list[Call] = []

    def backend(gm: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            with torch.no_grad():
                return _Recorded(gm, seen).run(*args)

        return run

    torchjit.compile(f, backend=backend, fullgraph=True)(*inputs)
    (call,) = seen
    return call


def captured_varying(f: Callable[..., Any], first: Sequence[Any], second: Sequence[Any]) -> tuple[Call, list[Any]]:
    """A call with sizes that vary, as it is with `second`: the call, and fakes of its arguments."""
    graphs: list[torch.fx.GraphModule] = []
    seen: list[Call] = []

    def backend(gm: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(gm)

        def run(*args: Any) -> Any:
            with torch.no_grad():
                return _Recorded(gm, seen).run(*args)

        return run

    compiled = torchjit.compile(f, backend=backend, fullgraph=True)
    compiled(*first)
    compiled(*second)
    (node,) = [n for n in graphs[-1].graph.nodes if isinstance(n.target, FlexAttention)]
    return seen[-1], [n.meta["val"] for n in node.args]


class _Recorded(torch.fx.Interpreter):
    def __init__(self, gm: torch.fx.GraphModule, seen: list[Call]) -> None:
        super().__init__(gm)
        self.seen = seen

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, FlexAttention):
            self.seen.append((target, list(args)))
        return super().call_function(target, args, kwargs)


def same(varying: Varying) -> Varying:
    """Nothing is known of sizes that vary."""
    return varying


def even(varying: Varying) -> Varying:
    """Those that are multiples of 32 always are, and positions need 64 bits."""
    return attrs.evolve(varying, units=tuple(32 if n % 32 == 0 else 1 for n in varying.hints), wide=True)


def problem_of(
    call: Call, *, backward: bool = False, fakes: Any = None, known: Callable[[Varying], Varying] = same
) -> AttentionProblem:
    """What the kernels for a GPU are made from.

    Args:
        fakes: of the arguments, where their sizes vary.
        known: adds what is known of these.
    """
    attention, args = call
    if fakes is None:
        with FakeTensorMode():
            fakes = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for t in args]
    wanted = [n - 3 for n, t in enumerate(args) if backward and n > 2 and t.requires_grad]
    described = ATTENTION.describe(name_of(attention), fakes[0], fakes[3:], wanted)
    assert not isinstance(described, str), described
    places = [_place(f"t{n}", t) for n, t in enumerate(fakes)]
    query, key, value, *more = places
    tensors = {"query": query, "key": key, "value": value}
    rows = (*query.sizes[:3], value.sizes[3])
    results = {"result": _meta(rows, query)}
    if backward:
        tensors |= {"gradient": _as(query, rows), "total": _as(query, rows[:3]), "shift": _as(query, rows[:3])}
        results = {name: _meta(t.sizes, t) for name, t in zip(("of_query", "of_key", "of_value"), places, strict=False)}
    varying = known(varying_sizes(places, list(results.values()), hints_of(fakes, args)))
    return attention_problem(described, tensors, more, results, varying)


def hints_of(fakes: Sequence[Any], args: Sequence[torch.Tensor]) -> dict[Symbol, int]:
    """The values that the arguments give to symbols."""
    pairs = [pair for f, t in zip(fakes, args, strict=True) for pair in zip(f.shape, t.shape, strict=True)]
    found = [(expression(size).as_symbol, value) for size, value in pairs]
    return {symbol: value for symbol, value in found if symbol is not None}


def _place(name: str, t: torch.Tensor) -> Strided:
    meta = meta_of(t)
    return Strided(name, meta.sizes, meta.strides, constant(0), t.dtype, t.device)


def _dense_strides(sizes: Sequence[Any]) -> tuple[Any, ...]:
    made = [constant(1)]
    for size in reversed(sizes[1:]):
        made.append(made[-1] * size)
    return tuple(reversed(made))


def _as(like: Strided, sizes: Sequence[Any]) -> Strided:
    return Strided("", tuple(sizes), _dense_strides(sizes), constant(0), like.dtype, like.device)


def _meta(sizes: Sequence[Any], like: Strided) -> TensorMeta:
    return TensorMeta(tuple(sizes), _dense_strides(sizes), like.dtype, like.device)


def texts_of(call: Call, tiles: Tiles, *, portable: bool = False, **varying: Any) -> list[KernelText]:
    """The three kernels of a call."""
    forward, backward = problem_of(call, **varying), problem_of(call, backward=True, **varying)
    return [
        forward_text(forward, tiles, portable=portable),
        queries_text(backward, tiles, portable=portable),
        keys_text(backward, tiles, portable=portable),
    ]


def run(text: KernelText, problem: AttentionProblem, tensors: Mapping[str, torch.Tensor]) -> None:
    """Interpret a kernel."""
    varying = problem.varying
    numbers = [hint // unit for hint, unit in zip(varying.hints, varying.units, strict=True)]
    (programs,) = numbers_of(varying.arguments, [text.programs])(*numbers)
    jit_function(text.source, text.name)[(programs,)](*[tensors[n] for n in text.parameters], *numbers)


def interpreted(
    call: Call, tiles: Tiles, gradient: torch.Tensor, of_total: torch.Tensor, **varying: Any
) -> list[torch.Tensor]:
    """Result, logarithm of the sums, maximum, and the gradients of query, key, value and what the functions use."""
    attention, args = call
    query, key, value, *more = args
    result = query.new_empty((*query.shape[:3], value.shape[3]))
    total, largest = (torch.empty(query.shape[:3]) for _ in range(2))
    grads = [torch.empty(t.shape, dtype=t.dtype) for t in (query, key, value)]
    texts = texts_of(call, tiles, portable=True, **varying)
    named: dict[str, torch.Tensor] = {"query": query, "key": key, "value": value, "result": result, "total": total}
    named |= {"largest": largest, "gradient": gradient}
    named |= dict(zip(("of_query", "of_key", "of_value"), grads, strict=True))
    for position, text in enumerate(texts):
        if position == 1:
            named["shift"] = (result.float() * gradient.float()).sum(-1) - of_total / torch.tensor(2.0).log()
        problem = problem_of(call, backward=position > 0, **varying)
        tensors = dict(named)
        first = 4 if position == 2 else 0
        at = [int(i.split()[1]) for i in attention.blocks[2 + first : 6 + first] if isinstance(i, str)]
        for number in range(len(at) // 2):
            tensors[f"counts{number}"], tensors[f"indices{number}"] = more[at[2 * number]], more[at[2 * number + 1]]
        outside = more[attention.given_blocks :]
        for number, name in enumerate(problem.formulas.tensors):
            tensors[f"in{number}"] = outside[int(name.removeprefix("outside"))]
        others = {n: torch.zeros_like(t) for n, t in enumerate(outside) if t.requires_grad}
        tensors |= {f"of_outside{n}": t for n, t in others.items()}
        run(text, problem, tensors)
    return [result, total, largest, *grads, *others.values()]


def interpreted_parts(call: Call, tiles: Tiles, **varying: Any) -> list[torch.Tensor]:
    """Result, logarithm of the sums and maximum, by programs that share the keys of a row."""
    attention, args = call
    query, key, value, *more = args
    problem = problem_of(call, **varying)
    named = {"query": query, "key": key, "value": value, "result": query.new_empty((*query.shape[:3], value.shape[3]))}
    named |= {name: torch.empty(query.shape[:3]) for name in ("total", "largest")}
    numbers = tiles.parts * query.shape[:3].numel()
    named |= {f"{n}_of_parts": torch.full((numbers,), torch.nan) for n in ("sums", "most")}
    named["acc_of_parts"] = torch.full((numbers * value.shape[3],), torch.nan)
    at = [int(i.split()[1]) for i in attention.blocks[2:6] if isinstance(i, str)]
    for number in range(len(at) // 2):
        named[f"counts{number}"], named[f"indices{number}"] = more[at[2 * number]], more[at[2 * number + 1]]
    outside = more[attention.given_blocks :]
    for number, name in enumerate(problem.formulas.tensors):
        named[f"in{number}"] = outside[int(name.removeprefix("outside"))]
    if tiles.parts == 1:
        texts = [forward_text(problem, tiles, portable=True)]
    else:
        texts = [part_text(problem, tiles, portable=True), join_text(problem, tiles.parts)]
    for text in texts:
        run(text, problem, named)
    return [named[n] for n in ("result", "total", "largest")]


def wanted(call: Call, gradient: torch.Tensor, of_total: torch.Tensor) -> list[torch.Tensor]:
    """The same by all scores, in float32."""
    attention, args = call
    leaves = [t.float().requires_grad_() for t in args[:3]]
    result, total, largest = attention.dense(*leaves, *args[3:])
    leaves += [t for t in args[3:] if t.requires_grad]
    found = torch.autograd.grad([result, total], leaves, [gradient.float(), of_total])
    return [t.detach() for t in (result, total, largest, *found)]


# ------------------------------------------------------------------------------------------------------------ the calls

LENGTH = 48
BIAS = torch.linspace(-1, 1, 2 * 2 * LENGTH).view(2, 2 * LENGTH)
SLOPES = torch.tensor([0.5, 0.25])
TABLE, SLOPE = BIAS.clone().requires_grad_(), torch.tensor([[1.0, 2.0], [0.1, 0.2]], requires_grad=True)
SHIFT = torch.tensor(0.5, requires_grad=True)
DOCUMENTS = (torch.arange(LENGTH) // 20).to(torch.int32)


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


def blocks(mask: Any, size: int = 32, heads: int | None = None) -> BlockMask:
    return create_block_mask(mask, None, heads, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=size)


def plain(q: Any, k: Any, v: Any) -> Any:
    return flex_attention(q, k, v)


CAUSAL = blocks(causal)
WINDOW = blocks(lambda b, h, i, j: (i - j < 12) & (i >= j) & (i != 5), 16)
SAME = blocks(lambda b, h, i, j: (DOCUMENTS[i] == DOCUMENTS[j]) & (i >= j * (h % 2)), 16, heads=2)


def masked(q: Any, k: Any, v: Any) -> Any:
    return flex_attention(q, k, v, block_mask=CAUSAL, enable_gqa=True)


def learned(q: Any, k: Any, v: Any) -> Any:
    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s * torch.sigmoid(TABLE[h, i - j + LENGTH]) + SLOPE[1, h] * (j - i) + TABLE[h, 3] * SHIFT

    return flex_attention(q, k, v, score_mod=score, block_mask=CAUSAL)


def windowed(q: Any, k: Any, v: Any) -> Any:
    def capped(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return 5 * torch.tanh(s / 5) + SLOPES[h] * (j - i)

    return flex_attention(q, k, v, score_mod=capped, block_mask=WINDOW, scale=0.3)


def documents(q: Any, k: Any, v: Any) -> Any:
    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s * torch.sigmoid(BIAS[h, i - j + LENGTH]) + b

    return flex_attention(q, k, v, score_mod=score, block_mask=SAME)


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], torch.dtype, Tiles]] = {
    # what, (batch, heads, heads of keys, depth, width), dtype, tiles
    "plain": (plain, (1, 2, 2, 16, 16), torch.float32, Tiles(64, 32, 4, 1)),
    "masked": (masked, (1, 2, 1, 24, 16), torch.bfloat16, Tiles(32, 16, 4, 1)),
    "windowed": (windowed, (1, 2, 2, 16, 16), torch.float16, Tiles(16, 16, 4, 1)),
    "documents": (documents, (2, 2, 2, 16, 24), torch.float32, Tiles(16, 16, 4, 1)),
    "learned": (learned, (1, 2, 2, 16, 16), torch.float32, Tiles(32, 32, 4, 1)),
}


FEW = create_block_mask(lambda b, h, i, j: i + LENGTH - 6 >= j, None, None, 3, LENGTH, device="cpu", BLOCK_SIZE=16)
OF_HEADS = create_block_mask(
    lambda b, h, i, j: (i + 20 * h >= j) & (i > 0), None, 4, 3, LENGTH, device="cpu", BLOCK_SIZE=16
)


def decoded(q: Any, k: Any, v: Any) -> Any:
    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s + BIAS.view(4, -1)[h, i] * (j - i) + BIAS.view(4, -1)[h, j - i]

    return flex_attention(q, k, v, score_mod=score, block_mask=FEW, enable_gqa=True)


def decoded_by_heads(q: Any, k: Any, v: Any) -> Any:
    return flex_attention(q, k, v, block_mask=OF_HEADS, enable_gqa=True)


def decoded_plain(q: Any, k: Any, v: Any) -> Any:
    return flex_attention(q, k, v, enable_gqa=True)


DECODING: dict[str, tuple[Callable[..., Any], tuple[int, ...], torch.dtype, Tiles]] = {
    # what, (batch, heads, heads of keys, queries, depth, width), dtype, tiles
    "one_query_of_all_heads": (decoded_plain, (2, 4, 1, 1, 16, 24), torch.float32, Tiles(16, 16, 4, 1, True, 3)),
    "one_query": (decoded_plain, (2, 2, 2, 1, 16, 16), torch.bfloat16, Tiles(16, 16, 4, 1, False, 2)),
    "three_queries": (decoded, (2, 4, 2, 3, 24, 16), torch.float32, Tiles(16, 16, 4, 1, True, 5)),
    "three_queries_in_one_part": (decoded, (1, 4, 2, 3, 16, 16), torch.float16, Tiles(16, 16, 4, 1, True, 1)),
    "masks_of_heads": (decoded_by_heads, (1, 4, 2, 3, 16, 16), torch.float32, Tiles(16, 16, 4, 1, False, 2)),
}


def decoding_inputs(name: str) -> list[torch.Tensor]:
    """Query, key and value."""
    _, (batch, heads, key_heads, queries, depth, width), dtype, _ = DECODING[name]
    torch.manual_seed(0)
    shapes = (queries, heads, depth), (LENGTH, key_heads, depth), (LENGTH, key_heads, width)
    return [torch.randn(batch, *shape).transpose(1, 2).to(dtype) for shape in shapes]


def inputs_of(name: str) -> list[torch.Tensor]:
    """Query, key and value; the key lies in memory as it leaves a projection."""
    _, (batch, heads, key_heads, depth, width), dtype, _ = CASES[name]
    torch.manual_seed(0)
    key = torch.randn(batch, LENGTH, key_heads, depth).transpose(1, 2)
    made = torch.randn(batch, heads, LENGTH, depth), key, torch.randn(batch, key_heads, LENGTH, width)
    return [t.to(dtype) for t in made]


def varied(q: Any, k: Any, v: Any, mask: Any, parts: Any, bias: Any) -> Any:
    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return torch.where(parts[b, i] == parts[b, j], s, s * 0.5) + bias[h, j] * (i - j) + SLOPE[1, h]

    return flex_attention(q, k, v, score_mod=score, block_mask=mask, enable_gqa=True)


def varied_decoded(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + 0.01 * j, block_mask=mask, enable_gqa=True)


def varied_inputs(batch: int, length: int) -> list[Any]:
    """Of `varied`: rows of 5 see nothing."""
    torch.manual_seed(length)
    made = [torch.randn(batch, length, heads, 16).transpose(1, 2) for heads in (2, 1, 1)]
    mask = create_block_mask(
        lambda b, h, i, j: (i >= j) & (i != 5), None, None, length, length, device="cpu", BLOCK_SIZE=32
    )
    parts = torch.arange(batch * length, dtype=torch.int32).view(batch, length) // 20
    return [*made, mask, parts, torch.randn(2, length, requires_grad=True)]


def varied_decoding_inputs(batch: int, length: int) -> list[Any]:
    """Of `varied_decoded`: a cache, of which places are empty."""
    torch.manual_seed(length)
    made = [torch.randn(batch, heads, n, 16) for heads, n in ((4, 1), (2, length), (2, length))]
    filled = torch.tensor(length - 7)
    mask = create_block_mask(lambda b, h, i, j: j < filled, None, None, 1, length, device="cpu", BLOCK_SIZE=32)
    return [*made, mask]


VARYING = {"varied": 50, "varied_evenly": 64}


def main_varying() -> None:
    """Texts with sizes as arguments: of any length, and of multiples of 32 with positions of 64 bits."""
    for name, length in VARYING.items():
        call, fakes = captured_varying(varied, varied_inputs(2, 70), varied_inputs(3, length))
        gradient, of_total = torch.randn(3, 2, length, 16), torch.randn(3, 2, length)
        got = interpreted(
            call, Tiles(32, 32, 4, 1), gradient, of_total, fakes=fakes, known=even if length == 64 else same
        )
        _compare(name, got, wanted(call, gradient, of_total), torch.float32)
    call, fakes = captured_varying(varied_decoded, varied_decoding_inputs(1, 40), varied_decoding_inputs(3, 69))
    got = interpreted_parts(call, Tiles(16, 32, 4, 1, True, 2), fakes=fakes)
    _compare("varied_decoded", got, list(call[0].dense(*call[1])), torch.float32)


def main() -> None:
    for name, (f, _, dtype, tiles) in CASES.items():
        call = captured(f, *inputs_of(name))
        query, _, value = call[1][:3]
        gradient = torch.randn(*query.shape[:3], value.shape[3]).to(dtype)
        of_total = torch.randn(query.shape[:3])
        _compare(name, interpreted(call, tiles, gradient, of_total), wanted(call, gradient, of_total), dtype)
    main_varying()
    for name, (f, _, dtype, tiles) in DECODING.items():
        call = captured(f, *decoding_inputs(name))
        attention, args = call
        want = attention.dense(*[t.float() for t in args[:3]], *args[3:])
        _compare(name, interpreted_parts(call, tiles), list(want), dtype)


def _compare(name: str, got: Sequence[torch.Tensor], want: Sequence[torch.Tensor], dtype: torch.dtype) -> None:
    for g, w in zip(got, want, strict=True):
        assert torch.equal(g.isfinite(), w.isfinite()), name
        g, w = (t.float().nan_to_num(0, 0, 0) for t in (g, w))
        error = (g - w).norm() / w.norm()
        assert error < (1e-5 if dtype == torch.float32 else 1e-2), (name, error)
    print(name, "agrees")


if __name__ == "__main__":
    main()
