"""Kernels that begin while the one before them ends: which, what they read before they wait, and how they are launched."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_core.expr import Symbol
from torchjit_inductor.compiled import Inductor
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.passes import run_passes
from torchjit_inductor.schedule.cleanup import remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.settings import InductorSettings
from torchjit_inductor.steps import KernelStep, Program
from torchjit_inductor.triton import cuda
from torchjit_inductor.triton.backend import TritonBackend
from torchjit_inductor.triton.compile import MachineCode
from torchjit_inductor.triton.cuda import LaunchSignature, LoadedKernel
from torchjit_inductor.triton.source import RELEASE, WAIT

INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"
BF16 = torch.bfloat16
ROW, MATRIX = ((1, 2048), BF16), ((2048, 2048), BF16)


class Driver:
    """Launches nothing, remembers what it is asked for."""

    def __init__(self) -> None:
        self.signatures: list[LaunchSignature] = []
        self.loads: list[Callable[[int], LoadedKernel]] = []

    def load(self, code: MachineCode, device: int) -> LoadedKernel:
        return LoadedKernel(lambda *rest: 0, 5, code, lambda error, again: None)

    def stream(self, device: int) -> int:
        return 0

    def launcher(self, load: Callable[[int], LoadedKernel], device: int, signature: LaunchSignature) -> None:
        self.signatures.append(signature)
        self.loads.append(load)


def norm(x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    made: torch.Tensor = (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
    return made


def products(x: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Norm, product, norm, product: each reads the one before."""
    return norm(norm(x) @ v.t()) @ w.t()


