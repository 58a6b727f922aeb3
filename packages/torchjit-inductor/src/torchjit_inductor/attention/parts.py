"""Attention of few queries: programs that share the keys of a row, and what joins their results (flash decoding).

One query of each head gives a program nothing but a long walk over keys, and few programs. Here heads that share keys are rows of
one program, which reads these once, and each of several programs walks over a part of the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import attrs
import torch

from torchjit_core.expr import Expr, as_expr
from torchjit_inductor.attention.few_queries import FewQueries
from torchjit_inductor.attention.formulas import SCORE, Formulas, loop_symbols
from torchjit_inductor.attention.sizes import LONGEST, Number, covers, size_text, typical
from torchjit_inductor.attention.text import forward_lines
from torchjit_inductor.attention.writer import INDENT, AttentionProblem, KernelText, Tiles, Writer, function_of_lines
from torchjit_inductor.ir.kernel import Buffer
from torchjit_inductor.ir.values import constant, load
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import Strided, TensorMeta
from torchjit_inductor.triton.plan import MULTIPROCESSORS, power_of_two
from torchjit_inductor.triton.source import RELEASE, WAIT

__all__ = ["join_text", "part_text", "problem_of_few", "scratch_sizes", "tiles_of_parts", "with_overlap"]

_MOST_ROWS = 128
"""Rows of a program; with more there are programs enough, and products that are worth their matrix units."""
_WAVES = 4
"""Programs for each multiprocessor; half of them where programs have many rows."""
_MANY_ROWS = 64
_MOST_PARTS = 64
_LEAST = 2
"""Tiles of keys that are worth a program."""
_FEW_TILES = 8
"""Up to so many one is worth a program where the other half of the multiprocessors has none: 16 heads and 512 keys."""

# Measured on an H200 (docs/benchmarks/gpu.md). Little shared memory, so that many programs are under way, counts for more than a deep pipeline.
_TILES = {
    # bytes of an element, depth: columns, warps, stages
    (2, 64): ((128, 4, 2), (64, 4, 2)),
    (2, 128): ((64, 4, 2), (32, 4, 2)),
    (2, 256): ((32, 4, 2), (16, 4, 1)),
    (4, 64): ((64, 4, 2), (32, 4, 1)),
    (4, 128): ((32, 4, 2), (32, 4, 1)),
    (4, 256): ((16, 4, 2), (16, 4, 1)),
}
_TILES_OF_MANY = {(2, 64): ((64, 4, 3),), (2, 128): ((32, 4, 3),)}


def tiles_of_parts(p: AttentionProblem) -> list[Tiles]:
    """How to cut a call with few queries, the best choice first; empty: it has rows enough."""
    rows = _rows_of(p)
    if rows is None:
        return []
    fitting = _fitting(p, rows)
    if not fitting:
        return []
    parts = _parts(p, rows, fitting[0].columns)
    if parts < 2 and not rows.packed:
        return []
    return [attrs.evolve(tiles, parts=max(parts, 1)) for tiles in fitting]


@final
@attrs.frozen
class _Rows:
    """What a program has for rows.

    Attributes:
        tile: how many rows its tiles have.
        packed: they are those of all heads that share keys.
    """

    tile: int
    packed: bool

    @property
    def many(self) -> bool:
        return self.tile >= _MANY_ROWS


def _rows_of(p: AttentionProblem) -> _Rows | None:
    """The rows of a program; None where there are so many that whole tiles of them make programs enough."""
    _, heads, queries, _ = p.sizes
    if not isinstance(queries, int) or 0 in p.sizes:
        return None
    shared = heads // p.key_heads * queries
    # A program has one list of blocks.
    packed = heads > p.key_heads and shared <= _MOST_ROWS and all(layout.heads == 1 for layout in p.key_lists)
    rows = shared if packed else queries
    if rows > _MOST_ROWS or queries > p.query_block:
        return None
    return _Rows(max(16, power_of_two(rows)), packed)


def _fitting(p: AttentionProblem, rows: _Rows) -> list[Tiles]:
    """The tiles of the table, none longer than the keys, and whole ones in a block of the list."""
    keys = p.sizes[3]
    of = p.dtype.itemsize, next(n for n in (64, 128, 256) if max(p.depth, p.width) <= n)
    whole, length = covers(p.key_block, keys), typical(keys, p.varying)
    fitting: dict[Tiles, None] = {}
    for columns, warps, stages in (*(_TILES_OF_MANY.get(of, ()) if rows.many else ()), *_TILES[of]):
        while columns > 16 and (columns >= 2 * length or (not whole and p.key_block % columns)):
            columns //= 2
        if whole or p.key_block % columns == 0:
            fitting[Tiles(rows.tile, columns, warps, stages, rows.packed)] = None
    return list(fitting)


def _parts(p: AttentionProblem, rows: _Rows, columns: int) -> int:
    """How many programs share the keys of a row."""
    batch, heads, _, keys = p.sizes
    programs = typical(batch, p.varying) * (p.key_heads if rows.packed else heads)
    waves = _WAVES // 2 if rows.many else _WAVES
    wanted = -(-waves * MULTIPROCESSORS // programs) if programs < MULTIPROCESSORS else 1
    walked = -(-typical(keys, p.varying) // columns)
    parts = min(wanted, walked // _LEAST, _MOST_PARTS)
    alone = walked <= _FEW_TILES and programs * walked <= MULTIPROCESSORS
    return walked if alone and parts > 1 else parts


def part_text(p: AttentionProblem, tiles: Tiles, *, portable: bool = False) -> KernelText:
    """For each part of the keys the sum of values times weights, relative to the part's maximum, the sum of the weights, and the maximum."""
    w = Writer(p, tiles, by_key=False, portable=portable)
    lines = forward_lines(w)
    every = size_text(p.sizes[0] * p.sizes[1] * p.sizes[2])
    row, held = "row_of_part", "rows < " + str(w.held_rows)
    masks = [f"({held})[:, None]"] if w.row_masked else []
    if w.padded(p.width) != p.width:
        masks.append(f"(w[None, :] < {p.width})")
    lines += [
        f"{row} = part.to(tl.int64) * {every} + {w.row_number()}",
        f"tl.store(acc_of_parts + ({row}[:, None] * {p.width} + w[None, :]), acc{', ' + ' & '.join(masks) if masks else ''})",
        *(f"tl.store({n}_of_parts + {row}, {n}{', ' + held if w.row_masked else ''})" for n in ("sums", "most")),
    ]
    return w.finished("attention_of_parts", lines, ("acc_of_parts", "sums_of_parts", "most_of_parts"))


