"""Reductions over a few elements that lie far apart, written out: a thread has all of them and no tile has a dimension for them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping

import attrs

from torchjit_core.expr import Expr, Symbol, constant
from torchjit_inductor.estimates import points
from torchjit_inductor.indexing import simplify
from torchjit_inductor.ir import values as ir
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, Store, iterations
from torchjit_inductor.ir.values import IN_ORDER, Value
from torchjit_inductor.triton.plan import walks_columns

__all__ = ["unrolled"]

_FEW = 8
"""Elements that a thread has of each of several columns."""
_VALUES = 128
"""That are written at most."""
_MANY = 2**20
"""Columns from which on."""

_JOINED: dict[str, str] = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}
_WELFORD = ("welford_mean", "welford_m2")

_Point = Mapping[Symbol, Expr]


def unrolled(kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> LoopKernel:
    """A reduction of few rows of many columns as a kernel without reductions, with a store for each row; any other kernel as it is.

    Args:
        kernel: with merged loops.
        buffers: of the graph.
        hints: typical values of the size symbols.
    """
    count = iterations(kernel.inner).value if kernel.inner else None
    if count is None or not 1 < count <= _FEW or not _can_be_written_out(kernel):
        return kernel
    if len(kernel.values) * count > _VALUES or points(kernel.outer, hints) < _MANY:
        return kernel
    if not walks_columns(kernel, buffers, hints):
        return kernel
    writer = _Writer(kernel)
    stores = tuple(s for store in kernel.stores for s in writer.stores(store))
    return attrs.evolve(kernel, inner=(), stores=stores)


def _can_be_written_out(kernel: LoopKernel) -> bool:
    """No order among the elements, and nothing stored where another element is still to be read."""
    if not set(kernel.reads).isdisjoint(kernel.writes) or any(s.scatters for s in kernel.stores):
        return False
    if any(v.op in IN_ORDER for v in kernel.values):
        return False
    return all(v.data in _JOINED or v.data in _WELFORD for v in kernel.values if v.op == "reduce")


class _Writer:
    """Writes values out.

    Attributes:
        points: of the inner loops, in order.
        wholes: what reductions have become.
    """

    def __init__(self, kernel: LoopKernel) -> None:
        self.sizes = {v.symbol: v.size for v in kernel.outer}
        ranges = [range(v.size.value or 0) for v in kernel.inner]
        self.points: list[_Point] = [
            {v.symbol: constant(n) for v, n in zip(kernel.inner, numbers, strict=True)}
            for numbers in itertools.product(*ranges)
        ]
        self.wholes: dict[Value, Value] = {}
        for value in kernel.values:
            if value.op == "reduce":
                self.wholes[value] = self._whole(value)

    def stores(self, store: Store) -> list[Store]:
        """One, or one for each inner point."""
        where = [self.points[0]] if store.outer else self.points
        return [
            attrs.evolve(
                store,
                index=simplify(store.index.substitute(point), self.sizes),
                value=self._at(store.value, point),
                outer=False,
            )
            for point in where
        ]

    def _at(self, value: Value, point: _Point) -> Value:
        """A value at an inner point."""
        memo: dict[Value, Value] = {}
        for node in ir.walk(value):
            if node.op == "reduce":
                memo[node] = self.wholes[node]
            else:
                made = Value(node.op, tuple(memo[a] for a in node.args), node.dtype, node.data)
                memo[node] = ir.substitute(made, point)
        return memo[value]

    def _whole(self, value: Value) -> Value:
        """A reduction of what stands at all points."""
        elements = [self._at(value.args[0], point) for point in self.points]
        if value.data in _JOINED:
            return _joined(_JOINED[value.data], elements)
        count = ir.constant(float(len(elements)), value.dtype)
        mean = _joined("add", elements) / count
        if value.data == "welford_mean":
            return mean
        return _joined("add", [(e - mean) * (e - mean) for e in elements])


def _joined(op: str, elements: list[Value]) -> Value:
    """In pairs, so that sums round little."""
    while len(elements) > 1:
        pairs = [elements[n : n + 2] for n in range(0, len(elements), 2)]
        join: Callable[[Value, Value], Value] = functools.partial(ir.apply, op)
        elements = [functools.reduce(join, pair) for pair in pairs]
    return elements[0]
