"""Machine code and launching of Triton kernels, without a GPU: cubins for sm_80 and sm_90, and a driver that records."""

from __future__ import annotations

import ctypes
import re
import subprocess
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
import triton
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from torchjit_core.expr import Symbol, as_expr, constant, minimum
from torchjit_core.storing import how_made, made_by
from torchjit_inductor import Inductor, InductorSettings
from torchjit_inductor.attention.kernels import AttentionKernels
from torchjit_inductor.attention.sizes import NOTHING
from torchjit_inductor.attention.writer import KernelText, Tiles
from torchjit_inductor.codegen_protocol import CompiledKernel
from torchjit_inductor.ir import values as ir
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Store
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.passes import run_passes
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import KernelStep, Program
from torchjit_inductor.triton import cuda
from torchjit_inductor.triton.backend import TritonBackend
from torchjit_inductor.triton.compile import MachineCode
from torchjit_inductor.triton.cuda import LaunchSignature, LoadedKernel
from torchjit_inductor.triton.launch import KernelVariants
from torchjit_inductor.triton.occupancy import registers_of
from torchjit_inductor.triton.plan import NARROW, make_plan
from torchjit_inductor.triton.size_arguments import with_size_arguments
from torchjit_inductor.triton.specialisations import Specialisations, launcher_of

BF, F32, I32, I64 = torch.bfloat16, torch.float32, torch.int32, torch.int64
DEVICE = torch.device("cuda", 0)


@attrs.define
class Launch:
    """One call of the fake `cuLaunchKernel`."""

    code: MachineCode
    programs: int
    threads: int
    shared: int
    stream: int
    values: list[int]


class RecordingDriver:
    """Loads anything, launches nothing, remembers everything."""

    def __init__(self) -> None:
        self.codes: list[MachineCode] = []
        self.launches: list[Launch] = []
        self.fail_next = 0

    def load(self, code: MachineCode, device: int) -> LoadedKernel:
        self.codes.append(code)

        def launch(function: Any, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, *rest: Any) -> int:
            shared, stream, pointers, extra = rest
            assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, None)
            values = [ctypes.c_uint64.from_address(p).value for p in pointers]
            if self.fail_next:
                self.fail_next -= 1
                return 201
            self.launches.append(Launch(code, gx, bx, shared, stream.value or 0, values))
            return 0

        def recover(error: int, again: Callable[[], int]) -> None:
            if again():
                raise RuntimeError(f"error {error}")

        return LoadedKernel(launch, 1234, code, recover)

    def stream(self, device: int) -> int:
        return 77 + device

    def launcher(
        self, load: Callable[[int], LoadedKernel], device: int, signature: LaunchSignature
    ) -> Callable[..., None] | None:
        return None


def program_of(function: Callable[..., Any], *inputs: tuple[tuple[int, ...], torch.dtype]) -> Program:
    """The fused program of a function."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        gm = make_fx(function)(*[torch.empty(s, dtype=d, device="cuda:0") for s, d in inputs])
    program = lower_graph(gm, "graph")
    return rename_kernels(remove_dead_stores(fuse(program, {})))


def compile_function(
    function: Callable[..., Any], *inputs: tuple[tuple[int, ...], torch.dtype], arch: int = 90
) -> tuple[list[Any], RecordingDriver]:
    """Compiled kernels of a function, and the driver that they launch on."""
    program = program_of(function, *inputs)
    driver = RecordingDriver()
    kernels = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
    backend = TritonBackend(None, driver, arch)
    assert [backend.unsupported(k, program.buffers) for k in kernels] == [None] * len(kernels)
    return list(backend.compile(kernels, program.buffers, graph="graph", hints={})), driver


def code_of(function: Callable[..., Any], *inputs: tuple[tuple[int, ...], torch.dtype], arch: int = 90) -> MachineCode:
    """Machine code of a function that becomes one kernel, as it is launched for aligned addresses."""
    (kernel,), driver = compile_function(function, *inputs, arch=arch)
    kernel.launch(*([4096] * _pointer_count(kernel.source)))
    return driver.codes[0]


def _pointer_count(source: str) -> int:
    return len(re.findall(r"^# (?:in|out)\d+ =", source, re.MULTILINE))


def resources(code: MachineCode, tmp_path: Path) -> dict[str, int]:
    """REG, STACK, LOCAL ... of a cubin, from the cuobjdump that comes with Triton."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        pytest.skip("this Triton has no cuobjdump")
    file = tmp_path / "kernel.cubin"
    file.write_bytes(code.cubin)
    text = subprocess.run([str(tool), "--dump-resource-usage", str(file)], capture_output=True, text=True, check=True)
    return {k: int(v) for k, v in re.findall(r"(\w+):(\d+)", text.stdout)}


