"""The builder: lowerings call it to put tensors into memory, to reduce, and to call aten."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, final

import attrs
import torch

from torchjit_core.expr import Expr, Symbol, as_expr, constant
from torchjit_inductor.estimates import estimate
from torchjit_inductor.indexing import loop_symbol, simplify, written_length
from torchjit_inductor.ir.dtypes import KERNEL_DTYPES
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, LoopVar, Origin, Store, inner_symbols
from torchjit_inductor.ir.values import IN_ORDER, Value, substitute_all, walk
from torchjit_inductor.lowering.one_hot import known_sums
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import (
    Index,
    Lazy,
    Lowered,
    Metas,
    Point,
    Strided,
    TensorMeta,
    contiguous_strides,
)
from torchjit_inductor.steps import ExternStep, KernelStep, Step, TensorRef
from torchjit_torch.operators import aliases_operand

__all__ = ["Builder", "Output", "ReductionBody"]

HEAVY_OPS = frozenset(
    [
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
        "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "sigmoid", "pow", "atan2", "hypot",
        "remainder", "fmod",
    ]
)  # fmt: skip
RESERVED = frozenset(
    [
        "torch", "empty_strided", "as_strided", "empty_cuda", "empty_cpu", "seen_as", "conformed", "no_grad", "is_grad",
        "inf", "nan", "grad", "device", "call", "inputs", "exchange_device", "restore_device", "_", "max", "min",
        "constant",
    ]
)  # fmt: skip
"""Names that the host program uses itself; buffers get others."""
_MADE_BY_HOST = re.compile(r"__(at|\d+|view\d+)$")
"""Names that it makes from buffers' names, or for sizes and arguments."""
CHEAP = 3
"""Operations that cost a GPU nothing beside the reading of an element."""
MAX_INLINED_NODES = 64
MAX_INLINED_LOADS = 12
MAX_INLINED_INDEX = 64
"""Operands of an index, written out. Swin and MaxViT get to 26; each further block over windows of windows makes it 2.5 times as long."""


@final
@attrs.frozen
class Output:
    """A result of `Builder.reduction`: its layout, and where its elements lie.

    Attributes:
        meta: of the result.
        outer: one element per outer point (else one per outer and inner point).
        place: from the outer and inner index to the index into the result.
    """

    meta: TensorMeta
    outer: bool
    place: Callable[[Index, Index], Index]


ReductionBody: TypeAlias = Callable[[Callable[[Lowered, Index], Value], Index, Index], Sequence[Value]]
"""`(read, outer index, inner index) -> one value per output`; `read(tensor, index)` reads an operand."""


Savepoint: TypeAlias = "tuple[int, int]"
"""What a builder had collected at some time: how many steps, and which buffers."""


