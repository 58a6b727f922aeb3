"""Decisions about one kernel: how its loops merge, which one becomes the vector loop, what is computed where.

Three shapes, chosen by which loop walks memory with stride 1 (the *vector loop*):

* pointwise: the vector loop is innermost, all others are flattened into the range that threads share.
* inner: the vector loop is one of the inner loops; vector accumulators, folded to a scalar at the end of each pass.
* outer: the vector loop is kept; a tile of it is accumulated in an array while the rows go by.

A value is computed at one of three places: per `row` (once per flattened outer point), in the `mid` loops (inner loops
outside the vector loop), or in the vector `body`. Row and mid values are scalars, body values are vectors of W lanes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import partial
from typing import final

import attrs
import torch

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.cpp.narrow import with_narrow_integers
from torchjit_inductor.cpp.phases import Phases, with_phases
from torchjit_inductor.cpp.split_reduction import Split, split_of
from torchjit_inductor.indexing import merge_loops, stride
from torchjit_inductor.ir.kernel import LoopKernel, LoopVar, Store, flat_index, iterations, rewrite_stores, roots
from torchjit_inductor.ir.values import IN_ORDER, INDEXED, PASSES, Value, cast, index_value, reduce, walk, where
from torchjit_inductor.ir.values import constant as number
from torchjit_inductor.schedule.digits import with_joined_digits, with_split_loops
from torchjit_inductor.schedule.pieces import Segment, beside, changes_of, crossing_of, sharing, within

__all__ = ["BLOCK", "CHUNK", "UNROLLED", "Plan", "at_this_level"]

MIN_TILE, MAX_TILE = 4, 64
"""Vectors per tile of an outer reduction: wide tiles read memory in long runs, but there must be one per thread."""
UNROLLED = 8
"""Loops over so many vectors of a tile are written out, so that their accumulators are in registers."""
FEW_ROWS = 512
"""So many rows of one vector fit in the innermost cache: several passes over them then go one vector at a time."""
CHUNK = 2048
"""Elements of a long vector loop that one unit of parallel work covers."""

BLOCK = 32
"""Rows of a transposed operand that one unit of work covers."""
MAX_SEGMENTS = 8
SHORTEST_CROSSED, MOST_CROSSED = 256, 32
"""Of a loop that has pieces in each row: its length, and values of the kernel, which are written three times."""
RUN_OF_ROWS = 256
"""Rows of which the sums of columns are float32. Sums over up to two of these are as a whole."""
WAYS = 4
"""Vectors that the sum of a short formula goes into, in turns."""
SHORT_POSITIONAL = 64
"""In shorter rows argmax goes element by element."""

MOST_CACHED = 1 << 24
"""Bytes: kernels that move more wait for memory."""
MOST_IN_REACH, FEW_COMPUTED = 1 << 18, 4
"""Bytes: kernels that move more, and compute so few values of each element, wait for the caches behind the first."""
STREAMED = 32
"""Bytes of vectors in those: with 64 each line is one instruction, and sums of two tensors took 1.2 times as long (AMD EPYC, AVX-512)."""
SORTING = 48
"""What sorting costs for each element, in the units of `Plan.work`."""

DEAR = frozenset(("exp", "tanh", "erf", "log", "sigmoid", "pow", "sin", "cos", "div", "sqrt", "rsqrt"))


def _is_rounded_sum(value: Value) -> bool:
    """Is it a sum whose parts are rounded to float32?"""
    return value.op == "reduce" and value.data == "sum" and value.dtype == torch.float32


def expand_welford(kernel: LoopKernel) -> LoopKernel:
    """Means and squared distances as sums: of the elements, and in a second pass over cached data of their distances from the mean.

    The mean of the first pass is rounded. Where elements are nearly equal, its error is as large as their distances, so the sum
    of these corrects both results. Elements that are all equal have exactly that mean and no variance: eager masks gradients by it.
    """
    count = iterations(kernel.inner)

    def replace(value: Value) -> Value | None:
        if value.op != "reduce" or not value.data.startswith("welford"):
            return None
        x = value.args[0]
        n = number(count.value, x.dtype) if count.value is not None else cast(index_value(count), x.dtype)
        rough = reduce("sum", x) / n
        distance = x - rough
        error = reduce("sum", distance) / n
        if value.data == "welford_mean":
            return rough + error
        squares = reduce("sum", distance * distance)
        corrected, zero, eps = squares - error * error * n, number(0.0, x.dtype), torch.finfo(x.dtype).eps
        # Of equal elements both terms are the same number: exactly while the squares are few units in the last place, which
        # they are counted in, and else but for their rounding.
        least = where(squares > rough * rough * (eps / 4), squares * (4 * eps), zero)
        return where(corrected < least, zero, corrected)

    return attrs.evolve(kernel, stores=rewrite_stores(kernel.stores, {}, replace))


def with_serial_loops(kernel: LoopKernel) -> LoopKernel:
    """A scatter whose colliding iterations are one after the other: they become the inner loops.

    Iterations that differ in a loop variable of the address itself never collide (see `Store`): those loops stay outer,
    and threads share them without atomic operations. So sums have one order, whatever the number of threads.
    """
    scatters = [s for s in kernel.stores if s.scatters]

    def free(var: LoopVar) -> bool:
        steps = [stride(s.index, var.symbol) for s in scatters]
        return all(step is not None and step.value != 0 for step in steps)

    outer = tuple(v for v in kernel.outer if free(v))
    return attrs.evolve(kernel, outer=outer, inner=tuple(v for v in kernel.outer if v not in outer))


def _reached(store: Store) -> Set[Symbol]:
    """The loops whose iterations a store walks: those of its index, and those of the positions in it."""
    return store.index.symbols.union(*(p.symbols for p in store.positions))


def at_this_level(operands: Iterable[Value]) -> Iterator[Value]:
    """Some values and what they are computed from, except inside of reductions and sorts, which are over by then."""
    stack, seen = list(operands), set()
    while stack:
        value = stack.pop()
        if value in seen or value.op in PASSES:
            continue
        seen.add(value)
        yield value
        stack.extend(value.args)


@final
class Plan:
    """What is decided about a kernel before a line is written.

    Args:
        kernel: any.
        vector_bytes: width of the machine's vectors.
        threads: how many will share the work.

    Attributes:
        kernel: the kernel with merged loops, as it is written.
        shape: `pointwise`, `inner` or `outer`.
        vector: the vector loop, or None when there are no loops.
        width: lanes.
        tile: vectors per tile of the outer shape.
        position: of an inner point in row-major order, for argmax and argmin.
        positions: the type of vectors of positions.
        phases: how the vector loop goes in steps, if it does.
        crossing: where the vector loop meets a number of its row, with which it is compared, if `segments` are the pieces beside that.
        places: for each value `row`, `mid` or `body`.
        run_of_rows: of the outer shape, the inner loop that is cut into runs for `long_sums`, and how many of its iterations
            are one.
        long_sums: float32 sums over so many elements that parts of them are added up in float64.
        split: into which parts the inner points are shared, if threads share them.
    """

    def __init__(self, kernel: LoopKernel, vector_bytes: int, threads: int) -> None:
        self.positional = any(v.op == "reduce" and v.data.startswith("arg") for v in kernel.values)
        self.scans = any(v.op == "scan" for v in kernel.values)
        self.sorts = any(v.op == "sort" for v in kernel.values)
        self.position: Expr | None = None
        self.phases: Phases | None = None
        self.kernel = self._merged(expand_welford(kernel), vector_bytes // 4)
        if any(s.scatters for s in kernel.stores):
            self.kernel = with_serial_loops(self.kernel)
        self.inner_set = {v.symbol for v in self.kernel.inner}
        self.shape, self.vector = self._choose()
        self.crossing: Expr | None = None
        self.segments = self._segments()
        self.values = self._values()
        self.width = self._narrowed(min(vector_bytes, STREAMED) if self._streams() else vector_bytes)
        self.block = self._blocked()
        self.positions = self._positions()
        self.tile = self._tile(threads)
        self.split = self._split()
        self.places: dict[Value, str] = {}
        self._place_all()
        self.run_of_rows, is_long = self._runs()
        self.long_sums = frozenset(v for v in self.values if is_long and _is_rounded_sum(v))

    # ------------------------------------------------------------------ decisions
    def _merged(self, kernel: LoopKernel, lanes: int) -> LoopKernel:
        """Loops for the digits of indices, and short ones written out."""
        kernel = with_joined_digits(kernel)
        for looped in (kernel, with_split_loops(kernel)):
            merged = self._with_merged_loops(looped)
            phased = None if self.positional else with_phases(merged, lanes)
            if phased is not None:
                merged, self.phases = phased
                return self._with_merged_loops(merged)
        return merged

    def _with_merged_loops(self, kernel: LoopKernel) -> LoopKernel:
        """Merge loops that every access walks as one."""
        indices = [s.index for s in kernel.stores] + [v.data.index for v in kernel.values if v.op in INDEXED]
        if self.phases is not None and self.phases.whole is not None:
            indices.append(as_expr(self.phases.symbol))  # whose last step is not whole: the loop ends there
        if self.positional:
            self.position = flat_index(kernel.inner)
            indices.append(self.position)
        outer, outer_map = merge_loops(kernel.outer, indices)
        inner, inner_map = merge_loops(kernel.inner, indices)
        mapping = {**outer_map, **inner_map}
        if self.phases is not None:
            symbol = mapping.get(self.phases.symbol, as_expr(self.phases.symbol)).as_symbol
            if symbol is None:
                return kernel
            self.phases = attrs.evolve(self.phases, symbol=symbol)
        if self.position is not None:
            self.position = self.position.substitute(mapping)
        stores = rewrite_stores(kernel.stores, mapping)
        return attrs.evolve(kernel, outer=tuple(outer), inner=tuple(inner), stores=stores)

    def _choose(self) -> tuple[str, LoopVar | None]:
        """The shape and the vector loop."""
        kernel = self.kernel
        loops = [*kernel.outer, *kernel.inner]
        if not loops:
            return "pointwise", None
        if self.phases is not None:
            return "pointwise", next(v for v in loops if v.symbol is self.phases.symbol)
        weighted = self._weighted_accesses(loops)

        def score(position: int) -> tuple[int, int]:
            var = loops[position]
            total = 0
            for index, weight in weighted:
                step = stride(index, var.symbol)
                if step is None:
                    total -= 2 * weight
                elif step.value == 1:
                    total += 2 * weight
                elif step.value != 0:
                    total -= weight
            return total, position

        best = loops[max(range(len(loops)), key=score)]
        if not kernel.inner:
            return "pointwise", best
        if best.symbol not in self.inner_set and not self.sorts:
            return "outer", best
        # A scan goes through its inner points in order, and so do positions and what is sorted.
        return "inner", kernel.inner[-1] if self.scans or self.sorts or self.positional else best

    def _weighted_accesses(self, loops: list[LoopVar]) -> list[tuple[Expr, int]]:
        """Index expressions with their say: what moves little memory has little."""
        kernel = self.kernel
        accesses = [(s.index, _reached(s), 3) for s in kernel.stores if not s.outer]
        accesses += [(v.data.index, v.symbols, 2 * passes) for v, passes in self._passes().items()]
        accesses += [(s.index, _reached(s), 1) for s in kernel.stores if s.outer]

        def touched(symbols: Set[Symbol]) -> int:
            """Elements that an access reaches."""
            count = 1
            for var in loops:
                if var.symbol in symbols:
                    count *= 64 if var.size.value is None else var.size.value
            return count

        return [(index, weight * touched(symbols)) for index, symbols, weight in accesses]

    def _passes(self) -> dict[Value, int]:
        """How often the inner loops read each load: once for each level of reductions, once for what is stored inside."""
        reads: dict[Value, set[int]] = {v: {0} for v in self.kernel.values if v.op == "load"}
        tops = [(v.level, v.args) for v in self.kernel.values if v.op in PASSES]
        tops += [(s.value.level + 1, (s.value,)) for s in self.kernel.stores if not s.outer]
        for level, operands in tops:
            for load in at_this_level(operands):
                if load.op == "load":
                    reads[load] = (reads[load] - {0}) | {level}
        return {load: len(levels) for load, levels in reads.items()}

    def _segments(self) -> tuple[Segment, ...]:
        """Pieces of the vector loop in which comparisons of its variable with constants have one answer.

        Concatenations and paddings become plain loops over their pieces.
        """
        whole = (Segment(None, None, self.kernel.stores),)
        if self.shape != "pointwise" or self.vector is None or self.vector.size.value is None:
            return whole
        symbol, size = self.vector.symbol, self.vector.size.value
        steps = size if self.phases is None else self.phases.whole or size
        changes = changes_of(self.kernel.values, symbol)
        points = sorted({0, steps, size}.union(at for change in changes for at in change if 0 < at < size))
        if len(points) > MAX_SEGMENTS + 1:
            points, changes = sorted({0, steps, size}), []
        if len(points) == 2 and not (changes and self.phases is not None):
            return self._beside_crossing(symbol, size) or whole
        return sharing(
            [self._piece(low, high, symbol if changes else None) for low, high in itertools.pairwise(points)], symbol
        )

    def _piece(self, low: int, high: int, compared: Symbol | None) -> Segment:
        """What is stored there; `compared`: the vector loop's symbol, if comparisons of it have one answer there."""
        stores = self.kernel.stores if self.phases is None else self.phases.stores_from(low, self.kernel.stores)
        return Segment(low, high, stores if compared is None else within(stores, compared, low, high))

    def _beside_crossing(self, symbol: Symbol, size: int) -> tuple[Segment, ...]:
        """What is stored before the vector in which the loop meets a number of its row, in it, and behind it."""
        stores = self.kernel.stores
        values = [v for v in self.kernel.values if v.op != "constant"]
        # A position that is out of bounds is an error, also where nothing is made of what it reads.
        if any(v.op == "bounded" for v in values) or self.phases is not None or self.chunk() is not None:
            return ()
        if size < SHORTEST_CROSSED or len(values) > MOST_CROSSED:
            return ()
        self.crossing = at = crossing_of(values, symbol)
        if at is None:
            return ()
        pieces = (beside(stores, symbol, at, after=False), stores, beside(stores, symbol, at, after=True))
        return tuple(Segment(None, None, piece) for piece in pieces)

    def _blocked(self) -> LoopVar | None:
        """The loop along which a transposed operand is contiguous: it runs inside the vector loop, in blocks."""
        if self.shape != "pointwise" or self.vector is None:
            return None
        votes: dict[LoopVar, int] = {}
        for value in self.values:
            if value.op == "load" and not value.data.binders:
                step = stride(value.data.index, self.vector.symbol)
                if step is None or step.value in (0, 1):
                    continue
                for var in self.kernel.outer:
                    along = stride(value.data.index, var.symbol)
                    if along is not None and along.value == 1 and (var.size.value or BLOCK) >= BLOCK // 4:
                        votes[var] = votes.get(var, 0) + 1
        return max(votes, key=lambda v: votes[v]) if votes else None

    def transposed(self, value: Value) -> bool:
        """Is the value read along the block where the vector loop takes strides?"""
        if self.block is None or self.vector is None or value.op != "load" or value.args:
            return False
        data = value.data
        steps = [stride(data.index, loop.symbol) for loop in (self.vector, self.block)]
        across, along = (None if s is None else s.value for s in steps)
        if steps[0] is None or across in (0, 1) or along != 1:
            return False
        # A whole block is read before anything is written.
        return data.buffer not in self.kernel.writes

    def _values(self) -> tuple[Value, ...]:
        return tuple(walk(*(v for part in self.segments for v in roots(part.stores))))

    def _streams(self) -> bool:
        """Does the kernel take as long as its memory, which it walks through: floats that it hardly computes with?"""
        if self.shape != "pointwise" or self.vector is None:
            return False
        loads = [v for v in self.values if v.op == "load"]
        walks = all(not v.args and stride(v.data.index, self.vector.symbol) is not None for v in loads)
        computed = [v for v in self.values if v.op not in ("load", "constant", "index")]
        floats = all(v.dtype in (torch.float32, torch.bool) for v in (*loads, *computed))
        # What computes nothing copies, which gains nothing, or converts as it stores, which takes 1.1 times as long.
        if not walks or not floats or not computed or any(v.op in DEAR for v in computed):
            return False
        return self._held(loads) > (MOST_IN_REACH if len(computed) <= FEW_COMPUTED else MOST_CACHED)

    def _held(self, loads: Sequence[Value]) -> int:
        """Bytes of memory that these loads and the kernel's stores reach."""
        sizes = {v.symbol: v.size.value or 1 for v in self.kernel.outer}
        moved = {(v.data.buffer, frozenset(v.symbols), v.dtype) for v in loads}
        moved |= {(s.buffer, frozenset(_reached(s)), s.value.dtype) for s in self.kernel.stores}
        return sum(math.prod(sizes.get(s, 1) for s in symbols) * dtype.itemsize for _, symbols, dtype in moved)

    def _narrowed(self, vector_bytes: int) -> int:
        """Lanes, after integers were made as narrow as that takes to have more of them."""
        width = self._width(vector_bytes)
        if self.sorts or width * 8 != vector_bytes:
            return width
        before = self.kernel, self.segments, self.values
        narrow = partial(
            with_narrow_integers, stored=self.phases is None
        )  # phases interleave vectors of what is stored
        self.kernel = attrs.evolve(self.kernel, stores=narrow(self.kernel.stores))
        self.segments = tuple(attrs.evolve(s, stores=narrow(s.stores)) for s in self.segments)
        self.values = self._values()
        more = self._width(vector_bytes)
        if more == width:
            self.kernel, self.segments, self.values = before
        return more

    def _width(self, vector_bytes: int) -> int:
        """Lanes: as many as fit for the widest type computed with."""
        widest = 8 if self.sorts else 4  # see sort.h
        if self.positional and not self.sorts and self.shape == "inner" and self.vector is not None:
            size = self.vector.size.value
            if size is not None and size < SHORT_POSITIONAL:
                return 1  # the lanes are compared one by one in the end
        for value in self.values:
            if self.shape == "inner" and value.op == "reduce" and value.data in ("argmax", "argmin"):
                continue  # its lanes have the type `positions`
            if value.dtype.itemsize == 8 and value.op != "constant" and self._varies(value):
                widest = 8
        return vector_bytes // widest

    def _positions(self) -> str:
        """The vector type of positions: 64 bits wide only where sums of them must be, or where there may be so many."""
        count = math.prod(v.size.value or 1 << 31 for v in self.kernel.inner)
        return "vi32" if self.shape == "inner" and count < 1 << 31 else "vi64"

    def _rows(self) -> int:
        return math.prod(v.size.value or 2 * FEW_ROWS for v in self.kernel.inner)

    def _tile(self, threads: int) -> int:
        """Vectors per tile of an outer reduction."""
        if self._rows() <= FEW_ROWS and max(self._passes().values(), default=1) > 1:
            return 1
        size = None if self.vector is None else self.vector.size.value
        if size is None:
            return 4 * MIN_TILE
        others = 1
        for var in self.rest():
            others *= var.size.value or 1
        tiles = max(1, -(-threads // others))
        return min(max(-(-size // (self.width * tiles)), MIN_TILE), MAX_TILE)

    def _split(self) -> Split | None:
        """Into which parts threads share the inner points. A tile covers as many columns as it can then."""
        in_order = self.scans or self.sorts or any(s.scatters for s in self.kernel.stores)
        if self.vector is None or self.shape == "pointwise" or in_order:
            return None
        others = iterations(self.rest()).value
        if others is None:
            return None
        units, columns, tile = others, 1, self.tile
        if self.shape == "outer":
            size = self.vector.size.value
            if size is None or self._rows() <= FEW_ROWS:
                return None
            vectors = -(-size // self.width)
            tile = min(vectors, MAX_TILE)
            units, columns = others * -(-vectors // MIN_TILE), vectors * self.width
        # An accumulator is at most 8 bytes wide in each lane; a position has its element beside it.
        size = sum(16 if v.data.startswith("arg") else 8 for v in self.kernel.values if v.op == "reduce")
        split = split_of(
            self.shape,
            self.kernel.inner,
            self.vector,
            units=units,
            columns=columns,
            accumulators=others * columns * size,
            ordered=self.positional,
        )
        if split is not None:
            self.tile = tile
        return split

    def units(self) -> int:
        """Units of work of the outer points, of a kernel whose inner points are split."""
        count = math.prod(v.size.value or 1 for v in self.rest())
        chunk = self.chunk()
        if chunk is not None and self.vector is not None:
            count *= -(-(self.vector.size.value or 1) // chunk)
        return count

    def _varies(self, value: Value) -> bool:
        return self.vector is None or self.vector.symbol in value.symbols

    def _place_all(self) -> None:
        vector = None if self.vector is None else self.vector.symbol
        free: dict[Value, frozenset[Symbol]] = {}
        block = None if self.block is None else self.block.symbol
        for value in self.values:
            if value.op == "reduce":
                free[value] = free[value.args[0]] - self.inner_set
                self.places[value] = "body" if self.shape == "outer" else "row"
                continue
            own: frozenset[Symbol] = frozenset()
            if value.op in INDEXED:
                own = value.data.index.symbols.difference(value.data.binders)
            free[value] = own.union(*(free[a] for a in value.args))
            if (
                free[value] & {vector, block}
                or value.op in IN_ORDER
                or any(self.places[a] == "body" for a in value.args)
            ):
                self.places[value] = "body"
            elif free[value] & self.inner_set:
                self.places[value] = "mid"
            else:
                self.places[value] = "row"

    def _runs(self) -> tuple[tuple[int, int], bool]:
        """The inner loop to cut into runs of about `RUN_OF_ROWS` rows and the iterations of each, and is it worth it?"""
        rows, cut = 1, (0, RUN_OF_ROWS)
        for place, var in reversed([*enumerate(self.kernel.inner)]):
            size = var.size.value
            cut = (place, max(1, RUN_OF_ROWS // max(rows, 1)))  # there may be no rows
            rows = 2 * RUN_OF_ROWS + 1 if size is None else rows * size
            if rows > 2 * RUN_OF_ROWS:
                return cut, True
        return cut, False

    def ways(self, operands: Sequence[Value], others: Sequence[Value]) -> int:
        """Into how many vectors a pass of an inner reduction accumulates.

        One addition takes four cycles and a short formula less than one, so a single sum would wait. Long formulas
        keep the processor busy by themselves.
        """
        size = None if self.vector is None else self.vector.size.value
        if self.scans or self.width == 1 or (size is not None and size < 2 * WAYS * self.width):
            return 1
        body = [v for v in walk(*operands, *others) if self.places.get(v) == "body"]
        return WAYS if len(body) <= 12 and not any(v.op in DEAR for v in body) else 1

    def store_place(self, store: Store) -> str:
        """Where a store happens: in the vector body, in the loops around it, or once per row."""
        if self.vector is None:
            return "row"
        needs = [self.places[v] for v in (store.value, *store.positions)]
        moving = {self.vector.symbol} | ({self.block.symbol} if self.block is not None else set())
        if moving & store.index.symbols or "body" in needs:
            return "body"
        # Every iteration of a scatter counts, whether or not its text varies.
        return "body" if store.scatters else "row"

    # ------------------------------------------------------------------ work and its sharing
    def work(self) -> int:
        """Rough cost of one iteration, in units of a load or store of 4 bytes."""
        cost = len(self.kernel.stores) * 2
        for value in self.kernel.values:
            if value.op == "load":
                cost += 2
            elif value.op in DEAR:
                cost += 4
            elif value.op == "sort":
                cost += SORTING
            elif value.op != "constant":
                cost += 1
        return (cost + 1) // 2

    def rest(self) -> list[LoopVar]:
        """Flattened loops: outer ones but the vector loop."""
        inside = {v.symbol for v in (self.vector, self.block) if v is not None}
        return [v for v in self.kernel.outer if v.symbol not in inside]

    def chunk(self) -> int | None:
        """Elements of the vector loop per unit of work, or None if a unit covers all of it."""
        if self.vector is None or self.shape == "inner":
            return None
        if self.shape == "outer":
            return self.width * self.tile
        size = self.vector.size.value
        return CHUNK if size is None or size > 2 * CHUNK else None

    def unit_size(self) -> Expr:
        """Iterations per unit of work."""
        total = constant(1)
        chunk = self.chunk()
        if self.vector is not None:
            total = constant(chunk) if chunk is not None else self.vector.size
        if self.block is not None:
            total = total * BLOCK
        total = total * iterations(
            v for v in self.kernel.inner if self.vector is None or v.symbol is not self.vector.symbol
        )
        return total if self.split is None else total // self.split.parts
