"""The Triton backend on a real GPU, in one command: correctness, then speed against eager and torch.compile.

From a checkout, without installing:

    PYTHONPATH=$(echo packages/*/src | tr ' ' ':') python packages/torchjit-inductor/benchmarks/triton_gpu_check.py

Prints a line as soon as it knows it and stops starting new work after `--seconds`. The last lines are a summary; the exit
status is 1 if anything was wrong. Graphs come from plain `make_fx`, kernels from `lower_graph`, `fuse` and
`TritonBackend`; a small runner allocates buffers and calls the launchers, so nothing but this package is measured.

Correctness: outputs are compared with eager in float64; our error may be twice eager's own plus one rounding.
Speed: medians over CUDA events of 8 queued calls (launches overlap), inputs rotate, interleaved in one process.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.passes import run_passes
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import ExternStep, KernelStep, Program, TensorRef
from torchjit_inductor.triton import backend as backend_module
from torchjit_inductor.triton import launch as launch_module
from torchjit_inductor.triton.backend import TritonBackend
from torchjit_inductor.triton.plan import TilePlan, make_plan
from torchjit_inductor.triton.source import kernel_source

BF, F16, F32, I8, I32, I64 = torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.int32, torch.int64
QUEUED = 8


def say(*parts: object) -> None:
    print(*parts, flush=True)


# ------------------------------------------------------------------------------------------------------ running


class Compiled:
    """A function of tensors, compiled by our kernels and aten calls for what has none.

    Args:
        function: made of torch operations.
        inputs: tensors of the shapes it will get.
    """

    def __init__(self, function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> None:
        arch = None
        if all(isinstance(x, FakeTensor) for x in inputs):
            arch, fakes = 90, list(inputs)
            with torch.no_grad():
                gm = make_fx(function)(*fakes)
        else:
            with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
                fakes = [mode.from_tensor(x) for x in inputs]
                gm = make_fx(function)(*fakes)
        self.program: Program = rename_kernels(remove_dead_stores(fuse(lower_graph(gm, "graph"), {})))
        backend = TritonBackend(arch=arch)
        self.program = run_passes(self.program, backend.passes({}))
        kernels = [s.kernel for s in self.program.steps if isinstance(s, KernelStep)]
        for kernel in kernels:
            reason = backend.unsupported(kernel, self.program.buffers)
            if reason:
                raise NotImplementedError(f"{kernel.name}: {reason}")
        made = backend.compile(kernels, self.program.buffers, graph="graph", hints={})
        self.sources = [m.source for m in made]
        launches = iter(made)
        buffers = self.program.buffers
        self.inputs = [n if isinstance(n, str) else None for n in self.program.inputs]
        self.layouts = {
            n: ([e.evaluate({}) for e in b.sizes], [e.evaluate({}) for e in b.strides], b.dtype)
            for n, b in buffers.items()
        }
        self.steps = [(s, next(launches).launch if isinstance(s, KernelStep) else None) for s in self.program.steps]

    @property
    def counts(self) -> str:
        kernels = sum(1 for s, _ in self.steps if isinstance(s, KernelStep))
        return f"{kernels} kernels, {len(self.steps) - kernels} aten calls"

    def __call__(self, *inputs: torch.Tensor) -> Any:
        env: dict[str, torch.Tensor] = dict(self.program.constants)
        env.update((n, x) for n, x in zip(self.inputs, inputs, strict=True) if n is not None)
        for step, launch in self.steps:
            if isinstance(step, KernelStep):
                for name in step.writes:
                    if name not in env:
                        sizes, strides, dtype = self.layouts[name]
                        env[name] = torch.empty_strided(sizes, strides, dtype=dtype, device="cuda")
                launch(*[env[name].data_ptr() for name in step.kernel.buffers])
            elif isinstance(step, ExternStep):
                made = step.op(*self._tree(step.args, env), **self._tree(step.kwargs, env))
                results = (made,) if step.single else made
                env.update((n, r) for n, r in zip(step.outputs, results, strict=False) if n is not None)
        return [self._tree(o, env) for o in self.program.outputs]

    def _tree(self, tree: Any, env: dict[str, torch.Tensor]) -> Any:
        if isinstance(tree, TensorRef):
            held = env[tree.buffer]
            sizes, strides = [e.evaluate({}) for e in tree.sizes], [e.evaluate({}) for e in tree.strides]
            return held.as_strided(sizes, strides, held.storage_offset() + tree.offset.evaluate({}))
        if isinstance(tree, dict):
            return {k: self._tree(v, env) for k, v in tree.items()}
        if isinstance(tree, (tuple, list)):
            return type(tree)(self._tree(v, env) for v in tree)
        return tree.evaluate({}) if hasattr(tree, "evaluate") else tree


# -------------------------------------------------------------------------------------------------- correctness


def t(*shape: int, dtype: torch.dtype = BF) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=F32).to(dtype)


def ints(*shape: int, high: int = 50, low: int = 0, dtype: torch.dtype = I64) -> torch.Tensor:
    return torch.randint(low, high, shape, device="cuda", dtype=dtype)


def checks() -> dict[str, tuple[Callable[..., Any], list[torch.Tensor]]]:
    """Functions and inputs; odd sizes for masks, long rows for loops, strided and unaligned inputs."""
    f = F32
    w, b = t(1000), t(1000)
    base = t(4097, dtype=f)
    return {
        "scale": (lambda x: x * 2.0, [t(513, 1000)]),
        "scale_f16": (lambda x: x * 2.0, [t(64, 128, dtype=F16)]),
        "add_relu_mul": (lambda x, y, z: F.relu(x + y) * z, [t(300, 1000, dtype=f) for _ in range(3)]),
        "unaligned": (lambda x, y: x * y + 1, [base[1:], base[:-1]]),
        "strided": (lambda x, y: x + y, [t(64, 200, dtype=f)[:, ::2], t(100, 64, dtype=f).t()]),
        "expanded": (lambda x, y: x + y, [t(1, 100, dtype=f).expand(64, 100), t(64, 100, dtype=f)]),
        "scalar_tensor": (lambda x, y: x * y, [t(77, dtype=f), torch.tensor(3.0, device="cuda")]),
        "channels": (lambda x, c: F.relu(x + c[None, :, None, None]), [t(8, 64, 28, 28), t(64)]),
        "channels_last": (lambda x: F.relu(x) * 2, [t(4, 16, 9, 9).to(memory_format=torch.channels_last)]),
        "gelu": (lambda x: F.gelu(x), [t(100, 1000, dtype=f)]),
        "gelu_bf16_chain": (lambda x, y: F.gelu(x * torch.sigmoid(x) + y).tanh(), [t(100, 1000), t(100, 1000)]),
        "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), [t(100, 999)]),
        "silu_mul": (lambda x: F.silu(x[..., :512]) * x[..., 512:], [t(64, 1024)]),
        "exp_log": (lambda x: (x.exp(), x.abs().log(), x.expm1(), x.abs().log1p()), [t(9999, dtype=f)]),
        "trig": (lambda x: (x.sin(), x.cos(), x.tan(), x.atan(), x.tanh(), x.erf()), [t(9999, dtype=f) * 5]),
        "pow_sqrt": (lambda x: (x.abs().sqrt(), x.abs().rsqrt(), x.abs() ** 1.7, x**3), [t(9999, dtype=f)]),
        "div_mod": (lambda x, y: (x / y, x % y, torch.fmod(x, y), x // y), [t(9999, dtype=f), t(9999, dtype=f)]),
        "int_ops": (lambda x, y: (x // y, x % y, x * y, x << 2, x & y), [ints(9999, low=-50), ints(9999, low=1)]),
        "nan_relu_max": (lambda x, y: (F.relu(x / y), torch.maximum(x / y, x), x.clamp(-1, 1)), [t(99, dtype=f).round(), t(99, dtype=f).round()]),
        "bool": (lambda x, y: ((x > y) & (x < 1) | ~(y > 0)), [t(9999), t(9999)]),
        "to_int8": (lambda x: (x * 30).round().clamp(-128, 127).to(I8), [t(64, 333, dtype=f)]),
        "dequant": (lambda x, s, y: x.to(BF) * s * y, [ints(64, 512, low=-100, high=100, dtype=I8), t(64, 1), t(64, 512)]),
        "softmax_4k": (lambda x: F.softmax(x, -1), [t(512, 4096)]),
        "softmax_odd": (lambda x: F.softmax(x, -1), [t(100, 1000, dtype=f)]),
        "softmax_small": (lambda x: F.softmax(x, -1), [t(10000, 33)]),
        "softmax_64k": (lambda x: F.softmax(x, -1), [t(64, 65536)]),
        "softmax_50257": (lambda x: F.softmax(x, -1), [t(40, 50257, dtype=f)]),
        "softmax_inf_mask": (lambda x: F.softmax(x.masked_fill(x > 0.5, float("-inf")), -1), [t(64, 20000, dtype=f)]),
        "log_softmax": (lambda x: F.log_softmax(x, -1), [t(64, 32768, dtype=f)]),
        "softmax_dim1": (lambda x: F.softmax(x, 1), [t(16, 40, 70, dtype=f)]),
        "layer_norm": (lambda x, w, b: F.layer_norm(x, (1000,), w, b), [t(512, 1000), w, b]),
        "layer_norm_f32": (lambda x: F.layer_norm(x + 100, (4096,)), [t(256, 4096, dtype=f)]),
        "layer_norm_20k": (lambda x: F.layer_norm(x, (20000,)), [t(64, 20000, dtype=f)]),
        "add_layer_norm": (lambda x, r, w, b: F.layer_norm(x + r, (1000,), w, b), [t(512, 1000), t(512, 1000), w, b]),
        "rms_norm": (lambda x, w: (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(BF) * w, [t(512, 1000), w]),
        "group_norm_silu": (lambda x: F.silu(F.group_norm(x, 8)), [t(4, 64, 32, 32)]),
        "batch_norm": (lambda x: F.relu(F.batch_norm(x, None, None, training=True)), [t(16, 32, 28, 28, dtype=f)]),
        "sum_inner": (lambda x: x.float().sum(-1), [t(512, 4096)]),
        "sum_outer": (lambda x: x.float().sum(0), [t(4096, 512)]),
        "sum_outer_narrow": (lambda x: x.sum(0), [t(100000, 3, dtype=f)]),
        "sum_all": (lambda x: x.float().sum(), [t(2000, 1111)]),
        "mean_middle": (lambda x: x.mean(1), [t(8, 300, 64, dtype=f)]),
        "var_mean": (lambda x: torch.var_mean(x, -1), [t(64, 3000, dtype=f)]),
        "var_all": (lambda x: torch.var_mean(x), [t(1024, 1024, dtype=f)]),
        "amax_argmax": (lambda x: (x.amax(-1), x.argmax(-1), x.argmin(-1)), [t(64, 5000, dtype=f)]),
        "argmax_50k": (lambda x: x.argmax(-1), [t(40, 50257)]),
        "max_nan": (lambda x: (x / x.round()).amax(-1), [t(64, 500, dtype=f)]),
        "any_all_prod": (lambda x: ((x > 3).any(-1), (x > -3).all(-1), (x * 0.1 + 1).prod(-1)), [t(64, 500, dtype=f)]),
        "int_sum": (lambda x: (x.sum(-1), x.amax(0)), [ints(64, 500, low=-50, dtype=I32)]),
        "cross_entropy": (lambda x, y: F.cross_entropy(x.float(), y), [t(256, 32000), ints(256, high=32000)]),
        "transpose_add": (lambda x, y: x.t() + y, [t(777, 512), t(512, 777)]),
        "permute": (lambda x: x.permute(0, 2, 1, 3).contiguous(), [t(4, 100, 12, 64)]),
        "cat_gelu": (lambda x, y: F.gelu(torch.cat([x, y], -1)), [t(64, 200), t(64, 312)]),
        "pad_flip_roll": (lambda x: F.pad(x.flip(0), (3, 5), value=2.0).roll(4, 1), [t(65, 100, dtype=f)]),
        "embedding": (lambda i, e, p: F.embedding(i, e) + p, [ints(4, 100, high=1000), t(1000, 768), t(768)]),
        "gather_index": (lambda x, i: (x.gather(1, i), x[i[0]]), [t(64, 100, dtype=f), ints(64, 10)]),
        "rope": (lambda q, c, d: torch.cat([q[..., :32] * c - q[..., 32:] * d, q[..., :32] * d + q[..., 32:] * c], -1), [t(2, 8, 128, 64), t(128, 32), t(128, 32)]),
        "causal_mask": (lambda x: F.softmax(x.masked_fill(torch.ones(128, 128, device="cuda").triu(1) > 0, -1e9), -1), [t(8, 128, 128, dtype=f)]),
        "quant_int8": (lambda x: (x.float() / (x.float().abs().amax(-1, keepdim=True) / 127)).round().clamp(-128, 127).to(I8), [t(128, 4096)]),
        "cumsum": (lambda x: x.float().cumsum(-1) + 1, [t(64, 1000)]),
        "linear_gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)) + 1, [t(64, 256, dtype=f), t(512, 256, dtype=f), t(512, dtype=f)]),
        "mlp_norm": (lambda x, w, v: F.layer_norm(x + F.linear(F.relu(F.linear(x, w)), v), (256,)), [t(64, 256), t(512, 256), t(256, 512)]),
        "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v) * 2, [t(2, 4, 64, 32, dtype=F16) for _ in range(3)]),
        "conv_relu": (lambda x, w: F.relu(F.conv2d(x, w, padding=1)) + 1, [t(2, 8, 16, 16, dtype=f), t(16, 8, 3, 3, dtype=f)]),
        "empty": (lambda x: x * 2 + 1, [t(0, 5)]),
        "doubles": (lambda x, y: (x * y + 1.1).exp().sum(-1), [t(64, 100, dtype=torch.float64), t(64, 100, dtype=torch.float64)]),
    }  # fmt: skip


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, (tuple, list)):
        return [x for item in tree for x in leaves(item)]
    return [tree]


def difference(got: Any, eager: Any, exact: Any) -> str | None:
    """What is wrong with one output, or None."""
    if got.shape != eager.shape or got.dtype != eager.dtype:
        return f"{got.dtype}{list(got.shape)} where eager gives {eager.dtype}{list(eager.shape)}"
    if not got.dtype.is_floating_point:
        wrong = int((got != eager).sum())
        return f"{wrong} of {got.numel()} differ" if wrong else None
    a, b, c = got.double(), eager.double(), exact.double()
    if not torch.equal(a.isnan(), b.isnan()):
        return f"NaN at other places: {int((a.isnan() != b.isnan()).sum())}"
    finite = b.isfinite() & c.isfinite() & a.isfinite()
    if not torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num()):
        return "infinite at other places"
    if not finite.any():
        return None
    ours, theirs = (a - c)[finite].abs(), (b - c)[finite].abs()
    scale = torch.finfo(got.dtype).eps * c[finite].abs()
    floor = torch.finfo(F32).eps * float(c[finite].abs().mean() + 1e-30) * 8
    excess = ours - (2 * theirs.max() + 2 * scale + floor)
    worst = int(excess.argmax())
    if excess[worst] <= 0:
        return None
    return f"error {ours[worst]:.3e} at {c[finite][worst]:.6g}; eager's largest {theirs.max():.3e}"


def wide(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.is_floating_point() else x


def check(name: str, function: Callable[..., Any], inputs: list[torch.Tensor]) -> str:
    with torch.no_grad():
        made = Compiled(function, inputs)
        got = leaves(made(*inputs))
        eager = leaves(function(*inputs))
        try:
            exact = leaves(function(*map(wide, inputs)))
        except RuntimeError:  # index kernels and the like that take no float64
            exact = eager
        torch.cuda.synchronize()
    for n, (g, e, x) in enumerate(zip(got, eager, exact, strict=True)):
        if isinstance(g, torch.Tensor):
            if not x.dtype.is_floating_point and e.dtype.is_floating_point:
                x = e
            wrong = difference(g, e, x)
            if wrong:
                return f"WRONG output {n}: {wrong}\n" + "\n".join(made.sources)
    return f"ok ({made.counts})"


def run_checks(only: Sequence[str], deadline: float) -> list[str]:
    failed: list[str] = []
    for name, (function, inputs) in checks().items():
        if only and not any(o in name for o in only):
            continue
        if time.monotonic() > deadline:
            say(f"check {name}: not run, out of time")
            continue
        try:
            result = check(name, function, inputs)
        except Exception:
            result = "CRASHED\n" + traceback.format_exc(limit=-6)
        say(f"check {name}: {result}")
        if not result.startswith("ok"):
            failed.append(name)
    return failed


# --------------------------------------------------------------------------------------------------------- speed


@attrs.frozen
class Speed:
    function: Callable[..., Any]
    make: tuple[Callable[[], torch.Tensor], ...]
    floor: bool = False


def speeds(scale: float) -> dict[str, Speed]:
    """The cases of the memory-bound kernel benchmark; those with a floor first."""
    rows, columns = int(16384 * scale), 4096
    w, b = t(columns), t(columns)

    def full(dtype: torch.dtype = BF, r: int = rows, c: int = columns) -> Callable[[], torch.Tensor]:
        return lambda: t(r, c, dtype=dtype)

    half = full(F32, rows // 2)
    image = (max(rows // 512, 1), 256, 64, 128)
    return {
        "copy_scale": Speed(lambda x: x * 2.0, (full(),), True),
        "add_relu_mul_f32": Speed(lambda x, y, z: F.relu(x + y) * z, (half, half, half), True),
        "softmax_4k": Speed(lambda x: F.softmax(x, -1), (full(),), True),
        "layer_norm": Speed(lambda x: F.layer_norm(x, (columns,), w, b), (full(),), True),
        "add_layer_norm": Speed(lambda x, r: F.layer_norm(x + r, (columns,), w, b), (full(), full()), True),
        "sum_inner": Speed(lambda x: x.float().sum(-1), (full(),), True),
        "sum_outer": Speed(lambda x: x.float().sum(0), (full(),)),
        "sum_all": Speed(lambda x: x.float().sum(), (full(),)),
        "softmax_64k": Speed(lambda x: F.softmax(x, -1), (full(BF, rows // 16, columns * 16),)),
        "log_softmax_32k": Speed(lambda x: F.log_softmax(x, -1), (full(F32, rows // 16, columns * 8),)),
        "gelu_chain": Speed(lambda x, y: F.gelu(x * torch.sigmoid(x) + y).tanh(), (full(), full())),
        "swiglu": Speed(lambda x: F.silu(x[..., : columns // 2]) * x[..., columns // 2 :], (full(),)),
        "rms_norm": Speed(checks_rms(w), (full(),)),
        "transpose_add": Speed(lambda x, y: x.t() + y, (full(BF, columns, rows), full())),
        "group_norm_silu": Speed(lambda x: F.silu(F.group_norm(x, 32)), (lambda: t(*image),)),
        "batch_norm": Speed(lambda x: F.relu(F.batch_norm(x, None, None, training=True)), (lambda: t(*image),)),
        "argmax": Speed(lambda x: x.argmax(-1), (full(),)),
        "var_mean": Speed(lambda x: torch.var_mean(x.float(), -1), (full(),)),
        "quant_int8": Speed(lambda x: (x.float() / (x.float().abs().amax(-1, keepdim=True) / 127)).round().clamp(-128, 127).to(I8), (full(),)),
        "cat_gelu": Speed(lambda x, y: F.gelu(torch.cat([x, y], -1)), (full(BF, rows, columns // 2),) * 2),
    }  # fmt: skip


def checks_rms(w: torch.Tensor) -> Callable[..., Any]:
    return lambda x: (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(BF) * w


def nbytes(x: Any) -> int:
    return sum(v.numel() * v.element_size() for v in leaves(x))


def timed(
    candidates: dict[str, Callable[..., Any]], sets: list[tuple[torch.Tensor, ...]], reps: int
) -> dict[str, float]:
    """Median seconds per call of each, measured in turns."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for function in candidates.values():
        for inputs in sets:
            function(*inputs)
    for rep in range(reps):
        for name, function in candidates.items():
            torch.cuda.synchronize()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(400_000)  # the queue fills while the GPU waits
            start.record()
            for n in range(QUEUED):
                function(*sets[(rep + n) % len(sets)])
            end.record()
            torch.cuda.synchronize()
            found[name].append(start.elapsed_time(end) * 1e-3 / QUEUED)
    return {name: statistics.median(times) for name, times in found.items()}


