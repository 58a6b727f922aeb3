"""Names and texts of a kernel's positions: program ids, index tensors, masks, shapes, broadcasting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import final

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir.kernel import LoopVar, flat_index, iterations
from torchjit_inductor.triton.expressions import triton_text
from torchjit_inductor.triton.plan import Axis, TilePlan

__all__ = ["FIRST_ROW", "IN_SECOND", "SECOND_ROW", "Axes", "Tile"]

_NUMBER = re.compile(r"-?\d+")

FIRST_ROW, SECOND_ROW = Symbol("first_row", 0, None), Symbol("second_row", 0, None)
IN_SECOND = "in_second_row"
"""Which elements of the tile are in the second row."""

_LIMIT = 2**31

Axes = frozenset[str]
"""Along which axes of the tile a value varies, by name."""


@final
class Tile:
    """The positions that one program works on.

    Args:
        plan: of the kernel.
        wide: 64-bit positions.

    Attributes:
        rows: the axis, where a tile reaches over two rows at most: what depends on the row alone is computed for these two.
    """

    def __init__(self, plan: TilePlan, wide: bool) -> None:
        self.plan = plan
        self.wide = wide
        self.all_axes: Axes = frozenset(a.name for a in plan.axes)
        self.parallel: Axes = frozenset(a.name for a in plan.parallel)
        self.axes_of: dict[Symbol, Axes] = {}
        self.rows = _axis_of_rows(plan)
        for axis in plan.axes:
            for var in axis.loops:
                self.axes_of[var.symbol] = frozenset((axis.name,))

    def symbol_axes(self, symbols: Iterable[Symbol]) -> Axes:
        """The axes along which an expression over these symbols varies."""
        return frozenset[str]().union(*(self.axes_of.get(s, frozenset()) for s in symbols))

    def shape(self, axes: Axes) -> list[int]:
        """The shape of a tensor that varies along `axes`; [] for a scalar."""
        return [a.block if a.name in axes else 1 for a in self.plan.axes] if axes else []

    def spread(self, text: str, have: Axes, want: Axes) -> str:
        """`text`, which varies along `have`, as a tensor of the shape of `want`."""
        if have == want:
            return text
        if _NUMBER.fullmatch(text):  # Triton 3.6 broadcasts no bare numbers
            return f"tl.full({self.shape(want)}, {text}, tl.int{64 if self.wide else 32})"
        return f"tl.broadcast_to({text}, {self.shape(want)})"

    def masks(self, axes: Axes) -> list[str]:
        """The masks that keep a tile inside the loops, for a tensor that varies along `axes`."""
        return [f"{a.name}_mask" for a in self.plan.axes if a.name in axes and a.masked]

    def flat(self, axis: Axis) -> str:
        """The name of the position along an axis, counted over all of its loops."""
        return axis.loops[0].symbol.name if len(axis.loops) == 1 else axis.name

    # ------------------------------------------------------------------------------------------------- statements

    def program(self) -> list[str]:
        """Statements that turn the program id into positions on program loops and parallel axes."""
        parts: list[tuple[LoopVar | Axis, Expr]] = [(v, v.size) for v in self.plan.program_loops]
        parts += [(a, a.blocks) for a in self.plan.parallel]
        if not parts:
            return []
        wide = ".to(tl.int64)" if self.wide else ""
        lines = [f"pid = tl.program_id(0){wide}"]
        below = constant(1)
        for part, count in reversed(parts):
            text = "pid" if below.value == 1 else f"pid // {self.factor(below)}"
            below = below * count
            if part is not parts[0][0]:
                text += f" % {self.factor(count)}"
            if isinstance(part, Axis):
                lines += self.block(part, f"{text} * {part.block}")
            else:
                lines.append(f"{part.symbol.name} = {text}")
        return lines

    def reduced(self, start: str) -> list[str]:
        """Statements for the block of the `r` axis that begins at `start`."""
        axis = self.plan.reduced
        if axis is None:
            raise ValueError("the plan has no reduced axis")
        return self.block(axis, start)

    def block(self, axis: Axis, start: str) -> list[str]:
        """Statements for the block of an axis that begins at `start`."""
        flat, arange = self.flat(axis), f"tl.arange(0, {axis.block})"
        if self.wide and not self.plan.from_first:
            arange += ".to(tl.int64)"
        if len(self.plan.axes) == 2:
            arange += "[:, None]" if axis is self.plan.axes[0] else "[None, :]"
        if self.plan.from_first:
            first = f"tl.cast({start or 0}, tl.int64)" if self.wide else start or "0"
            lines = [f"{flat}_first = {first}", f"{flat}_lane = {arange}", f"{flat} = {flat}_first + {flat}_lane"]
        else:
            lines = [f"{flat} = {start} + {arange}" if start else f"{flat} = {arange}"]
        if axis.masked:
            lines.append(f"{axis.name}_mask = {flat} < {axis.end or self.size(axis.size)}")
        if axis is self.rows:
            lines += self._parts_of_rows(flat, axis.loops, start)
        elif len(axis.loops) > 1:
            lines += self._parts(flat, axis.loops)
        return lines

    def _parts_of_rows(self, flat: str, loops: Sequence[LoopVar], start: str) -> list[str]:
        """As `_parts`, without a quotient for each element."""
        size, rows = loops[-1].size.value or 1, iterations(loops[:-1]).value or 1
        lines = [
            f"{FIRST_ROW.name} = ({start}) // {size}",
            f"{SECOND_ROW.name} = tl.minimum({FIRST_ROW.name} + 1, {rows - 1})",
            f"{IN_SECOND} = {flat} >= ({FIRST_ROW.name} + 1) * {size}",
            f"{loops[-1].symbol.name} = {flat} - {FIRST_ROW.name} * {size} - tl.where({IN_SECOND}, {size}, 0)",
        ]
        if len(loops) == 2:
            return [*lines, f"{loops[0].symbol.name} = {FIRST_ROW.name} + {IN_SECOND}.to(tl.int32)"]
        lines.append(f"row = {FIRST_ROW.name} + {IN_SECOND}.to(tl.int32)")
        return lines + self._parts("row", loops[:-1])

    def digits_of_row(self, row: Symbol) -> dict[Symbol, Expr]:
        """What the loops outside of rows are in a row."""
        found: dict[Symbol, Expr] = {}
        if self.rows is not None:
            rest = as_expr(row)
            for var in reversed(self.rows.loops[1:-1]):
                found[var.symbol], rest = rest % var.size, rest // var.size
            found[self.rows.loops[0].symbol] = rest
        return found

    def _parts(self, flat: str, loops: Sequence[LoopVar]) -> list[str]:
        lines = []
        below = constant(1)
        for var in reversed(loops):
            text = flat if below.value == 1 else f"{flat} // {self.factor(below)}"
            if var is not loops[0]:
                text += f" % {self.factor(var.size)}"
            lines.append(f"{var.symbol.name} = {text}")
            below = below * var.size
        return lines

    def along_axes(self, index: Expr) -> Expr:
        """An index in which the positions along axes stand for those on their loops, where it walks all loops of an axis as one.

        Of such a position Triton knows that neighbours are neighbours.
        """
        for axis in self.plan.axes:
            if len(axis.loops) > 1 and axis.loops[-1].symbol in index.symbols:
                rest = index - flat_index(axis.loops)
                if rest.symbols.isdisjoint(v.symbol for v in axis.loops):
                    index = rest + as_expr(Symbol(axis.name))
        return index

    def from_first(self, index: Expr) -> tuple[str, str] | None:
        """An index as that of the tile's first element and the distance of each element from there, which 32 bits hold.

        Args:
            index: see `along_axes`.

        Returns:
            Their texts. None: it is not linear along an axis.
        """
        first: dict[str, str] = {}
        lanes: list[str] = []
        reach = 0
        for axis in self.plan.axes:
            flat, single = self.flat(axis), len(axis.loops) == 1
            found = stride(index, axis.loops[0].symbol if single else Symbol(axis.name))
            step = None if found is None else found.value
            if step is None or not (single or index.symbols.isdisjoint(v.symbol for v in axis.loops)):
                return None
            if step:
                first[flat] = f"{flat}_first"
                lanes.append(f"{flat}_lane*{step}" if step != 1 else f"{flat}_lane")
                reach += abs(step) * (axis.block - 1)
        text = triton_text(index, lambda s: first.get(s.name, s.name))
        return (text, " + ".join(lanes) or "0") if reach < _LIMIT else None

    def size(self, size: Expr) -> str:
        """A size in the kernel: a number, or an expression over size arguments."""
        return triton_text(size, lambda s: s.name)

    def factor(self, size: Expr) -> str:
        """`size` as an operand of a product or quotient."""
        return self.size(size) if size.value is not None else f"({self.size(size)})"


def _axis_of_rows(plan: TilePlan) -> Axis | None:
    """The only axis, if it runs over rows that are all numbers, none shorter than a tile."""
    axis = plan.axes[0] if len(plan.axes) == 1 and plan.reduced is None else None
    if axis is None or len(axis.loops) < 2 or any(not v.size.value for v in axis.loops):
        return None
    return axis if (axis.loops[-1].size.value or 0) >= axis.block else None
