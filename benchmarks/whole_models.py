"""Whole models on a GPU beside eager and torch.compile: times, kernels by total time, breaks, graphs, errors against float32.

    python3 tools/from_checkout.py python3 benchmarks/whole_models.py --programs unet deberta experts --out folder

A diffusion U-Net, DeBERTa-v2, a mixture of experts, recurrent layers over 512 steps, decoding of one token with Llama's shapes (`decode_loop.py`), and a chain of
small kernels, which says what a launch costs. Every pair of program and compiler is a process of its own. All of them build and compile at once; then each times its
steps alone, then each profiles one step alone. `ms` is the median by events of the device over single steps with an empty queue, `host` the time until a step's
calls return; `queued` is the share of a step in ten without a wait. `folder/NAME.txt` lists the kernels of one step, functions of the host, and which recordings were made, timed and dropped; `folder/NAME-code.txt` holds what torchjit generated.
"""

from __future__ import annotations

import argparse
import collections
import copy
import cProfile
import io
import json
import os
import pstats
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, final

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from decode_loop import Decoder

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any], Callable[[Any], Tensor]]
"""A module, its arguments, and from its result to what is compared, and summed up for a loss."""


class Residual(nn.Module):
    """Two convolutions with group norms, between them the embedding of the time."""

    def __init__(self, channels: int, to: int, width: int) -> None:
        super().__init__()
        self.before, self.behind = nn.GroupNorm(32, channels), nn.GroupNorm(32, to)
        self.first, self.second = nn.Conv2d(channels, to, 3, padding=1), nn.Conv2d(to, to, 3, padding=1)
        self.time = nn.Linear(width, to)
        self.around = nn.Conv2d(channels, to, 1) if channels != to else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.first(F.silu(self.before(x))) + self.time(time)[:, :, None, None]
        return self.around(x) + self.second(F.silu(self.behind(y)))


class Attention(nn.Module):
    """Self-attention over the places of an image."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(32, channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        n, channels, height, width = x.shape
        places = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(places).view(n, height * width, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, height * width, channels)
        return x + self.out(y).transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    """Four levels over latents (batch, 4, height, width), two residual blocks a level each way, attention at the bottom."""

    def __init__(self, channels: int = 128, scales: Sequence[int] = (1, 2, 2, 2)) -> None:
        super().__init__()
        widths, time = [channels * s for s in scales], 4 * channels
        self.channels = channels
        self.time = nn.Sequential(nn.Linear(channels, time), nn.SiLU(), nn.Linear(time, time), nn.SiLU())
        self.stem = nn.Conv2d(4, channels, 3, padding=1)
        self.down, self.up, self.smaller, self.larger = (
            nn.ModuleList(),
            nn.ModuleList(),
            nn.ModuleList(),
            nn.ModuleList(),
        )
        kept, last = [channels], channels
        for level, width in enumerate(widths):
            for _ in range(2):
                self.down.append(Residual(last, width, time))
                kept.append(last := width)
            if level < len(widths) - 1:
                self.smaller.append(nn.Conv2d(last, last, 3, stride=2, padding=1))
                kept.append(last)
        self.middle = nn.ModuleList([Residual(last, last, time), Attention(last, 8), Residual(last, last, time)])
        for level, width in reversed(list(enumerate(widths))):
            for _ in range(3):
                self.up.append(Residual(last + kept.pop(), width, time))
                last = width
            if level > 0:
                self.larger.append(nn.Conv2d(last, last, 3, padding=1))
        self.norm, self.out = nn.GroupNorm(32, last), nn.Conv2d(last, 4, 3, padding=1)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        half = self.channels // 2
        angles = steps[:, None] * torch.exp(torch.arange(half, device=x.device) * (-9.21 / half))[None]
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(x.dtype))
        x = self.stem(x)
        kept = [x]
        for i, block in enumerate(self.down):
            x = block(x, time)
            kept.append(x)
            if i % 2 and i // 2 < len(self.smaller):
                x = self.smaller[i // 2](x)
                kept.append(x)
        x = self.middle[2](self.middle[1](self.middle[0](x, time)), time)
        for i, block in enumerate(self.up):
            x = block(torch.cat([x, kept.pop()], 1), time)
            if i % 3 == 2 and i // 3 < len(self.larger):
                x = self.larger[i // 3](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.out(F.silu(self.norm(x)))


class Launches(nn.Module):
    """Many small kernels, of which none can be joined with the next."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(50):
            x = torch.softmax(torch.softmax(x, 0) * 3, 1) * 5
        return x


