"""Sizes that change: how often real models are compiled over many sizes, whether results are right, what capture costs.

    uv run --group models python benchmarks/dynamic_shapes.py [--backend inductor] [--parts counts capture cold]

counts: small random BERT, GPT-2 and Llama over 30 (batch, length) pairs in a shuffled order, batch 1 included, and resnet18
over batches 1 to 16; inference and training. A row gives the largest number of specialisations of any region (a region
that a graph break cut off counts on its own), the wrong results (against eager), and the graph breaks.
capture: processor seconds from a first call to its end with a backend that takes the graph and does not run it; static sizes, all sizes
symbolic, and torch.compile's dynamic=True beside them in turns, in one process; minima. A model with a graph break is captured up to it.
cold: the same without torch.compile, and before each capture the caches of what operations return are emptied (ours and torch's fake
tensors'), so that every distinct call is worked out anew.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable
from typing import Any

import torch
import torchvision
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

import torchjit
import torchjit_fx.domain

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk

PAIRS = [(b, n) for b in (1, 2, 3, 5, 8) for n in (7, 12, 16, 33, 48, 64)]
SMALL: dict[str, Any] = {"vocab_size": 100}


def bert(layers: int = 2) -> torch.nn.Module:
    config = transformers.BertConfig(
        hidden_size=64, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=128, **SMALL
    )
    return transformers.BertModel(config).eval()


def gpt2(layers: int = 2) -> torch.nn.Module:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=64, n_layer=layers, n_head=4, **SMALL)).eval()


def llama(layers: int = 2) -> torch.nn.Module:
    config = transformers.LlamaConfig(
        hidden_size=64, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128,
        **SMALL,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def resnet(layers: int = 18) -> torch.nn.Module:
    # eval: batch statistics of one small image are numerically unstable
    return torchvision.models.resnet18(num_classes=10).eval()


TEXT = (bert, gpt2, llama)


def first(out: Any) -> torch.Tensor:
    return next(leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor))


def is_close(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return torch.allclose(a, b, rtol=1e-3, atol=1e-4 * max(1.0, float(a.abs().max())))


def counts(make: Callable[..., torch.nn.Module], inputs: list[torch.Tensor], train: bool, backend: str) -> str:
    """One row of the table of counts."""
    torch.manual_seed(0)
    torchjit.reset()
    model = make()
    fast = torchjit.compile(model, backend=backend)
    weights = list(model.parameters())
    wrong = 0
    start = time.perf_counter()
    for x in inputs:
        with torch.set_grad_enabled(train):
            want, got = first(model(x)), first(fast(x))
        right = is_close(want, got)
        if train:
            wanted = torch.autograd.grad(want.float().sin().sum(), weights, allow_unused=True)
            found = torch.autograd.grad(got.float().sin().sum(), weights, allow_unused=True)
            right = right and all(is_close(a, b) for a, b in zip(wanted, found, strict=True))
        wrong += not right
    seconds = time.perf_counter() - start
    compilation = fast._torchjit_door.compiled
    most = max(len(site.specializations) for site in compilation.sites)
    breaks = {str(r.location) for s in compilation.specializations for r in s.breaks}
    return f"| {make.__name__} | {'train' if train else 'infer'} | {len(inputs)} | {most} | {wrong} | {len(breaks)} | {seconds:.1f} |"


def print_counts(backend: str) -> None:
    print(
        f"\n{backend}\n\n| model | phase | sizes | compilations | wrong | graph breaks | s |\n|---|---|---|---|---|---|---|"
    )
    pairs = list(PAIRS)
    random.Random(0).shuffle(pairs)
    batches = list(range(1, 17))
    random.Random(0).shuffle(batches)
    for train in (False, True):
        for make in TEXT:
            print(counts(make, [torch.randint(0, 100, pair) for pair in pairs], train, backend), flush=True)
        print(counts(resnet, [torch.randn(b, 3, 32, 32) for b in batches], train, backend), flush=True)


class NotRun(Exception):
    """In the place of a graph's results."""


def take_graph(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """A backend that takes the graph."""
    assert len(gm.graph.nodes) > 5

    def run(*inputs: Any) -> Any:
        raise NotRun

    return run


torchjit.register_backend(take_graph, "takes_graph", tags=("debug",))


def first_call(compiler: Callable[..., Any], model: torch.nn.Module, x: torch.Tensor, dynamic: bool) -> float:
    """Processor seconds of a first call whose graph is not run."""
    torch.compiler.reset()
    torchjit.reset()
    # a name, as our own backends have: a function would ask for values on every node
    f = compiler(model, backend="takes_graph" if compiler is torchjit.compile else take_graph, dynamic=dynamic)
    start = time.process_time()
    try:
        f(x)
    except NotRun:
        pass
    return time.process_time() - start


def print_capture(layers: int, rounds: int) -> None:
    print(
        "\n| model, no grad | static s | symbolic s | torch.compile symbolic s | symbolic/static | symbolic/torch.compile |\n"
        "|---|---|---|---|---|---|"
    )
    for make in (*TEXT, resnet):
        x = torch.randn(6, 3, 32, 32) if make is resnet else torch.randint(0, 100, (6, 21))
        kinds = ((torchjit.compile, False), (torchjit.compile, True), (torch.compile, True))
        best = [float("inf")] * 3
        with torch.no_grad():
            for _ in range(rounds):
                for k, (compiler, dynamic) in enumerate(kinds):
                    best[k] = min(best[k], first_call(compiler, make(layers), x, dynamic))
        static, symbolic, other = best
        print(
            f"| {make.__name__} | {static:.3f} | {symbolic:.3f} | {other:.3f} | {symbolic / static:.2f} | {symbolic / other:.3f} |",
            flush=True,
        )


def empty_caches() -> None:
    """Forget what operations return."""
    torchjit_fx.domain.forget_outcomes()
    FakeTensorMode.cache_clear()


def print_cold(layers: int, rounds: int) -> None:
    print("\n| model, no grad, cold | static s | symbolic s | symbolic/static |\n|---|---|---|---|")
    for make in (*TEXT, resnet):
        x = torch.randn(6, 3, 32, 32) if make is resnet else torch.randint(0, 100, (6, 21))
        best = [float("inf")] * 2
        with torch.no_grad():
            for _ in range(rounds):
                for dynamic in (False, True):
                    empty_caches()
                    best[dynamic] = min(best[dynamic], first_call(torchjit.compile, make(layers), x, dynamic))
        static, symbolic = best
        print(f"| {make.__name__} | {static:.3f} | {symbolic:.3f} | {symbolic / static:.2f} |", flush=True)


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", nargs="+", default=["inductor"])
    parser.add_argument(
        "--parts", nargs="+", default=["counts", "capture", "cold"], choices=["counts", "capture", "cold"]
    )
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if "counts" in options.parts:
        for backend in options.backend:
            print_counts(backend)
    if "capture" in options.parts:
        print_capture(options.layers, options.rounds)
    if "cold" in options.parts:
        print_cold(options.layers, options.rounds)


if __name__ == "__main__":
    main()
