"""Generated C++ by other compilers, and for ARM: by a cross compiler, run by an emulator. Each test needs what may not be installed."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import cache_dir, check, flat, sample, trace

from torchjit_inductor import InductorSettings
from torchjit_inductor.codegen_protocol import CompilerMissing
from torchjit_inductor.cpp import build
from torchjit_inductor.cpp.backend import CBackend, _anonymous, _prelude
from torchjit_inductor.cpp.text import STORAGE
from torchjit_inductor.ir.kernel import LoopKernel
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import KernelStep, Program

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -2.5, 6e-8, -5.9e-8, 3e-5, 65504, 65519, 65520, -7e4, 1e-9, float("inf"), -float("inf"), float("nan"), 1 / 3])  # fmt: skip
HALVES = torch.arange(-(1 << 15), 1 << 15, 7, dtype=torch.int16).view(torch.float16)

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "functions": (lambda x: x.exp().sqrt() + (x * x + 1).log() * x.tanh() + F.gelu(x).floor() - x.round(), (sample(6, 43),)),
    "to half": (lambda x: x.to(torch.float16), (SPECIAL,)),
    "from half": (lambda x: x.float() * 2, (HALVES,)),
    "half": (lambda x, y: x * y, (sample(6, 43).half(), sample(6, 43, seed=1).half())),
    "bfloat16": (lambda x: F.softmax(x, -1), (sample(6, 43).bfloat16(),)),
    "norm": (lambda x: F.layer_norm(x, (43,)), (sample(6, 43),)),
    "columns": (lambda x: [x.sum(0), x.amax(0)], (sample(43, 37),)),
    "double": (lambda x: (x * x + 1).sqrt().sum(-1), (sample(6, 43, dtype=torch.float64),)),
    "integers": (lambda x, y: x // 3 + y * (x > 2), (sample(6, 43, dtype=torch.int8), sample(6, 43, dtype=torch.int64))),
    "positions": (lambda x: x.argmax(-1), (sample(6, 97),)),
    "transposed": (lambda x, y: x.t() + y, (sample(43, 37), sample(37, 43))),
    "strided": (lambda x: x[:, 1::2] * 2, (sample(6, 86),)),
    "shuffled": (lambda x: x.view(6, 2, 41).transpose(1, 2).reshape(6, 82) + 1, (sample(6, 82),)),
    "sorted": (lambda x: torch.sort(x * 2, stable=True), (sample(6, 97),)),
    "sorted_down": (lambda x: torch.sort(x, descending=True), (sample(30, 9, dtype=torch.float64),)),
}  # fmt: skip


def everything(*inputs: torch.Tensor) -> list[torch.Tensor]:
    made, left = [], list(inputs)
    for fn, own in PROGRAMS.values():
        made += flat(fn(*[left.pop(0) for _ in own]))
    return made


@pytest.mark.parametrize("command", ["g++-10", "g++-11", "g++-13", "g++-14", "clang++", "clang++-14", "clang++-19"])
def test_other_compilers(command: str) -> None:
    if shutil.which(command) is None:
        pytest.skip(f"no {command}")
    check(everything, [x for _, own in PROGRAMS.values() for x in own], compiler=command)


@pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None,
    reason="the wheel ziglang (100 MB) is a compiler for machines without one: nothing installs it here",
)
def test_a_wheel_has_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    check(everything, [x for _, own in PROGRAMS.values() for x in own])


def test_the_wheel_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_version", lambda command: " ".join(command[1:]) or "system")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert build.find_compiler(None, 16).version == "system"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert build.find_compiler(None, 16).version == "-m ziglang c++"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompilerMissing, match="tried g\\+\\+, clang\\+\\+, c\\+\\+$"):
        build.find_compiler(None, 16)


# ---------------------------------------------------------------------- ARM
CROSS = ["aarch64-linux-gnu-g++", "clang++-14 --target=aarch64-linux-gnu", "clang++ --target=aarch64-linux-gnu"]
HEAD = """
extern "C" long read(int, void*, unsigned long); extern "C" long write(int, const void*, unsigned long);
static void take(void* to, long n) { for (u8* p = (u8*)to; n > 0;) { long got = read(0, p, n); p += got; n -= got; } }
static void give(const void* from, long n) { for (u8* p = (u8*)from; n > 0;) { long put = write(1, p, n); p += put; n -= put; } }
static void* no_math[4096];
"""


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.dim() else bytes_of(tensor.reshape(1))


def driver(name: str, program: Program, kernel: LoopKernel) -> str:
    """Statements that read a kernel's inputs, run it and write what it stored."""
    lines = []
    for k, buffer in enumerate(program.buffers[n] for n in kernel.buffers):
        kind, count = STORAGE[buffer.dtype], buffer.span.value
        lines.append(f"static {kind} p{k}[{count}] __attribute__((aligned(64)));")
        if buffer.name in program.inputs:
            lines.append(f"take(p{k}, sizeof(p{k}));")
    lines.append(f"{name}::run({name}::Args{{{', '.join(f'p{k}' for k in range(len(kernel.buffers)))}}});")
    outputs = [ref.buffer for ref in program.outputs]
    lines += [f"give(p{kernel.buffers.index(o)}, sizeof(p{kernel.buffers.index(o)}));" for o in outputs]
    return f"{{ {' '.join(lines)} }}"


@pytest.mark.parametrize("command", CROSS)
def test_kernels_for_arm(command: str, tmp_path: Path) -> None:
    """All programs in one file, with vectors of 16 bytes, which are NEON's."""
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"no {command}")
    backend = CBackend(InductorSettings(cache_dir=cache_dir(), vector_bytes=16))
    bodies, runs, fed = [], [], b""
    for number, (fn, inputs) in enumerate(PROGRAMS.values()):
        program = fuse(lower_graph(trace(fn, inputs), "g"), {})
        (step,) = program.steps
        assert isinstance(step, KernelStep)
        kernel = step.kernel
        bodies.append(
            _anonymous(backend.source(kernel, program.buffers), kernel.name).replace("@KERNEL@", f"k{number}")
        )
        runs.append(driver(f"k{number}", program, kernel))
        given = dict(zip(program.inputs, inputs, strict=True))
        fed += b"".join(bytes_of(given[name]) for name in kernel.buffers if name in given)
    main = "int main() { tj_parallel = run_serially; tj_math = no_math;\n" + "\n".join(runs) + "\nreturn 0; }"
    (tmp_path / "kernels.cpp").write_text("\n".join([_prelude(True), HEAD, *bodies, main]))
    machine = [f for f in build._flags(command, 16) if f not in ("-shared", "-fPIC", "-nostdlib")]
    binary = str(tmp_path / "kernels")
    subprocess.run(
        [*command.split(), *machine, str(tmp_path / "kernels.cpp"), "-static", "-lm", "-o", binary], check=True
    )
    emulator = shutil.which("qemu-aarch64")
    if emulator is None:
        pytest.skip("it compiles; no emulator to run it")
    held = subprocess.run([emulator, binary], input=fed, capture_output=True, check=True).stdout
    for name, (fn, inputs) in PROGRAMS.items():
        for want in flat(fn(*inputs)):
            size = want.numel() * want.element_size()
            got = torch.frombuffer(bytearray(held[:size]), dtype=want.dtype).as_strided(want.shape, want.stride())
            torch.testing.assert_close(got, want, equal_nan=True, msg=name)
            held = held[size:]
    assert not held
