"""A kernel that its backend refuses, run by the evaluator of the loop IR: slow, but right."""

from __future__ import annotations

from typing import Any

import torch

from torchjit_inductor.codegen_protocol import CompiledKernel
from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.ir.kernel import LoopKernel

__all__ = ["evaluated"]


def evaluated(kernel: LoopKernel) -> CompiledKernel:
    """The kernel as a function of tensors and sizes that evaluates it."""
    names, symbols = kernel.buffers, kernel.symbols

    def launch(*arguments: Any) -> None:
        tensors, sizes = arguments[: len(names)], dict(zip(symbols, arguments[len(names) :], strict=True))
        memory = {name: _from_first_element(t) for name, t in zip(names, tensors, strict=True)}
        with torch.device(kernel.device):
            evaluate_kernel(kernel, memory, sizes)

    return CompiledKernel(kernel.name, str(kernel), launch, takes_tensors=True)


def _from_first_element(t: torch.Tensor) -> torch.Tensor:
    """All memory from a tensor's first element on, flat."""
    offset = t.storage_offset()
    return t.as_strided((t.untyped_storage().nbytes() // t.element_size() - offset,), (1,), offset)
