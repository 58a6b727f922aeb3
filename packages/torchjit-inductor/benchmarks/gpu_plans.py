"""Kernels under variants of their plans: what decides which of them the table has.

    python packages/torchjit-inductor/benchmarks/gpu_plans.py [--groups twice odd pieces short transposed] [--only NAME ...] [--limit SECONDS] [--compile]

`twice`: norms and softmaxes that read their rows twice, with more or less of them kept in the cache (`TilePlan.kept`). `odd`: sums over
a middle dimension, tiles and addresses (`TilePlan.from_first`). `pieces`: rotary embeddings with shared pieces (`shared_pieces`) and as
they were before. `transposed`: kernels that read or write one tensor across the others. A line for each variant: microseconds, the table's plan first, of copy bandwidth (all operands and results once), and
how far results are from those of the table's plan. Operands are out of cache; medians of 12.
With `--compile` nothing runs and no GPU is needed: registers of a thread, and how it accesses memory.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor.ir.kernel import Buffer, LoopKernel
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import KernelStep
from torchjit_inductor.triton.compile import MachineCode
from torchjit_inductor.triton.cuda import CudaDriver
from torchjit_inductor.triton.launch import KernelVariants
from torchjit_inductor.triton.occupancy import registers_of
from torchjit_inductor.triton.plan import Axis, TilePlan, make_plan
from torchjit_inductor.triton.shared_pieces import shared_pieces
from torchjit_inductor.triton.specialisations import Variant
from torchjit_inductor.triton.split_reduction import split_program
from torchjit_inductor.triton.timing import device_seconds, random_like
from torchjit_inductor.triton.trial import Candidate, Launch, runner

BF, F32 = torch.bfloat16, torch.float32
Spec = tuple[tuple[int, ...], torch.dtype]
Chosen = tuple[str, LoopKernel, TilePlan]
"""What a variant is called, its loops, its plan."""


def _batch_norm(x: torch.Tensor) -> torch.Tensor:
    return F.relu(F.batch_norm(x, None, None, training=True))


def _group_norm(x: torch.Tensor) -> torch.Tensor:
    return F.silu(F.group_norm(x, 32))


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x, -1)


def _rotated(q: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    half = q.shape[-1] // 2
    return torch.cat([q[..., :half] * c - q[..., half:] * d, q[..., :half] * d + q[..., half:] * c], -1)


def _norm_transposed(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b).transpose(1, 2).contiguous()


def _added_norm_transposed(
    x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    z = x + F.relu(y)
    return z, _norm_transposed(z, w, b)


def _norm_of_transposed(
    x: torch.Tensor, y: torch.Tensor, c: torch.Tensor, w: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    z = x + F.gelu((y + c).transpose(1, 2))
    return z, F.layer_norm(z, (z.shape[-1],), w, b)


def _exponentials(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.silu(F.gelu(torch.exp(-(x + b).abs()))).permute(0, 3, 1, 2).contiguous()


def _mish_scaled(x: torch.Tensor, b: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    y = x + b
    return (torch.tanh(F.softplus(y)) * y * scale + shift).permute(0, 3, 1, 2).contiguous()


def _plain(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (x + b).relu().permute(0, 3, 1, 2).contiguous()


def _mean_of_rows(x: torch.Tensor, b: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    y = (x + b).square()
    z = torch.tanh(F.softplus(y)) * y
    z = F.hardswish(torch.tanh((z - mean[:, None, None]) * scale[:, None, None]))
    return z.mean(2).permute(0, 2, 1).contiguous()


def _sum_of_rows(x: torch.Tensor) -> torch.Tensor:
    return x.sum(2).permute(0, 2, 1).contiguous()


CASES: dict[str, dict[str, tuple[Callable[..., Any], tuple[Spec, ...]]]] = {
    "twice": {
        "softmax 65536": (_softmax, (((1024, 65536), BF),)),
        "softmax 50257": (_softmax, (((2048, 50264), BF),)),
        "group norm": (_group_norm, (((32, 256, 64, 128), BF),)),
        "batch norm 256": (_batch_norm, (((32, 256, 64, 128), BF),)),
        "batch norm 512": (_batch_norm, (((32, 512, 64, 64), BF),)),
        "batch norm 1024": (_batch_norm, (((32, 1024, 64, 64), BF),)),
        "batch norm 256, long": (_batch_norm, (((64, 256, 64, 128), BF),)),
        "batch norm 256, float32": (_batch_norm, (((32, 256, 64, 128), F32),)),
    },
    "odd": {
        "128 x 4096 x 4095": (lambda x: x.sum(1), (((128, 4096, 4095), F32),)),
        "64 x 4096 x 4095": (lambda x: x.sum(1), (((64, 4096, 4095), F32),)),
        "512 x 512 x 1023": (lambda x: x.sum(1), (((512, 512, 1023), F32),)),
        "128 x 4096 x 4096": (lambda x: x.sum(1), (((128, 4096, 4096), F32),)),
        "128 x 4096 x 4095, bfloat16": (lambda x: x.float().sum(1), (((128, 4096, 4095), BF),)),
        "64 x 4096 x 4095, bfloat16": (lambda x: x.float().sum(1), (((64, 4096, 4095), BF),)),
    },
    "pieces": {
        "rotary 128": (_rotated, (((32, 32, 512, 128), BF), ((512, 64), BF), ((512, 64), BF))),
        "rotary 128, float32": (_rotated, (((16, 32, 512, 128), F32), ((512, 64), F32), ((512, 64), F32))),
        "rotary 256": (_rotated, (((16, 32, 512, 256), BF), ((512, 128), BF), ((512, 128), BF))),
    },
    "short": {
        f"{name} {rows} {dtype}".replace("torch.", ""): (
            function,
            (((rows, 64, 2**23 // rows // dtype.itemsize), dtype),),
        )
        for dtype, sizes in ((BF, (16, 32, 64, 128)), (F32, (16, 32, 64, 128)))
        for rows in sizes
        for name, function in {
            "logsumexp": lambda x: x.logsumexp(0),
            "softmax": lambda x: x.softmax(0),
            "amax": lambda x: x.amax(0),
            "variance": lambda x: x.var(0),
        }.items()
    },
    "transposed": {
        "norm 16384": (_norm_transposed, (((32, 512, 1024), BF), ((1024,), BF), ((1024,), BF))),
        "added norm 16384": (
            _added_norm_transposed,
            (((32, 512, 1024), BF), ((32, 512, 1024), BF), ((1024,), BF), ((1024,), BF)),
        ),
        "exponentials": (_exponentials, (((64, 224, 224, 64), F32), ((64,), F32))),
        "mean of rows": (_mean_of_rows, (((32, 224, 224, 128), F32), ((128,), F32), *[((32, 128), F32)] * 2)),
        "mish": (_mish_scaled, (((64, 126, 126, 128), F32), *[((128,), F32)] * 3)),
        "norm of transposed 16384": (
            _norm_of_transposed,
            (((32, 512, 1024), BF), ((32, 1024, 512), BF), ((512,), BF), ((1024,), BF), ((1024,), BF)),
        ),
        "norm 4096": (_norm_transposed, (((16, 256, 1024), BF), ((1024,), BF), ((1024,), BF))),
        "exponentials, bfloat16": (_exponentials, (((64, 224, 224, 64), BF), ((64,), BF))),
        "mish, bfloat16": (_mish_scaled, (((64, 126, 126, 128), BF), *[((128,), BF)] * 3)),
        "sum of rows": (_sum_of_rows, (((32, 224, 224, 128), F32),)),
        "plain": (_plain, (((64, 224, 224, 64), F32), ((64,), F32))),
        "norm 16384, float32": (_norm_transposed, (((32, 512, 1024), F32), ((1024,), F32), ((1024,), F32))),
        "norm 4096 x 4096": (_norm_transposed, (((8, 512, 4096), BF), ((4096,), BF), ((4096,), BF))),
        "sum of rows, bfloat16": (_sum_of_rows, (((32, 224, 224, 128), BF),)),
    },
}


def kernels_of(function: Callable[..., Any], specs: Sequence[Spec]) -> tuple[list[LoopKernel], Mapping[str, Buffer]]:
    """The Triton kernels of a function, and the buffers of its program."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        gm = make_fx(function)(*(torch.empty(s, dtype=d, device="cuda:0") for s, d in specs))
    program = split_program(rename_kernels(remove_dead_stores(fuse(lower_graph(gm, "graph"), {}))), {})
    return [s.kernel for s in program.steps if isinstance(s, KernelStep)], program.buffers