ROWS = ((16384, 4096), BF)
VECTOR = ((4096,), BF)
HALF_F32 = ((8192, 4096), F32)
LARGE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "copy_scale": (lambda x: x * 2.0, (ROWS,)),
    "add_relu_mul_f32": (lambda x, y, z: F.relu(x + y) * z, (HALF_F32, HALF_F32, HALF_F32)),
    "softmax_4k": (lambda x: F.softmax(x, -1), (ROWS,)),
    "softmax_64k": (lambda x: F.softmax(x, -1), (((1024, 65536), BF),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4096,), w, b), (ROWS, VECTOR, VECTOR)),
    "add_layer_norm": (lambda x, r, w, b: F.layer_norm(x + r, (4096,), w, b), (ROWS, ROWS, VECTOR, VECTOR)),
    "sum_inner": (lambda x: x.float().sum(-1), (ROWS,)),
    "batch_norm": (lambda x: F.relu(F.batch_norm(x, None, None, training=True)), (((32, 256, 64, 128), BF),)),
    "transpose_add": (lambda x, y: x.t() + y, (((4096, 16384), BF), ROWS)),
    "quantize": (lambda x: (x.float() / x.float().abs().amax(-1, keepdim=True) * 127).round().to(torch.int8), (ROWS,)),
}


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("name", LARGE)
def test_large_kernels_load_wide_and_do_not_spill(name: str, arch: int, tmp_path: Path) -> None:
    function, inputs = LARGE[name]
    code = code_of(function, *inputs, arch=arch)
    assert f".target sm_{arch}" in code.ptx
    loads = re.findall(r"ld\.global[\w.:]*", code.ptx)
    assert loads and all(".v4.b32" in x or ".v8.b32" in x for x in loads), sorted(set(loads))
    used = resources(code, tmp_path)
    assert registers_of(code.cubin) == used["REG"]
    assert used["STACK"] <= (0 if arch == 90 else 16) and used["LOCAL"] == 0, used
    # A batch norm's cache has room for one program of each multiprocessor.
    programs = 1 if name == "batch_norm" else 2
    assert 65536 // used["REG"] // code.threads >= programs, (
        f"{programs} programs do not fit on a multiprocessor: {used}"
    )
    assert programs == 2 or used["REG"] * code.threads > 65536 // 2


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda a, b: torch.cat([a, b], 1), (((512, 50256), BF), ((512, 1), BF))),
        (lambda a, b: a + b, (((512, 5025), F32), ((5025,), F32))),
    ],
    ids=["a column beside a matrix", "a bias"],
)
def test_rows_that_begin_anywhere_are_stored_as_one_run(function: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    code = code_of(function, *inputs, arch=90)
    stores = re.findall(r"st\.global[\w.:]*", code.ptx)
    assert stores and all(".v4.b32" in s for s in stores), sorted(set(stores))


@pytest.mark.parametrize(("columns", "arch"), [(64, 80), (4097, 90)])
def test_elements_that_share_a_divisor_take_one_slow_operation_each(columns: int, arch: int) -> None:
    code = code_of(LARGE["quantize"][0], ((16384, columns), BF), arch=arch)
    # Rounding is part of the conversion; divisions beside that by the row's number are behind a branch.
    assert re.search(r"cvt\.rni(\.ftz)?\.s32\.f32", code.ptx) and "cvt.rni.f32.f32" not in code.ptx
    assert "bra DIVIDED" in code.ptx


def test_few_programs_that_read_twice_are_large() -> None:
    function, inputs = LARGE["batch_norm"]
    (kernel,), _ = compile_function(function, *inputs)
    # One on each multiprocessor, in two turns; the cache keeps half of each row for the second reading, which begins there.
    assert "16384 of 262144 reduced; 32 warps; programs: 256" in kernel.source
    runs = [line.strip() for line in kernel.source.splitlines() if line.strip().startswith("for ")]
    assert runs == [f"for r_start in range({n}, {n + 131072}, 16384):" for n in (0, 131072)] + [
        "for r_left in range(0, 262144, 16384):"
    ]
    hints = re.findall(r"tl\.(load|store)\(.*eviction_policy=\"(\w+)\"", kernel.source)
    assert hints == [("load", "evict_first"), ("load", "evict_last"), ("load", "evict_first"), ("store", "evict_first")]
    for images, warps in ((24, 32), (48, 16)):  # of 1.5 MiB a channel, the cache keeps too little
        (kernel,), _ = compile_function(function, ((images, 256, 64, 128), F32))
        assert f"{warps} warps; programs: 256" in kernel.source
    (kernel,), _ = compile_function(function, ((32, 1024, 64, 128), BF))
    assert " 8 warps; programs: 1024" in kernel.source


@pytest.mark.parametrize("name", ["softmax_4k", "layer_norm", "add_layer_norm"])
def test_rows_are_read_once(name: str) -> None:
    function, inputs = LARGE[name]
    (kernel,), _ = compile_function(function, *inputs)
    assert "for " not in kernel.source
    assert kernel.source.count("tl.load") == len(inputs)


def test_a_narrow_store_needs_no_mask_where_the_sizes_divide() -> None:
    (kernel,), _ = compile_function(lambda x: x * 2.0, ROWS)
    assert "mask" not in kernel.source
    (kernel,), _ = compile_function(lambda x: x * 2.0, ((513, 1001), BF))
    assert "x_mask" in kernel.source


@pytest.mark.parametrize("arch", [80, 90])
def test_gathers_scatters_and_scans_become_machine_code(arch: int) -> None:
    def function(i: torch.Tensor, e: torch.Tensor, g: torch.Tensor) -> Any:
        grad = torch.ops.aten.embedding_dense_backward(g, i, 500, -1, False)
        return F.embedding(i, e) + 1, grad, g.float().cumsum(1)

    kernels, _ = compile_function(function, ((96,), I64), ((500, 128), BF), ((96, 128), BF), arch=arch)
    text = "\n".join(k.source for k in kernels)
    assert "tl.device_assert" in text and "tl.atomic_add" in text and "tl.cumsum" in text


@pytest.mark.parametrize("arch", [80, 90])
def test_sorts_become_machine_code_without_spilling(arch: int, tmp_path: Path) -> None:
    (kernel,), driver = compile_function(
        lambda x, w: torch.sort(x * w, stable=True), ((4096, 50), BF), ((50,), BF), arch=arch
    )
    assert kernel.source.count("tl.sort") == 1
    kernel.launch(*([4096] * 4))
    used = resources(driver.codes[0], tmp_path)
    assert used["STACK"] <= (0 if arch == 90 else 16) and used["LOCAL"] == 0, used


def test_launch_passes_addresses_grid_and_stream() -> None:
    (kernel,), driver = compile_function(lambda x, y: x + y, ((1000, 1000), F32), ((1000, 1000), F32))
    kernel.launch(16, 32, 2**40)
    (launch,) = driver.launches
    assert launch.values[:3] == [16, 32, 2**40]
    assert launch.values[3:] == [0] * (len(launch.values) - 3)
    assert launch.programs * 1024 >= 1000 * 1000
    assert (launch.threads, launch.stream) == (launch.code.threads, 77)


def test_unaligned_addresses_get_code_that_does_not_suppose_alignment() -> None:
    (kernel,), driver = compile_function(lambda x: x * 2.0, ROWS)
    kernel.launch(16, 32)
    kernel.launch(16, 34)
    kernel.launch(18, 32)
    kernel.launch(48, 64)
    assert len(driver.codes) == 2
    assert [launch.code is driver.codes[0] for launch in driver.launches] == [True, False, False, True]
    assert ".v4.b32" in driver.codes[0].ptx
    assert not re.search(r"ld\.global[\w.:]*v\d", driver.codes[1].ptx)


def test_a_failed_launch_is_tried_again_then_raised() -> None:
    (kernel,), driver = compile_function(lambda x: x * 2.0, ROWS)
    driver.fail_next = 1
    kernel.launch(16, 32)
    assert len(driver.launches) == 1
    driver.fail_next = 2
    with pytest.raises(RuntimeError, match="error 201"):
        kernel.launch(16, 32)


def test_the_c_launcher_passes_arguments_and_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_void_p,
    )  # fmt: skip
    seen: list[tuple[Any, ...]] = []
    answers = [0, 0, 0, 201]

    def launch(function: int, *rest: Any) -> int:
        *sizes, stream, pointers, _ = rest
        values = [ctypes.c_uint64.from_address(pointers[n]).value for n in range(4)]
        seen.append((function, tuple(sizes), stream, values))
        return answers.pop(0)

    monkeypatch.setattr(cuda, "_raw_stream", lambda device: 77 + device)
    held = kind(launch)
    code = MachineCode("k", b"", "", threads=128, shared=64, parameters=4)
    loads: list[int] = []
    again: list[tuple[int, ...]] = []

    def load(aligned: int) -> LoadedKernel:
        loads.append(aligned)

        def refused(*args: Any) -> int:
            again.append(args[1:3])
            return 0

        return LoadedKernel(refused, 5 + aligned, code, lambda error, retry: None)

    address = ctypes.cast(held, ctypes.c_void_p).value
    assert address is not None
    made = cuda.c_launcher(address, load, 1, LaunchSignature(2, 9))
    if made is None:
        pytest.skip("the C extension is not built")
    made(16, 2**63)
    made(16, 40)
    made(32, 48)
    assert loads == [cuda.ALIGNED, 0]
    assert seen[0] == (6, (9, 1, 1, 128, 1, 1, 64), 78, [16, 2**63, 0, 0])
    assert seen[1][0] == 5 and seen[1][3] == [16, 40, 0, 0] and seen[2][0] == 6
    made(32, 48)
    assert again == [(9, 1)]
    with pytest.raises(TypeError, match="takes 2 arguments"):
        made(1)
    with pytest.raises(TypeError, match="no address"):
        made(1, 2.5)


