"""Accumulators of reductions and scans: declaring, updating and folding them."""

from __future__ import annotations

from typing import final

import torch

from torchjit_inductor.cpp.emit import Emitter, combine_text, identity_text
from torchjit_inductor.cpp.text import C_TYPES, c_index
from torchjit_inductor.ir.values import Value

__all__ = ["Accumulators"]


@final
class Accumulators:
    """Writes the statements of reductions.

    In the inner shape a reduction has a scalar for the whole pass and, for one run of the vector loop, a vector that is
    folded into it. In the outer shape it has an array with a vector for each lane group of the tile.
    """

    def __init__(self, emitter: Emitter) -> None:
        self.e = emitter
        self.width, self.tile, self.position = emitter.plan.width, emitter.plan.tile, emitter.plan.position

    # ------------------------------------------------------------------ declarations
    def _identity(self, value: Value) -> str:
        dtype = value.args[0].dtype
        text, kind = identity_text(value.data, dtype), self.e.vector_type(dtype)
        return f"splat_mask<{kind}>({text})" if dtype == torch.bool else f"splat<{kind}>({text})"

    def declare_tile(self, value: Value) -> None:
        """An array of the outer shape."""
        array, kind, tile = self.e.fresh(), self.e.vector_type(value.dtype), self.tile
        self.e.accumulators[value] = array
        self.e.put(f"{kind} {array}[{tile}]; for (int k = 0; k < {tile}; k++) {array}[k] = {self._identity(value)};")

    def declare_scan(self, value: Value) -> None:
        """The running value of a scan."""
        if self.e.plan.shape == "outer":
            self.declare_tile(value)
            return
        name = self.e.fresh()
        self.e.accumulators[value] = name
        self.e.put(
            f"{C_TYPES[value.dtype]} {name} = {identity_text(value.data, value.dtype)};  // running {value.data}"
        )

    def declare_scalar(self, r: Value) -> None:
        """The scalar of a reduction of the inner shape."""
        name = self.e.fresh()
        self.e.accumulators[r] = name
        self.e.put(f"{C_TYPES[r.args[0].dtype]} {name}s = {identity_text(r.data, r.args[0].dtype)};  // {r.data}")
        if r.data.startswith("arg"):
            self.e.put(f"i64 {name}at = -1;")

    def declare_vector(self, r: Value, ways: int) -> None:
        """The vectors of a reduction of the inner shape: with several, one addition need not wait for the one before."""
        if r.data.startswith("arg"):
            return
        first = self._identity(r)
        array, first = ("", first) if ways == 1 else (f"[{ways}]", "{" + ", ".join([first] * ways) + "}")
        self.e.put(f"{self.e.vector_type(r.args[0].dtype)} {self.e.accumulators[r]}v{array} = {first};")

    def vector(self, r: Value, ways: int) -> str:
        """The vector of a reduction of the inner shape that this iteration adds to."""
        return self.e.accumulators[r] + ("v" if ways == 1 else "v[way]")

    # ------------------------------------------------------------------ updates
    def accumulate(self, r: Value, target: str) -> None:
        """Add the operand's lanes."""
        operand = self.e.vector_name(r.args[0])
        if r.data.startswith("arg"):
            self._accumulate_position(r, operand)
            return
        combined = combine_text(r.data, target, operand)
        if self.width == 1:
            self.e.put(f"{target} = {combined};")
            return
        lanes = self.e.fresh()
        # In a partial vector only the first n lanes count.
        self.e.put(f"auto {lanes} = {combined};")
        self.e.put(f"{target} = select_lanes<vi32>(full, n, {lanes}, {target});")

    def _accumulate_position(self, r: Value, operand: str) -> None:
        if self.position is None:
            raise ValueError("no position")
        name = self.e.accumulators[r]
        sign = ">" if r.data == "argmax" else "<"
        position = c_index(self.position)
        x = f"{operand}[0]"
        better = f"{x} {sign} {name}s"
        if r.args[0].dtype.is_floating_point:
            better = f"({x} != {x} ? {name}s == {name}s : {better})"
            same = f"({x} == {name}s || ({x} != {x} && {name}s != {name}s))"
        else:
            same = f"{x} == {name}s"
        test = f"{name}at < 0 || {better} || ({same} && {position} < {name}at)"
        self.e.put(f"if ({test}) {{ {name}s = {x}; {name}at = {position}; }}")

    # ------------------------------------------------------------------ results
    def fold(self, r: Value, ways: int) -> None:
        """Put the vectors' lanes into the scalar."""
        if r.data.startswith("arg"):
            return
        name = self.e.accumulators[r]
        vector = f"{name}v"
        if ways > 1:
            vector = f"{name}v[0]"
            self.e.put(f"for (int k = 1; k < {ways}; k++) {vector} = {combine_text(r.data, vector, f'{name}v[k]')};")
        if self.width == 1:
            folded = f"{vector}[0]"
        else:
            combine = combine_text(r.data, "a", "b")
            folded = f"fold_lanes({vector}, [](auto a, auto b) __attribute__((always_inline)) {{ return {combine}; }})"
        lane = f"({folded} != 0)" if r.args[0].dtype == torch.bool else folded
        self.e.put(f"{name}s = {combine_text(r.data, f'{name}s', lane)};")

    def finish(self, r: Value) -> None:
        """From now on the reduction has a name."""
        name = self.e.accumulators[r]
        self.e.names[r] = f"{name}at" if r.data.startswith("arg") else f"{name}s"
