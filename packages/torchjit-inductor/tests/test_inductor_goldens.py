"""What small programs become, as a person reads it: the C of each kernel, and the host program that calls them.

A golden that is missing is written and the test fails: read the file, then commit it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import cache_dir, sample, trace

from torchjit_inductor import InductorSettings
from torchjit_inductor.codegen_protocol import CompiledKernel
from torchjit_inductor.cpp.backend import CBackend
from torchjit_inductor.host import write_host_program
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.cleanup import drop_roundings, remove_dead_stores, rename_kernels
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.steps import KernelStep

GOLDENS = Path(__file__).parent / "goldens"
BF16 = torch.bfloat16

X = sample(6, 40)
Y = sample(6, 40, seed=1)
ROWS = torch.tensor([3, 0, 5, 5])
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    # pointwise
    "add_relu": (lambda x, y: F.relu(x + y), (X, Y)),
    "gelu_add": (lambda x: F.gelu(x) + x, (X,)),
    "bias_broadcast": (lambda x, b: x * b + 1, (X, sample(40))),
    "where_mask": (lambda x, y: torch.where(x > y, x, -y), (X, Y)),
    "bf16_silu": (lambda x, y: F.silu(x) * y, (X.to(BF16), Y.to(BF16))),
    "int8_dequantised": (lambda x, s: x.to(torch.float32) * s, (sample(6, 40, dtype=torch.int8), sample(6, 1))),
    "to_uint8": (lambda x: (x * 10).clamp(0, 255).to(torch.uint8), (X,)),
    "double_and_long": (lambda x, n: x.double() * n, (X, sample(6, 40, dtype=torch.int64))),
    "shared_subexpression": (lambda x, y: [torch.exp(x - y), torch.exp(x - y) * x], (X, Y)),
    # reductions
    "row_sum": (lambda x: x.sum(-1), (X,)),
    "column_sum": (lambda x: x.sum(0), (X,)),
    "long_column_sum": (lambda x: x.sum(0), (sample(2000, 40),)),
    "whole_mean": (lambda x: x.mean(), (X,)),
    "row_argmax": (lambda x: x.argmax(-1), (X,)),
    "long_row_sum": (lambda x: x.sum(-1), (sample(2, 20000),)),
    "softmax": (lambda x: x.softmax(-1), (X,)),
    "log_softmax": (lambda x: F.log_softmax(x, -1), (X,)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (40,), w, b), (X, sample(40), sample(40, seed=1))),
    "rms_norm": (lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w, (X, sample(40))),
    "variance": (lambda x: x.var(-1), (X,)),
    "sum_then_scale": (lambda x: x / x.sum(-1, keepdim=True), (X,)),
    # layouts
    "transposed_add": (lambda x, y: x.t() + y, (X, sample(40, 6))),
    "concatenated": (lambda x, y: torch.cat([x, y * 2], 1), (X, Y)),
    "padded": (lambda x: F.pad(x, (2, 3)), (X,)),
    "strided_slice": (lambda x: x[:, 1::2] * 2, (X,)),
    "shuffled": (
        lambda x, y: torch.cat([x, y * 2], 1).view(6, 2, 41).transpose(1, 2).reshape(6, 82),
        (sample(6, 41), sample(6, 41, seed=1)),
    ),
    "rotary": (
        lambda q, s, d: torch.cat([q[..., :16] * s - q[..., 16:] * d, q[..., :16] * d + q[..., 16:] * s], -1),
        (sample(3, 6, 32), sample(6, 16), sample(6, 16, seed=1)),
    ),
    # computed positions
    "embedding": (lambda table, rows: F.embedding(rows, table) * 2, (X, ROWS)),
    "gathered": (lambda x, i: x.gather(1, i), (X, sample(6, 3, dtype=torch.int64).abs())),
    "running_sum": (lambda x: x.cumsum(-1), (X,)),
    "sorted": (lambda x, w: torch.sort(x * w, dim=-1, descending=True, stable=True), (X, sample(40))),
    # with aten
    "scatter_added": (lambda x, i, s: x.scatter_add(0, i, s), (X, ROWS[:, None].expand(4, 40).contiguous(), X[:4])),
    "linear_relu": (lambda x, w, b: F.relu(F.linear(x, w, b)) + 1, (X, sample(8, 40), sample(8))),
}


def text_of(fn: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> str:
    """Kernels and host program."""
    lowered = lower_graph(trace(fn, inputs), "g")
    program = rename_kernels(drop_roundings(remove_dead_stores(fuse(lowered, {}))))
    backend = CBackend(InductorSettings(cache_dir=cache_dir(), vector_bytes=32))
    kernels = [s.kernel for s in program.steps if isinstance(s, KernelStep)]
    sources = {k.name: backend.source(k, program.buffers) for k in kernels}
    made = {name: CompiledKernel(name, source, lambda: None) for name, source in sources.items()}
    host = write_host_program(program, made, check_strides=False)
    # Source lines are paths of a machine.
    texts = [re.sub(r"(?m)^( *)// (\w+ = [\w.]+)   #.*$", r"\1// \2", s) for s in sources.values()]
    return "\n\n".join([*texts, "/* host program\n" + re.sub(r"  # \w+ = .*", "", host.source).strip() + "\n*/"]) + "\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_goldens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # tiles of a column sum depend on it
    text = text_of(*PROGRAMS[name])
    path = GOLDENS / f"{name}.c"
    if not path.exists():
        GOLDENS.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"wrote {path.name}: look at it and run again")
    assert path.read_text() == text


def test_every_golden_has_a_program() -> None:
    assert {p.stem for p in GOLDENS.glob("*.c")} == set(PROGRAMS)
    assert len(PROGRAMS) >= 30
