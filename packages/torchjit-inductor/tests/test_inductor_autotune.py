"""Autotuning without a GPU: split-K kernels, coordinate descent, candidates in a process that crashes, hangs or has no memory."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from inductor_interpreter import INTERPRETING
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_core.events import start_listening, stop_listening
from torchjit_core.failures import FailurePolicy, using_policy
from torchjit_core.reasons import InvalidIR, UserError
from torchjit_inductor import Inductor, InductorSettings
from torchjit_inductor import compiled as compiled_
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import Buffer, LoopKernel
from torchjit_inductor.lowering.contractions import MatrixProduct
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.measurements import Measurements
from torchjit_inductor.schedule.cleanup import drop_roundings, remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import ExternStep, KernelStep, Program
from torchjit_inductor.triton import autotune
from torchjit_inductor.triton.autotune import ProductTuner
from torchjit_inductor.triton.backend import TritonBackend
from torchjit_inductor.triton.compile import argument_type, compile_text, jit_function
from torchjit_inductor.triton.contraction import contraction, has_dot, plan_of
from torchjit_inductor.triton.cuda import CudaDriver
from torchjit_inductor.triton.descent import PlanTuner, shape_from_disk, shape_of
from torchjit_inductor.triton.emit import pointer_names
from torchjit_inductor.triton.plan import TilePlan, make_plan
from torchjit_inductor.triton.product_kernel import product_kernel
from torchjit_inductor.triton.source import function_name, kernel_source
from torchjit_inductor.triton.split_reduction import split_product, split_program
from torchjit_inductor.triton.tile_choices import ProductKey, TileChoice, candidates, neighbours
from torchjit_inductor.triton.trial import Candidate, Trial, TrialProcess

compiled = pytest.mark.skipif(INTERPRETING, reason="compiles")
BF, I8, F32 = torch.bfloat16, torch.int8, torch.float32
DEVICE = torch.device("cuda", 0)

CASES: dict[str, tuple[Any, tuple[tuple[tuple[int, ...], torch.dtype], ...]]] = {
    "linear_gelu": (
        lambda x, w, b: F.gelu(F.linear(x, w, b)), (((33, 64), BF), ((48, 64), BF), ((48,), BF)),
    ),
    "bmm_residual": (lambda a, b, r: torch.bmm(a, b) + r, (((3, 20, 64), BF), ((3, 64, 24), BF), ((3, 20, 24), BF))),
    "integers": (lambda a, b, s: torch._int_mm(a, b.t()) * s, (((48, 64), I8), ((64, 64), I8), ((64,), F32))),
}  # fmt: skip


def program_of(name: str) -> Program:
    """The fused program of a case with its product as a kernel."""
    function, specs = CASES[name]
    with FakeTensorMode(allow_non_fake_inputs=True):
        gm = make_fx(function)(*(torch.empty(shape, dtype=dtype, device="cuda") for shape, dtype in specs))
    backend = TritonBackend(arch=90)
    program = lower_graph(gm, "graph", products=lambda product: True)
    fused = fuse(program, {}, accepts=lambda kernel: backend.unsupported(kernel, program.buffers) is None)
    return rename_kernels(drop_roundings(remove_dead_stores(fused)))


def kernel_of(program: Program) -> LoopKernel:
    """Its only kernel."""
    (step,) = program.steps
    assert isinstance(step, KernelStep) and has_dot(step.kernel)
    return merged(step.kernel)


def _random(buffer: Buffer, generator: torch.Generator) -> torch.Tensor:
    made = torch.randn(buffer.span.evaluate({}), generator=generator)
    return (made * 40).clamp(-127, 127).to(I8) if buffer.dtype == I8 else made.to(buffer.dtype)


# ------------------------------------------------------------------------------------------------- split-K, int8
NUMERIC = [(name, parts) for name in CASES for parts in (1, 2, 4)]


@pytest.mark.parametrize(("name", "parts"), NUMERIC if INTERPRETING else [], ids=str)
def test_parts_compute_what_the_ir_means(name: str, parts: int) -> None:
    program = program_of(name)
    kernel = kernel_of(program)
    stages, scratch = split_product(kernel, program.buffers, parts)
    assert len(stages) == (1 if parts == 1 else 2)
    every = {**program.buffers, **{b.name: b for b in scratch}}
    generator = torch.Generator().manual_seed(0)
    memory = {n: _random(program.buffers[n], generator) for n in kernel.buffers}
    expected = {n: t.clone() for n, t in memory.items()}
    evaluate_kernel(kernel, expected)
    memory |= {b.name: torch.full((b.span.evaluate({}),), 77.0).to(b.dtype) for b in scratch}
    for stage in stages:
        stage.verify(every)
        found = contraction(stage, every) if has_dot(stage) else None
        plan = make_plan(stage, every, {}) if found is None else plan_of(stage, found, TileChoice(32, 32, 32, 4, 2, 2))
        source = kernel_source(stage, every, plan, portable=True)
        function = jit_function(source, function_name(stage))
        function[(plan.programs.evaluate({}),)](*(memory[n] for n in stage.buffers))
    for name in kernel.writes:
        torch.testing.assert_close(memory[name], expected[name], rtol=2e-2, atol=2e-2)


@compiled
@pytest.mark.parametrize(("arch", "unit"), [(80, "mma.sync"), (90, "wgmma")])
def test_parts_and_integers_compile_to_code_for_the_matrix_units(arch: int, unit: str) -> None:
    for name in ("linear_gelu", "integers"):
        program = program_of(name)
        (part, join), scratch = split_product(kernel_of(program), program.buffers, 2)
        every = {**program.buffers, **{b.name: b for b in scratch}}
        for stage in (part, join):
            found = contraction(stage, every) if has_dot(stage) else None
            plan = make_plan(stage, every, {}) if found is None else plan_of(stage, found, TileChoice(64, 64, 32, 4, 3))
            arguments = {p: argument_type(every[n].dtype) for n, p in pointer_names(stage).items()}
            code = compile_text(
                kernel_source(stage, every, plan), function_name(stage), arguments, frozenset(arguments),
                arch=arch, num_warps=plan.num_warps, num_stages=plan.num_stages,
            )  # fmt: skip
            assert (unit in code.ptx) == (stage is part)
            assert stage is join or ("s8" in code.ptx) == (name == "integers")


@compiled
def test_sums_are_cut_where_tiles_are_few_and_sums_long() -> None:
    few = candidates(ProductKey("bfloat16", 1, 64, 128, 65536, True, True), 4)
    assert few[0].parts == 1 and any(c.parts > 1 for c in few)
    many = candidates(ProductKey("bfloat16", 1, 8192, 8192, 8192, True, True), 4)
    assert all(c.parts == 1 for c in many)
    odd = candidates(ProductKey("bfloat16", 1, 64, 128, 65537, True, True), 4)
    assert all(c.parts == 1 for c in odd)


@compiled
def test_a_measured_number_of_parts_reaches_the_program() -> None:
    program = program_of("linear_gelu")
    kernel = kernel_of(program)
    tuner = _tuner()
    found = contraction(kernel, program.buffers)
    assert found is not None
    chosen = TileChoice(16, 32, 16, 2, 3, parts=4)
    likely = tuner._likely(kernel, found, program.buffers)
    assert tuner.parts(kernel, program.buffers) == 1
    tuner._settled[tuner._product_text(kernel, program.buffers, found, likely)] = chosen
    cut = split_program(program, {}, tuner.parts)
    first, second = (s.kernel for s in cut.steps if isinstance(s, KernelStep))
    assert has_dot(first) and not has_dot(second) and second.writes == kernel.writes
    inside = contraction(first, cut.buffers)
    assert inside is not None
    assert tuner.choice(first, inside, cut.buffers) == attrs.evolve(chosen, parts=1)


@compiled
def test_neighbours_differ_in_one_thing_and_fit() -> None:
    key = ProductKey("bfloat16", 1, 4096, 4096, 4096, True, True)
    here = TileChoice(128, 128, 64, 8, 3)
    found = neighbours(key, here)
    assert len(found) > 8
    for other in found:
        assert sum(a != b for a, b in zip(attrs.astuple(here), attrs.astuple(other), strict=True)) == 1
        assert 2 * other.depth * (other.rows + other.columns) * other.num_stages <= 227 * 1024
    assert all(c.depth >= 32 for c in neighbours(ProductKey("int8", 1, 512, 512, 512, True, True), here))


# --------------------------------------------------------------------------------------- products of very short sums
@compiled
@pytest.mark.parametrize(
    ("shapes", "calls"),
    [(((64, 4), (4, 32)), 0), (((3, 5, 4), (3, 4, 7)), 0), (((3000, 1), (1, 4000)), 0), (((3000, 4), (4, 4000)), 1)],
    ids=str,
)
def test_short_sums_are_formulas(shapes: tuple[tuple[int, ...], ...], calls: int) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        x, w = (torch.empty(s, device="cuda") for s in shapes)
        gm = make_fx(lambda a, b: torch.sigmoid(a @ b))(x, w)
    program = lower_graph(gm, "graph")
    assert sum(isinstance(s, ExternStep) for s in program.steps) == calls
    if calls:
        return
    step = program.steps[-1]
    assert isinstance(step, KernelStep)
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(s, generator=generator) for s in shapes)
    memory = dict(zip(step.kernel.reads, (a.flatten(), b.flatten()), strict=True))
    memory[step.kernel.writes[0]] = torch.empty(program.buffers[step.kernel.writes[0]].span.evaluate({}))
    if memory[step.kernel.writes[0]].numel() > 1 << 20:
        return
    evaluate_kernel(step.kernel, memory)
    torch.testing.assert_close(memory[step.kernel.writes[0]], torch.sigmoid(a @ b).flatten())


# ------------------------------------------------------------------------------------------- who tries candidates
# In place of what measures, for several tests: with stand-ins for the classes in messages it imports neither torch nor the package.
_ANSWERS = """
import io, os, pickle, struct, sys, time, types
class Stub:
    def __init__(self, *fields): pass
