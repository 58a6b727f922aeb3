"""From a planned kernel to the text of a Triton function."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import final

import torch

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir.dtypes import EIGHT_BIT_FLOATS, HALF
from torchjit_inductor.ir.intervals import Intervals
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, Store
from torchjit_inductor.ir.operations import identity
from torchjit_inductor.ir.values import IN_ORDER, INDEXED, Value, substitute
from torchjit_inductor.triton.expressions import triton_text
from torchjit_inductor.triton.operations import (
    Dialect,
    cast_text,
    joined_text,
    operation_text,
    rounded_text,
    type_name,
    whole_text,
)
from torchjit_inductor.triton.plan import Axis, TilePlan
from torchjit_inductor.triton.sorts import key_text, last_key, sorted_text
from torchjit_inductor.triton.tile import FIRST_ROW, IN_SECOND, SECOND_ROW, Axes, Tile

__all__ = ["Emitter", "is_rounded", "literal", "pointer_names"]

_FLOATS = (torch.float32, torch.float64)
_SIGNED = (torch.int8, torch.int16, torch.int32)
_NARROWED = frozenset(("add", "sub", "mul", "neg", "maximum", "minimum"))
"""Of int64 operands that all fit into int32, with a result that does, too: computed in int32 where it is a place in memory."""
_PICKING = frozenset(("neg", "abs", "maximum", "minimum", "where"))
"""What gives one of its operands, perhaps with another sign."""
_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


def literal(value: float | int | bool, dtype: torch.dtype) -> str:
    """A number of exactly this dtype; integers wrap around, as eager's do."""
    if not dtype.is_floating_point and dtype != torch.bool and not isinstance(value, float):
        limits = torch.iinfo(dtype)
        value = (int(value) - limits.min) % (1 << limits.bits) + limits.min
    return f"tl.full([], {_number(value)}, {type_name(dtype)})"


def _number(value: float | int | bool) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _weak(value: Value) -> bool:
    """May the constant be a bare literal beside a tensor of its dtype? Triton reads tiny floats as float64."""
    if value.dtype == torch.float32:
        return not math.isfinite(value.data) or value.data == 0 or 1.2e-38 < abs(value.data) < 3.4e38
    return value.dtype in (torch.int32, torch.int64)


def _reciprocal(divisor: Value) -> float | None:
    """One over a constant, rounded to its dtype; None if it is no ordinary number."""
    value = float(divisor.data)
    if not math.isfinite(value) or not 1e-30 < abs(value) < 1e30:
        return None
    if divisor.dtype == torch.float64:
        return 1.0 / value
    if divisor.dtype != torch.float32:
        return None
    # From a float64 quotient of float32 numbers this is the correctly rounded one.
    narrow = struct.unpack("f", struct.pack("f", value))[0]
    return float(struct.unpack("f", struct.pack("f", 1.0 / narrow))[0])


def is_rounded(value: Value) -> bool:
    """Is it a rounded float32, perhaps within limits that are whole numbers?"""
    if value.op in ("maximum", "minimum"):
        limits = [a for a in value.args if a.op == "constant"]
        rest = [a for a in value.args if a.op != "constant"]
        return len(rest) == 1 and float(limits[0].data).is_integer() and is_rounded(rest[0])
    return value.op == "round" and value.dtype == torch.float32


def pointer_names(kernel: LoopKernel) -> dict[str, str]:
    """The parameter for each buffer, in call order.

    Named by role, not by buffer: kernels that repeat in a graph have one text, which is compiled once.
    """
    names: dict[str, str] = {}
    counts = {"in": 0, "out": 0}
    for name in kernel.buffers:
        role = "out" if name in kernel.writes else "in"
        names[name] = f"{role}{counts[role]}"
        counts[role] += 1
    return names