def test_nothing_is_launched_for_nothing() -> None:
    (kernel,), driver = compile_function(lambda x: x * 2.0, ((0, 5), F32))
    kernel.launch(16, 32)
    assert driver.launches == []


def test_attention_of_nothing_launches_nothing() -> None:
    """No programs are not programs of which the call says how many."""
    driver, asked = RecordingDriver(), list[LaunchSignature]()
    driver.launcher = lambda load, device, signature: asked.append(signature)  # type: ignore[method-assign]
    kernels, tiles = AttentionKernels(driver, lambda device: 90, 1), Tiles(16, 16, 4, 1)
    for programs in (0, 3):
        text = KernelText("attention", "", ("query", "result"), programs, tiles)
        kernels._bound(lambda aligned: _never(), 0, text, NOTHING)
    assert [signature.programs for signature in asked] == [3]
    kernels._bound(lambda aligned: _never(), 0, KernelText("attention", "", ("query",), 0, tiles), NOTHING)(16)


def _never() -> LoadedKernel:
    raise AssertionError("nothing to launch")


def test_repeated_kernels_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.mm(F.relu(x) + 1, w)
        return x

    calls: list[object] = []
    compile_text = triton.compile

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return compile_text(*args, **kwargs)

    monkeypatch.setattr(triton, "compile", counted)
    kernels, _ = compile_function(function, ((64, 64), F32), ((64, 64), F32))
    assert len(kernels) == 4
    assert len(calls) == 1  # whichever thread comes second waits for the first


