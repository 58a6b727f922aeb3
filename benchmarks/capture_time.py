"""Seconds that capture takes: from a first call to its end, with a backend that only takes the graph.

The graph is not run (a constant of the output's shape is returned), so that the figure is capture alone. torch.compile and
torchjit in one process, in turns, on fresh models of the same shape; medians after a first round.

    uv run --group models python benchmarks/capture_time.py [--models gpt bert llama resnet50] [--layers 12 48]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import torchjit
from torchjit.demo.models import GPT


def graph_backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Take the graph: what it returns is small, and does not depend on the inputs."""
    assert len(gm.graph.nodes) > 20
    outputs = [n.meta.get("val", n.meta.get("example_value")) for n in next(iter(reversed(gm.graph.nodes))).args[0]]
    result = tuple(torch.zeros(v.shape) for v in outputs)
    return lambda *inputs: result


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


def first_call(compiler: Callable[..., Any], name: str, layers: int, grad: bool) -> float:
    """Wall seconds of a first call."""
    torch.compiler.reset()
    torchjit.reset()
    model, tokens = build(name, layers)
    f = compiler(model, backend=graph_backend)
    with torch.set_grad_enabled(grad):
        start = time.perf_counter()
        f(tokens)
        return time.perf_counter() - start


def main() -> None:
    """Print a row per depth and grad mode."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=["gpt"], choices=["gpt", "bert", "llama", "resnet50"])
    parser.add_argument("--layers", nargs="+", type=int, default=[12])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| model | layers | grad | torch.compile s | torchjit s | ratio |\n|---|---|---|---|---|---|")
    for name in options.models:
        for layers in options.layers[:1] if name == "resnet50" else options.layers:
            for grad in (False, True):
                times: tuple[list[float], list[float]] = ([], [])
                for _ in range(options.rounds + 1):
                    for kept, compiler in zip(times, (torch.compile, torchjit.compile), strict=True):
                        kept.append(first_call(compiler, name, layers, grad))
                a, b = (statistics.median(t[1:]) for t in times)
                print(f"| {name} | {layers} | {grad} | {a:.3f} | {b:.3f} | {b / a:.3f} |", flush=True)


if __name__ == "__main__":
    main()
