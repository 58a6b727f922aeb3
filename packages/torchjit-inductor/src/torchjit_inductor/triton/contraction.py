"""What a kernel with a `dot` multiplies, which of its loops belong to which operand, and how it is cut into tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import attrs
import torch

from torchjit_core.expr import Expr, constant, minimum
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir.dtypes import EIGHT_BIT_FLOATS, HALF
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, iterations
from torchjit_inductor.ir.values import DOTS, IN_ORDER, Value, walk
from torchjit_inductor.triton.descriptors import OperandTiles, matrix_of
from torchjit_inductor.triton.plan import MULTIPROCESSORS, Axis
from torchjit_inductor.triton.segments import Segments, segments_of, symbols_of
from torchjit_inductor.triton.tile_choices import ProductKey, TileChoice

__all__ = [
    "Contraction",
    "DotPlan",
    "contraction",
    "has_dot",
    "key_of",
    "plan_of",
]

_MULTIPLIED = (*HALF, torch.int8)


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
        groups: where one of the four is divided into groups.
    """

    dot: Value
    left: Value
    right: Value
    batch: tuple[LoopVar, ...]
    rows: tuple[LoopVar, ...]
    columns: tuple[LoopVar, ...]
    groups: Segments | None = None


def has_dot(kernel: LoopKernel) -> bool:
    """Does the kernel multiply matrices?"""
    return any(v.op == "reduce" and v.data in DOTS for v in kernel.values)


def contraction(kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> Contraction | None:
    """The product in the kernel; None where it is not of the form that tiles can compute.

    Everything else that the kernel does must follow the product point by point.
    """
    dot = _dot(kernel)
    if dot is None:
        return None
    left, right = dot.args
    if not _operands(left, right, buffers):
        return None
    divided = segments_of(kernel, left, right)
    if divided is None:
        return None
    groups, left, right = divided
    matrix = groups.matrix.symbols if groups is not None and groups.along == "depth" else frozenset()
    sides = [symbols_of(left) | matrix, symbols_of(right) | matrix]
    batch, rows, columns = (
        tuple(v for v in kernel.outer if [v.symbol in symbols for symbols in sides] == has)
        for has in ([True, True], [True, False], [False, True])
    )
    whole = rows and columns and len(batch) + len(rows) + len(columns) == len(kernel.outer)
    divides = groups is None or groups.divides(rows, columns, kernel.inner, batch)
    return Contraction(dot, left, right, batch, rows, columns, groups) if whole and divides else None


def _dot(kernel: LoopKernel) -> Value | None:
    """The only reduction of a kernel, if it multiplies and all stores are made of its results in place."""
    reductions = [v for v in kernel.values if v.op == "reduce"]
    if len(reductions) != 1 or reductions[0].data not in DOTS or any(v.op in IN_ORDER for v in kernel.values):
        return None
    return None if any(s.scatters or not s.outer for s in kernel.stores) else reductions[0]


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
    sizes = [iterations(loops).value for loops in (found.batch, found.rows, found.columns, kernel.inner)]
    types = [str(_stored(v, buffers)).removeprefix("torch.") for v in (found.left, found.right)]
    if any(n is None for n in sizes):
        return None
    batch, rows, columns, depth = (n or 0 for n in sizes)
    walks = [_walks(v, kernel.inner) for v in (found.left, found.right)]
    described = _described(kernel, found, buffers) is not None
    other = "" if types[0] == types[1] else types[1]
    count, along = (0, "") if found.groups is None else (found.groups.count, found.groups.along)
    return ProductKey(types[0], batch, rows, columns, depth, walks[0], walks[1], described, other, count, along)


def _described(
    kernel: LoopKernel, found: Contraction, buffers: Mapping[str, Buffer]
) -> tuple[OperandTiles, OperandTiles] | None:
    """Both operands as descriptors say them; None where they cannot."""
    groups = found.groups
    # Where sums are divided, the last tile of a part has to end before the next part begins: with masks.
    if found.batch or (groups is not None and groups.along == "depth"):
        return None
    count = 0 if groups is None else groups.count
    left = matrix_of(found.left, found.rows, kernel.inner, buffers, count)
    right = matrix_of(found.right, kernel.inner, found.columns, buffers, count)
    return None if left is None or right is None else (left, right)


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
        return iterations(self.found.batch) * self.blocks(self.rows) * self.blocks(self.columns)

    def blocks(self, axis: Axis) -> Expr:
        """How many blocks cover an axis; along one that is divided into groups the most that there can be.

        Each group begins with a block of its own, and so does what lies behind the last one.
        """
        groups = self.found.groups
        if groups is None or groups.along != {"y": "rows", "x": "columns"}[axis.name]:
            return axis.blocks
        return axis.size // axis.block + (groups.count + 1)


def plan_of(
    kernel: LoopKernel, found: Contraction, choice: TileChoice, buffers: Mapping[str, Buffer] | None = None
) -> DotPlan:
    """A plan with tiles of this choice.

    Args:
        buffers: of the graph; without them there are no descriptors.
    """
    described = _described(kernel, found, buffers) if choice.descriptors and buffers is not None else None
    along = "" if found.groups is None else found.groups.along
    return DotPlan(
        found,
        Axis("y", found.rows, choice.rows, end="y_end" if along == "rows" else ""),
        Axis("x", found.columns, choice.columns, end="x_end" if along == "columns" else ""),
        Axis("r", kernel.inner, choice.depth, looped=True, end="r_end" if along == "depth" else ""),
        choice.group,
        choice.num_warps,
        choice.num_stages,
        choice.persistent,
        () if described is None else _tiled(described, choice, iterations(kernel.inner).value or 0),
    )


def _tiled(described: tuple[OperandTiles, OperandTiles], choice: TileChoice, depth: int) -> tuple[OperandTiles, ...]:
    """The operands with what is copied at once; () where tiles would not end with the matrix."""
    # Behind the end of one group's matrix lies the next: a tile across both would need masks, too.
    if any(o.lead and o.turned != (n == 1) and depth % choice.depth for n, o in enumerate(described)):
        return ()
    tiles = (choice.rows, choice.depth), (choice.depth, choice.columns)
    return tuple(attrs.evolve(o, tile=t[::-1] if o.turned else t) for o, t in zip(described, tiles, strict=True))