class Trial(Stub): pass
Trial.__module__ = "torchjit_inductor.triton.trial"
sys.modules |= {"torchjit_inductor": types, Trial.__module__: types.SimpleNamespace(Trial=Trial)}  # pickle imports both
class Reader(pickle.Unpickler):
    def find_class(self, module, name): return type(name, (Stub,), {})
def write(message):
    data = pickle.dumps(message)
    sys.stdout.buffer.write(struct.pack("<Q", len(data)) + data)
    sys.stdout.buffer.flush()
write(("ready", None))
while head := sys.stdin.buffer.read(8):
    product, candidates = Reader(io.BytesIO(sys.stdin.buffer.read(*struct.unpack("<Q", head)))).load()
    trial = Trial()
    trial.library, trial.seconds, trial.rejected = 5e-6, {}, {}
    for n, candidate in enumerate(candidates):
        write(("at", n))
        if candidate.words == "crash": os._exit(3)
        if candidate.words == "hang": time.sleep(100)
        if candidate.words == "broken": write(("failed", "an illegal memory access")); break
        if candidate.words == "memory": write(("memory", "no room")); break
        trial.seconds[n] = 1e-6 * len(candidate.words)
    else:
        write(("done", trial))
"""


def _tuner(process: TrialProcess | None = None, folder: str | None = None, **settings: Any) -> ProductTuner:
    return ProductTuner(folder, 100.0, 1, CudaDriver(), lambda device: 90, {}, process, **settings)


@contextlib.contextmanager
def _heard(*kinds: str) -> Iterator[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []

    def hear(kind: str, fields: dict[str, Any]) -> None:
        if kind in kinds:
            found.append(fields)

    start_listening(hear)
    try:
        yield found
    finally:
        stop_listening(hear)


@pytest.fixture
def without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates need no compiler, and measuring no device."""
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a device")
    monkeypatch.setattr(ProductTuner, "_candidates", lambda self, kernel, buffers, choices: list(map(_named, choices)))