def run_speeds(options: argparse.Namespace, deadline: float) -> list[str]:
    x = torch.randn(2**29, device="cuda")
    y = torch.empty_like(x)
    peak = 2 * nbytes(x) / timed({"copy": lambda source, target: target.copy_(source)}, [(x, y)], 10)["copy"]
    del x, y
    say(f"copy bandwidth {peak / 1e9:.0f} GB/s; below: microseconds (share of copy bandwidth)")
    slow: list[str] = []
    for name, case in speeds(options.scale).items():
        if options.only and not any(o in name for o in options.only):
            continue
        if time.monotonic() > deadline:
            say(f"speed {name}: not run, out of time")
            continue
        try:
            ratio = speed(name, case, peak, options)
        except Exception:
            say(f"speed {name}: CRASHED\n" + traceback.format_exc(limit=-6))
            ratio = 0.0
        if case.floor and not ratio >= 0.9:
            slow.append(f"{name} {ratio:.2f}")
    return slow


def speed(name: str, case: Speed, peak: float, options: argparse.Namespace) -> float:
    """Print one line; the result is torch.compile's time over ours."""
    sets = [tuple(make() for make in case.make) for _ in range(2)]
    with torch.no_grad():
        moved = nbytes(sets[0]) + nbytes(case.function(*sets[0]))
        torch.compiler.reset()
        candidates: dict[str, Callable[..., Any]] = {"eager": case.function, "ours": Compiled(case.function, sets[0])}
        if not options.no_torch_compile:
            candidates["torch.compile"] = torch.compile(case.function, dynamic=False)
        times = timed(candidates, sets, options.reps)
        texts = [f"{n} {s * 1e6:.1f} ({moved / s / peak:.2f})" for n, s in times.items()]
        ratio = times.get("torch.compile", math.nan) / times["ours"]
        say(
            f"speed {name}: "
            + ", ".join(texts)
            + f"; {ratio:.2f} of torch.compile's speed, {times['eager'] / times['ours']:.2f} of eager's"
        )
        if options.sweep and case.floor:
            sweep(name, case, sets, moved, peak)
    return ratio


