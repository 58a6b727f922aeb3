"""What a kernel with a `dot` multiplies, which of its loops belong to which operand, and how it is cut into tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import attrs
import torch

from torchjit_core.expr import Expr, constant, minimum
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir.dtypes import EIGHT_BIT_FLOATS
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, element_count
from torchjit_inductor.ir.values import DOTS, Value, walk
from torchjit_inductor.triton.descriptors import OperandTiles, matrix_of
from torchjit_inductor.triton.plan import MULTIPROCESSORS, Axis
from torchjit_inductor.triton.tile_choices import ProductKey, TileChoice

__all__ = [
    "Contraction",
    "DotPlan",
    "contraction",
    "has_dot",
    "key_of",
    "plan_of",
]

_MULTIPLIED = (torch.float16, torch.bfloat16, torch.int8)


@final
@attrs.frozen(eq=False)
class Contraction:
    """A kernel's product of matrices.

    Attributes:
        dot: the value.
        left, right: its operands.
        batch: loops that both operands depend on, outermost first.
        rows: loops of the left operand only.
        columns: loops of the right operand only.
    """

    dot: Value
    left: Value
    right: Value
    batch: tuple[LoopVar, ...]
    rows: tuple[LoopVar, ...]
    columns: tuple[LoopVar, ...]


def has_dot(kernel: LoopKernel) -> bool:
    """Does the kernel multiply matrices?"""
    return any(v.op == "reduce" and v.data in DOTS for v in kernel.values)


def contraction(kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> Contraction | None:
    """The product in the kernel; None where it is not of the form that tiles can compute.

    Everything else that the kernel does must follow the product point by point.
    """
    reductions = [v for v in kernel.values if v.op == "reduce"]
    if len(reductions) != 1 or reductions[0].data not in DOTS or any(v.op == "scan" for v in kernel.values):
        return None
    found = reductions[0]
    left, right = found.args
    if any(s.scatters or not s.outer for s in kernel.stores) or not _operands(left, right, buffers):
        return None
    batch = tuple(v for v in kernel.outer if v.symbol in left.symbols and v.symbol in right.symbols)
    rows = tuple(v for v in kernel.outer if v.symbol in left.symbols and v.symbol not in right.symbols)
    columns = tuple(v for v in kernel.outer if v.symbol in right.symbols and v.symbol not in left.symbols)
    if not rows or not columns or len(batch) + len(rows) + len(columns) < len(kernel.outer):
        return None
    return Contraction(found, left, right, batch, rows, columns)


def _operands(left: Value, right: Value, buffers: Mapping[str, Buffer]) -> bool:
    types = [_stored(v, buffers) for v in (left, right)]
    return (types[0] in _MULTIPLIED and types[0] == types[1]) or all(t in EIGHT_BIT_FLOATS for t in types)


def _stored(value: Value, buffers: Mapping[str, Buffer]) -> torch.dtype | None:
    """The type that the operand's values have."""
    if value.op == "load":
        return buffers[value.data.buffer].dtype
    return value.data if value.op == "round_to" else None


# ---------------------------------------------------------------------------------------------------------- tiles
def key_of(kernel: LoopKernel, found: Contraction, buffers: Mapping[str, Buffer]) -> ProductKey | None:
    """The key of a kernel's product; None where sizes are symbolic."""
    sizes = [_count(loops) for loops in (found.batch, found.rows, found.columns, kernel.inner)]
    types = [str(_stored(v, buffers)).removeprefix("torch.") for v in (found.left, found.right)]
    if any(n is None for n in sizes):
        return None
    batch, rows, columns, depth = (n or 0 for n in sizes)
    walks = [_walks(v, kernel.inner) for v in (found.left, found.right)]
    described = _described(kernel, found, buffers) is not None
    other = "" if types[0] == types[1] else types[1]
    return ProductKey(types[0], batch, rows, columns, depth, walks[0], walks[1], described, other)


def _described(
    kernel: LoopKernel, found: Contraction, buffers: Mapping[str, Buffer]
) -> tuple[OperandTiles, OperandTiles] | None:
    """Both operands as descriptors say them; None where they cannot."""
    left = matrix_of(found.left, found.rows, kernel.inner, buffers)
    right = matrix_of(found.right, kernel.inner, found.columns, buffers)
    return None if left is None or right is None or found.batch else (left, right)


def _count(loops: Sequence[LoopVar]) -> int | None:
    return element_count(tuple(v.size for v in loops)).value


def _walks(value: Value, inner: Sequence[LoopVar]) -> bool:
    for node in walk(value):
        if node.op == "load" and inner[-1].symbol in node.data.index.symbols:
            step = stride(node.data.index, inner[-1].symbol)
            return step is not None and step.value == 1
    return False


@final
@attrs.frozen(eq=False)
class DotPlan:
    """Programs and tiles of a kernel that multiplies matrices.

    Attributes:
        found: the product.
        rows, columns, depth: axes `y`, `x` and `r`.
        group, persistent: see `TileChoice`.
        num_warps, num_stages: see `TilePlan`.
        operands: the left and the right one, where descriptors bring them.
    """

    found: Contraction
    rows: Axis
    columns: Axis
    depth: Axis
    group: int
    num_warps: int
    num_stages: int
    persistent: bool = False
    operands: tuple[OperandTiles, ...] = ()

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (self.rows, self.columns, self.depth)

    @property
    def programs(self) -> Expr:
        """How many programs run."""
        return minimum(self.tiles, constant(MULTIPROCESSORS)) if self.persistent else self.tiles

    @property
    def tiles(self) -> Expr:
        """How many tiles there are."""
        return element_count(tuple(v.size for v in self.found.batch)) * self.rows.blocks * self.columns.blocks


def plan_of(
    kernel: LoopKernel, found: Contraction, choice: TileChoice, buffers: Mapping[str, Buffer] | None = None
) -> DotPlan:
    """A plan with tiles of this choice.

    Args:
        buffers: of the graph; without them there are no descriptors.
    """
    operands: tuple[OperandTiles, ...] = ()
    described = _described(kernel, found, buffers) if choice.descriptors and buffers is not None else None
    if described is not None:
        tiles = (choice.rows, choice.depth), (choice.depth, choice.columns)
        operands = tuple(
            attrs.evolve(o, tile=t[::-1] if o.turned else t) for o, t in zip(described, tiles, strict=True)
        )
    return DotPlan(
        found,
        Axis("y", found.rows, choice.rows),
        Axis("x", found.columns, choice.columns),
        Axis("r", kernel.inner, choice.depth, looped=True),
        choice.group,
        choice.num_warps,
        choice.num_stages,
        choice.persistent,
        operands,
    )