@final
class Builder:
    """Collects buffers and steps while a graph is lowered."""

    def __init__(self) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.steps: list[Step] = []
        self.origin = Origin("", "")
        # Nodes whose formulas the current node's operands hold: they end up in its kernels.
        self.operand_origins: tuple[Origin, ...] = ()
        # May the current node write to its first operand, and the inputs where that was done; memory made to be written.
        self.in_place = False
        self.overwritten: set[str] = set()
        self.products: dict[str, ExternStep] = {}
        self.own: set[str] = set()
        self._taken: set[str] = set(RESERVED)
        self._costs: dict[Lowered, Cost] = {}

    # ------------------------------------------------------------------ names and buffers
    def fresh(self, stem: str) -> str:
        """A name that is free, from a stem."""
        stem = "".join(c if c.isalnum() or c == "_" else "_" for c in stem) or "buf"
        if keyword.iskeyword(stem):
            stem += "_"
        if _MADE_BY_HOST.search(stem):
            stem = stem.replace("__", "_")
        name, n = stem, 1
        while name in self._taken:
            name = f"{stem}_{n}"
            n += 1
        self._taken.add(name)
        return name

    def reserve(self, name: str) -> None:
        """Keep a name (of a size symbol) from being given to a buffer."""
        self._taken.add(name)

    def buffer(self, stem: str, meta: TensorMeta) -> Strided:
        """A new buffer with the layout of `meta`; a dimension of stride 0 is stored once."""
        name = self.fresh(stem)
        self.buffers[name] = Buffer(name, meta.dtype, meta.device, meta.sizes, meta.strides)
        return Strided(name, meta.sizes, meta.strides, constant(0), meta.dtype, meta.device)

    # ------------------------------------------------------------------ into memory
    def may_overwrite(self, tensor: Lowered, meta: TensorMeta) -> Strided | None:
        """The current node's first operand, if the node may write its result over it; else None."""
        if not self.in_place or not isinstance(tensor, Strided):
            return None
        if tensor.dtype != meta.dtype or not tensor.same_layout(meta):
            return None
        if tensor.buffer not in self.own:
            self.overwritten.add(tensor.buffer)
        return tensor

    def materialize(self, tensor: Lowered, strides: Index | None = None, stem: str = "") -> Strided:
        """A tensor in memory: itself if it is there, else a kernel that computes it.

        Args:
            strides: wanted layout of what is computed (row-major by default).
        """
        if isinstance(tensor, Strided):
            return tensor
        if tensor.dtype not in KERNEL_DTYPES:
            raise NotLowered(f"dtype {tensor.dtype}")
        if isinstance(tensor, Lazy):
            if tensor.stored is None:
                tensor.stored = self._materialized(tensor, strides or tensor.layout, stem)
            return tensor.stored
        raise TypeError(f"unknown kind of tensor {type(tensor).__name__}")

    def laid_out(self, tensor: Lowered, strides: Index) -> Strided:
        """A tensor in memory with exactly these strides: a copy where it has others there."""
        place = self.materialize(tensor, strides)
        if place.same_layout(TensorMeta(place.sizes, strides, place.dtype, place.device)):
            return place
        return self.materialize(Lazy(place.sizes, place.dtype, place.device, place.value), strides)

    def _materialized(self, tensor: Lazy, strides: Index | None, stem: str) -> Strided:
        strides = contiguous_strides(tensor.sizes) if strides is None else strides
        kept = [k for k, s in enumerate(strides) if s.value != 0 or tensor.sizes[k].value == 1]
        if len(kept) < len(strides):
            if not _varies(tensor, kept):
                return self._materialize_expanded(tensor, strides, kept, stem)
            strides = contiguous_strides(tensor.sizes)
        meta = TensorMeta(tensor.sizes, strides, tensor.dtype, tensor.device)
        target = self.buffer(stem or self.origin.node, meta)
        self._store(tensor, target)
        return target

    def all_origins(self) -> tuple[Origin, ...]:
        """The current node and what its operands' formulas compute."""
        return tuple(dict.fromkeys((*self.operand_origins, self.origin)))

    def _materialize_expanded(self, tensor: Lowered, strides: Index, kept: list[int], stem: str) -> Strided:
        """Store one copy of the dimensions of stride 0."""
        small = Lazy(
            tuple(tensor.sizes[k] for k in kept),
            tensor.dtype,
            tensor.device,
            lambda p: tensor.value(p.at(_scatter(p.index, kept, len(strides)))),
        )
        small.origins = tensor.origins if isinstance(tensor, Lazy) else ()
        stored = self.materialize(small, tuple(strides[k] for k in kept), stem)
        return Strided(stored.buffer, tensor.sizes, strides, stored.offset, tensor.dtype, tensor.device)

    def _store(self, tensor: Lowered, target: Strided) -> None:
        loops, index = self._loops("x", tensor.sizes, target.strides)
        value = tensor.value(Point(index, {v.symbol: v.size for v in loops}))
        store = Store(target.buffer, target.address(index), value)
        origins = tensor.origins if isinstance(tensor, Lazy) and tensor.origins else self.all_origins()
        self._kernel(target.device, loops, (), (store,), origins)

    def store_into(self, tensor: Lowered, target: Strided) -> None:
        """Write a tensor over an existing view."""
        self._store(tensor, target)

    def scatter(
        self,
        target: Strided,
        sizes: Index,
        body: Callable[[Point], tuple[Expr, Value, Mapping[Symbol, Value]]],
        mode: str,
    ) -> None:
        """A kernel that writes to computed places of a buffer.

        Args:
            sizes: of its loops, in the order in which several writes to one element happen.
            body: from a point to the element's address, the value, and the positions that the address uses.
            mode: `set` or `add`.
        """
        loops, index = self._loops("x", sizes, None)
        place, value, computed = body(Point(index, {v.symbol: v.size for v in loops}))
        binders = tuple(s for s in computed if s in place.symbols)
        store = Store(
            target.buffer, place, value, mode=mode, positions=tuple(computed[s] for s in binders), binders=binders
        )
        self._kernel(target.device, loops, (), (store,), self.all_origins())

    def _loops(self, prefix: str, sizes: Index, strides: Index | None) -> tuple[tuple[LoopVar, ...], Index]:
        """Loops over `sizes`, from the largest stride to the smallest, and the index in the given order of dimensions.

        Dimensions of size 1 get no loop.
        """
        order = list(range(len(sizes)))
        if strides is not None:
            order.sort(key=lambda k: -_weight(strides[k]))
        index: list[Expr] = [constant(0)] * len(sizes)
        loops: list[LoopVar] = []
        for k in order:
            if sizes[k].value == 1:
                continue
            symbol = loop_symbol(prefix, len(loops), sizes[k])
            loops.append(LoopVar(symbol, sizes[k]))
            index[k] = as_expr(symbol)
        return tuple(loops), tuple(index)

    def _kernel(
        self,
        device: torch.device,
        outer: Sequence[LoopVar],
        inner: Sequence[LoopVar],
        stores: Sequence[Store],
        origins: tuple[Origin, ...],
    ) -> None:
        name = self.fresh(f"fused_{self.origin.op.split('.')[0]}")
        kernel = LoopKernel(name, device, tuple(outer), tuple(inner), tuple(stores), origins)
        self.steps.append(KernelStep(kernel))

    # ------------------------------------------------------------------ reductions
    def reduction(
        self,
        outer: Index,
        inner: Index,
        outputs: Sequence[Output],
        body: ReductionBody,
        *,
        outer_strides: Index | None = None,
        inner_strides: Index | None = None,
        targets: Sequence[Strided] = (),
    ) -> tuple[Strided, ...]:
        """One kernel with reductions over `inner`, and one result per output.

        Args:
            outer, inner: sizes of the independent and of the reduced dimensions.
            outputs: what is stored.
            body: the formulas; it applies `values.reduce` to values at (outer index, inner index).
            outer_strides, inner_strides: memory order of the main operand, to order the loops.
            targets: where the results go; new buffers by default.
        """
        outer_loops, outer_index = self._loops("x", outer, outer_strides)
        inner_loops, inner_index = self._loops("r", inner, inner_strides)
        if not inner_loops:
            # All reduced sizes are 1: one loop of one iteration keeps the meaning of `reduce`.
            inner_loops = (LoopVar(Symbol("r0", 0, 0), constant(1)),)
        loops = {v.symbol: v.size for v in (*outer_loops, *inner_loops)}
        values = body(lambda t, index: t.value(Point((), loops).at(index)), outer_index, inner_index)
        if len(inner_loops) == 1 and not any(output.outer for output in outputs) and _is_known(values, inner_loops[0]):
            # No sum is left: loops in the order of memory, as of a kernel without reductions.
            both = None if outer_strides is None or inner_strides is None else (*outer_strides, *inner_strides)
            outer_loops, index = self._loops("x", (*outer, *inner), both)
            outer_index, inner_index = index[: len(outer)], index[len(outer) :]
            along = next(v for v in outer_loops if any(v.symbol in i.symbols for i in inner_index))
            loops, inner_loops = {v.symbol: v.size for v in outer_loops}, ()
            values = body(lambda t, index: t.value(Point((), loops).at(index)), outer_index, inner_index)
            values = substitute_all(values, {}, known_sums(along))
        targets = targets or self._buffers(outputs)
        stores = []
        for target, output, value in zip(targets, outputs, values, strict=True):
            place = tuple(simplify(i, loops) for i in output.place(outer_index, inner_index))
            stores.append(Store(target.buffer, target.address(place), value, outer=output.outer))
        self._kernel(outputs[0].meta.device, outer_loops, inner_loops, stores, self.all_origins())
        return tuple(targets)

    def _buffers(self, outputs: Sequence[Output]) -> list[Strided]:
        stem = self.origin.node
        names = [stem] if len(outputs) == 1 else [f"{stem}_{k}" for k in range(len(outputs))]
        return [self.buffer(name, output.meta) for name, output in zip(names, outputs, strict=True)]

    # ------------------------------------------------------------------ aten
    def extern(self, op: object, args: Sequence[Any], kwargs: dict[str, Any], metas: Metas) -> Any:
        """Call an aten op on tensors in memory.

        Args:
            metas: of the result: one, a tuple with None for what is no tensor, or None.

        Returns:
            The `Strided` results, in the form of `metas`.
        """
        reads: list[str] = []

        def ref(leaf: Any) -> Any:
            if isinstance(leaf, Lowered):
                place = self.materialize(leaf)
                reads.append(place.buffer)
                return TensorRef(place.buffer, place.sizes, place.strides, place.offset)
            if isinstance(leaf, (list, tuple)):
                return type(leaf)(ref(x) for x in leaf)
            return leaf

        made_args = tuple(ref(a) for a in args)
        made_kwargs = {k: ref(v) for k, v in kwargs.items()}
        single = not isinstance(metas, tuple)
        flat = tuple(
            None if m is None else _without_repeats(m) for m in (metas if isinstance(metas, tuple) else (metas,))
        )
        stem = self.origin.node
        results = [None if m is None else self.buffer(stem if single else f"{stem}_{k}", m) for k, m in enumerate(flat)]
        aliases = tuple(dict.fromkeys(reads)) if _may_alias(op) else ()
        self.steps.append(
            ExternStep(
                op,
                made_args,
                made_kwargs,
                tuple(None if r is None else r.buffer for r in results),
                single,
                tuple(dict.fromkeys(reads)),
                (),
                aliases,
                self.origin,
            )
        )
        return results[0] if single else tuple(results)

    def amend(self, **changes: Any) -> None:
        """Change the step that was added last."""
        self.steps[-1] = attrs.evolve(self.steps[-1], **changes)

    # ------------------------------------------------------------------ going back
    def savepoint(self) -> Savepoint:
        """What there is now."""
        return len(self.steps), len(self.buffers)

    def back_to(self, before: Savepoint, tensors: Sequence[Lowered]) -> None:
        """Undo what was done since, also that these tensors were stored."""
        steps, buffers = before
        del self.steps[steps:]
        for name in list(self.buffers)[buffers:]:  # in the order in which they were added
            del self.buffers[name]
        for t in tensors:
            if isinstance(t, Lazy) and t.stored is not None and t.stored.buffer not in self.buffers:
                t.stored = None

    # ------------------------------------------------------------------ decisions
    def cost(self, tensor: Lowered) -> Cost:
        """What recomputing a formula costs; computed once for each formula."""
        if tensor not in self._costs:
            self._costs[tensor] = Cost.of(tensor)
        return self._costs[tensor]

    def settled(self, tensor: Lowered, meta: TensorMeta, users: int) -> Lowered:
        """Store a formula if that is better than repeating it in every user."""
        if isinstance(tensor, Strided) or tensor.dtype not in KERNEL_DTYPES:
            return tensor
        cost = self.cost(tensor)
        if not tensor.sizes and not cost.heavy and cost.loads <= 1 and cost.nodes <= MAX_INLINED_NODES:
            return tensor  # a few instructions a kernel, where each stored number is one more argument of all its users
        too_large = cost.nodes > MAX_INLINED_NODES or cost.loads > MAX_INLINED_LOADS or cost.index > MAX_INLINED_INDEX
        if cost.loads and (
            too_large or (users > 1 and cost.nodes > cost.loads + cost.casts and not self._like_memory(tensor, cost))
        ):
            return self.materialize(tensor, meta.strides)
        return tensor

    def _like_memory(self, tensor: Lowered, cost: Cost) -> bool:
        """Does a GPU compute an element about as fast as it reads it: a bias added to what a convolution gives, say?"""
        if tensor.device.type != "cuda" or cost.heavy or cost.nodes - cost.loads > CHEAP:
            return False
        loops = {loop_symbol("x", k, n): n for k, n in enumerate(tensor.sizes)}
        value = tensor.value(Point(tuple(as_expr(s) for s in loops), loops))
        along = {s for s, n in loops.items() if n.value != 1}
        read = {v.data.buffer for v in walk(value) if v.op == "load" and len(v.symbols & along) * 2 > len(along)}
        return sum(self.buffers[name].dtype.itemsize for name in read) <= tensor.dtype.itemsize


