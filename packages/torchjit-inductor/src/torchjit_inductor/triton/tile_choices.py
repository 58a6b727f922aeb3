"""How a product of matrices is cut into tiles: the choices there are, and a model of which are worth trying."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import attrs

from torchjit_inductor.triton.plan import MULTIPROCESSORS

__all__ = ["SHARED", "ProductKey", "TileChoice", "candidates", "cuts", "fallback_choice", "neighbours"]


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
        descriptors: operands come through the tensor memory accelerator (Hopper and later): see `descriptors.OperandTiles`.
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
    descriptors: bool = False

    @property
    def words(self) -> str:
        """For reports."""
        more = f", {self.parts} parts" if self.parts > 1 else ", persistent" if self.persistent else ""
        more += ", descriptors" if self.descriptors else ""
        return f"{self.rows} x {self.columns} x {self.depth}, {self.num_warps} warps, {self.num_stages} stages{more}"


@final
@attrs.frozen
class ProductKey:
    """What a measurement of a product holds for.

    Attributes:
        dtype: of the operands, its name, or of the left one.
        batch, rows, columns, depth: sizes.
        left_walks_depth, right_walks_depth: does memory run along the summed dimension?
        described: may both operands come through descriptors?
        right_dtype: where it is another one.
        groups, along: how many groups divide what, see `lowering.grouped.Groups`.
    """

    dtype: str
    batch: int
    rows: int
    columns: int
    depth: int
    left_walks_depth: bool
    right_walks_depth: bool
    described: bool = False
    right_dtype: str = ""
    groups: int = 0
    along: str = ""

    @property
    def bytes(self) -> int:
        """Of an element of an operand."""
        return 1 if self.dtype.startswith(("int8", "float8")) else 2

    def fits(self, choice: TileChoice) -> bool:
        """Has a program the shared memory for so many tiles of the operands?"""
        return self.bytes * choice.depth * (choice.rows + choice.columns) * choice.num_stages <= SHARED


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

_OF_BYTES = (
    TileChoice(64, 128, 128, 4, 4),
    TileChoice(64, 256, 128, 4, 4),
    TileChoice(128, 128, 128, 4, 4),
    TileChoice(128, 128, 128, 8, 4),
    TileChoice(128, 256, 128, 8, 3),
    TileChoice(256, 128, 128, 8, 3),
    TileChoice(128, 128, 128, 8, 4, persistent=True),
    TileChoice(128, 256, 128, 8, 3, persistent=True),
    TileChoice(256, 128, 128, 8, 3, persistent=True),
)
"""Besides, where elements are bytes: as many bytes along the depth."""

_DESCRIBED = (
    TileChoice(64, 128, 64, 4, 4),
    TileChoice(128, 128, 64, 4, 4),
    TileChoice(128, 128, 64, 8, 4),
    TileChoice(128, 256, 64, 8, 3),
    TileChoice(128, 128, 64, 4, 4, persistent=True),
    TileChoice(128, 128, 64, 8, 4, persistent=True),
    TileChoice(128, 256, 64, 8, 3, persistent=True),
    TileChoice(128, 256, 64, 8, 4, persistent=True),
    TileChoice(256, 128, 64, 8, 3, persistent=True),
)
"""With operands through descriptors; twice the depth of elements that are bytes."""
_TRIED_DESCRIBED = 4
"""So many of them beside the others."""
_SPARED = 2
"""So many fewer of the others, where descriptors are tried."""

SHARED = 227 * 1024
"""Bytes of shared memory that a program may have."""
_PARTS = (2, 4, 8, 16)
_ADDED = 2
"""Choices with parts that are tried beside the others where they are likely to pay."""


def candidates(key: ProductKey, most: int) -> list[TileChoice]:
    """The most promising choices, best first; those with parts or descriptors behind the others.

    A model of time: waves of tiles on the multiprocessors, each as long as its reads of both operands or its products,
    whichever is longer, and what of a tile lies outside of the matrices is lost.
    """
    fitting = [c for c in (*_CHOICES, *(_OF_BYTES if key.bytes == 1 else ())) if key.fits(c)]
    # Persistent kernels take twice the time where memory runs across the depth: measured, the cause was not looked for.
    turns = key.left_walks_depth and key.right_walks_depth
    fitting = [c for c in fitting if not c.persistent or (turns and _tiles(key, c) > MULTIPROCESSORS)]
    ranked = sorted(fitting, key=lambda c: _modelled(key, c))
    parts = _in_parts(key, ranked)[:_ADDED]
    if key.described and not key.groups:
        # Without groups, persistent kernels with descriptors were as fast or faster in all products but two (by 4 and 1 %).
        ranked, most = [c for c in ranked if not c.persistent], most - _SPARED
    return ranked[:most] + parts + _described(key)[:_TRIED_DESCRIBED]


def _described(key: ProductKey) -> list[TileChoice]:
    """Choices with descriptors, best first."""
    if not key.described:
        return []
    found = [attrs.evolve(c, descriptors=True, depth=c.depth * 2 // key.bytes) for c in _DESCRIBED]
    found = [c for c in found if key.fits(c) and not (c.persistent and _tiles(key, c) <= MULTIPROCESSORS)]
    return sorted(found, key=lambda c: _modelled(key, c))


def _in_parts(key: ProductKey, ranked: Sequence[TileChoice]) -> list[TileChoice]:
    """Choices that cut the sum, best first: where the best tiles leave multiprocessors idle and the sum is long."""
    if not ranked or key.groups or _tiles(key, ranked[0]) >= MULTIPROCESSORS:
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
    if key.described:
        found.append(attrs.evolve(choice, descriptors=not choice.descriptors))
    return [c for c in found if _allowed(key, c)]


def _allowed(key: ProductKey, c: TileChoice) -> bool:
    """May a product have these tiles?"""
    if c.parts > 1 and (key.groups or c.persistent or c.descriptors or not cuts(key.depth, c, c.parts)):
        return False
    if c.persistent and _tiles(key, c) <= MULTIPROCESSORS:
        return False
    if key.bytes == 1 and c.depth < 32:
        return False
    return key.fits(c) and 256 <= c.rows * c.columns <= 256 * 256 // (1 if c.num_warps == 8 else 2)


def fallback_choice(key: ProductKey | None) -> TileChoice:
    """The tiles of a product that was not measured."""
    return TileChoice(64, 64, 64, 4, 4) if key is None else candidates(key, 1)[0]


def _modelled(key: ProductKey, choice: TileChoice) -> float:
    """Relative time of a choice."""
    tiles = _tiles(key, choice) * choice.parts
    resident = (
        1
        if choice.persistent
        else max(1, min(4, SHARED // (2 * choice.depth * (choice.rows + choice.columns) * choice.num_stages)))
    )
    waves = -(-tiles // (MULTIPROCESSORS * resident)) * resident
    depth = key.depth // key.groups if key.along == "depth" else key.depth
    steps = -(-depth // (choice.depth * choice.parts))
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
    rows, columns = -(-key.rows // choice.rows), -(-key.columns // choice.columns)
    # Half a tile of each group is empty.
    rows += key.groups // 2 if key.along == "rows" else 0
    columns += key.groups // 2 if key.along == "columns" else 0
    return key.batch * rows * columns
