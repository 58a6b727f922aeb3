"""Writing values and stores of a planned kernel as statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import torch

from torchjit_core.expr import Symbol
from torchjit_inductor.cpp.operations import from_storage, mantissa_bits, operation_text, to_storage
from torchjit_inductor.cpp.phases import MOST_STRIDE, stored_together
from torchjit_inductor.cpp.plan import Plan
from torchjit_inductor.cpp.sort_text import sorted_text
from torchjit_inductor.cpp.text import C_TYPES, VECTOR, c_constant, c_index
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir.dtypes import EIGHT_BIT_FLOATS, HALF
from torchjit_inductor.ir.kernel import Buffer, LoopVar, Store, roots
from torchjit_inductor.ir.values import PASSES, Value

__all__ = ["Emitter", "combine_text", "needed", "vector_loop"]

FAULTS = {"index": 1, "gather": 2, "embedding": 3, "probability": 5}
"""Numbers of the errors of `BoundData`, as the prelude knows them."""


def _widens(value: Value) -> bool:
    """Is it a cast to a type in which sums of such numbers hardly round?"""
    return value.op == "cast" and value.args[0].dtype.itemsize < value.dtype.itemsize


@final
class Emitter:
    """Lines of a kernel, and the names that values have in the open scopes.

    Args:
        plan: of the kernel.
        buffers: of the graph.
    """

    def __init__(self, plan: Plan, buffers: Mapping[str, Buffer], args: Mapping[str, str]) -> None:
        self.plan, self.buffers, self.args = plan, buffers, args
        self.lines: list[str] = []
        self.indent = 1
        self.counter = 0
        self.names: dict[Value, str] = {}
        # Where reductions and scans are accumulated: scalars, vectors or arrays of vectors.
        self.accumulators: dict[Value, str] = {}
        # Rows that were sorted, by what was sorted and whether downwards: where they are, and the length of their arrays.
        self.rows: dict[tuple[Value, bool], tuple[str, str]] = {}
        # Loads whose elements were transposed into memory of the body: the address of their lanes.
        self.tiles: dict[Value, str] = {}

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

    # ------------------------------------------------------------------ values
    def values(self, wanted: Sequence[Value], place: str) -> None:
        """Compute what the roots need at a place and what is not computed yet."""
        for value in needed(wanted):
            if self.plan.places[value] == place and value not in self.names and value.op != "constant":
                if value.op == "reduce":
                    continue
                self.names[value] = self._emit(value, place)

    @property
    def vector(self) -> Symbol:
        """The variable of the vector loop."""
        return vector_loop(self.plan).symbol

    def _emit(self, value: Value, place: str) -> str:
        if value.op == "scan":
            return self._scan(value)
        if value.op == "sort":
            return self._sorted(value)
        name = self.fresh()
        if place == "body":
            self.put(f"const {self.vector_type(value.dtype)} {name} = {self._vector_text(value)};")
        else:
            self.put(f"const {C_TYPES[value.dtype]} {name} = {self._scalar_text(value)};")
        return name

    def vector_type(self, dtype: torch.dtype) -> str:
        return VECTOR[dtype]

    def scalar_name(self, value: Value) -> str:
        return c_constant(value.data, value.dtype) if value.op == "constant" else self.names[value]

    def vector_name(self, value: Value) -> str:
        """A value as a vector: a body value, or a scalar in all lanes."""
        if value.op == "reduce" and self.plan.shape == "outer":
            return self.tile_element(value)
        if value in self.names and self.plan.places[value] == "body":
            return self.names[value]
        scalar = self.scalar_name(value)
        kind = self.vector_type(value.dtype)
        return f"splat_mask<{kind}>({scalar})" if value.dtype == torch.bool else f"splat<{kind}>({scalar})"

    def tile_element(self, value: Value) -> str:
        """The vector of an outer reduction's (or scan's) array that belongs to these lanes."""
        return f"{self.accumulators[value]}[({self.vector.name} - from) / W]"

    def _scan(self, value: Value) -> str:
        """Combine this iteration's operand with what came before."""
        target = self.tile_element(value) if self.plan.shape == "outer" else self.accumulators[value]
        name = self.fresh()
        operand, kind = self.vector_name(value.args[0]), self.vector_type(value.dtype)
        if self.plan.shape == "outer":
            self.put(f"const {kind} {name} = {target} = {combine_text(value.data, target, operand)};")
        else:
            scalar = C_TYPES[value.dtype]
            if value.data == "sum" and (not value.dtype.is_floating_point or _widens(value.args[0])):
                self.put(f"const {kind} {name} = add_lanes(full, {operand}, {target}, n);")  # the order does not matter
            else:
                combine = f"[]({scalar} a, {scalar} b) {{ return ({scalar})({combine_text(value.data, 'a', 'b')}); }}"
                self.put(f"const {kind} {name} = scan_lanes(full, {operand}, {target}, n, {combine});")
        return name

    def _sorted(self, value: Value) -> str:
        """Lanes of a row that was sorted in an earlier pass."""
        name = self.fresh()
        row, part = self.rows[value.args[0], value.data.descending]
        self.put(f"const {self.vector_type(value.dtype)} {name} = {sorted_text(value, row, part, self.vector.name)};")
        return name

    # ------------------------------------------------------------------ scalar text
    def _scalar_text(self, value: Value) -> str:
        args = [self.scalar_name(a) for a in value.args]
        if value.op == "load":
            return self._scalar_load(value, args)
        if value.op == "bounded":
            return f"bounded({args[0]}, {self._bound(value)})"
        if value.op == "index":
            return c_index(value.data.index, dict(zip(value.data.binders, args, strict=True)))
        if value.op == "cast":
            source = value.args[0].dtype
            if value.dtype == torch.bool:
                return f"{args[0]} != 0"
            by = conversion_step(source, value.dtype)
            if by is not None:
                return f"({C_TYPES[value.dtype]})({C_TYPES[by]}){args[0]}"
            return f"({C_TYPES[value.dtype]}){args[0]}"
        if value.op == "round_to":
            if value.data == torch.bfloat16:
                return f"from_bf16(to_bf16({args[0]}))"
            return f"(f32)(f16){args[0]}"
        if value.op == "where":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        return operation_text(value, args, lambda text: text)

    def _bound(self, value: Value) -> str:
        """The last arguments of `bounded`."""
        data = value.data
        size = f"(i64)({c_index(data.index)})"
        return f"{size}, {'true' if data.wrap else 'false'}, {data.dim}, {FAULTS[data.error]}, fault"

    def _scalar_load(self, value: Value, args: Sequence[str]) -> str:
        data = value.data
        names = dict(zip(data.binders, args, strict=False))
        text = self._element(value, f"{self.args[data.buffer]}[{c_index(data.index, names)}]")
        return f"{args[-1]} ? {text} : {c_constant(data.other, value.dtype)}" if data.masked else text

    def _element(self, value: Value, place: str) -> str:
        """What a load makes of one element."""
        text = from_storage(place, self.buffers[value.data.buffer].dtype)
        return f"saturated({text})" if self._saturates(value) else text

    def _saturates(self, load: Value) -> bool:
        """Is it the nearest int32 of an int64 (see `narrow.py`)?"""
        return load.dtype == torch.int32 and self.buffers[load.data.buffer].dtype == torch.int64

    # ------------------------------------------------------------------ vector text
    def _vector_text(self, value: Value) -> str:
        if value.op == "load":
            return self._vector_load(value)
        if value.op == "index":
            return self._vector_index(value)
        args = [self.vector_name(a) for a in value.args]
        if value.op == "bounded":
            return f"bounded_lanes({args[0]}, n, {self._bound(value)})"
        if value.op == "cast":
            return self._vector_cast(args[0], value.args[0].dtype, value.dtype)
        if value.op == "round_to":
            if value.data == torch.bfloat16:
                return f"round_bf16v<vu32>({args[0]})"
            return f"half_round<vf32>({args[0]})"
        if value.op == "where":
            return f"({self._mask_for(args[0], value.dtype)}) ? {args[1]} : {args[2]}"
        return operation_text(value, args, lambda text: self._as_mask(text, value.args[0].dtype), vector=True)

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
        kind = self.vector_type(target)
        if source == torch.bool:
            return f"convert<{kind}>({text} & 1)"
        by = conversion_step(source, target)
        return f"convert<{kind}>({text})" if by is None else f"convert<{kind}>(convert<{VECTOR[by]}>({text}))"

    def _vector_index(self, value: Value) -> str:
        vector, kind, scalar = self.vector, self.vector_type(value.dtype), C_TYPES[value.dtype]
        step = stride(value.data.index, vector)
        if step is None or value.data.binders:
            names = {b: f"{self.vector_name(a)}[k]" for b, a in zip(value.data.binders, value.args, strict=True)}
            names[vector] = f"({vector.name} + k)"
            text = c_index(value.data.index, names)
            return f"lanes<{kind}>(Full(), [&](int k) {{ return ({scalar})({text}); }}, W)"
        base = c_index(value.data.index)
        moves = "" if step.value == 0 else f" + iota<{kind}>() * ({scalar})({c_index(step)})"
        return f"splat<{kind}>(({scalar})({base})){moves}"

    def _vector_load(self, value: Value) -> str:
        dtype = self.buffers[value.data.buffer].dtype
        if value in self.tiles:
            return self._contiguous(self.tiles[value], dtype, saturates=self._saturates(value))
        return self._regular_load(value, dtype) or self._load_by_lane(value)

    def _regular_load(self, value: Value, dtype: torch.dtype) -> str | None:
        """Lanes that lie evenly apart, not too far, and are read together or not at all; None: they do not."""
        data = value.data
        positions = value.args[: len(data.binders)]
        fixed = all(self.plan.places[p] != "body" for p in positions)
        step = stride(data.index, self.vector) if fixed else None
        apart = None if step is None else step.value
        mask = value.args[-1] if data.masked else None
        least, most = (0, 1) if dtype == torch.float16 or self._saturates(value) else (-1, MOST_STRIDE)
        if apart is None or not least <= apart <= most:
            return None
        if mask is not None and self.plan.places[mask] == "body":
            return None
        pointer, kind = self.args[data.buffer], self.vector_type(value.dtype)
        at = c_index(data.index, {b: self.scalar_name(p) for b, p in zip(data.binders, positions, strict=True)})
        if apart:
            text = self._contiguous(f"{pointer} + {at}", dtype, apart, self._saturates(value))
        else:
            scalar = self._element(value, f"{pointer}[{at}]")
            text = f"splat_mask<{kind}>({scalar})" if value.dtype == torch.bool else f"splat<{kind}>({scalar})"
        if mask is None:
            return text
        return f"{self.scalar_name(mask)} ? {text} : {self._vector_constant(data.other, value.dtype)}"

    def _load_by_lane(self, value: Value) -> str:
        data = value.data
        names = {b: self._lane(p) for b, p in zip(data.binders, value.args, strict=False)}
        names[self.vector] = f"({self.vector.name} + k)"
        element = self._element(value, f"{self.args[data.buffer]}[{c_index(data.index, names)}]")
        if data.masked:
            test = f"{self.vector_name(value.args[-1])}[k]"
            element = f"{test} ? {element} : {c_constant(data.other, value.dtype)}"
        if value.dtype == torch.bool:
            element = f"({element}) ? -1 : 0"
        return f"lanes<{self.vector_type(value.dtype)}>(full, [&](int k) {{ return {element}; }}, n)"

    def _lane(self, value: Value) -> str:
        """Lane k of a value."""
        return f"{self.vector_name(value)}[k]" if self.plan.places[value] == "body" else self.scalar_name(value)

    def _vector_constant(self, value: int | float | bool, dtype: torch.dtype) -> str:
        kind = self.vector_type(dtype)
        text = c_constant(value, dtype)
        return f"splat_mask<{kind}>({text})" if dtype == torch.bool else f"splat<{kind}>({text})"

    def _contiguous(self, address: str, dtype: torch.dtype, apart: int = 1, saturates: bool = False) -> str:
        """The vector of the elements from an address on, or of every second, third ... of them; back from it for -1."""
        if saturates:
            return f"ld_saturated<vi32>(full, {address}, n)"
        read = {1: "ld<", -1: "ld_reversed<"}.get(apart, f"ld_strided<{apart}, ")
        if dtype == torch.bool:
            return f"(convert<vmask>({read}vu8>(full, {address}, n)) != 0)"
        if dtype == torch.bfloat16:
            return f"from_bf16v<vf32, vu32>({read}vu16>(full, {address}, n))"
        if dtype in EIGHT_BIT_FLOATS:
            return f"from_f8v<{mantissa_bits(dtype)}, vf32, vi32>({read}vu8>(full, {address}, n))"
        if dtype == torch.float16:
            return f"half_load<vf32>({address}, n)"
        return f"{read}{VECTOR[dtype]}>(full, {address}, n)"

    # ------------------------------------------------------------------ stores
    def write(self, stores: Sequence[Store], scalar: bool = False) -> None:
        """Compute and write: all loads of an iteration come before its stores."""
        body = self.plan.vector is not None and not scalar
        in_body = [s for s in stores if body and self.plan.store_place(s) == "body"]
        self.values(roots([s for s in in_body if not self._copies_bits(s)]), "body")
        together: set[Store] = set()
        if self.plan.phases is not None:
            for group in stored_together(in_body, self.vector, self.plan.phases.count):
                if self.buffers[group[0].buffer].dtype != torch.float16:
                    self._interleaved_store(group)
                    together.update(group)
        for store in stores:
            if store in together:
                continue
            if store in in_body:
                self._vector_store(store)
            else:
                self._scalar_store(store)

    def _scalar_store(self, store: Store) -> None:
        dtype = self.buffers[store.buffer].dtype
        names = {b: self.scalar_name(p) for b, p in zip(store.binders, store.positions, strict=True)}
        target = f"{self.args[store.buffer]}[{c_index(store.index, names)}]"
        self.put(self._assignment(store, target, self.scalar_name(store.value), dtype))

    def _assignment(self, store: Store, target: str, text: str, dtype: torch.dtype) -> str:
        if store.mode == "add":
            text = f"{from_storage(target, dtype)} + {text}"
        return f"{target} = {to_storage(text, dtype)};"

    def _copies_bits(self, store: Store) -> bool:
        """Does the store move 16-bit elements as they are, without a turn through float32?"""
        value, dtype = store.value, self.buffers[store.buffer].dtype
        if value.op != "load" or value.data.masked or value.data.binders or store.scatters or value in self.names:
            return False
        if dtype not in HALF or self.buffers[value.data.buffer].dtype != dtype:
            return False
        indices = [store.index] if value in self.tiles else [value.data.index, store.index]
        steps = [stride(i, self.vector) for i in indices]
        return all(step is not None and step.value == 1 for step in steps)

    def _interleaved_store(self, group: tuple[Store, ...]) -> None:
        """The vectors of all phases, their elements in turns."""
        first = group[0]
        dtype = self.buffers[first.buffer].dtype
        kind = "vu16" if dtype == torch.bfloat16 else "vu8" if dtype == torch.bool else VECTOR[dtype]
        texts = [self._stored_vector(self.vector_name(s.value), s.value.dtype, dtype) for s in group]
        name = self.fresh()
        self.put(f"const {kind} {name}[] = {{{', '.join(texts)}}};")
        self.put(f"st_interleaved(full, {self.args[first.buffer]} + {c_index(first.index)}, {name}, n);")

    def _vector_store(self, store: Store) -> None:
        dtype = self.buffers[store.buffer].dtype
        if self._copies_bits(store):
            source = f"{self.args[store.value.data.buffer]} + {c_index(store.value.data.index)}"
            source = f"(const u16*)({self.tiles.get(store.value, source)})"
            target = f"(u16*){self.args[store.buffer]} + {c_index(store.index)}"
            self.put(f"st(full, {target}, ld<vu16>(full, {source}, n), n);")
            return
        fixed = all(self.plan.places[p] != "body" for p in store.positions)
        step = stride(store.index, self.vector) if fixed else None
        if step is not None and step.value == 1:
            names = {b: self.scalar_name(p) for b, p in zip(store.binders, store.positions, strict=True)}
            address = f"{self.args[store.buffer]} + {c_index(store.index, names)}"
            text = self.vector_name(store.value)
            if store.mode == "add":
                text = f"{self._contiguous(address, dtype)} + {text}"
            call = "half_store" if dtype == torch.float16 else "st"
            if dtype == torch.int64 and store.value.dtype == torch.int32:
                call = "st_widened"
            else:
                text = self._stored_vector(text, store.value.dtype, dtype)
            self.put(f"{call}(full, {address}, {text}, n);")
            return
        name = self.fresh()
        self.put(f"const auto {name} = {self.vector_name(store.value)};")
        names = {b: self._lane(p) for b, p in zip(store.binders, store.positions, strict=True)}
        names[self.vector] = f"({self.vector.name} + k)"
        target = f"{self.args[store.buffer]}[{c_index(store.index, names)}]"
        lane = f"({name}[k] & 1)" if store.value.dtype == torch.bool else f"{name}[k]"
        # Lane after lane: of several that meet in one element the last wins, or all are added.
        self.put(f"each_lane<W>(full, n, [&](int k) {{ {self._assignment(store, target, lane, dtype)} }});")

    def _stored_vector(self, text: str, have: torch.dtype, dtype: torch.dtype) -> str:
        """A vector value as the elements of a buffer."""
        if dtype == torch.bool:
            return f"convert<vu8>(({text}) & 1)"
        if dtype == torch.bfloat16:
            return f"to_bf16v<vu32, vu16>({text})"
        if dtype != torch.float16 and VECTOR[dtype] != self.vector_type(have):
            return f"convert<{VECTOR[dtype]}>({text})"
        return text


