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

    Long sums of float32 are float32 for a bounded number of elements only, and these parts are added up in float64. Otherwise
    the error of a sum grows with its length: by 4 % in columns of four million equal elements.
    """

    def __init__(self, emitter: Emitter) -> None:
        self.e = emitter
        self.width, self.tile, self.position = emitter.plan.width, emitter.plan.tile, emitter.plan.position
        self.positions = emitter.plan.positions

    # ------------------------------------------------------------------ declarations
    def _identity(self, value: Value) -> str:
        dtype = value.args[0].dtype
        text, kind = identity_text(value.data, dtype), self.e.vector_type(dtype)
        return f"splat_mask<{kind}>({text})" if dtype == torch.bool else f"splat<{kind}>({text})"

    def declare_tile(self, value: Value) -> None:
        """An array of the outer shape."""
        array, kind, tile = self.e.fresh(), self.e.vector_type(value.dtype), self.tile
        self.e.accumulators[value] = array
        if _is_position(value):
            self.e.put(f"{kind} {array}[{tile}] = {{}};  // {value.data}")
            kind, array = self.e.vector_type(value.args[0].dtype), f"{array}best"
        if value in self.e.plan.long_sums:
            self.e.put(f"{kind} {array}[{tile}]; {self.e.vector_type(torch.float64)} {array}all[{tile}] = {{}};")
            return
        self.e.put(f"{kind} {array}[{tile}]; {self._each(f'{array}[k] = {self._identity(value)}')}")

    def _each(self, statement: str) -> str:
        """A statement for all vectors of a tile."""
        return f"for (int k = 0; k < {self.tile}; k++) {statement};"

    def begin_rows(self, value: Value) -> None:
        """A long sum of the outer shape starts a run of rows from zero."""
        self.e.put(self._each(f"{self.e.accumulators[value]}[k] = {self._identity(value)}"))

    def end_rows(self, value: Value) -> None:
        """The run's sum is added to that of all rows."""
        array, wide = self.e.accumulators[value], self.e.vector_type(torch.float64)
        self.e.put(self._each(f"{array}all[k] += convert<{wide}>({array}[k])"))

    def end_tile(self, value: Value) -> None:
        """The sum of all rows becomes the result of a long sum."""
        array = self.e.accumulators[value]
        self.e.put(self._each(f"{array}[k] = convert<{self.e.vector_type(value.dtype)}>({array}all[k])"))

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
        dtype = torch.float64 if r in self.e.plan.long_sums else r.args[0].dtype
        self.e.put(f"{C_TYPES[dtype]} {name}s = {identity_text(r.data, dtype)};  // {r.data}")
        if _is_position(r):
            self.e.put(f"i64 {name}at = -1;")

    def declare_vector(self, r: Value, ways: int, begin: str) -> None:
        """The vectors of a reduction of the inner shape: with several, one addition need not wait for the one before.

        Args:
            begin: of the vector loop.
        """
        if _is_position(r) and self.width == 1:
            return
        name = self.e.accumulators[r]
        vectors = [(self.e.vector_type(r.args[0].dtype), f"{name}v", self._identity(r))]
        if _is_position(r):
            # A lane that no element beats has the first position: if it wins in the end, all elements are alike.
            vectors.append((self.positions, f"{name}w", self._place(begin)))
        for kind, vector, first in vectors:
            array, values = ("", first) if ways == 1 else (f"[{ways}]", "{" + ", ".join([first] * ways) + "}")
            self.e.put(f"{kind} {vector}{array} = {values};")

    def _place(self, vector_variable: str = "") -> str:
        """The position of an inner point, in all lanes; of another one along the vector loop if that is given."""
        if self.position is None:
            raise ValueError("no position")
        renamed = {self.e.vector: vector_variable} if vector_variable else {}
        return f"splat<{self.positions}>(({self.positions[1:]})({c_index(self.position, renamed)}))"

    def vector(self, r: Value, ways: int) -> str:
        """The vector of a reduction of the inner shape that this iteration adds to."""
        return self.e.accumulators[r] + ("v" if ways == 1 else "v[way]")

    # ------------------------------------------------------------------ updates
    def accumulate(self, r: Value, target: str) -> None:
        """Add the operand's lanes."""
        operand = self.e.vector_name(r.args[0])
        if _is_position(r):
            self._accumulate_position(r, target, operand)
            return
        combined = combine_text(r.data, target, operand)
        if self.width == 1:
            self.e.put(f"{target} = {combined};")
            return
        lanes = self.e.fresh()
        # In a partial vector only the first n lanes count.
        self.e.put(f"auto {lanes} = {combined};")
        self.e.put(f"{target} = select_lanes<vi32>(full, n, {lanes}, {target});")

    def _accumulate_position(self, r: Value, target: str, operand: str) -> None:
        if self.e.plan.shape == "outer":
            best = target.replace(self.e.accumulators[r], f"{self.e.accumulators[r]}best", 1)
            self.e.put(f"keep_better<{_most(r)}>(full, n, {operand}, {self._place()}, {best}, {target});")
            return
        name = self.e.accumulators[r]
        if self.width > 1:
            at = target.removeprefix(f"{name}v")
            lanes = f"{self._place()} + iota<{self.positions}>()"
            self.e.put(f"keep_better<{_most(r)}>(full, n, {operand}, {lanes}, {target}, {name}w{at});")
            return
        if self.position is None:
            raise ValueError("no position")
        scalar = C_TYPES[r.args[0].dtype]
        self.e.put(f"keep_better<{_most(r)}, {scalar}>({operand}[0], {c_index(self.position)}, {name}s, {name}at);")

    # ------------------------------------------------------------------ results
    def fold(self, r: Value, ways: int) -> None:
        """Put the vectors' lanes into the scalar."""
        name = self.e.accumulators[r]
        if _is_position(r):
            for k in range(ways if self.width > 1 else 0):
                at = "" if ways == 1 else f"[{k}]"
                self.e.put(f"fold_better<{_most(r)}>({name}v{at}, {name}w{at}, {name}s, {name}at);")
            return
        vector = f"{name}v"
        if ways > 1:
            vector = f"{name}v[0]"
            self.e.put(f"for (int k = 1; k < {ways}; k++) {vector} = {combine_text(r.data, vector, f'{name}v[k]')};")
        if self.width == 1:
            folded = f"{vector}[0]"
        else:
            if r in self.e.plan.long_sums:
                vector = f"convert<{self.e.vector_type(torch.float64)}>({vector})"
            combine = combine_text(r.data, "a", "b")
            folded = f"fold_lanes({vector}, [](auto a, auto b) __attribute__((always_inline)) {{ return {combine}; }})"
        lane = f"({folded} != 0)" if r.args[0].dtype == torch.bool else folded
        self.e.put(f"{name}s = {combine_text(r.data, f'{name}s', lane)};")

    def finish(self, r: Value) -> None:
        """From now on the reduction has a name."""
        name = self.e.accumulators[r]
        self.e.names[r] = f"{name}at" if _is_position(r) else f"{name}s"
        if r in self.e.plan.long_sums:
            self.e.put(f"const {C_TYPES[r.dtype]} {name} = ({C_TYPES[r.dtype]}){name}s;")
            self.e.names[r] = name


def _is_position(r: Value) -> bool:
    return r.op == "reduce" and r.data in ("argmax", "argmin")


def _most(r: Value) -> str:
    return "true" if r.data == "argmax" else "false"
