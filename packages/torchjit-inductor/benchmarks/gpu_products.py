"""Products of bfloat16 matrices on a GPU: cuBLAS beside every choice of tiles that a generated kernel may have.

    python packages/torchjit-inductor/benchmarks/gpu_products.py [--descend]

With `--descend` coordinate descent goes on from the table's best choices. A line for each product: microseconds of aten and of the four fastest choices, each with the rank that the model of
`candidates` gives it. Operands are out of cache; medians of 12.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

import torch

from torchjit_core import events
from torchjit_inductor.lowering.contractions import MatrixProduct
from torchjit_inductor.triton import autotune
from torchjit_inductor.triton.contraction import candidates, contraction, key_of
from torchjit_inductor.triton.cuda import CudaDriver
from torchjit_inductor.triton.product_kernel import product_kernel
from torchjit_inductor.triton.trial import TrialProcess

SHAPES = (
    (4096, 768, 768), (4096, 768, 3072), (4096, 3072, 768), (4096, 768, 2304), (2048, 2048, 5632), (2048, 5632, 2048), (16, 2048, 5632),
    (8192, 8192, 8192), (6304, 768, 3072), (512, 1024, 4096), (64, 8192, 1024), (128, 16384, 256),
)  # fmt: skip
"""Rows, depth, columns: layers of ViT, BERT, GPT-2 and Llama."""
EVERY = 100


def main() -> None:
    descends = "--descend" in sys.argv
    autotune.CANDIDATES = 8 if descends else EVERY
    heard: list[dict[str, Any]] = []
    events.start_listening(lambda kind, fields: heard.append(fields) if kind == "autotune" else None)
    device = torch.device("cuda", torch.cuda.current_device())
    major, minor = torch.cuda.get_device_capability(device)
    with tempfile.TemporaryDirectory() as folder:
        threads = os.cpu_count() or 1
        tuner = autotune.ProductTuner(
            folder, 1000.0, threads, CudaDriver(), lambda _: major * 10 + minor, {}, TrialProcess(), descends
        )
        for rows, depth, columns in SHAPES:
            for walks, right in (("rows", (0, columns, 1)), ("columns", (0, 1, depth))):
                product = MatrixProduct(torch.bfloat16, device, 1, rows, depth, columns, (0, depth, 1), right)
                tuner.promising(product)
                print(
                    f"{rows} x {depth} x {columns}, right operand by {walks}: {_line(product, heard[-1])}", flush=True
                )


def _line(product: MatrixProduct, found: dict[str, Any]) -> str:
    kernel, buffers = product_kernel(product)
    multiplied = contraction(kernel, buffers)
    key = None if multiplied is None else key_of(kernel, multiplied, buffers)
    assert key is not None
    ranks = {choice.words: n for n, choice in enumerate(candidates(key, EVERY), 1)}
    aten, *others = found["choices"]
    parts = [f"aten {aten['seconds'] * 1e6:.1f} us"]
    parts += [f"{c['choice']} {c['seconds'] * 1e6:.1f} (rank {ranks.get(c['choice'], '-')})" for c in others[:4]]
    parts += [f"rejected: {choice}: {why}" for choice, why in found["rejected"].items()]
    return "; ".join(parts)


if __name__ == "__main__":
    main()