@final
@attrs.frozen
class Cost:
    """What recomputing a formula once costs: distinct nodes, loads, casts, expensive functions, and operands of its longest index."""

    nodes: int
    loads: int
    casts: int
    heavy: int
    index: int

    @staticmethod
    def of(tensor: Lowered) -> Cost:
        loops = {loop_symbol("x", k, n): n for k, n in enumerate(tensor.sizes)}
        value = tensor.value(Point(tuple(as_expr(s) for s in loops), loops))
        nodes = [v for v in walk(value) if v.op not in ("constant", "index")]
        return Cost(
            len(nodes),
            sum(v.op == "load" for v in nodes),
            sum(v.op in ("cast", "round_to") for v in nodes),
            sum(v.op in HEAVY_OPS for v in nodes),
            max((written_length(v.data.index, loops) for v in nodes if v.op == "load"), default=0),
        )


def _varies(tensor: Lazy, kept: Sequence[int]) -> bool:
    """Do elements differ along a dimension that is not kept?

    Some fakes have a stride of 0 there: those of torch 2.11 for `slice_scatter` into an expanded tensor, and views of it.
    """
    loops = [loop_symbol("x", k, n) for k, n in enumerate(tensor.sizes)]
    value = tensor.value(Point(tuple(as_expr(s) for s in loops), dict(zip(loops, tensor.sizes, strict=True))))
    return not inner_symbols(value).isdisjoint(s for k, s in enumerate(loops) if k not in kept)


