"""Products of matrices as Triton kernels (`max_autotune`), without a GPU: form, text, machine code, numbers, choice of tiles.

As in `test_inductor_triton.py`, numbers come from Triton's interpreter, in a process of its own, which also runs those of measured parts and of totals.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from inductor_interpreter import INTERPRETING, run_interpreted
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from triton.tools.tensor_descriptor import TensorDescriptor

from torchjit_core.events import start_listening, stop_listening
from torchjit_core.reasons import InvalidIR
from torchjit_inductor import Inductor, InductorSettings
from torchjit_inductor.ir.dtypes import EIGHT_BIT_FLOATS
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import Buffer, LoopKernel
from torchjit_inductor.lowering.contractions import MatrixProduct, Scales
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.lowering.grouped import Groups
from torchjit_inductor.measurements import Measurements
from torchjit_inductor.schedule.cleanup import drop_roundings, remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import ExternStep, KernelStep, Program, Step
from torchjit_inductor.triton.autotune import Measured, ProductTuner
from torchjit_inductor.triton.backend import TritonBackend
from torchjit_inductor.triton.compile import MachineCode, jit_function
from torchjit_inductor.triton.contraction import contraction, has_dot, key_of, plan_of
from torchjit_inductor.triton.descriptors import OperandTiles
from torchjit_inductor.triton.launch import KernelVariants
from torchjit_inductor.triton.product_kernel import product_kernel
from torchjit_inductor.triton.products import settle_products
from torchjit_inductor.triton.source import function_name, kernel_source
from torchjit_inductor.triton.specialisations import Variant
from torchjit_inductor.triton.tile_choices import ProductKey, TileChoice, candidates
from torchjit_inductor.triton.trial import exact_product, operands_of

compiled = pytest.mark.skipif(INTERPRETING, reason="compiles")
BF, F16, F32 = torch.bfloat16, torch.float16, torch.float32
ROWS = F.ScalingType.RowWise
I32 = torch.int32
E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2

Spec = tuple[tuple[int, ...], torch.dtype]


def _bf(*shapes: tuple[int, ...]) -> tuple[Spec, ...]:
    return tuple((s, BF) for s in shapes)


CASES: dict[str, tuple[Callable[..., Any], tuple[Spec, ...]]] = {
    "mm": (lambda a, b: a @ b, _bf((48, 40), (40, 33))),
    "linear": (lambda x, w, b: F.linear(x, w, b), _bf((2, 20, 64), (48, 64), (48,))),
    "linear_gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), _bf((33, 64), (48, 64), (48,))),
    "residual": (lambda x, w, r: torch.relu(x @ w.t()) + r, _bf((4, 17, 32), (40, 32), (4, 17, 40))),
    "left_turned": (lambda a, b: a.t() @ b, _bf((40, 48), (40, 32))),
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
    "scaled": (
        lambda a, b, s, t, c: F.relu(torch._scaled_mm(a, b.t(), s, t, c, out_dtype=BF)),
        (((48, 64), E4), ((32, 64), E4), ((), F32), ((), F32), ((32,), BF)),
    ),
    "scaled_rows": (
        lambda a, b, s, t, r: torch._scaled_mm(a, b.t(), s, t, out_dtype=BF, use_fast_accum=True) + r,
        (((48, 64), E4), ((32, 64), E5), ((48, 1), F32), ((1, 32), F32), ((48, 32), BF)),
    ),
    "grouped_rows": (
        lambda a, b, ends, s: F.silu(torch._grouped_mm(a, b.transpose(1, 2), offs=ends)) * s,
        (((96, 64), BF), ((3, 48, 64), BF), ((3,), I32), ((96, 1), F32)),
    ),
    "grouped_columns": (lambda a, b, ends: torch._grouped_mm(a, b, offs=ends), (((3, 40, 64), BF), ((64, 96), BF), ((3,), I32))),
    "grouped_depth": (
        lambda a, b, ends: torch._grouped_mm(a.t(), b, offs=ends) * 0.5, (((96, 32), BF), ((96, 48), BF), ((3,), I32)),
    ),
    "grouped_nothing": (lambda a, b: torch._grouped_mm(a, b) + 1, _bf((3, 32, 64), (3, 64, 48))),
    "wider_result": (lambda a, b, c: (a @ b).float() * c, (*_bf((48, 40), (40, 33)), ((33,), torch.float32))),
}  # fmt: skip


def program_of(name: str) -> Program:
    """The fused program of a case in which every product that can be a kernel is one."""
    return _program(*CASES[name])


def _program(function: Callable[..., Any], specs: tuple[Spec, ...]) -> Program:
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.empty(shape, dtype=dtype, device="cuda") for shape, dtype in specs]
        gm = make_fx(function)(*inputs)
    backend = TritonBackend(arch=90)
    program = lower_graph(gm, "graph", products=lambda product: True)
    fused = fuse(program, {}, accepts=lambda kernel: backend.unsupported(kernel, program.buffers) is None)
    return rename_kernels(drop_roundings(remove_dead_stores(fused)))


def kernels_of(program: Program) -> list[LoopKernel]:
    """Its kernels, in order, with merged loops."""
    return [merged(step.kernel) for step in program.steps if isinstance(step, KernelStep)]


FUSED = (
    "mm", "linear", "linear_gelu", "residual", "left_turned", "bmm", "baddbmm", "heads", "two_results", "half", "scaled", "scaled_rows",
    "grouped_rows", "grouped_columns", "grouped_depth", "grouped_nothing",
)  # fmt: skip


@compiled
@pytest.mark.parametrize("name", FUSED)
def test_what_follows_a_product_point_by_point_is_part_of_its_kernel(name: str) -> None:
    program = program_of(name)
    (kernel,) = kernels_of(program)
    kernel.verify(program.buffers)
    assert has_dot(kernel) and contraction(kernel, program.buffers) is not None
    assert not any(isinstance(step, ExternStep) for step in program.steps)


@compiled
@pytest.mark.parametrize(
    ("call", "kept"),
    [
        (lambda a, b, one, rows, columns, blocks: torch._scaled_mm(a, b.t(), one, one, out_dtype=F32), 1),
        (lambda a, b, one, rows, columns, blocks: F.scaled_mm(a, b.t(), rows, ROWS, columns, ROWS, output_dtype=BF), 1),
        (lambda a, b, one, rows, columns, blocks: torch._scaled_mm(a, b.t(), blocks, blocks.t(), out_dtype=BF), 0),
        (
            lambda a, b, one, rows, columns, blocks: torch._scaled_mm(
                a, b.t(), one, one, scale_result=one, out_dtype=E4
            ),
            0,
        ),
    ],
    ids=["tensors", "rows", "blocks", "scaled_result"],
)
def test_scales_of_tensors_and_rows_are_part_of_the_kernel(call: Callable[..., Any], kept: int) -> None:
    specs = (((64, 256), E4), ((64, 256), E4), ((), F32), ((64, 1), F32), ((1, 64), F32), ((64, 2), F32))
    with FakeTensorMode(allow_non_fake_inputs=True):
        try:
            gm = make_fx(call)(*(torch.empty(shape, dtype=dtype, device="cuda") for shape, dtype in specs))
        except RuntimeError as error:  # this torch knows no such scales
            pytest.skip(str(error))
    asked: list[MatrixProduct] = []

    def choice(product: MatrixProduct) -> bool:
        asked.append(product)
        return True

    program = lower_graph(gm, "graph", products=choice)
    assert [p.scales is not None for p in asked] == [True] * kept
    assert sum(isinstance(s, ExternStep) for s in program.steps) == 1 - kept


@compiled
def test_the_ends_of_groups_come_from_a_kernel_of_their_own() -> None:
    def function(a: torch.Tensor, b: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(a, b, offs=counts * 16) + 1

    program = _program(function, (((96, 64), BF), ((3, 64, 48), BF), ((3,), I32)))
    first, second = kernels_of(program)
    found = contraction(second, program.buffers)
    assert not has_dot(first) and found is not None and found.groups is not None
    assert found.groups.buffer in first.writes
    key = key_of(second, found, program.buffers)
    assert key is not None and (key.groups, key.along) == (3, "rows")
    assert not any(c.parts > 1 for c in candidates(attrs.evolve(key, depth=65536), 8))


@compiled
@pytest.mark.parametrize("along", ["rows", "columns", "depth"])
def test_what_candidates_are_compared_with_is_what_the_ir_means(along: str) -> None:
    sizes = {
        "rows": ((0, 40, 1), (2000, 1, 40)),
        "columns": ((2000, 40, 1), (0, 1, 40)),
        "depth": ((0, 40, 1), (0, 1, 40)),
    }[along]
    product = MatrixProduct(F32, torch.device("cpu"), 1, 50, 40, 50, *sizes, groups=Groups(3, along))
    memory = operands_of(product)
    assert memory["ends"].diff().gt(0).all() and memory["ends"][-1] == (40 if along == "depth" else 50)
    exact = exact_product(product, memory)
    kernel, _ = product_kernel(product)
    evaluate_kernel(
        kernel, {n: t.as_strided((t.untyped_storage().size() // t.itemsize,), (1,)) for n, t in memory.items()}
    )
    torch.testing.assert_close(memory["out"], exact)


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
COPIED = TileChoice(32, 16, 32, 4, 2, group=2, persistent=True, descriptors=True)


NUMERIC = [
    *((n, SMALL, False) for n in CASES if n not in ("linear", "left_turned", "scores")),
    *((n, TALL, True) for n in ("both_turned", "bmm", "heads")),
    *(
        (n, TURNS, wide)
        for n, wide in (("linear_gelu", False), ("bmm", True), ("grouped_rows", True), ("grouped_depth", False))
    ),
    *((n, COPIED, wide) for n, wide in (("linear_gelu", False), ("left_turned", True), ("heads", False))),
    *((n, COPIED, wide) for n, wide in (("grouped_rows", False), ("grouped_columns", True))),
]


def _described(operand: OperandTiles, memory: Mapping[str, torch.Tensor]) -> TensorDescriptor:
    """What stands for a descriptor in the interpreter."""
    base = memory[operand.buffer][operand.offset :]
    return TensorDescriptor(base, list(operand.sizes), [operand.step, 1], list(operand.tile))


@pytest.mark.parametrize(("name", "choice", "wide"), NUMERIC if INTERPRETING else [], ids=str)
def test_products_compute_what_the_ir_means(name: str, choice: TileChoice, wide: bool) -> None:
    program = program_of(name)
    generator = torch.Generator().manual_seed(0)
    memory: dict[str, torch.Tensor] = {}
    seen = 0
    for kernel in kernels_of(program):
        for buffer in kernel.buffers:
            made = torch.randn(program.buffers[buffer].span.evaluate({}), generator=generator)
            if program.buffers[buffer].dtype == I32:
                made = torch.tensor([40, 40, 83])  # an empty group, and something behind the last one
            memory.setdefault(buffer, made.to(program.buffers[buffer].dtype))
        expected = {n: t.clone() for n, t in memory.items()}
        evaluate_kernel(kernel, expected)
        found = contraction(kernel, program.buffers)
        if found is not None:
            seen += 1
            plan = plan_of(kernel, found, choice, program.buffers)
            assert bool(plan.operands) == choice.descriptors
            source = kernel_source(kernel, program.buffers, plan, wide=wide, portable=True)
            function = jit_function(source, function_name(kernel))
            described = [_described(o, memory) for o in plan.operands]
            function[(plan.programs.evaluate({}),)](*(memory[n] for n in kernel.buffers), *described)
            for buffer in kernel.writes:
                torch.testing.assert_close(memory[buffer], expected[buffer], rtol=2e-2, atol=2e-2)
        memory = expected
    assert seen == 1


def _code(name: str, arch: int, choice: TileChoice) -> MachineCode:
    program = program_of(name)
    (kernel,) = kernels_of(program)
    found = contraction(kernel, program.buffers)
    assert found is not None
    plan = plan_of(kernel, found, choice, program.buffers)
    return KernelVariants(kernel, program.buffers, plan, arch, {}).compile(Variant(True, False))


@compiled
@pytest.mark.parametrize(
    ("name", "arch"),
    [(n, a) for n in ("linear_gelu", "heads") for a in (80, 90)]
    + [("scaled", 90), ("grouped_rows", 90), ("grouped_depth", 80)],
)
def test_a_product_compiles_to_code_for_the_matrix_units(name: str, arch: int) -> None:
    code = _code(name, arch, TileChoice(64, 64, 32, 4, 3, persistent=name == "heads"))
    assert ("wgmma" if arch == 90 else "mma.sync") in code.ptx
    assert (".e4m3.e4m3" in code.ptx) == (name == "scaled")
    assert not code.descriptors


@compiled
@pytest.mark.parametrize("name", ["linear_gelu", "left_turned", "scaled_rows", "grouped_rows"])
def test_descriptors_become_copies_of_tiles(name: str) -> None:
    """Behind the addresses the entry point has for each descriptor itself by value, two sizes and two strides."""
    code = _code(name, 90, TileChoice(64, 64, 64, 4, 3, persistent=True, descriptors=True))
    assert "cp.async.bulk.tensor.2d" in code.ptx and "wgmma" in code.ptx
    assert len(code.descriptors) == 2
    entry = code.ptx[code.ptx.index(".entry") :]
    lines = [line.split() for line in entry[entry.index("(") + 1 : entry.index(")")].split(",")]
    first = next(n for n, line in enumerate(lines) if line[-1].endswith("[128]"))
    kinds = [line[3] if ".align" in line and ".b8" in line else line[1] for line in lines[first:]]
    assert kinds[:10] == [".b8", ".u32", ".u32", ".u64", ".u64"] * 2
    assert first == len(CASES[name][1]) + 1  # operands and the result
    assert code.parameters == len(lines)
    left, right = code.descriptors
    assert left.tiles.turned == (name == "left_turned") and right.tiles.turned == (name != "left_turned")
    assert all(d.box[1] * d.tiles.dtype.itemsize <= 128 for d in code.descriptors)


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
        ProductKey("bfloat16", 1, 64, 48, 32, True, False, described=True),
        ProductKey("bfloat16", 1, 64, 48, 32, True, True, described=True),
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
    backend = TritonBackend(arch=90)
    program = lower_graph(gm, "graph", products=lambda product: True)
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


@compiled
def test_numerics_in_the_interpreter() -> None:
    """Of this suite, of measured parts and of totals, in one process."""
    run_interpreted("triton_products")


# ------------------------------------------------------------------------------------------------------- on a device
on_device = [
    pytest.mark.gpu,
    pytest.mark.skipif(INTERPRETING or not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


def _on_device(function: Callable[..., Any], specs: tuple[Spec, ...], **settings: Any) -> list[str]:
    """Compile and compare with float32; the events of autotuning that it took."""
    inputs = [torch.randn(shape, device="cuda").to(dtype) for shape, dtype in specs]
    inputs = [torch.tensor([32, 48, 96], dtype=I32, device="cuda") if x.dtype == I32 else x for x in inputs]
    eager = any(
        dtype == I32 or dtype in EIGHT_BIT_FLOATS for _, dtype in specs
    )  # float32 operands cannot stand for these
    exact = function(*(inputs if eager else (x.float() for x in inputs)))
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
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=3e-2, atol=3e-2 * float(theirs.std()) + 3e-2)
    return found


class TestOnDevice:
    pytestmark = on_device

    @pytest.mark.parametrize("name", CASES)
    def test_every_product_as_a_kernel(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ProductTuner, "promising", lambda self, product: True)
        monkeypatch.setattr("torchjit_inductor.triton.backend.settle_products", lambda program, fused, timer: program)
        assert _on_device(*CASES[name]) == []

    @pytest.mark.parametrize("name", ["linear_gelu", "left_turned", "heads", "scaled_rows"])
    def test_operands_come_through_descriptors(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ProductTuner, "promising", lambda self, product: True)
        monkeypatch.setattr("torchjit_inductor.triton.backend.settle_products", lambda program, fused, timer: program)
        monkeypatch.setattr(ProductTuner, "choice", lambda self, kernel, found, buffers: COPIED)
        function, specs = CASES[name]
        flat = [torch.randn(math.prod(shape) + 16, device="cuda").to(dtype) for shape, dtype in specs]

        def inputs(first: int) -> list[torch.Tensor]:
            return [x[first:][: math.prod(s)].view(s) for x, (s, _) in zip(flat, specs, strict=True)]

        graph = Inductor(InductorSettings(max_autotune=True))(make_fx(function)(*inputs(0)), inputs(0))
        for first in (0, 16, 1, 0):  # other addresses, and one where rows begin anywhere
            given = inputs(first)
            if first == 1 and name == "scaled_rows":
                continue  # eager refuses it
            torch.testing.assert_close(graph(*given)[0], function(*given), rtol=3e-2, atol=5e-2)

    @pytest.mark.parametrize("choice", [SMALL, TURNS, COPIED, None], ids=["small", "turns", "copied", "aten"])
    def test_grouped_products_with_gradients(self, choice: TileChoice | None, monkeypatch: pytest.MonkeyPatch) -> None:
        """A group that is empty, and rows that belong to none."""
        monkeypatch.setattr(ProductTuner, "promising", lambda self, product: choice is not None)
        monkeypatch.setattr("torchjit_inductor.triton.backend.settle_products", lambda program, fused, timer: program)
        monkeypatch.setattr(ProductTuner, "choice", lambda self, kernel, found, buffers: choice)

        def function(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor, g: torch.Tensor) -> Any:
            y = F.silu(F.grouped_mm(x, w, offs=ends))
            return (y, *torch.autograd.grad(y, (x, w), g))

        x, w, g = (torch.randn(s, device="cuda").to(BF) for s in ((512, 128), (5, 128, 192), (512, 192)))
        x.requires_grad_()
        w.requires_grad_()
        ends = torch.tensor([64, 64, 208, 400, 448], dtype=I32, device="cuda")
        graph = Inductor(InductorSettings(max_autotune=True))(make_fx(function)(x, w, ends, g), [x, w, ends, g])
        with torch.no_grad():
            y, gx, gw = graph(x, w, ends, g)
        for number, (a, b) in enumerate(itertools.pairwise([0, 64, 64, 208, 400, 448])):
            xs, ws = (t.detach().float().requires_grad_() for t in (x[a:b], w[number]))
            want = F.silu(xs @ ws)
            wanted = (want.detach(), *torch.autograd.grad(want, (xs, ws), g[a:b].float()))
            for ours, theirs in zip((y[a:b], gx[a:b], gw[number]), wanted, strict=True):
                if choice is not None or b > a:
                    assert float((ours.float() - theirs).norm()) <= 1e-2 * float(theirs.norm())

    @pytest.mark.parametrize(
        "scales", [None, Scales(False, BF, True), Scales(False, F32, False), Scales(True, BF, False)], ids=str
    )
    @pytest.mark.parametrize("sizes", [(16, 128, 64), (300, 200, 100), (1024, 512, 768), (4096, 64, 4096)])
    def test_no_candidate_is_wrong(self, sizes: tuple[int, int, int], scales: Scales | None, tmp_path: Path) -> None:
        rows, depth, columns = sizes
        heard: list[dict[str, Any]] = []

        def hear(kind: str, fields: dict[str, Any]) -> None:
            if kind == "autotune":
                heard.append(fields)

        tuner = TritonBackend(InductorSettings(max_autotune=True, cache_dir=str(tmp_path)))
        device = torch.device("cuda", torch.cuda.current_device())
        start_listening(hear)
        try:
            for right in ((0, columns, 1), (0, 1, depth)):
                if scales is None:
                    tuner.takes_product(MatrixProduct(BF, device, 1, rows, depth, columns, (0, depth, 1), right))
            if scales is not None and rows != 300:  # which the library does not multiply
                product = MatrixProduct(E4, device, 1, rows, depth, columns, (0, depth, 1), right, None, scales)
                tuner.takes_product(product)
        finally:
            stop_listening(hear)
        rejected = [why for fields in heard for why in fields["rejected"].values()]
        assert all("bytes of shared memory" in why for why in rejected)
        # The library, the table's best, and besides some that cut the sum or have descriptors where that may pay.
        assert all(len(fields["choices"]) + len(fields["rejected"]) >= 9 for fields in heard)

    def test_measurements_are_kept(self, tmp_path: Path) -> None:
        function, specs = (lambda x, w: F.relu(x @ w)), _bf((512, 256), (256, 512))
        assert "autotune" in _on_device(function, specs, cache_dir=str(tmp_path))
        assert "autotune" not in _on_device(function, specs, cache_dir=str(tmp_path))

    def test_without_time_everything_stays_with_the_library(self, tmp_path: Path) -> None:
        function, specs = (lambda x, w: F.relu(x @ w)), _bf((520, 256), (256, 512))
        assert _on_device(function, specs, cache_dir=str(tmp_path), autotune_seconds=0.0) == []
