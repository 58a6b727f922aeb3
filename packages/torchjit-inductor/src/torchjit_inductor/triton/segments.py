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


@final
@attrs.frozen
class _Ends:
    """Where the ends of the groups lie: `count` numbers of a buffer, `step` apart."""

    count: int
    buffer: str
    first: int
    step: int


def segments_of(kernel: LoopKernel, left: Value, right: Value) -> tuple[Segments | None, Value, Value] | None:
    """The groups, if there are any, and both operands without the masks that say them; None where the form is another one."""
    values = [v for v in kernel.values if v.op == "segment"]
    if not values:
        return None, left, right
    if len(values) != 1 or left.op != "load" or right.op != "load" or values[0].args[0].op != "index":
        return None
    (value,) = values
    ends, mask = _ends(value), _mask_by(value, left, right)
    if ends is None or mask is None:
        return None
    form = _FORMS.get(mask.op)
    divided = None if form is None else form(kernel, mask, ends, left, right)
    if divided is None:
        return None
    groups = Segments(divided[0], value, value.args[0].data.index, divided[1], *attrs.astuple(ends))
    return groups, _unmasked(left), _unmasked(right)


def _ends(value: Value) -> _Ends | None:
    """The ends that a `segment` counts, where they are neighbours in memory or evenly apart."""
    ends: list[LoadData] = [v.data for v in value.args[1:] if v.op == "load" and not v.args]
    places = [d.index.value for d in ends if d.index.value is not None]
    if len(places) != len(value.args) - 1 or len({d.buffer for d in ends}) != 1:
        return None
    first, step = places[0], places[1] - places[0] if len(places) > 1 else 1
    if places != [first + n * step for n in range(len(places))]:
        return None
    return _Ends(len(ends), ends[0].buffer, first, step)


def _mask_by(value: Value, left: Value, right: Value) -> Value | None:
    """The mask of the operands, one for all that are masked, which compares the number of the group; masked-off elements are zeros."""
    masked = [v for v in (left, right) if v.data.masked]
    masks = {v.args[-1] for v in masked}
    if len(masks) != 1 or any(v.data.other != 0 for v in masked):
        return None
    (mask,) = masks
    return mask if mask.args[0] is value else None


def _divided_depth(kernel: LoopKernel, mask: Value, ends: _Ends, left: Value, right: Value) -> tuple[str, Expr] | None:
    """Sums over the positions of one group, whose number is that of the result: both operands are masked by `eq`."""
    value, other = mask.args
    if not (left.data.masked and right.data.masked) or other.op not in ("index", "constant"):
        return None
    if left.data.binders or right.data.binders or _users(kernel, value) != {mask}:
        return None
    return "depth", other.data.index if other.op == "index" else constant(other.data)


def _divided_outer(kernel: LoopKernel, mask: Value, ends: _Ends, left: Value, right: Value) -> tuple[str, Expr] | None:
    """Rows or columns that pick the matrix of their group: the other operand is masked by `lt`, behind the last end."""
    if left.data.masked and right.data.masked:
        return None
    load, (value, count) = left if left.data.masked else right, mask.args
    if count.data != ends.count or load.args[:-1] != (value,) or _users(kernel, value) != {mask, load}:
        return None
    return "columns" if load is left else "rows", constant(0)


_FORMS = {"eq": _divided_depth, "lt": _divided_outer}
"""How masks say groups: by their comparison."""


def _users(kernel: LoopKernel, value: Value) -> set[Value]:
    return {v for v in kernel.values if value in v.args}


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
