"""Symbolic numbers: sizes that vary between calls, and what is computed from them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from torchjit_core.expr import Condition, Expr, as_expr, constant, eq
from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.leaves import Function, Raw, SymLeaf
from torchjit_fx.node_context import NodeContext
from torchjit_fx.protocols import SymbolicSizes
from torchjit_fx.symbols.float_node import FloatNode
from torchjit_fx.symbols.floats import FloatExpr, Operand
from torchjit_fx.symbols.symnode import BoolNode, IntNode, sym_int
from torchjit_torch.layouts import contiguous_strides

__all__ = ["ShapeEnvView", "SymbolicNumbers"]


_EMPTY = (
    "backed_var_to_val", "var_to_val", "var_to_range", "real_tensor_prop_unbacked_vals", "unbacked_var_to_val",
    "fake_tensor_cache",
)  # fmt: skip
"""Where torch keeps what it knows of symbols: it looks for ours there, and finds nothing."""


@final
class ShapeEnvView:
    """What torch takes for its ShapeEnv: decisions go to the project's own."""

    _translation_validation_enabled = False
    settings = None

    def __init__(self, context: NodeContext, *, scalars: bool = False, shapes: bool = False) -> None:
        self.pending_fresh_unbacked_symbols: list[Any] = []
        vars(self).update((name, {}) for name in _EMPTY)
        self.context = context
        self.allow_scalar_outputs = scalars
        self.allow_dynamic_output_shape_ops = shapes

    @property
    def deferred(self) -> list[tuple[Condition, str | None]]:
        """What compiled code has to test, see `NodeContext`; whoever writes the tests clears it."""
        return self.context.deferred

    @contextmanager
    def general(self) -> Iterator[None]:
        """Questions that have a default, because the asker has a general way, get it unless the answer is known."""
        before, self.context.general = self.context.general, True
        try:
            yield
        finally:
            self.context.general = before

    @contextmanager
    def operation(self) -> Iterator[None]:
        """One operation runs: what it says about numbers that it makes itself holds, and nothing has to test it."""
        before, self.context.made = self.context.made, set()
        try:
            yield
        finally:
            self.context.made = before

    @contextmanager
    def suppress_guards(self) -> Iterator[None]:
        """torch asks for this around metadata checks of its own cache, which stays off."""
        yield

    @contextmanager
    def ignore_fresh_unbacked_symbols(self) -> Iterator[bool]:
        """torch binds unbacked symbols to outputs itself; here the graph's nodes do."""
        yield False

    def _maybe_evaluate_static(self, expr: Operand, **options: Raw) -> Raw:
        """A sympy expression without symbols is its own value; others are not known."""
        return expr if not expr.free_symbols else None

    def evaluate_sym_node(
        self, node: Operand, size_oblivious: bool = False, fallback_value: bool | None = None, **options: Raw
    ) -> Raw:
        """The value of a node at capture, guarded; where only the run knows it, `fallback_value`, if there is one."""
        if fallback_value is not None and node.is_bool() and not node.has_hint():
            return node._or(fallback_value)
        return node.guard_bool() if node.is_bool() else node.guard_int(None, 0) if node.is_int() else node.fix()

    def create_unbacked_symint(self, *args: Raw, **kwargs: Raw) -> Raw:
        """A number that only the run knows."""
        return sym_int(self.context.fresh_int(), self.context)

    def create_unbacked_symbool(self, *args: Raw, **kwargs: Raw) -> Raw:
        """A truth that only the run knows."""
        return torch.SymBool(BoolNode(eq(self.context.fresh_int(0, 1), 1), self.context))  # type: ignore[arg-type]

    def create_unbacked_symfloat(self, *args: Raw, **kwargs: Raw) -> Raw:
        """A float that only the run knows."""
        return torch.SymFloat(FloatNode(None, self.context.fresh_float(), self.context))  # type: ignore[arg-type]

    def _constrain_range_for_size(self, symbol: Operand, min: int | None = None, max: int | None = None) -> None:
        """torch knows bounds of a size that depends on data; `symbol` is our node's sympy view."""
        found = next(s for s in self.context.fresh if s.name == symbol.name)
        upper = max if isinstance(max, int) and max < 2**62 else None
        self.context.sizes.bound(as_expr(found), min or 0, upper)


