"""A product of matrices alone, as a kernel of the loop IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Origin, Store
from torchjit_inductor.ir.values import Value, dot, load
from torchjit_inductor.lowering.contractions import MatrixProduct
from torchjit_inductor.lowering.grouped import grouped_dot

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
    p = product
    buffers = {
        name: Buffer(name, dtype, p.device, tuple(map(constant, sizes)), tuple(map(constant, strides)))
        for name, (dtype, sizes, strides) in layouts_of(p).items()
    }
    # The result has a loop of matrices, unless it is one.
    sizes = [n.value or 0 for n in buffers["out"].sizes]
    loops = [_loop(f"x{n}", size) for n, size in enumerate(sizes, 3 - len(sizes)) if size > 1]
    names = {v.symbol.name: as_expr(v.symbol) for v in loops}
    batch, row, column = (names.get(f"x{n}", constant(0)) for n in range(3))
    depth = as_expr(Symbol("r0", 0, p.depth - 1))

    def element(name: str) -> Callable[..., Value]:
        buffer = buffers[name]
        return lambda index, **options: load(name, _place(buffer, *index), buffer.dtype, **options)

    def index(name: str, *last: Expr) -> tuple[Expr, ...]:
        return (batch, *last) if len(buffers[name].sizes) == 3 else last

    left, right = element("left"), element("right")
    if p.groups is None:
        fast = p.scales is not None and p.scales.fast
        value = dot(left(index("left", row, depth)), right(index("right", depth, column)), fast=fast)
    else:
        ends = [element("ends")((constant(n),)) for n in range(p.groups.count)]
        value = grouped_dot(p.groups.along, ends, left, right, (batch, row, column, depth))
    if p.scales is not None:
        first, second = (row, column) if p.scales.by_rows else (constant(0), constant(0))
        value = value * element("left_scale")((first, constant(0))) * element("right_scale")((constant(0), second))
    store = Store("out", _place(buffers["out"], *index("out", row, column)), value, outer=True)
    inner = (_loop("r0", p.depth),)
    kernel = LoopKernel("product", p.device, tuple(loops), inner, (store,), (Origin("product", "matmul"),))
    return kernel, buffers


def _place(buffer: Buffer, *index: Any) -> Expr:
    total = constant(0)
    for i, step in zip(index, buffer.strides, strict=True):
        total = total + i * step
    return total


def _loop(name: str, size: int) -> LoopVar:
    return LoopVar(Symbol(name, 0, size - 1), constant(size))
