"""Products whose rows, columns or sums are divided into groups (`lowering.grouped`): how tiles find theirs.

Each group is covered by tiles of its own, so that all of a tile is multiplied with one matrix. How many tiles a group has is
known to the kernel only: there are as many programs as there can be tiles, and each finds its group from the ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import attrs

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.ir.kernel import LoopKernel, LoopVar
from torchjit_inductor.ir.values import LoadData, Value
from torchjit_inductor.triton.plan import power_of_two

__all__ = ["Segments", "segment_lines", "segments_of", "symbols_of"]


@final
@attrs.frozen(eq=False)
class Segments:
    """The groups of a product.

    Attributes:
        along: `rows`, `columns` or `depth`.
        value: the number of a position's group, a `segment`.
        position: of the value.
        matrix: number of the result that a group of the depth has.
        count: how many groups.
        buffer: of their ends.
        first, step: where the first end lies in it, and how far it is to the next.
    """

    along: str
    value: Value
    position: Expr
    matrix: Expr
    count: int
    buffer: str
    first: int
    step: int

    def divides(
        self, rows: Sequence[LoopVar], columns: Sequence[LoopVar], inner: Sequence[LoopVar], batch: Sequence[LoopVar]
    ) -> bool:
        """Is the position that of the one loop that is divided, and is the result's number that of the only other loop?"""
        loops = {"rows": rows, "columns": columns, "depth": inner}[self.along]
        if len(loops) != 1 or self.position != as_expr(loops[0].symbol):
            return False
        if self.along != "depth":
            return not batch
        return self.matrix.value == 0 if not batch else [v.symbol for v in batch] == [self.matrix.as_symbol]


def segments_of(kernel: LoopKernel, left: Value, right: Value) -> tuple[Segments, Value, Value] | None:
    """The groups, and both operands without the masks that say them; None where the form is another one."""
    values = [v for v in kernel.values if v.op == "segment"]
    if len(values) != 1 or left.op != "load" or right.op != "load" or values[0].args[0].op != "index":
        return None
    (value,) = values
    users = [v for v in kernel.values if value in v.args]
    ends = [v.data for v in value.args[1:] if v.op == "load" and not v.args]
    places = [d.index.value for d in ends]
    if len(ends) != len(value.args) - 1 or len({d.buffer for d in ends}) != 1 or None in places:
        return None
    first, step = places[0] or 0, (places[1] or 0) - (places[0] or 0) if len(places) > 1 else 1
    if places != [first + n * step for n in range(len(places))]:
        return None
    masks = [v for v in (left, right) if v.data.masked]
    if any(v.data.other != 0 for v in masks) or not masks:
        return None
    mask = masks[0].args[-1]
    if any(v.args[-1] is not mask for v in masks) or mask.args[0] is not value:
        return None
    along, matrix = "", constant(0)
    if len(masks) == 2:
        other = mask.args[1]
        if (
            mask.op != "eq"
            or other.op not in ("index", "constant")
            or left.data.binders
            or right.data.binders
            or users != [mask]
        ):
            return None
        along, matrix = "depth", other.data.index if other.op == "index" else constant(other.data)
    else:
        (load,) = masks
        if (
            mask.op != "lt"
            or mask.args[1].data != len(ends)
            or load.args[:-1] != (value,)
            or set(users) != {mask, load}
        ):
            return None
        along = "columns" if load is left else "rows"
    made = Segments(along, value, value.args[0].data.index, matrix, len(ends), ends[0].buffer, first, step)
    return made, *(_unmasked(v) for v in (left, right))  # type: ignore[return-value]  # two of them


def _unmasked(load: Value) -> Value:
    if not load.data.masked:
        return load
    data: LoadData = attrs.evolve(load.data, masked=False)
    return Value("load", load.args[:-1], load.dtype, data)


def symbols_of(operand: Value) -> frozenset[Symbol]:
    """The loops that an operand depends on, but for those that say only which group it belongs to."""
    if operand.op == "load" and operand.args and operand.args[0].op == "segment":
        named: frozenset[Symbol] = operand.data.index.symbols
        return named.difference(operand.data.binders)
    return operand.symbols


def segment_lines(
    groups: Segments, pointer: str, axis: str, block: int, number: str, sizes: tuple[str, str], wide: bool
) -> list[str]:
    """Statements that find the group of a block along the rows or columns: `segment`, `{axis}_start`, `{axis}_end`, `depth_end`.

    Args:
        groups: of the product.
        pointer: parameter of the ends.
        axis: `y` or `x`.
        block: length of a block.
        number: of the block, counted over all groups; there may be no such block.
        sizes: of the axis, and of the sum.
        wide: 64-bit positions.
    """
    width = power_of_two(groups.count + 1)
    size, depth = sizes
    last = f"groups < {groups.count}"
    place = f"{pointer} + ({groups.first} + groups * {groups.step})"
    return [
        f"groups = tl.arange(0, {width})",
        # Ends are data: whatever they are, nothing is read or written beyond the operands.
        f"group_end = tl.load({place}, {last}, other={size})",
        f"group_end = tl.minimum(tl.maximum(group_end, 0), {size})",
        f"group_start = tl.load({place} - {groups.step}, (groups > 0) & (groups <= {groups.count}), other=0)",
        f"group_start = tl.minimum(tl.maximum(group_start, 0), {size})",
        f"blocks = tl.where(groups <= {groups.count}, tl.maximum(group_end - group_start + {block - 1}, 0) // {block}, 0)",
        "block_end = tl.cumsum(blocks, 0)",
        f"mine = ({number} >= block_end - blocks) & ({number} < block_end)",
        f"segment = tl.sum(tl.where(mine, groups, 0), 0){'.to(tl.int64)' if wide else ''}",
        f"{axis}_start = tl.sum(tl.where(mine, group_start + ({number} - (block_end - blocks)) * {block}, 0), 0)",
        f"{axis}_end = tl.sum(tl.where(mine, group_end, 0), 0)",
        # Behind the last end there is nothing to add up, and behind the last block nothing at all.
        f"depth_end = tl.where((segment < {groups.count}) & ({axis}_start < {axis}_end), {depth}, 0)",
    ]
