"""GPT-2 under DDP and a Llama of a billion parameters under FSDP2 on two GPUs: eager PyTorch, torchjit and torch.compile, one after the other.

    python benchmarks/two_gpus.py --out two_gpus.jsonl [--only gpt2 llama-blocks/torchjit] [--steps 50] [--programs]
    python benchmarks/two_gpus.py --device cpu --small --steps 6 --out /tmp/rows.jsonl

Each system trains in processes of its own, one for each rank, with fresh caches; the next one's import torch meanwhile and wait. A line of
JSON is written when the first step, the steps and the trace are done, and one for each system at the end that compares it with eager and
torch.compile. Times are between the ends of steps, medians of the last 30. Communication is exposed while a kernel of NCCL runs and no other
one does. `--programs` trains the programs of `integration_tests/parallel_programs.py`, too, with the default backend.
"""

# mypy: allow-untyped-calls, allow-untyped-defs, no-warn-return-any

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

CASES = [
    ("gpt2", "eager"),
    ("gpt2", "torchjit"),
    ("gpt2", "torch.compile"),
    ("llama", "eager"),
    ("llama-blocks", "torchjit"),
    ("llama-blocks", "torch.compile"),
    ("llama-whole", "torchjit"),
    ("llama-whole", "torch.compile"),
]
"""In the order in which they run: what to know first comes first."""

QUIET_LINKS = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
BATCHES = 8
"""So many batches are trained on in turns."""
RATE = 1e-4

Compile = Callable[[Any], Any]
Span = tuple[float, float]


# ------------------------------------------------------------------------------------------------------- the models


def gpt2(compile: Compile, device: torch.device, small: bool) -> Any:
    """124 million parameters; without dropout, since compiled code draws other numbers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 512, "n_positions": 64} if small else {}
    config = GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    model = GPT2LMHeadModel(config).to(device)
    given = [device.index] if device.type == "cuda" else None
    return compile(DistributedDataParallel(model, device_ids=given, bucket_cap_mb=0.1 if small else 25))


def llama(small: bool, device: torch.device) -> Any:
    """1.1 billion parameters, in float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    large = (2048, 16, 32, 8, 8192, 32000, 2048)
    names = "hidden_size num_hidden_layers num_attention_heads num_key_value_heads intermediate_size vocab_size"
    sizes = dict(
        zip((*names.split(), "max_position_embeddings"), (64, 2, 4, 2, 128, 512, 64) if small else large, strict=True)
    )
    with device:
        return LlamaForCausalLM(LlamaConfig(**sizes, use_cache=False))


