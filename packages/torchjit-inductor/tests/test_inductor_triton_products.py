"""Products of matrices as Triton kernels (`max_autotune`), without a GPU: form, text, machine code, numbers, choice of tiles.

As in `test_inductor_triton.py`, numbers come from Triton's interpreter, in a process of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_interpreter import INTERPRETING, run_interpreted
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_core.events import start_listening, stop_listening
from torchjit_core.reasons import InvalidIR
from torchjit_inductor import Inductor, InductorSettings
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import Buffer, LoopKernel
from torchjit_inductor.lowering.contractions import MatrixProduct
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.measurements import Measurements
from torchjit_inductor.schedule.cleanup import drop_roundings, remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import ExternStep, KernelStep, Program, Step
from torchjit_inductor.triton.autotune import Measured, ProductTuner
from torchjit_inductor.triton.backend import TritonBackend, TritonSettings
from torchjit_inductor.triton.compile import argument_type, compile_text, jit_function
from torchjit_inductor.triton.contraction import (
    ProductKey,
    TileChoice,
    candidates,
    contraction,
    has_dot,
    key_of,
    plan_of,
)  # fmt: skip
from torchjit_inductor.triton.emit import pointer_names
from torchjit_inductor.triton.normalize import merged
from torchjit_inductor.triton.product_kernel import product_kernel
from torchjit_inductor.triton.products import settle_products
from torchjit_inductor.triton.source import function_name, kernel_source

compiled = pytest.mark.skipif(INTERPRETING, reason="compiles")
BF, F16 = torch.bfloat16, torch.float16

Spec = tuple[tuple[int, ...], torch.dtype]


def _bf(*shapes: tuple[int, ...]) -> tuple[Spec, ...]:
    return tuple((s, BF) for s in shapes)


CASES: dict[str, tuple[Callable[..., Any], tuple[Spec, ...]]] = {
    "mm": (lambda a, b: a @ b, _bf((48, 40), (40, 33))),
    "linear": (lambda x, w, b: F.linear(x, w, b), _bf((2, 20, 64), (48, 64), (48,))),
    "linear_gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), _bf((33, 64), (48, 64), (48,))),
    "residual": (lambda x, w, r: torch.relu(x @ w.t()) + r, _bf((4, 17, 32), (40, 32), (4, 17, 40))),
    "left_turned": (lambda a, b: a.t() @ b, _bf((40, 50), (40, 33))),
    "both_turned": (lambda a, b: a.t() @ b.t(), _bf((40, 50), (33, 40))),
    "bmm": (lambda a, b: torch.bmm(a, b) * 0.5, _bf((3, 20, 32), (3, 32, 24))),
    "scores": (lambda q, k: torch.softmax((q @ k.transpose(-1, -2)) * 0.125, -1), _bf((2, 3, 20, 32), (2, 3, 24, 32))),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b), _bf((1, 20, 24), (3, 20, 32), (3, 32, 24))),
    "heads": (
        lambda x, w: (x.view(40, 32) @ w).view(2, 20, 3, 16).permute(0, 2, 1, 3).contiguous() + 1,
        _bf((2, 20, 32), (32, 48)),
    ),
    "two_results": (lambda x, w: ((y := x @ w), torch.sigmoid(y)), _bf((40, 32), (32, 48))),
    "half": (lambda a, b: torch.sigmoid(a @ b), (((48, 40), F16), ((40, 33), F16))),
    "wider_result": (lambda a, b, c: (a @ b).float() * c, (*_bf((48, 40), (40, 33)), ((33,), torch.float32))),
}  # fmt: skip


def program_of(name: str) -> Program:
    """The fused program of a case in which every product that can be a kernel is one."""
    function, specs = CASES[name]
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.empty(shape, dtype=dtype, device="cuda") for shape, dtype in specs]
        gm = make_fx(function)(*inputs)
    backend = TritonBackend(TritonSettings(arch=90))
    program = lower_graph(gm, "graph", features=lambda device: backend.features, products=lambda product: True)
    fused = fuse(program, {}, accepts=lambda kernel: backend.unsupported(kernel, program.buffers) is None)
    return rename_kernels(drop_roundings(remove_dead_stores(fused)))


def kernels_of(program: Program) -> list[LoopKernel]:
    """Its kernels, in order, with merged loops."""
    return [merged(step.kernel) for step in program.steps if isinstance(step, KernelStep)]


FUSED = ("mm", "linear", "linear_gelu", "residual", "left_turned", "bmm", "baddbmm", "heads", "two_results", "half")


@compiled
@pytest.mark.parametrize("name", FUSED)
def test_what_follows_a_product_point_by_point_is_part_of_its_kernel(name: str) -> None:
    program = program_of(name)
    (kernel,) = kernels_of(program)
    kernel.verify(program.buffers)
    assert has_dot(kernel) and contraction(kernel, program.buffers) is not None
    assert not any(isinstance(step, ExternStep) for step in program.steps)


@compiled
def test_a_softmax_of_a_product_stays_a_kernel_of_its_own() -> None:
    program = program_of("scores")
    first, second = (k for k in kernels_of(program))
    assert has_dot(first) and contraction(first, program.buffers) is not None
    assert not has_dot(second)


# In an ordinary run there is nothing to collect: the process that the last test starts does.
SMALL = TileChoice(32, 32, 32, 4, 2, group=2)
TURNS = TileChoice(16, 16, 32, 4, 2, group=2, persistent=True)
TALL = TileChoice(32, 16, 64, 4, 2, group=3)


NUMERIC = [
    *((n, SMALL, False) for n in CASES if n not in ("linear", "left_turned", "scores")),
    *((n, TALL, True) for n in ("both_turned", "bmm", "heads")),
    *((n, TURNS, wide) for n, wide in (("linear_gelu", False), ("bmm", True))),
]


@pytest.mark.parametrize(("name", "choice", "wide"), NUMERIC if INTERPRETING else [], ids=str)
def test_products_compute_what_the_ir_means(name: str, choice: TileChoice, wide: bool) -> None:
    program = program_of(name)
    generator = torch.Generator().manual_seed(0)
    memory: dict[str, torch.Tensor] = {}
    seen = 0
    for kernel in kernels_of(program):
        for buffer in kernel.buffers:
            made = torch.randn(program.buffers[buffer].span.evaluate({}), generator=generator)
            memory.setdefault(buffer, made.to(program.buffers[buffer].dtype))
        expected = {n: t.clone() for n, t in memory.items()}
        evaluate_kernel(kernel, expected)
        found = contraction(kernel, program.buffers)
        if found is not None:
            seen += 1
            plan = plan_of(kernel, found, choice)
            source = kernel_source(kernel, program.buffers, plan, wide=wide, portable=True)
            function = jit_function(source, function_name(kernel))
            function[(plan.programs.evaluate({}),)](*(memory[n] for n in kernel.buffers))
            for buffer in kernel.writes:
                torch.testing.assert_close(memory[buffer], expected[buffer], rtol=2e-2, atol=2e-2)
        memory = expected
    assert seen == 1


@compiled
def test_numbers_in_the_interpreter() -> None:
    run_interpreted(__file__)


@compiled
@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("name", ["linear_gelu", "heads"])
def test_a_product_compiles_to_code_for_the_matrix_units(name: str, arch: int) -> None:
    program = program_of(name)
    (kernel,) = kernels_of(program)
    found = contraction(kernel, program.buffers)
    assert found is not None
    plan = plan_of(kernel, found, TileChoice(64, 64, 32, 4, 3, persistent=name == "heads"))
    arguments = {p: argument_type(program.buffers[n].dtype) for n, p in pointer_names(kernel).items()}
    code = compile_text(
        kernel_source(kernel, program.buffers, plan), function_name(kernel), arguments, frozenset(arguments),
        arch=arch, num_warps=plan.num_warps, num_stages=plan.num_stages,
    )  # fmt: skip
    assert ("wgmma" if arch == 90 else "mma.sync") in code.ptx


@compiled
def test_the_text_reads_as_a_loop_over_tiles() -> None:
    program = program_of("linear_gelu")
    (kernel,) = kernels_of(program)
    found = contraction(kernel, program.buffers)
    assert found is not None
    text = kernel_source(kernel, program.buffers, plan_of(kernel, found, TileChoice(64, 64, 32, 4, 3)))
    assert text.count("tl.dot(") == 1 and text.count("tl.store(") == 1
    loop = text[text.index("for r_start") : text.index("acc = tl.dot")]
    assert loop.count("tl.load(") == 2 and ".to(tl.float32)" not in loop


@compiled
def test_a_product_that_reads_what_it_writes_is_refused() -> None:
    product = MatrixProduct(BF, torch.device("cuda", 0), 1, 32, 32, 32, (0, 32, 1), (0, 32, 1))
    kernel, buffers = product_kernel(product)
    kernel.verify(buffers)
    assert contraction(kernel, buffers) is not None
    wrong = {**buffers, "left": buffers["left"].__class__("left", torch.float32, product.device, (), ())}
    assert contraction(kernel, wrong) is None
    with pytest.raises(InvalidIR):
        kernel.verify({"left": buffers["left"]})


@compiled
def test_keys_tell_layouts_and_sizes_apart() -> None:
    device = torch.device("cuda", 0)
    plain = MatrixProduct(BF, device, 1, 64, 32, 48, (0, 32, 1), (0, 48, 1))
    turned = MatrixProduct(BF, device, 1, 64, 32, 48, (0, 32, 1), (0, 1, 32))
    batched = MatrixProduct(F16, device, 5, 64, 32, 48, (2048, 32, 1), (1536, 48, 1))
    keys = []
    for product in (plain, turned, batched):
        kernel, buffers = product_kernel(product)
        found = contraction(kernel, buffers)
        assert found is not None
        keys.append(key_of(kernel, found, buffers))
    assert keys == [
        ProductKey("bfloat16", 1, 64, 48, 32, True, False),
        ProductKey("bfloat16", 1, 64, 48, 32, True, True),
        ProductKey("float16", 5, 64, 48, 32, True, False),
    ]


@compiled
def test_small_products_are_tried_with_small_tiles_and_large_ones_with_large() -> None:
    small = candidates(ProductKey("bfloat16", 1, 16, 4096, 4096, True, True), 3)
    assert all(c.rows == 16 for c in small[:2])
    large = candidates(ProductKey("bfloat16", 1, 8192, 8192, 8192, True, True), 3)
    assert all(c.rows * c.columns >= 16384 for c in large)
    assert any(c.persistent for c in large)
    for key in (  # too few tiles for turns; memory that runs across the depth
        ProductKey("bfloat16", 1, 512, 512, 512, True, True),
        ProductKey("bfloat16", 1, 8192, 8192, 8192, True, False),
    ):
        assert not any(c.persistent for c in candidates(key, 30))


@compiled
def test_only_kernels_near_the_librarys_time_are_tried_with_what_follows() -> None:
    choice = TileChoice(64, 64, 32, 4, 3)
    assert Measured(200e-6, ((210e-6, choice),)).promising
    assert not Measured(200e-6, ((400e-6, choice),)).promising
    assert not Measured(200e-6, ()).promising


# ------------------------------------------------------------------------------------- which products stay kernels
def _settled(cost_of_kernel: float, cost_of_call: float) -> tuple[Program, list[str]]:
    """Two products, one with a GELU behind; steps take what the arguments say, pointwise kernels 1."""

    def function(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.gelu(x @ w) @ v

    with FakeTensorMode(allow_non_fake_inputs=True):
        gm = make_fx(function)(*(torch.empty(s, dtype=BF, device="cuda") for s in ((40, 32), (32, 48), (48, 64))))
    backend = TritonBackend(TritonSettings(arch=90))
    program = lower_graph(gm, "graph", features=lambda device: backend.features, products=lambda product: True)
    asked: list[str] = []

    def fused(p: Program) -> Program:
        return rename_kernels(drop_roundings(remove_dead_stores(fuse(p, {}))))

    class Timer:
        def look(self, step: Step, buffers: Mapping[str, Buffer]) -> str:
            what = "dot" if isinstance(step, KernelStep) and has_dot(step.kernel) else type(step).__name__
            return f"{what} {[buffers[n].sizes for n in step.writes]}"

        def seconds(self, step: Step, buffers: Mapping[str, Buffer]) -> float:
            asked.append(self.look(step, buffers))
            if isinstance(step, ExternStep):
                return cost_of_call
            return cost_of_kernel if has_dot(step.kernel) else 1.0

        def wins_alone(self, kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> bool:
            return cost_of_kernel < cost_of_call

    return settle_products(program, fused, Timer()), asked


@compiled
@pytest.mark.parametrize(("kernel", "call", "kept"), [(10.0, 10.0, 1), (10.0, 8.0, 0), (9.0, 10.0, 2)])
def test_a_product_stays_a_kernel_where_the_program_gets_faster(kernel: float, call: float, kept: int) -> None:
    """Level with the library, the product that takes in the GELU wins (10 against 10 + 1), the other does not."""
    program, asked = _settled(kernel, call)
    assert len(program.products) == kept
    assert sum(isinstance(s, ExternStep) for s in program.steps) == 2 - kept
    assert sum(isinstance(s, KernelStep) and has_dot(s.kernel) for s in program.steps) == kept
    assert len(asked) == 3  # the kernel with the GELU, the call and the GELU by itself


@compiled
def test_what_was_measured_is_read_again_and_what_is_damaged_is_not(tmp_path: Path) -> None:
    def valid(value: Any) -> float:
        return float(value["seconds"])

    first = Measurements(str(tmp_path), "times", lambda: "this machine", valid)
    first.put("a", {"seconds": 2})
    assert first.get("a") == 2.0 and first.get("b") is None
    assert Measurements(str(tmp_path), "times", lambda: "this machine", valid).get("a") == 2.0
    assert Measurements(str(tmp_path), "times", lambda: "another machine", valid).get("a") is None
    (file,) = tmp_path.rglob("times.json")
    file.write_text(json.dumps({"machine": "this machine", "times": {"a": {"seconds": "soon"}}}))
    assert Measurements(str(tmp_path), "times", lambda: "this machine", valid).get("a") is None
    file.write_text("no json")
    assert Measurements(str(tmp_path), "times", lambda: "this machine", valid).get("a") is None


# ------------------------------------------------------------------------------------------------------- on a device
on_device = [
    pytest.mark.gpu,
    pytest.mark.skipif(INTERPRETING or not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


def _on_device(function: Callable[..., Any], specs: tuple[Spec, ...], **settings: Any) -> list[str]:
    """Compile and compare with float32; the events of autotuning that it took."""
    inputs = [torch.randn(shape, device="cuda").to(dtype) for shape, dtype in specs]
    exact = function(*(x.float() for x in inputs))
    gm = make_fx(function)(*inputs)
    found: list[str] = []

    def hear(kind: str, fields: dict[str, Any]) -> None:
        if kind in ("autotune", "product_settled"):
            found.append(kind)

    start_listening(hear)
    try:
        compiled_graph = Inductor(InductorSettings(max_autotune=True, **settings))(gm, inputs)
        made = compiled_graph(*inputs)
    finally:
        stop_listening(hear)
    for ours, theirs in zip(made, exact if isinstance(exact, tuple) else (exact,), strict=True):
        torch.testing.assert_close(ours.float(), theirs, rtol=3e-2, atol=3e-2 * float(theirs.std()) + 3e-2)
    return found


class TestOnDevice:
    pytestmark = on_device

    @pytest.mark.parametrize("name", CASES)
    def test_every_product_as_a_kernel(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ProductTuner, "promising", lambda self, product: True)
        monkeypatch.setattr("torchjit_inductor.triton.backend.settle_products", lambda program, fused, timer: program)
        assert _on_device(*CASES[name]) == []

    @pytest.mark.parametrize("sizes", [(16, 128, 64), (300, 200, 100), (1024, 512, 768), (4096, 64, 4096)])
    def test_no_candidate_is_wrong(self, sizes: tuple[int, int, int], tmp_path: Path) -> None:
        rows, depth, columns = sizes
        heard: list[dict[str, Any]] = []

        def hear(kind: str, fields: dict[str, Any]) -> None:
            if kind == "autotune":
                heard.append(fields)

        tuner = TritonBackend(TritonSettings(max_autotune=True, cache_dir=str(tmp_path)))
        device = torch.device("cuda", torch.cuda.current_device())
        start_listening(hear)
        try:
            for right in ((0, columns, 1), (0, 1, depth)):
                tuner.takes_product(MatrixProduct(BF, device, 1, rows, depth, columns, (0, depth, 1), right))
        finally:
            stop_listening(hear)
        assert [fields["rejected"] for fields in heard] == [{}, {}]
        # The library, the table's best, and two that cut the sum where that may pay.
        assert all(len(fields["choices"]) in (9, 11) for fields in heard)

    def test_measurements_are_kept(self, tmp_path: Path) -> None:
        function, specs = (lambda x, w: F.relu(x @ w)), _bf((512, 256), (256, 512))
        assert "autotune" in _on_device(function, specs, cache_dir=str(tmp_path))
        assert "autotune" not in _on_device(function, specs, cache_dir=str(tmp_path))

    def test_without_time_everything_stays_with_the_library(self, tmp_path: Path) -> None:
        function, specs = (lambda x, w: F.relu(x @ w)), _bf((520, 256), (256, 512))
        assert _on_device(function, specs, cache_dir=str(tmp_path), autotune_seconds=0.0) == []
