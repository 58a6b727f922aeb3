"""What each node of the IR promises: a good one passes `verify`, each broken one is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from inductor_testing import sample, trace

from torchjit_core.expr import Symbol, as_expr, constant
from torchjit_core.reasons import InvalidIR
from torchjit_inductor.ir import values as v
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Origin, Store
from torchjit_inductor.ir.operations import OPERATIONS
from torchjit_inductor.ir.rules import REDUCTIONS, SCANS
from torchjit_inductor.ir.values import Value
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.cleanup import drop_roundings, remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import ExternStep, HostNumber, KernelStep, Program, TensorRef

CPU, F32, I64 = torch.device("cpu"), torch.float32, torch.int64
X0, R0 = Symbol("x0", 0, 3), Symbol("r0", 0, 7)
AT = Symbol("at0", 0, 9)
X = v.load("a", as_expr(X0) * 8 + as_expr(R0), F32)
N = v.index_value(as_expr(X0))
TRUE = v.constant(True, torch.bool)

BROKEN_VALUES: dict[str, tuple[Callable[[], Value], str]] = {
    "dtype": (lambda: Value("cast", (N,), torch.bfloat16), "no dtype torch.bfloat16"),
    "operation": (lambda: Value("frobnicate", (X,), F32), "unknown operation"),
    "operands": (lambda: Value("add", (X,), F32), "takes 2 operands"),
    "mixed": (lambda: Value("add", (X, N), F32), "one dtype"),
    "result": (lambda: Value("lt", (X, X), F32), "it gives torch.bool"),
    "data": (lambda: Value("exp", (X,), F32, 3), "no data"),
    "load without position": (lambda: Value("load", (), F32, v.LoadData("a", as_expr(AT), (AT,))), "0 operands for 1"),
    "load at a float": (lambda: Value("load", (X,), F32, v.LoadData("a", as_expr(AT), (AT,))), "no int64"),
    "load twice at a symbol": (lambda: Value("load", (N, N), F32, v.LoadData("a", as_expr(AT), (AT, AT))), "one symbol"),
    "load under a number": (lambda: Value("load", (N,), F32, v.LoadData("a", constant(0), masked=True)), "no bool"),
    "load without mask": (lambda: Value("load", (), F32, v.LoadData("a", constant(0), other=2)), "no mask"),
    "constant": (lambda: Value("constant", (), F32, 1), "1 is no torch.float32"),
    "constant bool": (lambda: Value("constant", (), I64, True), "True is no torch.int64"),
    "constant of something": (lambda: Value("constant", (X,), F32, 1.0), "has operands"),
    "index": (lambda: Value("index", (), torch.int32, v.IndexData(as_expr(X0))), "is int64"),
    "bounded": (lambda: Value("bounded", (X,), I64, v.BoundData(constant(4), True, 0, "index")), "is int64"),
    "bounded error": (lambda: Value("bounded", (N,), I64, v.BoundData(constant(4), True, 0, "oops")), "unknown error oops"),
    "segment": (lambda: Value("segment", (N,), I64), "position and ends"),
    "segment of floats": (lambda: Value("segment", (N, X), I64), "no integer"),
    "reduction": (lambda: Value("reduce", (X,), F32, "median"), "unknown reduction 'median'"),
    "reduction of two": (lambda: Value("reduce", (X, X), F32, "sum"), "takes 1 operands"),
    "argmax": (lambda: Value("reduce", (X,), F32, "argmax"), "is no torch.float32"),
    "any": (lambda: Value("reduce", (N,), I64, "any"), "is no torch.int64"),
    "dot": (lambda: Value("reduce", (X, X), I64, "dot"), "summed in torch.float32"),
    "scan": (lambda: Value("scan", (X,), F32, "median"), "unknown scan"),
    "scan dtype": (lambda: Value("scan", (X,), I64, "sum"), "its operand's dtype"),
    "sort": (lambda: Value("sort", (X,), F32, v.SortData(False, True)), "gives torch.int64"),
    "cast": (lambda: Value("cast", (X,), F32), "its own dtype"),
    "round": (lambda: Value("round_to", (X,), F32, F32), "computed in itself"),
    "round an integer": (lambda: Value("round_to", (N,), F32, torch.float16), "a float32 is rounded"),
    "where": (lambda: Value("where", (N, X, X), F32), "no bool"),
    "where sides": (lambda: Value("where", (TRUE, X, N), F32), "both sides"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_VALUES)
def test_broken_values_are_told(name: str) -> None:
    make, text = BROKEN_VALUES[name]
    with pytest.raises(InvalidIR, match=text):
        make().verify()


def test_every_operation_reduction_and_scan_has_a_valid_value() -> None:
    of = {"f": X, "i": N, "b": v.apply("lt", X, X)}
    for operation in OPERATIONS.values():
        for kind in operation.takes:
            v.apply(operation.name, *[of[kind]] * operation.arity).verify()
    for kind, (count, dtype) in REDUCTIONS.items():
        if count == 1:
            v.reduce(kind, of["b"] if dtype == torch.bool else X).verify()
    v.dot(X, X).verify()
    for kind in SCANS:
        v.scan(kind, X).verify()
    bounded = v.bounded(N, constant(4), wrap=True, dim=0, error="index")
    others = (
        v.sort(X),
        v.sort(X, positions=True),
        v.segment(N, [N]),
        bounded,
        v.cast(X, torch.bfloat16),
        v.where(of["b"], X, X),
    )
    for value in (
        *others,
        v.load("a", as_expr(AT), F32, binders={AT: N}, mask=of["b"], other=1),
        v.constant(2, torch.uint8),
    ):
        value.verify()


A, O = (Buffer(n, F32, CPU, (constant(4), constant(8)), (constant(8), constant(1))) for n in "ao")
BUFFERS = {"a": A, "o": O}
LOOPS = (LoopVar(X0, constant(4)),), (LoopVar(R0, constant(8)),)
SUM = Store("o", as_expr(X0), v.reduce("sum", X), outer=True)
KERNEL = LoopKernel("k", CPU, *LOOPS, (SUM,))
ALL = TensorRef("a", A.sizes, A.strides, constant(0))
CALL = ExternStep(
    torch.ops.aten.relu.default, (ALL,), {}, ("o",), True, ("a",), (), (), Origin("relu", "relu.default")
)  # fmt: skip
PROGRAM = Program(
    "g", ("a",), BUFFERS, (KernelStep(KERNEL),), (attrs.evolve(ALL, buffer="o"),), frozenset(), {}, {}
)  # fmt: skip

BROKEN_NODES: dict[str, tuple[Callable[[], Any], str]] = {
    "buffer name": (lambda: attrs.evolve(A, name="a b").verify(), "identifier"),
    "buffer strides": (lambda: attrs.evolve(A, strides=()).verify(), "2 sizes, 0 strides"),
    "loop begin": (lambda: LoopVar(Symbol("x0", 1, 3), constant(4)).verify(), "begins at 0"),
    "loop end": (lambda: LoopVar(Symbol("x0", 0, 4), constant(4)).verify(), "ends before it"),
    "store mode": (lambda: attrs.evolve(SUM, mode="max").verify("k", {R0}), "unknown store mode"),
    "store symbols": (lambda: attrs.evolve(SUM, positions=(N,)).verify("k", {R0}), "has a symbol"),
    "store position": (lambda: attrs.evolve(SUM, positions=(X,), binders=(AT,)).verify("k", {R0}), "no int64"),
    "store inside": (lambda: attrs.evolve(SUM, index=as_expr(R0)).verify("k", {R0}), "in the inner loop"),
    "store of a point": (lambda: attrs.evolve(SUM, value=X).verify("k", {R0}), "not outer"),
    "store of a running sum": (lambda: attrs.evolve(SUM, value=v.scan("sum", v.constant(1.0, F32))).verify("k", {R0}), "running"),
    "outer scatter": (lambda: attrs.evolve(SUM, mode="add").verify("k", {R0}), "outer scatter"),
    "kernel loops": (lambda: attrs.evolve(KERNEL, outer=LOOPS[0] * 2).verify(BUFFERS), "occurs twice"),
    "kernel buffers": (lambda: KERNEL.verify({"a": A}), "unknown buffer o"),
    "kernel dtype": (lambda: KERNEL.verify({**BUFFERS, "a": attrs.evolve(A, dtype=torch.complex64)}), "complex64"),
    "kernel device": (lambda: KERNEL.verify({**BUFFERS, "a": attrs.evolve(A, device=torch.device("meta"))}), "on meta"),
    "kernel without loop": (lambda: attrs.evolve(KERNEL, inner=()).verify(BUFFERS), "without inner loops"),
    "load dtype": (lambda: KERNEL.verify_nodes({**BUFFERS, "a": attrs.evolve(A, dtype=I64)}), "a load of"),
    "store dtype": (lambda: KERNEL.verify_nodes({**BUFFERS, "o": attrs.evolve(O, dtype=I64)}), "goes to torch.int64"),
    "view": (lambda: attrs.evolve(ALL, buffer="z").verify(BUFFERS), "unknown buffer"),
    "view strides": (lambda: attrs.evolve(ALL, strides=()).verify(BUFFERS), "more sizes than strides"),
    "number": (lambda: HostNumber("1x").verify(), "identifier"),
    "number of nothing": (lambda: HostNumber("x", None, (1,)).verify(), "no operands"),
    "call results": (lambda: attrs.evolve(CALL, outputs=("o", "a")).verify(BUFFERS), "2 buffers"),
    "call buffers": (lambda: attrs.evolve(CALL, outputs=("z",)).verify(BUFFERS), "unknown buffer z"),
    "call operands": (lambda: attrs.evolve(CALL, reads=()).verify(BUFFERS), "is an operand, and not read"),
    "call number": (lambda: attrs.evolve(CALL, number="n").verify(BUFFERS), "is no tensor"),
    "call sizes": (lambda: attrs.evolve(CALL, sizes=(("u0", "o", 2),)).verify(BUFFERS), "dimension 2 of o"),
    "program names": (lambda: attrs.evolve(PROGRAM, buffers={**BUFFERS, "z": A}).verify(), "is called z"),
    "program inputs": (lambda: attrs.evolve(PROGRAM, inputs=("z",)).verify(), "has no buffer"),
    "program writes": (lambda: attrs.evolve(PROGRAM, mutated=frozenset({1})).verify(), "unknown input"),
    "program order": (lambda: attrs.evolve(PROGRAM, inputs=(None,)).verify(), "read before they are written"),
    "program results": (lambda: attrs.evolve(PROGRAM, steps=()).verify(), "never written"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_NODES)
def test_broken_nodes_are_told(name: str) -> None:
    verify, text = BROKEN_NODES[name]
    with pytest.raises(InvalidIR, match=text):
        verify()


def test_good_nodes_pass() -> None:
    PROGRAM.verify()
    attrs.evolve(PROGRAM, steps=(CALL,)).verify()


def test_nodes_are_frozen_and_final() -> None:
    for node in (
        A,
        LOOPS[0][0],
        SUM,
        KERNEL,
        ALL,
        CALL,
        PROGRAM,
        HostNumber("x"),
        Origin("a", "b"),
        KernelStep(KERNEL),
    ):
        assert getattr(type(node), "__final__", False), type(node)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            node.name = "z"  # type: ignore[union-attr, misc]


def test_programs_are_valid_after_each_pass() -> None:
    x, rows = sample(6, 40), torch.tensor([3, 0, 5, 5])

    def fn(x: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
        return [F.layer_norm(x, (40,))[rows].softmax(-1), x.bfloat16().sum(0), x @ x.t(), torch.sort(x, stable=True)[1]]

    program = lower_graph(trace(fn, (x, rows)), "g")
    program.verify()
    for each in (lambda p: fuse(p, {}), remove_dead_stores, drop_roundings, rename_kernels):
        program = each(program)
        program.verify()


IMPORTED_FIRST = """
import os, sys, torch
for module in sys.argv[1:]:
    child = os.fork()
    if not child:
        __import__(f"torchjit_inductor.{module}")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, module
"""


def test_modules_may_be_imported_first() -> None:
    """Each in a fork of a process that has imported torch alone, which takes seconds."""
    modules = (
        "attention.kernels",
        "attention.text",
        "attention.writer",
        "triton.expressions",
        "triton.backend",
        "steps",
    )
    subprocess.run([sys.executable, "-c", IMPORTED_FIRST, *modules], check=True)