@final
class SymbolicNumbers:
    """What the domain knows about symbolic ints, bools and floats.

    Args:
        sizes: decides about expressions.
        on_first: called before the first symbolic number exists.
        scalars, shapes: may values, and sizes, that depend on data become symbols?
    """

    def __init__(
        self,
        sizes: SymbolicSizes,
        on_first: Callable[[ShapeEnvView], None],
        *,
        scalars: bool = False,
        shapes: bool = False,
    ) -> None:
        self.sizes = sizes
        self.context = NodeContext(sizes)
        self.shape_env = self.context.shape_env = ShapeEnvView(self.context, scalars=scalars, shapes=shapes)
        self._on_first: Callable[[ShapeEnvView], None] | None = on_first
        self._values: dict[Expr, Any] = {}
        self._plain: dict[Expr, SymLeaf] = {}
        self._floats: dict[AccessPath, tuple[SymLeaf, float]] = {}
        self._computed: dict[Expr | FloatExpr, tuple[AccessPath, int | float]] = {}

    def sym_int(self, expr: int | Expr) -> Raw:
        """The torch.SymInt (or int) of an expression; one object per expression."""
        if isinstance(expr, int):
            return expr
        found = self._values.get(expr)
        if found is None:
            self._start()
            found = self._values[expr] = sym_int(expr, self.context)
        return found

    def expression(self, value: Raw) -> int | Expr:
        """The expression of a torch.SymInt; an int where it is one."""
        if type(value) is int:
            return value
        node = value.node
        if type(node) is IntNode:
            return node.expression if node.expression.value is None else node.expression.value
        return int(value)  # a node of C++ around a constant

    def unseen(self, size: int | Expr) -> None:
        """No decision may look at this size of an input."""
        if not isinstance(size, int):
            self.context.fresh |= size.symbols

    def plain(self, expr: int | Expr) -> Raw:
        """The leaf of an input number, or the int that it is."""
        if isinstance(expr, int) or expr.value is not None:
            return expr if isinstance(expr, int) else expr.value
        leaf = self._plain.get(expr)
        if leaf is None:
            leaf = self._plain[expr] = SymLeaf(self.sym_int(expr), expr, None)
        return leaf

    def plain_float(self, value: float, path: AccessPath) -> SymLeaf:
        """The leaf of a float that is an input."""
        found = self._floats.get(path)
        if found is None:
            self._start()
            expression = FloatExpr(f"f{len(self._floats)}", ((f"f{len(self._floats)}", path),))
            leaf = SymLeaf(torch.SymFloat(FloatNode(value, expression, self.context)), expression, None)  # type: ignore[arg-type]
            found = self._floats[path] = leaf, value
        return found[0]

    def computed(self, example: int | float, bounds: tuple[int, int] | None, path: AccessPath) -> SymLeaf:
        """The leaf of a number that is an input and that only the run knows; with bounds an int."""
        self._start()
        if bounds is not None:
            number = self.context.fresh_int(*bounds)
            self._computed[number] = path, example
            return SymLeaf(self.sym_int(number), number, None)
        expression = self.context.fresh_float()
        self._computed[expression] = path, example
        return SymLeaf(torch.SymFloat(FloatNode(None, expression, self.context)), expression, None)  # type: ignore[arg-type]

    def example(self, leaf: SymLeaf) -> int | float:
        """The value of an input number at capture."""
        if leaf.expr in self._computed:
            return self._computed[leaf.expr][1]
        if isinstance(leaf.expr, Expr):
            return self.sizes.example(leaf.expr)
        return self._floats[leaf.expr.path][1]  # type: ignore[union-attr, index]  # an input float has a path

    def seen(self, leaf: SymLeaf) -> int | float | None:
        """The value of an int or float at capture, which nobody relies on yet; None where only the run knows it."""
        if self.type_of(leaf) is bool:
            return None
        node = leaf.value.node
        return node.hint if isinstance(node, (IntNode, FloatNode)) and node.has_hint() else None

    def _start(self) -> bool:
        """From now on there may be symbols. Were there none before?"""
        if self._on_first is None:
            return False
        self._on_first(self.shape_env)
        self._on_first = None
        return True

    def admit(self, error: Exception) -> bool:
        """An operation whose result depends on data failed without symbols: is it worth another try with them?"""
        wanted = isinstance(error, DataDependentOutputException) and self.shape_env.allow_scalar_outputs
        wanted |= isinstance(error, DynamicOutputShapeException) and self.shape_env.allow_dynamic_output_shape_ops
        return wanted and self._start()

    @contextmanager
    def asked_by_user(self) -> Iterator[None]:
        """Decisions inside the block are the program's own."""
        before, self.context.users = self.context.users, True
        try:
            yield
        finally:
            self.context.users = before

    def path(self, expr: Expr | FloatExpr) -> AccessPath | None:
        """Where the value of a plain number is found, None if `expr` is not one."""
        if expr in self._computed:
            return self._computed[expr][0]
        if isinstance(expr, FloatExpr):
            return expr.path
        symbol = expr.as_symbol
        return None if symbol is None else self.sizes.sources().get(symbol)

    def type_of(self, leaf: SymLeaf) -> type:
        """The Python type that the number stands for."""
        if isinstance(leaf.value, torch.SymInt):
            return int
        return bool if isinstance(leaf.value, torch.SymBool) else float

    def truth(self, leaf: SymLeaf) -> bool:
        """`bool(leaf)`, decided with the values at capture and guarded."""
        with self.asked_by_user():
            return bool(leaf.value)

    def fix(self, leaf: SymLeaf) -> Raw:
        """The value at capture, guarded: the specialisation holds for this value only."""
        with self.asked_by_user():
            if isinstance(leaf.value, torch.SymInt):
                return int(leaf.value)
            return bool(leaf.value) if isinstance(leaf.value, torch.SymBool) else leaf.value.node.fix()

    def convert(self, fn: Function, leaf: SymLeaf, record: Callable[[Any, tuple[Any, ...]], Any]) -> Raw:
        """int(), float(), bool() ... of a symbolic number; operator.index() asks for the value and fixes it."""
        cls = self.type_of(leaf)
        if fn in (bool, operator.truth):
            return self.truth(leaf)
        if fn is operator.not_:
            return not self.truth(leaf)
        if fn is cls:
            return leaf
        if fn is float and cls is not float:
            return record(torch.sym_float, (leaf,))
        if fn is int and cls is float:
            return record(torch.sym_int, (leaf,))
        return fn(self.fix(leaf))

    def attribute(self, leaf: SymLeaf, name: str, location: CodeLocation | None) -> Raw:
        """Attributes of Python's numbers."""
        if name in ("real", "numerator"):
            return leaf
        if name == "imag":
            return 0
        if name == "denominator" and self.type_of(leaf) is not float:
            return 1
        if not hasattr(self.type_of(leaf), name):
            raise AttributeError(f"{self.type_of(leaf).__name__!r} object has no attribute {name!r}")
        raise GraphBreak(breaks.SYMBOLIC_UNSUPPORTED, name, location)

    def strides(
        self,
        sizes: Sequence[int | Expr],
        real_sizes: Sequence[int],
        real_strides: Sequence[int],
        path: AccessPath,
        location: CodeLocation | None,
    ) -> list[int | Expr]:
        """The strides of an input with symbolic sizes, as products of its sizes where they are, and guarded.

        Args:
            sizes: ints and expressions.
            real_sizes, real_strides: at capture, in elements.
            path: of the tensor.
        """
        strides: list[int | Expr] = list(real_strides)
        dense = contiguous_strides(real_sizes)
        extents: dict[int, Expr] = {1: constant(1)}  # what lies densely so far: length at capture -> length
        for dim in sorted(range(len(sizes)), key=lambda d: (real_strides[d], real_sizes[d])):
            expected = extents.get(real_strides[dim])
            if expected is not None and expected.value is None:
                actual = self.sizes.size(real_strides[dim], path.stride(dim), dynamic=True)
                self.sizes.laid_out(eq(as_expr(actual), expected), location)
                strides[dim] = expected
            elif real_strides[dim] != dense[dim]:
                # A slice of something wider: that width may vary on its own, also where the slice is one row (`ids[:, -1:]`).
                strides[dim] = self.sizes.size(real_strides[dim], path.stride(dim))
            length = real_strides[dim] * real_sizes[dim]
            if type(strides[dim]) is not int or type(sizes[dim]) is not int:
                extents.setdefault(length, as_expr(strides[dim]) * as_expr(sizes[dim]))
            else:
                extents.setdefault(length, constant(length))
        return strides
