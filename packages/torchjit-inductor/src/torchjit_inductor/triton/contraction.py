"""What a kernel with a `dot` multiplies, which of its loops belong to which operand, and how it is cut into tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import attrs
import torch

from torchjit_core.expr import Expr, constant, minimum
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, element_count
from torchjit_inductor.ir.values import Value, walk
from torchjit_inductor.triton.plan import MULTIPROCESSORS, Axis

__all__ = [
    "Contraction",
    "DotPlan",
    "ProductKey",
    "TileChoice",
    "candidates",
    "contraction",
    "cuts",
    "fallback_choice",
    "has_dot",
    "key_of",
    "neighbours",
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
    return any(v.op == "reduce" and v.data == "dot" for v in kernel.values)


def contraction(kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> Contraction | None:
    """The product in the kernel; None where it is not of the form that tiles can compute.

    Everything else that the kernel does must follow the product point by point.
    """
    reductions = [v for v in kernel.values if v.op == "reduce"]
    if len(reductions) != 1 or reductions[0].data != "dot" or any(v.op == "scan" for v in kernel.values):
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
    return types[0] in _MULTIPLIED and types[0] == types[1]


def _stored(value: Value, buffers: Mapping[str, Buffer]) -> torch.dtype | None:
    """The type that the operand's values have."""
    if value.op == "load":
        return buffers[value.data.buffer].dtype
    return value.data if value.op == "round_to" else None


# ---------------------------------------------------------------------------------------------------------- tiles
@final
@attrs.frozen
class TileChoice:
    """How a product is cut.

    Attributes:
        rows, columns, depth: of a tile of the result, and how much of the sum is taken at once.
        group: row blocks that neighbouring programs share a column block over, so that the cache holds both.
        num_warps, num_stages: see `TilePlan`.
        persistent: as many programs as multiprocessors, each of which computes several tiles: the loads of the next one run while
            what follows the product of this one is computed and stored.
        parts: into so many the sum is cut (split-K), for products of few tiles: programs add up one part each in float32, and a kernel
            behind them, which does what follows, joins the parts.
    """

    rows: int
    columns: int
    depth: int
    num_warps: int
    num_stages: int
    group: int = 8
    persistent: bool = False
    parts: int = 1

    @property
    def words(self) -> str:
        """For reports."""
        more = f", {self.parts} parts" if self.parts > 1 else ", persistent" if self.persistent else ""
        return f"{self.rows} x {self.columns} x {self.depth}, {self.num_warps} warps, {self.num_stages} stages{more}"


@final
@attrs.frozen
class ProductKey:
    """What a measurement of a product holds for.

    Attributes:
        dtype: of the operands, its name.
        batch, rows, columns, depth: sizes.
        left_walks_depth, right_walks_depth: does memory run along the summed dimension?
    """

    dtype: str
    batch: int
    rows: int
    columns: int
    depth: int
    left_walks_depth: bool
    right_walks_depth: bool