@final
class Emitter:
    """Writes values as statements, each once per scope: `head` (the program), or `body` (the loop over `r`).

    A value that varies along a looped `r` axis belongs to the body and is computed anew in every pass; every other one
    belongs to the head, before the loop.

    Args:
        kernel: with merged loops.
        buffers: of the graph.
        plan: its plan.
        wide: 64-bit positions.
        dialect: of the operations.
        numbers: for new names; emitters that write one function share them.
    """

    def __init__(
        self,
        kernel: LoopKernel,
        buffers: Mapping[str, Buffer],
        plan: TilePlan,
        wide: bool,
        dialect: Dialect,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.kernel = kernel
        self.buffers = buffers
        self.plan = plan
        self.tile = Tile(plan, wide)
        self.dialect = dialect
        self.pointers = pointer_names(kernel)
        self.head: list[str] = []
        self.body: list[str] = []
        self.last_pass = True
        self.passes = 1
        self.keeps = True  # what this run reads, for the next one
        self.streaming = False  # mark what is read once, too: for experiments
        self._names: dict[object, str] = {}
        self._body_names: dict[object, str] = {}
        self._axes: dict[Value, Axes] = {}
        self._intervals = Intervals()
        self._narrowed: dict[Value, bool] = {}
        self._exact: dict[tuple[Value, torch.dtype], bool] = {}
        self._numbers = numbers or itertools.count()

    # ------------------------------------------------------------------------------------------------------ names

    def axes(self, value: Value) -> Axes:
        """Along which axes of the tile the value varies."""
        found = self._axes.get(value)
        if found is None:
            if value.op == "reduce":
                found = self.tile.parallel
            elif value.op in IN_ORDER:
                found = self.tile.all_axes
            else:
                found = frozenset[str]().union(*(self.axes(a) for a in value.args))
                if value.op in INDEXED:
                    found |= self.tile.symbol_axes(value.data.index.symbols.difference(value.data.binders))
            self._axes[value] = found
        return found

    def in_body(self, axes: Axes) -> bool:
        """Does such a value live inside the loop?"""
        reduced = self.plan.reduced
        return reduced is not None and reduced.looped and reduced.name in axes

    def start_pass(self, last: bool, keeps: bool = True) -> None:
        """Begin another run over the looped axis, or another part of one: nothing of the body is known.

        Args:
            last: no run follows.
            keeps: the cache should keep what is read, if one does.
        """
        self.body = []
        self._body_names = {}
        self.last_pass, self.keeps = last, keeps

    def fresh(self, prefix: str = "v") -> str:
        """A new name."""
        return f"{prefix}{next(self._numbers)}"

    def bind(self, key: object, text: str, axes: Axes) -> str:
        """Write `name = text` in the scope of `axes`, once for a key, and give the name."""
        names, lines = (self._body_names, self.body) if self.in_body(axes) else (self._names, self.head)
        if key not in names:
            names[key] = self.fresh()
            lines.append(f"{names[key]} = {text}")
        return names[key]

    def is_defined(self, key: object) -> bool:
        """Is there a name for `key` in the head?"""
        return key in self._names

    def define(self, key: object, name: str) -> None:
        """Say that `name`, already assigned in the head, holds the value of `key`."""
        self._names[key] = name

    def provide(self, value: Value, name: str) -> None:
        """Say that in this pass `name`, assigned in the body, holds `value`, which varies along all axes."""
        self._axes[value] = self.tile.all_axes
        self._body_names[value] = name

    # ----------------------------------------------------------------------------------------------------- values

    def value(self, value: Value, weak: bool = False) -> str:
        """The text of a value, a name or a literal, after its statements have been written.

        Args:
            value: any value; a `reduce` must have been defined before.
            weak: a bare literal will do for a constant.
        """
        if value.op == "constant":
            return _number(value.data) if weak and _weak(value) else literal(value.data, value.dtype)
        if value not in self._names and self._is_of_row(value):
            first, second = (
                self.value(substitute(value, self.tile.digits_of_row(row))) for row in (FIRST_ROW, SECOND_ROW)
            )
            return self.bind(value, f"tl.where({IN_SECOND}, {second}, {first})", self.axes(value))
        names = self._body_names if self.in_body(self.axes(value)) else self._names
        found = names.get(value)
        if found is None:
            if value.op == "reduce":
                raise KeyError(f"reduction {value!r} is used before it was computed")
            found = self.bind(value, self._text(value), self.axes(value))
        return found

    def _is_of_row(self, value: Value) -> bool:
        """Does it depend on the row alone, of which a tile has two at most?"""
        axis = self.tile.rows
        if axis is None or axis.loops[-1].symbol in value.symbols:
            return False
        return any(v.symbol in value.symbols for v in axis.loops)

    def _text(self, value: Value) -> str:
        write = _WRITERS.get(value.op)
        text = None if write is None else write(self, value)
        if text is None and value.op in _COMPARISONS and all(a.op in ("index", "constant") for a in value.args):
            text = operation_text(value.op, torch.int64, [self._narrow(a) for a in value.args], self.dialect)
        elif text is None and value.op in _COMPARISONS and all(map(self._is_narrow, value.args)):
            text = operation_text(value.op, torch.int32, [self._place(a) for a in value.args], self.dialect)
        if text is not None:
            return text
        weak = any(a.op != "constant" for a in (value.args[1:] if value.op == "where" else value.args))
        args = [self.value(a, weak) for a in value.args]
        return operation_text(value.op, value.args[-1].dtype, args, self.dialect)

    def _position(self, value: Value) -> str:
        return f"({self._index(value.data.index, self._bound(value.data.binders, value.args))}).to(tl.int64)"

    def _cast(self, value: Value) -> str:
        (operand,) = value.args
        if operand.op == "index" and not self.tile.wide and value.dtype != torch.int64:
            return cast_text(self._narrow(operand), torch.int32, value.dtype)
        if value.dtype in _FLOATS and self._is_narrow(operand):
            return cast_text(self._place(operand), torch.int32, value.dtype)
        if value.dtype in _SIGNED and is_rounded(operand):
            return rounded_text(self._before_rounding(operand), value.dtype, self.dialect)
        return cast_text(self.value(operand), operand.dtype, value.dtype)

    def _rounded(self, value: Value) -> str:
        if self._is_exact(value.args[0], value.data):
            return self.value(value.args[0])
        return f"{self.value(value.args[0])}.to({type_name(value.data)}).to(tl.float32)"

    def _is_exact(self, value: Value, dtype: torch.dtype) -> bool:
        """Has a float32 value the precision of a 16-bit dtype anyway?"""
        if (value, dtype) not in self._exact:
            self._exact[value, dtype] = self._picks_exact(value, dtype)
        return self._exact[value, dtype]

    def _picks_exact(self, value: Value, dtype: torch.dtype) -> bool:
        if value.op == "load":
            return bool(self.buffers[value.data.buffer].dtype == dtype and value.data.other == 0)
        if value.op == "round_to":
            return bool(value.data == dtype)
        if value.op == "constant":
            return bool(float(torch.tensor(value.data, dtype=dtype)) == value.data)
        operands = value.args[1:] if value.op == "where" else value.args
        return value.op in _PICKING and all(self._is_exact(a, dtype) for a in operands)

    def _bounded(self, value: Value) -> str:
        """A computed position; one outside stops the program with an error, as in eager mode."""
        axes = self.axes(value)
        size = triton_text(value.data.index, lambda s: s.name)
        position = self.value(value.args[0])
        if value.data.wrap:
            position = self.bind(
                ("wrapped", value), f"tl.where({position} < 0, {position} + ({size}), {position})", axes
            )
        lines = self.body if self.in_body(axes) else self.head
        test = f"({position} >= 0) & ({position} < {size})"
        # Beyond the end of the loops there is no position to be wrong.
        masks = " & ".join(self.tile.masks(axes))
        lines.append(f'tl.device_assert({test}, "index out of bounds"{f", mask={masks}" if masks else ""})')
        return position

    def _scan(self, value: Value) -> str:
        """The combination with everything before along `r`; in a loop what came before a block is carried along."""
        kind, dtype, dim = value.data, value.dtype, len(self.plan.axes) - 1
        operand = self.tile.spread(self.value(value.args[0]), self.axes(value.args[0]), self.tile.all_axes)
        joins = {"prod": "product", "max": "larger", "min": "smaller"}
        if dtype.is_floating_point:
            joins |= {"max": "maximum", "min": "minimum"}
        inside = (
            f"tl.associative_scan({operand}, {dim}, tj.{joins[kind]})"
            if kind in joins
            else f"tl.cumsum({operand}, {dim})"
        )
        reduced = self.plan.reduced
        if reduced is None or not reduced.looped:
            return inside
        start = identity(kind, dtype) if kind in ("max", "min") else int(kind == "prod")
        shape = self.tile.shape(self.tile.all_axes)
        shape[-1] = 1
        carry, made = self.fresh("carry"), self.fresh()
        self.head.append(f"{carry} = tl.full({shape}, {_number(start)}, {type_name(dtype)})")
        index = "[:, None]" if dim else "[None]"
        self.body.append(f"{made} = {joined_text(kind, dtype, carry, inside)}")
        self.body.append(f"{carry} = {joined_text(kind, dtype, carry, whole_text(kind, dtype, operand, dim) + index)}")
        return made

    def _sorted(self, value: Value) -> str:
        """Elements or positions of a sorted row; both are of one sort."""
        operand, reduced, want = value.args[0], self.plan.reduced, self.tile.all_axes
        if reduced is None or reduced.looped:
            raise ValueError("a row is sorted as a whole")
        text = self.tile.spread(self.value(operand), self.axes(operand), want)
        at = self.tile.flat(reduced) + (".to(tl.int32)" if self.tile.wide else "")
        key = self.bind(
            ("key", operand, value.data.descending), key_text(operand, text, at, value.data.descending), want
        )
        if reduced.masked:
            key = f"tl.where({reduced.name}_mask, {key}, {last_key(operand)})"
        row = f"tl.sort({key}, {len(self.plan.axes) - 1})"
        return sorted_text(value, self.bind(("row", operand, value.data.descending), row, want))

    def _narrow(self, value: Value) -> str:
        """An index for comparing, without the conversion to 64 bits that it has as a value."""
        if value.op == "constant":
            return self.value(value, weak=True)
        return f"({self._index(value.data.index, self._bound(value.data.binders, value.args))})"

    def _is_narrow(self, value: Value) -> bool:
        """May an int64 value be computed in int32? A cast, or a result of sums and limits of such."""
        if value not in self._narrowed:
            self._narrowed[value] = self._fits(value)
        return self._narrowed[value]

    def _fits(self, value: Value) -> bool:
        if value.dtype != torch.int64 or self.tile.wide or not self._intervals.within(value, -(2**31), 2**31 - 1):
            return False
        if value.op == "cast":
            return value.args[0].dtype in _FLOATS
        return value.op in ("constant", "index") or (value.op in _NARROWED and all(map(self._is_narrow, value.args)))

    def _place(self, value: Value) -> str:
        """A computed place in memory, as int32 unless positions are wide."""
        if self.tile.wide:
            return self.value(value)
        if value.op in ("constant", "index"):
            return self._narrow(value)
        if not self._is_narrow(value):
            return f"{self.value(value)}.to(tl.int32)"
        if value.op == "cast":
            text = cast_text(self.value(value.args[0]), value.args[0].dtype, torch.int32)
        else:
            text = operation_text(value.op, torch.int32, [self._place(a) for a in value.args], self.dialect)
        return self.bind(("place", value), text, self.axes(value))

    def _division(self, value: Value) -> str | None:
        numerator, divisor = value.args
        if divisor.op == "constant":
            # Eager's CUDA kernels, too, multiply by the reciprocal of a number, rounded to the dtype.
            inverse = _reciprocal(divisor)
            return None if inverse is None else f"{self.value(numerator)} * {_number(inverse)}"
        if not self.axes(divisor) < self.axes(numerator):
            return None
        if self.dialect.accurate:
            narrow = self.dialect.narrow and value.dtype == torch.float32
            return self._exact_division(numerator, divisor) if narrow else None
        shared = self.bind(("inverse", divisor), f"1.0 / {self.value(divisor)}", self.axes(divisor))
        return f"{self.value(numerator, weak=True)} * {shared}"

    def _exact_division(self, numerator: Value, divisor: Value) -> str:
        """By a divisor that many elements share."""
        along, b = self.axes(divisor), self.value(divisor)
        inverse = self.bind(("inverse", divisor), f"tl.div_rn(1.0, {b})", along)
        limit = self.bind(("division limit", divisor), f"tj.division_limit({b})", along)
        return f"tj.exact_quotient({self.value(numerator)}, {b}, {inverse}, {limit})"

    def _before_rounding(self, value: Value) -> str:
        """Limits that are whole numbers may come before the rounding."""
        if value.op == "round":
            return self.value(value.args[0])
        args = [self.value(a, weak=True) if a.op == "constant" else self._before_rounding(a) for a in value.args]
        return self.bind(
            ("before rounding", value), operation_text(value.op, value.dtype, args, self.dialect), self.axes(value)
        )

    # ------------------------------------------------------------------------------------------ memory and indices

    def _bound(self, binders: Sequence[Symbol], positions: Sequence[Value]) -> dict[Symbol, str]:
        return {symbol: self._place(at) for symbol, at in zip(binders, positions, strict=False)}

    def _spread_index(self, index: Expr, binders: Sequence[Symbol], positions: Sequence[Value], want: Axes) -> str:
        """An index with computed positions, as a tensor that varies along `want`."""
        own = self.tile.symbol_axes(index.symbols.difference(binders))
        have = own.union(*(self.axes(at) for at in positions))
        return self.tile.spread(self._index(index, self._bound(binders, positions)), have, want)

    def _index(self, index: Expr, bound: Mapping[Symbol, str]) -> str:
        return triton_text(self.tile.along_axes(index), lambda s: bound.get(s, s.name))

    def _address(
        self, buffer: str, index: Expr, binders: Sequence[Symbol], positions: Sequence[Value], want: Axes
    ) -> str:
        """Where a load or store accesses memory, as a tensor that varies along `want`."""
        split = self.tile.from_first(self.tile.along_axes(index)) if self.plan.from_first and not positions else None
        if split is None:
            return f"{self.pointers[buffer]} + ({self._spread_index(index, binders, positions, want)})"
        first, lanes = split
        distance = self.tile.spread(lanes, self.tile.symbol_axes(index.symbols), want)
        return f"{self.pointers[buffer]} + ({first}) + ({distance})"

    def as_stored(self, value: Value, want: Axes) -> str:
        """A 16-bit operand of a product, as a tile of the type that it has in memory.

        Args:
            value: a load from a 16-bit buffer, or `round_to`.
            want: the axes of the tile.
        """
        if value.op == "round_to":
            text, have = f"{self.value(value.args[0])}.to({type_name(value.data)})", self.axes(value)
        else:
            have = self.axes(value)
            text = self.bind(("stored", value), self._load(value, stored=True), have)
        return self.tile.spread(text, have, want)

    def _load(self, value: Value, *, stored: bool = False) -> str:
        data, want = value.data, self.axes(value)
        positions = value.args[: len(data.binders)]
        masks, other = self._masks_and_other(value, want)
        pointer = self._address(data.buffer, data.index, data.binders, positions, want)
        policy = "" if stored else self._policy(value, want)
        hint = f', eviction_policy="{policy}"' if policy else ""
        widen = ".to(tl.float32)" if self.buffers[data.buffer].dtype in HALF and not stored else ""
        ends = None if data.masked or positions else self._wide_and_rest(data.buffer, data.index, masks)
        if ends is not None:
            most, rest = (f"tl.load({pointer}, {mask}, other={other}{hint})" for mask in ends)
            return f"tl.where({ends[0]}, {most}, {rest}){widen}"
        mask = f", {' & '.join(masks)}, other={other}" if masks else ""
        return f"tl.load({pointer}{mask}{hint}){widen}"

    def _masks_and_other(self, value: Value, want: Axes) -> tuple[list[str], str]:
        """Where a load reads, and what it gives elsewhere."""
        masks = self.tile.masks(want)
        if value.data.masked:
            masks.append(self.tile.spread(self.value(value.args[-1]), self.axes(value.args[-1]), want))
            return masks, _number(value.data.other)
        # Triton has no conversion from integers to 8-bit floats.
        return masks, "0.0" if self.buffers[value.data.buffer].dtype in EIGHT_BIT_FLOATS else "0"

    def _wide_and_rest(self, buffer: str, index: Expr, masks: Sequence[str]) -> tuple[str, str] | None:
        """Masks for the part of a row that 16 bytes wide accesses divide, and for the few elements behind it.

        A mask that ends within such an access makes Triton access element by element, as far apart as the wide ones would be: four to eight
        times as slow. None: rows begin anywhere, or end where a wide access does.
        """
        width = 16 // self.buffers[buffer].dtype.itemsize
        axis = next((a for a in self.plan.axes if self._ends_unevenly(a, index, width)), None)
        if axis is None or f"{axis.name}_mask" not in masks:
            return None
        flat, size = self.tile.flat(axis), axis.size.value or 0
        wide, along, own = size // width * width, frozenset((axis.name,)), f"{axis.name}_mask"
        most = self.bind(("wide part", axis.name, width), f"{flat} < {wide}", along)
        rest = self.bind(("behind the wide part", axis.name, width), f"({flat} >= {wide}) & {own}", along)
        others = [m for m in masks if m != own]
        return " & ".join([most, *others]), " & ".join([rest, *others])

    def _ends_unevenly(self, axis: Axis, index: Expr, width: int) -> bool:
        """Does memory run along the axis from places that 16 bytes divide, and end between two?"""
        size, loop = axis.size.value, axis.loops[0].symbol
        if axis.end or len(axis.loops) > 1 or size is None or size < width or size % width == 0:
            return False
        return stride(index, loop) is constant(1) and (index - as_expr(loop)).divisible_by(width)

    def _policy(self, value: Value, want: Axes) -> str:
        """What the cache should do: keep what other programs or a later pass read again.

        A tensor that the kernel reads once gets no hint: whether a later kernel reads it again is not known here.
        """
        if not want:
            return ""
        if any(v.symbol not in value.symbols for v in self.kernel.outer) or want != self.tile.all_axes:
            return "evict_last"
        if self.in_body(want) and self.passes > 1:
            return "evict_last" if self.keeps and not self.last_pass else "evict_first"
        return "evict_first" if self.streaming else ""

    def store_total(self, store: Store, total: str) -> str:
        """The statement that stores what a loop has summed up under a name, an element for each of the tile."""
        want = self.tile.all_axes
        masks = self.tile.masks(want)
        pointer = self._address(store.buffer, store.index, (), (), want)
        return f"tl.store({', '.join([pointer, total, *([' & '.join(masks)] if masks else [])])})"

    def store(self, store: Store) -> str:
        """The statement of a store, after its value's statements have been written."""
        want = self.tile.parallel if store.outer else self.tile.all_axes
        value = self.tile.spread(self.value(store.value), self.axes(store.value), want)
        pointer = self._address(store.buffer, store.index, store.binders, store.positions, want)
        masks = self.tile.masks(want)
        arguments = [pointer, value]
        ends = (
            self._wide_and_rest(store.buffer, store.index, masks)
            if not store.positions and store.mode == "set"
            else None
        )
        if ends is not None:
            return "; ".join(f"tl.store({pointer}, {value}, {mask})" for mask in ends)
        if masks:
            arguments.append(("mask=" if store.mode == "add" else "") + " & ".join(masks))
        if self.plan.kept and store.mode == "set" and not store.outer:
            arguments.append('eviction_policy="evict_first"')  # what is kept must not make room for it
        if store.mode == "add":
            return f'tl.atomic_add({", ".join(arguments)}, sem="relaxed")'
        return f"tl.store({', '.join(arguments)})"


_WRITERS: dict[str, Callable[[Emitter, Value], str | None]] = {
    "load": Emitter._load,
    "index": Emitter._position,
    "bounded": Emitter._bounded,
    "scan": Emitter._scan,
    "sort": Emitter._sorted,
    "cast": Emitter._cast,
    "round_to": Emitter._rounded,
    "div": Emitter._division,
}
"""What has a text of its own; None: in this case it has that of its operation."""
