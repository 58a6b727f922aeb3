"""Reductions over the `r` axis: of a whole tile at once, or accumulated over a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch

from torchjit_inductor.indexing import stride
from torchjit_inductor.ir.dtypes import is_float
from torchjit_inductor.ir.operations import identity
from torchjit_inductor.ir.values import Value, walk
from torchjit_inductor.triton.emit import Emitter, literal
from torchjit_inductor.triton.operations import joined_text, operation_text, type_name, whole_text

__all__ = ["Reducer", "literal_full"]

_NO_POSITION = 2**31 - 1


def _working_dtype(value: Value) -> torch.dtype:
    """bool is reduced as int32: a warp does not exchange single bits."""
    operand = value.args[0].dtype
    return torch.int32 if operand == torch.bool else operand


@final
class Reducer:
    """Writes the reductions of a kernel through its emitter."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._tile = emitter.tile
        axis = emitter.plan.reduced
        if axis is None:
            raise ValueError("the plan has no reduced axis")
        self._axis = axis
        self._dim = len(emitter.plan.axes) - 1
        self._online: dict[Value, Value] = {}  # a maximum, and the sum that is done with it

    # ------------------------------------------------------------------------------------------------ whole tiles

    def persistent(self, value: Value) -> None:
        """Reduce a tile that holds the whole axis."""
        kind = value.data
        if kind in ("welford_mean", "welford_m2"):
            self._persistent_welford(value.args[0])
            return
        if kind in ("argmax", "argmin"):
            self._finish_position(value, self._assign(self._operand(value)), self._positions())
            return
        self._finish(value, self._operand(value))

    def _persistent_welford(self, operand: Value) -> None:
        emitter = self._emitter
        mean_key, m2_key = _welford_keys(operand)
        if emitter.is_defined(mean_key):
            return
        full = self._tile.all_axes
        x = self._tile.spread(emitter.value(operand), emitter.axes(operand), full)
        count = self._count(operand.dtype)
        total = f"tl.sum({self._inside(x, literal(0.0, operand.dtype))}, {self._dim}){self._keep()}"
        mean = self._assign(_quotient(total, count, operand.dtype))
        emitter.define(mean_key, mean)
        distance = emitter.fresh()
        emitter.head.append(f"{distance} = {self._inside(f'{x} - {mean}', literal(0.0, operand.dtype))}")
        emitter.define(m2_key, self._assign(f"tl.sum({distance} * {distance}, {self._dim}){self._keep()}"))

    def _operand(self, value: Value) -> str:
        """The operand as a full tile of the working dtype, with the identity outside the loops."""
        emitter, operand = self._emitter, value.args[0]
        text, dtype = emitter.value(operand), _working_dtype(value)
        if operand.dtype != dtype:
            text = f"{text}.to({type_name(dtype)})"
        text = self._tile.spread(text, emitter.axes(operand), self._tile.all_axes)
        return self._inside(text, literal(identity(value.data, dtype), dtype))

    def _inside(self, text: str, outside: str) -> str:
        return f"tl.where(r_mask, {text}, {outside})" if self._axis.masked else text

    def _positions(self) -> str:
        text = f"tl.broadcast_to({self._tile.flat(self._axis)}, {self._tile.shape(self._tile.all_axes)})"
        if self._tile.wide:
            text = f"{text}.to(tl.int32)"
        return self._inside(text, str(_NO_POSITION))

    def _first_positions(self) -> str:
        """Where the lanes begin: what is nowhere better than the least value is there."""
        axis, dims = self._axis, "[None, :]" if self._dim == 1 else ""
        text = f"tl.arange(0, {axis.block}){dims}"
        if axis.masked:
            text = f"tl.where({text} < {self._tile.size(axis.size)}, {text}, {_NO_POSITION})"
        return f"tl.broadcast_to({text}, {self._shape})"

    # ------------------------------------------------------------------------------------------------------ loops

    def open(self, values: Sequence[Value]) -> list[tuple[Value, tuple[str, ...]]]:
        """Write the accumulators of these reductions before the loop; a Welford pair shares its three."""
        opened: list[tuple[Value, tuple[str, ...]]] = []
        seen: set[Value] = set()
        for value in values:
            welford = value.data in ("welford_mean", "welford_m2")
            if welford and value.args[0] in seen:
                continue
            dtype = _working_dtype(value)
            if value in self._online:
                lanes = [*self._shape[:-1], self._shape[-1] // self._group(value)]
                starts = [literal_full(lanes, n, dtype) for n in (float("-inf"), 0.0)]
            elif welford:
                seen.add(value.args[0])
                # One count for all lanes: those that see an element less see it missing at the end, where they stay as they are.
                starts = [literal_full(self._shape, 0.0, dtype)] * 2 + [literal(0.0, dtype)]
            elif value.data in ("argmax", "argmin"):
                starts = [
                    literal_full(self._shape, identity(value.data, dtype), dtype),
                    self._first_positions(),
                ]
            else:
                starts = [literal_full(self._shape, identity(value.data, dtype), dtype)]
            names = tuple(self._emitter.fresh("acc") for _ in starts)
            self._emitter.head += [f"{n} = {s}" for n, s in zip(names, starts, strict=True)]
            opened.append((value, names))
        return opened

    @property
    def _shape(self) -> list[int]:
        return self._tile.shape(self._tile.all_axes)

    def step(self, value: Value, names: tuple[str, ...]) -> None:
        """Write one loop iteration's contribution."""
        body, kind = self._emitter.body, value.data
        # The operand's statements go to the body first.
        if kind in ("welford_mean", "welford_m2"):
            self._welford_step(value, names)
            return
        if value in self._online:
            x, both, group = self._operand(value), ", ".join(names), self._group(value)
            if group > 1:
                groups = [*self._shape[:-1], self._shape[-1] // group, group]
                body.append(f"{both} = tj.online_softmax_of_groups({both}, tl.reshape({x}, {groups}))")
            else:
                body.append(f"{both} = {self._online_function}({both}, {x})")
            return
        operand = self._operand(value)
        if kind in ("argmax", "argmin"):
            taken = "tj.take_larger" if kind == "argmax" else "tj.take_smaller"
            best, position = names
            body.append(f"{best}, {position} = {taken}({best}, {position}, {operand}, {self._positions()})")
            return
        body.append(f"{names[0]} = {joined_text(kind, _working_dtype(value), names[0], operand)}")

    def _welford_step(self, value: Value, names: tuple[str, ...]) -> None:
        emitter, operand = self._emitter, value.args[0]
        mean, m2, count = names
        x = self._tile.spread(emitter.value(operand), emitter.axes(operand), self._tile.all_axes)
        delta, moved = emitter.fresh("delta"), emitter.fresh("mean")
        share = emitter.fresh("share")
        emitter.body += [
            f"{count} = {count} + 1.0",
            f"{share} = 1.0 / {count}",
            f"{delta} = {self._inside(f'{x} - {mean}', literal(0.0, operand.dtype))}",
            f"{moved} = {mean} + {delta} * {share}",
            # Outside the loops delta is 0, so the second factor does not matter.
            f"{m2} = {m2} + {delta} * ({x} - {moved})",
            f"{mean} = {moved}",
        ]

    def close(self, value: Value, names: tuple[str, ...]) -> None:
        """Join the accumulators' lanes after the loop."""
        kind = value.data
        if value in self._online:
            self._finish(value, names[0])
            self._close_online(value, *names)
        elif kind in ("argmax", "argmin"):
            self._finish_position(value, *names)
        elif kind in ("welford_mean", "welford_m2"):
            made = [self._emitter.fresh() for _ in names]
            names = (*names[:2], f"tl.broadcast_to({self._count_of_lanes(value, names[2])}, {self._shape})")
            self._emitter.head.append(f"{', '.join(made)} = tl.reduce(({', '.join(names)}), {self._dim}, tj.welford)")
            for key, name in zip(_welford_keys(value.args[0]), made, strict=False):
                self._emitter.define(key, self._assign(f"{name}{self._keep()}") if self._keep() else name)
        else:
            self._finish(value, names[0])

    def _count_of_lanes(self, value: Value, blocks: str) -> str:
        """How many elements each lane has seen in so many blocks."""
        axis = self._axis
        if not axis.masked:
            return blocks
        lane = f"tl.arange(0, {axis.block}){'[None, :]' if self._dim == 1 else ''}"
        seen = f"({self._tile.size(axis.size)} + {axis.block - 1} - {lane}) // {axis.block}"
        return f"({seen}).to({type_name(value.args[0].dtype)})"

    # ------------------------------------------------------------------------------------------- online softmax

    def merge_softmax(self, reductions: Sequence[Value]) -> set[Value]:
        """Find sums of exp(x - max(x)), which can be done in the run that finds the maximum.

        Returns:
            The sums: they need no run of their own.
        """
        sums: set[Value] = set()
        for value in reductions:
            largest = _softmax_maximum(value)
            if largest is not None and largest in reductions and largest not in self._online:
                self._online[largest] = value
                sums.add(value)
        return sums

    def _group(self, value: Value) -> int:
        """How many numbers of a tile an online softmax takes together: those that a thread loads at once."""
        axis, loads = self._axis, [v for v in walk(value.args[0]) if v.op == "load"]
        varying = [v for v in loads if not v.symbols.isdisjoint(var.symbol for var in axis.loops)]
        steps = [stride(v.data.index, axis.loops[-1].symbol) for v in varying]
        if not varying or any(s is None or s.value != 1 for s in steps) or self._emitter.plan.axes[-1] is not axis:
            return 1
        widest = max(self._emitter.buffers[v.data.buffer].dtype.itemsize for v in varying)
        return max(1, min(16 // widest, axis.block // 32))

    @property
    def _online_function(self) -> str:
        dialect = self._emitter.dialect
        return f"tj.online_softmax{'' if dialect.accurate and not dialect.portable else '_fast'}"

    def _close_online(self, value: Value, largest: str, total: str) -> None:
        """The whole sum from the lanes' sums, each of which is relative to its lane's maximum."""
        emitter, top = self._emitter, self._emitter.value(value)
        exp = operation_text("exp", torch.float32, [f"({largest} - {top})"], emitter.dialect)
        # A lane that saw nothing has maximum minus infinity and total 0.
        lanes = f"tl.where({total} == 0.0, 0.0, {total} * {exp})"
        joined = self._assign(f"tl.sum({lanes}, {self._dim}){self._keep()}")
        text = f'tl.where({top} == float("-inf"), float("nan"), {joined})'
        emitter.define(self._online[value], self._assign(text))

    # ----------------------------------------------------------------------------------------------------- shared

    def _finish(self, value: Value, tile: str) -> None:
        kind, dtype = value.data, _working_dtype(value)
        text = whole_text({"any": "max", "all": "min"}.get(kind, kind), dtype, tile, self._dim) + self._keep()
        if value.dtype == torch.bool:
            text = f"{text} != 0"
        elif not is_float(dtype):
            text = f"{text}.to({type_name(value.dtype)})"  # Triton reduces narrow integers as int32
        self._emitter.define(value, self._assign(text))

    def _finish_position(self, value: Value, lanes: str, positions: str) -> None:
        """First the extremum, then the first place that has it: half the work of comparing pairs of values and places."""
        best = self._assign(whole_text(value.data[3:], _working_dtype(value), lanes, self._dim) + self._keep())
        # A NaN is larger and smaller than all others, and not equal to itself.
        nan = f" | ({lanes} != {lanes})" if is_float(_working_dtype(value)) else ""
        text = f"tl.min(tl.where(({lanes} == {best}){nan}, {positions}, {_NO_POSITION}), {self._dim})"
        self._emitter.define(value, self._assign(f"{text}{self._keep()}.to(tl.int64)"))

    def _keep(self) -> str:
        return "[:, None]" if self._dim == 1 else ""

    def _assign(self, text: str) -> str:
        name = self._emitter.fresh()
        self._emitter.head.append(f"{name} = {text}")
        return name

    def _count(self, dtype: torch.dtype) -> str:
        size = self._axis.size
        if size.value is not None:
            return literal(float(size.value), dtype)
        return f"({self._tile.size(size)}).to({type_name(dtype)})"


def _softmax_maximum(value: Value) -> Value | None:
    """m if the value is sum(exp(x - m)) with m = max(x), in float32."""
    if value.data != "sum" or value.dtype != torch.float32:
        return None
    operand = value.args[0]
    if operand.op != "exp" or operand.args[0].op != "sub":
        return None
    x, largest = operand.args[0].args
    matches = largest.op == "reduce" and largest.data == "max" and largest.args[0] is x
    return largest if matches else None


def literal_full(shape: list[int], value: float | int | bool, dtype: torch.dtype) -> str:
    """A tile of one number."""
    return literal(value, dtype).replace("tl.full([]", f"tl.full({shape}", 1)


def _welford_keys(operand: Value) -> tuple[Value, Value]:
    return tuple(Value("reduce", (operand,), operand.dtype, kind) for kind in ("welford_mean", "welford_m2"))  # type: ignore[return-value]


def _quotient(a: str, b: str, dtype: torch.dtype) -> str:
    return f"tl.div_rn({a}, {b})" if dtype == torch.float32 else f"{a} / {b}"