def program_of(function: Callable[..., Any], *inputs: tuple[tuple[int, ...], torch.dtype], arch: int = 90) -> Program:
    """The program, with kernels that overlap."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        gm = make_fx(function)(*[torch.empty(s, dtype=d, device="cuda:0") for s, d in inputs])
    program = rename_kernels(remove_dead_stores(fuse(lower_graph(gm, "graph"), {})))
    backend = TritonBackend(InductorSettings(), Driver(), arch)
    return backend.overlapped(run_passes(program, backend.passes({})))


def steps_of(program: Program) -> list[Any]:
    return [s for s in program.steps if isinstance(s, KernelStep)]


def kernels_of(program: Program) -> list[Any]:
    return [s.kernel for s in steps_of(program)]


def bodies(program: Program) -> list[list[str]]:
    """The statements of each kernel."""
    backend = TritonBackend(InductorSettings(), Driver(), 90)
    made = backend.compile(kernels_of(program), program.buffers, graph="graph", hints=dict[Symbol, int]())
    return [[line.strip() for line in k.source.split("):\n")[1].splitlines()] for k in made]


def test_a_row_of_kernels() -> None:
    """The first lets the next one begin early, the last one nobody, and all of them wait; weights are read before that."""
    program = program_of(products, ROW, MATRIX, MATRIX)
    assert [(k.overlap.early, k.overlap.releases) for k in kernels_of(program)] == [
        (False, True), (True, True), (True, True), (True, False),
    ]  # fmt: skip
    for number, body in enumerate(bodies(program)):
        assert body.count(WAIT) == 1 and body.count(RELEASE) == (number < 3)
        assert number == 3 or body[0] == RELEASE
        before, after = body[: body.index(WAIT)], body[body.index(WAIT) :]
        product = number % 2
        assert ["tl.load(in1" in line for line in before].count(True) == product
        assert not any("tl.store" in line or (number and "tl.load(in0" in line) for line in before)
        assert any("tl.store" in line for line in after)


def test_what_the_program_writes_is_not_read_before() -> None:
    def updated(x: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y, doubled = norm(norm(x) @ v.t()), w * 2
        z = y @ doubled.t()
        w.copy_(doubled)
        return z

    program = program_of(updated, ROW, MATRIX, MATRIX)
    written = {n for s in program.steps for n in s.writes}
    read = [{n for n in s.read_buffers if s.kernels_name(n) in s.kernel.overlap.fixed} for s in steps_of(program)]
    assert "w_1" in written and {n for early in read for n in early} == {"x_1", "v_1"}


def test_a_call_of_the_library_is_waited_for() -> None:
    """Nothing begins early behind one, and nothing lets one begin early."""

    def called(x: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = norm(norm(x) @ v.t())
        r: torch.Tensor = torch.linalg.qr(y.float())[1]
        return r.to(x.dtype) @ w.t()

    program = program_of(called, ROW, MATRIX, MATRIX)
    kinds: list[Any] = [s.kernel.overlap if isinstance(s, KernelStep) else "call" for s in program.steps]
    at = kinds.index("call")
    assert at >= 2 and kinds[at - 1].early and not kinds[at - 1].releases
    assert kinds[at + 1] is None or not kinds[at + 1].early


@pytest.mark.parametrize(
    "function, inputs, arch",
    [
        pytest.param(products, (ROW, MATRIX, MATRIX), 80, id="older GPUs"),
        pytest.param(lambda x: norm(x) + 1, (ROW,), 90, id="alone"),
    ],
)
def test_kernels_that_do_not_overlap(function: Callable[..., Any], inputs: Any, arch: int) -> None:
    assert all(k.overlap is None for k in kernels_of(program_of(function, *inputs, arch=arch)))


def test_one_kernel_in_different_places_has_different_names() -> None:
    def rows(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = norm(x) @ w.t()
        return x

    kernels = kernels_of(program_of(rows, ROW, MATRIX))
    assert len({k.name for k in kernels}) == len(set(kernels)) == 8


def test_early_launches() -> None:
    """Those that may begin early are launched so."""
    driver = Driver()
    backend, program = TritonBackend(InductorSettings(), driver, 90), program_of(products, ROW, MATRIX, MATRIX)
    backend.compile(kernels_of(program), program.buffers, graph="graph", hints={})
    assert [s.early for s in driver.signatures] == [False, True, True, True]


def test_the_assembly_waits_behind_the_weights() -> None:
    """And before all else that it reads or writes, whatever compilers do with the order of statements."""
    driver, program = Driver(), program_of(products, ROW, MATRIX, MATRIX)
    backend = TritonBackend(InductorSettings(), driver, 90)
    backend.compile(kernels_of(program), program.buffers, graph="graph", hints={})
    for number, load in enumerate(driver.loads):
        found = re.findall(r"griddepcontrol\.\w+|ld\.global|st\.global", load(cuda.ALIGNED).code.ptx)
        assert found.count("griddepcontrol.launch_dependents") == (number < 3)
        before, after = found[: found.index("griddepcontrol.wait")], found[found.index("griddepcontrol.wait") :]
        # The first kernel reads an input, the products 16 elements of a row of weights in each of 128 threads.
        assert number == 0 or before.count("ld.global") == 2 * (number % 2)
        assert after.count("ld.global") >= (number > 0) and "st.global" in after and "st.global" not in before


class Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint64 * 8))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


def test_the_c_launcher_asks_for_an_early_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []
    answers = [0, 1]

    def launch(config: Any, function: int, pointers: Any, extra: Any) -> int:
        c = config[0]
        attribute = c.attributes[0]
        values = [ctypes.c_uint64.from_address(pointers[n]).value for n in range(3)]
        seen.append((function, [*c.grid], [*c.block], c.shared, c.stream, values))
        assert (c.count, attribute.id, attribute.value[0] & 0xFFFFFFFF, extra) == (1, 6, 1, None)
        return answers.pop(0)

    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(Config), ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
    )
    held, again = kind(launch), list[int]()

    def ordinary(function: Any, programs: int, *rest: Any) -> int:
        again.append(programs)
        return 0

    monkeypatch.setattr(cuda, "_raw_stream", lambda device: 77 + device)
    code = MachineCode("k", b"", "", threads=128, shared=64, parameters=3)
    kernel = LoadedKernel(ordinary, 5, code, lambda error, retry: None)
    address = ctypes.cast(held, ctypes.c_void_p).value or 0
    made = cuda.c_launcher(1, lambda which: kernel, 1, LaunchSignature(2, 9, (), True), early=lambda: address)
    if made is None:
        pytest.skip("the C extension is not built")
    made(16, 32)
    assert seen == [(5, [9, 1, 1], [128, 1, 1], 64, 78, [16, 32, 0])] and not again
    made(16, 32)  # refused: the ordinary way
    assert again == [9]


def test_a_graph_with_attention() -> None:
    """What joins the parts of an attention's keys lets the product behind it begin early."""

    def block(
        x: torch.Tensor, w: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor
    ) -> list[torch.Tensor]:
        q = (norm(x) @ w.t()).view(1, 1, 16, 128).transpose(1, 2)
        y = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, False)[0]
        return [y.transpose(1, 2).reshape(1, 2048) @ o.t() + x]

    cache = ((1, 16, 512, 128), BF16)
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.empty(s, dtype=d, device="cuda:0") for s, d in (ROW, MATRIX, cache, cache, MATRIX)]
        gm = make_fx(block, tracing_mode="fake")(*inputs)
    driver = Driver()
    made = Inductor(cuda_backend=TritonBackend(InductorSettings(), driver, 90))(gm, inputs)
    # Of the attention before anything is known about its neighbours, and of the row.
    assert [s.early for s in driver.signatures] == [False, False, True, True, False, True, True]


