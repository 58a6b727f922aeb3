"""A product of matrices alone, as a kernel of the loop IR."""

from __future__ import annotations

import torch

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Origin, Store
from torchjit_inductor.ir.values import dot, load
from torchjit_inductor.lowering.contractions import MatrixProduct

__all__ = ["product_kernel"]


def product_kernel(product: MatrixProduct) -> tuple[LoopKernel, dict[str, Buffer]]:
    """The product alone as a kernel, and its buffers: `left`, `right` and `out`, and with scales `left_scale` and `right_scale`."""
    p = product
    outer = [_loop("x0", p.batch), _loop("x1", p.rows), _loop("x2", p.columns)]
    batch, row, column, depth = (*(as_expr(v.symbol) for v in outer), as_expr(Symbol("r0", 0, p.depth - 1)))
    if p.batch == 1:
        outer, batch = outer[1:], constant(0)
    layouts = {
        "left": ((p.batch, p.rows, p.depth), p.left_strides),
        "right": ((p.batch, p.depth, p.columns), p.right_strides),
        "out": ((p.batch, p.rows, p.columns), (p.rows * p.columns, p.columns, 1)),
    }
    dtypes = {"left": p.dtype, "right": p.second, "out": p.result}
    if p.scales is not None:
        rows, columns = (p.rows, p.columns) if p.scales.by_rows else (1, 1)
        layouts |= {"left_scale": ((1, rows, 1), (0, 1, 0)), "right_scale": ((1, 1, columns), (0, 0, 1))}
    buffers = {
        name: Buffer(
            name,
            dtypes.get(name, torch.float32),
            p.device,
            tuple(map(constant, sizes)),
            tuple(map(constant, strides)),
        )
        for name, (sizes, strides) in layouts.items()
    }

    def at(name: str, *index: Expr) -> Expr:
        total = constant(0)
        for i, step in zip(index, buffers[name].strides, strict=True):
            total = total + i * step
        return total

    value = dot(
        load("left", at("left", batch, row, depth), p.dtype),
        load("right", at("right", batch, depth, column), p.second),
        fast=p.scales is not None and p.scales.fast,
    )
    if p.scales is not None:
        nothing = constant(0)
        first, second = (row, column) if p.scales.by_rows else (nothing, nothing)
        value = value * load("left_scale", at("left_scale", nothing, first, nothing), torch.float32)
        value = value * load("right_scale", at("right_scale", nothing, nothing, second), torch.float32)
    store = Store("out", at("out", batch, row, column), value, outer=True)
    inner = (_loop("r0", p.depth),)
    kernel = LoopKernel("product", p.device, tuple(outer), inner, (store,), (Origin("product", "matmul"),))
    return kernel, buffers


def _loop(name: str, size: int) -> LoopVar:
    return LoopVar(Symbol(name, 0, size - 1), constant(size))
