"""What only a machine with a GPU can show of models: a mixture of experts, and recurrent layers with cuDNN, beside eager PyTorch.

    uv run --group models python tools/gpu_checks.py [mixtral] [recurrent]

Each line says captured graphs, breaks, the largest difference, and seconds of first and later calls. Exits 1 where something is wrong: a break,
a second graph, a difference, first calls of a recurrent layer (training and inference) above 15 s. 16-bit models are held against the same
weights in float32: torchjit may be 1.5 times as far from those as eager is.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

import torchjit
from torchjit_core import events

_heard: list[tuple[str, dict[str, Any]]] = []
_wrong: list[str] = []


def _difference(found: Iterable[Any], wanted: Iterable[Any]) -> float:
    """The largest norm of a difference beside the norm of what is right: single tokens may go to other experts by rounding alone."""
    pairs = [(f.detach().float(), w.detach().float()) for f, w in zip(found, wanted, strict=True)]
    return max((float((f - w).norm() / w.norm().clamp(min=1e-6)) for f, w in pairs if w.numel()), default=0.0)


def _report(name: str, modes: int, difference: float, most: float, first: float, later: float, eager: float) -> None:
    graphs = sum(kind == "graph" and f["stage"] == "captured" for kind, f in _heard)
    breaks = [f"{f.get('reason')} {f.get('detail')}" for kind, f in _heard if kind == "graph_break"]
    fallbacks = [str(f.get("detail")) for kind, f in _heard if kind == "fallback"]
    ok = difference <= most and not breaks and graphs == modes
    print(
        f"{'ok   ' if ok else 'WRONG'} {name}: {graphs} graphs, {len(breaks)} breaks, difference {difference:.2e} (up to {most:.1e}), "
        f"first {first:.2f} s, later {later * 1e3:.1f} ms, eager {eager * 1e3:.1f} ms",
        flush=True,
    )
    for text in (*breaks, *fallbacks):
        print(f"      {text[:200]}", flush=True)
    if not ok:
        _wrong.append(name)


def _timed(call: Callable[[], Any], device: str) -> tuple[Any, float]:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = call()
    if device == "cuda":
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


def _compare(
    name: str,
    run: Callable[[Callable[..., Any]], list[Any]],
    module: Any,
    device: str,
    most: float,
    exact: list[Any] | None = None,
    modes: int = 1,
) -> float:
    """Run eager and compiled; gives the seconds of the first call.

    Args:
        exact: what the results would be with more digits; None: eager's are the measure.
        modes: how many graphs there are to be: `run` trains, or infers, or does both.
    """
    torchjit.reset()
    compiled = torchjit.compile(module)
    want = run(module)
    _, eager = _timed(lambda: run(module), device)
    _heard.clear()
    got, first = _timed(lambda: run(compiled), device)
    right = want if exact is None else exact
    if exact is not None:
        most = max(1.5 * _difference(want, exact), 1e-3)
    difference = _difference(got, right)
    got, _ = _timed(lambda: run(compiled), device)
    _, later = _timed(lambda: run(compiled), device)
    _report(name, modes, max(difference, _difference(got, right)), most, first, later, eager)
    return first


def mixtral(device: str) -> None:
    """Item 16 of issue 32: 8 experts, bfloat16, 4 x 256."""
    from transformers import MixtralConfig, MixtralForCausalLM  # noqa: PLC0415  # of the group `models`, and slow

    small = device == "cpu"
    torch.manual_seed(0)
    config = MixtralConfig(
        hidden_size=64 if small else 512, intermediate_size=128 if small else 1024, num_hidden_layers=2 if small else 4,
        num_attention_heads=8, num_key_value_heads=4, num_local_experts=8, vocab_size=200 if small else 32_000,
    )  # fmt: skip
    model = MixtralForCausalLM(config).to(device, torch.bfloat16)
    tokens = torch.randint(0, config.vocab_size, (2, 16) if small else (4, 256), device=device)

    def infer(call: Callable[..., Any]) -> list[Any]:
        with torch.no_grad():
            return [call(tokens).logits]

    def train(call: Callable[..., Any], model: Any = model) -> list[Any]:
        model.zero_grad()
        result = call(tokens, labels=tokens)
        result.loss.backward()
        return [result.loss.detach(), *[p.grad.clone() for p in model.parameters()]]

    wide = copy.deepcopy(model).float()
    model.eval()
    _compare("Mixtral inference", infer, model, device, 0.0, infer(wide.eval()))
    model.train()
    _compare("Mixtral training", train, model, device, 0.0, train(wide.train(), wide))


_LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "GRU, 6 layers both ways": ("GRU", {"num_layers": 6, "bidirectional": True}),
    "LSTM, 3 layers": ("LSTM", {"num_layers": 3}),
    "LSTM, dropout": ("LSTM", {"num_layers": 3, "dropout": 0.5, "batch_first": True}),
    "RNN, 2 layers": ("RNN", {"num_layers": 2}),
}


def recurrent(device: str) -> None:
    """Item 17: 512 steps, values, gradients and random numbers; with cuDNN, without it, and under autocast."""
    for name, (kind, options) in _LAYERS.items():
        for how in ("", ", autocast", ", no cuDNN") if device == "cuda" else ("",):
            torch.manual_seed(0)
            module = getattr(torch.nn, kind)(32, 64, **options).to(device)
            steps = 64 if how == ", no cuDNN" else 512
            x = (
                torch.randn(8, steps, 32, device=device)
                if options.get("batch_first")
                else torch.randn(steps, 8, 32, device=device)
            )

            def run(
                call: Callable[..., Any], module: Any = module, x: Any = x, cast: bool = how == ", autocast"
            ) -> list[Any]:
                torch.manual_seed(1)
                module.zero_grad()
                with torch.autocast(x.device.type, torch.bfloat16, enabled=cast):
                    result, state = call(x)
                states = state if isinstance(state, tuple) else (state,)
                (result.float().sin().sum() + sum(s.float().sum() for s in states)).backward()
                with torch.no_grad(), torch.autocast(x.device.type, torch.bfloat16, enabled=cast):
                    inferred = call(x)[0]
                return [result, *states, *[p.grad.clone() for p in module.parameters()], inferred]

            with torch.backends.cudnn.flags(enabled=how != ", no cuDNN"):
                first = _compare(name + how, run, module, device, 2e-2 if how == ", autocast" else 2e-3, modes=2)
            if first > 15 and how != ", no cuDNN":
                _wrong.append(f"{name}: the first calls of training and inference took {first:.1f} s")


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["mixtral", "recurrent"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    events.start_listening(lambda kind, fields: _heard.append((kind, fields)))
    print(
        f"torch {torch.__version__}, {torch.cuda.get_device_name() if given.device == 'cuda' else 'CPU, small sizes'}",
        flush=True,
    )
    for what in given.what:
        if what == "mixtral" and importlib.util.find_spec("transformers") is None:
            print("WRONG mixtral: transformers is not installed (uv sync --group models)")
            _wrong.append("mixtral")
            continue
        {"mixtral": mixtral, "recurrent": recurrent}[what](given.device)
    print("all right" if not _wrong else f"wrong: {_wrong}")
    return bool(_wrong)


if __name__ == "__main__":
    sys.exit(main())
