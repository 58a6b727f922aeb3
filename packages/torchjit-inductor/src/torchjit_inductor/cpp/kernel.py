"""One loop nest as C text; `plan.py` holds the decisions, `emit.py` and `reductions.py` write the statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import final

from torchjit_core.expr import Symbol
from torchjit_inductor.cpp.emit import Emitter, needed, vector_loop
from torchjit_inductor.cpp.plan import BLOCK, CHUNK, UNROLLED, Plan, at_this_level
from torchjit_inductor.cpp.reductions import Accumulators, Shared
from torchjit_inductor.cpp.sorts import Sorts, asks_for_memory
from torchjit_inductor.cpp.split_reduction import Split
from torchjit_inductor.cpp.text import C_TYPES, STORAGE, c_index
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, Store, inner_symbols, roots
from torchjit_inductor.ir.values import PASSES, Value

MAX_KEPT = 32768
"""Elements of a row that an inner reduction may keep on the stack."""
MOST_KEPT = 2
"""Values of a row that are kept."""
WORTH_KEEPING = frozenset(("exp", "exp2", "log", "tanh", "erf", "sigmoid", "pow", "sin", "cos", "log1p", "expm1"))

_AS_WRITTEN = '#pragma GCC push_options\n#pragma GCC optimize("no-tree-loop-vectorize")'
"""GCC 12 vectorizes loops around interleaved vectors once more, and loses stores. Elsewhere it must vectorize: functions of lanes."""

__all__ = ["can_fail", "computed_again", "generate", "heading"]


def can_fail(kernel: LoopKernel) -> bool:
    """Can the kernel raise? Its arguments then end with a place for what went wrong."""
    return any(v.op == "bounded" for v in kernel.values) or asks_for_memory(kernel)


def computed_again(kernel: LoopKernel, vector_bytes: int) -> int:
    """How often the passes of a reduction evaluate costly functions at an inner point that an earlier pass has evaluated there.

    Args:
        kernel: with reductions.
        vector_bytes: width of the machine's vectors.
    """
    passes: dict[Value, set[tuple[int, str]]] = {}
    tops = [(v.level, str(v.data), v.args) for v in kernel.values if v.op in PASSES]
    tops += [(s.value.level + 1, "", (s.value,)) for s in kernel.stores if not s.outer]
    inner = {v.symbol for v in kernel.inner}
    for level, kind, operands in tops:
        # Means and squared distances take two passes (`expand_welford`).
        now = {(level, ""), (level, "distances" if kind.startswith("welford") else "")}
        for value in at_this_level(operands):
            if value.op in WORTH_KEEPING and not value.level and inner_symbols(value) & inner:
                passes.setdefault(value, set()).update(now)
    again = sorted((len(p) - 1 for p in passes.values()), reverse=True)
    if any(again):
        plan = Plan(kernel, vector_bytes, 1)
        again = again[MOST_KEPT if plan.shape == "inner" and _keeps(plan) else 0 :]
    return sum(again)


def _keeps(plan: Plan) -> bool:
    """Is there memory for a row of a reduction of the inner shape?"""
    size = vector_loop(plan).size.value
    return size is not None and size <= MAX_KEPT and len(plan.kernel.inner) == 1


def heading(kernel: LoopKernel) -> list[str]:
    """Comments: where the kernel came from."""
    return [f"// {o.node} = {o.op}" + (f"   # {o.source}" if o.source else "") for o in kernel.origins]


def generate(kernel: LoopKernel, buffers: Mapping[str, Buffer], vector_bytes: int, threads: int = 1) -> str:
    """C text for a kernel: its range function, its entry `name(ctx*)` and the argument struct.

    Args:
        vector_bytes: width of the machine's vectors.
        threads: how many will share the work.
    """
    return _Generator(kernel, buffers, vector_bytes, threads).text()


@final
class _Generator:
    def __init__(self, kernel: LoopKernel, buffers: Mapping[str, Buffer], vector_bytes: int, threads: int) -> None:
        self.original = kernel
        self.buffers = buffers
        self.args = {name: f"p{k}" for k, name in enumerate(kernel.buffers)}
        self.symbols = kernel.symbols
        self.plan = Plan(kernel, vector_bytes, threads)
        self.e = Emitter(self.plan, buffers, self.args)
        self.acc = Accumulators(self.e)
        self.sorts = Sorts(self.e)
        self.filled: set[str] = set()
        # Bounds of an inner loop of which only a part is gone through.
        self.bounds: dict[Symbol, tuple[str, str]] = {}

    def text(self) -> str:
        """The whole kernel."""
        kernel = self.plan.kernel
        head = heading(self.original)
        fields = [f"{STORAGE[self.buffers[n].dtype]}* {p};" for n, p in self.args.items()]
        fields += [f"i64 {s.name};" for s in self.symbols]
        if can_fail(self.original):
            fields.append("i64* fault;")
        if self.plan.split is None:
            functions = [*self._function("range", self._unit), *self._entry()]
        else:
            functions, shared = self._split_functions(self.plan.split)
            fields += [f"{array.element}* {array.name};" for array in shared]
        lines = [*head, f"namespace {kernel.name} {{", f"VECTOR_TYPES({max(self.plan.width, 1)})"]
        text = "\n".join([*lines, f"struct Args {{ {' '.join(fields)} }};", *functions, "}"])
        return text if self.plan.phases is None else f"{_AS_WRITTEN}\n{text}\n#pragma GCC pop_options"

    def _function(self, name: str, unit: Callable[[], None], parts: int | None = None) -> list[str]:
        """The function that does the units of work in a range."""
        kernel = self.plan.kernel
        lines = [f"APART void {name}(i64 lo, i64 hi, void* data) {{"]
        lines.append("  const Args& args = *(const Args*)data;")
        for buffer, p in self.args.items():
            only_read = buffer not in kernel.writes
            lines.append(
                f"  {'const ' if only_read else ''}{STORAGE[self.buffers[buffer].dtype]}* {p} = args.{p};  // {buffer}"
            )
        for s in self.symbols:
            lines.append(f"  const i64 {s.name} = args.{s.name};")
        # What is masked everywhere is gone from the plan's kernel; the caller knows the original's arguments.
        if can_fail(self.original):
            lines.append("  i64* const fault = args.fault;")
        self.e.lines = []
        self.sorts.ask_for_memory()
        self._range(unit, parts)
        self.sorts.give_back()
        return [*lines, *self.e.lines, "}"]

    def _entry(self) -> list[str]:
        total = " * ".join(f"({size})" for _, size in self._digits()) or "1"
        return [
            "static void run(Args args) {",
            *self._sizes(),
            f"  const i64 total = {total}; const i64 work = {self._work()};",
            "  const i64 grain = 1 + 65536 / (work + 1);",
            "  if (total <= grain) { if (total > 0) range(0, total, &args); }",
            "  else tj_parallel(0, total, grain, range, &args);",
            "}",
        ]

    def _sizes(self) -> list[str]:
        return [f"  const i64 {s.name} = args.{s.name};" for s in self.symbols]

    def _work(self) -> str:
        """The cost of a unit."""
        return f"({c_index(self.plan.unit_size())}) * {max(1, self.plan.work())}"

    # ------------------------------------------------------------------ reductions in parts
    def _split_functions(self, split: Split) -> tuple[list[str], list[Shared]]:
        """A function for each pass over the inner points, with what combines its parts, and the entry; the arrays between them."""
        functions: list[str] = []
        steps: list[str] = []
        shared: list[Shared] = []
        units = self.plan.units()
        for number, (now, stores) in enumerate(self._levels()):
            functions += self._function(f"pass{number}", partial(self._part, split, now, stores), split.parts)
            steps.append(f"share({units * split.parts}, work, pass{number}, args);")
            if now:
                functions.append(f"APART void combine{number}(const Args& args) {{")
                functions.append(f"  for (i64 u = 0; u < {units}; u++) {{")
                functions += [f"    {line}" for r in now for line in self.acc.combine_parts(r, split.parts)]
                functions += ["  }", "}"]
                steps.append(f"combine{number}(args);")
                shared += [array for r in now for array in self.acc.shared(r)]
        if any(s.outer for s in self.plan.kernel.stores):
            functions += self._function("results", self._results, 1)
            steps.append(f"results(0, {units}, &args);")
        tile = self.plan.tile if self.plan.shape == "outer" else 1
        arrays = []
        for array in shared:
            count = units * tile * (split.parts if array.of_parts else 1)
            arrays.append(f"  {array.element} {array.name}[{count}]; args.{array.name} = {array.name};")
        entry = ["static void run(Args args) {", *self._sizes(), f"  const i64 work = {self._work()};", *arrays]
        return [*functions, *entry, *(f"  {step}" for step in steps), "}"], shared

    def _part(self, split: Split, now: Sequence[Value], stores: Sequence[Store]) -> None:
        """A pass over one part of a unit's inner points."""
        self.e.names = {}
        size, step = c_index(split.loop.size), split.step
        length = f"({size} + {split.parts - 1}) / {split.parts}"
        if step > 1:
            length = f"({length} + {step - 1}) / {step} * {step}"
        self.e.put(f"const i64 length = {length};")
        self.e.put(f"const i64 first = imin(part * length, {size}), last = imin(first + length, {size});")
        self.bounds = {split.loop.symbol: ("first", "last")}
        self._recall([r.args[0] for r in now] + roots(stores), split.parts)
        if self.plan.shape == "inner":
            self._inner_pass(now, stores, {})
        else:
            begin, end = self._bounds()
            self.e.put(f"const i64 from = {begin}, to = {end};")
            self._outer_pass(now, stores)
        for r in now:
            self.acc.leave(r)
        self.bounds = {}

    def _results(self) -> None:
        """What is stored once for a unit, after the last pass."""
        self.e.names = {}
        self._recall(roots([s for s in self.plan.kernel.stores if s.outer]), 1)
        if self.plan.shape == "outer":
            begin, end = self._bounds()
            self.e.put(f"const i64 from = {begin}, to = {end};")
        self._outer_stores()

    def _recall(self, wanted: Sequence[Value], parts: int) -> None:
        """Name the results of the passes before, in a function of so many parts for each unit."""
        for value in needed(wanted):
            if value.op == "reduce":
                self.acc.recall(value, parts)

    # ------------------------------------------------------------------ the shared range
    def _range(self, unit: Callable[[], None], parts: int | None) -> None:
        """The loop over units, with the outer indices kept as an odometer.

        Args:
            parts: of each unit, if the kernel's inner points are split; the number of the unit has a name then.
        """
        digits = self._digits()
        if parts is not None and parts > 1:
            digits.append(("part", str(parts)))
        if len(digits) > 1:
            self._odometer(digits, unit)
            return
        if not digits and parts is None:
            unit()
            return
        loop = digits[0][0] if digits and parts is None else "unit"
        self.e.open(f"for (i64 {loop} = lo; {loop} < hi; {loop}++)")
        if digits and parts is not None:
            self.e.put(f"const i64 {digits[0][0]} = unit;")
        unit()
        self.e.close()

    def _digits(self) -> list[tuple[str, str]]:
        """Names and sizes of what the number of a unit says, the slowest first."""
        digits = [(v.symbol.name, c_index(v.size)) for v in self.plan.rest()]
        chunk = self.plan.chunk()
        if self.plan.block is not None:
            digits.append(("block", f"({c_index(self.plan.block.size)} + {BLOCK - 1}) / {BLOCK}"))
        if chunk is not None and self.plan.vector is not None and not self._is_one_chunk():
            digits.append(("chunk", f"({c_index(self.plan.vector.size)} + {chunk - 1}) / {chunk}"))
        return digits

    def _odometer(self, digits: list[tuple[str, str]], unit: Callable[[], None]) -> None:
        self.e.put("i64 at = lo;")
        for name, size in reversed(digits[1:]):
            self.e.put(f"const i64 size_{name} = {size}; i64 {name} = at % size_{name}; at /= size_{name};")
        self.e.put(f"i64 {digits[0][0]} = at;")
        self.e.open("for (i64 unit = lo; unit < hi; unit++)")
        unit()
        # The innermost digit moves first.
        nested = f"{digits[0][0]}++;"
        for name, _ in digits[1:]:
            nested = f"if (++{name} == size_{name}) {{ {name} = 0; {nested} }}"
        self.e.put(nested)
        self.e.close()

    def _unit(self) -> None:
        if self.plan.shape == "pointwise":
            self._pointwise()
        elif self.plan.shape == "inner":
            self._reduce_inner()
        else:
            self._reduce_outer()

    # ------------------------------------------------------------------ shapes
    def _pointwise(self) -> None:
        crossed = self._crossed()
        for position, segment in enumerate(self.plan.segments):
            self.e.names = {}
            stores = segment.stores
            single = len(self.plan.segments) == 1
            if not single:
                self.e.open("")
            self.e.values(roots(stores), "row")
            if self.plan.vector is None:
                self.e.write(stores)
                return
            rows = [s for s in stores if self.plan.store_place(s) == "row"]
            rest = [s for s in stores if self.plan.store_place(s) != "row"]
            begin, end = self._bounds()
            if segment.low is not None and segment.high is not None:
                whole = self.plan.chunk() is None
                begin = str(segment.low) if whole else f"imax({begin}, {segment.low})"
                end = str(segment.high) if whole else f"imin({end}, {segment.high})"
            begin, end = crossed[position] if crossed else (begin, end)
            self._vector_loop(begin, end, partial(self._blocked_write, rest))
            if segment is self.plan.segments[-1]:
                self.e.write(rows)
            if not single:
                self.e.close()

    def _crossed(self) -> Sequence[tuple[str, str]]:
        """The ranges of the vector loop before, at and behind the vector in which it meets a number of its row, if it does."""
        if self.plan.crossing is None:
            return ()
        size = c_index(vector_loop(self.plan).size)
        self.e.put(f"const i64 cut = imin(imax({c_index(self.plan.crossing)}, 0), {size}) / W * W;")
        self.e.put(f"const i64 past = imin(cut + W, {size});")
        return (("0", "cut"), ("cut", "past"), ("past", size))

    def _blocked_write(self, stores: Sequence[Store]) -> None:
        block = self.plan.block
        if block is None:
            self.e.write(stores)
            return
        name, size = block.symbol.name, c_index(block.size)
        self.e.put(f"const i64 from = block * {BLOCK}, to = imin(from + {BLOCK}, {size});")
        for value in needed(roots(stores)):
            if self.plan.transposed(value):
                self._transpose(value, block.symbol)
        self.e.open(f"for (i64 {name} = from; {name} < to; {name}++)")
        self.e.write(stores)
        self.e.close()
        self.e.tiles = {}

    def _transpose(self, value: Value, block: Symbol) -> None:
        """Read a block of a transposed operand at once, so that its elements for neighbouring lanes lie together."""
        tile, buffer, index = self.e.fresh(), value.data.buffer, value.data.index
        self.e.put(f"{STORAGE[self.buffers[buffer].dtype]} {tile}[{BLOCK} * W] __attribute__((aligned(64)));")
        start, step = c_index(index, {block: "from"}), stride(index, vector_loop(self.plan).symbol)
        assert step is not None  # see Plan.transposed
        self.e.put(f"transpose_tile<W>(full, {tile}, {self.args[buffer]} + {start}, {c_index(step)}, to - from, n);")
        self.e.tiles[value] = f"{tile} + ({block.name} - from) * W"

    def _bounds(self) -> tuple[str, str]:
        """The range of the vector loop in this unit."""
        chunk = self.plan.chunk()
        vector = vector_loop(self.plan)
        if chunk is None or self._is_one_chunk():
            return "0", c_index(vector.size)
        return f"chunk * {chunk}", f"imin((chunk + 1) * {chunk}, {c_index(vector.size)})"

    def _is_one_chunk(self) -> bool:
        """Does a unit cover all columns of a reduction that is split? Then the compiler unrolls the loop over them."""
        chunk, size = self.plan.chunk(), vector_loop(self.plan).size.value
        return self.plan.split is not None and chunk is not None and size is not None and size <= chunk

    def _vector_loop(self, begin: str, end: str, body: Callable[[], None], ways: int = 1) -> None:
        """Full vectors, several at a time and then one by one, then one partial vector, by one body."""
        name = vector_loop(self.plan).symbol.name
        saved = dict(self.e.names)
        way = ", const int way = 0" if ways > 1 else ""
        self.e.open(f"auto body = [&](auto full, const i64 {name}, const int n{way}) __attribute__((always_inline))")
        body()
        self.e.close("};")
        self.e.names = saved
        if (begin, end) == ("from", "to") and self._is_one_chunk() and self.plan.tile <= UNROLLED:
            width, whole = self.plan.width, vector_loop(self.plan).size.value or 0
            written = [f"body(Full(), {at}, W);" for at in range(0, whole - width + 1, width)]
            rest = whole % width
            self.e.put(" ".join([*written, *([f"body(Part(), {whole - rest}, {rest});"] if rest else [])]))
            return
        self.e.put(f"i64 {name} = {begin}; const i64 end = {end};")
        if ways > 1:
            calls = " ".join(f"body(Full(), {name} + {k} * W, W, {k});" for k in range(ways))
            self.e.put(f"for (; {name} + {ways} * W <= end; {name} += {ways} * W) {{ {calls} }}")
        self.e.put(f"for (; {name} + W <= end; {name} += W) body(Full(), {name}, W);")
        known = begin.isdigit() and end.isdigit()
        if self.plan.width > 1 and not (known and (int(end) - int(begin)) % self.plan.width == 0):
            self.e.put(f"if ({name} < end) body(Part(), {name}, (int)(end - {name}));")

    def _levels(self) -> list[tuple[list[Value], list[Store]]]:
        """Per pass: the reductions and sorts that it computes and the stores that it does."""
        kernel = self.plan.kernel
        reductions = [v for v in kernel.values if v.op in PASSES]
        count = max(
            [r.level for r in reductions] + [s.value.level + 1 for s in kernel.stores if not s.outer], default=0
        )
        passes = []
        for level in range(count):
            now = [r for r in reductions if r.level == level + 1]
            stores = [s for s in kernel.stores if not s.outer and s.value.level == level]
            if now or stores:
                passes.append((now, stores))
        return passes

    def _kept(self) -> list[Value]:
        """Expensive values that a later pass over a short row needs again: they are kept in memory of the row."""
        if not _keeps(self.plan):
            return []
        seen: dict[Value, int] = {}
        for now, stores in self._levels():
            for value in needed([r.args[0] for r in now] + roots(stores)):
                if value.op in WORTH_KEEPING and self.plan.places[value] == "body":
                    seen[value] = seen.get(value, 0) + 1
        return [v for v, passes in seen.items() if passes > 1][:MOST_KEPT]

    def _keep(self, kept: dict[Value, str], before: bool) -> None:
        """Read what an earlier pass kept (before the body), or keep what this one computed (behind it)."""
        at = vector_loop(self.plan).symbol.name
        for value, memory in kept.items():
            kind = self.e.vector_type(value.dtype)
            if before and memory in self.filled:
                self.e.names[value] = self.e.fresh()
                self.e.put(f"const {kind} {self.e.names[value]} = ld<{kind}>(full, {memory} + {at}, n);")
            elif not before and value in self.e.names and memory not in self.filled:
                self.e.put(f"st(full, {memory} + {at}, {self.e.names[value]}, n);")

    def _reduce_inner(self) -> None:
        self.e.names = {}
        kept = {value: self.e.fresh() for value in self._kept()}
        for value, memory in kept.items():
            size = c_index(vector_loop(self.plan).size)
            self.e.put(
                f"{C_TYPES[value.dtype]} {memory}[{size}] __attribute__((aligned(64)));  // {value.op}, for later passes"
            )
        for now, stores in self._levels():
            self._inner_pass(now, stores, kept)
            for r in now:
                if r.op == "sort":
                    self.sorts.finish(r)
                else:
                    self.acc.finish(r)
        self._outer_stores()

    def _inner_pass(self, now: Sequence[Value], stores: Sequence[Store], kept: dict[Value, str]) -> None:
        """The reductions of a level, up to their scalars, what it sorts, and the stores that need no more than these."""
        wanted = [r.args[0] for r in now] + roots(stores)
        sorts, now = [v for v in now if v.op == "sort"], [v for v in now if v.op == "reduce"]
        self.e.values(wanted, "row")
        for r in now:
            self.acc.declare_scalar(r)
        self.e.open("")
        self._declare_scans(wanted)
        opened = self._mid_loops()
        self.e.values(wanted, "mid")
        ways = self.plan.ways([r.args[0] for r in now], [s.args[0] for s in sorts] + roots(stores)) if now else 1
        vector = vector_loop(self.plan)
        in_parts = bool(now) and (vector.size.value is None or vector.size.value > 2 * CHUNK)
        begin, end = self.bounds.get(vector.symbol, ("0", c_index(vector.size)))
        if in_parts:
            # Partial sums of bounded length keep the rounding error of long sums small.
            self.e.open(f"for (i64 from = {begin}; from < {end}; from += {CHUNK})")
            begin, end = "from", f"imin(from + {CHUNK}, {end})"
        for r in now:
            self.acc.declare_vector(r, ways, begin)
        computed: set[Value] = set()
        self._vector_loop(begin, end, partial(self._inner_body, now, sorts, stores, kept, computed, ways), ways)
        self.filled |= {kept[v] for v in computed}
        for r in now:
            self.acc.fold(r, ways)
        self._close(opened + 1 + in_parts)

    def _outer_stores(self) -> None:
        """What is stored once for an outer point."""
        outer = [s for s in self.plan.kernel.stores if s.outer]
        self.e.values(roots(outer), "row")
        if self.plan.shape == "inner":
            self.e.write(outer, scalar=True)
        elif outer:
            self.e.open("")
            self._vector_loop("from", "to", lambda: self.e.write(outer))
            self.e.close()

    def _inner_body(
        self,
        now: Sequence[Value],
        sorts: Sequence[Value],
        stores: Sequence[Store],
        kept: dict[Value, str],
        computed: set[Value],
        ways: int,
    ) -> None:
        """One vector of a pass: the operands of its reductions and sorts, and its stores."""
        self._keep(kept, before=True)
        self.e.values([v.args[0] for v in (*now, *sorts)] + roots(stores), "body")
        computed.update(v for v in kept if v in self.e.names)
        self._keep(kept, before=False)
        for r in now:
            self.acc.accumulate(r, self.acc.vector(r, ways))
        self.sorts.keep(sorts)
        self.e.write(stores)

    def _declare_scans(self, wanted: Sequence[Value]) -> None:
        """Every pass runs its scans anew."""
        for value in needed(wanted):
            if value.op == "scan":
                self.acc.declare_scan(value)

    def _mid_loops(self, long: Sequence[Value] = ()) -> int:
        """The inner loops outside of the vector loop; how many were opened.

        Args:
            long: sums that are added up by runs of rows.
        """
        vector = vector_loop(self.plan).symbol
        count = 0
        cut, rows = self.plan.run_of_rows if long else (-1, 0)
        for place, var in enumerate(self.plan.kernel.inner):
            if var.symbol is vector:
                continue
            name = var.symbol.name
            begin, end = self.bounds.get(var.symbol, ("0", c_index(var.size)))
            if place == cut:
                self.e.open(f"for (i64 {name}_run = {begin}; {name}_run < {end}; {name}_run += {rows})")
                begin = f"{name}_run"
                for r in long:
                    self.acc.begin_rows(r)
                end = f"imin({begin} + {rows}, {end})"
                count += 1
            self.e.open(f"for (i64 {name} = {begin}; {name} < {end}; {name}++)")
            count += 1
        return count

    def _close(self, count: int) -> None:
        """Close loops. Mid and body values lived in them."""
        for _ in range(count):
            self.e.close()
        self.e.names = {v: n for v, n in self.e.names.items() if self.plan.places[v] == "row"}

    def _reduce_outer(self) -> None:
        self.e.names = {}
        begin, end = self._bounds()
        self.e.put(f"const i64 from = {begin}, to = {end};")
        for now, stores in self._levels():
            self._outer_pass(now, stores)
            for r in now:
                if r in self.plan.long_sums:
                    self.acc.end_tile(r)
        self._outer_stores()

    def _outer_pass(self, now: Sequence[Value], stores: Sequence[Store]) -> None:
        """The reductions of a level over a tile of columns, and the stores that need no more than these."""
        wanted = [r.args[0] for r in now] + roots(stores)
        self.e.values(wanted, "row")
        for r in now:
            self.acc.declare_tile(r)
        self.e.open("")
        self._declare_scans(wanted)
        long = [r for r in now if r in self.plan.long_sums]
        opened = self._mid_loops(long)
        self.e.values(wanted, "mid")

        def body() -> None:
            self.e.values([r.args[0] for r in now] + roots(stores), "body")
            for r in now:
                self.acc.accumulate(r, self.e.tile_element(r))
            self.e.write(stores)

        self._vector_loop("from", "to", body)
        if long:
            within_run = len(self.plan.kernel.inner) - self.plan.run_of_rows[0]
            self._close(within_run)
            for r in long:
                self.acc.end_rows(r)
            opened -= within_run
        self._close(opened + 1)
