"""Reductions of much into little: first by many programs into scratch memory, then by few into the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs
import torch

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.indexing import stride
from torchjit_inductor.ir import values as ir
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Store, element_count
from torchjit_inductor.ir.values import Value

__all__ = ["Scratch", "split"]

_PROGRAMS = 4 * 132  # enough to fill the GPU
_SMALLEST = 4096  # elements that are worth a program of their own
_KINDS = frozenset(("sum", "prod", "max", "min", "any", "all", "welford_mean", "welford_m2"))


@final
@attrs.frozen
class Scratch:
    """Memory between the stages."""

    buffer: Buffer

    def allocate(self) -> torch.Tensor:
        """A tensor of it, on the current stream."""
        sizes = [s.evaluate({}) for s in self.buffer.sizes]
        return torch.empty(sizes, dtype=self.buffer.dtype, device=self.buffer.device)


def split(
    kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]
) -> tuple[tuple[LoopKernel, ...], tuple[Scratch, ...]]:
    """The stages of a kernel: itself, or two with scratch memory between them where that fills the GPU better.

    Args:
        kernel: with merged loops.
        buffers: of the graph.
        hints: typical values of the size symbols.
    """
    chunks = _chunks(kernel)
    if chunks is None:
        return (kernel,), ()
    return _Split(kernel, chunks).stages()


def _chunks(kernel: LoopKernel) -> int | None:
    """Into how many parts the first reduction loop is cut; None: not at all."""
    reductions = [v for v in kernel.values if v.op == "reduce"]
    if not reductions or any(v.level != 1 or v.data not in _KINDS for v in reductions):
        return None
    if any(not s.outer for s in kernel.stores) or kernel.symbols:
        return None
    outer = element_count(tuple(v.size for v in kernel.outer)).value
    inner = element_count(tuple(v.size for v in kernel.inner)).value
    first = kernel.inner[0].size.value
    if outer is None or inner is None or first is None:
        return None
    # In a kernel over columns one program holds a row of them.
    along = kernel.outer[-1] if kernel.outer else None
    columns = along is not None and any(
        _step(v.data.index, along.symbol) == 1 for v in kernel.values if v.op == "load" and _reads_inner(v, kernel)
    )
    programs = max(1, outer // 64) if columns else outer
    if programs >= _PROGRAMS // 2 or inner * (64 if columns else 1) < 2 * _SMALLEST:
        return None
    wanted = min(_PROGRAMS // programs, inner * (64 if columns else 1) // _SMALLEST, first)
    for chunks in range(wanted, max(wanted // 2, 1), -1):
        if first % chunks == 0:
            return chunks
    return None if wanted < 2 else _uneven(reductions, wanted)


def _uneven(reductions: list[Value], wanted: int) -> int | None:
    """Parts of different lengths have masks; a mean needs parts of one length."""
    return None if any(v.data.startswith("welford") for v in reductions) else wanted


def _reads_inner(value: Value, kernel: LoopKernel) -> bool:
    return any(v.symbol in value.symbols for v in kernel.inner)


def _step(index: Expr, symbol: Symbol) -> int | None:
    found = stride(index, symbol)
    return None if found is None else found.value


class _Split:
    def __init__(self, kernel: LoopKernel, chunks: int) -> None:
        self.kernel = kernel
        first = kernel.inner[0]
        total = first.size.value or 0
        self.length = -(-total // chunks)
        self.chunks = -(-total // self.length)
        self.part = LoopVar(Symbol("part", 0, self.chunks - 1), constant(self.chunks))
        self.rest = LoopVar(Symbol(first.symbol.name, 0, self.length - 1), constant(self.length))
        self.position = as_expr(self.part.symbol) * self.length + as_expr(self.rest.symbol)
        self.even = total == self.length * self.chunks
        self.inside = ir.apply("lt", ir.index_value(self.position), ir.constant(total, torch.int64))
        found = [v for v in kernel.values if v.op == "reduce"]
        means = [_mean(v) for v in found if v.data == "welford_m2"]
        self.reductions = list(dict.fromkeys((*found, *means)))

    def stages(self) -> tuple[tuple[LoopKernel, ...], tuple[Scratch, ...]]:
        kernel = self.kernel
        scratch = [self._scratch(n, v) for n, v in enumerate(self.reductions)]
        offset = self._offset()
        partial = tuple(
            Store(s.buffer.name, offset, self._first(v), outer=True)
            for s, v in zip(scratch, self.reductions, strict=True)
        )
        inner = (self.rest, *kernel.inner[1:])
        first = attrs.evolve(
            kernel, name=f"{_stem(kernel.name)}_partial", outer=(self.part, *kernel.outer), inner=inner, stores=partial
        )
        loads = {v: ir.load(s.buffer.name, offset, v.dtype) for v, s in zip(self.reductions, scratch, strict=True)}
        replaced = {v: self._second(v, loads) for v in self.reductions}
        stores = tuple(attrs.evolve(s, value=_replace(s.value, replaced)) for s in kernel.stores)
        second = attrs.evolve(kernel, name=f"{_stem(kernel.name)}_join", inner=(self.part,), stores=stores)
        return (first, second), tuple(scratch)

    def _scratch(self, number: int, value: Value) -> Scratch:
        sizes = (self.part.size, *(v.size for v in self.kernel.outer))
        strides = tuple(element_count(sizes[n + 1 :]) for n in range(len(sizes)))
        return Scratch(Buffer(f"scratch{number}", value.dtype, self.kernel.device, sizes, strides))

    def _offset(self) -> Expr:
        """Where a part's result lies: part by part, within it like the outer loops."""
        total = as_expr(self.part.symbol)
        for var in self.kernel.outer:
            total = total * var.size + as_expr(var.symbol)
        return total

    def _first(self, value: Value) -> Value:
        """The reduction of one part."""
        old = self.kernel.inner[0].symbol
        operand = ir.substitute(value.args[0], {old: self.position}, None if self.even else self._mask)
        if not self.even:
            operand = ir.where(self.inside, operand, _identity(value))
        return ir.reduce(value.data, operand)

    def _mask(self, node: Value) -> Value | None:
        if node.op != "load" or self.rest.symbol not in node.symbols:
            return None
        data, mask = node.data, self.inside
        if data.masked:
            mask = ir.apply("and", node.args[-1], mask)
        positions = node.args[: len(data.binders)]
        return Value("load", (*positions, mask), node.dtype, attrs.evolve(data, masked=True))

    def _second(self, value: Value, loads: Mapping[Value, Value]) -> Value:
        """The whole reduction from the parts' results."""
        if value.data == "welford_mean":
            return ir.reduce("welford_mean", loads[value])  # the parts are of one length
        if value.data != "welford_m2":
            return ir.reduce(value.data, loads[value])
        # Within the parts, and between them: length * sum((mean of part - mean)**2).
        count = element_count((self.rest.size, *(v.size for v in self.kernel.inner[1:]))).value or 1
        between = ir.apply("mul", ir.reduce("welford_m2", loads[_mean(value)]), ir.constant(float(count), value.dtype))
        return ir.apply("add", ir.reduce("sum", loads[value]), between)


def _mean(m2: Value) -> Value:
    """The mean that belongs to a sum of squared distances."""
    return ir.reduce("welford_mean", m2.args[0])


def _stem(name: str) -> str:
    return name.rstrip("0123456789").rstrip("_") or "kernel"


def _identity(value: Value) -> Value:
    dtype = value.args[0].dtype
    if value.data in ("max", "min"):
        low = value.data == "max"
        if dtype.is_floating_point:
            return ir.constant(float("-inf") if low else float("inf"), dtype)
        limits = torch.iinfo(dtype)
        return ir.constant(limits.min if low else limits.max, dtype)
    return ir.constant({"sum": 0, "prod": 1, "any": False, "all": True}[value.data], dtype)


def _replace(root: Value, replaced: Mapping[Value, Value]) -> Value:
    """`root` with its reductions replaced."""
    memo: dict[Value, Value] = {}
    for node in ir.walk(root):
        if node in replaced:
            memo[node] = replaced[node]
        else:
            args = tuple(memo[a] for a in node.args)
            memo[node] = node if args == node.args else Value(node.op, args, node.dtype, node.data)
    return memo[root]