class OneResult(nn.Module):
    """A recurrent layer without its last states."""

    def __init__(self, kind: type[nn.Module], both: bool) -> None:
        super().__init__()
        self.layer = kind(128, 256, 6, bidirectional=both)

    def forward(self, x: Tensor, state: Any) -> Tensor:
        return self.layer(x, state)[0]


class Sampled(nn.Module):
    """The next tokens, drawn from the fifty most likely."""

    def __init__(self, batch: int, layers: int) -> None:
        super().__init__()
        self.decoder = Decoder(layers, batch=batch)

    def forward(self, token: Tensor, at: Tensor) -> Tensor:
        best, which = torch.topk(self.decoder.logits(token, at).float() / 0.8, 50)
        chosen = torch.argmax(F.softmax(best, -1) / torch.empty_like(best).exponential_(1), -1)
        return which.gather(-1, chosen[:, None])[:, 0]


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _unet(small: bool) -> Made:
    model = UNet(32, (1, 2)) if small else UNet()
    size, batch = (8, 1) if small else (64, 8)
    return model, (torch.randn(batch, 4, size, size), torch.arange(batch) * 7.0), {}, lambda out: out


def _transformer(config: str, model: str, small: bool, **options: Any) -> Made:
    # Imported here: other programs need no transformers.
    import transformers

    if small:
        options |= {
            "hidden_size": 64,
            "intermediate_size": 64,
            "vocab_size": 100,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
        }
    settings = getattr(transformers, config)(**options)
    tokens = torch.randint(0, settings.vocab_size, (2, 16) if small else (4, 256))
    made = getattr(transformers, model)(settings)
    return made, (), {"input_ids": tokens, "labels": tokens.clone()}, lambda out: out.logits


def _deberta(small: bool, **options: Any) -> Made:
    sizes = {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "vocab_size": 30522,
    }
    return _transformer("DebertaV2Config", "DebertaV2ForMaskedLM", small, **sizes, **options)


def _relative(small: bool) -> Made:
    kinds = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 256}
    return _deberta(small, **kinds, share_att_key=True, norm_rel_ebd="layer_norm", max_relative_positions=-1)


def _experts(small: bool) -> Made:
    sizes = {
        "hidden_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "intermediate_size": 1792,
    }
    return _transformer("MixtralConfig", "MixtralForCausalLM", small, **sizes, num_local_experts=8, use_cache=False)


def _recurrent(kind: type[nn.Module], both: bool, small: bool) -> Made:
    model = OneResult(kind, both)
    length, batch = (8, 2) if small else (512, 10)
    states = [torch.randn(6 * (1 + both), batch, 256) for _ in range(2)]
    state = (states[0], states[1]) if kind is nn.LSTM else states[0]
    return model, (torch.randn(length, batch, 128), state), {}, lambda out: out


def _decode(batch: int, small: bool) -> Made:
    model = Sampled(batch, 1 if small else 16)
    return model, (torch.arange(batch), torch.tensor([300])), {}, lambda out: out


PROGRAMS: dict[str, Callable[[bool], Made]] = {
    "unet": _unet,
    "deberta": _deberta,
    "deberta_relative": _relative,
    "experts": _experts,
    "gru": lambda small: _recurrent(nn.GRU, False, small),
    "gru_both": lambda small: _recurrent(nn.GRU, True, small),
    "lstm": lambda small: _recurrent(nn.LSTM, False, small),
    "decode1": lambda small: _decode(1, small),
    "decode8": lambda small: _decode(8, small),
    "launches": lambda small: (Launches(), (torch.randn(256, 256),), {}, lambda out: out),
}
_IN_FLOAT32 = ("gru", "lstm", "launches")
_NOT_TRAINED = ("decode", "launches")