def test_operators_called_one_by_one_can_be_recorded_unless_they_wait_for_the_device() -> None:
    inductor = Inductor(InductorSettings(fallback_only=True))

    def graph(function: Any) -> Any:
        with FakeTensorMode(shape_env=ShapeEnv()) as mode, mode:
            return inductor(make_fx(function)(torch.empty(4, 4, device="cuda")), ())

    assert graph(lambda x: x.sin() @ x).reason_not_recordable is None
    assert "nonzero" in str(graph(lambda x: x.nonzero()).reason_not_recordable)
    assert graph(lambda x: x.cpu() + 1).reason_not_recordable == "not on one CUDA device"


def test_scratch_of_a_split_reduction_is_a_buffer_of_the_program() -> None:
    program = program_of(lambda x: x.float().sum(), ROWS)
    driver = RecordingDriver()
    backend = TritonBackend(None, driver, 90)
    program = run_passes(program, backend.passes({}))
    first, second = (s.kernel for s in program.steps if isinstance(s, KernelStep))
    (scratch,) = first.writes
    assert second.reads == (scratch,)
    assert program.buffers[scratch].span.value == first.outer[0].size.value
    for kernel in backend.compile([first, second], program.buffers, graph="graph", hints={}):
        kernel.launch(16, 32)
    assert driver.launches[0].programs > 100 and driver.launches[1].programs == 1


