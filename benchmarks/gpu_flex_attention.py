"""`flex_attention` on a GPU: kernels against float32 eager, and times beside torch.compile's.

python3 tools/from_checkout.py python3 benchmarks/gpu_flex_attention.py check            # every kind, forward and gradients
python3 tools/from_checkout.py python3 benchmarks/gpu_flex_attention.py time [--only causal] [--depths 64 128]
python3 tools/from_checkout.py python3 benchmarks/gpu_flex_attention.py decode                   # few queries, many keys
python3 tools/from_checkout.py python3 benchmarks/gpu_flex_attention.py vary                     # kernels for any length
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import torchjit
from torchjit_core import events

BF, F16, F32 = torch.bfloat16, torch.float16, torch.float32
Made = tuple[Callable[..., Any], list[torch.Tensor]]


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


def softcap(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return 20.0 * torch.tanh(s / 20.0)


def kind(name: str, batch: int, heads: int, length: int, key_heads: int, device: str = "cuda") -> Callable[..., Any]:
    """A call of `flex_attention`."""

    def blocks(mask: Any, per_batch: int | None = None, size: int = 128) -> Any:
        return create_block_mask(mask, per_batch, None, length, length, device=device, BLOCK_SIZE=size)

    gqa = key_heads != heads
    if name == "plain":
        return lambda q, k, v: flex_attention(q, k, v, enable_gqa=gqa)
    if name == "causal":
        mask = blocks(causal)
        return lambda q, k, v: flex_attention(q, k, v, block_mask=mask, enable_gqa=gqa)
    if name == "window":
        window = blocks(lambda b, h, i, j: (i >= j) & (i - j < 512))
        return lambda q, k, v: flex_attention(q, k, v, block_mask=window, enable_gqa=gqa)
    if name == "documents":
        ends = torch.sort(torch.randint(0, length, (batch, 6), device=device), 1).values
        documents = torch.searchsorted(ends, torch.arange(length, device=device).repeat(batch, 1)).to(torch.int32)
        same = blocks(lambda b, h, i, j: (i >= j) & (documents[b, i] == documents[b, j]), batch)
        return lambda q, k, v: flex_attention(q, k, v, block_mask=same, enable_gqa=gqa)
    if name == "alibi":
        slopes = torch.exp2(-8.0 * torch.arange(1, heads + 1, device=device) / heads)
        mask = blocks(causal)

        def bias(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return s + slopes[h] * (j - i)

        return lambda q, k, v: flex_attention(q, k, v, score_mod=bias, block_mask=mask, enable_gqa=gqa)
    if name == "softcap":
        mask = blocks(causal)
        return lambda q, k, v: flex_attention(q, k, v, score_mod=softcap, block_mask=mask, enable_gqa=gqa)
    if name == "learned":
        mask, learned = blocks(causal), torch.randn(heads, 2 * length, device=device).requires_grad_()

        def looked_up(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return s + learned[h, i - j + length]

        def with_table(q: Any, k: Any, v: Any) -> Any:
            return flex_attention(q, k, v, score_mod=looked_up, block_mask=mask, enable_gqa=gqa)

        with_table.learned = [learned]  # type: ignore[attr-defined]
        return with_table
    if name == "dead_rows":  # small blocks, rows without any key, a table at computed positions, both results
        table = torch.randn(heads, 2 * length, device=device)
        some = blocks(lambda b, h, i, j: (i % 7 != 3) & (i + j > 40), size=64)

        def scored(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return s * torch.sigmoid(table[h, i - j + length]) + 0.01 * b

        return lambda q, k, v: flex_attention(
            q, k, v, score_mod=scored, block_mask=some, enable_gqa=gqa, return_lse=True, scale=0.2
        )
    raise ValueError(name)


KINDS = ("plain", "causal", "window", "documents", "alibi", "softcap")


def inputs(batch: int, heads: int, length: int, key_heads: int, depth: int, width: int, dtype: torch.dtype) -> Any:
    """Query, key and value as they leave a projection: heads inside of rows."""
    shapes = ((heads, depth), (key_heads, depth), (key_heads, width))
    made = [torch.randn(batch, length, *s, device="cuda").to(dtype).transpose(1, 2) for s in shapes]
    return [t.requires_grad_() for t in made]


def did(
    function: Callable[..., Any],
    tensors: list[torch.Tensor],
    gradients: list[torch.Tensor],
    learned: list[torch.Tensor],
) -> list[torch.Tensor]:
    """Results and gradients."""
    found = function(*tensors)
    tensors = tensors + learned
    results = list(found) if isinstance(found, tuple) else [found]
    weights = [g.to(r.dtype) for g, r in zip(gradients, results, strict=False)]
    return [r.detach() for r in results] + list(torch.autograd.grad(results, tensors, weights))


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Relative, in the norm (of numbers of a thousandth at least); both must be infinite at the same places."""
    if not torch.equal(got.isfinite(), want.isfinite()):
        return float("inf")
    got, want = (t.double().nan_to_num(0, 0, 0) for t in (got, want))
    return float((got - want).norm() / want.norm().clamp_min(1e-3 * want.numel() ** 0.5))