def key_of(kernel: LoopKernel, found: Contraction, buffers: Mapping[str, Buffer]) -> ProductKey | None:
    """The key of a kernel's product; None where sizes are symbolic."""
    sizes = [_count(loops) for loops in (found.batch, found.rows, found.columns, kernel.inner)]
    dtype = _stored(found.left, buffers)
    if any(n is None for n in sizes) or dtype is None:
        return None
    batch, rows, columns, depth = (n or 0 for n in sizes)
    walks = [_walks(v, kernel.inner) for v in (found.left, found.right)]
    return ProductKey(str(dtype).removeprefix("torch."), batch, rows, columns, depth, walks[0], walks[1])


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
    """

    found: Contraction
    rows: Axis
    columns: Axis
    depth: Axis
    group: int
    num_warps: int
    num_stages: int
    persistent: bool = False

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


def plan_of(kernel: LoopKernel, found: Contraction, choice: TileChoice) -> DotPlan:
    """A plan with tiles of this choice."""
    return DotPlan(
        found,
        Axis("y", found.rows, choice.rows),
        Axis("x", found.columns, choice.columns),
        Axis("r", kernel.inner, choice.depth, looped=True),
        choice.group,
        choice.num_warps,
        choice.num_stages,
        choice.persistent,
    )


_CHOICES = (
    TileChoice(16, 64, 128, 4, 4),
    TileChoice(16, 128, 128, 4, 4),
    TileChoice(32, 64, 128, 4, 4),
    TileChoice(32, 128, 64, 4, 4),
    TileChoice(64, 32, 128, 4, 4),
    TileChoice(64, 64, 64, 4, 5),
    TileChoice(64, 64, 128, 4, 3),
    TileChoice(64, 128, 64, 4, 4),
    TileChoice(64, 256, 64, 8, 3),
    TileChoice(128, 64, 64, 4, 4),
    TileChoice(128, 128, 32, 4, 4),
    TileChoice(128, 128, 64, 8, 3),
    TileChoice(128, 128, 64, 4, 4),
    TileChoice(128, 256, 64, 8, 3),
    TileChoice(256, 64, 64, 8, 3),
    TileChoice(256, 128, 64, 8, 3),
    TileChoice(64, 128, 64, 4, 4, persistent=True),
    TileChoice(128, 128, 64, 4, 4, persistent=True),
    TileChoice(128, 128, 64, 8, 3, persistent=True),
    TileChoice(128, 256, 64, 8, 3, persistent=True),
    TileChoice(256, 128, 64, 8, 3, persistent=True),
)
"""What is tried. For an H100 or H200: tiles of 128 by 256 fill its matrix units, small products want more programs."""

_SHARED = 227 * 1024
"""Bytes of shared memory that a program may have."""
_PARTS = (2, 4, 8, 16)
_ADDED = 2
"""Choices with parts that are tried beside the others where they are likely to pay."""


def candidates(key: ProductKey, most: int) -> list[TileChoice]:
    """The most promising choices, best first.

    A model of time: waves of tiles on the multiprocessors, each as long as its reads of both operands or its products,
    whichever is longer, and what of a tile lies outside of the matrices is lost.
    """
    size = 1 if key.dtype == "int8" else 2
    fitting = [c for c in _CHOICES if size * c.depth * (c.rows + c.columns) * c.num_stages <= _SHARED]
    # Persistent kernels take twice the time where memory runs across the depth: measured, the cause was not looked for.
    turns = key.left_walks_depth and key.right_walks_depth
    fitting = [c for c in fitting if not c.persistent or (turns and _tiles(key, c) > MULTIPROCESSORS)]
    ranked = sorted(fitting, key=lambda c: _modelled(key, c))
    return ranked[:most] + _in_parts(key, ranked)[:_ADDED]


def _in_parts(key: ProductKey, ranked: Sequence[TileChoice]) -> list[TileChoice]:
    """Choices that cut the sum, best first: where the best tiles leave multiprocessors idle and the sum is long."""
    if not ranked or _tiles(key, ranked[0]) >= MULTIPROCESSORS:
        return []
    found = [
        attrs.evolve(c, parts=parts)
        for c in ranked
        for parts in _PARTS
        if not c.persistent and cuts(key.depth, c, parts) and _tiles(key, c) * parts <= 2 * MULTIPROCESSORS
    ]
    return sorted(found, key=lambda c: _modelled(key, c))


def cuts(depth: int, choice: TileChoice, parts: int) -> bool:
    """Can a sum of `depth` be cut into so many equal parts, each worth a program?"""
    return parts == 1 or (depth % parts == 0 and depth // parts >= 4 * choice.depth)


def neighbours(key: ProductKey, choice: TileChoice) -> list[TileChoice]:
    """Choices that differ from this one in one thing, by one step."""
    steps: dict[str, tuple[int, ...]] = {
        "rows": (16, 32, 64, 128, 256), "columns": (16, 32, 64, 128, 256), "depth": (16, 32, 64, 128),
        "num_warps": (2, 4, 8), "num_stages": (2, 3, 4, 5, 6), "group": (1, 4, 8, 16), "parts": (1, *_PARTS),
    }  # fmt: skip
    found = []
    for name, values in steps.items():
        at = values.index(getattr(choice, name))
        for other in values[max(at - 1, 0) : at] + values[at + 1 : at + 2]:
            found.append(attrs.evolve(choice, **{name: other}))  # type: ignore[arg-type]  # all of these are integers
    found.append(attrs.evolve(choice, persistent=not choice.persistent))
    size = 1 if key.dtype == "int8" else 2
    return [
        c
        for c in found
        if cuts(key.depth, c, c.parts)
        and not (c.persistent and (c.parts > 1 or _tiles(key, c) <= MULTIPROCESSORS))
        and size * c.depth * (c.rows + c.columns) * c.num_stages <= _SHARED
        and 256 <= c.rows * c.columns <= 256 * 256 // (1 if c.num_warps == 8 else 2)
        and not (key.dtype == "int8" and c.depth < 32)
    ]


def fallback_choice(key: ProductKey | None) -> TileChoice:
    """The tiles of a product that was not measured."""
    return TileChoice(64, 64, 64, 4, 4) if key is None else candidates(key, 1)[0]


def _modelled(key: ProductKey, choice: TileChoice) -> float:
    """Relative time of a choice."""
    tiles = _tiles(key, choice) * choice.parts
    resident = (
        1
        if choice.persistent
        else max(1, min(4, _SHARED // (2 * choice.depth * (choice.rows + choice.columns) * choice.num_stages)))
    )
    waves = -(-tiles // (MULTIPROCESSORS * resident)) * resident
    steps = -(-key.depth // (choice.depth * choice.parts))
    # Cycles of a step: 4096 multiply-adds each at full tiles, less in small ones; 32 bytes each from the cache.
    filled = min(1.0, choice.rows / 64) * (0.65 + 0.35 * min(1.0, choice.rows * choice.columns / 32768))
    products = choice.rows * choice.columns * choice.depth / (4096 * filled)
    reads = 2 * choice.depth * (choice.rows + choice.columns) / 64
    few = min(tiles, MULTIPROCESSORS)
    edges = 300 if choice.persistent else 600
    # Parts are written and read in float32, by a second kernel.
    join = 0.0
    if choice.parts > 1:
        join = 4000 + 8 * choice.parts * key.batch * key.rows * key.columns / (16 * MULTIPROCESSORS)
    return join + waves * (steps * max(products, reads) + edges) * (1 + 0.1 * (MULTIPROCESSORS - few) / MULTIPROCESSORS)


def _tiles(key: ProductKey, choice: TileChoice) -> int:
    return key.batch * -(-key.rows // choice.rows) * -(-key.columns // choice.columns)
