"""Products of matrices on a GPU: the library beside every choice of tiles that a generated kernel may have.

    python packages/torchjit-inductor/benchmarks/gpu_products.py [--kinds plain scaled grouped] [--every N] [--descend] [--limit SECONDS]

`plain`: bfloat16; `scaled`: 8-bit floats with one scale for each operand or for each row (`torch._scaled_mm`);
`grouped`: bfloat16 with a matrix for each group of rows, and the gradient of those (`torch._grouped_mm`). With `--descend`
coordinate descent goes on from the table's best choices. A line for each product: microseconds of aten and of the fastest choices,
each with the rank that the model of `candidates` gives it, then of the fastest with and without descriptors. Operands are out of
cache; medians of 12.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import attrs
import torch

from torchjit_core import events
from torchjit_inductor.lowering.contractions import MatrixProduct, Scales
from torchjit_inductor.lowering.grouped import Groups
from torchjit_inductor.triton import autotune
from torchjit_inductor.triton.contraction import contraction, key_of
from torchjit_inductor.triton.cuda import CudaDriver
from torchjit_inductor.triton.product_kernel import product_kernel
from torchjit_inductor.triton.tile_choices import candidates
from torchjit_inductor.triton.trial import TrialProcess

SHAPES = (
    (8192, 8192, 8192), (4096, 4096, 4096), (4096, 768, 3072), (4096, 3072, 768), (2048, 2048, 5632), (2048, 5632, 2048), (16, 2048, 5632),
    (4096, 768, 768), (4096, 768, 2304), (6304, 768, 3072), (512, 1024, 4096), (64, 8192, 1024), (128, 16384, 256),
)  # fmt: skip
"""Rows, depth, columns: layers of ViT, BERT, GPT-2 and Llama."""
BF, E4 = torch.bfloat16, torch.float8_e4m3fn


GROUPED = (
    (8192, 2048, 5632, 8), (16384, 2048, 1408, 64), (16384, 4096, 1536, 16), (1024, 2048, 1408, 64), (128, 4096, 1536, 16),
)  # fmt: skip
"""Rows, depth, columns, groups: layers of experts."""


def products(kind: str, device: torch.device) -> Iterator[tuple[str, MatrixProduct]]:
    """What is measured, with what to call it."""
    for rows, depth, columns, groups in GROUPED if kind == "grouped" else ():
        whole = MatrixProduct(
            BF,
            device,
            1,
            rows,
            depth,
            columns,
            (0, depth, 1),
            (depth * columns, 1, depth),
            groups=Groups(groups, "rows"),
        )
        yield f"{rows} x {depth} x {columns}, {groups} groups of rows", whole
        back = attrs.evolve(
            whole,
            rows=depth,
            depth=rows,
            left_strides=(0, 1, depth),
            right_strides=(0, columns, 1),
            groups=Groups(groups, "depth"),
        )
        yield f"{depth} x {rows} x {columns}, {groups} groups of the sum", back
    for rows, depth, columns in SHAPES:
        by_columns = MatrixProduct(BF, device, 1, rows, depth, columns, (0, depth, 1), (0, 1, depth))
        name = f"{rows} x {depth} x {columns}"
        if kind == "plain":
            yield f"{name}, right operand by columns", by_columns
            yield f"{name}, right operand by rows", attrs.evolve(by_columns, right_strides=(0, columns, 1))
        elif kind == "scaled":
            for scales in (Scales(False, BF, fast=True), Scales(False, BF, fast=False), Scales(True, BF, fast=True)):
                words = f"{'rows' if scales.by_rows else 'tensors'}{', fast' if scales.fast else ''}"
                yield f"{name}, scales of {words}", attrs.evolve(by_columns, dtype=E4, scales=scales)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", nargs="+", default=["plain", "scaled"])
    parser.add_argument("--every", type=int, default=100, help="so many of the table's choices")
    parser.add_argument("--descend", action="store_true")
    parser.add_argument("--limit", type=float, default=600.0)
    options = parser.parse_args()
    autotune.CANDIDATES = 8 if options.descend else options.every
    heard: list[dict[str, Any]] = []
    events.start_listening(lambda kind, fields: heard.append(fields) if kind == "autotune" else None)
    device = torch.device("cuda", torch.cuda.current_device())
    major, minor = torch.cuda.get_device_capability(device)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        threads, process = os.cpu_count() or 1, TrialProcess()
        for kind in options.kinds:
            for name, product in products(kind, device):
                if time.monotonic() - start > options.limit:
                    print("out of time")
                    return
                # One for each product: they do not differ in what is kept of a measurement.
                tuner = autotune.ProductTuner(
                    folder, 1000.0, threads, CudaDriver(), lambda _: major * 10 + minor, {}, process, options.descend
                )
                tuner.promising(product)
                print(f"{name}: {_line(product, heard[-1])}", flush=True)


def _line(product: MatrixProduct, found: dict[str, Any]) -> str:
    kernel, buffers = product_kernel(product)
    multiplied = contraction(kernel, buffers)
    key = None if multiplied is None else key_of(kernel, multiplied, buffers)
    assert key is not None
    ranks = {choice.words: n for n, choice in enumerate(candidates(key, 100), 1)}
    aten, *others = found["choices"]
    parts = [f"aten {aten['seconds'] * 1e6:.1f} us"]
    parts += [f"{c['choice']} {c['seconds'] * 1e6:.1f} (rank {ranks.get(c['choice'], '-')})" for c in others[:3]]
    for described in (True, False):
        best = min((c["seconds"] for c in others if ("descriptors" in c["choice"]) == described), default=0.0)
        parts.append(f"{'with' if described else 'without'} descriptors {best * 1e6:.1f}")
    parts += [f"rejected: {choice}: {why}" for choice, why in found["rejected"].items()]
    return "; ".join(parts)


if __name__ == "__main__":
    main()