def _named(choice: TileChoice) -> Candidate:
    return Candidate(WORDS.get(choice, "good" + "!" * choice.depth), ())


PRODUCT = MatrixProduct(BF, DEVICE, 1, 512, 512, 512, (0, 512, 1), (0, 512, 1))
WORDS: dict[TileChoice, str] = {}


@compiled
@pytest.mark.parametrize("how", ["crash", "hang", "broken"])
def test_a_candidate_that_ends_its_process_is_rejected_and_said(
    how: str, without_a_device: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, buffers = product_kernel(PRODUCT)
    found = contraction(kernel, buffers)
    assert found is not None
    bad = candidates(ProductKey("bfloat16", 1, 512, 512, 512, True, False), autotune.CANDIDATES)[2]
    monkeypatch.setitem(WORDS, bad, how)
    process = TrialProcess([sys.executable, "-c", _ANSWERS], patience=40.0 if how != "hang" else 3.0)
    try:
        with _heard("autotune") as heard:
            assert _tuner(process, str(tmp_path)).promising(PRODUCT) is False  # 5 us against 20 at least
    finally:
        process.close()
    (fields,) = heard
    assert list(fields["rejected"]) == [bad.words]
    assert {"crash": "status 3", "hang": "no answer", "broken": "illegal"}[how] in fields["rejected"][bad.words]
    assert len(fields["choices"]) >= autotune.CANDIDATES and fields["choices"][0] == {"choice": "aten", "seconds": 5e-6}
    assert bad.words not in [c["choice"] for c in fields["choices"]]


@compiled
def test_without_memory_to_measure_the_library_keeps_the_product(
    without_a_device: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = TrialProcess([sys.executable, "-c", _ANSWERS], patience=40.0)
    first = candidates(ProductKey("bfloat16", 1, 512, 512, 512, True, False), 1)[0]
    monkeypatch.setitem(WORDS, first, "memory")
    tuner = _tuner(process, str(tmp_path))
    try:
        with _heard("autotune") as heard:
            assert [tuner.promising(PRODUCT) for _ in range(2)] == [False, False]
    finally:
        process.close()
    (fields,) = heard  # asked once, not kept on disk
    assert "no memory" in fields["rejected"]["all"]
    assert not list(tmp_path.rglob("products.json"))

    def full(*args: Any) -> Trial:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(autotune, "try_candidates", full)
    here = _tuner(None, str(tmp_path))
    assert here.promising(PRODUCT) is False  # in this process
    program = program_of("linear_gelu")
    monkeypatch.setattr(ProductTuner, "_timed", full)
    assert here.seconds(program.steps[0], program.buffers) is None


@compiled
def test_a_fault_while_measuring_is_said_once_and_costs_the_tuning_only(
    without_a_device: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no clock")

    monkeypatch.setattr(autotune, "try_candidates", broken)
    monkeypatch.setattr(ProductTuner, "_timed", broken)
    monkeypatch.setattr(ProductTuner, "_timer_of", broken)
    program = program_of("linear_gelu")
    kernel, buffers = _rows_kernel()
    plan = make_plan(kernel, buffers, {})

    def every(tuner: ProductTuner) -> list[Callable[[], object]]:
        return [
            lambda: tuner.promising(PRODUCT),
            lambda: tuner.seconds(program.steps[0], program.buffers),
            lambda: tuner.plan(kernel, buffers, plan),
        ]

    with using_policy(FailurePolicy()), warnings.catch_warnings(record=True) as told, _heard("fallback") as heard:
        warnings.simplefilter("always")
        for _ in range(2):
            got = [ask() for ask in every(_tuner(None, str(tmp_path), descends=True))]
            assert got[:2] == [False, None] and got[2] is plan
    assert len(told) == 1 and "TJ-IND-011" in str(told[0].message) and "no clock" in str(told[0].message)
    assert len(heard) == 6 and not list(tmp_path.rglob("*.json"))
    for ask in every(_tuner(None, str(tmp_path), descends=True)):
        with using_policy(FailurePolicy(raises=True)), pytest.raises(InvalidIR, match="TJ-IND-011.*no clock") as raised:
            ask()
        assert isinstance(raised.value.__cause__, RuntimeError)


@compiled
def test_without_triton_a_gpu_graph_runs_operator_by_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchjit_inductor.triton.backend", None)
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(4, device="cuda")
        gm = make_fx(lambda x: (x.sin(),))(x)
    inductor = Inductor(InductorSettings())
    compiled_._warn.cache_clear()
    with warnings.catch_warnings(record=True) as told, _heard("fallback") as heard:
        warnings.simplefilter("always")
        made = [inductor(gm, [x], kind="inference") for _ in range(2)]
    assert [f["reason"] for f in heard] == ["TJ-IND-003"] * 2 and not any(m.kernels for m in made)
    assert len(told) == 1 and "TJ-IND-003" in str(told[0].message) and "Triton" in str(told[0].message)
    assert torch.equal(made[0](torch.ones(4))[0], torch.ones(4).sin())
    with using_policy(FailurePolicy(raises=True)), pytest.raises(UserError, match="TJ-IND-003.*Triton"):
        inductor(gm, [x], kind="inference")


@compiled
def test_a_process_that_cannot_start_leaves_the_work_here(
    without_a_device: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        autotune, "try_candidates", lambda product, made, driver, at: Trial(5e-6, {0: 1e-6}, {1: "odd"})
    )
    tuner = _tuner(TrialProcess(["/no/such/program"]), str(tmp_path))
    with _heard("autotune", "autotune_process_failed") as heard:
        assert tuner.promising(PRODUCT)
    assert len(heard) == 2 and "odd" in heard[1]["rejected"].values()


@compiled
def test_descent_over_tiles_goes_on_for_as_long_as_it_pays(
    without_a_device: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is the distance from one choice: it is found from any start."""
    best = TileChoice(64, 32, 32, 2, 3)
    steps: dict[Candidate, TileChoice] = {}

    def named(self: Any, kernel: LoopKernel, buffers: Any, choices: Sequence[TileChoice]) -> list[Candidate]:
        made = [Candidate(repr(c), ()) for c in choices]
        steps.update(zip(made, choices, strict=True))
        return made

    def tried(product: MatrixProduct, made: Sequence[Candidate], driver: Any, at: Any) -> Trial:
        def far(c: TileChoice) -> float:
            pairs = [
                (c.rows, best.rows),
                (c.columns, best.columns),
                (c.depth, best.depth),
                (c.num_warps, best.num_warps),
            ]
            return 1e-6 * (1 + sum(abs(a.bit_length() - b.bit_length()) for a, b in pairs) + c.persistent + c.parts)

        return Trial(4e-6, {n: far(steps[c]) for n, c in enumerate(made)}, {})

    monkeypatch.setattr(ProductTuner, "_candidates", named)
    monkeypatch.setattr(autotune, "try_candidates", tried)
    with _heard("autotune", "autotune_progress") as heard:
        assert _tuner(None, str(tmp_path), descends=True).promising(PRODUCT)
    report, progress = heard[-1], heard[:-1]
    assert report["choices"][1]["choice"].startswith("64 x 32 x 32, 2 warps")
    tried_so_far = [p["tried"] for p in progress]
    assert len(progress) > 2 and tried_so_far == sorted(tried_so_far) and progress[-1]["known"] > progress[-1]["tried"]
    with _heard("autotune") as again:
        assert _tuner(None, str(tmp_path), descends=True).promising(PRODUCT)
    assert not again


# ------------------------------------------------------------------------------------------------ plans of other kernels
def _rows_kernel() -> tuple[LoopKernel, dict[str, Buffer]]:
    with FakeTensorMode(allow_non_fake_inputs=True):
        gm = make_fx(lambda x: x * 2)(torch.empty(1000, 1000, device="cuda"))
    program = lower_graph(gm, "graph")
    (step,) = program.steps
    assert isinstance(step, KernelStep)
    return merged(step.kernel), dict(program.buffers)


@compiled
def test_plans_descend_reject_what_is_wrong_and_are_kept(tmp_path: Path) -> None:
    kernel, buffers = _rows_kernel()
    plan = make_plan(kernel, buffers, {})
    (block,), warps, *_ = shape_of(plan)
    asked: list[tuple[int, int]] = []

    def timed(plans: Sequence[TilePlan]) -> list[Any]:
        found: list[Any] = []
        for each in plans:
            (b,), w, *_ = shape_of(each)
            asked.append((b, w))
            if w == warps * 2:
                found.append((1e-9, [torch.full((4,), 2.0)]))  # the fastest, and wrong
            elif b > block:
                found.append("does not fit")
            else:
                found.append((abs(b - block // 4) + 100.0 * w, [torch.ones(4)]))
        return found

    def tuner() -> PlanTuner:
        store = Measurements(str(tmp_path), "plans", lambda: "machine", shape_from_disk)
        return PlanTuner(lambda device: store, lambda: 10.0)

    with _heard("autotune") as heard:
        made = tuner().best(kernel, plan, "look", timed)
    assert shape_of(made)[0] == (block // 4,) and shape_of(made)[1] < warps
    reasons = set(heard[0]["rejected"].values())
    assert any("wrong result" in r for r in reasons) and "does not fit" in reasons
    count = len(asked)
    assert count == len(set(asked))
    assert shape_of(tuner().best(kernel, plan, "look", timed)) == shape_of(made)
    assert len(asked) == count
    assert json.loads(next(tmp_path.rglob("plans.json")).read_text())["plans"]


@compiled
def test_without_time_or_a_first_result_the_plan_is_the_tables(tmp_path: Path) -> None:
    kernel, buffers = _rows_kernel()
    plan = make_plan(kernel, buffers, {})
    store = Measurements(str(tmp_path), "plans", lambda: "machine", shape_from_disk)
    assert PlanTuner(lambda device: store, lambda: 0.0).best(kernel, plan, "look", lambda plans: []) is plan
    assert PlanTuner(lambda device: store, lambda: 1.0).best(kernel, plan, "look", lambda plans: ["no"]) is plan


# -------------------------------------------------------------------------------------------------- on a device
on_device = [
    pytest.mark.gpu,
    pytest.mark.skipif(INTERPRETING or not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


class TestOnDevice:
    pytestmark = on_device

    @pytest.mark.parametrize("dtype", [BF, I8])
    def test_split_products_are_right_and_measured(self, dtype: torch.dtype, tmp_path: Path) -> None:
        backend = TritonBackend(InductorSettings(max_autotune=True, cache_dir=str(tmp_path)))
        device = torch.device("cuda", torch.cuda.current_device())
        with _heard("autotune", "autotune_process_failed") as heard:
            backend.takes_product(MatrixProduct(dtype, device, 1, 64, 16384, 128, (0, 16384, 1), (0, 1, 16384)))
        (fields,) = heard
        assert fields["rejected"] == {}
        assert sum("parts" in c["choice"] for c in fields["choices"]) == 2, fields

    def test_a_candidate_that_breaks_the_device_is_rejected(self, tmp_path: Path) -> None:
        """One that writes far outside of its operands."""
        backend = TritonBackend(InductorSettings(max_autotune=True, cache_dir=str(tmp_path)))
        tuner = backend._tuner
        device = torch.device("cuda", torch.cuda.current_device())
        product = MatrixProduct(BF, device, 1, 256, 256, 256, (0, 256, 1), (0, 1, 256))
        kernel, buffers = product_kernel(product)
        real = tuner._candidates

        def with_a_bad_one(kernel: LoopKernel, buffers: Any, choices: Sequence[TileChoice]) -> list[Candidate | str]:
            made = real(kernel, buffers, choices)
            assert isinstance(made[1], Candidate)
            made[1] = attrs.evolve(made[1], launches=(attrs.evolve(made[1].launches[0], programs=1 << 28),))
            return made

        tuner._candidates = with_a_bad_one  # type: ignore[method-assign]
        with _heard("autotune") as heard:
            backend.takes_product(product)
        (fields,) = heard
        assert len(fields["rejected"]) == 1 and len(fields["choices"]) > 6
        assert torch.ones(3, device="cuda").sum().item() == 3  # this process knows nothing of it

    @pytest.mark.parametrize("name", CASES)
    def test_every_part_count_as_a_program(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        from torchjit_inductor import Inductor, InductorSettings

        function, specs = CASES[name]
        inputs = [torch.randn(s, device="cuda").mul(20 if d == I8 else 1).to(d) for s, d in specs]
        monkeypatch.setattr(ProductTuner, "promising", lambda self, product: True)
        monkeypatch.setattr("torchjit_inductor.triton.backend.settle_products", lambda program, fused, timer: program)
        for parts in (1, 2, 4):
            choice = TileChoice(32, 32, 32, 4, 2, parts=parts)
            monkeypatch.setattr(ProductTuner, "choice", lambda self, kernel, found, buffers, choice=choice: choice)
            made = Inductor(InductorSettings(max_autotune=True))(make_fx(function)(*inputs), inputs)(*inputs)
            torch.testing.assert_close(made[0], function(*inputs), rtol=2e-2, atol=2e-1)

    def test_coordinate_descent_keeps_results(self, tmp_path: Path) -> None:
        from torchjit_inductor import Inductor, InductorSettings

        def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return F.softmax(x * y, -1), (x + y).sum(0)

        inputs = [torch.randn(2048, 1000, device="cuda") for _ in range(2)]
        settings = InductorSettings(coordinate_descent_tuning=True, cache_dir=str(tmp_path))
        with _heard("autotune") as heard:
            made = Inductor(settings)(make_fx(function)(*inputs), inputs)(*inputs)
        assert heard and all(len(f["choices"]) > 2 for f in heard)
        for ours, theirs in zip(made, function(*inputs), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)  # sums in another order
        with _heard("autotune") as heard:
            Inductor(settings)(make_fx(function)(*inputs), inputs)(*inputs)
        assert not heard
