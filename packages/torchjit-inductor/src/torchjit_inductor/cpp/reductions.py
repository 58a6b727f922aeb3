"""Accumulators of reductions and scans: declaring, updating and folding them."""

from __future__ import annotations

from typing import final

import attrs
import torch

from torchjit_inductor.cpp.emit import Emitter, combine_text
from torchjit_inductor.cpp.plan import UNROLLED
from torchjit_inductor.cpp.text import C_TYPES, c_constant, c_index
from torchjit_inductor.ir.operations import identity
from torchjit_inductor.ir.values import Value

__all__ = ["Accumulators", "Shared"]


@final
@attrs.frozen
class Shared:
    """An array for all units of a reduction that is split.

    Attributes:
        element: its C type.
        of_parts: does it have an element for each part (of each unit and vector of the tile), or one for all of them?
    """

    name: str
    element: str
    of_parts: bool


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
        text, kind = c_constant(identity(value.data, dtype), dtype), self.e.vector_type(dtype)
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
        """A statement for all vectors of a tile. An array whose indices are not all constants is not kept in registers."""
        unrolled = "WRITTEN_OUT " if 1 < self.tile <= UNROLLED else ""
        return f"{unrolled}for (int k = 0; k < {self.tile}; k++) {statement};"

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
            f"{C_TYPES[value.dtype]} {name} = {c_constant(identity(value.data, value.dtype), value.dtype)};  // running {value.data}"
        )

    def declare_scalar(self, r: Value) -> None:
        """The scalar of a reduction of the inner shape."""
        name = self.e.fresh()
        self.e.accumulators[r] = name
        dtype = torch.float64 if r in self.e.plan.long_sums else r.args[0].dtype
        self.e.put(f"{C_TYPES[dtype]} {name}s = {c_constant(identity(r.data, dtype), dtype)};  // {r.data}")
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

    # ------------------------------------------------------------------ parts of a split reduction
    def shared(self, r: Value) -> list[Shared]:
        """The arrays in which the parts of a reduction meet: its accumulators', and the result's."""
        name, outer = self.e.accumulators[r], self.e.plan.shape == "outer"
        dtype = r.args[0].dtype
        wide = torch.float64 if r in self.e.plan.long_sums else r.dtype if outer else dtype
        types = self.e.vector_type if outer else C_TYPES.__getitem__
        arrays = [Shared(f"{name}all", types(r.dtype), False)]
        if _is_position(r):
            arrays.append(Shared(f"{name}bests", types(dtype), True))
        return [*arrays, Shared(f"{name}parts", types(r.dtype if _is_position(r) else wide), True)]

    def leave(self, r: Value) -> None:
        """At the end of a part its accumulators go to memory."""
        name, long = self.e.accumulators[r], r in self.e.plan.long_sums
        if self.e.plan.shape == "inner":
            self.e.put(f"args.{name}parts[unit] = {name}{'at' if _is_position(r) else 's'};")
            if _is_position(r):
                self.e.put(f"args.{name}bests[unit] = {name}s;")
            return
        self.e.put(self._each(f"args.{name}parts[unit * {self.tile} + k] = {name}{'all' if long else ''}[k]"))
        if _is_position(r):
            self.e.put(self._each(f"args.{name}bests[unit * {self.tile} + k] = {name}best[k]"))

    def combine_parts(self, r: Value, parts: int) -> list[str]:
        """Statements that make the result of unit `u` from its parts, in order."""
        name, outer = self.e.accumulators[r], self.e.plan.shape == "outer"
        tile = self.tile if outer else 1
        most, array = _most(r), f"args.{name}parts"
        first, place = f"(u * {parts}) * {tile} + k", f"(u * {parts} + part) * {tile} + k"
        over_parts = f"for (i64 part = 1; part < {parts}; part++)"
        if _is_position(r):
            bests = f"args.{name}bests"
            lanes = "Full(), W, " if outer else ""
            better = f"keep_better<{most}>({lanes}{bests}[{place}], {array}[{place}], best, at);"
            # The part may have no elements.
            test = "" if outer else f"if ({array}[{place}] >= 0) "
            steps = f"auto best = {bests}[{first}]; auto at = {array}[{first}]; {over_parts} {test}{better} args.{name}all[u * {tile} + k] = at;"
        else:
            combined = combine_text(r.data, "sum", f"{array}[{place}]")
            kind = self.e.vector_type(r.dtype) if outer else C_TYPES[r.dtype]
            result = "sum" if r not in self.e.plan.long_sums else f"convert<{kind}>(sum)" if outer else f"({kind})sum"
            steps = f"auto sum = {array}[{first}]; {over_parts} sum = {combined}; args.{name}all[u * {tile} + k] = {result};"
        return [f"for (int k = 0; k < {tile}; k++) {{ {steps} }}"]

    def recall(self, r: Value, parts: int) -> None:
        """In a later function, of so many parts for each unit: the result has a name again."""
        name, whole = self.e.accumulators[r], "unit" if parts == 1 else f"unit / {parts}"
        if self.e.plan.shape == "inner":
            self.e.put(f"const {C_TYPES[r.dtype]} {name} = args.{name}all[{whole}];")
            self.e.names[r] = name
        else:
            # In registers, where the tile is small: the compiler could not tell that no store changes the array.
            self.e.put(f"{self.e.vector_type(r.dtype)} {name}[{self.tile}];")
            self.e.put(self._each(f"{name}[k] = args.{name}all[{whole} * {self.tile} + k]"))

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
