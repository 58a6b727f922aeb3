"""Microseconds that a compiled callable adds to each call: guards and dispatch, the graph's work left out.

N blocks of (Linear, GELU, LayerNorm) under a backend that runs nothing; torch.compile and torchjit in one process, in turns.

    uv run python benchmarks/call_overhead.py --layers 1 12 80
    uv run python benchmarks/call_overhead.py --layers --specializations --models bert llama --python
"""

from __future__ import annotations

import argparse
import time
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import torchjit


def null_backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Compute the outputs once and return them for ever."""
    with torch.no_grad():
        out = gm(*example_inputs)
    return lambda *inputs: out


def microseconds(f: Callable[..., Any], x: torch.Tensor, rounds: int) -> list[float]:
    """Time per call of `rounds` batches of 50 calls."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(50):
            f(x)
        times.append((time.perf_counter_ns() - start) / 50 / 1e3)
    return times


def in_turns(theirs: Callable[..., Any], ours: Callable[..., Any], x: Any, rounds: int = 40) -> tuple[float, float]:
    """Least microseconds of both, measured in turns: other processes only ever add."""
    times: tuple[list[float], list[float]] = ([], [])
    with torch.no_grad():
        for _ in range(rounds):
            for kept, f in zip(times, (theirs, ours), strict=True):
                kept += microseconds(f, x, 2)
    return min(times[0][2:]), min(times[1][2:])


def specializations() -> None:
    """Ten specialisations of one function: calls of the first and of the tenth again and again, and all ten in turns."""

    def f(x: torch.Tensor, name: str) -> torch.Tensor:
        return getattr(torch, name)(x)

    names = ("sin", "cos", "tan", "exp", "abs", "neg", "tanh", "relu", "sqrt", "sigmoid")
    x = torch.rand(4)
    torchjit.reset()
    ours = torchjit.compile(f, backend=null_backend, recompile_limit=len(names))
    with torch.no_grad():
        for name in names:
            ours(x, name)

    def timed(calls: list[str]) -> float:
        best = float("inf")
        with torch.no_grad():
            for _ in range(200):
                start = time.perf_counter_ns()
                for name in calls:
                    ours(x, name)
                best = min(best, (time.perf_counter_ns() - start) / len(calls) / 1e3)
        return best

    first, tenth, turns = timed([names[0]] * 200), timed([names[9]] * 200), timed([*names] * 20)
    print("| ten specialisations | us | to the first |\n|---|---|---|")
    for what, us in (("the first, again and again", first), ("the tenth, likewise", tenth), ("all in turns", turns)):
        print(f"| {what} | {us:.2f} | {us / first:.2f} |", flush=True)


