"""What the heuristics of tiles look at in a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchjit_core.expr import Expr, Symbol
from torchjit_inductor.estimates import estimate, points
from torchjit_inductor.indexing import stride, unit_steps
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar

__all__ = ["MULTIPROCESSORS", "Facts", "power_of_two"]

MULTIPROCESSORS = 132
_LONG = frozenset(
    (
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "tanh",
        "sigmoid",
        "erf",
        "erfc",
        "pow",
        "sin",
        "cos",
        "tan",
    )
)
"""Functions that take a dozen instructions and more where results are as exact as those of eager."""


def power_of_two(at_least: int) -> int:
    """The smallest power of two that is not below `at_least`, and 1 at least."""
    return 1 << max(at_least - 1, 0).bit_length()


class Facts:
    """Loads, sizes and strides of a kernel, by the hints.

    Args:
        kernel: see `digits.merged`.
        buffers: of the graph.
        hints: typical values of the size symbols.
    """

    def __init__(self, kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> None:
        self.kernel, self.buffers = kernel, buffers
        self.hints = hints
        self.loads = [v for v in kernel.values if v.op == "load"]
        self.loop_symbols = {v.symbol for v in (*kernel.outer, *kernel.inner)}
        self.itemsize = self._itemsize()
        inside = [buffers[s.buffer].dtype.itemsize for s in kernel.stores if not s.outer]
        self.narrow = bool(inside) and max(inside) == 1
        self.searches = any(v.op == "reduce" and v.data in ("argmax", "argmin") for v in kernel.values)

    def _itemsize(self) -> int:
        """Bytes per element of the widest tensor that is walked along the last loop."""
        last = (self.kernel.inner or self.kernel.outer)[-1:]
        walked = {s.symbol for s in last}
        names = [v.data.buffer for v in self.loads if v.symbols & walked]
        names += [s.buffer for s in self.kernel.stores if s.index.symbols & walked]
        return max((self.buffers[name].dtype.itemsize for name in names), default=4)

    def count(self, loops: Sequence[LoopVar]) -> int:
        """Iterations, by the hints; a symbol without one counts as 1024."""
        return points(loops, self.hints, 1024)

    def works(self, *loops: LoopVar) -> bool:
        """Does each element along these loops take two long functions or more, of numbers and results of four bytes, before any reduction?

        A program has then as much to compute as to wait for: what counts is that one computes while another waits.
        """
        along = {v.symbol for v in loops}
        values = [v for v in self.kernel.values if v.op in _LONG and v.level == 0 and v.dtype.itemsize == 4]
        return self.itemsize == 4 and sum(1 for v in values if along <= v.symbols) >= 2

    def unit_accesses(self, var: LoopVar, other: LoopVar | None = None) -> int:
        """How many loads and stores walk memory element by element along `var`; of those that vary along `other`, too, which do not along that."""
        indices = [v.data.index for v in self.loads] + [s.index for s in self.kernel.stores]
        return sum(
            1
            for i in indices
            if self.unit(i, var) and not (other is not None and (other.symbol not in i.symbols or self.unit(i, other)))
        )

    def unit(self, index: Expr, var: LoopVar) -> bool:
        """Does the index walk memory element by element along `var`?"""
        found = stride(index, var.symbol)
        if found is not None:
            return found.value == 1
        return index.symbols <= self.loop_symbols and unit_steps(index, var.symbol, estimate(var.size, self.hints))