def join_text(p: AttentionProblem, parts: int) -> KernelText:
    """Result, logarithm of the sum and maximum of each row, from those of the parts."""
    batch, heads, queries, _ = p.sizes
    every, width = size_text(batch * heads * queries), max(power_of_two(p.width), 16)
    batch_step, head_step, row_step, step = map(size_text, p.strides["result"])
    part_mask = f", part < {parts}" if power_of_two(parts) != parts else ""
    width_mask = f"w < {p.width}" if width != p.width else ""
    both = " & ".join(
        [*([f"(part[:, None] < {parts})"] if part_mask else []), *([f"(w[None, :] < {p.width})"] if width_mask else [])]
    )
    lines = [
        "row = tl.program_id(0).to(tl.int64)",
        f"part = tl.arange(0, {power_of_two(parts)})",
        f"w = tl.arange(0, {width})",
        f"""most = tl.load(most_of_parts + (part * {every} + row){part_mask}{", other=float('-inf')" if part_mask else ""})""",
        "above = tl.max(most, 0)",
        'base = tl.where(above == float("-inf"), 0.0, above)',
        "shrunk = tl.exp2(most - base)",
        f"sums = tl.load(sums_of_parts + (part * {every} + row){part_mask}{', other=0.0' if part_mask else ''})",
        "total_sum = tl.sum(sums * shrunk, 0)",
        f"acc = tl.load(acc_of_parts + ((part[:, None] * {every} + row) * {p.width} + w[None, :])"
        f"{f', {both}, other=0.0' if both else ''})",
        "acc = tl.sum(acc * shrunk[:, None], 0)",
        "total_sum = tl.where(total_sum == 0.0, 1.0, total_sum)",
        f"x0 = row // {size_text(heads * queries)}",
        f"x1 = row // {size_text(queries)} % {heads}",
        f"x2 = row % {size_text(queries)}",
        f"place = x0 * {batch_step} + x1 * {head_step} + x2 * {row_step}",
        f"tl.store(result + (place + w * {step}), acc / total_sum{', ' + width_mask if width_mask else ''})",
        "tl.store(total + row, above + tl.log2(total_sum))",
        "tl.store(largest + row, above)",
    ]
    parameters = ("acc_of_parts", "sums_of_parts", "most_of_parts", "result", "total", "largest")
    tiles = Tiles(1, 1, max(1, min(4, power_of_two(parts) * width // 1024)), 1)
    return function_of_lines(p, "join_parts_of_attention", lines, parameters, batch * heads * queries, tiles)


def with_overlap(text: KernelText, releases: bool) -> KernelText:
    """The kernel as one that waits for what comes before it, and may let the next one begin early; see `triton.overlap`."""
    decorator, signature, statements = text.source.split("\n", 2)
    more = [INDENT + line for line in ([RELEASE] if releases else []) + [WAIT]]
    return attrs.evolve(text, source="\n".join([decorator, signature, *more, statements]))


def scratch_sizes(p: AttentionProblem, parts: int) -> tuple[Number, Number, Number]:
    """Numbers in `acc_of_parts`, `sums_of_parts` and `most_of_parts`, each a multiple of 16 bytes."""
    rows = parts * p.sizes[0] * p.sizes[1] * p.sizes[2]
    return (rows * p.width + 3) // 4 * 4, (rows + 3) // 4 * 4, (rows + 3) // 4 * 4


def problem_of_few(call: FewQueries, places: Sequence[Strided], meta: TensorMeta) -> AttentionProblem:
    """What the kernels' texts depend on.

    Args:
        places: the operands in memory.
        meta: of the result.

    Raises:
        NotLowered: elements of a row do not lie side by side.
    """
    strides = [tuple(map(_fixed, t.strides)) for t in places[:3]]
    if any(s[3] != 1 for s in strides):
        raise NotLowered("elements of a query, key or value that do not lie side by side")
    query, key, value = (tuple(map(_fixed, t.sizes)) for t in places[:3])
    sizes = query[0], query[1], query[2], key[2]
    symbols, score, tensors = loop_symbols(sizes), SCORE, dict[str, Strided]()
    for bias in places[3:]:
        # From its first element on: kernels get addresses.
        added = Strided("outside0", bias.sizes, bias.strides, as_expr(0), bias.dtype, bias.device)
        own = symbols[len(symbols) - len(bias.sizes) :]
        index = [as_expr(0 if n.value == 1 else s) for s, n in zip(own, bias.sizes, strict=True)]
        tensors["outside0"] = added
        score = score + load("outside0", added.address(tuple(index)), bias.dtype)
    formulas = Formulas(score, constant(True, torch.bool), None, tensors)
    buffers = {name: Buffer(name, t.dtype, t.device, t.sizes, t.strides) for name, t in tensors.items()}
    strides.append(tuple(map(_fixed, meta.strides)))
    return AttentionProblem(
        sizes, key[1], query[3], value[3], places[0].dtype, call.scale, formulas, buffers,
        dict(zip(("query", "key", "value", "result"), strides, strict=True)), LONGEST, LONGEST, (), (),
    )  # fmt: skip


def _fixed(value: Expr) -> int:
    if value.value is None:
        raise NotLowered("sizes or strides that vary")
    return int(value.value)
