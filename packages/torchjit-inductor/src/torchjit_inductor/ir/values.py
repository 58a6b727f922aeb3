"""Scalar values inside a kernel: an interned expression graph, built by calling functions.

A `Value` is what one iteration of a loop nest computes. Lowerings build values define-by-run: they call `load`,
`constant`, `apply` ... with index expressions over the loop variables. Equal values are one object, so common
subexpressions are shared by construction and comparing two values is comparing identities.

dtype rules: `Value.dtype` is never float16 or bfloat16. A load from such a buffer gives a float32 value, a store to one
rounds (to nearest, ties to even). A cast to one in the user's program is `round_to`. Operands of an `apply` have one
dtype (see `ir/operations.py` for each operation), so every conversion is an explicit `cast`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, final
from weakref import WeakValueDictionary

import attrs
import torch

from torchjit_core.expr import Expr, Symbol, as_expr
from torchjit_inductor.ir.dtypes import HALF, compute_dtype
from torchjit_inductor.ir.rules import REDUCTIONS, SCANS, check_value

__all__ = [
    "DOTS",
    "INDEXED",
    "IN_ORDER",
    "PASSES",
    "REDUCTIONS",
    "SCANS",
    "BoundData",
    "IndexData",
    "LoadData",
    "Number",
    "RunNumber",
    "Scalar",
    "SortData",
    "Value",
    "apply",
    "bounded",
    "cast",
    "constant",
    "dot",
    "index_value",
    "load",
    "number_value",
    "reduce",
    "round_to",
    "scan",
    "segment",
    "sort",
    "substitute",
    "walk",
    "where",
]

Number: TypeAlias = "int | float | bool"
Scalar: TypeAlias = "Number | Expr | RunNumber"
"""A number as an operand: known now, a size, or a float that only the run knows."""

DOTS: tuple[str, ...] = ("dot", "fast_dot")
"""Kinds of `reduce` that multiply."""

PASSES = frozenset({"reduce", "sort"})
"""Operations that need all inner points of their operand: whoever uses them runs the inner loops once more."""

IN_ORDER = frozenset({"scan", "sort"})
"""Operations that count on the row-major order of the inner loops, and vary along them even if the operand does not."""

INDEXED = frozenset({"load", "index", "bounded"})
"""Operations whose data has an expression (`index`) over symbols; its `binders` are no symbols of the kernel."""


@final
@attrs.frozen
class LoadData:
    """Payload of a `load`.

    Attributes:
        buffer: name of the buffer.
        index: element offset from the buffer's first element, over loop variables, size symbols and `binders`.
        binders: symbols of `index` that stand for the first `len(binders)` args of the value (int64 values).
        masked: the last arg is then a bool value; where it is false nothing is read and the value is `other`.
        other: what a masked-off load gives.
    """

    buffer: str
    index: Expr
    binders: tuple[Symbol, ...] = ()
    masked: bool = False
    other: Number = 0


@final
@attrs.frozen
class IndexData:
    """Payload of an `index`: an int64 computed from loop variables; `binders` as in `LoadData`."""

    index: Expr
    binders: tuple[Symbol, ...] = ()


@final
@attrs.frozen
class BoundData:
    """Payload of a `bounded`: a computed position, checked.

    Attributes:
        index: the size of the dimension; at least 1 when the value is computed.
        wrap: negative positions count from the end.
        dim: for the message.
        error: whose error a position outside raises: `index` (IndexError with position, dimension and size), `gather`
            (RuntimeError with the same), `embedding` (IndexError, "index out of range in self") or `probability`
            (RuntimeError; the position is 0 where a value is from 0 to 1, and beyond the size elsewhere).
    """

    index: Expr
    wrap: bool
    dim: int
    error: str
    binders: tuple[Symbol, ...] = ()


@final
@attrs.frozen
class SortData:
    """Payload of a `sort`.

    Attributes:
        descending: the largest first.
        positions: the result is where the element was before (int64), not the element.
    """

    descending: bool
    positions: bool


_Operator: TypeAlias = "Callable[[Value, Value | Scalar], Value]"


def _operators(op: str) -> tuple[_Operator, _Operator]:
    """An operation as a method of its left operand, and as one of the right operand of a number."""

    def plain(self: Value, other: Value | Scalar) -> Value:
        return apply(op, self, _lifted(other, self))

    def reflected(self: Value, other: Value | Scalar) -> Value:
        return apply(op, _lifted(other, self), self)

    return plain, reflected


@final
class Value:
    """One node. Do not construct it: use the functions of this module.

    Attributes:
        op: `load`, `constant`, `index`, `bounded`, `segment`, `reduce`, `scan`, `sort`, `cast`, `round_to`, or the name of an
            operation of `operations.py`.
        args: operands.
        dtype: of the result.
        data: load: `LoadData`; constant: the Python number; index: `IndexData`; bounded: `BoundData`; reduce: the kind,
            one of `REDUCTIONS`; scan: one of `SCANS`; sort: `SortData`; round_to: the torch dtype to round through (float16 or bfloat16); else None.
        symbols: the loop variables and size symbols that the value depends on, through operands too. A `reduce`
            still lists the inner variables that its operand uses: use `level` to tell where it lives.
        level: how many reductions and sorts lie on the longest path below (one counts itself): 0 for values that need
            none. A kernel runs its inner loop once per level, in order.
    """

    __slots__ = ("__weakref__", "args", "data", "dtype", "level", "op", "symbols")
    _interned: WeakValueDictionary[tuple[Any, ...], Value] = WeakValueDictionary()
    op: str
    args: tuple[Value, ...]
    dtype: torch.dtype
    data: Any
    symbols: frozenset[Symbol]
    level: int

    def __new__(cls, op: str, args: tuple[Value, ...], dtype: torch.dtype, data: Any = None) -> Value:
        # repr tells 0.0 from -0.0 and 1 from True and 1.0, and makes all NaNs equal.
        ident = (type(data), repr(data)) if op == "constant" else data
        if op == "load":
            # attrs compares `other` with ==, for which -0.0 is 0.0.
            ident = (data, repr(data.other))
        key = (op, args, dtype, ident)
        found = cls._interned.get(key)
        if found is None:
            found = object.__new__(cls)
            found.op, found.args, found.dtype, found.data = op, args, dtype, data
            own = data.index.symbols.difference(data.binders) if op in INDEXED else frozenset()
            found.symbols = own.union(*(a.symbols for a in args))
            found.level = max((a.level for a in args), default=0) + (op in PASSES)
            cls._interned[key] = found
        return found

    def verify(self) -> None:
        """Check this node, not its operands.

        Raises:
            InvalidIR: a rule of its kind is broken, see `ir/rules.py`.
        """
        check_value(self)

    def __repr__(self) -> str:
        """Shallow: a graph of shared values printed as a tree can be exponentially long. `str(kernel)` shows it all."""
        if self.op == "constant":
            return f"{self.data!r}"
        data = f", {self.data}" if self.data is not None else ""
        return f"<{self.op}({', '.join(a.op for a in self.args)}{data}): {self.dtype}>"

    # Arithmetic, so that lowerings read as formulas. Numbers are lifted to the dtype of the value beside them.
    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("sub")
    __mul__, __rmul__ = _operators("mul")
    __truediv__, __rtruediv__ = _operators("div")
    __lt__, __gt__ = _operators("lt")[0], _operators("gt")[0]
    __le__, __ge__ = _operators("le")[0], _operators("ge")[0]

    def __neg__(self) -> Value:
        return apply("neg", self)


def _lifted(other: Value | Scalar, like: Value) -> Value:
    return other if isinstance(other, Value) else number_value(other, like.dtype)


@final
@attrs.frozen(eq=False)
class RunNumber:
    """A Python float that the host program has when it runs, as an operand of a formula.

    Attributes:
        host: what the host program calls it.
        value: the load of it, float64.
    """

    host: Any
    value: Value


def number_value(number: Scalar, dtype: torch.dtype) -> Value:
    """A Python number, a symbolic int or a float of the run as a value of `dtype`; it rounds as `constant` does."""
    if isinstance(number, RunNumber):
        return cast(number.value, dtype)
    if isinstance(number, Expr):
        return cast(index_value(number), dtype)
    return constant(number, dtype)


def constant(value: Number, dtype: torch.dtype) -> Value:
    """A number, converted as `torch.full` does (float16 and bfloat16 round, then live in float32)."""
    if dtype in HALF:
        value = torch.tensor(value, dtype=dtype).item()
    elif dtype.is_floating_point:
        value = float(value)
    else:
        value = bool(value) if dtype == torch.bool else int(value)
    return Value("constant", (), compute_dtype(dtype), value)


def load(
    buffer: str,
    index: Expr | int,
    dtype: torch.dtype,
    *,
    binders: Mapping[Symbol, Value] | None = None,
    mask: Value | None = None,
    other: Number = 0,
) -> Value:
    """The element at `index` of a buffer whose storage dtype is `dtype`.

    Args:
        binders: symbols of `index` that stand for computed integers.
        mask: where false, `other` instead and no memory is touched.
    """
    index, symbols, args = _bind(as_expr(index), binders)
    if mask is not None:
        args = (*args, mask)
    return Value("load", args, compute_dtype(dtype), LoadData(buffer, index, symbols, mask is not None, other))


def index_value(index: Expr | int) -> Value:
    """An index expression as an int64 value."""
    index = as_expr(index)
    if index.value is not None:
        return constant(index.value, torch.int64)
    return Value("index", (), torch.int64, IndexData(index))


def _bind(index: Expr, binders: Mapping[Symbol, Value] | None) -> tuple[Expr, tuple[Symbol, ...], tuple[Value, ...]]:
    """Rename the bound symbols to positions, so that equal loads are equal whatever their symbols were called."""
    used = [s for s in sorted(index.symbols, key=lambda s: s.sort_key) if binders and s in binders]
    if not used or binders is None:
        return index, (), ()
    fresh = tuple(Symbol(f"at{n}", s.bounds.lower, s.bounds.upper) for n, s in enumerate(used))
    renamed = index.substitute({s: as_expr(f) for s, f in zip(used, fresh, strict=True)})
    return renamed, fresh, tuple(binders[s] for s in used)


def reduce(kind: str, value: Value) -> Value:
    """Reduce over all inner loop variables of the kernel; see `REDUCTIONS`."""
    if kind not in REDUCTIONS or kind in DOTS:
        raise ValueError(f"unknown reduction {kind!r}; known: {', '.join(REDUCTIONS)}")
    dtype = torch.int64 if kind in ("argmax", "argmin") else value.dtype
    return Value("reduce", (value,), dtype, kind)


def dot(left: Value, right: Value, *, fast: bool = False) -> Value:
    """The sum of `left * right` over all inner loop variables, as a product of matrices: what a kernel computes in tiles.

    Each operand is a float16, bfloat16, int8 or 8-bit float element (a load of one, or `round_to`), and the outer loops of the kernel
    divide into those of the left operand, those of the right one and those of both. Products are exact, sums are float32 (int32 of int8).

    Args:
        fast: sums of 8-bit floats may have as few bits as the matrix units give them (14 on Hopper).
    """
    kind = "fast_dot" if fast else "dot"
    return Value("reduce", (left, right), torch.int32 if left.dtype == torch.int8 else torch.float32, kind)


def scan(kind: str, value: Value) -> Value:
    """Combine with all earlier inner points of the kernel; see `SCANS`."""
    if kind not in SCANS:
        raise ValueError(f"unknown scan {kind!r}; known: {', '.join(SCANS)}")
    return Value("scan", (value,), value.dtype, kind)


def sort(value: Value, *, descending: bool = False, positions: bool = False) -> Value:
    """At each inner point of the kernel, the element of that rank among the operand's at all inner points, in row-major order.

    The order is eager's stable one: equal elements stay in order, -0 equals 0, a NaN is larger than any number.

    Args:
        positions: the element's own position instead.
    """
    return Value("sort", (value,), torch.int64 if positions else value.dtype, SortData(descending, positions))


def segment(position: Value, ends: Sequence[Value]) -> Value:
    """Which segment an int64 position lies in: how many of the ends, ascending integers, are not above it (int64)."""
    return Value("segment", (position, *ends), torch.int64)


def bounded(position: Value, size: Expr, *, wrap: bool, dim: int, error: str) -> Value:
    """A computed int64 position as one within 0 <= i < size; the kernel raises `error` for any other."""
    return Value("bounded", (position,), torch.int64, BoundData(size, wrap, dim, error))


def cast(value: Value, dtype: torch.dtype) -> Value:
    """Convert as `Tensor.to` does. To float16 or bfloat16 it rounds and gives float32."""
    target = compute_dtype(dtype)
    if value.op == "constant":
        return constant(_converted(value.data, dtype), dtype)
    if value.dtype != target:
        value = Value("cast", (value,), target)
    return value if dtype == target else round_to(value, dtype)


def _converted(number: Number, dtype: torch.dtype) -> Number:
    if dtype.is_floating_point or dtype == torch.bool or isinstance(number, (bool, int)):
        if not dtype.is_floating_point and dtype != torch.bool:
            bits = torch.iinfo(dtype).bits
            number = int(number) & ((1 << bits) - 1)
            return number - (1 << bits) if dtype != torch.uint8 and number >> (bits - 1) else number
        return float(torch.tensor(number).to(dtype)) if dtype.is_floating_point else bool(number)
    return int(torch.tensor(number, dtype=torch.float64).to(dtype).item())


def round_to(value: Value, dtype: torch.dtype) -> Value:
    """Round a float32 value to float16 or bfloat16 precision."""
    if value.op == "round_to" and value.data == dtype:
        return value
    if value.op == "cast" and value.args[0].dtype in (torch.int8, torch.uint8, torch.bool):
        return value  # 8 bits fit
    return Value("round_to", (value,), torch.float32, dtype)


def where(condition: Value, yes: Value, no: Value) -> Value:
    """`yes` where the bool condition holds, else `no`; both of one dtype."""
    if condition.op == "constant":
        return yes if condition.data else no
    return Value("where", (condition, yes, no), yes.dtype)


def apply(op: str, *args: Value) -> Value:
    """An operation of `operations.py` by name; it checks the operands and gives the result's dtype.

    Raises:
        ValueError: unknown operation, or operands that it does not take.
    """
    # operations.py imports this module for its evaluator's types; the table is only needed at call time.
    from torchjit_inductor.ir.operations import result_dtype  # noqa: PLC0415

    return Value(op, args, result_dtype(op, args))


def substitute(
    value: Value, mapping: Mapping[Symbol, Expr | int], replace: Callable[[Value], Value | None] | None = None
) -> Value:
    """Rewrite index expressions by `mapping`, bottom up, sharing what does not change.

    Args:
        mapping: loop variables to expressions over other loop variables.
        replace: called on every rewritten node; a result that is not None takes its place.
    """
    return substitute_all((value,), mapping, replace)[0]


def substitute_all(
    values: Sequence[Value],
    mapping: Mapping[Symbol, Expr | int],
    replace: Callable[[Value], Value | None] | None,
) -> tuple[Value, ...]:
    """`substitute` on several values with one memo."""
    memo: dict[Value, Value] = {}
    for node in walk(*values):
        made = node
        if replace is not None or not node.symbols.isdisjoint(mapping):
            args = tuple(memo[a] for a in node.args)
            data = node.data
            if node.op in INDEXED:
                data = attrs.evolve(data, index=data.index.substitute(mapping))
            if args != node.args or data is not node.data:
                made = Value(node.op, args, node.dtype, data)
            if made.op == "index" and made.data.index.value is not None:
                made = constant(made.data.index.value, torch.int64)
        if replace is not None:
            made = replace(made) or made
        memo[node] = made
    return tuple(memo[v] for v in values)


def walk(*roots: Value) -> Iterator[Value]:
    """Every node below the roots once, operands before users, in a fixed order."""
    seen: set[Value] = set()
    stack: list[tuple[Value, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args) if a not in seen)