def sweep(name: str, case: Speed, sets: list[tuple[torch.Tensor, ...]], moved: int, peak: float) -> None:
    """Other tiles for the same kernel, so that one visit to a GPU can correct the heuristics."""
    candidates: dict[str, Callable[..., Any]] = {}
    for warps, block, streaming in itertools.product((2, 4, 8, 16), (0, 512, 1024, 2048, 4096), (False, True)):
        with planned(warps, block, streaming) as changed:
            try:
                made = Compiled(case.function, sets[0])
            except Exception as error:
                say(f"  sweep {name}: {warps} warps, block {block}: {type(error).__name__}")
                continue
        if changed:
            candidates[changed[0]] = made
    times = timed(candidates, sets, 6)
    for label, seconds in sorted(times.items(), key=lambda item: item[1]):
        say(f"  sweep {name}: {label}: {seconds * 1e6:.1f} us ({moved / seconds / peak:.2f})")


@contextmanager
def planned(warps: int, block: int, streaming: bool) -> Iterator[list[str]]:
    """Inside, kernels with one axis get this many warps, pointwise ones this block (0: leave it); or are not made."""
    changed: list[str] = []

    def altered(*arguments: Any) -> TilePlan:
        plan = make_plan(*arguments)
        axis = plan.axes[-1]
        if len(plan.axes) == 1 and (axis.name == "x") == bool(block):
            made = attrs.evolve(plan, num_warps=warps, axes=(attrs.evolve(axis, block=block) if block else axis,))
            hint = ", streaming" if streaming else ""
            changed.append(
                f"{warps} warps, {axis.name} {made.axes[0].block}{hint}"
                + (" (chosen)" if made == plan and not hint else "")
            )
            return made
        return plan

    backend_module.make_plan = altered
    launch_module.kernel_source = functools.partial(kernel_source, streaming=streaming)
    try:
        yield changed
    finally:
        backend_module.make_plan = make_plan
        launch_module.kernel_source = kernel_source