CHECKS = [
    # kind, batch, heads, length, heads of keys, depth, width, dtype
    *[(name, 2, 4, 1024, 4, 64, 64, BF) for name in KINDS],
    *[(name, 2, 4, 777, 2, 128, 128, BF) for name in (*KINDS, "dead_rows")],
    *[(name, 1, 4, 512, 4, 80, 48, F16) for name in ("causal", "documents", "dead_rows")],
    *[(name, 2, 2, 300, 1, 64, 64, F32) for name in ("causal", "softcap", "dead_rows")],
    ("causal", 1, 2, 512, 2, 256, 256, BF),
    ("window", 2, 8, 2048, 2, 64, 64, F16),
    ("plain", 3, 4, 1, 4, 64, 64, BF),
    ("learned", 2, 4, 777, 2, 64, 64, BF),
    ("learned", 2, 2, 300, 1, 64, 64, F32),
]


def check(numbers: list[int]) -> int:
    """Compare with eager in float32; returns how many differ."""
    wrong = 0
    for number in numbers:
        name, batch, heads, length, key_heads, depth, width, dtype = CHECKS[number]
        torch.manual_seed(number)
        function = kind(name, batch, heads, length, key_heads)
        tensors = inputs(batch, heads, length, key_heads, depth, width, dtype)
        gradients = [torch.randn(batch, heads, length, width, device="cuda").to(dtype)]
        gradients.append(torch.randn(batch, heads, length, device="cuda"))
        learned = getattr(function, "learned", [])
        fallen: list[str] = []

        def listener(kind: str, fields: dict[str, Any], into: list[str] = fallen) -> None:
            into += [str(fields.get("detail"))] if kind == "fallback" else []

        torchjit.reset()
        start = time.perf_counter()
        with events.listen(listener):
            got = did(torchjit.compile(function), tensors, gradients, learned)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        wide = [t.detach().float().requires_grad_() for t in tensors]
        want = did(torchjit.compile(function, backend="eager"), wide, gradients, learned)
        errors = [error(g, w) for g, w in zip(got, want, strict=True)]
        bound = {BF: 2e-2, F16: 4e-3, F32: 2e-5}[dtype]
        bad = not all(e < bound for e in errors) or bool(fallen)
        wrong += bad
        shape = f"{batch}x{heads}/{key_heads}x{length}x{depth}/{width}"
        text = " ".join(f"{e:.1e}" for e in errors)
        print(f"{'WRONG' if bad else 'ok   '} {name:9} {shape:22} {dtype} {text} {seconds:.1f} s {fallen}", flush=True)
    return wrong


def timed(function: Callable[[], Any], budget: float = 0.15) -> float:
    """Median microseconds of device time a call."""
    for _ in range(3):
        function()
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    count = max(5, min(100, int(budget / max(time.perf_counter() - start, 1e-6))))
    times = []
    for _ in range(count):
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        function()
        after.record()
        times.append((before, after))
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in times) * 1e3


def compare(names: list[str], depths: list[int], length: int, batch: int, heads: int, *, quick: bool) -> None:
    """Times of forward and backward beside torch.compile's."""
    print("kind, depth: forward torch.compile / torchjit us (ratio); backward likewise; errors of one to the other")
    ratios: list[tuple[float, float]] = []
    for name, depth in itertools.product(names, depths):
        torch.manual_seed(0)
        function = kind(name, batch, heads, length, heads)
        tensors = inputs(batch, heads, length, heads, depth, depth, BF)
        gradient, wanted = torch.randn_like(tensors[0]), tensors + getattr(function, "learned", [])
        row, results = [], []
        torch._dynamo.reset()
        torchjit.reset()
        for compiled in (torch.compile(function), torchjit.compile(function)):
            out = compiled(*tensors)
            grads = torch.autograd.grad(out, wanted, gradient, retain_graph=True)
            results.append([out.detach(), *grads])
            if quick:
                continue
            with torch.no_grad():
                forward = timed(functools.partial(compiled, *tensors))
            row.append(
                (forward, timed(functools.partial(torch.autograd.grad, out, wanted, gradient, retain_graph=True)))
            )
        errors = " ".join(f"{error(g, w):.0e}" for w, g in zip(*results, strict=True))
        if not quick:
            (a, b), (c, d) = row
            ratios.append((a / c, b / d))
            print(
                f"{name:10} {depth:4}: {a:8.1f} / {c:8.1f} ({a / c:.2f}); {b:8.1f} / {d:8.1f} ({b / d:.2f}); {errors}",
                flush=True,
            )
        else:
            print(name, depth, errors, flush=True)
    for position, title in enumerate(("forward", "backward")):
        if ratios:
            print(f"{title}: geometric mean {statistics.geometric_mean(r[position] for r in ratios):.3f}")


