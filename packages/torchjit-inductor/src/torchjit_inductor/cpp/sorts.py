"""Rows that are sorted: their memory, and the statements that fill and sort them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from torchjit_inductor.cpp.emit import Emitter, vector_loop
from torchjit_inductor.cpp.sort_text import is_wide, low_text, word_text
from torchjit_inductor.cpp.text import c_index
from torchjit_inductor.ir.kernel import LoopKernel
from torchjit_inductor.ir.values import Value

__all__ = ["Sorts", "asks_for_memory"]

ON_STACK = 1024
"""Longer rows, and rows whose length is not known, get memory for each call of the range function."""


def asks_for_memory(kernel: LoopKernel) -> bool:
    """Does the kernel sort rows that do not fit on the stack?"""
    if not any(v.op == "sort" for v in kernel.values):
        return False
    size = kernel.inner[-1].size.value
    return size is None or size > ON_STACK


@final
class Sorts:
    """Writes the statements of sorts.

    Elements and positions that are sorted alike share a row. A row has two arrays, between which elements move; where they
    have 64 bits, two more for what decides between equal ones.
    """

    def __init__(self, emitter: Emitter) -> None:
        self.e = emitter
        values = [v for v in emitter.plan.kernel.values if v.op == "sort"]
        keys = dict.fromkeys((v.args[0], v.data.descending) for v in values)
        self.rows = {key: f"row{k}" for k, key in enumerate(keys)}
        self.on_stack = not asks_for_memory(emitter.plan.kernel)

    # ------------------------------------------------------------------ memory
    def ask_for_memory(self) -> None:
        """At the beginning of the range function."""
        if not self.rows:
            return
        size = c_index(vector_loop(self.e.plan).size)
        self.e.put(f"const i64 length = {size}; enum {{ part = {size} + SORT_SLACK }};" if self.on_stack
                   else f"const i64 length = {size}, part = length + SORT_SLACK;")  # fmt: skip
        for (operand, descending), row in self.rows.items():
            wide = is_wide(operand.dtype)
            comment = f"  // sorted {'down' if descending else 'up'}"
            if self.on_stack:
                self.e.put(f"i64 {row}[{4 if wide else 2} * part] __attribute__((aligned(64)));{comment}")
            else:
                self.e.put(f"i64* const {row} = sort_memory(length, part, {str(wide).lower()}, fault);{comment}")
        if not self.on_stack:
            self.e.open(f"if ({' && '.join(self.rows.values())})")

    def give_back(self) -> None:
        """At its end."""
        if self.rows and not self.on_stack:
            self.e.close()
            self.e.put(" ".join(f"tj_free({row});" for row in self.rows.values()))

    # ------------------------------------------------------------------ statements
    def keep(self, sorts: Sequence[Value]) -> None:
        """In the vector loop: the lanes of what is sorted go to the row."""
        at = self.e.vector.name
        for operand, descending in dict.fromkeys((s.args[0], s.data.descending) for s in sorts):
            row, lanes = self.rows[operand, descending], self.e.vector_name(operand)
            word, low = word_text(lanes, operand.dtype, descending), low_text(lanes, operand.dtype, at)
            if is_wide(operand.dtype):
                self.e.put(f"st(full, {row} + {at}, {word}, n); st(full, {row} + 2 * part + {at}, {low}, n);")
            else:
                self.e.put(f"st(full, {row} + {at}, convert<vi64>({word}) << 32 | {low}, n);")

    def finish(self, value: Value) -> None:
        """Behind the loop: sort the row, once."""
        key = value.args[0], value.data.descending
        if key in self.e.rows:
            return
        row, wide = self.rows[key], str(is_wide(value.args[0].dtype)).lower()
        self.e.put(f"const i64* const {row}sorted = sort_row<{wide}>({row}, length, part);")
        self.e.rows[key] = f"{row}sorted", "part"
