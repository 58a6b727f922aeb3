"""The nodes behind torch.SymInt, SymBool and SymFloat, over the project's own integer expressions.

torch's C++ calls these methods through `PythonSymNodeImpl` (torch/csrc/utils/python_symnode.h, identical in 2.11 and
2.15), torch's Python through the magic methods in torch/fx/experimental/sym_node.py. An int node holds an `Expr`, a bool
node a `Condition`. A float node holds its value at capture and the expressions that it was computed from: where its value
is needed, those are fixed to their values at capture (and guarded).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from torchjit_core.expr import Condition, Expr, conj, constant, disj, eq, ge, gt, le, lt, maximum, minimum, ne, negate
from torchjit_fx import layouts
from torchjit_fx.protocols import SymbolicSizes

__all__ = ["BoolNode", "FloatNode", "IntNode", "NodeContext"]


class NodeContext:
    """What nodes share: who decides, and where the program is.

    Attributes:
        shape_env: the object that torch takes for its ShapeEnv.
        location: gives the user's current line.
    """

    def __init__(self, sizes: SymbolicSizes) -> None:
        self.sizes = sizes
        self.shape_env: Any = None
        self.location: Callable[[], Any] = lambda: None

    def decide(self, condition: Condition) -> bool:
        """The truth of a condition, guarded unless it holds for all values."""
        if condition.kind in ("true", "false"):
            return condition.kind == "true"
        known = self.sizes.known(condition)
        return self.sizes.guard(condition, self.location()) if known is None else known

    def fix(self, expr: Expr) -> int:
        """The value of an expression at capture, guarded."""
        if expr.value is not None:
            return expr.value
        value = self.sizes.hint(expr)
        self.decide(eq(expr, value))
        return value


class _Node:
    """What all kinds of nodes answer alike."""

    __slots__ = ("context",)
    context: NodeContext
    fx_node = None
    nested_int_coeff = None
    _optimized_summation = False

    @property
    def shape_env(self) -> Any:
        return self.context.shape_env

    def is_int(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    def is_float(self) -> bool:
        return False

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def has_hint(self) -> bool:
        return True

    def is_symbolic(self) -> bool:
        return not self.is_constant()

    def is_constant(self) -> bool:
        raise NotImplementedError

    def maybe_as_int(self) -> int | None:
        return None

    def maybe_as_float(self) -> float | None:
        return None

    def maybe_as_bool(self) -> bool | None:
        return None

    def wrap_int(self, value: int) -> IntNode:
        return IntNode(constant(int(value)), self.context)

    def wrap_bool(self, value: bool) -> BoolNode:
        return BoolNode(_truth(value), self.context)

    def wrap_float(self, value: float) -> FloatNode:
        return FloatNode(value, (), self.context)

    def clone(self) -> Any:
        return self

    def with_shape_env(self, shape_env: Any) -> Any:
        return self

    def str(self) -> str:
        return repr(self)

    _graph_repr = str


@final
class IntNode(_Node):
    """An int: `expression`."""

    __slots__ = ("expression",)
    pytype = int

    def __init__(self, expression: Expr, context: NodeContext) -> None:
        self.expression = expression
        self.context = context

    def __repr__(self) -> str:
        return repr(self.expression)

    def is_int(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return self.expression.value is not None

    def maybe_as_int(self) -> int | None:
        return self.expression.value

    @property
    def constant(self) -> int | None:
        return self.expression.value

    @property
    def hint(self) -> int:
        return self.context.sizes.hint(self.expression) if self.expression.value is None else self.expression.value

    _hint = hint

    def require_hint(self, fallback: Any = None) -> int:
        return self.hint

    @property
    def expr(self) -> Any:
        """A sympy view, for torch code that asks for one."""
        return _sympy_int(self.expression)

    _expr = expr

    def _value_eq(self, other: Any) -> bool:
        return type(other) is IntNode and self.expression is other.expression

    def _value_hash(self) -> int:
        return hash(self.expression)

    def int_(self) -> int:
        return self.context.fix(self.expression)

    def guard_int(self, file: Any, line: Any) -> int:
        return self.context.fix(self.expression)

    def guard_float(self, file: Any, line: Any) -> float:
        return float(self.context.fix(self.expression))

    def guard_bool(self, file: Any, line: Any) -> bool:
        return self.context.decide(ne(self.expression, 0))

    bool_ = functools.partialmethod(guard_bool, None, 0)

    def sym_float(self) -> FloatNode:
        return FloatNode(float(self.hint), (self.expression,), self.context, (self.expression, constant(1)))

    def int_truediv(self, other: Any) -> FloatNode:
        value = operator.truediv(self.hint, other.hint)
        exprs = (self.expression, other.expression)
        return FloatNode(value, exprs, self.context, exprs)

    truediv = int_truediv

    def pow_by_natural(self, other: Any) -> IntNode:
        return IntNode(self.expression ** self.context.fix(other.expression), self.context)

    pow = pow_by_natural

    def lshift(self, other: Any) -> IntNode:
        return IntNode(self.expression * 2 ** self.context.fix(other.expression), self.context)

    def rshift(self, other: Any) -> IntNode:
        return IntNode(self.expression // 2 ** self.context.fix(other.expression), self.context)

    def abs(self) -> IntNode:
        return self if self.context.decide(ge(self.expression, 0)) else IntNode(-self.expression, self.context)

    def neg(self) -> IntNode:
        return IntNode(-self.expression, self.context)

    def sym_sum(self, terms: Sequence[Any]) -> IntNode:
        return IntNode(sum((t.expression for t in terms), constant(0)), self.context)

    def floor(self) -> IntNode:
        return self

    ceil = trunc = pos = sym_int = floor

    def round(self, ndigits: int | None = None) -> IntNode:
        return self

    def _fixed(self, other: Any, fn: Callable[[int, int], int]) -> IntNode:
        return self.wrap_int(fn(self.context.fix(self.expression), self.context.fix(other.expression)))

    def bitwise_and(self, other: Any) -> IntNode:
        return self._fixed(other, operator.and_)

    def bitwise_or(self, other: Any) -> IntNode:
        return self._fixed(other, operator.or_)

    def bitwise_xor(self, other: Any) -> IntNode:
        return self._fixed(other, operator.xor)


def _int_operation(name: str, fn: Callable[[Expr, Expr], Expr]) -> None:
    setattr(IntNode, name, lambda self, other: IntNode(fn(self.expression, other.expression), self.context))


def _comparison(name: str, fn: Callable[[Any, Any], Condition]) -> None:
    def compare(self: IntNode, other: Any) -> Any:
        if isinstance(other, FloatNode):
            return FloatNode(float(self.hint), (self.expression,), self.context)._compare(name, other)
        return BoolNode(fn(self.expression, other.expression), self.context)

    setattr(IntNode, name, compare)


for _name, _fn in {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "mod": operator.mod, "floordiv": operator.floordiv,
    "int_floordiv": operator.floordiv, "sym_min": minimum, "sym_max": maximum,
}.items():  # fmt: skip
    _int_operation(_name, _fn)
for _name, _compare in {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}.items():
    _comparison(_name, _compare)
for _rule in (
    layouts.is_contiguous,
    layouts.is_channels_last_contiguous_2d,
    layouts.is_channels_last_contiguous_3d,
    layouts.is_channels_last_strides_2d,
    layouts.is_channels_last_strides_3d,
    layouts.is_non_overlapping_and_dense,
):
    setattr(
        IntNode,
        _rule.__name__,
        lambda self, sizes, strides, rule=_rule: BoolNode(
            rule([n.expression for n in sizes], [n.expression for n in strides], self.context), self.context
        ),
    )


def _indicator(self: IntNode, sizes: Any, strides: Any) -> IntNode:
    dense = layouts.is_non_overlapping_and_dense(
        [n.expression for n in sizes], [n.expression for n in strides], self.context
    )
    return self.wrap_int(int(self.context.decide(dense)))


IntNode.is_non_overlapping_and_dense_indicator = _indicator  # type: ignore[attr-defined]


@final
class BoolNode(_Node):
    """A bool: `condition`."""

    __slots__ = ("condition",)
    pytype = bool

    def __init__(self, condition: Condition, context: NodeContext) -> None:
        if condition.kind not in ("true", "false"):
            known = context.sizes.known(condition)
            if known is not None:
                condition = _truth(known)
        self.condition = condition
        self.context = context

    def __repr__(self) -> str:
        return str(self.condition)

    def is_bool(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return self.condition.kind in ("true", "false")

    def maybe_as_bool(self) -> bool | None:
        return self.condition.kind == "true" if self.is_constant() else None

    @property
    def constant(self) -> bool | None:
        return self.maybe_as_bool()

    @property
    def hint(self) -> bool:
        return bool(self.condition.evaluate({s: self._value(s) for s in self.condition.symbols}))

    def _value(self, symbol: Any) -> int:
        return self.context.sizes.hint(Expr((((((symbol, 1),)), 1),)))

    _hint = hint

    @property
    def expr(self) -> Any:
        """A sympy view."""
        return _sympy_bool(self.condition)

    _expr = expr

    def guard_bool(self, file: Any = None, line: Any = 0) -> bool:
        return self.context.decide(self.condition)

    expect_true = guard_bool

    def bool_(self) -> bool:
        return self.context.decide(self.condition)

    def guard_int(self, file: Any, line: Any) -> int:
        return int(self.context.decide(self.condition))

    def guard_or_false(self, file: Any = None, line: Any = 0) -> bool:
        return self.context.decide(self.condition)

    guard_or_true = guard_size_oblivious = guard_or_false

    def statically_known_true(self, file: Any = None, line: Any = 0) -> bool:
        return self.maybe_as_bool() is True or self.context.sizes.known(self.condition) is True

    def sym_and(self, other: Any) -> BoolNode:
        return BoolNode(conj(self.condition, other.condition), self.context)

    def sym_or(self, other: Any) -> BoolNode:
        return BoolNode(disj(self.condition, other.condition), self.context)

    and_, or_ = sym_and, sym_or

    def sym_not(self) -> BoolNode:
        return BoolNode(negate(self.condition), self.context)

    def eq(self, other: Any) -> BoolNode:
        same = disj(conj(self.condition, other.condition), conj(negate(self.condition), negate(other.condition)))
        return BoolNode(same, self.context)

    def ne(self, other: Any) -> BoolNode:
        return self.eq(other).sym_not()

    xor = ne

    def sym_ite(self, then: Any, otherwise: Any) -> Any:
        return then if self.context.decide(self.condition) else otherwise


@final
class FloatNode(_Node):
    """A float computed from symbolic ints.

    Attributes:
        hint: its value at capture.
        sources: what it was computed from.
        ratio: (numerator, denominator) where it is a quotient of two ints, so that floor and ceil stay symbolic.
    """

    __slots__ = ("hint", "ratio", "sources")
    pytype = float

    def __init__(
        self, hint: float, sources: tuple[Expr, ...], context: NodeContext, ratio: tuple[Expr, Expr] | None = None
    ) -> None:
        self.hint = hint
        self.sources = tuple(e for e in sources if e.value is None)
        self.context = context
        self.ratio = ratio

    def __repr__(self) -> str:
        return f"{self.hint!r} (of {', '.join(map(str, self.sources))})"

    def is_float(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return not self.sources

    def maybe_as_float(self) -> float | None:
        return self.hint if not self.sources else None

    @property
    def constant(self) -> float | None:
        return self.maybe_as_float()

    @property
    def _hint(self) -> float:
        return self.hint

    @property
    def expr(self) -> Any:
        """A sympy view: fixes the value."""
        return _sympy().Float(self.fix())

    _expr = expr

    def fix(self) -> float:
        """The value, with everything that it was computed from guarded."""
        for source in self.sources:
            self.context.fix(source)
        return self.hint

    def guard_float(self, file: Any = None, line: Any = 0) -> float:
        return self.fix()

    def guard_bool(self, file: Any = None, line: Any = 0) -> bool:
        return bool(self.fix())

    def sym_float(self) -> FloatNode:
        return self

    def sym_int(self) -> IntNode:
        return self.trunc()

    def floor(self) -> IntNode:
        if self.ratio is not None:
            return IntNode(self.ratio[0] // self.ratio[1], self.context)
        return self.wrap_int(math.floor(self.fix()))

    def ceil(self) -> IntNode:
        if self.ratio is not None:
            return IntNode(-(-self.ratio[0] // self.ratio[1]), self.context)
        return self.wrap_int(math.ceil(self.fix()))

    def trunc(self) -> IntNode:
        if self.ratio is not None and self.context.decide(conj(ge(self.ratio[0], 0), gt(self.ratio[1], 0))):
            return self.floor()
        return self.wrap_int(math.trunc(self.fix()))

    def round(self, ndigits: int | None = None) -> Any:
        value = self.fix()
        return self.wrap_int(round(value)) if ndigits is None else self.wrap_float(round(value, ndigits))

    def is_integer(self) -> BoolNode:
        return self.wrap_bool(self.fix().is_integer())

    def neg(self) -> FloatNode:
        return FloatNode(-self.hint, self.sources, self.context)

    def abs(self) -> FloatNode:
        return FloatNode(abs(self.hint), self.sources, self.context)

    def pos(self) -> FloatNode:
        return self

    def _with(self, other: Any, fn: Callable[[float, float], float]) -> FloatNode:
        more = other.sources if isinstance(other, FloatNode) else (other.expression,)
        return FloatNode(fn(self.hint, other.hint), (*self.sources, *more), self.context)

    def _compare(self, name: str, other: Any) -> BoolNode:
        value = other.fix() if isinstance(other, FloatNode) else self.context.fix(other.expression)
        return self.wrap_bool(getattr(operator, name)(self.fix(), value))


for _name, _float_fn in {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "mod": operator.mod,
    "float_truediv": operator.truediv, "float_pow": operator.pow, "pow": operator.pow, "floordiv": operator.floordiv,
    "sym_min": min, "sym_max": max,
}.items():  # fmt: skip
    setattr(FloatNode, _name, lambda self, other, fn=_float_fn: self._with(other, fn))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(FloatNode, _name, lambda self, other, name=_name: self._compare(name, other))


def _float_function(name: str, fn: Callable[[float], float]) -> None:
    setattr(FloatNode, name, lambda self: FloatNode(fn(self.hint), self.sources, self.context))
    setattr(IntNode, name, lambda self: getattr(self.sym_float(), name)())


for _name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2"):
    _float_function(f"sym_{_name}", getattr(math, _name))


def _truth(value: bool) -> Condition:
    return eq(0, 0) if value else eq(0, 1)


def _sympy() -> Any:
    import sympy  # noqa: PLC0415  # half a second, and few programs need it

    return sympy


@functools.lru_cache(maxsize=4096)
def _sympy_int(expression: Expr) -> Any:
    sympy = _sympy()
    names = {s.name: sympy.Symbol(s.name, integer=True, positive=True) for s in expression.symbols}
    # The text is our own rendering of an expression: names, integers and operators.
    return eval(str(expression), {"__builtins__": {}, "max": sympy.Max, "min": sympy.Min}, names) + sympy.Integer(0)


def _sympy_bool(condition: Condition) -> Any:
    sympy = _sympy()
    if condition.kind in ("true", "false"):
        return sympy.true if condition.kind == "true" else sympy.false
    if condition.kind in ("and", "or"):
        join = sympy.And if condition.kind == "and" else sympy.Or
        return join(*map(_sympy_bool, condition.parts))
    relation = {"eq": sympy.Eq, "ne": sympy.Ne, "le": sympy.Le}[condition.kind]
    return relation(_sympy_int(condition.expr), 0)


def sym_int(expression: Expr, context: NodeContext) -> Any:
    """The torch.SymInt of an expression, or the int that it is."""
    return torch.SymInt(IntNode(expression, context)) if expression.value is None else expression.value  # type: ignore[arg-type]
