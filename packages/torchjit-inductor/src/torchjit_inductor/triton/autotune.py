"""Which tiles a product of matrices gets, and whether a kernel beats the library at all: measured on the device."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, final

import attrs
import torch
import triton
from torch.utils._python_dispatch import _disable_current_modes

from torchjit_core.events import activity, emit, phase
from torchjit_core.failures import degraded
from torchjit_core.reasons import reason
from torchjit_inductor.ir.kernel import Buffer, LoopKernel
from torchjit_inductor.lowering.contractions import MatrixProduct
from torchjit_inductor.measurements import Measurements
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.steps import ExternStep, KernelStep, Step, TensorRef
from torchjit_inductor.triton.compile import MachineCode, Recipe
from torchjit_inductor.triton.contraction import Contraction, DotPlan, contraction, has_dot, key_of, plan_of
from torchjit_inductor.triton.cuda import KernelDriver
from torchjit_inductor.triton.descent import PlanTuner, Shape, Timed, shape_from_disk
from torchjit_inductor.triton.launch import KernelVariants, make_launcher
from torchjit_inductor.triton.plan import TilePlan, make_plan
from torchjit_inductor.triton.product_kernel import product_kernel
from torchjit_inductor.triton.source import kernel_source
from torchjit_inductor.triton.specialisations import Variant
from torchjit_inductor.triton.split_reduction import split, split_product
from torchjit_inductor.triton.tile_choices import (
    SHARED,
    ProductKey,
    TileChoice,
    candidates,
    fallback_choice,
    neighbours,
)
from torchjit_inductor.triton.timing import device_seconds, random_like, runner_of
from torchjit_inductor.triton.trial import Candidate, Crashed, Launch, Trial, TrialProcess, runner, try_candidates

T = TypeVar("T")

__all__ = ["Measured", "ProductTuner"]

TUNING_FAILED = reason(
    "TJ-IND-011",
    "measuring a kernel failed",
    "The kernel is what it is without tuning: the library's product, or the tiles of the table. Results are the same.",
    "If another program uses the device, try again; else report it with the traceback (on_error='raise').",
    "options={'max_autotune': False} measures nothing.",
)

CANDIDATES = 8
ROUNDS = 6
"""Of coordinate descent."""
RANKED = 3
"""So many of a product's choices are tried again with what became part of the kernel."""
GAIN = 0.95
"""A kernel that only multiplies must take at most this part of the library's time."""
_DESCRIPTORS = 90
"""Compute capability from which on there are descriptors."""
PROMISING = 1.35
"""A kernel that takes more than so many times the library's time does not win by what it saves besides."""


@final
@attrs.frozen
class Measured:
    """What was found out about a product.

    Attributes:
        library: seconds of aten's kernel.
        ranked: seconds and tiles of the best generated ones, the fastest first.
    """

    library: float
    ranked: tuple[tuple[float, TileChoice], ...]

    @property
    def promising(self) -> bool:
        """May a kernel be better where others become part of it?"""
        return bool(self.ranked) and self.ranked[0][0] < PROMISING * self.library


