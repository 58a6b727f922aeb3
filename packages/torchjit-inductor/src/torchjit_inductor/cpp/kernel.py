"""One loop nest as C text.

Three shapes, chosen by which loop walks memory with stride 1 (the *vector loop*):

* pointwise: the vector loop is innermost, all others are flattened into the range that threads share.
* inner: a reduction whose vector loop is reduced; vector accumulators, folded to a scalar at the end of each pass.
* outer: a reduction whose vector loop is kept; a tile of it is accumulated in an array while the rows go by.

A value is computed at one of three places: per `row` (once per flattened outer point), in the `mid` loops (reduced loops
outside the vector loop), or in the vector `body`. Row and mid values are scalars, body values are vectors of W lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import attrs
import torch

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.cpp.text import C_TYPES, STORAGE, VECTOR, c_constant, c_index
from torchjit_inductor.indexing import merge_loops, stride
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Store
from torchjit_inductor.ir.values import Value, cast, index_value, reduce, substitute_all
from torchjit_inductor.ir.values import constant as number

__all__ = ["CKernel", "generate", "unsupported"]

MIN_TILE, MAX_TILE = 4, 64
"""Vectors per tile of an outer reduction: wide tiles read memory in long runs, but there must be one per thread."""
CHUNK = 2048
"""Elements of a long vector loop that one unit of parallel work covers."""


def unsupported(kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> str | None:
    """Why there is no C code for a kernel, or None."""
    if any(s.mode != "set" for s in kernel.stores):
        return "atomic stores"
    return None


@final
@attrs.frozen
class CKernel:
    """The text of a kernel: its range function and its entry `name(ctx*)`, and the argument struct's fields."""

    name: str
    text: str


def expand_welford(kernel: LoopKernel) -> LoopKernel:
    """Means and squared distances as sums: the mean first, then the distances in a second pass over cached data."""
    count = constant(1)
    for var in kernel.inner:
        count = count * var.size

    def replace(value: Value) -> Value | None:
        if value.op != "reduce" or not value.data.startswith("welford"):
            return None
        x = value.args[0]
        n = number(count.value, x.dtype) if count.value is not None else cast(index_value(count), x.dtype)
        mean = reduce("sum", x) / n
        return mean if value.data == "welford_mean" else reduce("sum", (x - mean) * (x - mean))

    values = substitute_all([s.value for s in kernel.stores], {}, replace)
    return attrs.evolve(
        kernel, stores=tuple(attrs.evolve(s, value=v) for s, v in zip(kernel.stores, values, strict=True))
    )


def generate(kernel: LoopKernel, buffers: Mapping[str, Buffer], vector_bytes: int, threads: int = 1) -> CKernel:
    """C text for a kernel.

    Args:
        vector_bytes: width of the machine's vectors.
        threads: how many will share the work.
    """
    return CKernel(kernel.name, _Generator(kernel, buffers, vector_bytes, threads).text())