def _without_repeats(meta: TensorMeta) -> TensorMeta:
    """The layout asked of an operator's result: row-major where the fake repeats elements, which may differ (`_varies`)."""
    if any(s.value == 0 and n.value != 1 for n, s in zip(meta.sizes, meta.strides, strict=True)):
        return attrs.evolve(meta, strides=contiguous_strides(meta.sizes))
    return meta


def _weight(stride: Expr) -> float:
    """For ordering: the constant, or what the expression is worth with its symbols at a typical size."""
    return float(estimate(stride, {s: 64 + (s.bounds.lower or 0) for s in stride.symbols}))


def _scatter(index: Index, places: list[int], rank: int) -> Index:
    full: list[Expr] = [constant(0)] * rank
    for i, k in zip(index, places, strict=True):
        full[k] = i
    return tuple(full)


_aten = torch.ops.aten
_VIEWS_UNSAID = frozenset(
    {_aten._unsafe_view, _aten.unsafe_split, _aten.unsafe_split_with_sizes, _aten.unsafe_chunk, _aten.lift_fresh}
)
"""Their results share memory with the operand, about which their schemas are silent: autograd is not to know."""


def _may_alias(op: object) -> bool:
    if aliases_operand(op) or getattr(op, "overloadpacket", op) in _VIEWS_UNSAID:
        return True
    # A collective reads its operand until somebody waits for its result, and waiting gives the same memory back: its schema
    # tells neither. So the operand's memory is not given to anything else while the result lives.
    return bool(getattr(op, "namespace", "") == "_c10d_functional")


def _is_known(values: Sequence[Value], loop: LoopVar) -> bool:
    """Does nothing have to go through the loop to compute them?"""
    if not any(v.op == "reduce" for v in walk(*values)):
        return False
    known = substitute_all(values, {}, known_sums(loop))
    return not any(v.op == "reduce" or v.op in IN_ORDER for v in walk(*known))