def twice(kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> Iterator[Chosen]:
    """More or less of a row in the cache."""
    plan = make_plan(kernel, buffers, {})
    yield "table", kernel, plan
    axis = plan.reduced
    size = None if axis is None else axis.size.value
    if axis is None or size is None or not axis.looped or len(plan.axes) > 1:
        return
    for block, warps, kept in ((8192, 16, 0), (8192, 16, 2), (16384, 32, 0), (16384, 32, 4), (16384, 32, 2)):
        many = size // kept if kept else 0
        axes = (attrs.evolve(axis, block=block),)
        yield f"{block}, {warps} warps, {many} kept", kernel, attrs.evolve(plan, axes=axes, num_warps=warps, kept=many)


def odd(kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> Iterator[Chosen]:
    """Tiles, warps and addresses."""
    plan = make_plan(kernel, buffers, {})
    yield "table", kernel, plan
    if len(plan.axes) == 1:
        return
    x, r = plan.axes
    for columns, rows, warps in ((32, 128, 8), (32, 128, 4), (64, 64, 4), (64, 128, 8), (64, 128, 4)):
        for first in (False, True):
            axes = (attrs.evolve(x, block=columns), attrs.evolve(r, block=rows))
            words = f"{columns} x {rows}, {warps} warps{', from first' if first else ''}"
            yield words, kernel, attrs.evolve(plan, axes=axes, num_warps=warps, from_first=first)


def pieces(kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> Iterator[Chosen]:
    """One loop over a piece of a row, or over all of it."""
    shared = shared_pieces(kernel, buffers)
    if shared is not None:
        plan = make_plan(shared, buffers, {})
        yield "table", shared, plan
        yield from _tiles("shared", shared, plan, (4, 16, 32))
    plan = make_plan(kernel, buffers, {})
    yield "whole", kernel, plan
    yield from _tiles("whole", kernel, plan, (4, 8))


def _tiles(name: str, kernel: LoopKernel, plan: TilePlan, rows: Sequence[int]) -> Iterator[Chosen]:
    if len(plan.axes) == 1:
        return
    for count in rows:
        axes: tuple[Axis, ...] = (attrs.evolve(plan.axes[0], block=count), plan.axes[1])
        yield f"{name}, {count} rows", kernel, attrs.evolve(plan, axes=axes, num_warps=min(plan.num_warps, 4))


def short(kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> Iterator[Chosen]:
    """Threads that have more or less of a column each."""
    plan = make_plan(kernel, buffers, {})
    yield "table", kernel, plan
    if len(plan.axes) == 1 or plan.axes[1].looped:
        return
    x, r = plan.axes
    for columns, warps in itertools.product((32, 64, 128, 256, 512), (1, 2, 4, 8)):
        if 16 <= columns * r.block // (32 * warps) <= 128:
            axes = (attrs.evolve(x, block=columns), r)
            words = f"{columns} x {r.block}, {warps} warps"
            yield words, kernel, attrs.evolve(plan, axes=axes, num_warps=warps)


def transposed(kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> Iterator[Chosen]:
    """Tiles of more and less along both directions, and of more and fewer elements for a thread."""
    if len(kernel.outer) == 3 and kernel.inner:
        first, rows, channels = (
            kernel.outer
        )  # in the order of an image whose channels are outside, as in a network with one
        kernel = attrs.evolve(kernel, outer=(first, channels, rows))
    plan = make_plan(kernel, buffers, {})
    yield "table", kernel, plan
    if not kernel.inner:
        yield from _square_tiles(kernel, plan)
    elif len(kernel.outer) == 2:
        yield from _rows_together(kernel)
    else:
        yield from _columns_together(kernel)


def _square_tiles(kernel: LoopKernel, plan: TilePlan) -> Iterator[Chosen]:
    y, x = plan.axes
    for rows, columns, each in (
        *((64, 128, n) for n in (16, 32)),
        *((32, 128, n) for n in (8, 16)),
        *((64, 64, n) for n in (8, 16, 32)),
        *((32, 64, n) for n in (8, 16)),
        *((32, 32, n) for n in (4, 8)),
    ):
        axes = (attrs.evolve(y, block=rows), attrs.evolve(x, block=columns))
        warps = rows * columns // 32 // each
        words, variant = f"{rows} x {columns}, {warps} warps", attrs.evolve(plan, axes=axes, num_warps=warps)
        yield words, kernel, variant
        if each == 32:
            yield f"{words}, 64 registers", kernel, attrs.evolve(variant, registers=64)


def _rows_together(kernel: LoopKernel) -> Iterator[Chosen]:
    *rest, last = kernel.outer
    size = kernel.inner[-1].size.value or 0
    whole = [(rows, size, rows * size // 32 // each) for rows in (2, 4, 8, 16, 32) for each in (16, 32, 64)]
    tiles = (
        (16, 256, 4),
        (32, 64, 4),
        (32, 128, 4),
        (32, 128, 8),
        (64, 64, 4),
        (64, 64, 8),
        (64, 128, 8),
        (32, 256, 8),
    )
    for rows, columns, warps in (*whole, *tiles):
        if warps > 32:
            continue
        r = Axis("r", kernel.inner, columns, looped=columns < size)
        words = f"{rows} x {columns}, {warps} warps"
        yield words, kernel, TilePlan(tuple(rest), (Axis("x", (last,), rows), r), num_warps=warps)


def _columns_together(kernel: LoopKernel) -> Iterator[Chosen]:
    first, channels, last = kernel.outer
    axes = (Axis("x", (last,), 8), Axis("r", kernel.inner, 256))
    yield "rows, 8 x 256, 4 warps", kernel, TilePlan((first, channels), axes, num_warps=4)
    for columns, rows, warps in (
        *((32, 256, 16), (32, 64, 4), (32, 64, 8), (32, 32, 4), (32, 32, 2), (32, 128, 8)),
        *((64, 32, 4), (64, 32, 8), (64, 64, 8), (128, 32, 8), (128, 16, 4), (128, 16, 8)),
    ):
        r = Axis("r", kernel.inner, rows, looped=rows < 224)
        words = f"{columns} x {rows}, {warps} warps"
        yield words, kernel, TilePlan((first, last), (Axis("x", (channels,), columns), r), num_warps=warps)


GROUPS: dict[str, Callable[[LoopKernel, Mapping[str, Buffer]], Iterator[Chosen]]] = {
    "twice": twice,
    "odd": odd,
    "pieces": pieces,
    "short": short,
    "transposed": transposed,
}


def codes_of(variants: Sequence[Chosen], buffers: Mapping[str, Buffer]) -> Iterator[MachineCode]:
    """Machine code of each for sm_90, compiled beside each other."""

    def code(each: Chosen) -> MachineCode:
        made = KernelVariants(each[1], buffers, each[2], 90, {})
        return made.compile(Variant(True, bool(made.wide())))

    with ThreadPoolExecutor(min(12, os.cpu_count() or 1)) as pool:
        yield from pool.map(code, variants)


def described(code: MachineCode) -> str:
    """Registers and accesses."""
    accesses = Counter(re.findall(r"(?:ld|st)\.global[\w.:]*", code.ptx))
    words = ", ".join(f"{n} {name.replace('.L2::cache_hint', '')}" for name, n in accesses.items())
    return f"{registers_of(code.cubin)} registers of {code.threads} threads; {words}"


def copy_bandwidth(device: torch.device) -> float:
    """Bytes a second, read and written, of a copy of 1 GiB."""
    x = torch.empty(2**28, device=device)
    y = torch.empty_like(x)
    return 2 * x.nbytes / device_seconds([lambda: y.copy_(x)], cold=True, device=device)[0]


def measure(
    name: str, kernel: LoopKernel, buffers: Mapping[str, Buffer], variants: Sequence[Chosen], copy: float
) -> None:
    """Print a line for each variant of a kernel."""
    memory = random_like(kernel.buffers, buffers)
    moved, driver, device = sum(t.nbytes for t in memory.values()), CudaDriver(), torch.device("cuda", 0)
    runs: list[tuple[str, Callable[[], None], float]] = []
    wanted: list[torch.Tensor] = []
    for (words, each, plan), code in zip(variants, codes_of(variants, buffers), strict=True):
        launch = Launch(code, plan.programs.evaluate({}), tuple(each.buffers))
        try:
            run = runner(Candidate(words, (launch,)), driver, device, memory)
            run()
            torch.cuda.synchronize()
        except RuntimeError as error:
            print(f"{name:28s} {words:32s} {error}", flush=True)
            continue
        results = [memory[n] for n in kernel.writes]
        wanted = wanted or [t.clone() for t in results]
        far = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(results, wanted, strict=True))
        runs.append((words, run, far))
    times = device_seconds([run for _, run, _ in runs], cold=True, device=device)
    for (words, _, far), took in zip(runs, times, strict=True):
        print(f"{name:28s} {words:32s} {took * 1e6:8.1f} us {moved / took / copy:6.3f} of copy {far:8.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--limit", type=float, default=float("inf"))
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    began, copy = time.monotonic(), 0.0
    if not options.compile:
        copy = copy_bandwidth(torch.device("cuda", 0))
        print(f"copy {copy / 1e12:.2f} TB/s", flush=True)
    for group in options.groups:
        for name, (function, specs) in CASES[group].items():
            if (options.only and name not in options.only) or time.monotonic() - began > options.limit:
                continue
            kernels, buffers = kernels_of(function, specs)
            for kernel in kernels[:1]:
                variants = list(GROUPS[group](kernel, buffers))
                if not options.compile:
                    measure(name, kernel, buffers, variants, copy)
                    torch.cuda.empty_cache()
                    continue
                for (words, _, _), code in zip(variants, codes_of(variants, buffers), strict=True):
                    print(f"{name:28s} {words:32s} {described(code)}", flush=True)


if __name__ == "__main__":
    main()
