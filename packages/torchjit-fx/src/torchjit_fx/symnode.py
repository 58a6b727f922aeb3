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
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks, floats, layouts
from torchjit_fx.floats import FloatExpr
from torchjit_fx.node_context import NodeContext
from torchjit_fx.sympy_view import sympy_bool, sympy_float, sympy_int

__all__ = ["BoolNode", "FloatNode", "IntNode", "derived", "sym_int"]


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
        return FloatNode(float(value), floats.constant(float(value)), self.context)

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

    def has_hint(self) -> bool:
        return not self.context.is_fresh(self.expression.symbols)

    @property
    def constant(self) -> int | None:
        return self.expression.value

    @property
    def hint(self) -> int | None:
        return self.context.seen(self.expression)

    _hint = hint

    def require_hint(self, fallback: Any = None) -> int:
        found = self.hint
        return found if found is not None else self.context.sizes.hint(self.expression)

    @property
    def expr(self) -> Any:
        """A sympy view, for torch code that asks for one."""
        return sympy_int(self.expression)

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
        made = derived(self.context, "float({})", float, self)
        made.ratio = (self.expression, constant(1))
        return made

    def int_truediv(self, other: Any) -> FloatNode:
        if isinstance(other, FloatNode):
            return derived(self.context, "({} / {})", operator.truediv, self, other)
        made = derived(self.context, "({} / {})", operator.truediv, self, other)
        made.ratio = (self.expression, other.expression)
        return made

    truediv = int_truediv

    def pow_by_natural(self, other: Any) -> Any:
        if isinstance(other, FloatNode):
            return other.rpow(self)
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
    """Between ints; with a float on the right Python's rule makes a float."""

    def operation(self: IntNode, other: Any) -> Any:
        if isinstance(other, FloatNode):
            template = f"({{}} {_SIGNS[name]} {{}})" if name in _SIGNS else f"{name.removeprefix('sym_')}({{}}, {{}})"
            return derived(self.context, template, _PLAIN[name], self, other)
        if name in _DIVISIONS and other.expression.value is None:
            self.context.divisor(other.expression)
        return IntNode(fn(self.expression, other.expression), self.context)

    setattr(IntNode, name, operation)


_DIVISIONS = frozenset({"mod", "floordiv", "int_floordiv"})
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "mod": "%", "floordiv": "//", "int_floordiv": "//"}
_PLAIN: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "mod": operator.mod, "floordiv": operator.floordiv,
    "int_floordiv": operator.floordiv, "sym_min": min, "sym_max": max,
}  # fmt: skip