def graphs_that_may_raise() -> None:
    """A graph alone, and one with an effect, in turns without and with code that runs the region again where its graph raises."""
    box = types.SimpleNamespace(seen=None)

    def graph_alone(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    def with_effect(x: torch.Tensor) -> torch.Tensor:
        box.seen = x
        return x.sin() + 1

    def counts_as_ours(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        return null_backend(gm, example_inputs)

    counts_as_ours.__module__ = "torchjit.backends"
    x = torch.rand(4)
    print("| runs again where its graph raises | no, ns | yes, ns | ratio |\n|---|---|---|---|")
    for f in (graph_alone, with_effect):
        without, repeated = (torchjit.compile(f, backend=b) for b in (null_backend, counts_as_ours))
        a, b = in_turns(without, repeated, x, 400)
        print(f"| {f.__name__} | {1e3 * a:.0f} | {1e3 * b:.0f} | {b / a:.3f} |", flush=True)

    def in_a_try(x: torch.Tensor) -> torch.Tensor:
        try:
            return (x.sin() + 1)[x.long()] * 2
        except IndexError:
            return x

    def runs(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        return torchjit.backends.lookup_backend("inductor")(gm, example_inputs)

    broken, whole = torchjit.compile(in_a_try, backend=runs), torchjit.compile(in_a_try, backend="inductor")
    a, b = in_turns(broken, whole, x, 400)
    print(f"| in_a_try (with two breaks; one graph) | {1e3 * a:.0f} | {1e3 * b:.0f} | {b / a:.3f} |", flush=True)


def models(names: list[str]) -> None:
    """Modules of transformers with 12 layers and little width: the call is all that counts."""
    from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

    small = dict(hidden_size=32, num_hidden_layers=12, num_attention_heads=2, intermediate_size=64, vocab_size=100)
    made = {
        "bert": lambda: BertModel(BertConfig(**small)),
        "llama": lambda: LlamaModel(LlamaConfig(**small, use_cache=False)),
    }
    print("| module | torch.compile us | torchjit us | ratio |\n|---|---|---|---|")
    for name in names:
        module, ids = made[name]().eval(), torch.arange(8)[None]
        torch.compiler.reset()
        torchjit.reset()
        theirs, ours = torch.compile(module, backend=null_backend), torchjit.compile(module, backend=null_backend)
        a, b = in_turns(theirs, ours, ids, 15)
        print(f"| {name} | {a:.1f} | {b:.1f} | {b / a:.3f} |", flush=True)


def ordinary_python() -> None:
    """Loops that compile nothing, in turns without and with a compiled function that breaks: the hook must not be installed."""

    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def strings() -> int:
        return sum(len(f"{i}:{i * i}".split(":")) for i in range(3000))

    def objects() -> int:
        class Point:
            def __init__(self, x: int) -> None:
                self.x = x

            def moved(self, by: int) -> Point:
                return Point(self.x + by)

        p = Point(0)
        for i in range(3000):
            p = p.moved(i)
        return p.x

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torchjit.graph_break()
        return y * 2

    def least(loop: Callable[[], Any]) -> float:
        best = float("inf")
        for _ in range(15):
            start = time.perf_counter_ns()
            loop()
            best = min(best, time.perf_counter_ns() - start)
        return best

    loops: dict[str, Callable[[], Any]] = {"calls (fib)": lambda: fib(15), "strings": strings, "objects": objects}
    without, having = dict.fromkeys(loops, float("inf")), dict.fromkeys(loops, float("inf"))
    for _ in range(30):
        torchjit.reset()
        for name, loop in loops.items():
            without[name] = min(without[name], least(loop))
        compiled = torchjit.compile(broken, backend="eager")
        for _ in range(3):
            compiled(torch.ones(2))
        for name, loop in loops.items():
            having[name] = min(having[name], least(loop))
        del compiled
    print("| loop | with / without |\n|---|---|")
    for name in loops:
        print(f"| {name} | {having[name] / without[name]:.3f} |", flush=True)


def main() -> None:
    """Print a row per depth."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", nargs="*", type=int, default=[1, 12, 80])
    parser.add_argument("--specializations", action="store_true")
    parser.add_argument("--models", nargs="*", default=[], choices=["bert", "llama"])
    parser.add_argument("--python", action="store_true")
    parser.add_argument("--raising", action="store_true")
    options = parser.parse_args()
    if options.specializations:
        specializations()
    if options.models:
        models(options.models)
    if options.raising:
        graphs_that_may_raise()
    if options.python:
        ordinary_python()
    if options.layers:
        print("| blocks | torch.compile us | torchjit us | ratio |\n|---|---|---|---|")
    for layers in options.layers:
        blocks = [nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)) for _ in range(layers)]
        module = nn.Sequential(*blocks).eval()
        x = torch.randn(4, 16)
        torch.compiler.reset()
        torchjit.reset()
        theirs, ours = torch.compile(module, backend=null_backend), torchjit.compile(module, backend=null_backend)
        a, b = in_turns(theirs, ours, x)
        print(f"| {layers} | {a:.2f} | {b:.2f} | {b / a:.3f} |", flush=True)


if __name__ == "__main__":
    main()