@final
class ProductTuner:
    """Measures products and the kernels that they are part of, and remembers: in memory, and on disk per device.

    Args:
        cache_dir: see `InductorSettings.cache_dir`.
        seconds: for compiling and measuring, over the life of the tuner; products beyond are left to aten.
        threads: candidates that are compiled at once.
        driver: of the machine.
        arch: compute capability of a device.
        cache: of machine code, see `KernelVariants`.
        process: who runs candidates; None: this process.
        descends: after the table's choices try their neighbours, for as long as one is better.
    """

    def __init__(
        self,
        cache_dir: str | None,
        seconds: float,
        threads: int,
        driver: KernelDriver,
        arch: Callable[[torch.device], int],
        cache: dict[Recipe, Future[MachineCode]],
        process: TrialProcess | None = None,
        descends: bool = False,
    ) -> None:
        self._left, self._threads, self._driver, self._arch = seconds, threads, driver, arch
        self._cache_dir, self._cache = cache_dir, cache
        self._process, self._descends = process, descends
        self._stores: dict[torch.device, Measurements[Measured]] = {}
        self._steps: dict[torch.device, Measurements[tuple[float, TileChoice | None]]] = {}
        self._ranked: dict[ProductKey, tuple[TileChoice, ...]] = {}
        self._forms: dict[ProductKey, dict[str, Measured]] = {}
        self._settled: dict[str, TileChoice] = {}
        self._without_room: set[ProductKey] = set()
        self._shapes: dict[torch.device, Measurements[Shape]] = {}
        self._planned: dict[str, TilePlan] = {}
        self._plans = PlanTuner(lambda d: self._opened(self._shapes, d, "plans", shape_from_disk), lambda: self._left)

    # ------------------------------------------------------------------------------------------------- products alone
    def promising(self, product: MatrixProduct) -> bool:
        """May the product be better computed by a kernel? Measures it unless that is known."""
        kernel, buffers = product_kernel(product)
        multiplied = contraction(kernel, buffers)
        key = None if multiplied is None else self._key(kernel, multiplied, buffers)
        if key is None:
            return False
        store = self._store(product.device)
        # A descent goes on from what was measured without one.
        name = f"{key!r} {product.form}".strip() + (" descended" if self._descends else "")
        found: Measured | None = store.get(name)
        if found is None:
            if self._left <= 0 or key in self._without_room:
                return False
            try:
                with self._measuring(product.device):
                    found = self._measure(product, kernel, buffers, key)
            except torch.OutOfMemoryError as error:
                # The model fills the device: another time there may be room, so this is not kept on disk.
                self._without_room.add(key)
                torch.cuda.empty_cache()
                emit("autotune", what=_text_of(key), choices=[], rejected={"all": f"no memory to measure it: {error}"})
                return False
            except Exception as error:
                self._without_room.add(key)
                _failed(_text_of(key), error)
                return False
            store.put(name, attrs.asdict(found))
        self._ranked[key] = tuple(choice for _, choice in found.ranked)
        self._forms.setdefault(key, {})[product.form] = found
        return found.promising

    def _key(self, kernel: LoopKernel, found: Contraction, buffers: Mapping[str, Buffer]) -> ProductKey | None:
        """The key of a kernel's product on its device, which may have no descriptors."""
        key = key_of(kernel, found, buffers)
        if key is None or self._arch(kernel.device) >= _DESCRIPTORS:
            return key
        return attrs.evolve(key, described=False)

    @contextlib.contextmanager
    def _measuring(self, device: torch.device) -> Iterator[None]:
        start = time.perf_counter()
        try:
            with (
                activity("autotuning"),
                phase("inductor autotuning"),
                _disable_current_modes(),
                torch.no_grad(),
                torch.cuda.device(device),
            ):
                yield
        finally:
            self._left -= time.perf_counter() - start

    def _store(self, device: torch.device) -> Measurements[Measured]:
        return self._opened(self._stores, device, "products", _from_disk)

    def _opened(
        self, stores: dict[torch.device, Measurements[T]], device: torch.device, name: str, valid: Callable[[Any], T]
    ) -> Measurements[T]:
        if device not in stores:
            machine = f"{torch.cuda.get_device_name(device)} torch {torch.__version__} triton {triton.__version__}"
            stores[device] = Measurements(self._cache_dir, name, lambda: machine, valid)
        return stores[device]

    def _measure(
        self, product: MatrixProduct, kernel: LoopKernel, buffers: dict[str, Buffer], key: ProductKey
    ) -> Measured:
        if self._process is not None:
            self._process.start()  # while this one compiles
        rejected: dict[str, str] = {}
        times: dict[TileChoice, float] = {}
        library = 0.0
        todo, tried = candidates(key, CANDIDATES), set[TileChoice]()
        for _ in range(1 + (ROUNDS if self._descends else 0)):
            emit("autotune_progress", what=_text_of(key), tried=len(tried), known=len(tried) + len(todo))
            best = min(times.values(), default=0.0)
            library = self._tried(product, kernel, buffers, todo, times, rejected) or library
            tried.update(todo)
            if not times or (best and min(times.values()) > 0.99 * best) or self._left <= 0:
                break
            around = neighbours(key, min(times, key=times.__getitem__)) if self._descends else []
            todo = [c for c in around if c not in tried]
            if not todo:
                break
        measured = sorted(((took, choice) for choice, took in times.items()), key=lambda pair: pair[0])
        emit(
            "autotune",
            what=_text_of(key),
            choices=[{"choice": "aten", "seconds": library}]
            + [{"choice": choice.words, "seconds": took} for took, choice in measured],
            rejected=rejected,
        )
        return Measured(library, tuple(measured[:RANKED]))

    def _tried(
        self, product: MatrixProduct, kernel: LoopKernel, buffers: Mapping[str, Buffer], choices: Sequence[TileChoice],
        times: dict[TileChoice, float], rejected: dict[str, str],
    ) -> float:  # fmt: skip
        """Compile and run choices; adds to `times` and `rejected`, and returns the library's time."""
        left: list[tuple[TileChoice, Candidate]] = []
        for choice, made in zip(choices, self._candidates(kernel, buffers, choices), strict=True):
            if isinstance(made, str):
                rejected[choice.words] = made
            else:
                left.append((choice, made))
        while left:
            try:
                trial = self._trial(product, [made for _, made in left])
            except Crashed as crash:
                # Without the one that it died of; where it got to none there is nothing to be had.
                position = crash.position
                gone = left if position is None else [left[position]]
                rejected.update({choice.words: f"crashed: {crash}" for choice, _ in gone})
                left = [] if position is None else left[:position] + left[position + 1 :]
                continue
            times.update({left[n][0]: took for n, took in trial.seconds.items()})
            rejected.update({left[n][0].words: why for n, why in trial.rejected.items()})
            return trial.library
        return 0.0

    def _trial(self, product: MatrixProduct, made: Sequence[Candidate]) -> Trial:
        if self._process is not None:
            try:
                return self._process.try_candidates(product, made)
            except OSError as error:
                emit("autotune_process_failed", detail=str(error))
                self._process = None  # what failed once would fail again
        return try_candidates(product, made, self._driver, lambda position: None)

    def _candidates(
        self, kernel: LoopKernel, buffers: Mapping[str, Buffer], choices: Sequence[TileChoice]
    ) -> list[Candidate | str]:
        """Machine code of the kernels of each choice, or why there is none."""
        pending: list[tuple[list[tuple[KernelVariants, Future[MachineCode]]], tuple[Buffer, ...]]] = []
        with ThreadPoolExecutor(self._threads) as pool:
            for choice in choices:
                stages, scratch = split_product(kernel, buffers, choice.parts)
                every = {**buffers, **{b.name: b for b in scratch}}
                made = []
                for stage in stages:
                    variants = KernelVariants(
                        stage, every, self._plan(stage, every, choice), self._arch(kernel.device), self._cache
                    )
                    made.append((variants, pool.submit(variants.compile, Variant(True, bool(variants.wide())))))
                pending.append((made, scratch))
        return [_candidate(c, made, scratch) for c, (made, scratch) in zip(choices, pending, strict=True)]

    def _plan(self, stage: LoopKernel, buffers: Mapping[str, Buffer], choice: TileChoice) -> TilePlan | DotPlan:
        """Of a stage of a product that is computed by this choice."""
        found = contraction(stage, buffers) if has_dot(stage) else None
        return make_plan(stage, buffers, {}) if found is None else plan_of(stage, found, choice, buffers)

    def _compiled(
        self, kernel: LoopKernel, buffers: Mapping[str, Buffer], plans: Sequence[TilePlan | DotPlan]
    ) -> list[Callable[..., None] | str]:
        """A launcher of the kernel for each plan, or why there is none."""
        pending = []
        with ThreadPoolExecutor(self._threads) as pool:
            for plan in plans:
                variants = KernelVariants(kernel, buffers, plan, self._arch(kernel.device), self._cache)
                likely = Variant(True, bool(variants.wide()))
                pending.append((variants, likely, pool.submit(variants.compile, likely)))
        made: list[Callable[..., None] | str] = []
        for variants, likely, future in pending:
            error = future.exception()
            index = kernel.device.index or 0
            made.append(
                make_launcher(variants, index, self._driver, (likely, future.result))
                if error is None
                else f"{type(error).__name__}: {error}"
            )
        return made

    # ------------------------------------------------------------------------------------------- steps of a program
    def choice(self, kernel: LoopKernel, found: Contraction, buffers: Mapping[str, Buffer]) -> TileChoice:
        """The tiles that were found best for a kernel, or that are likely the best."""
        likely = self._likely(kernel, found, buffers)
        return self._settled.get(self._product_text(kernel, buffers, found, likely), likely)

    def parts(self, kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> int:
        """Into how many parts the kernel's sum is cut; the kernel of the parts then gets the tiles that were measured."""
        found = contraction(kernel, buffers)
        if found is None:
            return 1
        chosen = self.choice(kernel, found, buffers)
        if chosen.parts > 1:
            (part, *_), scratch = split_product(kernel, buffers, chosen.parts)
            every = {**buffers, **{b.name: b for b in scratch}}
            inside = contraction(part, every)
            if inside is not None:
                likely = self._likely(part, inside, every)
                self._settled[self._product_text(part, every, inside, likely)] = attrs.evolve(chosen, parts=1)
        return chosen.parts

    def _product_text(
        self, kernel: LoopKernel, buffers: Mapping[str, Buffer], found: Contraction, likely: TileChoice
    ) -> str:
        return f"{self._text(kernel, buffers, plan_of(kernel, found, likely, buffers))} {likely.parts}"

    def _likely(self, kernel: LoopKernel, found: Contraction, buffers: Mapping[str, Buffer]) -> TileChoice:
        key = self._key(kernel, found, buffers)
        ranked = () if key is None else self._ranked.get(key, ())
        return ranked[0] if ranked else fallback_choice(key)

    def wins_alone(self, kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> bool:
        """Is a kernel that only multiplies faster than the library?"""
        found = contraction(kernel, buffers)
        key = None if found is None else self._key(kernel, found, buffers)
        # A kernel does not tell in which forms its product was asked for: it has to win in all of them.
        measured = () if key is None else tuple(self._forms.get(key, {}).values())
        return bool(measured) and all(m.ranked and m.ranked[0][0] < GAIN * m.library for m in measured)

    def look(self, step: Step, buffers: Mapping[str, Buffer]) -> str:
        """Equal for steps that take equally long: a kernel's text and what it is for, an operator and its operands."""
        if isinstance(step, KernelStep):
            kernel = merged(step.kernel)
            found = contraction(kernel, buffers) if has_dot(kernel) else None
            if found is None:
                return self._text(kernel, buffers, make_plan(kernel, buffers, {}))
            return self._product_text(kernel, buffers, found, self._likely(kernel, found, buffers))
        shapes = [(a.sizes, a.strides, a.offset) if isinstance(a, TensorRef) else a for a in step.args]
        return f"{step.op} {shapes} {step.kwargs} {[str(buffers[n].dtype) for n in step.reads]}"

    def _text(self, kernel: LoopKernel, buffers: Mapping[str, Buffer], plan: TilePlan | DotPlan) -> str:
        types = " ".join(str(buffers[name].dtype) for name in kernel.buffers)
        described = [attrs.evolve(o, buffer="") for o in plan.operands] if isinstance(plan, DotPlan) else []
        return f"{kernel_source(kernel, buffers, plan)}{types} {plan.programs}{described or ''}"

    def seconds(self, step: Step, buffers: Mapping[str, Buffer]) -> float | None:
        """Device time of a step on random operands; None where it depends on their values or is not known yet."""
        device = buffers[step.writes[0]].device if step.writes else None
        if device is None or device.type != "cuda":
            return None
        look = self.look(step, buffers)
        store = self._opened(self._steps, device, "steps", _step_from_disk)
        name = hashlib.sha256(look.encode()).hexdigest()
        known: tuple[float, TileChoice | None] | None = store.get(name)
        if known is None:
            if self._left <= 0:
                return None
            try:
                with self._measuring(device):
                    known = self._timed(step, buffers)
            except torch.OutOfMemoryError:  # no room beside the model: the library keeps its products
                torch.cuda.empty_cache()
                return None
            except Exception as error:
                _failed(_name_of(step), error)
                return None
            if known is None:
                return None
            store.put(name, [known[0], None if known[1] is None else attrs.asdict(known[1])])
        if known[1] is not None:
            self._settled[look] = known[1]
        return known[0]

    def _timed(self, step: Step, buffers: Mapping[str, Buffer]) -> tuple[float, TileChoice | None] | None:
        """Seconds, and for a product the tiles that take them."""
        device = buffers[step.writes[0]].device
        if isinstance(step, ExternStep):
            run = runner_of(step, buffers)
            return None if run is None else (device_seconds([run], cold=True, device=device)[0], None)
        kernel = merged(step.kernel)
        if kernel.symbols or _computed(kernel) or any(s.scatters for s in kernel.stores):
            return None
        found = contraction(kernel, buffers) if has_dot(kernel) else None
        if found is None:
            return self._timed_stages(kernel, buffers, device), None
        key = self._key(kernel, found, buffers)
        ends = {}
        if key is not None and found.groups is not None:
            ends[found.groups.buffer] = {"rows": key.rows, "columns": key.columns, "depth": key.depth}[key.along]
        choices = (() if key is None else self._ranked.get(key, ())) or (fallback_choice(key),)
        return self._fastest(kernel, buffers, choices, random_like(kernel.buffers, buffers, ends))

    def _fastest(
        self,
        kernel: LoopKernel,
        buffers: Mapping[str, Buffer],
        choices: Sequence[TileChoice],
        memory: dict[str, torch.Tensor],
    ) -> tuple[float, TileChoice] | None:
        """Seconds of the best choice, and which it is; None where none runs."""
        device = kernel.device
        runs = []
        for choice, made in zip(choices, self._candidates(kernel, buffers, choices), strict=True):
            if not isinstance(made, str):
                with contextlib.suppress(RuntimeError):  # has the device the registers and the shared memory?
                    run = runner(made, self._driver, device, memory)
                    run()
                    runs.append((choice, run))
        times = device_seconds([run for _, run in runs], cold=True, device=device)
        best = min(zip(times, runs, strict=True), key=lambda pair: pair[0], default=None)
        return None if best is None else (best[0], best[1][0])

    # ---------------------------------------------------------------------------------------------- plans of other kernels
    def plan(self, kernel: LoopKernel, buffers: Mapping[str, Buffer], plan: TilePlan) -> TilePlan:
        """The plan that coordinate descent finds for a kernel, or the given one where that is not asked for or not possible."""
        if not self._descends or kernel.symbols or _computed(kernel) or any(s.scatters for s in kernel.stores):
            return plan
        look = self._text(kernel, buffers, plan)
        if look not in self._planned:
            try:
                with self._measuring(kernel.device):
                    self._planned[look] = self._plans.best(kernel, plan, look, self._timer_of(kernel, buffers))
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                return plan
            except Exception as error:
                _failed(kernel.name, error)
                self._planned[look] = plan
        return self._planned[look]

    def _timer_of(self, kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> Timed:
        """Runs the kernel under plans, each time on the same operands."""
        original = random_like(kernel.buffers, buffers)
        memory = {name: t.clone() for name, t in original.items()}
        addresses = [memory[n].data_ptr() for n in kernel.buffers]

        def timed(plans: Sequence[TilePlan]) -> Sequence[tuple[float, Sequence[torch.Tensor]] | str]:
            found: list[tuple[float, Sequence[torch.Tensor]] | str] = []
            for made in self._compiled(kernel, buffers, plans):
                if isinstance(made, str):
                    found.append(made)
                    continue
                for name, tensor in memory.items():
                    tensor.copy_(original[name])
                run = functools.partial(made, *addresses)
                try:
                    run()
                    results = [memory[n].clone() for n in kernel.writes]
                    (took,) = device_seconds([run], cold=True, device=kernel.device)
                except RuntimeError as error:  # more registers or shared memory than there are
                    if isinstance(error, torch.OutOfMemoryError):
                        raise
                    torch.cuda.synchronize(kernel.device)
                    found.append(str(error))
                    continue
                found.append((took, results))
            return found

        return timed

    def _timed_stages(self, kernel: LoopKernel, buffers: Mapping[str, Buffer], device: torch.device) -> float:
        stages, scratch = split(kernel, buffers, {})
        every = {**buffers, **{b.name: b for b in scratch}}
        memory = random_like({n for s in stages for n in s.buffers}, every)
        runs = []
        for stage in stages:
            (made,) = self._compiled(stage, every, [make_plan(stage, every, {})])
            if isinstance(made, str):
                raise RuntimeError(made)  # the program has this kernel anyway
            runs.append(functools.partial(made, *(memory[n].data_ptr() for n in stage.buffers)))
        return device_seconds([lambda: [run() for run in runs]], cold=False, device=device)[0]


def _failed(what: str, error: Exception) -> None:
    degraded(TUNING_FAILED, f"{what}: {type(error).__name__}: {error}", error)


def _name_of(step: Step) -> str:
    return step.kernel.name if isinstance(step, KernelStep) else str(step.op)


def _computed(kernel: LoopKernel) -> bool:
    """Does it read where data say, other than in the matrix of a group?"""
    return any(
        v.op in ("load", "bounded")
        and v.data.binders
        and not all(a.op == "segment" for a in v.args[: len(v.data.binders)])
        for v in kernel.values
    )


def _candidate(
    choice: TileChoice, made: Sequence[tuple[KernelVariants, Future[MachineCode]]], scratch: Sequence[Buffer]
) -> Candidate | str:
    launches = []
    for variants, future in made:
        error = future.exception()
        if error is not None:
            return f"{type(error).__name__}: {error}"
        code = future.result()
        if code.shared > SHARED:  # for what follows the product, beside its operands
            return f"{code.shared} bytes of shared memory"
        launches.append(Launch(code, variants.plan.programs.evaluate({}), tuple(variants.kernel.buffers)))
    held = tuple((b.name, b.span.evaluate({}), b.dtype) for b in scratch)
    return Candidate(choice.words, tuple(launches), held)


def _from_disk(held: Any) -> Measured:
    """A result as `Measurements` gives it.

    Raises:
        TypeError, ValueError, KeyError: it is none.
    """
    return Measured(float(held["library"]), tuple((float(took), _choice(choice)) for took, choice in held["ranked"]))


def _step_from_disk(held: Any) -> tuple[float, TileChoice | None]:
    took, choice = held
    return float(took), None if choice is None else _choice(choice)


def _choice(held: dict[str, Any]) -> TileChoice:
    flags = {name: bool(held[name]) for name in ("persistent", "descriptors")}
    values: dict[str, Any] = {name: int(value) for name, value in held.items()} | flags
    return TileChoice(**values)


def _text_of(key: ProductKey) -> str:
    types = key.dtype + (f", {key.right_dtype}" if key.right_dtype else "")
    return f"{key.batch} x [{key.rows}, {key.depth}] @ [{key.depth}, {key.columns}] {types}"
