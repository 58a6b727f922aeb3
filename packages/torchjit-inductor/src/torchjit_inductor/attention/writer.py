"""What the texts of the kernels of attention have in common: the call that they compute, where its tensors lie, and the loops.

A kernel holds a block of rows of the scores (or, for the gradients of keys and values, of columns) and walks over the blocks
that the block mask lists, first those that the mask cuts, then the full ones. `Emitter` writes the user's functions: what they
read of the held rows goes before the loops.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import final

import attrs
import torch

from torchjit_core.expr import as_expr
from torchjit_inductor.attention.formulas import GRADIENT, SCORE, Addition, Formulas, loop_symbols
from torchjit_inductor.attention.sizes import (
    NARROW,
    NOTHING,
    TILE,
    Number,
    Varying,
    covers,
    divides,
    plain,
    size_text,
)
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar
from torchjit_inductor.ir.values import Value
from torchjit_inductor.triton.emit import Emitter
from torchjit_inductor.triton.operations import Dialect, type_name
from torchjit_inductor.triton.plan import Axis, TilePlan, power_of_two

__all__ = [
    "ADDITIONS",
    "GRADIENTS",
    "INDENT",
    "AttentionProblem",
    "KernelText",
    "ListLayout",
    "Tiles",
    "Writer",
    "function_of_lines",
]

INDENT = "    "
_LOG2E = 1 / math.log(2)
_SMALLEST = 16
"""Sides of a product on matrix units are no shorter."""

SCORES, ADDITIONS, GRADIENTS = "<scores>", "<additions>", "<gradients>"
"""Lines that differ between blocks with and without a mask."""

Strides = tuple[Number, ...]


@final
@attrs.frozen
class Tiles:
    """How a kernel is cut.

    Attributes:
        rows: that a program holds.
        columns: that it takes at a time.
        warps: of a program.
        stages: depth of the pipeline.
        packed: heads that share keys are rows of one program.
        parts: programs that share the keys of a row, each with results of its own.
    """

    rows: int
    columns: int
    warps: int
    stages: int
    packed: bool = False
    parts: int = 1


@final
@attrs.frozen
class ListLayout:
    """How lists of blocks lie in memory.

    Attributes:
        batch, heads: sizes; an index beyond starts over.
        counts, indices: strides.
    """

    batch: Number
    heads: Number
    counts: Strides
    indices: Strides


@final
@attrs.frozen(eq=False)
class AttentionProblem:
    """A call, with all that its kernels' texts depend on.

    Attributes:
        sizes: batch, heads, queries, keys.
        key_heads: heads of keys and values; a divisor of the heads.
        depth, width: of a query, and of a value.
        dtype: of all three.
        scale: of the scores.
        formulas: of the scores.
        buffers: what the formulas read.
        strides: by tensor: `query`, `key`, `value`, `result`; `total`, `gradient`, `shift`, `of_query`, `of_key`, `of_value`.
        query_block, key_block: sizes of the blocks in the lists.
        key_lists: for each query block its key blocks: those with a mask, and perhaps the full ones.
        query_lists: the other way round.
        tf32: products of float32 may be rounded to it.
        varying: what the kernels get as arguments, and know of it.
    """

    sizes: tuple[Number, int, Number, Number]
    key_heads: int
    depth: int
    width: int
    dtype: torch.dtype
    scale: float
    formulas: Formulas
    buffers: Mapping[str, Buffer]
    strides: Mapping[str, Strides]
    query_block: int
    key_block: int
    key_lists: tuple[ListLayout, ...]
    query_lists: tuple[ListLayout, ...]
    tf32: bool = False
    varying: Varying = NOTHING

    @property
    def extents(self) -> list[Number]:
        """What has to be narrow for positions of 32 bits: within the matrix of a head, in what the formulas read, in the lists; and strides that are computed."""
        found: list[Number] = [plain(buffer.span) for buffer in self.buffers.values()]
        for strides in self.strides.values():
            # A tile may reach beyond the end.
            found += [(length + 2 * TILE) * strides[2] + 256 * sum(strides[3:]) for length in self.sizes[2:]]
            found += [step for step in strides if not isinstance(step, int)]
        for layout in (*self.key_lists, *self.query_lists):
            found += [layout.batch * layout.indices[0], layout.heads * layout.indices[1]]
        return found + [as_expr(symbol) for symbol in self.varying.arguments]


@final
@attrs.frozen
class KernelText:
    """A kernel.

    Attributes:
        name: of the function.
        source: its text.
        parameters: names of the addresses.
        programs: how many run.
        tiles: that it was written for.
        numbers: names of the sizes that come after the addresses.
    """

    name: str
    source: str
    parameters: tuple[str, ...]
    programs: Number
    tiles: Tiles
    numbers: tuple[str, ...] = ()


@final
class Writer:
    """What the three texts have in common. Rows are what a program holds, columns what its loops walk over."""

    def __init__(self, p: AttentionProblem, tiles: Tiles, *, by_key: bool, portable: bool) -> None:
        self.p, self.tiles, self.by_key, self.portable = p, tiles, by_key, portable
        batch, head, query, key = (LoopVar(s, as_expr(n)) for s, n in zip(loop_symbols(p.sizes), p.sizes, strict=True))
        self.held, self.walked = (key, query) if by_key else (query, key)
        self.held_block, self.walked_block = (p.key_block, p.query_block) if by_key else (p.query_block, p.key_block)
        self.lists = p.query_lists if by_key else p.key_lists
        self.groups = p.sizes[1] // p.key_heads
        rows, columns = self._size(self.held) * (self.groups if tiles.packed else 1), self._size(self.walked)
        self.rows_in_all, self.held_rows, self.walked_rows = rows, size_text(rows), size_text(columns)
        self.whole = covers(self.walked_block, columns)
        # A block of a list may reach beyond the end, and then whole tiles of it do.
        self.row_masked = not divides(tiles.rows, rows)
        cut = not self.whole and not divides(self.walked_block, columns)
        self.column_masked = not divides(tiles.columns, columns) or cut
        axes = (
            Axis("y", (head, self.held) if tiles.packed else (self.held,), tiles.rows, end=self.held_rows if self.row_masked else ""),
            Axis("r", (self.walked,), tiles.columns, True, end=self.walked_rows if self.column_masked else ""),
        )  # fmt: skip
        plan = TilePlan((batch,) if tiles.packed else (batch, head), axes, tiles.warps, tiles.stages)
        device = torch.device("cuda")
        kernel = LoopKernel("attention", device, (batch, head, self.held, self.walked), (), ())
        self.wide = self._wide()
        dialect = Dialect(p.dtype == torch.float32, portable)
        self.emitter = Emitter(kernel, p.buffers, plan, self.wide, dialect)
        self.pointers = {name: f"in{n}" for n, name in enumerate(p.formulas.tensors)}
        self.emitter.pointers = self.pointers

    @staticmethod
    def _size(var: LoopVar) -> Number:
        return plain(var.size)

    def _wide(self) -> bool:
        """Do positions in a head's matrix, or in what the formulas read, need 64 bits?"""
        if self.p.varying.symbols:
            return self.p.varying.wide
        return max(n for n in self.p.extents if isinstance(n, int)) >= NARROW

    # ------------------------------------------------------------------------------------------------------ places

    def program(self, heads: int, head: str = "x1") -> list[str]:
        """What the program works on: blocks of rows from the last to the first, where causal masks leave most to do."""
        packed, parts = self.tiles.packed, self.tiles.parts
        if packed:
            heads, head = self.p.key_heads, "key_head"
        blocks = (self.rows_in_all + self.tiles.rows - 1) // self.tiles.rows
        self.programs = blocks * heads * self.p.sizes[0] * parts
        last = f"{size_text(blocks - 1)} - " if not self.by_key else ""
        wide = ".to(tl.int64)" if self.wide else ""
        name = self.held.symbol.name
        lines = ["pid = tl.program_id(0)"]
        if parts > 1:
            lines += [f"part = pid % {parts}", f"pid = pid // {parts}"]
        lines += [
            f"row_start = ({last}pid % {size_text(blocks)}) * {self.tiles.rows}",
            f"{head} = pid // {size_text(blocks)} % {heads}",
            f"x0 = pid // {size_text(blocks * heads)}",
            f"rows = row_start + tl.arange(0, {self.tiles.rows}){wide}",
        ]
        if packed:
            queries = size_text(self._size(self.held))
            lines += [
                f"head_of_row = key_head * {self.groups} + rows // {queries}",
                f"query_of_row = rows % {queries}",
                "x1 = head_of_row[:, None]",
                f"{name} = query_of_row[:, None]",
                f"y = x1 * {queries} + {name}",
            ]
        else:
            lines.append(f"{name} = rows[:, None]")
        lines += [
            f"d = tl.arange(0, {self.padded(self.p.depth)})",
            f"w = tl.arange(0, {self.padded(self.p.width)})",
        ]
        if self.row_masked:
            lines.append(
                f"y_mask = rows[:, None] < {self.held_rows}" if packed else f"y_mask = {name} < {self.held_rows}"
            )
        return lines

    def bases(self, *names: str, head: str = "x1", suffix: str = "") -> list[str]:
        """Pointers to the matrices of this batch and head; to those of the batch, where heads are rows."""
        lines = []
        for name in names:
            batch_step, head_step = self.p.strides[name][:2]
            offset = f"x0.to(tl.int64) * {size_text(batch_step)}"
            if self.tiles.packed:
                at = "key_head" if name in ("key", "value") else ""
            else:
                shared = name in ("key", "value") and head == "x1" and self.groups > 1
                at = f"{head} // {self.groups}" if shared else head
            if at:
                offset += f" + ({at}).to(tl.int64) * {size_text(head_step)}"
            lines.append(f"{name}{suffix} = {name} + ({offset})")
        return lines

    @staticmethod
    def padded(size: int) -> int:
        """As an axis of a tile."""
        return max(power_of_two(size), _SMALLEST)

    def _tile(self, name: str, position: str, turned: bool, across: str, size: int, masked: bool, length: str) -> str:
        row_step, step = self.p.strides[name.removesuffix("_of_head")][2:]
        down, beside = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
        index = f"{position}{down} * {size_text(row_step)} + {across}{beside}"
        if step != 1:
            index += f" * {size_text(step)}"
        masks = [f"({position}{down} < {length})"] if masked else []
        if self.padded(size) != size:
            masks.append(f"({across}{beside} < {size})")
        return f"{name} + ({index})" + (f", {' & '.join(masks)}" if masks else "")

    def _held_tile(self, name: str, across: str, size: int) -> str:
        if not self.tiles.packed:
            return self._tile(name, "rows", False, across, size, self.row_masked, self.held_rows)
        head_step, row_step, step = self.p.strides[name][1:]
        index = f"x1.to(tl.int64) * {size_text(head_step)} + {self.held.symbol.name} * {size_text(row_step)} + {across}[None, :]"
        masks = ["y_mask"] if self.row_masked else []
        if self.padded(size) != size:
            masks.append(f"({across}[None, :] < {size})")
        return f"{name} + ({index}{f' * {size_text(step)}' if step != 1 else ''})" + (
            f", {' & '.join(masks)}" if masks else ""
        )

    def rows(self, name: str, across: str, size: int) -> str:
        """The held rows of a matrix."""
        return self._read(self._held_tile(name, across, size))

    def columns(self, name: str, across: str, size: int) -> str:
        """The walked rows of a matrix."""
        return self._read(self._tile(name, "columns", False, across, size, self.column_masked, self.walked_rows))

    def turned(self, name: str, across: str, size: int) -> str:
        """The walked rows, as columns."""
        return self._read(self._tile(name, "columns", True, across, size, self.column_masked, self.walked_rows))

    @staticmethod
    def _read(place: str) -> str:
        return f"tl.load({place}{', other=0.0' if '), ' in place else ''})"

    def row_facts(self, spread: str, position: str, masked: bool, length: Number) -> list[str]:
        """Logarithm of the sum, and shift, of queries."""
        mask = f", {position} < {size_text(length)}, other=0.0" if masked else ""
        lines = []
        for name in ("total", "shift"):
            a, b, c = self.p.strides[name]
            place = f"x0.to(tl.int64) * {size_text(a)} + x1.to(tl.int64) * {size_text(b)} + {position} * {size_text(c)}"
            lines.append(f"{name}_of_row = tl.load({name} + ({place}){mask}){spread}")
        return [*lines, 'total_of_row = tl.where(total_of_row == float("-inf"), 0.0, total_of_row)']

    def store(self, name: str, text: str, across: str, size: int) -> str:
        """Store the held rows of a result."""
        place = self._held_tile(name, across, size)
        at, _, mask = place.partition("), ")
        return f"tl.store({at}{')' if mask else ''}, {text}{', ' + mask if mask else ''})"

    def store_row(self, name: str, text: str) -> str:
        """Store one number for each query held."""
        return (
            f"tl.store({name} + ({self.row_number()}), {text}{f', rows < {self.held_rows}' if self.row_masked else ''})"
        )

    def row_number(self) -> str:
        """Where a held row is among all rows of all heads."""
        heads, queries = self.p.sizes[1], size_text(self.p.sizes[2])
        if self.tiles.packed:
            return f"(x0 * {heads} + head_of_row).to(tl.int64) * {queries} + query_of_row"
        return f"(x0 * {heads} + x1).to(tl.int64) * {queries} + rows"

    # --------------------------------------------------------------------------------------------------- computing

    def narrow(self, name: str) -> str:
        """As an operand of a product."""
        return name if self.p.dtype == torch.float32 else f"{name}.to({type_name(self.p.dtype)})"

    def dot(self, left: str, right: str, total: str = "") -> str:
        """A product of tiles, added to `total`."""
        if self.portable:  # Triton's interpreter multiplies the bits of bfloat16 as if they were integers
            left, right = f"{left}.to(tl.float32)", f"{right}.to(tl.float32)"
        precision = f', input_precision="{"tf32" if self.p.tf32 else "ieee"}"' if self.p.dtype == torch.float32 else ""
        return f"tl.dot({left}, {right}{', ' + total if total else ''}{precision})"

    def scores(self, left: str, right: str) -> list[str]:
        """Lines that compute `scores`, to base 2."""
        plain = self.p.formulas.score is SCORE
        factor = self.p.scale * (_LOG2E if plain else 1.0)
        return [f"{'scores' if plain else 'products'} = {self.dot(left, right)} * {factor!r}", SCORES]

    def _spread(self, value: Value) -> str:
        return self.emitter.tile.spread(self.emitter.value(value), self.emitter.axes(value), self.emitter.tile.all_axes)

    def _filled(self, body: Sequence[str], masked: bool) -> list[str]:
        """The body of a loop with the lines that the user's functions make."""
        e, formulas = self.emitter, self.p.formulas
        e.start_pass(last=False)
        e.provide(SCORE, "products")
        e.provide(GRADIENT, "change")
        lines: list[str] = []
        allowed = [f"({self.walked.symbol.name} < {self.walked_rows})"] if self.column_masked else []
        for line in body:
            if line == SCORES:
                text = "scores" if formulas.score is SCORE else f"{self._spread(formulas.score)} * {_LOG2E!r}"
                if masked:
                    allowed.append(f"({self._spread(formulas.mask)})")
                lines += self._flushed()
                if formulas.score is not SCORE:
                    lines.append(f"scores = {text}")
                if allowed:
                    lines += [f"allowed = {' & '.join(allowed)}"]
                    lines.append('scores = tl.where(allowed, scores, float("-inf"))')
            elif line == ADDITIONS:
                for addition in formulas.additions:
                    lines += self._added(addition, bool(allowed))
            elif line == GRADIENTS:
                if formulas.gradient is not None and formulas.gradient is not GRADIENT:
                    text = self._spread(formulas.gradient)
                    lines += self._flushed()
                    # What the formula makes of nothing may be no number.
                    lines.append(f"change = {f'tl.where(allowed, {text}, 0.0)' if allowed else text}")
            else:
                lines.append(line)
        return lines

    def _added(self, addition: Addition, masked: bool) -> list[str]:
        """Add to the gradient of a tensor from outside; what goes to one place is summed before."""
        e = self.emitter
        text, place, along = self._spread(addition.value), e.value(addition.place), e.axes(addition.place)
        lines = self._flushed()
        inside = " & ".join([*(["allowed"] if masked else []), *(["y_mask"] if self.row_masked else [])])
        added = e.fresh()
        lines.append(f"{added} = " + (f"tl.where({inside}, {text}, 0.0)" if inside else text))
        for axis, name in ((1, "r"), (0, "y")):
            if name not in along:
                lines.append(f"{added} = tl.sum({added}, {axis}, keep_dims=True)")
        if not along:
            place = f"tl.full([1, 1], 0, tl.int32) + {place}"
        mask = " & ".join(e.tile.masks(along))
        lines.append(
            f"tl.atomic_add(of_outside{addition.tensor} + ({place}), {added}{f', mask={mask}' if mask else ''}"
            ', sem="relaxed")'
        )
        return lines

    def _flushed(self) -> list[str]:
        made, self.emitter.body = self.emitter.body, []
        return made

    def loops(self, body: Sequence[str]) -> list[str]:
        """The loops over the blocks with and without mask."""
        mask = self.p.formulas.mask
        always = mask.op == "constant" and bool(mask.data)
        lines: list[str] = []
        if not self.lists:
            return self._loop(0, None, self._filled(body, not always))
        for number, layout in enumerate(self.lists):
            masked = number == 0 and not always
            lines += self._loop(number, layout, self._filled(body, masked))
        return lines

    def _loop(self, number: int, layout: ListLayout | None, body: Sequence[str]) -> list[str]:
        """The loop over the blocks of a list; over all tiles where there is none."""
        step, wide = self.tiles.columns, ".to(tl.int64)" if self.wide else ""
        if layout is None:
            lines = [f"count = {size_text((self._size(self.walked) + step - 1) // step)}"]
            start = f"turn * {step}"
        else:
            lines, start = self._listed(number, layout)
        parts = self.tiles.parts
        if parts == 1:
            lines.append("for turn in range(0, count):")
        else:
            lines.append(f"for turn in range(count * part // {parts}, count * (part + 1) // {parts}):")
        inside = [f"columns = {start} + tl.arange(0, {step}){wide}", f"{self.walked.symbol.name} = columns[None, :]"]
        if self.column_masked:
            inside.append(f"r_mask = {self.walked.symbol.name} < {self.walked_rows}")
        return lines + [INDENT + line for line in (*inside, *body)]

    def _listed(self, number: int, layout: ListLayout) -> tuple[list[str], str]:
        """What comes before the loop over a list's blocks, and where the columns of a turn begin."""
        step, block = self.tiles.columns, self.walked_block
        own = "0" if covers(self.held_block, self._size(self.held)) else f"row_start // {self.held_block}"
        counts, indices = self._in_list(layout, layout.counts, own), self._in_list(layout, layout.indices, own)
        length: Number = self._size(self.walked) if self.whole else block
        tiles = (length + step - 1) // step
        times, inner = ("", "") if tiles == 1 else (f" * {size_text(tiles)}", f" // {size_text(tiles)}")
        if self.whole:
            start = f"turn * {step}"
        elif tiles == 1:
            start = f"tl.load(listed + turn * {size_text(layout.indices[3])}) * {block}"
        else:
            start = (
                f"tl.load(listed + turn{inner} * {size_text(layout.indices[3])}) * {block} + turn % {tiles} * {step}"
            )
        lines = [f"count = tl.load(counts{number} + ({counts})){times}"]
        if not self.whole:
            lines.append(f"listed = indices{number} + ({indices})")
        return lines, start

    def _in_list(self, layout: ListLayout, strides: Strides, block: str) -> str:
        batch, heads = self.p.sizes[:2]
        parts = []
        for name, size, whole, stride in (
            ("x0", layout.batch, batch, strides[0]),
            ("x1", layout.heads, heads, strides[1]),
        ):
            if size != 1:
                # Sizes that vary are the same whatever the call, or an index starts over.
                enough = size >= whole if isinstance(size, int) and isinstance(whole, int) else size is whole
                parts.append(
                    f"{name} * {size_text(stride)}" if enough else f"{name} % {size_text(size)} * {size_text(stride)}"
                )
        if block != "0":
            parts.append(f"{block} * {size_text(strides[2])}")
        return " + ".join(parts) or "0"

    def finished(self, name: str, lines: Sequence[str], more: Sequence[str]) -> KernelText:
        """The function."""
        lists = [f"{kind}{n}" for n in range(len(self.lists)) for kind in ("counts", "indices")]
        parameters = ("query", "key", "value", *lists, *self.pointers.values(), *more)
        return function_of_lines(self.p, name, lines, parameters, self.programs, self.tiles)


def function_of_lines(
    p: AttentionProblem, name: str, lines: Sequence[str], parameters: tuple[str, ...], programs: Number, tiles: Tiles
) -> KernelText:
    """A function with these statements, of addresses and of the sizes that vary."""
    numbers = tuple(symbol.name for symbol in p.varying.arguments)
    text = ["@triton.jit", f"def {name}({', '.join((*parameters, *numbers))}):", *(INDENT + line for line in lines)]
    return KernelText(name, "\n".join(text) + "\n", parameters, programs, tiles, numbers)
