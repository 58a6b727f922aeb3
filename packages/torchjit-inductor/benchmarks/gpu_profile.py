"""Where the time of a model goes on a GPU: wall clock, host time, device time, kernels; eager, torch.compile, torchjit.

    python3 tools/from_checkout.py python3 packages/torchjit-inductor/benchmarks/gpu_profile.py --models bert_base vit_base \
        --phases infer train --compilers eager torchjit --out profile.json

Every job (model, phase, compiler) is a process of its own. Several build and compile at once; when all have, they time
their steps one after the other, with nothing else on the GPU or the host. `wall` is the median of synchronised steps; `host` the time until a step's calls return, with an
empty queue; `device` the sum of kernel times of one profiled step; `error` the relative distance (Frobenius norm) of the
result (in training: of the loss) from eager's on the same weights, where the model draws no random numbers.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fcntl
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, final

import attrs
import torch

BF, F32 = torch.bfloat16, torch.float32


def _torchvision(
    name: str, batch: int, size: int, dtype: torch.dtype
) -> Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    def make() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        import torchvision

        model = getattr(torchvision.models, name)().to("cuda", dtype)
        return model, (torch.randn(batch, 3, size, size, device="cuda", dtype=dtype),), {}

    return make


def _timm(name: str, batch: int) -> Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    def make() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        import timm

        model = timm.create_model(name, pretrained=False).to("cuda", BF)
        return model, (torch.randn(batch, 3, 224, 224, device="cuda", dtype=BF),), {}

    return make


def _transformer(
    config: str, model: str, batch: int, length: int, **options: Any
) -> Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    def make() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        import transformers

        settings = getattr(transformers, config)(**options)
        made = getattr(transformers, model)(settings).to("cuda", BF)
        tokens = torch.randint(0, settings.vocab_size, (batch, length), device="cuda")
        return made, (), {"input_ids": tokens, "labels": tokens.clone()}

    return make


def _network() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    nn = torch.nn
    blocks = [nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256)) for _ in range(12)]
    return nn.Sequential(*blocks).to("cuda"), (torch.randn(8, 256, device="cuda"),), {}


_LLAMA = {
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "intermediate_size": 5632,
    "vocab_size": 32000,
}

MODELS: dict[str, Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]] = {
    "mlp": _network,
    "resnet18": _torchvision("resnet18", 16, 128, F32),
    "resnet50": _torchvision("resnet50", 64, 224, BF),
    "mobilenet_v3": _torchvision("mobilenet_v3_large", 64, 224, BF),
    "densenet121": _torchvision("densenet121", 32, 224, F32),
    "convnext_tiny": _timm("convnext_tiny", 64),
    "vit_base": _timm("vit_base_patch16_224", 32),
    "swin_tiny": _timm("swin_tiny_patch4_window7_224", 32),
    "efficientnet_b0": _timm("efficientnet_b0", 64),
    "bert_base": _transformer("BertConfig", "BertForMaskedLM", 16, 256),
    "gpt2": _transformer("GPT2Config", "GPT2LMHeadModel", 8, 512),
    "distilbert": _transformer("DistilBertConfig", "DistilBertForMaskedLM", 32, 128),
    "t5_small": _transformer("T5Config", "T5ForConditionalGeneration", 8, 256, decoder_start_token_id=0),
    "llama_1b": _transformer("LlamaConfig", "LlamaForCausalLM", 4, 512, use_cache=False, **_LLAMA),
}


def _compiler(name: str) -> Callable[[Any], Any]:
    kind, _, mode = name.partition(":")
    if kind == "eager":
        return lambda f: f
    if kind == "torch":
        return lambda f: torch.compile(f, mode=mode or None)
    import torchjit

    return lambda f: torchjit.compile(f, mode=mode or None)


def _loss(out: Any) -> torch.Tensor:
    if hasattr(out, "loss"):
        return out.loss
    return (out[0] if isinstance(out, (tuple, list)) else out).float().pow(2).mean()


def _result(out: Any) -> torch.Tensor:
    return out.logits if hasattr(out, "logits") else out


@contextlib.contextmanager
def _alone(folder: Path, job: str) -> Iterator[None]:
    """Say that this job has compiled, wait until all have, and for its turn."""
    gc.collect()
    torch.cuda.empty_cache()
    (folder / f"{job}.compiled").touch()
    while not (folder / _ALL_COMPILED).exists():
        time.sleep(0.1)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


_ALL_COMPILED = "all"


def _keep_sources(folder: str, job: str) -> None:
    """Write every generated program and kernel of this process to a file."""
    from torchjit_core import events

    def listener(kind: str, fields: dict[str, Any]) -> None:
        if kind in ("host_program", "kernel", "fallback", "graph_break"):
            with Path(folder, f"{job}.txt").open("a") as file:
                text = fields.get("source") or {k: v for k, v in fields.items() if k != "time"}
                file.write(f"# ---- {kind} {fields.get('graph', '')} {fields.get('name', '')}\n{text}\n")

    events.start_listening(listener)


def _job(name: str, phase: str, compiler: str, folder: str, sources: str) -> dict[str, Any]:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.manual_seed(0)
    model, args, kwargs = MODELS[name]()
    model.train(phase == "train")
    if sources and compiler.startswith("torchjit"):
        _keep_sources(sources, f"{name}-{phase}")
    made = _compiler(compiler)(model if phase == "infer" else lambda *a, **k: _loss(model(*a, **k)))

    def step() -> Any:
        if phase == "infer":
            with torch.no_grad():
                return made(*args, **kwargs)
        loss = made(*args, **kwargs)
        loss.backward()
        model.zero_grad(set_to_none=True)
        return loss

    start = time.perf_counter()
    out = _result(step()).detach().clone()  # the next replay of a CUDA graph writes over it
    torch.cuda.synchronize()
    row: dict[str, Any] = {"model": name, "phase": phase, "compiler": compiler, "first_s": time.perf_counter() - start}
    with _alone(Path(folder), _file_name((name, phase, compiler))):
        row |= _measure(step)
        if compiler != "eager" and phase == "infer":
            with torch.no_grad():
                want = _result(model(*args, **kwargs)).double()
            row["error"] = float((out.double() - want).norm() / want.norm())
        if compiler != "eager" and phase == "train":
            want = _loss(model(*args, **kwargs)).double()
            row["error"] = float((out.double() - want).abs() / want.abs())
    return row


def _file_name(job: tuple[str, str, str]) -> str:
    return "-".join(job).replace(":", "-")


def _measure(step: Callable[[], Any]) -> dict[str, Any]:
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    walls, hosts = [], []
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        out = step()
        hosts.append(time.perf_counter() - start)
        torch.cuda.synchronize()
        walls.append(time.perf_counter() - start)
        del out
    peak = torch.cuda.max_memory_allocated() / 2**20
    # Everything that a busy host does is hidden when several steps are queued.
    start = time.perf_counter()
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    queued = (time.perf_counter() - start) / 10
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    kernels: dict[str, list[float]] = collections.defaultdict(list)
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels[event.name].append(event.device_time)
    total = sum(map(sum, kernels.values()))
    table = sorted(((sum(t), len(t), n[:110]) for n, t in kernels.items()), reverse=True)
    return {
        "wall_ms": 1e3 * statistics.median(walls),
        "host_ms": 1e3 * statistics.median(hosts),
        "queued_ms": 1e3 * queued,
        "device_ms": total / 1e3,
        "kernels": sum(map(len, kernels.values())),
        "peak_mib": peak,
        "table": [[round(t, 1), n, name] for t, n, name in table],
    }


def _show(row: dict[str, Any], top: int) -> None:
    if "failed" in row:
        print(f"{row['model']} {row['phase']} {row['compiler']}: {row['failed']}", flush=True)
        return
    error = f" error {row['error']:.1e}" if "error" in row else ""
    print(
        f"{row['model']:<16}{row['phase']:<6}{row['compiler']:<14}first {row['first_s']:6.1f} s  wall {row['wall_ms']:7.3f}"
        f"  queued {row['queued_ms']:7.3f}  host {row['host_ms']:7.3f}  device {row['device_ms']:7.3f} ms"
        f"  {row['kernels']:4d} kernels  peak {row['peak_mib']:6.0f} MiB{error}",
        flush=True,
    )
    for time_us, count, name in row["table"][:top]:
        print(f"    {time_us:9.1f} us {count:4d} x {name}", flush=True)


def main() -> None:
    """Run the jobs, print a line (and the longest kernels) for each as it ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--phases", nargs="+", default=["infer", "train"])
    parser.add_argument("--compilers", nargs="+", default=["eager", "torch", "torchjit"])
    parser.add_argument("--jobs", type=int, default=8, help="processes that compile at once")
    parser.add_argument("--limit", type=float, default=500, help="seconds; what has not compiled by then is left out")
    parser.add_argument("--top", type=int, default=0, help="longest kernels to print for each job")
    parser.add_argument("--out", help="all rows as JSON")
    parser.add_argument("--sources", default="", help="folder for the generated programs and kernels")
    parser.add_argument("--job", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print("ROW " + json.dumps(_job(*options.job)), flush=True)
        return
    start = time.perf_counter()
    waiting = [(m, p, c) for m in options.models for p in options.phases for c in options.compilers]
    running: list[_Started] = []
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        while waiting or running:
            late = time.perf_counter() - start > options.limit
            if late and time.perf_counter() - start > options.limit + 120:
                for started in running:
                    started.process.kill()
                break
            waiting = [] if late else waiting
            compiling = [s for s in running if not (folder / f"{_file_name(s.job)}.compiled").exists()]
            while waiting and len(compiling) < options.jobs:
                compiling.append(_start(waiting.pop(0), folder, options.sources))
                running.append(compiling[-1])
            for started in compiling if late else ():
                started.process.kill()
            if late or not compiling:
                (folder / _ALL_COMPILED).touch()
            for started in [s for s in running if s.process.poll() is not None]:
                running.remove(started)
                rows.append(started.row())
                _show(rows[-1], options.top)
                if options.out:
                    Path(options.out).write_text(json.dumps(rows))
            time.sleep(0.1)


@final
@attrs.define
class _Started:
    job: tuple[str, str, str]
    process: subprocess.Popen[str]
    log: IO[str]

    def row(self) -> dict[str, Any]:
        """What it measured, or the end of what it said."""
        model, phase, compiler = self.job
        self.log.seek(0)
        text = self.log.read()
        told = [line for line in text.splitlines() if line.startswith("ROW ")]
        failed = {"model": model, "phase": phase, "compiler": compiler, "failed": text[-1500:]}
        return json.loads(told[0][4:]) if told else failed


def _start(job: tuple[str, str, str], folder: Path, sources: str) -> _Started:
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read when the job is done
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / _file_name(job)),
        "TORCHINDUCTOR_COMPILE_THREADS": "4",
        "OMP_NUM_THREADS": "2",
    }
    command = [sys.executable, __file__, "--job", *job, str(folder), sources]
    environment = {**os.environ, **caches}
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True, env=environment)
    return _Started(job, process, log)


if __name__ == "__main__":
    main()
