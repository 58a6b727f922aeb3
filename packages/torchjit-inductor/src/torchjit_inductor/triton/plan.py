"""How a kernel's loops are spread over programs and tiles, and with how many warps: a table of heuristics.

The figures are for an H100 or H200: kernels here are bound by memory, so a program wants 16 or 32 bytes of each tensor
per thread in flight, wide loads, and one pass over the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import attrs

from torchjit_core.expr import Expr, Symbol, as_expr
from torchjit_inductor.estimates import estimate
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, flat_index, iterations
from torchjit_inductor.ir.values import IN_ORDER, Value
from torchjit_inductor.triton.facts import MULTIPROCESSORS, Facts, power_of_two
from torchjit_inductor.triton.transposed import SPARSE, columns_outside, crossed_tile, rows_across

__all__ = [
    "CACHED",
    "MULTIPROCESSORS",
    "NARROW",
    "Axis",
    "TilePlan",
    "make_plan",
    "power_of_two",
    "reads_columns",
    "two_each",
    "walks_columns",
]

PERSISTENT_LIMIT = 16384  # elements of a row that one program keeps in registers
THREADS = 2048  # that a multiprocessor runs at once
CACHED = 40 * 2**20  # bytes that a second pass finds in the cache (of 50 or 60 MiB)
ENDS = 34 * 2**20  # bytes that it keeps while others pass through it: of 512 KiB a row half was faster than all
ALONE = 16384  # elements in a tile, so that two programs of 32 warps do not fit onto a multiprocessor
NARROW = 2**31 - 2**20
"""Extent from which on positions need 64 bits: those of the last tile may lie a little beyond the end."""
WINDOW = 6  # reads of one tensor for an element of the result
WELFORD_LINE = 256  # bytes of a row of four-byte elements that a program of columns takes where it joins means
SHORT_COLUMN = 256  # bytes of a column that threads keep whole, ...
SHORT_LINE = 256  # ... of a row of such columns in a tile, ...
SHORT_TILE = 16384  # ... and of all of it
WARP_LINE = 512  # bytes of a row that a warp reads at once
WARP_BYTES = 8192  # of each tensor, in the registers of a warp's threads
THREAD_BYTES = 32  # of the widest tensor, per thread, in a pointwise kernel
ROWS_OF_PAIRS = 8  # in a tile of which each point stores two elements of a tensor
WORKED_ROWS = 32  # in a tile of columns where each element takes some work
FAR_TILE = (128, 128)  # columns and rows that are added up by addresses from the first

REDUCED = ("r", "s")


@final
@attrs.frozen
class Axis:
    """One dimension of a tile: loops walked as one, outermost first, in steps of `block` elements.

    Attributes:
        name: `x`, `y` (parallel), `r` (reduced), or `s` (reduced, and the first axis: of a product's right operand).
        loops: what it runs over.
        block: elements of it in a tile, a power of two.
        looped: a program walks it in a loop; otherwise a program sees one block.
        end: what the kernel calls the position behind the last one, where that is not the axis' own end.
    """

    name: str
    loops: tuple[LoopVar, ...]
    block: int
    looped: bool = False
    end: str = ""

    @property
    def size(self) -> Expr:
        return iterations(self.loops)

    @property
    def masked(self) -> bool:
        """May a tile reach beyond the end? A tile that is there whatever the size is does so where there is nothing."""
        return bool(self.end) or self.size.value == 0 or not self.size.divisible_by(self.block)

    @property
    def blocks(self) -> Expr:
        """How many blocks cover it."""
        return (self.size + (self.block - 1)) // self.block


@final
@attrs.frozen
class TilePlan:
    """Programs and tiles of a kernel.

    Attributes:
        program_loops: one iteration of each per program, outermost first.
        axes: dimensions of the tile, at most two; `r` is the last one, `s` the first.
        num_warps: warps per program.
        num_stages: depth of software pipelining of loops.
        registers: that a thread may have at most; 0: as many as the compiler likes.
        by_element: neighbouring threads take neighbouring elements, rather than 16 bytes each.
        walked: the loop that each program walks, one iteration after the other, and over which stores sum up.
        from_first: addresses are those of a tile's first element, of 64 bits where positions are, plus distances of 32 bits.
        kept: so many elements at the end of each row the cache is to keep for the last of several runs over it, which begins there;
            0: all, and each run begins at the beginning.
    """

    program_loops: tuple[LoopVar, ...]
    axes: tuple[Axis, ...]
    num_warps: int
    num_stages: int = 2
    registers: int = 0
    by_element: bool = False
    walked: LoopVar | None = None
    from_first: bool = False
    kept: int = 0

    @property
    def reduced(self) -> Axis | None:
        """The reduced axis."""
        return next((a for a in self.axes if a.name in REDUCED), None)

    @property
    def parallel(self) -> tuple[Axis, ...]:
        """The axes that are spread over programs."""
        return tuple(a for a in self.axes if a.name not in REDUCED)

    @property
    def programs(self) -> Expr:
        """How many programs run."""
        total = iterations(self.program_loops)
        for axis in self.parallel:
            total = total * axis.blocks
        return total


def make_plan(kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> TilePlan:
    """Choose a plan for a kernel whose loops are merged.

    Args:
        kernel: see `digits.merged`.
        buffers: of the graph.
        hints: typical values of the size symbols.
    """
    facts = Facts(kernel, buffers, hints)
    if kernel.inner:
        return _reduction_plan(facts)
    return _pointwise_plan(facts)


# ---------------------------------------------------------------------------------------------------- pointwise


def _pointwise_plan(facts: Facts) -> TilePlan:
    outer = facts.kernel.outer
    if not outer:
        return TilePlan((), (), num_warps=1)
    across = _transposed_loop(facts)
    if across is not None:
        return _transpose_plan(facts, across)
    windows = _windows(facts)
    if windows:
        return _window_plan(facts, windows)
    total = facts.count(outer)
    per_thread = max(THREAD_BYTES // facts.itemsize, 4)
    block = 128 * per_thread
    while block > 128 and total // block < 2 * MULTIPROCESSORS:
        block //= 2
    warps = min(4, max(1, block // (32 * min(per_thread, 8))))
    last = facts.count(outer[-1:])
    as_rows = len(outer) > 1 and not _uneven(facts) and not _picks(facts)
    if as_rows and last >= 64 and _waste(last, min(block, power_of_two(last))) <= 1.125:
        row = Axis("x", outer[-1:], min(block, power_of_two(last)))
        most = ROWS_OF_PAIRS if _stores_pairs(facts) else block // row.block
        rows = min(block // row.block, most, power_of_two(facts.count(outer[:-1])))
        if rows > 1:
            # Several rows: what belongs to columns is read once for all of them, and programs of one short row are too many.
            warps = min(warps, max(1, rows * row.block // 128))
            return TilePlan((), (Axis("y", outer[:-1], rows), row), num_warps=warps)
        if last >= 256:
            return TilePlan(outer[:-1], (row,), num_warps=min(warps, max(1, row.block // 128)))
    return TilePlan((), (Axis("x", outer, block),), num_warps=warps)


def _stores_pairs(facts: Facts) -> bool:
    """Does each point store two elements of each tensor, as of the halves of a rotary embedding, so that a thread has twice as much under way?"""
    names = [s.buffer for s in facts.kernel.stores]
    return len(names) == 2 * len(set(names))


def _windows(facts: Facts) -> int:
    """How often most the elements of one tensor are read at places next to each other, if mostly not 16 bytes wide; 0: seldom."""
    last = facts.kernel.outer[-1].symbol
    reads: dict[str, list[bool]] = {}
    for value in facts.loads:
        if last in value.data.index.symbols:
            width = max(1, 16 // facts.buffers[value.data.buffer].dtype.itemsize)
            rest = value.data.index - as_expr(last)
            wide = last not in rest.symbols and rest.divisible_by(width)
            reads.setdefault(value.data.buffer, []).append(wide)
    most = max(reads.values(), key=len, default=[])
    return len(most) if len(most) >= WINDOW and 2 * sum(most) < len(most) else 0


def _window_plan(facts: Facts, reads: int) -> TilePlan:
    """What is read at many places near each other is found in the cache nearest to a multiprocessor, which gives threads whose elements lie
    16 bytes apart a quarter of what it gives to neighbours."""
    outer, large = facts.kernel.outer, reads > 16
    last = facts.count(outer[-1:])
    if len(outer) > 1 and _waste(last, 512) <= 1.0625:
        return TilePlan(outer[:-1], (Axis("x", outer[-1:], 512),), num_warps=4, by_element=True)
    return TilePlan((), (Axis("x", outer, 256 if large else 512),), num_warps=4, by_element=True)


def _picks(facts: Facts) -> bool:
    """Does it read at positions that are computed along a row? Of an interpolation tiles of several rows took a quarter longer."""
    last = facts.kernel.outer[-1].symbol
    return any(last in at.symbols for v in facts.loads for at in v.args[: len(v.data.binders)])


def _uneven(facts: Facts) -> bool:
    """Do rows begin at any address, and are all results walked as one?

    Then what is stored along a row cannot be stored 16 bytes at a time, what is stored along all rows can.
    """
    kernel = facts.kernel
    last = kernel.outer[-1].size.value
    whole = flat_index(kernel.outer)
    rest = [s.index - whole for s in kernel.stores]
    loops = {v.symbol for v in kernel.outer}
    return last is not None and last % 8 != 0 and all(r.symbols.isdisjoint(loops) for r in rest) and bool(rest)


def _waste(size: int, block: int) -> float:
    return -(-size // block) * block / max(size, 1)


def _transposed_loop(facts: Facts) -> LoopVar | None:
    """The loop, other than the last, that some access walks element by element, if that calls for 2-d tiles."""
    outer = facts.kernel.outer
    if len(outer) < 2:
        return None
    # A column beside a matrix is no reason, be it of the last loop or of this one.
    candidates = [(facts.unit_accesses(var, outer[-1]), n) for n, var in enumerate(outer[:-1])]
    count, position = max(candidates)
    if count == 0 or facts.count([outer[position]]) < 8 or facts.count(outer[-1:]) < 8:
        return None
    return outer[position]


def _transpose_plan(facts: Facts, across: LoopVar) -> TilePlan:
    outer = facts.kernel.outer
    tile = crossed_tile(facts, across)
    rest = tuple(v for v in outer[:-1] if v is not across)
    axes = (Axis("y", (across,), tile.rows), Axis("x", outer[-1:], tile.columns))
    return TilePlan(rest, axes, num_warps=tile.warps)


# --------------------------------------------------------------------------------------------------- reductions


def _reduction_plan(facts: Facts) -> TilePlan:
    kernel = facts.kernel
    if any(s.mode == "sum" for s in kernel.stores):
        return _walked_plan(facts)
    if any(v.op == "sort" for v in kernel.values):
        # Many steps of few instructions: what counts is that all threads have something to compare.
        return _persistent_plan(facts, max(2, power_of_two(facts.count(kernel.inner))), tile=1024, per_warp=128)
    if _walks_columns(facts):
        return _column_plan(facts)
    outside = columns_outside(facts)
    if outside is not None:
        return _column_plan(outside)
    size = iterations(kernel.inner).value
    tile = rows_across(facts, size)
    if tile is not None:
        x = Axis("x", kernel.outer[-1:], tile.rows)
        r = Axis("r", kernel.inner, tile.columns, looped=size is None or tile.columns < size)
        return TilePlan(kernel.outer[:-1], (x, r), num_warps=tile.warps)
    if size is not None and power_of_two(size) <= _persistent_limit(facts):
        # Triton fails to compile some reductions of tiles of one element.
        return _persistent_plan(facts, max(2, power_of_two(size)))
    return _looped_plan(facts, size is None)


def _walked_plan(facts: Facts) -> TilePlan:
    """Programs that have one whole row after the other, and sums of columns in registers."""
    kernel = facts.kernel
    block = power_of_two(facts.count(kernel.inner))
    r, warps = Axis("r", kernel.inner, block), max(1, min(16, block // 512))
    return TilePlan(kernel.outer[:-1], (r,), num_warps=warps, walked=kernel.outer[-1])


def _looped_plan(facts: Facts, unknown: bool) -> TilePlan:
    """Rows that are walked block by block.

    Args:
        unknown: the size varies.
    """
    kernel = facts.kernel
    block = 4096 if facts.itemsize <= 2 else 2048
    if unknown:
        block = min(block, power_of_two(facts.count(kernel.inner)))
    block = max(block, 64)
    warps = max(1, min(8, block // 256))
    if warps == 8 and facts.itemsize in (2, 4) and _fits_alone(facts):
        return TilePlan(kernel.outer, (Axis("r", kernel.inner, ALONE, looped=True),), num_warps=32)
    if warps == 8 and facts.itemsize in (2, 4) and not unknown and _ends_fit(facts):
        return TilePlan(kernel.outer, (Axis("r", kernel.inner, ALONE, looped=True),), num_warps=32, kept=_end(facts))
    more = _larger(facts, warps, block) if warps == 8 else 1
    r = Axis("r", kernel.inner, block * more, looped=True)
    return TilePlan(kernel.outer, (r,), num_warps=warps * more)


def _larger(facts: Facts, warps: int, block: int) -> int:
    """How many times as large programs and blocks best are where rows are read twice."""
    # Fewer, larger programs where that keeps what they read twice in the cache.
    more = next((n for n in (1, 2, 4) if _resident_bytes(facts, warps * n) <= CACHED), 1)
    if more > 1 or not _resident_bytes(facts, warps):
        return more
    rows, length = facts.count(facts.kernel.outer), facts.count(facts.kernel.inner)
    # Many rows that no cache holds: what the second pass finds there is the end of a row, and less the more rows are under way.
    if rows >= 8 * MULTIPROCESSORS and _waste(length, 4 * block) <= 1.1:
        return 4
    # Few programs that read much twice fill more of the GPU, where that means little work beyond the ends of rows.
    return 2 if rows * warps * 2 * 32 <= MULTIPROCESSORS * THREADS and _waste(length, 2 * block) <= 1.1 else 1


def _fits_alone(facts: Facts) -> bool:
    """Does the cache hold what is read twice only with one program on each multiprocessor? Tiles that take most registers see to that."""
    most = facts.count(facts.kernel.outer)
    each = _resident_bytes(facts, 32) // max(1, min(most, 2 * MULTIPROCESSORS))
    if not most > MULTIPROCESSORS or not MULTIPROCESSORS * each <= CACHED < 2 * MULTIPROCESSORS * each:
        return False
    return _waste(facts.count(facts.kernel.inner), ALONE) <= 1.15


def _ends_fit(facts: Facts) -> bool:
    """Does the cache hold a quarter of each row at least, with one program on each multiprocessor, and are there two turns of them?

    Measured for batch norms of 256 channels of 512 KiB and 1 MiB; where there are more turns, other plans have not been compared.
    """
    length = facts.count(facts.kernel.inner)
    if not two_each(facts.count(facts.kernel.outer)) or _waste(length, ALONE) > 1.15 or length > 4 * _end(facts):
        return False
    programs = facts.count(facts.kernel.outer)
    once = _resident_bytes(facts, 32) == min(programs, 2 * MULTIPROCESSORS) * length * facts.itemsize
    return once and MULTIPROCESSORS * length * facts.itemsize > CACHED


def _end(facts: Facts) -> int:
    """Elements at the end of a row, in whole blocks, that the cache keeps of each multiprocessor's while the beginning passes through it."""
    return ENDS // MULTIPROCESSORS // facts.itemsize // ALONE * ALONE


def _resident_bytes(facts: Facts, warps: int) -> int:
    """Bytes of rows that programs of so many warps read again and again, while they run at once; 0 where each reads its row once."""
    kernel = facts.kernel
    if not any(s.value.level and not s.outer for s in kernel.stores):
        return 0
    walked = {v.symbol for v in kernel.inner}
    outer = {v.symbol for v in kernel.outer}
    rows = sum(1 for v in facts.loads if walked <= v.symbols and v.symbols & outer)
    programs = min(facts.count(kernel.outer), MULTIPROCESSORS * (THREADS // (32 * warps)))
    return programs * rows * facts.count(kernel.inner) * facts.itemsize


def walks_columns(kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> bool:
    """Does a program of this reduction best hold several columns, because memory runs along the last outer loop?"""
    return _walks_columns(Facts(kernel, buffers, hints))


def reads_columns(kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> bool:
    """As `walks_columns`, by what is read alone: wherever the kernel stores what it makes of that."""
    facts = Facts(kernel, buffers, hints)
    if not kernel.outer:
        return False
    read = [v.data.index for v in facts.loads]
    large = [i for _, i in _large(facts) if i in read]
    columns = sum(1 for i in large if facts.unit(i, kernel.outer[-1]))
    return columns > sum(1 for i in large if facts.unit(i, kernel.inner[-1]))


def _walks_columns(facts: Facts) -> bool:
    """Do the large loads walk memory along the last outer loop and not along the inner one?"""
    kernel = facts.kernel
    if not kernel.outer or not facts.unit_accesses(kernel.outer[-1]):
        return False
    large = _large(facts)
    columns = sum(1 for _, i in large if facts.unit(i, kernel.outer[-1]))
    rows = sum(1 for _, i in large if facts.unit(i, kernel.inner[-1]))
    # Of one operand that lies in rows and one that lies in columns, tiles of rows and columns read both in whole lines.
    return columns > rows or (columns == rows > 0 and all(s.outer for s in kernel.stores))


def _large(facts: Facts) -> list[tuple[str, Expr]]:
    """Loads and stores that vary along the inner loops and the last outer one. What does not is small: statistics of rows or columns."""
    kernel = facts.kernel
    inner = {v.symbol for v in kernel.inner}
    accesses = [(v.data.buffer, v.data.index) for v in facts.loads] + [(s.buffer, s.index) for s in kernel.stores]
    return [(name, i) for name, i in accesses if i.symbols & inner and kernel.outer[-1].symbol in i.symbols]


def _persistent_limit(facts: Facts) -> int:
    """Fewer elements when several tensors must stay in registers between the levels of the kernel."""
    kept = sum(1 for v in facts.loads if _used_later(v, facts.kernel))
    limit = PERSISTENT_LIMIT // (1 if facts.itemsize <= 4 else 2)
    twice = any(s.value.level and not s.outer for s in facts.kernel.stores)
    if twice and len(facts.loads) == 1 and _waste(facts.count(facts.kernel.inner), 2 * limit) <= 1.25:
        return 2 * limit  # read once, rather than a second time from the cache
    return limit if kept <= 2 else max(limit // 2, 1024)


def _used_later(value: Value, kernel: LoopKernel) -> bool:
    return any(value in user.args and user.level > 0 for user in kernel.values)


def _persistent_plan(facts: Facts, block: int, tile: int = 2048, per_warp: int = 0) -> TilePlan:
    """Whole rows in registers.

    Args:
        block: elements of a row.
        tile: elements of rows that a program holds, if one row has fewer.
        per_warp: elements for each warp; 0: as many as rows want that are read and written.
    """
    kernel = facts.kernel
    total = facts.count(kernel.outer)
    rows = max(1, min(tile // block, power_of_two(total)))
    while rows > 1 and -(-total // rows) < 2 * MULTIPROCESSORS:
        rows //= 2
    r = Axis("r", kernel.inner, block)
    tile = rows * block
    # Where an element is more work than memory, what is done once a row in each thread counts, too.
    warps = max(1, min(16, tile // (per_warp or (1024 if facts.narrow or facts.searches else 512))))
    if rows == 1:
        return TilePlan(kernel.outer, (r,), num_warps=warps)
    warps = max(warps, min(4, tile // 128), 1)
    if len(kernel.outer) > 1 and facts.count(kernel.outer[-1:]) % rows == 0:
        return TilePlan(kernel.outer[:-1], (Axis("x", kernel.outer[-1:], rows), r), num_warps=warps)
    return TilePlan((), (Axis("x", kernel.outer, rows), r), num_warps=warps)


def _column_plan(facts: Facts) -> TilePlan:
    """Programs of several columns."""
    kernel, large = facts.kernel, _large(facts)
    special = _short_column_plan(facts, large) or _worked_column_plan(facts, large)
    if special is not None:
        return special
    size = iterations(kernel.inner).value
    columns, rows = _column_tile(facts, large)
    looped = size is None or size > rows
    axes: tuple[Axis, ...] = (Axis("x", kernel.outer[-1:], columns), Axis("r", kernel.inner, rows, looped=looped))
    several = sum(1 for v in facts.loads if (v.data.buffer, v.data.index) in large) >= 2
    if several and looped and rows * columns == 4096 and two_each(_column_programs(facts, columns)):
        # All of them run at once if a thread has 64 registers, with 8 elements of each tensor.
        return TilePlan(kernel.outer[:-1], axes, num_warps=16, registers=64)
    if looped and rows * columns == 4096 and _adds_far_rows(facts, large):
        if _fills_many(facts, FAR_TILE[0]):
            axes = tuple(attrs.evolve(a, block=b) for a, b in zip(axes, FAR_TILE, strict=True))
        return TilePlan(kernel.outer[:-1], axes, num_warps=16 // facts.itemsize, from_first=True)
    warps = max(1, min(8, rows * columns // (1024 if _joins_means(kernel) else 512)))
    return TilePlan(kernel.outer[:-1], axes, num_warps=warps)


def _short_column_plan(facts: Facts, large: Sequence[tuple[str, Expr]]) -> TilePlan | None:
    """Whole columns, of which a thread has as many rows as its registers hold; None: they are too long, or too few.

    What threads of one column have to tell each other takes longer than the memory: a logsumexp over 32 rows of bfloat16 takes six times as long in
    8 warps as in one (docs/benchmarks/gpu.md).
    """
    size = iterations(facts.kernel.inner).value
    read = {v.data.buffer for v in facts.loads} & {name for name, _ in large}
    itemsize = max((facts.buffers[name].dtype.itemsize for name in read), default=0)
    if size is None or itemsize not in (2, 4):
        return None
    rows = max(2, power_of_two(size))
    columns = min(SHORT_LINE, SHORT_TILE // rows) // itemsize
    if rows * itemsize > SHORT_COLUMN or not _fills_many(facts, columns):
        return None
    while rows * columns < 2048 and _fills_many(facts, 2 * columns):
        columns *= 2
    warps = max(columns * rows * itemsize * len(read) // WARP_BYTES, columns * itemsize // WARP_LINE, 1)
    axes = (Axis("x", facts.kernel.outer[-1:], columns), Axis("r", facts.kernel.inner, rows))
    return TilePlan(facts.kernel.outer[:-1], axes, num_warps=min(warps, 8))


def _worked_column_plan(facts: Facts, large: Sequence[tuple[str, Expr]]) -> TilePlan | None:
    """Few elements for a thread where each takes long functions before it is added up; None: they do not, or there is too little of it."""
    kernel, size = facts.kernel, iterations(facts.kernel.inner).value
    line = _line_of_columns(facts, large)
    worked = _adds_one_tensor(facts, large) and facts.works(kernel.outer[-1], kernel.inner[-1])
    if not worked or (size is not None and size <= WORKED_ROWS) or not _fills_many(facts, line):
        return None
    x = Axis("x", kernel.outer[-1:], line)
    warps = max(1, line * WORKED_ROWS // (32 * SPARSE))
    return TilePlan(kernel.outer[:-1], (x, Axis("r", kernel.inner, WORKED_ROWS, looped=True)), num_warps=warps)


def _adds_far_rows(facts: Facts, large: Sequence[tuple[str, Expr]]) -> bool:
    """Are rows that begin anywhere added up, in a tensor whose positions need 64 bits?

    No access is wide there, so that each element has an address of its own, which costs more than the sum, and of 16-bit elements twice
    as much for each byte: 128 x 4096 x 4095 took 3.63 ms in float32 and 3.77 in bfloat16 by addresses of 64 bits, in the best tiles of
    these; 3.01 and 1.54 from the first element, in tiles of 128 x 128. Near rows gain 2 % or lose 3 so.
    """
    if not _adds_one_tensor(facts, large) or facts.itemsize not in (2, 4) or len(facts.kernel.inner) > 1:
        return False
    ends = (facts.kernel.outer[-1].symbol, facts.kernel.inner[-1].symbol)
    steps = [stride(index, symbol) for _, index in large for symbol in ends]
    if any(step is None or step.value is None for step in steps):
        return False
    far = any(estimate(facts.buffers[name].span, facts.hints) >= NARROW for name, _ in large)
    return far and not any(_begins_evenly(facts, index, facts.kernel.outer[-1], 16) for _, index in large)


def _column_tile(facts: Facts, large: Sequence[tuple[str, Expr]]) -> tuple[int, int]:
    """How many columns and rows a tile has, of these accesses."""
    columns, tile = _line_of_columns(facts, large), 4096
    if (
        _adds_one_tensor(facts, large)
        and all(_begins_evenly(facts, index, facts.kernel.outer[-1]) for _, index in large)
        and _fills_many(facts, 2 * columns)
    ):
        # Each thread has more to wait for at once. Where rows begin anywhere that makes them slower.
        columns, tile = 2 * columns, 8192
    rows = max(2, min(tile // columns, power_of_two(facts.count(facts.kernel.inner))))
    while rows * columns < 2048 and _fills_many(facts, 2 * columns):
        columns *= 2  # short sums: threads have several of them, rather than one a part
    size = iterations(facts.kernel.inner).value
    if _joins_means(facts.kernel) and size is not None and size <= 2 * rows:
        rows = max(2, power_of_two(size))  # in registers: two sums are less work than joining means
    return columns, rows


def _line_of_columns(facts: Facts, large: Sequence[tuple[str, Expr]]) -> int:
    """As many columns as make 128 bytes of each row, or fewer where there would be too few programs."""
    last = facts.kernel.outer[-1]
    along = [facts.buffers[name].dtype.itemsize for name, index in large if facts.unit(index, last)]
    # Where means are joined, with three accumulators, fewer and longer threads are faster.
    line = WELFORD_LINE if _joins_means(facts.kernel) and facts.itemsize == 4 else 128
    columns = min(power_of_two(facts.count([last])), line // max(along, default=facts.itemsize))
    while columns > 16 and _column_programs(facts, columns) < MULTIPROCESSORS:
        columns //= 2
    return columns


def _column_programs(facts: Facts, columns: int) -> int:
    """How many programs there are of so many columns."""
    outer = facts.kernel.outer
    return facts.count(outer[:-1]) * -(-facts.count(outer[-1:]) // columns)


def _fills_many(facts: Facts, columns: int) -> bool:
    """Are there many programs of so many columns for each multiprocessor?"""
    fits = columns <= facts.count(facts.kernel.outer[-1:])
    return fits and _column_programs(facts, columns) >= 8 * MULTIPROCESSORS


def _joins_means(kernel: LoopKernel) -> bool:
    return any(v.op == "reduce" and v.data.startswith("welford") for v in kernel.values)


def _adds_one_tensor(facts: Facts, large: Sequence[tuple[str, Expr]]) -> bool:
    """Does one number for each element of a tile hold what a loop has found, of one tensor?"""
    plain = all(v.data in ("sum", "prod", "max", "min") for v in facts.kernel.values if v.op == "reduce")
    return plain and len(large) == 1 and not any(v.op in IN_ORDER for v in facts.kernel.values)


def _begins_evenly(facts: Facts, index: Expr, last: LoopVar, width: int = 128) -> bool:
    """Does an access begin where so many bytes divide, in each row along the loop?"""
    return (index - as_expr(last.symbol)).divisible_by(width // facts.itemsize)


def two_each(programs: int) -> bool:
    """Are there two programs for each multiprocessor, or a few less?"""
    return 1.8 * MULTIPROCESSORS <= programs <= 2 * MULTIPROCESSORS