def _moved(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(_device(), dtype if value.is_floating_point() else value.dtype)
    return type(value)(_moved(v, dtype) for v in value) if isinstance(value, (list, tuple)) else value


@final
class Job:
    """One program under one compiler, in this process.

    Args:
        name: of the program.
        phase: `infer` or `train`.
        compiler: `eager`; `torch`, in the mode `reduce-overhead`; or `torchjit`, in the default mode, too.
    """

    def __init__(self, name: str, phase: str, compiler: str, small: bool) -> None:
        torch.manual_seed(0)
        self.dtype = torch.float32 if name.startswith(_IN_FLOAT32) else torch.bfloat16
        module, args, kwargs, self.result = PROGRAMS[name](small)
        self.module = module.to(_device(), self.dtype).train(phase == "train")
        self.args = _moved(args, self.dtype)
        self.kwargs = {k: _moved(v, self.dtype) for k, v in kwargs.items()}
        self.train, self.name, self.told = phase == "train", name, collections.Counter[str]()
        self.code: list[str] = []
        self.decisions: list[str] = []
        self.row: dict[str, Any] = {}
        self.steps: dict[str, Callable[[], Any]] = {}
        if compiler == "torchjit":
            self._listen()
        modes = {"eager": [""], "torch": ["reduce-overhead"], "torchjit": ["default", "reduce-overhead"]}[compiler]
        if compiler != "eager" and name.startswith(("gru", "lstm")):
            modes = ["default", "eager"]  # they are recorded by nobody, and bound by the host: side by side
        for mode in modes:
            start = time.perf_counter()
            self.steps[mode] = self._step(self._compiled(compiler, mode))
            for call in range(4):
                out = self.steps[mode]()
                if call == 0:
                    self.row[f"first {mode}"] = round(time.perf_counter() - start, 1)
            if not name.startswith("decode"):
                self.row[f"error {mode}"] = self._error(out, name)
            del out
        if compiler != "eager" and name.startswith(
            "gru"
        ):  # what recurrent layers are worth is known by the default mode
            self.steps = {"default": self.steps["default"]}

    def _compiled(self, compiler: str, mode: str) -> Callable[..., Any]:
        if "eager" in (compiler, mode):
            return self.module
        if compiler == "torch":
            return torch.compile(self.module, mode=mode)
        # Imported here: the other compilers' processes must not pay for it.
        import torchjit

        return torchjit.compile(self.module, mode=mode)

    def _listen(self) -> None:
        # As above.
        from torchjit_core import events

        def listener(kind: str, fields: dict[str, Any]) -> None:
            self.told[kind] += 1
            if kind in ("fallback", "graph_break", "cudagraph_timed", "cudagraph_captured"):
                line = f"# ---- {kind} { {k: v for k, v in fields.items() if k not in ('time', 'compile_id')} }"
                self.code.append(line)
                self.decisions.append(line)
            elif fields.get("source") and kind in ("host_program", "kernel"):
                self.code.append(
                    f"# ---- {kind} {fields.get('graph', '')} {fields.get('name', '')}\n{fields['source']}"
                )

        events.start_listening(listener)

    def _step(self, called: Callable[..., Any]) -> Callable[[], Any]:
        def infer() -> Any:
            with torch.no_grad():
                return called(*self.args, **self.kwargs)

        def train() -> Any:
            self.module.zero_grad(set_to_none=True)
            out = called(*self.args, **self.kwargs)
            loss = out.loss if hasattr(out, "loss") else out.float().pow(2).mean()
            loss.backward()
            return out

        return train if self.train else infer

    def _error(self, out: Any, name: str) -> str:
        """Relative distance of result and first gradients from float32 eager's, and of eager's own result from it."""
        exact = copy.deepcopy(self.module).float().eval()
        found = [self.result(out).detach().double()]
        with torch.no_grad():
            args, kwargs = (
                _moved(self.args, torch.float32),
                {k: _moved(v, torch.float32) for k, v in self.kwargs.items()},
            )
            wanted = self.result(exact(*args, **kwargs)).double()
            self.module.eval()
            own = self.result(self.module(*self.args, **self.kwargs)).double()
            self.module.train(self.train)
        norm = wanted.norm()
        sizes = [float(p.grad.float().norm()) for p in self.module.parameters() if p.grad is not None]
        gradients = f", gradients' norm {statistics.fmean(sizes):.5g}" if sizes else ""
        return f"{float((found[0] - wanted).norm() / norm):.1e} (eager {float((own - wanted).norm() / norm):.1e}){gradients}"

    def _record_again(self) -> None:
        """Whether a recording pays was measured beside all other jobs."""
        # As above.
        import torchjit_cudagraphs

        torchjit_cudagraphs.reset()
        self.decisions.append("# ---- beside nobody:")
        for step in self.steps.values():
            for _ in range(8):
                step()

    def time(self, seconds: float) -> None:
        """Medians of single steps, by events and on the host."""
        if self.told:
            self._record_again()
        for mode, step in self.steps.items():
            cuda = _device() == "cuda"
            flush = torch.empty(64 << 20 if cuda else 1, dtype=torch.int8, device=_device())
            for _ in range(8):
                step()
            times, hosts = [], []
            end = time.perf_counter() + seconds
            while len(times) < 5 or (time.perf_counter() < end and len(times) < 100):
                flush.zero_()
                _wait()
                marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if cuda else []
                start = time.perf_counter()
                if cuda:
                    marks[0].record()
                step()
                if cuda:
                    marks[1].record()
                hosts.append(1e3 * (time.perf_counter() - start))
                _wait()
                times.append(marks[0].elapsed_time(marks[1]) if cuda else hosts[-1])
            self.row[f"ms {mode}"] = round(statistics.median(times), 3)
            self.row[f"host {mode}"] = round(statistics.median(hosts), 3)
            start = time.perf_counter()
            for _ in range(10):
                step()
            _wait()
            self.row[f"queued {mode}"] = round(100 * (time.perf_counter() - start), 3)

    def profile(self) -> str:
        """Kernels of one step by total time, for each mode."""
        activity = torch.profiler.ProfilerActivity
        lines = []
        for mode, step in self.steps.items():
            kinds = [activity.CUDA] if _device() == "cuda" else [activity.CPU]
            with torch.profiler.profile(activities=kinds) as seen:
                step()
                _wait()
            kernels: dict[str, list[float]] = collections.defaultdict(list)
            found: Any = seen.events()
            for event in found:
                if event.device_type == torch.autograd.DeviceType.CUDA or _device() == "cpu":
                    kernels[event.name].append(event.device_time if _device() == "cuda" else event.cpu_time)
            table = sorted(((sum(t), len(t), n) for n, t in kernels.items()), reverse=True)
            total = sum(t for t, _, _ in table)
            self.row[f"device {mode}"] = round(total / 1e3, 3)
            self.row[f"kernels {mode}"] = sum(n for _, n, _ in table)
            lines.append(
                f"== {mode or 'eager'}: {total / 1e3:.3f} ms of kernels, {sum(n for _, n, _ in table)} of them"
            )
            lines += [f"{t:9.1f} us {n:4d} x {name[:150]}" for t, n, name in table[:60]]
        for mode, step in self.steps.items():
            lines += [f"== {mode or 'eager'}: functions of the host, ten steps", _host_profile(step)]
        if self.told:
            lines += [f"events: {dict(self.told)}", *self.decisions]
        return "\n".join(lines)


def _host_profile(step: Callable[[], Any]) -> str:
    profile, text = cProfile.Profile(), io.StringIO()
    profile.enable()
    for _ in range(10):
        step()
    profile.disable()
    _wait()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(25)
    return "\n".join(text.getvalue().splitlines()[4:])


def _wait() -> None:
    if _device() == "cuda":
        torch.cuda.synchronize()


def _run_job(spec: str, small: bool, seconds: float, out: Path) -> None:
    """Say when a stage is over, and wait until the next may begin."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    name, phase, compiler = spec.split(":")
    job = Job(name, phase, compiler, small)
    file = out / f"{name}-{phase}-{compiler}"
    if job.code:
        Path(f"{file}-code.txt").write_text("\n".join(job.code))
    if job.told:
        job.row["told"] = {k: n for k, n in job.told.items() if n < 50 and k not in ("phase", "pass")}
    print("READY", flush=True)
    sys.stdin.readline()
    job.time(seconds)
    print("ROW " + json.dumps(job.row), flush=True)
    sys.stdin.readline()
    table = job.profile()
    print("ROW " + json.dumps(job.row), flush=True)
    Path(f"{file}.txt").write_text(f"{job.row}\n{table}\n")
    print("READY", flush=True)
    os._exit(0)  # without the waits of compilers' worker processes


@final
@attrs.define
class _Child:
    spec: str
    process: subprocess.Popen[str]
    errors: IO[str]
    row: dict[str, Any] = attrs.field(factory=dict)
    stage: int = 0

    def read(self, line: str) -> None:
        if line.startswith("ROW "):
            self.row = json.loads(line[4:])
        if line.startswith(("ROW ", "READY")):
            self.stage += 1

    def go(self, until: float) -> None:
        """Let it run its next stage alone; at most until then."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return
        _read([self], until, self.stage + 1)

    def told(self) -> str:
        self.errors.seek(0)
        return self.errors.read()[-1500:]


def _read(children: Sequence[_Child], until: float, stage: int) -> None:
    """Read what they say until all have reached the stage, or ended, or time is over."""
    with selectors.DefaultSelector() as selector:
        waiting = [c for c in children if c.stage < stage]
        for child in waiting:
            selector.register(child.process.stdout, selectors.EVENT_READ, child)
        while waiting and time.perf_counter() < until:
            for key, _ in selector.select(max(0.01, until - time.perf_counter())):
                child, line = key.data, key.fileobj.readline()
                child.read(line)
                if not line or child.stage >= stage:
                    selector.unregister(key.fileobj)
                    waiting.remove(child)


def main() -> None:
    """Start all jobs, let them time and profile one after the other, print a line each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--phases", nargs="+", default=["infer", "train"])
    parser.add_argument("--compilers", nargs="+", default=["torch", "torchjit", "eager"])
    parser.add_argument("--only", nargs="+", help="jobs, such as unet:infer:torchjit, in place of all of these")
    parser.add_argument("--out", type=Path, required=True, help="folder for tables of kernels and generated code")
    parser.add_argument("--ready", type=float, default=400, help="seconds; what is not compiled by then is left out")
    parser.add_argument("--limit", type=float, default=500, help="seconds for everything")
    parser.add_argument("--seconds", type=float, default=1.0, help="of timing, for each mode")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    o = parser.parse_args()
    o.out.mkdir(parents=True, exist_ok=True)
    if o.job:
        _run_job(o.job, o.small, o.seconds, o.out)
        return
    start = time.perf_counter()
    specs = [
        f"{name}:{phase}:{compiler}"
        for phase in reversed(o.phases)  # what compiles longest starts first
        for name in o.programs
        for compiler in o.compilers
        if phase == "infer" or not name.startswith(_NOT_TRAINED)
    ]
    specs = o.only or specs
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for spec in specs:
            caches = {
                "TORCHINDUCTOR_CACHE_DIR": f"{folder}/{spec.replace(':', '-')}",
                "OMP_NUM_THREADS": "1",
                "TORCHINDUCTOR_COMPILE_THREADS": "4",
            }
            errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read when the job is done
            command = [sys.executable, __file__, "--job", spec, "--out", str(o.out), "--seconds", str(o.seconds)]
            command += ["--small"] if o.small else []
            streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            process = subprocess.Popen(command, text=True, env={**os.environ, **caches}, **streams)
            children.append(_Child(spec, process, errors))
        _read(children, start + o.ready, 1)
        for child in (c for c in children if c.stage < 1):
            child.process.kill()
        print(f"compiled after {time.perf_counter() - start:.0f} s", flush=True)
        for stage in (1, 2):
            for child in children:
                if child.stage == stage:
                    child.go(start + o.limit)
        lines = []
        for child in sorted(children, key=lambda c: c.spec.split(":")[:2]):
            shown = {k: v for k, v in child.row.items() if k != "told"}
            lines.append(f"{child.spec:30} {shown}" if shown else f"{child.spec:30} FAILED {child.told()}")
        (o.out / "rows.txt").write_text("\n".join(lines) + "\n")
        print("\n".join(line[:300] for line in lines), flush=True)
        for child in children:
            child.process.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
