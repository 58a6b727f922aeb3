"""Training steps whose loss is one of several results, as `transformers` models return them: `model(ids, labels=ids).loss.backward()`.

    python benchmarks/some_gradients.py [--device cuda] [--layers 12] [--batch 8] [--length 512] [--backend inductor]

GPT-2 returns its loss, the logits, and the keys and values of each layer; only the loss gets a gradient. One run compares

* torchjit as it is: the backward is compiled for the gradients that come;
* torchjit with zeros for the others, as it was before;
* torch.compile, unless `--alone`.

Prints milliseconds of a step (forward, backward; median) and the peak of the memory allocated on a GPU, in GiB.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import torchjit
from torchjit_aot import backwards


def step_of(model: Any, ids: torch.Tensor, autocast: bool) -> Callable[[], None]:
    def step() -> None:
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=autocast):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        model.zero_grad(set_to_none=True)

    return step


def measure(step: Callable[[], None], device: str, seconds: float) -> dict[str, float]:
    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    start = time.perf_counter()
    for _ in range(4):
        step()
    wait()
    first = time.perf_counter() - start
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - begin)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else float("nan")
    return {"ms": 1000 * statistics.median(times), "peak": peak, "first": first}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--mode", default=None)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--alone", action="store_true", help="without torch.compile")
    options = parser.parse_args()
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=options.layers,
        n_embd=options.width,
        n_head=options.width // 64,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
    model = GPT2LMHeadModel(config).to(options.device).train()
    ids = torch.randint(0, config.vocab_size, (options.batch, options.length), device=options.device)
    autocast = options.device == "cuda"
    most = backwards._MOST
    for name in ("torchjit", "torchjit, zeros", *(() if options.alone else ("torch.compile",))):
        backwards._MOST = 0 if "zeros" in name else most
        torchjit.reset()
        torch.compiler.reset()
        compiler: Any = torch.compile if name == "torch.compile" else torchjit.compile
        found = measure(step_of(compiler(model, mode=options.mode), ids, autocast), options.device, options.seconds)
        print(
            f"{name:16} {found['ms']:9.2f} ms   peak {found['peak']:.2f} GiB   first steps {found['first']:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