def llama_blocks(compile: Compile, device: torch.device, small: bool) -> Any:
    """Each block is compiled, and sharded behind that."""
    model = llama(small, device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for i, block in enumerate(model.model.layers):
        model.model.layers[i] = fully_shard(compile(block), mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def llama_whole(compile: Compile, device: torch.device, small: bool) -> Any:
    """Each block is sharded, and the model compiled behind that."""
    return compile(llama_blocks(lambda block: block, device, small))


@dataclass(frozen=True)
class Program:
    build: Callable[[Compile, torch.device, bool], Any]
    batch: tuple[int, int]
    autocast: bool = False


PROGRAMS = {
    "gpt2": Program(gpt2, (8, 1024), autocast=True),
    "llama": Program(llama_blocks, (2, 2048)),
    "llama-blocks": Program(llama_blocks, (2, 2048)),
    "llama-whole": Program(llama_whole, (2, 2048)),
}


# ------------------------------------------------------------------------------------------------------- one rank


class Counted:
    """Graphs and breaks of a system, from now on."""

    def __init__(self, system: str) -> None:
        self.system = system
        self.seen: dict[str, int] = defaultdict(int)
        self.reasons: dict[str, int] = defaultdict(int)
        if system == "torchjit":
            from torchjit_core.events import start_listening

            start_listening(self.hear)

    def hear(self, event: str, fields: dict[str, Any]) -> None:
        if event in ("graph", "graph_break", "recompile", "fallback") and fields.get("stage", "captured") == "captured":
            self.seen[event] += 1
        if event in ("graph_break", "fallback"):
            self.reasons[f"{fields['reason']}: {fields['detail']}"[:160]] += 1

    def told(self) -> dict[str, Any]:
        if self.system == "torch.compile":
            from torch._dynamo.utils import counters

            breaks = {text[:160]: count for text, count in counters["graph_break"].items()}
            return {"graphs": counters["stats"]["unique_graphs"], "breaks": sum(breaks.values()), "reasons": breaks}
        seen = self.seen
        return {
            "graphs": seen["graph"],
            "breaks": seen["graph_break"],
            "reasons": dict(self.reasons),
            "all": dict(seen),
        }


def compiler(system: str) -> Compile:
    if system == "eager":
        return lambda module: module
    if system == "torch.compile":
        return torch.compile
    import torchjit

    return torchjit.compile


def text(shape: tuple[int, int], words: int, generator: torch.Generator) -> torch.Tensor:
    """Most words follow from the one before: losses fall smoothly, and do not hang on how a bit is rounded."""
    known = min(words, 97)
    out = torch.randint(known, shape, generator=generator)
    surprising = torch.rand(shape, generator=generator) < 0.2
    for i in range(1, shape[1]):
        out[:, i] = torch.where(surprising[:, i], out[:, i], (out[:, i - 1] * 5 + 7) % known)
    return out


def allocations() -> Counter[float]:
    """How many blocks of memory are in use, by their size in megabytes."""
    blocks = (block for segment in torch.cuda.memory_snapshot() for block in segment["blocks"])
    return Counter(round(block["size"] / 1e6, 1) for block in blocks if block["state"] == "active_allocated")


class Training:
    """A program of a rank, step by step.

    Args:
        case: the name of its program, and the system that compiles it.
        small: sizes for a test on the CPU.
    """

    def __init__(self, case: tuple[str, str], rank: int, device: torch.device, small: bool) -> None:
        self.program, self.device = PROGRAMS[case[0]], device
        torch.manual_seed(0)
        self.model = self.program.build(compiler(case[1]), device, small)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, fused=device.type == "cuda")
        shape, words = ((2, 32), 512) if small else (self.program.batch, 32000)
        generator = torch.Generator().manual_seed(rank)
        self.batches = [text(shape, words, generator).to(device) for _ in range(BATCHES)]
        self.losses: list[torch.Tensor] = []

    def forward(self) -> torch.Tensor:
        tokens = self.batches[len(self.losses) % BATCHES]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.program.autocast):
            return self.model(input_ids=tokens, labels=tokens).loss

    def step(self) -> None:
        loss = self.forward()
        loss.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (len(self.losses) + 1) / 10)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.detach())

    def held(self) -> dict[str, Any]:
        """What a forward holds for its backward: gigabytes, and how many allocations of which size in megabytes."""
        before, sizes = torch.cuda.memory_allocated(), allocations()
        loss = self.forward()
        torch.cuda.synchronize()
        after, counts = torch.cuda.memory_allocated(), allocations()
        counts.subtract(sizes)
        loss.backward()
        self.optimizer.zero_grad()
        largest = sorted(((size, n) for size, n in counts.items() if n), key=lambda item: -abs(item[0] * item[1]))[:12]
        return {"held_gb": round((after - before) / 1e9, 3), "held_mb": {str(size): n for size, n in largest}}

    def timed(self, steps: int) -> list[float]:
        """Milliseconds of each step, from end to end. The host does not wait in between."""
        if self.device.type != "cuda":
            ends = [time.perf_counter()]
            for _ in range(steps):
                self.step()
                ends.append(time.perf_counter())
            return [1e3 * (b - a) for a, b in itertools.pairwise(ends)]
        events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        events[0].record()
        for event in events[1:]:
            self.step()
            event.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) for a, b in itertools.pairwise(events)]


def merged(spans: Iterable[Span]) -> list[Span]:
    """The union of some spans, in order, as spans that do not touch."""
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)


def exposed(communication: list[Span], computation: list[Span]) -> float:
    """How long the first go on while none of the second does."""
    return length(merged(communication + computation)) - length(merged(computation))