DECODES = [
    # mask, batch, heads, heads of keys, queries, keys, elements a head
    ("plain", 1, 32, 8, 1, 8192, 128),
    ("causal", 1, 32, 8, 1, 8192, 128),
    ("causal", 1, 32, 8, 1, 131072, 128),
    ("causal", 8, 32, 8, 1, 8192, 128),
    ("causal", 64, 32, 8, 1, 4096, 128),
    ("causal", 4, 32, 8, 16, 8192, 128),
    ("causal", 1, 16, 16, 1, 32768, 64),
    ("causal", 2, 16, 16, 64, 16384, 64),
    ("window", 1, 32, 8, 1, 131072, 128),
]


def decode(batch: int, heads: int, key_heads: int, queries: int, keys: int, name: str) -> Callable[..., Any]:
    """A call of `flex_attention` for the last queries."""
    rest = keys - queries - 100  # the cache is not full
    masks = {
        "causal": lambda b, h, i, j: i + rest >= j,
        "window": lambda b, h, i, j: (i + rest >= j) & (i + rest - j < 4096),
    }
    gqa = key_heads != heads
    if name == "plain":
        return lambda q, k, v: flex_attention(q, k, v, enable_gqa=gqa)
    blocks = create_block_mask(masks[name], None, None, queries, keys, device="cuda")
    return lambda q, k, v: flex_attention(q, k, v, block_mask=blocks, enable_gqa=gqa)


def queued(function: Callable[[], Any], calls: int = 10, repeats: int = 12) -> float:
    """Median microseconds of device time a call, of calls that wait in the queue together, so that launching them does not count."""
    for _ in range(3):
        function()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(4_000_000)
        before.record()
        for _ in range(calls):
            function()
        after.record()
        torch.cuda.synchronize()
        times.append(before.elapsed_time(after) / calls)
    return statistics.median(times) * 1e3


def compare_decoding(numbers: list[int], *, quick: bool) -> int:
    """Times of few queries beside torch.compile's; how many results differ from float32's."""
    wrong = 0
    print(
        "batch x heads/of keys, queries x keys, depth: torch.compile / torchjit us (ratio); share of 4.3 TB/s; errors"
    )
    for number in numbers:
        name, batch, heads, key_heads, count, keys, depth = DECODES[number]
        torch.manual_seed(number)
        function = decode(batch, heads, key_heads, count, keys, name)
        shapes = (heads, count), (key_heads, keys), (key_heads, keys)
        tensors = [torch.randn(batch, *shape, depth, device="cuda").to(BF) for shape in shapes]
        torch._dynamo.reset()
        torchjit.reset()
        torch.cuda.empty_cache()
        wide = function(*(t[:1].float() for t in tensors))
        row, errors = [], []
        with torch.no_grad():
            for compiled in (torch.compile(function), torchjit.compile(function)):
                if quick and not row:
                    row.append(0.0)
                    continue
                errors.append(error(compiled(*tensors)[:1], wide))
                row.append(queued(functools.partial(compiled, *tensors)))
        seen = min(4096, keys) if name == "window" else keys
        share = 2 * batch * key_heads * seen * depth * 2 / row[1] / 4.3e6
        wrong += not errors[-1] < 2e-2
        print(
            f"{name:7} {batch} x {heads}/{key_heads}, {count} x {keys}, {depth}: {row[0]:.1f} / {row[1]:.1f} ({row[0] / row[1]:.2f}); "
            f"{share:.2f}; " + " ".join(f"{e:.0e}" for e in errors),
            flush=True,
        )
    return wrong


