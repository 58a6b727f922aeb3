"""Calls of the library's attention with few queries, and what their kernels compute under Triton's interpreter (see `flex_program`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import torchjit_inductor.compiled  # noqa: F401  # registers all lowerings
from torchjit_core.expr import constant
from torchjit_inductor.attention.few_queries import FUSED_ATTENTION, few_queries
from torchjit_inductor.attention.parts import join_text, part_text, problem_of_few, scratch_sizes
from torchjit_inductor.attention.writer import AttentionProblem, KernelText, Tiles
from torchjit_inductor.lowering.sizes import meta_of
from torchjit_inductor.lowering.tensors import Strided
from torchjit_inductor.triton.compile import jit_function

_aten: Any = torch.ops.aten


def unmasked(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return _aten._scaled_dot_product_efficient_attention(q, k, v, None, False)[0]


def efficient(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return _aten._scaled_dot_product_efficient_attention(q, k, v, bias, False, scale=0.3)[0]


def cudnn(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return _aten._scaled_dot_product_cudnn_attention(q, k, v, bias, False)[0]


def repeated(q: Any, k: Any, v: Any, bias: Any) -> Any:
    times = q.shape[1] // k.shape[1]
    k, v = (t[:, :, None].expand(-1, -1, times, -1, -1).reshape(t.shape[0], -1, *t.shape[2:]) for t in (k, v))
    return efficient(q, k, v, bias)


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], torch.dtype]] = {
    # what, (batch, heads, heads of keys, queries, keys, depth), dtype
    "unmasked": (unmasked, (1, 2, 2, 1, 70, 80), torch.float16),
    "efficient": (efficient, (2, 2, 2, 3, 50, 72), torch.bfloat16),
    "cudnn_grouped": (cudnn, (1, 4, 2, 1, 64, 96), torch.bfloat16),
    "repeated": (repeated, (2, 4, 2, 2, 48, 16), torch.float16),
}


def inputs_of(name: str, device: str = "cpu") -> list[torch.Tensor]:
    """Query, a cache of keys and one of values, and what hides its last places and, of the last query, all."""
    _, (batch, heads, key_heads, queries, keys, depth), dtype = CASES[name]
    torch.manual_seed(0)
    query = torch.randn(batch, queries, heads, depth, device=device).transpose(1, 2)
    cache = [torch.randn(batch, key_heads, keys, depth, device=device) for _ in range(2)]
    hidden = torch.zeros(batch, 1, queries, keys, device=device)
    hidden[:, :, :, keys - 7 :] = -torch.inf
    hidden[1:, :, -1] = -torch.inf
    # cuDNN's operator gets masks as they are, the other one of all scores.
    made = [t.to(dtype) for t in (query, *cache, hidden)]
    return [*made[:3], made[3][0, 0] if CASES[name][0] is cudnn else made[3].expand(-1, heads, -1, -1)]


def graph_of(name: str) -> torch.fx.GraphModule:
    """Its graph on a GPU, after the operator was chosen."""
    with FakeTensorMode(), torch.no_grad():
        fakes = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for t in inputs_of(name)]
        return make_fx(CASES[name][0], tracing_mode="fake")(*fakes)


def problem_of(name: str) -> tuple[AttentionProblem, list[int]]:
    """What its kernels are made from, and the positions of what they read among the inputs."""
    gm = graph_of(name)
    (node,) = [n for n in gm.graph.nodes if n.target in FUSED_ATTENTION]
    call = few_queries(node)
    assert call is not None
    places = [_place(n.meta["val"]) for n in call.operands]
    inputs = gm.graph.find_nodes(op="placeholder")
    return problem_of_few(call, places, meta_of(node.meta["val"][0])), [inputs.index(n) for n in call.operands]


def _place(t: torch.Tensor) -> Strided:
    meta = meta_of(t)
    return Strided("t", meta.sizes, meta.strides, constant(0), t.dtype, t.device)


def wanted(name: str, *inputs: torch.Tensor) -> torch.Tensor:
    """By all scores, in float32; zeros where a query sees nothing."""
    query, key, value, bias = (t.float() for t in inputs)
    times = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(times, 1) for t in (key, value))
    f = CASES[name][0]
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if f in (unmasked, cudnn) else 0.3)
    return torch.softmax(scores if f is unmasked else scores + bias, -1).nan_to_num(0.0) @ value


def interpreted(name: str, tiles: Tiles) -> torch.Tensor:
    """What the kernels compute."""
    problem, read = problem_of(name)
    inputs = inputs_of(name)
    query, key, value, *bias = (inputs[n] for n in read)
    strides: Any = problem.strides["result"]
    result = torch.empty_strided(query.shape, strides, dtype=query.dtype)
    named = {"query": query, "key": key, "value": value, "result": result}
    named |= {f"in{n}": t for n, t in enumerate(bias)}
    named |= {n: torch.empty(query.shape[:3]) for n in ("total", "largest")}
    sizes: Any = scratch_sizes(problem, tiles.parts)
    named |= {f"{n}_of_parts": torch.full((s,), torch.nan) for n, s in zip(("acc", "sums", "most"), sizes, strict=True)}
    for text in (part_text(problem, tiles, portable=True), join_text(problem, tiles.parts)):
        _run(text, named)
    return result


def _run(text: KernelText, named: dict[str, torch.Tensor]) -> None:
    jit_function(text.source, text.name)[(text.programs,)](*[named[n] for n in text.parameters])


def main() -> None:
    for name, (_, (_, heads, key_heads, *_), _) in CASES.items():
        tiles = attrs.evolve(Tiles(16, 16, 4, 1), packed=heads > key_heads, parts=3)
        got, want = interpreted(name, tiles).float(), wanted(name, *inputs_of(name))
        error = (got - want).norm() / want.norm()
        assert error < 1e-2, (name, error)
        print(name, "agrees")


if __name__ == "__main__":
    main()
