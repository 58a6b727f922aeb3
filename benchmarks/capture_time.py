"""Seconds that capture takes: from a first call to its end, with a backend that only takes the graph.

The graph is not run (the backend's callable raises), so that the figure is capture alone. Processor seconds, torch.compile and
torchjit in turns. Warm: one process, fresh models of the same shape, minima after a first round. First: each capture is the
first one of a process of its own, imports of the compiler included (`import torch`, torchvision, transformers and
torchjit are not: a program has them anyway); medians.

    uv run --group models python benchmarks/capture_time.py [--models gpt bert llama resnet50] [--layers 12 48] [--first]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import torchjit
from torchjit.demo.models import GPT

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk


class NotRun(Exception):
    """In the place of a graph's results."""


def graph_backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Take the graph."""
    assert len(gm.graph.nodes) > 20

    def run(*inputs: Any) -> Any:
        raise NotRun

    return run


# Under a name, as the backends of both compilers have one: torchjit makes no values for the nodes of its own backends.
torchjit.register_backend(graph_backend, "takes_graph", tags=("debug",))


def build(name: str, layers: int) -> tuple[torch.nn.Module, torch.Tensor]:
    """A model in eval mode and its input. Widths are small: capture does not depend on them."""
    tokens = torch.randint(0, 1000, (2, 128))
    if name == "gpt":
        return GPT(layers=layers).eval(), tokens
    if name == "resnet50":
        # Imported here, as below: each model needs a package of its own.
        from torchvision.models import resnet50

        return resnet50(weights=None).eval(), torch.randn(2, 3, 64, 64)
    import transformers

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 1000}
    if name == "bert":
        return transformers.BertModel(transformers.BertConfig(num_hidden_layers=layers, **sizes)).eval(), tokens
    config = transformers.LlamaConfig(num_hidden_layers=layers, num_key_value_heads=4, use_cache=False, **sizes)
    return transformers.LlamaModel(config).eval(), tokens


def first_call(compiler: str, name: str, layers: int, grad: bool, function: bool = False) -> float:
    """Processor seconds of a first call. `function`: give the backend itself to torchjit, which then makes node values."""
    torch.compiler.reset()
    torchjit.reset()
    model, tokens = build(name, layers)
    if compiler == "torchjit":
        f = torchjit.compile(model, backend=graph_backend if function else "takes_graph")
    else:
        f = torch.compile(model, backend=graph_backend)
    with torch.set_grad_enabled(grad):
        start = time.process_time()
        try:
            f(tokens)
        except NotRun:
            return time.process_time() - start
    raise RuntimeError("the graph was not reached")


def first_of_process(compiler: str, name: str, layers: int, grad: bool) -> float:
    """Processor seconds of the first capture of a fresh process."""
    command = [sys.executable, __file__, "--one", compiler, "--models", name, "--layers", str(layers)]
    out = subprocess.run([*command, *(["--grad"] if grad else [])], capture_output=True, text=True, check=True)
    return float(out.stdout.split()[-1])


def warm_row(name: str, layers: int, grad: bool, rounds: int) -> str:
    times: dict[str, list[float]] = {"torch": [], "named": [], "function": []}
    for _ in range(rounds + 1):
        times["torch"].append(first_call("torch", name, layers, grad))
        times["named"].append(first_call("torchjit", name, layers, grad))
        times["function"].append(first_call("torchjit", name, layers, grad, function=True))
    a, b, c = (min(kept[1:]) for kept in times.values())
    return f"| {name} | {layers} | {grad} | {a:.3f} | {b:.3f} | {b / a:.3f} | {c / a:.3f} |"


def main() -> None:
    """Print a row per model, depth and grad mode."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=["gpt"], choices=["gpt", "bert", "llama", "resnet50"])
    parser.add_argument("--layers", nargs="+", type=int, default=[12])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first", action="store_true", help="the first capture of a process, instead of warm ones")
    parser.add_argument("--one", choices=["torch", "torchjit"], help="one capture in this process (used by --first)")
    parser.add_argument("--grad", action="store_true", help="with --one")
    options = parser.parse_args()
    if options.one:
        print(first_call(options.one, options.models[0], options.layers[0], options.grad))
        return
    extra = " | ratio, backend as a function" if not options.first else ""
    print(f"| model | layers | grad | torch.compile s | torchjit s | ratio{extra} |")
    print("|---|---|---|---|---|---|---|"[: None if extra else -4])
    for name in options.models:
        for layers in options.layers[:1] if name == "resnet50" else options.layers:
            for grad in (False, True):
                if options.first:
                    pairs = [
                        [first_of_process(c, name, layers, grad) for c in ("torch", "torchjit")]
                        for _ in range(options.rounds)
                    ]
                    a, b = (statistics.median(kept) for kept in zip(*pairs, strict=True))
                    print(f"| {name} | {layers} | {grad} | {a:.3f} | {b:.3f} | {b / a:.3f} |", flush=True)
                else:
                    print(warm_row(name, layers, grad, options.rounds), flush=True)


if __name__ == "__main__":
    main()
