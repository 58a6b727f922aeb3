"""`TritonBackend`: the `KernelBackend` for NVIDIA GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, final

import torch

from torchjit_core.events import phase
from torchjit_core.expr import Symbol
from torchjit_core.turns import others_may_go_on
from torchjit_inductor.assembly.workers import shared_workers
from torchjit_inductor.attention.call import AttentionCall
from torchjit_inductor.attention.few_queries import FewQueries
from torchjit_inductor.attention.kernels import AttentionKernels, attention_problem
from torchjit_inductor.attention.parts import problem_of_few
from torchjit_inductor.attention.sizes import Varying, by_sizes, even_units, varying_sizes
from torchjit_inductor.attention.writer import AttentionProblem
from torchjit_inductor.codegen_protocol import CompiledKernel, KernelBackend
from torchjit_inductor.convolution_algorithms import measure_algorithms
from torchjit_inductor.estimates import estimate
from torchjit_inductor.ir.kernel import Buffer, LoopKernel
from torchjit_inductor.lowering.contractions import MatrixProduct
from torchjit_inductor.lowering.tensors import Strided, TensorMeta
from torchjit_inductor.passes import Pass
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.schedule.updates import combine_small, store_in_place
from torchjit_inductor.settings import InductorSettings
from torchjit_inductor.steps import KernelStep, Program
from torchjit_inductor.triton.autotune import ProductTuner
from torchjit_inductor.triton.compile import MachineCode, Recipe
from torchjit_inductor.triton.contraction import DotPlan, contraction, has_dot, plan_of
from torchjit_inductor.triton.cuda import CudaDriver, KernelDriver
from torchjit_inductor.triton.launch import KernelVariants, make_launcher
from torchjit_inductor.triton.overlap import CAPABILITY, overlapped
from torchjit_inductor.triton.plan import TilePlan, make_plan
from torchjit_inductor.triton.products import settle_products
from torchjit_inductor.triton.redundant_loads import derive_loads
from torchjit_inductor.triton.shared_pieces import share_pieces
from torchjit_inductor.triton.size_arguments import useful_divisors, with_size_arguments
from torchjit_inductor.triton.sorts import why_not_sorted
from torchjit_inductor.triton.source import kernel_comments
from torchjit_inductor.triton.specialisations import Variant
from torchjit_inductor.triton.split_reduction import is_apart, is_shared, split_program
from torchjit_inductor.triton.trial import TrialProcess

__all__ = ["TritonBackend"]

_ATOMIC = frozenset((torch.float32, torch.float64, torch.int32, torch.int64))

_THREADS = min(8, os.cpu_count() or 1)
"""So many kernels are compiled at once where no processes do it."""

_EIGHT_BIT_FLOATS = 89
"""Compute capability from which on matrix units take them."""


@final
class TritonBackend(KernelBackend):
    """Compiles kernels with Triton and launches them through the CUDA driver.

    Args:
        settings: how to compile.
        driver: for tests; the CUDA driver if None.
        arch: compute capability to compile for, 90 for sm_90; None asks the device.
    """

    language = "triton"

    def __init__(
        self, settings: InductorSettings | None = None, driver: KernelDriver | None = None, arch: int | None = None
    ) -> None:
        self._settings = chosen = settings or InductorSettings()
        self._driver: KernelDriver = driver or CudaDriver()
        self._known_arch = arch
        self._cache: dict[Recipe, Future[MachineCode]] = {}
        self._kernels = AttentionKernels(self._driver, self._arch, _THREADS)
        self._tuner = ProductTuner(
            chosen.cache_dir, chosen.autotune_seconds, _THREADS, self._driver, self._arch, self._cache,
            TrialProcess() if chosen.autotune_in_subproc else None, chosen.coordinate_descent_tuning,
        )  # fmt: skip

    def unsupported(self, kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> str | None:
        """Why the kernel cannot be compiled, or None."""
        for store in kernel.stores:
            if store.mode == "add" and buffers[store.buffer].dtype not in _ATOMIC:
                return f"atomic addition of {buffers[store.buffer].dtype}"
        unsorted = why_not_sorted(kernel)
        if unsorted is not None:
            return unsorted
        if has_dot(kernel) and contraction(kernel, buffers) is None:
            return "beside a product of matrices only what follows it point by point"
        return None

    def unwanted(self, kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> str | None:
        """What would be split again into statistics and what is made of them, see `split_reduction`."""
        if kernel.inner and is_apart(kernel, buffers, hints):
            return "the statistics and what follows them read more than the cache holds in different orders"
        return None

    def shares(self, kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> bool:
        """Is the reduction split, and does nothing wait for its result at each inner point?"""
        return is_shared(kernel, buffers, hints)

    def takes_product(self, product: MatrixProduct) -> bool:
        """Do measurements say that a kernel comes close to the library's? Only asked for under `max_autotune`."""
        if not self._settings.max_autotune or (product.scales and self._arch(product.device) < _EIGHT_BIT_FLOATS):
            return False
        return self._tuner.promising(product)

    def settle_products(self, program: Program, fused: Callable[[Program], Program]) -> Program:
        """The program before fusion with those products as kernels that make it faster, the others as calls of aten."""
        return settle_products(program, fused, self._tuner)

    def overlapped(self, program: Program) -> Program:
        """See `overlap`."""
        devices = {
            s.kernel.device for s in program.steps if isinstance(s, KernelStep) and s.kernel.device.type == "cuda"
        }
        if any(self._arch(device) < CAPABILITY for device in devices):
            return program
        return overlapped(program, lambda k: self.unsupported(k, program.buffers) is None, self._kernels.overlapping)

    def compile(
        self,
        kernels: Sequence[LoopKernel],
        buffers: Mapping[str, Buffer],
        *,
        graph: str,
        hints: Mapping[Symbol, int],
    ) -> Sequence[CompiledKernel]:
        """Compile all the kernels of one graph, several at a time."""
        workers = shared_workers()
        # A thread for each process, and one that compiles here.
        threads = max(_THREADS, workers.count + 1)
        with phase("triton_compile"), ThreadPoolExecutor(threads) as pool:
            pending = [self._start(k, buffers, hints, pool) for k in kernels]
            return [finish() for finish in pending]

    def _start(
        self, kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int], pool: ThreadPoolExecutor
    ) -> Callable[[], CompiledKernel]:
        kernel = merged(kernel)
        variants, make, future = self._launcher(kernel, buffers, hints, pool)

        def finish() -> CompiledKernel:
            with others_may_go_on():
                future.result()
            text = variants.source(Variant(True, bool(variants.wide())))
            comments = kernel_comments(variants.kernel, buffers, variants.plan, variants.given)
            return CompiledKernel(kernel.name, comments + text, make(), arguments=variants.arguments)

        return finish

    def attention(
        self,
        call: AttentionCall,
        places: Sequence[Strided],
        metas: Sequence[TensorMeta],
        hints: Mapping[Symbol, int],
        *,
        backward: bool,
    ) -> Callable[..., Any]:
        """Kernels with the user's functions of scores in them."""
        query, key, value, *rest = places
        tensors = {"query": query, "key": key, "value": value}
        names = ("of_query", "of_key", "of_value") if backward else ("result",)
        if backward:
            *rest, total, gradient, shift = rest
            tensors |= {"total": total, "gradient": gradient, "shift": shift}
        results = dict(zip(names, metas, strict=False))
        build = self._kernels.backward if backward else self._kernels.forward

        def problem(varying: Varying) -> AttentionProblem:
            return attention_problem(call, tensors, rest, results, varying)

        def make(varying: Varying) -> Callable[..., Any]:
            with phase("triton_compile"):
                made: Callable[..., Any] = build(problem(varying), call, query.device)
            return made

        varying = varying_sizes(places, metas, hints)
        if not varying.symbols:
            return make(varying)
        units = even_units(varying, (query, key), (call.query_block, call.key_block))
        return by_sizes(varying, units, problem(varying).extents, make)

    def few_queries(self, call: FewQueries, places: Sequence[Strided], meta: TensorMeta) -> Callable[..., Any]:
        """Kernels that share the keys of a row."""
        problem = problem_of_few(call, places, meta)
        with phase("triton_compile"):
            return self._kernels.of_few_queries(problem, places[0].device)

    def passes(self, hints: Mapping[Symbol, int]) -> tuple[Pass, ...]:
        """Update inputs in place, read less, split reductions of much into little, and launch small kernels together; measure what may pay."""
        algorithms: tuple[Pass, ...] = (measure_algorithms,) if self._settings.max_autotune else ()
        return (
            *algorithms,
            store_in_place,
            derive_loads,
            share_pieces,
            lambda program: split_program(program, hints, self._tuner.parts),
            lambda program: combine_small(program, hints),
        )

    def _launcher(
        self, kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int], pool: ThreadPoolExecutor
    ) -> tuple[KernelVariants, Callable[[], Callable[..., None]], Future[MachineCode]]:
        kernel, given = (kernel, {}) if has_dot(kernel) else with_size_arguments(kernel)
        hints = {**hints, **{s: estimate(e, hints) for s, e in given.items()}}
        plan, divisible = self._plan(kernel, buffers, hints), useful_divisors(kernel, given, hints)
        arch = self._arch(kernel.device)
        variants = KernelVariants(kernel, buffers, plan, arch, self._cache, given, divisible)
        likely = Variant(True, bool(variants.wide()), divisible)
        # Descent has measured its plans.
        future = pool.submit(variants.compile if self._settings.coordinate_descent_tuning else variants.settle, likely)
        index = kernel.device.index or 0
        return variants, (lambda: make_launcher(variants, index, self._driver, (likely, future.result))), future

    def _plan(
        self, kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]
    ) -> TilePlan | DotPlan:
        found = contraction(kernel, buffers) if has_dot(kernel) else None
        if found is None:
            return self._tuner.plan(kernel, buffers, make_plan(kernel, buffers, hints))
        return plan_of(kernel, found, self._tuner.choice(kernel, found, buffers), buffers)

    def _arch(self, device: torch.device) -> int:
        if self._known_arch is not None:
            return self._known_arch
        major, minor = torch.cuda.get_device_capability(device)
        return major * 10 + minor