def varying(name: str, length: int) -> list[Any]:
    """Block mask, and a tensor that the functions use, of a call of `call_of_varying`."""
    documents = torch.searchsorted(
        torch.arange(1, 7, device="cuda") * length // 7, torch.arange(length, device="cuda").repeat(2, 1)
    ).to(torch.int32)
    masks = {"causal": causal, "documents": lambda b, h, i, j: (i >= j) & (documents[b, i] == documents[b, j])}
    return [
        create_block_mask(masks[name], 2 if name == "documents" else None, None, length, length, device="cuda"),
        documents,
    ]


def call_of_varying(q: Any, k: Any, v: Any, mask: Any, documents: Any) -> Any:
    """Scores that a tensor of the length changes."""

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return torch.where(documents[b, i] == documents[b, j], s, s - 1)

    return flex_attention(q, k, v, score_mod=score, block_mask=mask)


def compare_varying(lengths: list[int]) -> int:
    """Times of lengths that vary, beside torchjit's kernels for that length alone and torch.compile's for any; how many results are wrong."""
    wrong = 0
    print(
        "kind, length: forward torch.compile, any length / torchjit, this length / torchjit, any length, us; backward likewise; errors"
    )
    importlib.import_module("torch._functorch.config").donated_buffer = False  # type: ignore[attr-defined]  # or torch.compile's backward runs once
    for name in ("causal", "documents"):
        torch._dynamo.reset()
        torchjit.reset()
        fallen: list[str] = []

        def listener(kind: str, fields: dict[str, Any], into: list[str] = fallen) -> None:
            into += [str(fields.get("detail"))] if kind == "fallback" else []

        calls = torch.compile(call_of_varying), None, torchjit.compile(call_of_varying)
        for length in (640, 1024, *lengths):
            torch.manual_seed(length)
            tensors = inputs(2, 16, length, 16, 64, 64, BF)
            rest, gradient = varying(name, length), torch.randn(2, 16, length, 64, device="cuda").to(BF)
            wide = [t.detach().float().requires_grad_() for t in tensors]
            out = torchjit.compile(call_of_varying, backend="eager")(*wide, *rest)
            want = [out.detach(), *torch.autograd.grad(out, wide, gradient.float())]
            row, errors = [], []
            for compiled in calls if length in lengths else calls[::2]:
                compiled = compiled or torchjit.compile(lambda *a: call_of_varying(*a), dynamic=False)
                with events.listen(listener):
                    out = compiled(*tensors, *rest)
                    grads = torch.autograd.grad(out, tensors, gradient, retain_graph=True)
                errors.append(max(error(g, w) for g, w in zip([out.detach(), *grads], want, strict=True)))
                with torch.no_grad():
                    compiled(*tensors, *rest)
                    if length not in lengths:
                        continue
                    forward = timed(functools.partial(compiled, *tensors, *rest))
                row.append(
                    (forward, timed(functools.partial(torch.autograd.grad, out, tensors, gradient, retain_graph=True)))
                )
            wrong += not errors[-1] < 2e-2 or bool(fallen)
            texts = [" / ".join(f"{times[n]:.1f}" for times in row) for n in range(2)]
            print(
                f"{name:9} {length:5}: {'; '.join(texts)}; {' '.join(f'{e:.0e}' for e in errors)} {fallen[:1]}",
                flush=True,
            )
        print(name, "specialisations:", len(calls[2].compiled.specializations), flush=True)  # type: ignore[union-attr]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("check", "time", "warm", "decode", "vary"))
    parser.add_argument("--only", nargs="*", default=list(KINDS))
    parser.add_argument("--depths", nargs="*", type=int, default=[64, 128])
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--numbers", nargs="*", type=int, default=list(range(len(CHECKS))), help="which checks")
    parser.add_argument("--processes", type=int, default=1, help="for check: so many at once")
    parser.add_argument("--quick", action="store_true", help="for decode: torchjit only")
    chosen = parser.parse_args()
    if chosen.what == "check":
        if chosen.processes == 1:
            return check(chosen.numbers)
        parts = [chosen.numbers[n :: chosen.processes] for n in range(chosen.processes)]
        with multiprocessing.get_context("spawn").Pool(chosen.processes) as pool:
            return sum(pool.map(check, parts))
    if chosen.what == "decode":
        return compare_decoding([n for n in chosen.numbers if n < len(DECODES)], quick=chosen.quick)
    if chosen.what == "vary":
        return compare_varying([4096, 4000])
    compare(
        chosen.only, chosen.depths, chosen.length, chosen.batch, chosen.heads, quick=chosen.what == "warm"
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