def traced(training: Training, steps: int) -> dict[str, Any]:
    """What kernels do in some steps: milliseconds a step.

    A rank waits inside of a kernel of NCCL for the other one, so both begin together, behind a barrier without such a kernel,
    and with a profiler that has run before.
    """
    together = dist.new_group(backend="gloo")
    for count in (1, steps):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            dist.barrier(together)
            training.timed(count)
    with tempfile.TemporaryDirectory() as folder:
        profile.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
    nccl: list[Span] = []
    others: list[Span] = []
    by_name: dict[str, float] = defaultdict(float)
    for event in events:
        if event.get("cat") == "kernel":
            (nccl if "nccl" in event["name"].lower() else others).append((event["ts"], event["ts"] + event["dur"]))
            by_name[event["name"][:90]] += event["dur"] / steps / 1e3
    each = 1 / steps / 1e3
    longest = sorted(by_name, key=by_name.__getitem__, reverse=True)[:14]
    return {
        "exposed_ms": round(each * exposed(nccl, others), 3),
        "nccl_ms": round(each * length(merged(nccl)), 3),
        "compute_ms": round(each * length(merged(others)), 3),
        "kernels": len(others) / steps,
        "longest_ms": {name: round(by_name[name], 3) for name in longest},
    }


def trained(case: tuple[str, str], rank: int, device: torch.device, args: argparse.Namespace) -> Iterator[dict]:
    """What is known when the first step, the steps and the trace are done."""
    on_gpu = device.type == "cuda"
    counted = Counted(case[1])
    training = Training(case, rank, device, args.small)
    start = time.perf_counter()
    training.step()
    training.losses[0].item()
    yield {"stage": "first", "first_s": round(time.perf_counter() - start, 2), **counted.told()}
    first = torch.cuda.max_memory_allocated() if on_gpu else 0
    warm = training.timed(max(1, min(19, args.steps // 3)))
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    times = training.timed(args.steps - 1 - len(warm))
    row: dict[str, Any] = {"stage": "steps", "step_ms": round(statistics.median(times[-30:]), 3), **counted.told()}
    row["warm_ms"] = [round(each, 1) for each in warm[:4]]
    row["losses"] = [round(loss.item(), 5) for loss in training.losses]
    if on_gpu:
        peak = torch.cuda.max_memory_allocated()
        row |= {"peak_gb": round(peak / 1e9, 3), "peak_first_gb": round(first / 1e9, 3)}
    yield row
    if on_gpu:
        yield {"stage": "held", **training.held()}
    if on_gpu and args.trace:
        yield {"stage": "trace", **traced(training, args.trace)}


def rank_main(args: argparse.Namespace) -> None:
    """A child: imports, waits for a line on its input, and trains."""
    name, system, rank, world, store = args.child
    if args.device == "cpu":
        torch.set_num_threads(1)
    with contextlib.suppress(ImportError):
        import transformers.models.gpt2.modeling_gpt2
        import transformers.models.llama.modeling_llama  # noqa: F401
    compiler(system)
    sys.stdin.readline()
    device = torch.device(args.device, int(rank)) if args.device == "cuda" else torch.device("cpu")
    if args.device == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if args.device == "cuda" else "gloo",
        init_method=f"file://{store}",
        rank=int(rank),
        world_size=int(world),
        timeout=datetime.timedelta(seconds=args.limit),
        device_id=device if args.device == "cuda" else None,
    )
    label = {"case": name, "system": system, "rank": int(rank)}
    try:
        for row in trained((name, system), int(rank), device, args):
            if int(rank) == 0 or row["stage"] in ("steps", "trace"):
                write(args.out, label | row)
    except BaseException as error:
        where = traceback.format_exc().splitlines()[-6:]
        write(args.out, label | {"stage": "error", "error": repr(error)[:600], "where": where})
        raise
    dist.barrier()
    os._exit(0)  # nothing that still runs may hold up the others


# ------------------------------------------------------------------------------------------------------- all of them


def write(out: str, row: dict[str, Any]) -> None:
    """A line of its own, also where several processes write."""
    with open(out, "a") as file:
        file.write(json.dumps(row) + "\n")


class Ranks:
    """The processes of one system, which wait until they are let go."""

    def __init__(self, case: tuple[str, str], args: argparse.Namespace, folder: str) -> None:
        self.case, self.args = case, args
        label = "-".join(case)
        caches = {
            name: f"{folder}/{label}-{name.lower()}"
            for name in ("TORCHJIT_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
        }
        environment = {**os.environ, **QUIET_LINKS, **caches}
        if args.device == "cpu":
            environment["OMP_NUM_THREADS"] = "1"
        self.processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--child", *case, str(rank), str(args.ranks), f"{folder}/{label}-store"]
                + ["--out", args.out, "--device", args.device, "--steps", str(args.steps), "--limit", str(args.limit)]
                + ["--trace", str(args.trace)]
                + (["--small"] if args.small else []),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=open(f"{args.out}.{label}.{rank}.log", "w"),  # noqa: SIM115  the child's
                text=True,
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(args.ranks)},
            )
            for rank in range(args.ranks)
        ]

    def run(self, seconds: float) -> None:
        """Let them go; ends all when one fails or the time is over."""
        for process in self.processes:
            process.stdin.write("go\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        start = time.monotonic()
        codes: list[int | None] = [None]
        while None in codes and not any(codes) and time.monotonic() - start < seconds:
            time.sleep(0.1)
            codes = [process.poll() for process in self.processes]
        self.end()
        took = round(time.monotonic() - start, 1)
        write(self.args.out, {"case": self.case[0], "system": self.case[1], "stage": "end", "codes": codes, "s": took})

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each system that trained: its losses beside eager's, its numbers, and the ratios to torch.compile's and eager's."""
    found: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for row in rows:
        if row.get("rank") == 0 and row["stage"] in ("first", "steps", "held", "trace"):
            left_out = ("longest_ms", "held_mb")
            found[row["case"], row["system"]] |= {key: value for key, value in row.items() if key not in left_out}
    for row in rows:
        if row["stage"] == "steps":  # what one rank compiled the other may have loaded
            system = found[row["case"], row["system"]]
            system |= {key: max(system.get(key, 0), row[key]) for key in ("graphs", "breaks")}
    told = []
    for (name, system), row in found.items():
        if "losses" not in row:
            continue
        eager = found.get((name.split("-")[0], "eager"), {})
        upstream = found.get((name, "torch.compile"), {})
        losses = row.pop("losses") if system != "eager" else row["losses"]
        line = {key: value for key, value in row.items() if key not in ("losses", "reasons", "rank", "warm_ms", "all")}
        line |= {"stage": "summary", "steps_per_s": round(1e3 / row["step_ms"], 3), "last_loss": losses[-1]}
        if "losses" in eager and system != "eager":
            pairs = zip(losses, eager["losses"], strict=False)
            line["off_eager"] = max(abs(a - b) / abs(b) if math.isfinite(a) else math.inf for a, b in pairs)
        for label, other in (("eager", eager), ("upstream", upstream)):
            if "step_ms" in other and other is not row:
                line[f"speed_to_{label}"] = round(other["step_ms"] / row["step_ms"], 3)
        told.append(line)
    return told


def main() -> None:
    """Run the systems in turns, then the programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="a file for lines of JSON; logs lie beside it")
    parser.add_argument("--only", nargs="*", default=[""], help="beginnings of CASE/SYSTEM")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--trace", type=int, default=3, help="how many steps are traced behind the others")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--limit", type=float, default=90, help="the most seconds that one system may take")
    parser.add_argument("--seconds", type=float, default=350, help="the most that all may take")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--programs", action="store_true", help="also integration_tests/parallel_programs.py")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        rank_main(args)
        return
    start = time.monotonic()
    args.out = str(Path(args.out).absolute())
    Path(args.out).write_text("")
    cases = [case for case in CASES if any("/".join(case).startswith(text) for text in args.only)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        waiting = [Ranks(case, args, folder) for case in cases[:1]]
        for i in range(len(cases)):
            left = args.seconds - (time.monotonic() - start)
            if left < 10:
                break
            waiting += [Ranks(case, args, folder) for case in cases[i + 1 : i + 2]]
            waiting.pop(0).run(min(args.limit, left))
        for ranks in waiting:
            ranks.end()
    for line in summary([json.loads(row) for row in Path(args.out).read_text().splitlines()]):
        write(args.out, line)
        print(json.dumps(line), flush=True)
    if args.programs:
        tool = str(Path(__file__).parents[1] / "tools" / "parallel_steps.py")
        backend = ["--backend", "nccl"] if args.device == "cuda" else []
        left = max(20.0, args.seconds - (time.monotonic() - start))
        given = [*backend, "--compiler", "inductor", "--ranks", str(args.ranks), "--steps", str(args.steps)]
        subprocess.run([sys.executable, tool, *given, "--seconds", str(left)], check=False)


if __name__ == "__main__":
    main()