def _comparison(name: str, fn: Callable[[Any, Any], Condition]) -> None:
    def compare(self: IntNode, other: Any) -> Any:
        if isinstance(other, FloatNode):
            return other._decided(f"{{}} {_COMPARISONS[name]} {{}}", getattr(operator, name), self, other)
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

    @property
    def expression(self) -> Condition:
        """What it is; its text is Python."""
        return self.condition

    def has_hint(self) -> bool:
        return not self.context.is_fresh(self.condition.symbols)

    def is_constant(self) -> bool:
        return self.condition.kind in ("true", "false")

    def maybe_as_bool(self) -> bool | None:
        return self.condition.kind == "true" if self.is_constant() else None

    @property
    def constant(self) -> bool | None:
        return self.maybe_as_bool()

    @property
    def hint(self) -> bool | None:
        if not self.has_hint():
            return None
        return bool(self.condition.evaluate({s: self._value(s) for s in self.condition.symbols}))

    def _value(self, symbol: Any) -> int:
        return self.context.sizes.hint(Expr((((((symbol, 1),)), 1),)))

    _hint = hint

    @property
    def expr(self) -> Any:
        """A sympy view."""
        return sympy_bool(self.condition)

    _expr = expr

    def guard_bool(self, file: Any = None, line: Any = 0) -> bool:
        return self.context.decide(self.condition)

    def expect_true(self, file: Any = None, line: Any = 0) -> bool:
        if self.has_hint() or self.is_constant() or self.context.sizes.known(self.condition) is not None:
            return self.context.decide(self.condition)
        self.context.assume(self.condition)
        return True

    def bool_(self) -> bool:
        return self.context.decide(self.condition)

    def guard_int(self, file: Any, line: Any) -> int:
        return int(self.context.decide(self.condition))

    def guard_or_false(self, file: Any = None, line: Any = 0) -> bool:
        return self._or(False)

    def guard_or_true(self, file: Any = None, line: Any = 0) -> bool:
        return self._or(True)

    def _or(self, default: bool) -> bool:
        """Decided, but `default` where only the run knows: the caller has a way that is right in both cases."""
        if self.has_hint() and not self.context.general:
            return self.context.decide(self.condition)
        known = self.context.sizes.known(self.condition)
        return default if known is None else known

    guard_size_oblivious = guard_bool

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
    """A float that varies between calls, or that was computed from such numbers.

    Decisions about it are guards on the decision's outcome, so the value itself stays free. Only where torch wants a
    plain float is it fixed.

    Attributes:
        hint: its value at capture; None where only the run knows it.
        expression: what it is.
        ratio: (numerator, denominator) where it is a quotient of two ints, so that floor and ceil stay symbolic.
    """

    __slots__ = ("expression", "hint", "ratio")
    pytype = float

    def __init__(
        self,
        hint: float | None,
        expression: FloatExpr,
        context: NodeContext,
        ratio: tuple[Expr, Expr] | None = None,
    ) -> None:
        if hint is not None and type(hint) is not float:
            raise GraphBreak(breaks.SYMBOLIC_UNSUPPORTED, f"{expression} is a {type(hint).__name__}")
        self.hint = hint
        self.expression = expression
        self.context = context
        self.ratio = ratio

    def __repr__(self) -> str:
        return str(self.expression)

    def is_float(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return self.expression.is_constant

    def has_hint(self) -> bool:
        return self.hint is not None

    def maybe_as_float(self) -> float | None:
        return self.hint if self.expression.is_constant else None

    @property
    def constant(self) -> float | None:
        return self.maybe_as_float()

    @property
    def _hint(self) -> float | None:
        return self.hint

    @property
    def expr(self) -> Any:
        """A sympy view: fixes the value."""
        return sympy_float(self.fix())

    _expr = expr

    def _value_eq(self, other: Any) -> bool:
        return type(other) is FloatNode and self.expression is other.expression

    def _value_hash(self) -> int:
        return hash(self.expression)

    def fix(self) -> float:
        """The value at capture, guarded."""
        if self.hint is None:
            raise GraphBreak(breaks.DATA_DEPENDENT, f"the value of {self.expression}", self.context.location())
        for source in self.expression.ints:
            self.context.fix(source)
        if self.expression.floats:
            self._settle("repr", repr(self.hint))
        return self.hint

    def _settle(self, what: str, value: Any) -> None:
        """Guard that `what` of this float gives `value`."""
        text = self.expression.text
        # repr tells 0.0 from -0.0 and knows NaN; the guards' language has no repr.
        if what != "repr":
            self.context.settle(f"{what}({text}) == {value}", self.expression)
        elif math.isnan(self.hint):  # type: ignore[arg-type]  # `fix` has a value
            self.context.settle(f"{text} != {text}", self.expression)
        else:
            sign = "" if self.hint else f" and math.copysign(1.0, {text}) == {math.copysign(1.0, self.hint)}"  # type: ignore[arg-type]
            self.context.settle(f"{text} == {floats.constant(self.hint)}{sign}", self.expression)  # type: ignore[arg-type]

    def guard_float(self, file: Any = None, line: Any = 0) -> float:
        return self.fix()

    def guard_bool(self, file: Any = None, line: Any = 0) -> bool:
        return self._compare("ne", self.wrap_float(0.0)).guard_bool()

    def bool_(self) -> bool:
        return self.guard_bool()

    def sym_float(self) -> FloatNode:
        return self

    def sym_int(self) -> IntNode:
        return self.trunc()

    def _rounded(self, what: str, fn: Callable[[float], int]) -> IntNode:
        """An int that follows from the float: it is fixed, the float is not."""
        if self.hint is None:
            raise GraphBreak(breaks.DATA_DEPENDENT, f"{what}({self.expression})", self.context.location())
        value = fn(self.hint)
        self._settle(what, value)
        return self.wrap_int(value)

    def floor(self) -> IntNode:
        if self.ratio is not None:
            return IntNode(self.ratio[0] // self.ratio[1], self.context)
        return self._rounded("math.floor", math.floor)

    def ceil(self) -> IntNode:
        if self.ratio is not None:
            return IntNode(-(-self.ratio[0] // self.ratio[1]), self.context)
        return self._rounded("math.ceil", math.ceil)

    def trunc(self) -> IntNode:
        if self.ratio is not None and self.context.decide(conj(ge(self.ratio[0], 0), gt(self.ratio[1], 0))):
            return self.floor()
        return self._rounded("int", int)

    def round(self, ndigits: int | None = None) -> Any:
        if ndigits is None:
            return self._rounded("round", round)
        return self._derive(f"round({{}}, {int(ndigits)})", lambda a: round(a, int(ndigits)))

    def is_integer(self) -> BoolNode:
        return self._decided("{} == int({})", lambda a: a.is_integer(), self, self)

    def neg(self) -> FloatNode:
        return self._derive("(-{})", operator.neg)

    def abs(self) -> FloatNode:
        return self._derive("abs({})", abs)

    def pos(self) -> FloatNode:
        return self

    def _derive(self, template: str, fn: Callable[..., Any], *others: Any) -> FloatNode:
        return derived(self.context, template, fn, self, *others)

    def _decided(self, template: str, fn: Callable[..., bool], *operands: Any) -> BoolNode:
        hints = [_hint_of(o) for o in operands]
        expression = floats.combine(template, *map(_operand, operands))
        if None in hints:
            raise GraphBreak(breaks.DATA_DEPENDENT, str(expression), self.context.location())
        truth = fn(*hints)
        self.context.settle(str(expression) if truth else f"not ({expression})", expression)
        return self.wrap_bool(truth)

    def _compare(self, name: str, other: Any) -> BoolNode:
        return self._decided(f"{{}} {_COMPARISONS[name]} {{}}", getattr(operator, name), self, other)

    def pow(self, other: Any) -> FloatNode:
        power = other.maybe_as_float() if isinstance(other, FloatNode) else 1.0
        # A fractional power of a negative float would be a complex number.
        fractional = power is None or not power.is_integer()
        if fractional and not self._compare("ge", self.wrap_float(0.0)).maybe_as_bool():
            raise GraphBreak(breaks.SYMBOLIC_UNSUPPORTED, "a power of a negative float", self.context.location())
        return self._derive("({} ** {})", operator.pow, other)

    float_pow = pow

    def rpow(self, base: Any) -> FloatNode:
        return derived(self.context, "({} ** {})", operator.pow, base, self)


_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _hint_of(node: Any) -> Any:
    """The value at capture of an int or float node, None where only the run knows it."""
    return node.hint if isinstance(node, FloatNode) else node.context.seen(node.expression)


def _operand(node: Any) -> FloatExpr:
    return node.expression if isinstance(node, FloatNode) else floats.of_int(node.expression)


def derived(context: NodeContext, template: str, fn: Callable[..., Any], *operands: Any) -> FloatNode:
    """A float computed from int and float nodes: `fn` of their values, `template` of their texts."""
    hints = [_hint_of(o) for o in operands]
    expression = floats.combine(template, *map(_operand, operands))
    return FloatNode(None if None in hints else fn(*hints), expression, context)


for _name, _sign, _float_fn in (
    ("add", "+", operator.add), ("sub", "-", operator.sub), ("mul", "*", operator.mul), ("truediv", "/", operator.truediv),
    ("float_truediv", "/", operator.truediv), ("mod", "%", operator.mod), ("floordiv", "//", operator.floordiv),
):  # fmt: skip
    setattr(
        FloatNode, _name, lambda self, other, sign=_sign, fn=_float_fn: self._derive(f"({{}} {sign} {{}})", fn, other)
    )
for _name, _float_fn in (("min", min), ("max", max)):
    setattr(
        FloatNode,
        f"sym_{_name}",
        lambda self, other, n=_name, fn=_float_fn: self._derive(f"{n}({{}}, {{}})", fn, other),
    )
for _name in _COMPARISONS:
    setattr(FloatNode, _name, lambda self, other, name=_name: self._compare(name, other))


def _float_function(name: str, fn: Callable[[float], float]) -> None:
    setattr(FloatNode, f"sym_{name}", lambda self: self._derive(f"math.{name}({{}})", fn))
    setattr(IntNode, f"sym_{name}", lambda self: getattr(self.sym_float(), f"sym_{name}")())


for _name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2"):
    _float_function(_name, getattr(math, _name))


def _truth(value: bool) -> Condition:
    return eq(0, 0) if value else eq(0, 1)


def sym_int(expression: Expr, context: NodeContext) -> Any:
    """The torch.SymInt of an expression, or the int that it is."""
    return torch.SymInt(IntNode(expression, context)) if expression.value is None else expression.value  # type: ignore[arg-type]