# ------------------------------------------------------------------------------------------------ symbolic sizes


def symbolic_scale() -> tuple[LoopKernel, dict[str, Buffer], Symbol]:
    """out[x0, x1] = in[x0, x1] * 2 over n rows of 64."""
    n = Symbol("s0")
    rows, columns = Symbol("x0", 0), Symbol("x1", 0, 63)
    index = as_expr(rows) * 64 + as_expr(columns)
    sizes, strides = (as_expr(n), constant(64)), (constant(64), constant(1))
    buffers = {name: Buffer(name, F32, DEVICE, sizes, strides) for name in ("a", "b")}
    value = ir.apply("mul", ir.load("a", index, F32), ir.constant(2.0, F32))
    loops = (LoopVar(rows, as_expr(n)), LoopVar(columns, constant(64)))
    return LoopKernel("fused_mul_0", DEVICE, loops, (), (Store("b", index, value),)), buffers, n


def symbolic_softmax() -> tuple[LoopKernel, dict[str, Buffer], Symbol]:
    """A softmax of 8 rows of n."""
    n = Symbol("s0")
    rows, columns = Symbol("x0", 0, 7), Symbol("r0", 0)
    index = as_expr(rows) * as_expr(n) + as_expr(columns)
    sizes, strides = (constant(8), as_expr(n)), (as_expr(n), constant(1))
    buffers = {name: Buffer(name, F32, DEVICE, sizes, strides) for name in ("a", "b")}
    value = ir.load("a", index, F32)
    shifted = ir.apply("exp", ir.apply("sub", value, ir.reduce("max", value)))
    result = ir.apply("div", shifted, ir.reduce("sum", shifted))
    outer, inner = (LoopVar(rows, constant(8)),), (LoopVar(columns, as_expr(n)),)
    return LoopKernel("fused_softmax_0", DEVICE, outer, inner, (Store("b", index, result),)), buffers, n


def launch_at(kernel: CompiledKernel, launch: Callable[..., Any], sizes: dict[Symbol, int], *addresses: int) -> None:
    """What a host program does."""
    launch(*addresses, *(e.evaluate(sizes) for e in kernel.arguments or ()))


