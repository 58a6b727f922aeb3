"""The text of a kernel that multiplies matrices: a loop over the summed dimension, then what follows point by point."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from torchjit_core.expr import Symbol, as_expr
from torchjit_inductor.ir.dtypes import EIGHT_BIT_FLOATS
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar
from torchjit_inductor.ir.values import Value, substitute
from torchjit_inductor.triton.contraction import DotPlan
from torchjit_inductor.triton.descriptors import OperandTiles
from torchjit_inductor.triton.emit import Emitter
from torchjit_inductor.triton.operations import Dialect, type_name
from torchjit_inductor.triton.plan import MULTIPROCESSORS, Axis, TilePlan
from torchjit_inductor.triton.segments import segment_lines

__all__ = ["DESCRIPTORS", "dot_lines"]

_INDENT = "    "
DESCRIPTORS = ("left_tiles", "right_tiles")
"""Parameters of a kernel whose operands come through descriptors, behind all others."""


def dot_lines(
    kernel: LoopKernel, buffers: Mapping[str, Buffer], plan: DotPlan, *, wide: bool, dialect: Dialect
) -> list[str]:
    """The statements of the kernel's function.

    Three emitters write them: one for each operand, whose tiles are (rows, depth) and (depth, columns), and one for what
    follows, on tiles (rows, columns). They share the names of positions along rows and columns; along the depth the right
    operand has its own, since there it runs the other way.
    """
    found, numbers = plan.found, itertools.count()
    right, turned = _turned(kernel, plan)

    def emitter(*axes: Axis) -> Emitter:
        tile = TilePlan(found.batch, axes, plan.num_warps, plan.num_stages)
        return Emitter(kernel, buffers, tile, wide, dialect, numbers)

    first, second, after = (
        emitter(plan.rows, plan.depth),
        emitter(turned, plan.columns),
        emitter(plan.rows, plan.columns),
    )
    if found.groups is not None:
        for each in (first, second):
            each.define(found.groups.value, "segment")
    head = _tile(after, plan)
    if plan.operands:
        body: list[str] = []
        operands = [_copied(o, n, first.fresh(), body) for n, o in enumerate(plan.operands)]
    else:
        body = [*first.tile.reduced("r_start"), *second.tile.reduced("r_start")]
        operands = [e.as_stored(v, e.tile.all_axes) for e, v in ((first, found.left), (second, right))]
    total = type_name(found.dot.dtype)
    if (
        dialect.portable and total == "tl.float32"
    ):  # Triton's interpreter multiplies the bits of bfloat16 as if they were integers
        operands = [f"{text}.to(tl.float32)" for text in operands]
    head += [*first.head, *second.head]
    body += [
        *first.body,
        *second.body,
        f"acc = tl.dot({operands[0]}, {operands[1]}, acc, out_dtype={total}{_exact(kernel, buffers, plan)})",
    ]
    head.append(f"acc = tl.zeros([{plan.rows.block}, {plan.columns.block}], {total})")
    head.append(f"for r_start in range({_bounds(after, plan)}, {plan.depth.block}):")
    head += [_INDENT + line for line in body]
    after.define(found.dot, "acc")
    stores = [after.store(s) for s in kernel.stores]
    lines = [*head, *after.head, *stores]
    cast = ".to(tl.int64)" if wide else ""
    if not plan.persistent:
        return [f"tile = tl.program_id(0){cast}", *lines]
    # Loops join only where the inner one has the same number of turns each time.
    flat = ", flatten=True" if found.groups is None else ""
    every = f"tl.range(tl.program_id(0){cast}, {after.tile.size(plan.tiles)}, {MULTIPROCESSORS}{flat})"
    return [f"for tile in {every}:", *(_INDENT + line for line in lines)]


def _turned(kernel: LoopKernel, plan: DotPlan) -> tuple[Value, Axis]:
    """The right operand over symbols of its own along the depth, and that axis."""
    symbols = [Symbol(f"{v.symbol.name}s", v.symbol.bounds.lower, v.symbol.bounds.upper) for v in kernel.inner]
    loops = tuple(LoopVar(s, v.size) for s, v in zip(symbols, kernel.inner, strict=True))
    renamed = {v.symbol: as_expr(s) for s, v in zip(symbols, kernel.inner, strict=True)}
    return substitute(plan.found.right, renamed), Axis("s", loops, plan.depth.block, looped=True, end=plan.depth.end)


def _bounds(after: Emitter, plan: DotPlan) -> str:
    """Where the loop over the depth begins and ends."""
    if plan.found.groups is None:
        return f"0, {after.tile.size(plan.depth.size)}"
    return "r_first, r_end" if plan.found.groups.along == "depth" else "0, depth_end"


def _copied(operand: OperandTiles, position: int, name: str, lines: list[str]) -> str:
    """The name of an operand's tile, brought by a descriptor: what lies outside of the matrix is 0."""
    starts = [("y_start", "r_start"), ("r_start", "x_start")][position]
    down, across = starts[::-1] if operand.turned else starts
    if operand.lead:
        down = f"({down} + segment * {operand.lead}).to(tl.int32)"
    lines.append(f"{name} = {DESCRIPTORS[position]}.load([{down}, {across}])" + (".T" if operand.turned else ""))
    return name