def vector_loop(plan: Plan) -> LoopVar:
    """The vector loop of a plan that has one."""
    if plan.vector is None:
        raise ValueError("no vector loop")
    return plan.vector


def needed(roots: Sequence[Value]) -> list[Value]:
    """What the roots depend on, without what lies below finished reductions and sorts."""
    found: dict[Value, None] = {}
    stack: list[tuple[Value, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        value, ready = stack.pop()
        if ready:
            found[value] = None
        elif value not in found:
            stack.append((value, True))
            if value.op not in PASSES:
                stack.extend((a, False) for a in reversed(value.args) if a not in found)
    return list(found)


def conversion_step(source: torch.dtype, target: torch.dtype) -> torch.dtype | None:
    """The type by way of which a conversion goes, or None.

    Floats become small integers by way of int32, uint8 by way of int64, as in eager: that decides what is left of numbers
    out of range. Small integers become floats by way of int32 because that is what processors convert.
    """
    if source.is_floating_point and not target.is_floating_point:
        if target == torch.uint8:
            return torch.int64
        return torch.int32 if target in (torch.int8, torch.int16) else None
    if target.is_floating_point and source in (torch.int8, torch.uint8, torch.int16):
        return torch.int32
    return None


def combine_text(kind: str, a: str, b: str) -> str:
    """Two operands of a reduction or a scan as one."""
    if kind in ("sum", "prod"):
        return f"{a} {'+' if kind == 'sum' else '*'} {b}"
    if kind in ("any", "all"):
        return f"{a} {'|' if kind == 'any' else '&'} {b}"
    return f"op_{'maximum' if kind == 'max' else 'minimum'}({a}, {b})"