# ---------------------------------------------------------------------------------------------------------- main


def overhead() -> None:
    """Host time of one launch."""
    x, y = t(64, dtype=F32), t(64, dtype=F32)
    made = Compiled(lambda a, b: a + b, [x, y])
    launch = made.steps[0][1]
    if launch is None:
        return
    out = torch.empty_like(x)
    pointers = (x.data_ptr(), y.data_ptr(), out.data_ptr())
    launch(*pointers)
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(500):
            launch(*pointers)
        seconds = (time.perf_counter() - start) / 500
    torch.cuda.synchronize()
    say(f"launch overhead: {seconds * 1e6:.2f} us a kernel on the host")


def compile_only(options: argparse.Namespace) -> int:
    """Every graph of this file through the compiler, on tensors that do not exist."""
    failed = []
    with FakeTensorMode(allow_non_fake_inputs=True):
        cases = {**checks(), **{f"speed {n}": (c.function, [m() for m in c.make]) for n, c in speeds(1.0).items()}}
        for name, (function, inputs) in cases.items():
            if options.only and not any(o in name for o in options.only):
                continue
            try:
                made = Compiled(function, inputs)
                say(f"compiled {name}: {made.counts}")
            except Exception:
                say(f"compiled {name}: CRASHED\n" + traceback.format_exc(limit=-6))
                failed.append(name)
    say(json.dumps({"failed": failed}))
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=420.0, help="start nothing new after this long")
    parser.add_argument("--only", nargs="*", default=[], help="names, or parts of names, of checks and kernels")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes of the speed cases")
    parser.add_argument("--reps", type=int, default=20)
    parser.add_argument("--skip-checks", action="store_true")
    parser.add_argument("--skip-speed", action="store_true")
    parser.add_argument("--no-torch-compile", action="store_true")
    parser.add_argument("--sweep", action="store_true", help="also time other tiles for the kernels with a floor")
    parser.add_argument("--compile-only", action="store_true", help="without a GPU: compile everything for sm_90")
    options = parser.parse_args()
    if options.compile_only:
        return compile_only(options)
    if not torch.cuda.is_available():
        say("no CUDA device: nothing to check")
        return 2
    deadline = time.monotonic() + options.seconds
    import triton  # only for its version; the backend has imported it by now

    say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    torch.manual_seed(0)
    failed = [] if options.skip_checks else run_checks(options.only, deadline)
    overhead()
    slow = [] if options.skip_speed else run_speeds(options, deadline)
    say(json.dumps({"wrong": failed, "below_0.9_of_torch_compile": slow}))
    return 1 if failed or slow else 0


if __name__ == "__main__":
    sys.exit(main())