def _exact(kernel: LoopKernel, buffers: Mapping[str, Buffer], plan: DotPlan) -> str:
    """Sums of 8-bit floats that are no longer than a tile is deep are left to the matrix units, which keep few bits of them."""
    left = plan.found.left
    if (
        plan.found.dot.data == "fast_dot"
        or left.op != "load"
        or buffers[left.data.buffer].dtype not in EIGHT_BIT_FLOATS
    ):
        return ""
    return f", max_num_imprecise_acc={plan.depth.block}"


def _tile(after: Emitter, plan: DotPlan) -> list[str]:
    """Where the tile number `tile` lies.

    Tiles that are computed at the same time share operands in the cache: their numbers go down `group` row blocks before the next column.
    """
    tile, groups = after.tile, plan.found.groups
    rows, columns = tile.factor(plan.blocks(plan.rows)), tile.factor(plan.blocks(plan.columns))
    lines: list[str] = []
    number = "tile"
    if plan.found.batch:
        lines += [f"batch = tile // ({rows} * {columns})", f"rest = tile % ({rows} * {columns})"]
        number = "rest"
        lines += _digits("batch", plan.found.batch, tile.factor)
    lines += [
        f"first_row = {number} // ({plan.group} * {columns}) * {plan.group}",
        f"group = tl.minimum({rows} - first_row, {plan.group})",
        f"within = {number} % ({plan.group} * {columns})",
    ]
    for axis, block in ((plan.rows, "(first_row + within % group)"), (plan.columns, "(within // group)")):
        start = f"{block} * {axis.block}"
        if groups is not None and axis.end:
            lines.append(f"block = {block}")
            sizes, pointer = (tile.size(axis.size), tile.size(plan.depth.size)), after.pointers[groups.buffer]
            lines += segment_lines(groups, pointer, axis.name, axis.block, "block", sizes, tile.wide)
            start = f"{axis.name}_start"
            if plan.operands:
                lines.append(f"{start} = {start}.to(tl.int32)")
        elif plan.operands:
            lines.append(f"{axis.name}_start = ({start}).to(tl.int32)")
            start = f"{axis.name}_start"
        lines += tile.block(axis, start)
    if groups is not None and groups.along == "depth":
        matrix, pointer = tile.size(groups.matrix), after.pointers[groups.buffer]
        end = f"{pointer} + ({groups.first} + {matrix} * {groups.step})"
        # As in `segment_lines`.
        lines.append(f"r_end = tl.minimum(tl.load({end}), {tile.size(plan.depth.size)})")
        before = f"tl.maximum(tl.load({end} - {groups.step}, {matrix} > 0, other=0), 0)"
        lines.append(f"r_first = {before if groups.matrix.value is None else 0}")
    return lines


def _digits(name: str, loops: tuple[LoopVar, ...], factor: object) -> list[str]:
    lines, left = [], name
    for position, var in enumerate(reversed(loops)):
        last = position == len(loops) - 1
        size = factor(var.size)  # type: ignore[operator]
        lines.append(f"{var.symbol.name} = {left}" + ("" if last else f" % {size}"))
        left = f"({left} // {size})"
    return lines
