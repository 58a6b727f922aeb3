"""A product of matrices alone, as a kernel of the loop IR."""

from __future__ import annotations

import attrs
import torch

from torchjit_core.expr import constant
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, Origin
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.contractions import MatrixProduct, Operands, multiply
from torchjit_inductor.lowering.tensors import TensorMeta
from torchjit_inductor.steps import KernelStep

__all__ = ["layouts_of", "product_kernel"]

Layout = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""dtype, sizes, strides."""


def layouts_of(p: MatrixProduct) -> dict[str, Layout]:
    """What a product's operands and its result are called here, and how they lie in memory."""
    left, right = (p.rows, p.depth), (p.depth, p.columns)
    out: tuple[int, ...] = (p.rows, p.columns)
    matrices = {"left": p.batch, "right": p.batch, "out": p.batch}
    if p.groups is not None:
        with_matrices = {"rows": "right", "columns": "left", "depth": "out"}[p.groups.along]
        matrices[with_matrices] = p.groups.count
    found: dict[str, Layout] = {}
    for name, dtype, sizes, strides in (
        ("left", p.dtype, left, p.left_strides),
        ("right", p.second, right, p.right_strides),
        ("out", p.result, out, (p.rows * p.columns, p.columns, 1)),
    ):
        whole = (matrices[name], *sizes)
        # One matrix has two dimensions; a single group is a dimension all the same.
        plain = matrices[name] == 1 and not (p.groups is not None and name == with_matrices)
        found[name] = (dtype, sizes, strides[1:]) if plain else (dtype, whole, strides)
    if p.scales is not None:
        rows, columns = (p.rows, p.columns) if p.scales.by_rows else (1, 1)
        found |= {
            "left_scale": (torch.float32, (rows, 1), (1, 1)),
            "right_scale": (torch.float32, (1, columns), (1, 1)),
        }
    if p.groups is not None:
        found["ends"] = (torch.int32, (p.groups.count,), (1,))
    return found


def product_kernel(product: MatrixProduct) -> tuple[LoopKernel, dict[str, Buffer]]:
    """The product alone as a kernel, and its buffers: those of `layouts_of`."""
    b, p = Builder(), product
    metas = {
        name: TensorMeta(tuple(map(constant, sizes)), tuple(map(constant, strides)), dtype, p.device)
        for name, (dtype, sizes, strides) in layouts_of(p).items()
    }
    places = {name: b.buffer(name, meta) for name, meta in metas.items()}
    scales = None if p.scales is None else (places["left_scale"], places["right_scale"])
    fast = p.scales is not None and p.scales.fast
    operands = Operands(places["left"], places["right"], scales=scales, fast=fast, ends=places.get("ends"))
    multiply(b, operands, p, metas["out"], places["out"])
    (step,) = b.steps
    assert isinstance(step, KernelStep)
    return attrs.evolve(step.kernel, name="product", origins=(Origin("product", "matmul"),)), b.buffers