@final
class _Generator:
    def __init__(self, kernel: LoopKernel, buffers: Mapping[str, Buffer], vector_bytes: int, threads: int) -> None:
        self.original = kernel
        self.buffers = buffers
        self.args = {name: f"p{k}" for k, name in enumerate(kernel.buffers)}
        self.symbols = kernel.symbols
        self.position: Expr | None = None
        self.positional = any(v.op == "reduce" and v.data.startswith("arg") for v in kernel.values)
        self.kernel = self._merged(expand_welford(kernel))
        self.inner_set = {v.symbol for v in self.kernel.inner}
        self.shape, self.vector = self._choose()
        self.width = 1 if self.positional else self._width(vector_bytes)
        self.tile = self._tile(threads)
        self.lines: list[str] = []
        self.indent = 1
        self.counter = 0
        self.scope: dict[Value, str] = {}
        self.names: dict[Value, str] = {}
        self.splats: dict[Value, str] = {}
        self.accumulators: dict[Value, str] = {}
        self.places: dict[Value, str] = {}
        self.free: dict[Value, frozenset[Symbol]] = {}
        self._place_all()

    # ------------------------------------------------------------------ decisions
    def _merged(self, kernel: LoopKernel) -> LoopKernel:
        """Merge loops that every access walks as one."""
        indices = [s.index for s in kernel.stores] + [v.data.index for v in kernel.values if v.op in ("load", "index")]
        if self.positional:
            position = constant(0)
            for var in kernel.inner:
                position = position * var.size + as_expr(var.symbol)
            self.position = position
            indices.append(position)
        outer, outer_map = merge_loops(kernel.outer, indices)
        inner, inner_map = merge_loops(kernel.inner, indices)
        mapping = {**outer_map, **inner_map}
        if self.position is not None:
            self.position = self.position.substitute(mapping)
        values = substitute_all([s.value for s in kernel.stores], mapping)
        stores = [
            attrs.evolve(s, index=s.index.substitute(mapping), value=v)
            for s, v in zip(kernel.stores, values, strict=True)
        ]
        return attrs.evolve(kernel, outer=tuple(outer), inner=tuple(inner), stores=tuple(stores))

    def _choose(self) -> tuple[str, LoopVar | None]:
        """The shape and the vector loop."""
        kernel = self.kernel
        loops = [*kernel.outer, *kernel.inner]
        if not loops:
            return "pointwise", None
        accesses = [(s.index, 3) for s in kernel.stores if not s.outer]
        accesses += [(v.data.index, 2) for v in kernel.values if v.op == "load"]
        accesses += [(s.index, 1) for s in kernel.stores if s.outer]

        def touched(index: Expr) -> int:
            """Elements that an access reaches: what moves little memory has little say."""
            count = 1
            for var in loops:
                if var.symbol in index.symbols:
                    count *= 64 if var.size.value is None else var.size.value
            return count

        weighted = [(index, weight * touched(index)) for index, weight in accesses]

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

        if self.positional:
            return "inner", kernel.inner[-1]
        best = loops[max(range(len(loops)), key=score)]
        if not kernel.inner:
            return "pointwise", best
        return ("inner" if best.symbol in self.inner_set else "outer"), best

    def _width(self, vector_bytes: int) -> int:
        """Lanes: as many as fit for the widest type computed with."""
        widest = 4
        for value in self.kernel.values:
            if value.dtype.itemsize == 8 and value.op != "constant" and self._varies(value):
                widest = 8
        return vector_bytes // widest

    def _tile(self, threads: int) -> int:
        """Vectors per tile of an outer reduction."""
        size = None if self.vector is None else self.vector.size.value
        if size is None:
            return 4 * MIN_TILE
        others = 1
        for var in self._rest():
            others *= var.size.value or 1
        tiles = max(1, -(-threads // others))
        return min(max(-(-size // (self.width * tiles)), MIN_TILE), MAX_TILE)

    def _varies(self, value: Value) -> bool:
        return self.vector is None or self.vector.symbol in value.symbols

    def _place_all(self) -> None:
        vector = None if self.vector is None else self.vector.symbol
        for value in self.kernel.values:
            if value.op == "reduce":
                kept = self.free[value.args[0]] - self.inner_set
                self.free[value] = kept
                self.places[value] = "body" if self.shape == "outer" else "row"
                continue
            own: frozenset[Symbol] = frozenset()
            if value.op in ("load", "index"):
                own = value.data.index.symbols.difference(value.data.binders)
            self.free[value] = own.union(*(self.free[a] for a in value.args))
            if vector in self.free[value] or any(self.places[a] == "body" for a in value.args):
                self.places[value] = "body"
            elif self.free[value] & self.inner_set:
                self.places[value] = "mid"
            else:
                self.places[value] = "row"

    # ------------------------------------------------------------------ output
    def put(self, line: str) -> None:
        self.lines.append("  " * self.indent + line)

    def open(self, line: str) -> None:
        self.put(line + " {")
        self.indent += 1

    def close(self, tail: str = "}") -> None:
        self.indent -= 1
        self.put(tail)

    def fresh(self) -> str:
        self.counter += 1
        return f"t{self.counter}"

    def text(self) -> str:
        """The whole kernel."""
        kernel = self.kernel
        head = [f"// {o.node} = {o.op}" + (f"   # {o.source}" if o.source else "") for o in self.original.origins]
        fields = [f"{STORAGE[self.buffers[n].dtype]}* {p};" for n, p in self.args.items()]
        fields += [f"i64 {s.name};" for s in self.symbols]
        self.lines = []
        self._range()
        body = self.lines
        lines = [*head, f"namespace {kernel.name} {{", f"VECTOR_TYPES({max(self.width, 1)})"]
        lines.append(f"struct Args {{ {' '.join(fields)} }};")
        lines.append("static void range(i64 lo, i64 hi, void* data) {")
        lines.append("  const Args& args = *(const Args*)data;")
        for name, p in self.args.items():
            only_read = name not in kernel.writes
            lines.append(
                f"  {'const ' if only_read else ''}{STORAGE[self.buffers[name].dtype]}* {p} = args.{p};  // {name}"
            )
        for s in self.symbols:
            lines.append(f"  const i64 {s.name} = args.{s.name};")
        lines += body
        lines.append("}")
        lines += self._entry()
        lines.append("}")
        return "\n".join(lines)

    def _entry(self) -> list[str]:
        total = " * ".join(f"({part})" for part in self._extent()) or "1"
        work = max(1, self._work())
        sizes = [f"const i64 {s.name} = args.{s.name};" for s in self.symbols]
        per_unit = self._unit_size()
        return [
            "static void run(Args args) {",
            *(f"  {line}" for line in sizes),
            f"  const i64 total = {total}; const i64 work = {c_index(per_unit)} * {work};",
            "  const i64 grain = 1 + 65536 / (work + 1);",
            "  if (total <= grain) { if (total > 0) range(0, total, &args); }",
            "  else tj_parallel(0, total, grain, range, &args);",
            "}",
        ]

    def _work(self) -> int:
        """Rough cost of one iteration, in units of a load or store of 4 bytes."""
        cost = len(self.kernel.stores) * 2
        for value in self.kernel.values:
            if value.op == "load":
                cost += 2
            elif value.op in ("exp", "tanh", "erf", "log", "sigmoid", "pow", "sin", "cos", "div", "sqrt", "rsqrt"):
                cost += 4
            elif value.op != "constant":
                cost += 1
        return (cost + 1) // 2

    # ------------------------------------------------------------------ the shared range
    def _rest(self) -> list[LoopVar]:
        """Flattened loops: outer ones but the vector loop."""
        return [v for v in self.kernel.outer if self.vector is None or v.symbol is not self.vector.symbol]

    def _chunk(self) -> int | None:
        """Elements of the vector loop per unit of work, or None if a unit covers all of it."""
        if self.vector is None or self.shape == "inner":
            return None
        if self.shape == "outer":
            return self.width * self.tile
        size = self.vector.size.value
        return CHUNK if size is None or size > 2 * CHUNK else None

    def _extent(self) -> list[str]:
        parts = [c_index(v.size) for v in self._rest()]
        chunk = self._chunk()
        if chunk is not None and self.vector is not None:
            parts.append(f"({c_index(self.vector.size)} + {chunk - 1}) / {chunk}")
        return parts

    def _unit_size(self) -> Expr:
        """Iterations per unit of work."""
        total = constant(1)
        chunk = self._chunk()
        if self.vector is not None:
            total = constant(chunk) if chunk is not None else self.vector.size
        for var in self.kernel.inner:
            if self.vector is None or var.symbol is not self.vector.symbol:
                total = total * var.size
        return total

    def _range(self) -> None:
        """The loop over units, with the outer indices kept as an odometer."""
        rest, chunk = self._rest(), self._chunk()
        digits: list[tuple[str, str]] = [(v.symbol.name, c_index(v.size)) for v in rest]
        if chunk is not None and self.vector is not None:
            digits.append(("chunk", f"({c_index(self.vector.size)} + {chunk - 1}) / {chunk}"))
        if len(digits) == 1:
            self.open(f"for (i64 {digits[0][0]} = lo; {digits[0][0]} < hi; {digits[0][0]}++)")
            self._unit()
            self.close()
            return
        if not digits:
            self._unit()
            return
        self.put("i64 at = lo;")
        for name, size in reversed(digits[1:]):
            self.put(f"const i64 size_{name} = {size}; i64 {name} = at % size_{name}; at /= size_{name};")
        self.put(f"i64 {digits[0][0]} = at;")
        self.open("for (i64 unit = lo; unit < hi; unit++)")
        self._unit()
        step = f"{digits[0][0]}++;"
        for name, _ in digits[1:]:
            step = f"if (++{name} == size_{name}) {{ {name} = 0; {step} }}"
        # The innermost digit moves first.
        nested = f"{digits[0][0]}++;"
        for name, _ in digits[1:]:
            nested = f"if (++{name} == size_{name}) {{ {name} = 0; {nested} }}"
        self.put(nested)
        self.close()

    def _unit(self) -> None:
        if self.shape == "pointwise":
            self._pointwise()
        elif self.shape == "inner":
            self._reduce_inner()
        else:
            self._reduce_outer()

    # ------------------------------------------------------------------ shapes
    def _pointwise(self) -> None:
        self.names, self.splats = {}, {}
        stores = self.kernel.stores
        self._values([s.value for s in stores], "row")
        if self.vector is None:
            self._write(stores)
            return
        rows = [s for s in stores if self._store_place(s) == "row"]
        rest = [s for s in stores if self._store_place(s) != "row"]
        begin, end = self._bounds()
        self._vector_loop(begin, end, lambda: self._write(rest))
        self._write(rows)

    def _bounds(self) -> tuple[str, str]:
        """The range of the vector loop in this unit."""
        chunk = self._chunk()
        vector = self._vector()
        if chunk is None:
            return "0", c_index(vector.size)
        return f"chunk * {chunk}", f"imin((chunk + 1) * {chunk}, {c_index(vector.size)})"

    def _vector(self) -> LoopVar:
        if self.vector is None:
            raise ValueError("no vector loop")
        return self.vector

    def _vector_loop(self, begin: str, end: str, body: object) -> None:
        """Full vectors, then one partial vector, by one body."""
        name = self._vector().symbol.name
        saved_names, saved_splats = dict(self.names), dict(self.splats)
        self.open(f"auto body = [&](auto full, const i64 {name}, const int n) __attribute__((always_inline))")
        if callable(body):
            body()
        self.close("};")
        self.names, self.splats = saved_names, saved_splats
        size = self._vector().size.value
        self.put(f"i64 {name} = {begin}; const i64 end = {end};")
        self.put(f"for (; {name} + W <= end; {name} += W) body(Full(), {name}, W);")
        if not (begin == "0" and size is not None and size % max(self.width, 1) == 0) and self.width > 1:
            self.put(f"if ({name} < end) body(Part(), {name}, (int)(end - {name}));")

    def _levels(self) -> list[tuple[list[Value], list[Store]]]:
        """Per pass: the reductions that it computes and the stores that it does."""
        kernel = self.kernel
        reductions = [v for v in kernel.values if v.op == "reduce"]
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

    def _reduce_inner(self) -> None:
        self.names, self.splats = {}, {}
        for now, stores in self._levels():
            roots = [r.args[0] for r in now] + [s.value for s in stores]
            self._values(roots, "row")
            for r in now:
                self._declare_scalar_accumulator(r)
            self.open("")
            opened = self._mid_loops()
            self._values(roots, "mid")
            for r in now:
                self._declare_vector_accumulator(r)
            vector = self._vector()
            long_loop = vector.size.value is None or vector.size.value > 4 * CHUNK
            if long_loop and now:
                # Partial sums of bounded length keep the rounding error of long sums small.
                self.open(f"for (i64 from = 0; from < {c_index(vector.size)}; from += {CHUNK})")
                opened_chunk = True
                begin, end = "from", f"imin(from + {CHUNK}, {c_index(vector.size)})"
            else:
                opened_chunk, begin, end = False, "0", c_index(vector.size)
            if opened_chunk:
                for r in now:
                    self._reset_vector_accumulator(r)

            def body(now: Sequence[Value] = now, stores: Sequence[Store] = stores) -> None:
                self._values([r.args[0] for r in now] + [s.value for s in stores], "body")
                for r in now:
                    self._accumulate(r, self._accumulator(r))
                self._write(stores)

            self._vector_loop(begin, end, body)
            for r in now:
                self._fold(r)
            if opened_chunk:
                self.close()
            for _ in range(opened):
                self.close()
            self.close()
            # Mid values live in the closed loops.
            self.names = {v: n for v, n in self.names.items() if self.places[v] == "row"}
            self.splats = {}
            for r in now:
                self._finish(r)
        outer = [s for s in self.kernel.stores if s.outer]
        self._values([s.value for s in outer], "row")
        self._write(outer, scalar=True)

    def _mid_loops(self) -> int:
        vector = self._vector().symbol
        count = 0
        for var in self.kernel.inner:
            if var.symbol is not vector:
                name = var.symbol.name
                self.open(f"for (i64 {name} = 0; {name} < {c_index(var.size)}; {name}++)")
                count += 1
        return count

    def _reduce_outer(self) -> None:
        self.names, self.splats = {}, {}
        begin, end = self._bounds()
        name = self._vector().symbol.name
        self.put(f"const i64 from = {begin}, to = {end};")
        for now, stores in self._levels():
            roots = [r.args[0] for r in now] + [s.value for s in stores]
            self._values(roots, "row")
            for r in now:
                array = self.fresh()
                self.accumulators[r] = array
                kind = self._vector_type(r.dtype)
                self.put(
                    f"{kind} {array}[{self.tile}]; for (int k = 0; k < {self.tile}; k++) {array}[k] = {self._identity(r, True)};"
                )
            self.open("")
            opened = self._mid_loops()
            self._values(roots, "mid")

            def body(now: Sequence[Value] = now, stores: Sequence[Store] = stores) -> None:
                self._values([r.args[0] for r in now] + [s.value for s in stores], "body")
                for r in now:
                    self._accumulate(r, f"{self.accumulators[r]}[({name} - from) / W]")
                self._write(stores)

            self._vector_loop("from", "to", body)
            for _ in range(opened):
                self.close()
            self.close()
            self.names = {v: n for v, n in self.names.items() if self.places[v] == "row"}
            self.splats = {}
        outer = [s for s in self.kernel.stores if s.outer]
        if outer:
            self._values([s.value for s in outer], "row")
            self.open("")
            self._vector_loop("from", "to", lambda: self._write(outer))
            self.close()

    # ------------------------------------------------------------------ reductions
    def _identity(self, r: Value, vector: bool) -> str:
        kind, dtype = r.data, r.args[0].dtype
        if kind in ("sum", "prod"):
            text = c_constant(0 if kind == "sum" else 1, dtype)
        elif kind in ("any", "all"):
            text = "false" if kind == "any" else "true"
        else:
            low = kind in ("max", "argmax")
            if dtype.is_floating_point:
                text = c_constant(-float("inf") if low else float("inf"), dtype)
            else:
                info = torch.iinfo(dtype)
                text = c_constant(info.min if low else info.max, dtype)
        if not vector:
            return text
        kind_name = self._vector_type(r.args[0].dtype)
        return f"splat_mask<{kind_name}>({text})" if dtype == torch.bool else f"splat<{kind_name}>({text})"

    def _combine(self, r: Value, a: str, b: str) -> str:
        kind = r.data
        if kind == "sum":
            return f"{a} + {b}"
        if kind == "prod":
            return f"{a} * {b}"
        if kind in ("any", "all"):
            return f"{a} {'|' if kind == 'any' else '&'} {b}"
        return f"op_{'maximum' if kind == 'max' else 'minimum'}({a}, {b})"

    def _accumulator(self, r: Value) -> str:
        return self.accumulators[r] + "v"

    def _declare_scalar_accumulator(self, r: Value) -> None:
        name = self.fresh()
        self.accumulators[r] = name
        self.put(f"{C_TYPES[r.args[0].dtype]} {name}s = {self._identity(r, False)};  // {r.data}")
        if r.data.startswith("arg"):
            self.put(f"i64 {name}at = -1;")

    def _declare_vector_accumulator(self, r: Value) -> None:
        if not r.data.startswith("arg"):
            self.put(f"{self._vector_type(r.args[0].dtype)} {self._accumulator(r)} = {self._identity(r, True)};")

    def _reset_vector_accumulator(self, r: Value) -> None:
        if not r.data.startswith("arg"):
            self.put(f"{self._accumulator(r)} = {self._identity(r, True)};")

    def _accumulate(self, r: Value, target: str) -> None:
        operand = self._vector_name(r.args[0])
        if r.data.startswith("arg"):
            self._accumulate_position(r, operand)
            return
        combined = self._combine(r, target, operand)
        if self.width == 1:
            self.put(f"{target} = {combined};")
            return
        lanes = self.fresh()
        # In a partial vector only the first n lanes count.
        self.put(f"auto {lanes} = {combined};")
        self.put(f"{target} = select_lanes<vi32>(full, n, {lanes}, {target});")

    def _accumulate_position(self, r: Value, operand: str) -> None:
        if self.position is None:
            raise ValueError("no position")
        name = self.accumulators[r]
        sign = ">" if r.data == "argmax" else "<"
        position = c_index(self.position)
        x = f"{operand}[0]"
        better = f"{x} {sign} {name}s"
        if r.args[0].dtype.is_floating_point:
            better = f"({x} != {x} ? {name}s == {name}s : {better})"
            same = f"({x} == {name}s || ({x} != {x} && {name}s != {name}s))"
        else:
            same = f"{x} == {name}s"
        self.put(
            f"if ({name}at < 0 || {better} || ({same} && {position} < {name}at)) {{ {name}s = {x}; {name}at = {position}; }}"
        )

    def _fold(self, r: Value) -> None:
        if r.data.startswith("arg"):
            return
        name = self.accumulators[r]
        lane = f"({name}v[k] != 0)" if r.args[0].dtype == torch.bool else f"{name}v[k]"
        if r.data == "sum" and self.width > 1:
            self.put(f"{name}s += fold_sum({name}v);")
        else:
            self.put(f"for (int k = 0; k < W; k++) {name}s = {self._combine(r, f'{name}s', lane)};")

    def _finish(self, r: Value) -> None:
        name = self.accumulators[r]
        self.names[r] = f"{name}at" if r.data.startswith("arg") else f"{name}s"

    # ------------------------------------------------------------------ values
    def _values(self, roots: Sequence[Value], place: str) -> None:
        """Compute what the roots need at a place and what is not computed yet."""
        for value in self._needed(roots):
            if self.places[value] == place and value not in self.names and value.op != "constant":
                if value.op == "reduce":
                    continue
                self.names[value] = self._emit(value, place)

    def _needed(self, roots: Sequence[Value]) -> list[Value]:
        """What the roots depend on, without what lies below finished reductions."""
        found: dict[Value, None] = {}
        stack: list[tuple[Value, bool]] = [(r, False) for r in reversed(roots)]
        while stack:
            value, ready = stack.pop()
            if ready:
                found[value] = None
            elif value not in found:
                stack.append((value, True))
                if value.op != "reduce":
                    stack.extend((a, False) for a in reversed(value.args) if a not in found)
        return list(found)

    def _emit(self, value: Value, place: str) -> str:
        name = self.fresh()
        if place == "body":
            self.put(f"const {self._vector_type(value.dtype)} {name} = {self._vector_text(value)};")
        else:
            self.put(f"const {C_TYPES[value.dtype]} {name} = {self._scalar_text(value)};")
        return name

    def _vector_type(self, dtype: torch.dtype) -> str:
        return VECTOR[dtype]

    def _scalar_name(self, value: Value) -> str:
        return c_constant(value.data, value.dtype) if value.op == "constant" else self.names[value]

    def _vector_name(self, value: Value) -> str:
        """A value as a vector: a body value, or a scalar in all lanes."""
        if value.op == "reduce" and self.shape == "outer":
            return f"{self.accumulators[value]}[({self._vector().symbol.name} - from) / W]"
        if value in self.names and self.places[value] == "body":
            return self.names[value]
        scalar = self._scalar_name(value)
        kind = self._vector_type(value.dtype)
        return f"splat_mask<{kind}>({scalar})" if value.dtype == torch.bool else f"splat<{kind}>({scalar})"

    # ------------------------------------------------------------------ scalar text
    def _scalar_text(self, value: Value) -> str:
        args = [self._scalar_name(a) for a in value.args]
        if value.op == "load":
            return self._scalar_load(value, args)
        if value.op == "index":
            return c_index(value.data.index, dict(zip(value.data.binders, args, strict=True)))
        if value.op == "cast":
            source = value.args[0].dtype
            if value.dtype == torch.bool:
                return f"{args[0]} != 0"
            if source.is_floating_point and value.dtype != torch.float64 and not value.dtype.is_floating_point:
                return f"({C_TYPES[value.dtype]})(i64){args[0]}"
            return f"({C_TYPES[value.dtype]}){args[0]}"
        if value.op == "round_to":
            if value.data == torch.bfloat16:
                return f"from_bf16(to_bf16({args[0]}))"
            return f"(f32)(_Float16){args[0]}"
        if value.op == "where":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        return _operation(value, args, lambda text: text)

    def _scalar_load(self, value: Value, args: Sequence[str]) -> str:
        data = value.data
        names = dict(zip(data.binders, args, strict=False))
        text = _from_storage(f"{self.args[data.buffer]}[{c_index(data.index, names)}]", self.buffers[data.buffer].dtype)
        return f"{args[-1]} ? {text} : {c_constant(data.other, value.dtype)}" if data.masked else text

    # ------------------------------------------------------------------ vector text
    def _vector_text(self, value: Value) -> str:
        if value.op == "load":
            return self._vector_load(value)
        if value.op == "index":
            return self._vector_index(value)
        args = [self._vector_name(a) for a in value.args]
        if value.op == "cast":
            return self._vector_cast(args[0], value.args[0].dtype, value.dtype)
        if value.op == "round_to":
            if value.data == torch.bfloat16:
                return f"from_bf16v<vf32, vu32>(to_bf16v<vu32, vu16>({args[0]}))"
            return f"half_round<vf32>({args[0]})"
        if value.op == "where":
            return f"({self._mask_for(args[0], value.dtype)}) ? {args[1]} : {args[2]}"
        return _operation(value, args, lambda text: self._as_mask(text, value.args[0].dtype), vector=True)

    def _mask_for(self, mask: str, dtype: torch.dtype) -> str:
        """A 32-bit mask in the lane width of another type."""
        widths = {1: "vi8", 2: "vi16", 4: "vi32", 8: "vi64"}
        size = 4 if dtype == torch.bool else dtype.itemsize
        return mask if size == 4 else f"convert<{widths[size]}>({mask})"

    def _as_mask(self, text: str, dtype: torch.dtype) -> str:
        """The result of comparing vectors of a type as a 32-bit mask."""
        size = 4 if dtype == torch.bool else dtype.itemsize
        return f"(vmask)({text})" if size == 4 else f"convert<vmask>({text})"

    def _vector_cast(self, text: str, source: torch.dtype, target: torch.dtype) -> str:
        if target == torch.bool:
            return self._as_mask(f"({text}) != 0", source)
        kind = self._vector_type(target)
        if source == torch.bool:
            return f"convert<{kind}>({text} & 1)"
        if source.is_floating_point and not target.is_floating_point and target != torch.int64:
            # By way of int64, as a cast of a number in range; out of range is undefined in eager too.
            return f"convert<{kind}>(convert<vi64>({text}))"
        return f"convert<{kind}>({text})"

    def _vector_index(self, value: Value) -> str:
        vector = self._vector().symbol
        step = stride(value.data.index, vector)
        if step is None or value.data.binders:
            names = {b: f"{self._vector_name(a)}[k]" for b, a in zip(value.data.binders, value.args, strict=True)}
            names[vector] = f"({vector.name} + k)"
            text = c_index(value.data.index, names)
            return f"lanes<vi64>([&](int k) {{ return (i64)({text}); }}, W)"
        base = c_index(value.data.index)
        moves = "" if step.value == 0 else f" + iota<vi64>() * ({c_index(step)})"
        return f"splat<vi64>((i64)({base})){moves}"

    def _vector_load(self, value: Value) -> str:
        data, vector = value.data, self._vector().symbol
        dtype = self.buffers[data.buffer].dtype
        pointer = self.args[data.buffer]
        step = None if data.binders else stride(data.index, vector)
        kind = self._vector_type(value.dtype)
        mask = value.args[-1] if data.masked else None
        uniform = mask is not None and self.places[mask] != "body"
        other = self._vector_constant(data.other, value.dtype)
        if step is not None and step.value == 1 and (mask is None or uniform):
            text = self._contiguous(f"{pointer} + {c_index(data.index)}", dtype)
            return text if mask is None else f"{self._scalar_name(mask)} ? {text} : {other}"
        if step is not None and step.value == 0 and (mask is None or uniform):
            scalar = _from_storage(f"{pointer}[{c_index(data.index)}]", dtype)
            made = f"splat_mask<{kind}>({scalar})" if value.dtype == torch.bool else f"splat<{kind}>({scalar})"
            return made if mask is None else f"{self._scalar_name(mask)} ? {made} : {other}"
        names = {b: f"{self._vector_name(a)}[k]" for b, a in zip(data.binders, value.args, strict=False)}
        names[vector] = f"({vector.name} + k)"
        element = _from_storage(f"{pointer}[{c_index(data.index, names)}]", dtype)
        if mask is not None:
            test = f"{self._vector_name(mask)}[k]"
            element = f"{test} ? {element} : {c_constant(data.other, value.dtype)}"
        if value.dtype == torch.bool:
            element = f"({element}) ? -1 : 0"
        return f"lanes<{kind}>([&](int k) {{ return {element}; }}, n)"

    def _vector_constant(self, value: int | float | bool, dtype: torch.dtype) -> str:
        kind = self._vector_type(dtype)
        text = c_constant(value, dtype)
        return f"splat_mask<{kind}>({text})" if dtype == torch.bool else f"splat<{kind}>({text})"

    def _contiguous(self, address: str, dtype: torch.dtype) -> str:
        if dtype == torch.bool:
            return f"(convert<vmask>(ld<vu8>(full, {address}, n)) != 0)"
        if dtype == torch.bfloat16:
            return f"from_bf16v<vf32, vu32>(ld<vu16>(full, {address}, n))"
        if dtype == torch.float16:
            return f"half_load<vf32>({address}, n)"
        return f"ld<{VECTOR[dtype]}>(full, {address}, n)"

    # ------------------------------------------------------------------ stores
    def _store_place(self, store: Store) -> str:
        vector = None if self.vector is None else self.vector.symbol
        if vector in store.index.symbols or self.places.get(store.value) == "body":
            return "body"
        return "row"

    def _write(self, stores: Sequence[Store], scalar: bool = False) -> None:
        """Compute and write: all loads of an iteration come before its stores."""
        body = self.vector is not None and not scalar
        in_body = [s for s in stores if body and self._store_place(s) == "body"]
        self._values([s.value for s in in_body], "body")
        for store in stores:
            if store in in_body:
                self._vector_store(store)
            else:
                target = f"{self.args[store.buffer]}[{c_index(store.index)}]"
                self.put(f"{target} = {_to_storage(self._scalar_name(store.value), self.buffers[store.buffer].dtype)};")

    def _vector_store(self, store: Store) -> None:
        vector = self._vector().symbol
        dtype = self.buffers[store.buffer].dtype
        pointer, step = self.args[store.buffer], stride(store.index, vector)
        text = self._vector_name(store.value)
        if dtype == torch.bool:
            text = f"convert<vu8>({text} & 1)"
        elif dtype == torch.bfloat16:
            text = f"to_bf16v<vu32, vu16>({text})"
        elif dtype != torch.float16 and VECTOR[dtype] != self._vector_type(store.value.dtype):
            text = f"convert<{VECTOR[dtype]}>({text})"
        if step is not None and step.value == 1:
            call = "half_store" if dtype == torch.float16 else "st"
            self.put(f"{call}(full, {pointer} + {c_index(store.index)}, {text}, n);")
            return
        name = self.fresh()
        self.put(f"const auto {name} = {text};")
        at = c_index(store.index, {vector: f"({vector.name} + k)"})
        element = f"(_Float16){name}[k]" if dtype == torch.float16 else f"{name}[k]"
        self.put(f"for (int k = 0; k < n; k++) {pointer}[{at}] = {element};")


def _from_storage(text: str, dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return f"({text} != 0)"
    if dtype == torch.bfloat16:
        return f"from_bf16({text})"
    return f"(f32){text}" if dtype == torch.float16 else text


def _to_storage(text: str, dtype: torch.dtype) -> str:
    if dtype == torch.bfloat16:
        return f"to_bf16({text})"
    return f"(_Float16){text}" if dtype == torch.float16 else text


_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _operation(value: Value, args: Sequence[str], mask: object, vector: bool = False) -> str:
    """An operation of the table on operand texts; `mask` wraps the result of a comparison."""
    as_mask = mask if callable(mask) else str
    op, dtype = value.op, value.args[0].dtype
    if op in _INFIX:
        return f"{args[0]} {_INFIX[op]} {args[1]}"
    if op in _COMPARE and dtype == torch.bool and vector:
        # True is -1 in a mask: the order is turned round.
        a, b = args
        return {"lt": f"~{a} & {b}", "le": f"~{a} | {b}", "gt": f"{a} & ~{b}", "ge": f"{a} | ~{b}",
                "eq": f"~({a} ^ {b})", "ne": f"{a} ^ {b}"}[op]  # fmt: skip
    if op in _COMPARE:
        return str(as_mask(f"{args[0]} {_COMPARE[op]} {args[1]}"))
    if op == "neg":
        return f"-{args[0]}"
    if op == "not":
        return f"!{args[0]}" if dtype == torch.bool and not vector else f"~{args[0]}"
    if op == "isnan":
        return str(as_mask(f"{args[0]} != {args[0]}"))
    if op == "isinf":
        infinity = "__builtin_inff()" if dtype == torch.float32 else "__builtin_inf()"
        return str(as_mask(f"op_abs({args[0]}) == {infinity}"))
    if op == "signbit":
        if vector:
            bits = "vi32" if dtype == torch.float32 else "vi64"
            return str(as_mask(f"(({bits}){args[0]}) < 0"))
        return f"__builtin_signbit({args[0]})"
    if op == "abs" and not dtype.is_floating_point:
        return f"op_abs_int({args[0]})"
    if op in ("maximum", "minimum") and dtype == torch.bool:
        return f"{args[0]} {'|' if op == 'maximum' else '&'} {args[1]}"
    return f"op_{op}({', '.join(args)})"