@pytest.mark.parametrize("version, wanted", [(12020, False), (12030, True)])
def test_drivers_that_know_early_kernels(version: int, wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        cuLaunchKernelEx = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)

        def cuDriverGetVersion(self, at: Any) -> int:
            at._obj.value = version
            return 0

    monkeypatch.setattr(cuda, "_library", Library)
    assert (cuda.early_address() != 0) == wanted


@pytest.mark.gpu
@pytest.mark.skipif(
    INTERPRETING or not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0), reason="needs sm_90"
)
def test_the_same_results_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit those of kernels that do not overlap, also where memory is used again, in recorded graphs, and beside other streams."""

    def chain(x: torch.Tensor, cache: torch.Tensor, at: torch.Tensor, *weights: torch.Tensor) -> list[torch.Tensor]:
        for w in weights:
            x = x + norm(x) @ w.t()
            cache = cache.index_copy(0, at, x)
            x = x + norm(cache.sum(0, keepdim=True, dtype=torch.float32).to(x.dtype)) @ w.t()
        return [x, cache]

    torch.manual_seed(0)
    weights = [torch.randn(2048, 2048, device="cuda", dtype=BF16) / 45 for _ in range(6)]
    cache, at = torch.randn(64, 2048, device="cuda", dtype=BF16), torch.tensor([5], device="cuda")
    x = torch.randn(1, 2048, device="cuda", dtype=BF16)
    given, made = [x, cache, at, *weights], []
    gm = make_fx(chain, tracing_mode="fake")(*given)
    for overlaps in (True, False):
        if not overlaps:
            monkeypatch.setattr(TritonBackend, "overlapped", lambda self, program: program)
        made.append(Inductor()(gm, given))
    early, plain = made
    assert any(WAIT in k.source for k in early.kernels) and not any(WAIT in k.source for k in plain.kernels)
    graph = torch.cuda.CUDAGraph()
    early(*given)
    with torch.cuda.graph(graph):
        recorded = early(*given)
    for _ in range(100):
        x.normal_()
        for w in weights:
            w.mul_(-1)  # just before they are read early
        wanted = plain(*given)
        called = early(*given)
        x.mul_(1)
        graph.replay()
        for a, b, c in zip(wanted, called, recorded, strict=True):
            assert torch.equal(a, b) and torch.equal(a, c)
