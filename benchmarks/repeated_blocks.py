"""What a model of many equal blocks costs before its first result: 48 Llama-like blocks beside 6.

Each figure is a fresh process with empty cache folders: the processor seconds (and those of its C compilers) of the first call
less those of the second, so that the run itself is not counted. `import torch`, `import torchjit` and the model come before. The ratio is
what the target of issue 35 is about: at most 2.0.

    OMP_NUM_THREADS=1 uv run python benchmarks/repeated_blocks.py [--blocks 6 48] [--modes infer train] [--torch] [--phases]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk

HEADS, WIDTH, LENGTH, BATCH = 4, 256, 128, 2


class RMSNorm(nn.Module):
    """Root mean square norm over the last dimension."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., width) to the same."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Block(nn.Module):
    """Attention with rotated positions, and a gated product, as in Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = RMSNorm(WIDTH), RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) to the same; `cos` and `sin` are (length, width of a head)."""
        b, n, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(b, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind()
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, n, -1))
        h = self.between(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Positions as rotations: (batch, heads, length, width of a head)."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Stack(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self, blocks: int, words: int = 1000) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.norm, self.head = RMSNorm(WIDTH), nn.Linear(WIDTH, words, bias=False)
        angles = torch.outer(torch.arange(LENGTH), 10000 ** -torch.linspace(0, 1, WIDTH // HEADS // 2)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, length) to (batch, length, words)."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def seconds() -> float:
    """Processor seconds of this process and of those that have ended below it."""
    below = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + below.ru_utime + below.ru_stime


def measure(o: argparse.Namespace) -> dict[str, float]:
    """The first call of one case in this process, over the second."""
    torch.manual_seed(0)
    model, tokens = Stack(o.blocks[0]), torch.randint(0, 1000, (BATCH, LENGTH))
    training = o.modes[0] == "train"

    def step(f: Any) -> None:
        if training:
            model.zero_grad()
            f(tokens).square().mean().backward()
        else:
            with torch.no_grad():
                f(tokens)

    step(model)
    phases: dict[str, float] = defaultdict(float)
    if o.compiler == "torch":
        compiled = torch.compile(model)
    else:
        # Imported here: the other compiler's process has none of it.
        import torchjit
        from torchjit_core import events

        time.perf_counter = time.process_time  # what phases are measured with, on a machine that others use too
        if o.phases:
            listener = events.listen(
                lambda kind, f: (
                    phases.__setitem__(f["name"], phases[f["name"]] + f["seconds"]) if kind == "phase" else None
                )
            )
            listener.__enter__()
        compiled = torchjit.compile(model)
    times = []
    for _ in range(2):
        start = seconds()
        step(compiled)
        times.append(seconds() - start)
    return {"seconds": times[0] - times[1], **phases}


def run_fresh(o: argparse.Namespace, mode: str, blocks: int, compiler: str) -> dict[str, float]:
    """`measure` in a new process with empty cache folders."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch",
            "TORCHJIT_CACHE_DIR": f"{folder}/torchjit",
            "TMPDIR": folder,
        }
        command = [sys.executable, __file__, "--one", "--modes", mode, "--blocks", str(blocks), "--compiler", compiler]
        command += ["--phases"] if o.phases else []
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **caches}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return result


def main() -> None:
    """Print a row per mode and compiler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", nargs="+", type=int, default=[6, 48])
    parser.add_argument("--modes", nargs="+", default=["infer", "train"], choices=["infer", "train"])
    parser.add_argument("--torch", action="store_true", help="torch.compile too")
    parser.add_argument("--phases", action="store_true", help="the phases of torchjit's first call")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--compiler", default="torchjit", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.one:
        print(json.dumps(measure(o)))
        return
    print(f"| mode | compiler | {' | '.join(f'{n} blocks, s' for n in o.blocks)} | ratio |")
    print("|---|---|" + "---|" * (len(o.blocks) + 1))
    for mode in o.modes:
        for compiler in ("torchjit", "torch") if o.torch else ("torchjit",):
            rows = [run_fresh(o, mode, n, compiler) for n in o.blocks]
            times = [row["seconds"] for row in rows]
            cells = " | ".join(f"{t:.2f}" for t in times)
            print(f"| {mode} | {compiler} | {cells} | {times[-1] / times[0]:.2f} |", flush=True)
            for name in rows[-1] if o.phases else ():
                print("    " + " ".join(f"{row.get(name, 0.0):8.3f}" for row in rows) + f"  {name}")


if __name__ == "__main__":
    main()
