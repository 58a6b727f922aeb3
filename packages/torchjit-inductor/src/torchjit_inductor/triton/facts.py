"""What the heuristics of tiles look at in a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchjit_core.expr import Expr, Symbol
from torchjit_inductor.estimates import estimate, points
from torchjit_inductor.indexing import stride, unit_steps
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar

__all__ = ["Facts"]


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
