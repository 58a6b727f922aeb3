"""What the scheduler hands to a code generator: buffers, and fused loop nests over them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import final

import attrs
import torch

from torchjit_core.comments import in_comment
from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.ir.dtypes import EIGHT_BIT_FLOATS, KERNEL_DTYPES, compute_dtype
from torchjit_inductor.ir.rules import check
from torchjit_inductor.ir.values import DOTS, IN_ORDER, INDEXED, PASSES, Value, substitute_all, walk

__all__ = [
    "Buffer",
    "LoopKernel",
    "LoopVar",
    "Origin",
    "Overlap",
    "Store",
    "element_count",
    "flat_index",
    "inner_symbols",
    "iterations",
    "reads_in_place",
    "rename_buffers",
    "rewrite_stores",
    "roots",
    "scans_itself",
]

_OVER_INNER = PASSES | IN_ORDER


@final
@attrs.frozen
class Buffer:
    """One allocation (or input) that kernels read and write, addressed by element offsets from its first element.

    Attributes:
        name: unique in the graph, a Python and C identifier.
        dtype: of the elements as stored.
        device: where it lives.
        sizes, strides: its layout as a tensor, in elements; kernels do not use them, the host program does.
        span: elements from the first to the last addressed one, inclusive.
    """

    name: str
    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]

    def verify(self) -> None:
        """Raises:
        InvalidIR: the name is none of a variable, or sizes and strides are not as many.
        """
        check(self.name.isidentifier(), self.name, "a buffer's name is an identifier")
        check(len(self.sizes) == len(self.strides), self.name, f"{len(self.sizes)} sizes, {len(self.strides)} strides")

    @cached_property
    def span(self) -> Expr:
        return _span(self.sizes, self.strides)


@functools.lru_cache(4096)  # the memory plan asks for each buffer again and again, and many are alike
def _span(sizes: tuple[Expr, ...], strides: tuple[Expr, ...]) -> Expr:
    total = constant(1)
    for size, stride in zip(sizes, strides, strict=True):
        if size.value == 0:
            return constant(0)
        total = total + (size - 1) * stride
    return total


@final
@attrs.frozen
class LoopVar:
    """A loop: `symbol` runs from 0 to `size - 1`. Where the size is a constant the symbol carries that bound.

    Loops of size 1 do not exist: lowering substitutes 0. A size may be 0 at run time, when it is symbolic
    or constant: the kernel then does nothing to stores inside that loop.
    """

    symbol: Symbol
    size: Expr

    def verify(self) -> None:
        """Raises:
        InvalidIR: the symbol's bounds are not those of the loop.
        """
        bounds, size = self.symbol.bounds, self.size.value
        check(bounds.lower == 0, self.symbol, f"a loop begins at 0, not at {bounds.lower}")
        known = size is None or bounds.upper == max(size - 1, 0)
        check(known, self.symbol, f"a loop over {size} ends before it, not at {bounds.upper}")


@final
@attrs.frozen
class Store:
    """Write `value` to `buffer[index]`.

    When neither the index nor the value's own level needs the inner loop, it is written once per outer iteration.

    A store with `positions` is a *scatter*: several iterations may write one element. With `set` the last one in
    row-major loop order should win (backends for which that is dear may let any win), with `add` all are added to what
    is there. Two iterations that differ in a loop variable that occurs in `index` write different elements: a
    backend may share such loops between threads without atomic operations.

    Attributes:
        index: over loop variables, size symbols and `binders`.
        outer: written once per outer iteration (value and index depend on no inner variable outside of reductions).
        mode: `set`, `add`, or `sum`: the element becomes the sum over all iterations that write it, those of one outer loop.
        positions: computed int64 values that `index` uses.
        binders: the symbols of `index` that stand for them, one each.
    """

    buffer: str
    index: Expr
    value: Value
    outer: bool = False
    mode: str = "set"
    positions: tuple[Value, ...] = ()
    binders: tuple[Symbol, ...] = ()

    @property
    def scatters(self) -> bool:
        """May several iterations write one element?"""
        return bool(self.positions) or self.mode != "set"

    def is_read_by(self, load: Value) -> bool:
        """Does a load of the buffer read the very element that its iteration writes?"""
        return self.index is load.data.index and not (self.scatters or load.data.binders or load.data.masked)

    def verify(self, kernel: str, inner: Set[Symbol]) -> None:
        """Check it as a store of a kernel.

        Args:
            kernel: its name.
            inner: symbols of its inner loops.

        Raises:
            InvalidIR: a rule is broken.
        """
        node = f"{kernel}: {self.buffer}"
        check(self.mode in ("set", "add", "sum"), node, f"unknown store mode {self.mode}")
        check(len(self.positions) == len(self.binders), node, "each position has a symbol")
        check(all(p.dtype == torch.int64 for p in self.positions), node, "a position is no int64")
        check(all(p.level <= self.value.level for p in self.positions), node, "a late position")
        if self.outer:
            check(not self.index.symbols & inner, node, "outer store in the inner loop")
            check(not inner_symbols(self.value) & inner, node, "value is not outer")
            check(not scans_itself(self.value), node, "a running value is not outer")
            check(not self.scatters, node, "outer scatter")


@final
@attrs.frozen
class Origin:
    """Which graph node a kernel came from, for comments: node name, op text, and the user's source line if known.

    They are written into generated code: nothing in them ends a comment.
    """

    node: str = attrs.field(converter=in_comment)
    op: str = attrs.field(converter=in_comment)
    source: str = attrs.field(default="", converter=in_comment)


@final
@attrs.frozen
class Overlap:
    """How a kernel overlaps in time with its neighbours in a stream; whatever it says, the kernel waits before it does anything else.

    Attributes:
        early: it may begin while the one before it runs.
        releases: the one after it may begin while it runs.
        fixed: buffers that it may read before it waits.
    """

    early: bool
    releases: bool
    fixed: frozenset[str] = frozenset()


@final
@attrs.frozen(eq=False, slots=False)
class LoopKernel:
    """A fused loop nest.

    Meaning: for every point of the outer loops (any order, all independent), for level L = 0, 1, ...: run the inner
    loops, evaluating the stores whose value has level L and the reductions of level L + 1, each over all inner
    iterations. A store with `outer=True` happens once per outer point, after its value is known.
    With no inner loops there are no reductions and the stores happen once per outer point.
    An inner loop of constant size 1 is kept if it is the only one of a kernel that has reductions.

    Loads that read a buffer which the same kernel writes read the same index that the same iteration writes, and do so
    before that write (in-place update); a backend may therefore load first and store last in each iteration.

    Attributes:
        name: unique in the graph, an identifier; it names the origins: `fused_add_relu_3`.
        device: of every buffer.
        outer: loops from outermost to innermost in memory order of the main output.
        inner: reduction loops, likewise.
        stores: in program order; no two write the same element.
        origins: for comments.
        overlap: with its neighbours; None: it begins when all before it has ended, and what follows when it has.
    """

    name: str
    device: torch.device
    outer: tuple[LoopVar, ...]
    inner: tuple[LoopVar, ...]
    stores: tuple[Store, ...]
    origins: tuple[Origin, ...] = ()
    overlap: Overlap | None = None

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """Every value, operands before users."""
        return tuple(walk(*roots(self.stores)))

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Names of the buffers that are loaded, in order of first use."""
        return tuple(dict.fromkeys(v.data.buffer for v in self.values if v.op == "load"))

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """Names of the buffers that are stored to."""
        return tuple(dict.fromkeys(s.buffer for s in self.stores))

    @cached_property
    def buffers(self) -> tuple[str, ...]:
        """Arguments of the kernel, in call order: what is read, then what is only written."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """Size symbols, in call order (after the buffers): what sizes and indices use and no loop defines."""
        found: set[Symbol] = set()
        for var in (*self.outer, *self.inner):
            found |= var.size.symbols
        for store in self.stores:
            found |= (store.index.symbols - set(store.binders)).union(*(v.symbols for v in roots((store,))))
        loops = {v.symbol for v in (*self.outer, *self.inner)}
        return tuple(sorted(found - loops, key=lambda s: s.sort_key))

    @property
    def _only_multiplied(self) -> set[str]:
        """Buffers with which the kernel does nothing but to load operands of a `dot`."""
        operands = {a for v in self.values if v.op == "reduce" and v.data in DOTS for a in v.args}
        others = {a for v in self.values if v.op != "reduce" or v.data not in DOTS for a in v.args}
        others |= set(roots(self.stores))
        read = {v.data.buffer for v in operands - others if v.op == "load"}
        return read - {v.data.buffer for v in others if v.op == "load"} - set(self.writes)

    def verify(self, buffers: Mapping[str, Buffer]) -> None:
        """Check the rules above.

        Raises:
            InvalidIR: one is broken; the message names the kernel.
        """
        loops = {v.symbol for v in (*self.outer, *self.inner)}
        check(len(loops) == len(self.outer) + len(self.inner), self.name, "a loop symbol occurs twice")
        self._verify_buffers(buffers)
        for value in self.values:
            if value.op in PASSES:
                check(value.args[0].level == value.level - 1, self.name, "levels are out of step")
            if value.op in _OVER_INNER:
                check(bool(self.inner), self.name, f"a {value.op} without inner loops")
            if value.op == "sort":
                check(len(self.inner) == 1, self.name, "the row of a sort is not one loop")
        inner = {v.symbol for v in self.inner}
        for store in self.stores:
            store.verify(self.name, inner)

    def _verify_buffers(self, buffers: Mapping[str, Buffer]) -> None:
        on_cpu = self.device.type == "cpu"
        loaded = set(self.reads) - set(self.writes) if on_cpu else self._only_multiplied
        for name in self.buffers:
            check(name in buffers, self.name, f"unknown buffer {name}")
            dtype = buffers[name].dtype
            known = dtype in KERNEL_DTYPES or (dtype in EIGHT_BIT_FLOATS and name in loaded)
            check(known, self.name, f"{name} has dtype {dtype}")
            check(buffers[name].device == self.device, self.name, f"{name} is on {buffers[name].device}")

    def verify_nodes(self, buffers: Mapping[str, Buffer]) -> None:
        """Check all of its nodes besides: for tests, since this looks at everything.

        Raises:
            InvalidIR: a rule is broken.
        """
        self.verify(buffers)
        for var in (*self.outer, *self.inner):
            var.verify()
        for value in self.values:
            value.verify()
            if value.op == "load":
                stored = buffers[value.data.buffer].dtype
                check(value.dtype == compute_dtype(stored), self.name, f"a load of {stored} is no {value.dtype}")
        for store in self.stores:
            stored = buffers[store.buffer].dtype
            check(store.value.dtype == compute_dtype(stored), self.name, f"{store.value.dtype} goes to {stored}")

    def __str__(self) -> str:
        names: dict[Value, str] = {}
        lines = [f"kernel {self.name}:  # {', '.join(o.node for o in self.origins)}"]
        lines += [f"  for {v.symbol} in {v.size}:" for v in self.outer]
        lines += [f"    reduce {v.symbol} in {v.size}:" for v in self.inner]
        for value in self.values:
            if value.op == "constant":
                names[value] = repr(value.data)
                continue
            names[value] = f"v{len(names)}"
            args = [names[a] for a in value.args]
            if value.op in INDEXED:
                args.insert(
                    0, f"{value.data.buffer}[{value.data.index}]" if value.op == "load" else str(value.data.index)
                )
            elif value.data is not None:
                args.append(str(value.data))
            lines.append(f"      {names[value]} = {value.op}({', '.join(args)})  # {value.dtype}, level {value.level}")
        for s in self.stores:
            where = " per outer point" if s.outer else ""
            at = "".join(f", {b} = {names[p]}" for b, p in zip(s.binders, s.positions, strict=True))
            lines.append(f"      {s.buffer}[{s.index}{at}] {'=' if s.mode == 'set' else '+='} {names[s.value]}{where}")
        return "\n".join(lines)


def roots(stores: Sequence[Store]) -> list[Value]:
    """What stores need: their values and positions."""
    return [v for s in stores for v in (s.value, *s.positions)]


def rewrite_stores(
    stores: Sequence[Store],
    mapping: Mapping[Symbol, Expr],
    replace: Callable[[Value], Value | None] | None = None,
) -> tuple[Store, ...]:
    """`values.substitute` on all the expressions of stores."""
    made = iter(substitute_all(roots(stores), mapping, replace))
    return tuple(
        attrs.evolve(
            s, index=s.index.substitute(mapping), value=next(made), positions=tuple(next(made) for _ in s.positions)
        )
        for s in stores
    )


def rename_buffers(stores: Sequence[Store], names: Mapping[str, str]) -> tuple[Store, ...]:
    """The stores over buffers of other names, which are given for all that they read and write."""

    def renamed(value: Value) -> Value | None:
        if value.op != "load":
            return None
        return Value("load", value.args, value.dtype, attrs.evolve(value.data, buffer=names[value.data.buffer]))

    return tuple(attrs.evolve(s, buffer=names[s.buffer]) for s in rewrite_stores(stores, {}, renamed))


def inner_symbols(value: Value) -> frozenset[Symbol]:
    """The symbols that a value depends on at its own level: what lies below a `reduce` does not count."""
    return _free(value, {})


def scans_itself(value: Value) -> bool:
    """Does the value change from one inner point to the next because of a scan or a sort, outside of reductions?"""
    stack, seen = [value], {value}
    while stack:
        node = stack.pop()
        if node.op in IN_ORDER:
            return True
        if node.op != "reduce":
            stack.extend(a for a in node.args if a not in seen)
            seen.update(node.args)
    return False


def _free(root: Value, memo: dict[Value, frozenset[Symbol]]) -> frozenset[Symbol]:
    for node in walk(root):
        if node.op == "reduce":
            # The reduction removes inner variables; its outer ones are added by whoever asks for `symbols`.
            memo[node] = frozenset()
            continue
        own = node.data.index.symbols.difference(node.data.binders) if node.op in INDEXED else frozenset()
        memo[node] = own.union(*(memo[a] for a in node.args))
    return memo[root]


def element_count(sizes: Iterable[Expr]) -> Expr:
    """The product."""
    return math.prod(sizes, start=constant(1))


def iterations(loops: Iterable[LoopVar]) -> Expr:
    """How many points loops have together."""
    return element_count(v.size for v in loops)


def flat_index(loops: Iterable[LoopVar]) -> Expr:
    """The position along loops that are walked as one: how many points come before this one."""
    total = constant(0)
    for var in loops:
        total = total * var.size + as_expr(var.symbol)
    return total


def reads_in_place(values: Iterable[Value], stores: Mapping[str, Store], inner: Set[Symbol]) -> bool:
    """Does every iteration read what these stores write, if at all, only where it writes it, and before?

    Args:
        stores: by buffer.
        inner: symbols of the inner loops: other than once for all of these, nothing may be written that is read.
    """
    for value in values:
        store = stores.get(value.data.buffer) if value.op == "load" else None
        if store is not None and not store.is_read_by(value):
            return False
        if store is not None and inner and not (store.outer and not (value.data.index.symbols & inner)):
            return False
    return True