def test_symbolic_sizes_choose_grid_and_width_at_launch() -> None:
    kernel, buffers, symbol = symbolic_scale()
    driver = RecordingDriver()
    (made,) = TritonBackend(None, driver, 90).compile([kernel], buffers, graph="g", hints={symbol: 4096})
    for size in (4096, 33, 2**26, 0):
        launch_at(made, made.launch, {symbol: size}, 16, 32)
    grids = [launch.programs for launch in driver.launches]
    block = int(re.search(r"tl.arange\(0, (\d+)\)", made.source)[1])  # type: ignore[index]
    assert grids == [-(-64 * rows // block) for rows in (4096, 33, 2**26)]
    assert driver.launches[1].values[2] == 33
    wide = [launch.code.ptx.count(".param .u64") for launch in driver.launches]
    assert wide[0] == wide[1] < wide[2], "2**32 elements need 64-bit sizes"


def test_symbolic_rows_compile_and_specialise_on_divisibility() -> None:
    kernel, buffers, symbol = symbolic_softmax()
    driver = RecordingDriver()
    (made,) = TritonBackend(None, driver, 90).compile([kernel], buffers, graph="g", hints={symbol: 512})
    for size in (512, 513, 1024, 515):
        launch_at(made, made.launch, {symbol: size}, 16, 32)
    first, second = driver.codes
    assert ".v4.b32" in first.ptx or ".v2.b32" in first.ptx
    assert not re.search(r"ld\.global[\w.:]*v\d", second.ptx)


def test_rows_of_known_length_have_one_code_for_all_sizes() -> None:
    """What divides how many rows there are makes no wider accesses; code of its own would be compiled when other sizes come."""
    kernel, buffers, symbol = symbolic_scale()
    driver = RecordingDriver()
    (made,) = TritonBackend(None, driver, 90).compile([kernel], buffers, graph="g", hints={symbol: 4096})
    for size in (4096, 33, 35):
        launch_at(made, made.launch, {symbol: size}, 16, 32)
    assert len(driver.codes) == 1


def halved(times: int) -> tuple[LoopKernel, dict[str, Buffer], Symbol]:
    """Rows of 3 channels of images whose side was halved so often, every second one, from columns that end with the image."""
    side = Symbol("s0", 2)
    size = as_expr(side)
    for _ in range(times):
        size = (size + 1) // 2
    before, rows, columns = (size + 1) * 2, Symbol("x0", 0), Symbol("x1", 0)
    index = as_expr(rows) * size * 3 + as_expr(columns)
    place = as_expr(rows) * before * 3 + minimum(as_expr(columns) * 2, before - 1)
    sizes, strides = (size, size), (size * 3, constant(1))
    buffers = {"b": Buffer("b", F32, DEVICE, sizes, strides)}
    buffers["a"] = Buffer("a", F32, DEVICE, (size, before), (before * 3, constant(1)))
    value = ir.apply("mul", ir.load("a", place, F32), ir.constant(2.0, F32))
    loops = (LoopVar(rows, size), LoopVar(columns, size))
    return LoopKernel(f"fused_halve_{times}", DEVICE, loops, (), (Store("b", index, value),)), buffers, side


def test_sizes_that_divide_sizes_are_computed_by_the_host() -> None:
    """Kernels of equal form have one text, however often their sizes were divided; it computes what the kernel means."""
    texts = set()
    for times in (2, 3, 4):
        kernel, buffers, side = halved(times)
        driver = RecordingDriver()
        (made,) = TritonBackend(None, driver, 90).compile([kernel], buffers, graph="g", hints={side: 2**15})
        texts.add(made.source[made.source.index("@triton.jit") :])
        launch_at(made, made.launch, {side: 77}, 16, 32)
        changed, given = with_size_arguments(kernel)
        assert list(given.values()) == [kernel.outer[0].size]
        size = kernel.outer[0].size.evaluate({side: 77})
        assert driver.launches[0].values[2] == size
        source = torch.randn(size * (size + 1) * 6)
        results = []
        for each, sizes in ((kernel, {side: 77}), (changed, {s: e.evaluate({side: 77}) for s, e in given.items()})):
            memory = {"a": source, "b": torch.zeros(size * size * 3)}
            evaluate_kernel(each, memory, sizes)
            results.append(memory["b"])
        torch.testing.assert_close(*results, rtol=0, atol=0)
    assert len(texts) == 1 and "s0" not in min(texts)


def test_a_divisor_that_may_be_nothing_is_no_argument() -> None:
    """Where there is nothing to walk the host would divide by 0; a program of the kernel never does."""
    side, row = Symbol("s0", 2), Symbol("x0", 0)
    size = as_expr(side) - 2
    place = (as_expr(row) + (size - constant(5) % size)) % size
    buffers = {n: Buffer(n, F32, DEVICE, (size,), (constant(1),)) for n in "ab"}
    value = ir.apply("neg", ir.load("a", place, F32))
    kernel = LoopKernel("rolled", DEVICE, (LoopVar(row, size),), (), (Store("b", as_expr(row), value),))
    driver = RecordingDriver()
    (made,) = TritonBackend(None, driver, 90).compile([kernel], buffers, graph="g", hints={side: 64})
    for rows in (64, 2, 9):
        launch_at(made, made.launch, {side: rows}, 16, 32)
    assert [launch.values[2] for launch in driver.launches] == [64, 9]


@pytest.mark.parametrize("varies", [False, True])
def test_what_is_divided_may_be_larger_than_memory(varies: bool) -> None:
    """A roll adds to a position before it takes the remainder: 32 bits hold neither sum where the buffer has most of 2**31 elements."""
    rows = 2**31 - 2**21
    size: Any = as_expr(Symbol("s0", 2)) if varies else constant(rows)
    row = Symbol("x0", 0, None if varies else rows - 1)
    buffers = {n: Buffer(n, torch.int8, DEVICE, (size,), (constant(1),)) for n in "ab"}
    for place, wide in ((as_expr(row), False), ((as_expr(row) + (size - constant(5) % size)) % size, True)):
        value = ir.apply("neg", ir.load("a", place, torch.int8))
        kernel = LoopKernel("rolled", DEVICE, (LoopVar(row, size),), (), (Store("b", as_expr(row), value),))
        variants = KernelVariants(kernel, buffers, make_plan(kernel, buffers, {}), 90, {})
        if varies:
            assert variants.wide() is None
            assert (variants.arguments[-1].evaluate({Symbol("s0", 2): rows}) >= NARROW) is wide
        else:
            assert variants.wide() is wide


def test_positions_below_nothing_are_wide_too() -> None:
    row = Symbol("x0", 0, 1023)
    value = ir.index_value(as_expr(row) * -(2**30))
    kernel = LoopKernel("down", DEVICE, (LoopVar(row, constant(1024)),), (), (Store("b", as_expr(row), value),))
    buffers = {"b": Buffer("b", I64, DEVICE, (constant(1024),), (constant(1),))}
    assert KernelVariants(kernel, buffers, make_plan(kernel, buffers, {}), 90, {}).wide()


def test_the_c_launcher_chooses_by_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_void_p,
    )  # fmt: skip
    seen: list[tuple[Any, ...]] = []

    def launch(function: int, programs: int, *rest: Any) -> int:
        seen.append((function, programs, [ctypes.c_uint64.from_address(rest[-2][n]).value for n in range(4)]))
        return 0

    monkeypatch.setattr(cuda, "_raw_stream", lambda device: 77)
    held = kind(launch)
    code = MachineCode("k", b"", "", threads=128, shared=64, parameters=4)

    def load(which: int) -> LoadedKernel:
        return LoadedKernel(lambda *a: 0, 100 + which, code, lambda error, retry: None)

    address = ctypes.cast(held, ctypes.c_void_p).value
    made = cuda.c_launcher(address or 0, load, 0, LaunchSignature(1, 0, (False, True)))
    if made is None:
        pytest.skip("the C extension is not built")
    for call in (
        (16, 3, 32, 5, 96),
        (16, 16, 33, 5, 96),
        (17, 3, 32, 5, 96),
        (16, 3, 32, 2**20, 2**31),
        (16, 3, 32, 0, 0),
    ):
        made(*call)
    assert [function - 100 for function, *_ in seen] == [
        cuda.ALIGNED | cuda.DIVISIBLE, cuda.ALIGNED, cuda.DIVISIBLE, cuda.ALIGNED | cuda.WIDE | cuda.DIVISIBLE,
    ]  # fmt: skip
    assert seen[0][1:] == (5, [16, 3, 32, 0]) and seen[3][1] == 2**20
    with pytest.raises(TypeError, match="takes 5 arguments, got 3"):
        made(16, 3, 32)


def stored_again(launch: Any) -> tuple[Any, RecordingDriver]:
    """The launcher as another process has it, with a driver of its own."""
    made = how_made(launch)
    assert made is not None and made.maker is launcher_of
    (kernels,) = made.arguments
    assert isinstance(kernels, Specialisations)
    driver = RecordingDriver()
    again: Specialisations = object.__new__(Specialisations)
    again.__restore_state__({**kernels.__stored_state__(), "driver": driver})
    return launcher_of(again), driver


def test_a_stored_launcher_launches_the_same_code_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    (kernel,), driver = compile_function(lambda x: x * 2.0, ROWS)
    kernel.launch(16, 32)
    launch, other = stored_again(kernel.launch)
    with monkeypatch.context() as patched:
        patched.setattr("torchjit_inductor.triton.compile.compile_text", None)
        launch(16, 32)
    assert other.launches == driver.launches and other.codes == driver.codes
    kernel.launch(18, 32)
    launch(18, 32)  # from its text
    assert other.launches == driver.launches
    assert [code.cubin for code in other.codes] == [code.cubin for code in driver.codes]


def test_a_kernel_that_was_never_launched_is_stored_with_the_code_that_was_compiled() -> None:
    (kernel,), driver = compile_function(lambda x: x + 1.0, ROWS)
    launch, other = stored_again(kernel.launch)
    kernel.launch(16, 32)
    launch(16, 32)
    assert other.launches == driver.launches and launch is not kernel.launch


def test_stored_launchers_choose_by_sizes() -> None:
    kernel, buffers, symbol = symbolic_scale()
    driver = RecordingDriver()
    (made,) = TritonBackend(None, driver, 90).compile([kernel], buffers, graph="g", hints={symbol: 4096})
    launch_at(made, made.launch, {symbol: 4096}, 16, 32)
    launch, other = stored_again(made.launch)
    for size in (33, 2**26, 0):
        launch_at(made, made.launch, {symbol: size}, 16, 32)
    for size in (4096, 33, 2**26, 0):
        launch_at(made, launch, {symbol: size}, 16, 32)
    assert other.launches == driver.launches


def test_a_c_launcher_can_be_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    code = MachineCode("k", b"", "", threads=128, shared=64, parameters=4)
    made = cuda.c_launcher(
        1, lambda aligned: LoadedKernel(lambda *a: 0, 5, code, lambda e, r: None), 0, LaunchSignature(2, 9)
    )
    if made is None:
        pytest.skip("the C extension is not built")
    assert how_made(made_by(made, launcher_of, "facts")) is not None
    gone = weakref.ref(made)
    del made
    assert gone() is None


def test_unsupported_kernels_are_named() -> None:
    x0 = Symbol("x0", 0, 7)
    buffers = {n: Buffer(n, torch.int16, DEVICE, (constant(8),), (constant(1),)) for n in ("a", "b")}
    store = Store("b", as_expr(x0), ir.load("a", as_expr(x0), torch.int16), mode="add")
    kernel = LoopKernel("k", DEVICE, (LoopVar(x0, constant(8)),), (), (store,))
    assert TritonBackend(arch=90).unsupported(kernel, buffers) == "atomic addition of torch.int16"


def test_long_rows_that_are_read_twice_stay_in_the_cache() -> None:
    """Fewer, larger programs: the rows that run at once are what the second pass finds there; few rows have large programs, too."""
    (twice,), driver = compile_function(lambda x: F.softmax(x, -1), ((1024, 65536), BF))
    twice.launch(*([4096] * 2))
    (few,), other = compile_function(lambda x: F.softmax(x, -1), ((64, 65536), BF))
    few.launch(*([4096] * 2))
    (once,), third = compile_function(lambda x: (x - 1).exp().sum(-1), ((1024, 65536), BF))
    once.launch(*([4096] * 2))
    assert [d.codes[0].threads for d in (driver, other, third)] == [1024, 512, 256]
