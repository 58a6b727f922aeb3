"""Tiles by the registers that a binary takes: which are taken, and what is compiled for that. Nothing here compiles."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import attrs
import pytest

pytest.importorskip("triton")

import torch
from test_inductor_triton_machine import BF, RecordingDriver, program_of

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.ir.kernel import LoopVar
from torchjit_inductor.passes import run_passes
from torchjit_inductor.settings import InductorSettings
from torchjit_inductor.steps import KernelStep
from torchjit_inductor.triton.autotune import ProductTuner
from torchjit_inductor.triton.backend import TritonBackend
from torchjit_inductor.triton.compile import MachineCode
from torchjit_inductor.triton.occupancy import registers_of, resident, settled
from torchjit_inductor.triton.plan import Axis, TilePlan

Registers = dict[int, int | None]


@pytest.fixture
def binaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Binaries of one byte: that many registers, or none where it is 0."""
    monkeypatch.setattr("torchjit_inductor.triton.occupancy.registers_of", lambda cubin: cubin[0] or None)


def _code(registers: int | None, threads: int = 256, shared: int = 2048) -> MachineCode:
    return MachineCode("kernel", bytes([registers or 0]), "", threads, shared, 3)


def _columns(programs: Expr, rows: int = 64, **given: Any) -> TilePlan:
    def loop(name: str, size: Expr) -> LoopVar:
        return LoopVar(Symbol(name, 0, None), size)

    axes = (Axis("x", (loop("x0", constant(64)),), 64), Axis("r", (loop("r1", constant(512)),), rows, looped=True))
    return TilePlan((loop("part", programs),), axes, **{"num_warps": 8, **given})


def _settle(plan: TilePlan, registers: Registers) -> tuple[int, list[int]]:
    """Rows of the tile that is taken, and of those that were compiled for that."""
    asked: list[int] = []

    def compiled(plan: TilePlan) -> MachineCode:
        asked.append(plan.axes[1].block)
        return _code(registers[plan.axes[1].block])

    return settled(plan, compiled).axes[1].block, asked


@pytest.mark.usefixtures("binaries")
@pytest.mark.parametrize(
    ("programs", "registers", "taken", "compiled"),
    [
        (384, {64: 107, 32: 57}, 32, [64, 32]),  # the gradient of a GELU by a hyperbolic tangent
        (384, {64: 72}, 64, [64]),  # that by an error function: all run at once
        (384, {64: 107, 32: 81}, 64, [64, 32]),  # two turns as before
        (528, {64: 107, 32: 64}, 32, [64, 32]),  # as many as there is room for
        (529, {64: 107, 32: 64}, 64, [64, 32]),
        (2000, {}, 64, []),  # several turns whatever the binary says
        (384, {64: None}, 64, [64]),  # it says nothing
        (384, {64: 107, 32: None}, 64, [64, 32]),
    ],
)
def test_tiles_are_halved_where_only_then_all_programs_run_at_once(
    programs: int, registers: Registers, taken: int, compiled: list[int]
) -> None:
    assert _settle(_columns(constant(programs)), registers) == (taken, compiled)


@pytest.mark.parametrize(
    "plan",
    [
        _columns(as_expr(Symbol("s0"))),  # any number of programs
        _columns(constant(384), rows=32),  # little in flight already
        _columns(constant(384), registers=64),  # chosen for its number of programs
        attrs.evolve(_columns(constant(384)), axes=_columns(constant(384)).axes[1:]),  # rows, not columns
    ],
)
def test_other_plans_are_settled_without_a_binary(plan: TilePlan) -> None:
    def compiled(plan: TilePlan) -> MachineCode:
        raise AssertionError("compiled")

    assert settled(plan, compiled) is plan


@pytest.mark.usefixtures("binaries")
@pytest.mark.parametrize(
    ("registers", "threads", "shared", "held"),
    [(57, 256, 0, 4), (107, 256, 0, 2), (24, 256, 0, 8), (255, 512, 0, 1), (24, 256, 100_000, 2), (16, 32, 0, 32)],
)
def test_programs_of_a_multiprocessor_share_its_registers_threads_and_memory(
    registers: int, threads: int, shared: int, held: int
) -> None:
    assert resident(_code(registers, threads, shared)) == held


@pytest.mark.parametrize("cubin", [b"", b"\x7fELF", b"\0" * 64, b"\xff" * 4096], ids=len)
def test_what_is_no_binary_says_nothing(cubin: bytes) -> None:
    assert registers_of(cubin) is None


# ------------------------------------------------------------------------------------------------ the backend


def _sums(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).float().sum(0)


def _compile(
    monkeypatch: pytest.MonkeyPatch, of_rows: Callable[[int], int], arch: int = 90, times: int = 1, **settings: Any
) -> tuple[str, list[str], RecordingDriver]:
    """The first stage of column sums with 384 programs: its text, all that were compiled, and what it is launched on."""
    texts: list[str] = []

    def compile_text(source: str, name: str, *given: Any, **options: Any) -> MachineCode:
        assert options["arch"] == arch
        texts.append(source)
        code = _code(of_rows(_rows(source)), options["num_warps"] * 32)
        return attrs.evolve(code, parameters=len(given[0]))

    monkeypatch.setattr("torchjit_inductor.triton.compile.compile_text", compile_text)
    driver = RecordingDriver()
    backend = TritonBackend(InductorSettings(**settings), driver, arch)
    program = run_passes(program_of(_sums, ((4096, 3072), BF), ((4096, 3072), BF)), backend.passes({}))
    first = next(s.kernel for s in program.steps if isinstance(s, KernelStep))
    for _ in range(times):
        (made,) = backend.compile([first], program.buffers, graph="graph", hints={})
    made.launch(16, 32, 48)
    made.launch(17, 32, 48)
    return made.source, texts, driver


def _rows(source: str) -> int:
    """Steps of the loop over rows."""
    return int(re.findall(r"range\(0, \d+, (\d+)\)", source)[0])


@pytest.mark.usefixtures("binaries")
@pytest.mark.parametrize("arch", [80, 90])
def test_every_specialisation_has_the_tiles_that_were_settled_for(monkeypatch: pytest.MonkeyPatch, arch: int) -> None:
    source, texts, driver = _compile(monkeypatch, {64: 107, 32: 57}.__getitem__, arch)
    assert "64 of 3072 along x, 32 of 512 reduced; 8 warps; programs: 384" in source
    # The neighbour, and for addresses that begin anywhere once more.
    assert [_rows(text) for text in texts] == [64, 32, 32]
    assert texts[1] in source
    assert [(launch.programs, launch.code.cubin[0]) for launch in driver.launches] == [(384, 57), (384, 57)]


@pytest.mark.usefixtures("binaries")
def test_a_plan_that_fits_and_a_kernel_seen_before_cost_no_second_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    source, texts, _ = _compile(monkeypatch, lambda rows: 72, times=2)
    assert [_rows(text) for text in texts] == [64, 64]
    assert texts[0] in source
    again, texts, _ = _compile(monkeypatch, {64: 107, 32: 57}.__getitem__, times=2)
    assert [_rows(text) for text in texts] == [64, 32, 32]
    assert again == _compile(monkeypatch, {64: 107, 32: 57}.__getitem__)[0]


@pytest.mark.usefixtures("binaries")
def test_a_plan_that_was_measured_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProductTuner, "plan", lambda self, kernel, buffers, plan: plan)
    _, texts, _ = _compile(monkeypatch, lambda rows: 107, coordinate_descent_tuning=True)
    assert [_rows(text) for text in texts] == [64, 64]
