"""The node behind torch.SymFloat: its value at capture, and the expressions that it was computed from."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import final

from torchjit_core.expr import Expr, conj, constant, ge, gt, lt, ne
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.leaves import Function
from torchjit_fx.node_base import Node
from torchjit_fx.node_context import NodeContext
from torchjit_fx.symbols import floats
from torchjit_fx.symbols.floats import FloatExpr, Operand
from torchjit_fx.symbols.sympy_view import sympy_float

__all__ = ["COMPARISONS", "FUNCTIONS", "FloatNode", "derived"]


@final
class FloatNode(Node):
    """A float that varies between calls, or that was computed from such numbers.

    Decisions about it are guards on the decision's outcome, so the value itself stays free. Only where torch wants a
    plain float is it fixed.

    Attributes:
        hint: its value at capture; None where only the run knows it.
        expression: what it is.
        ratio: (numerator, denominator) where it is a quotient of two ints, so that floor and ceil stay symbolic.
        exact_for: the int of which it is the ratio only from 0 to `_EXACT`; None: always.
    """

    __slots__ = ("exact_for", "expression", "hint", "ratio")
    expression: FloatExpr
    exact_for: Expr | None
    pytype = float

    def __init__(
        self, hint: float | None, expression: FloatExpr, context: NodeContext, ratio: tuple[Expr, Expr] | None = None
    ) -> None:
        if hint is not None and type(hint) is not float:
            raise GraphBreak(breaks.SYMBOLIC_UNSUPPORTED, f"{expression} is a {type(hint).__name__}")
        self.hint = hint
        self.expression = expression
        self.context = context
        self.ratio = ratio
        self.exact_for = None

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
    def expr(self) -> Operand:
        """A sympy view: fixes the value."""
        return sympy_float(self.fix())

    _expr = expr

    def fix(self) -> float:
        """The value at capture, guarded."""
        if self.hint is None:
            raise GraphBreak(breaks.DATA_DEPENDENT, f"the value of {self.expression}", self.context.location())
        for source in self.expression.ints:
            self.context.fix(source)
        if self.expression.floats:
            self._settle("repr", repr(self.hint))
        return self.hint

    def _settle(self, what: str, value: Operand) -> None:
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

    def guard_float(self, file: object = None, line: object = 0) -> float:
        return self.fix()

    def guard_bool(self, file: object = None, line: object = 0) -> bool:
        return bool(self._compare("ne", self.wrap_float(0.0)).guard_bool())

    def bool_(self) -> bool:
        return self.guard_bool()

    def sym_float(self) -> FloatNode:
        return self

    pos = sym_float

    def sym_int(self) -> Operand:
        return self.trunc()

    def _rounded(self, what: str, fn: Callable[[float], int]) -> Operand:
        """An int that follows from the float: it is fixed, the float is not."""
        if self.hint is None:
            raise GraphBreak(breaks.DATA_DEPENDENT, f"{what}({self.expression})", self.context.location())
        value = fn(self.hint)
        self._settle(what, value)
        return self.wrap_int(value)

    def _quotient(self) -> tuple[Expr, Expr] | None:
        exact = self.exact_for is None or self.context.decide(conj(ge(self.exact_for, 0), lt(self.exact_for, _EXACT)))
        return self.ratio if exact else None

    def floor(self) -> Operand:
        ratio = self._quotient()
        if ratio is not None:
            return self.int_kind(ratio[0] // ratio[1], self.context)
        return self._rounded("math.floor", math.floor)

    def ceil(self) -> Operand:
        ratio = self._quotient()
        if ratio is not None:
            return self.int_kind(-(-ratio[0] // ratio[1]), self.context)
        return self._rounded("math.ceil", math.ceil)

    def trunc(self) -> Operand:
        if self.ratio is not None and self.context.decide(conj(ge(self.ratio[0], 0), gt(self.ratio[1], 0))):
            return self.floor()
        return self._rounded("int", int)

    def round(self, ndigits: int | None = None) -> Operand:
        if ndigits is None:
            return self._rounded("round", round)
        return self._derive(f"round({{}}, {int(ndigits)})", lambda a: round(a, int(ndigits)))

    def is_integer(self) -> Operand:
        return self._decided("{} == int({})", lambda a: a.is_integer(), self, self)

    def neg(self) -> FloatNode:
        return self._derive("(-{})", operator.neg)

    def abs(self) -> FloatNode:
        return self._derive("abs({})", abs)

    def _derive(self, template: str, fn: Function, *others: Operand) -> FloatNode:
        return derived(self.context, template, fn, self, *others)

    def _decided(self, template: str, fn: Callable[..., bool], *operands: Operand) -> Operand:
        hints = [_hint_of(o) for o in operands]
        expression = floats.combine(template, *map(_operand, operands))
        if None in hints:
            raise GraphBreak(breaks.DATA_DEPENDENT, str(expression), self.context.location())
        truth = fn(*hints)
        self.context.settle(str(expression) if truth else f"not ({expression})", expression)
        return self.wrap_bool(truth)

    def _compare(self, name: str, other: Operand) -> Operand:
        return self._decided(f"{{}} {COMPARISONS[name]} {{}}", getattr(operator, name), self, other)

    def pow(self, other: Operand) -> FloatNode:
        power = other.maybe_as_float() if isinstance(other, FloatNode) else 1.0
        # A fractional power of a negative float would be a complex number.
        fractional = power is None or not power.is_integer()
        if fractional and not self._compare("ge", self.wrap_float(0.0)).maybe_as_bool():
            raise GraphBreak(breaks.SYMBOLIC_UNSUPPORTED, "a power of a negative float", self.context.location())
        return self._derive("({} ** {})", operator.pow, other)

    float_pow = pow

    def rpow(self, base: Operand) -> FloatNode:
        return derived(self.context, "({} ** {})", operator.pow, base, self)


COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _hint_of(node: Operand) -> Operand:
    """The value at capture of an int or float node, None where only the run knows it."""
    return node.hint if isinstance(node, FloatNode) else node.context.seen(node.expression)


def _operand(node: Operand) -> FloatExpr:
    return node.expression if isinstance(node, FloatNode) else floats.of_int(node.expression)


def derived(context: NodeContext, template: str, fn: Function, *operands: Operand) -> FloatNode:
    """A float computed from int and float nodes: `fn` of their values, `template` of their texts.

    Where Python raises for other numbers, that it does not is relied on: the graph would raise past the program's `except`.
    """
    hints = [_hint_of(o) for o in operands]
    expression = floats.combine(template, *map(_operand, operands))
    if None in hints:
        return FloatNode(None, expression, context)
    result = fn(*hints)
    if fn in _DIVISIONS:
        divisor = operands[1]
        if not isinstance(divisor, FloatNode):
            context.decide(ne(divisor.expression, 0))
        elif divisor.ratio is not None:
            context.decide(ne(divisor.ratio[0], 0))
        elif divisor.expression.floats:  # one made of sizes is what the library divides by
            asked = floats.combine("{} != 0", _operand(divisor))
            context.settle(str(asked), asked)
    elif fn in _RAISING and (expression.floats or fn is operator.pow):
        # True for every number that it can be; the guard fails where computing it raises.
        context.settle(f"{expression} < 0 or 0 == 0", expression)
    made = FloatNode(result, expression, context)
    if fn is operator.mul:
        _note_ratio(made, operands)
    return made


def _note_ratio(product: FloatNode, operands: tuple[Operand, ...]) -> None:
    """A size times 0.5, 2.0 or 0.75 is a quotient of ints, which floats hold exactly as long as the size is not huge."""
    for number, factor in (operands, operands[::-1]):
        whole = _whole(number)
        value = factor.maybe_as_float() if isinstance(factor, FloatNode) else None
        if whole is None or value is None or not math.isfinite(value):
            continue
        above, below = value.as_integer_ratio()
        if max(abs(above), below) <= _PARTS:
            product.ratio, product.exact_for = (whole * above, constant(below)), whole


def _whole(node: Operand) -> Expr | None:
    """The int that a node is, or was."""
    if not isinstance(node, FloatNode):
        found: Expr = node.expression
        return found
    return node.ratio[0] if node.ratio is not None and node.ratio[1].value == 1 and node.exact_for is None else None


_PARTS = 2**16
_EXACT = 2**36
"""A product of an int below it and a float of which both parts are at most `_PARTS` has 52 bits."""
_DIVISIONS = frozenset({operator.truediv, operator.floordiv, operator.mod})
_RAISING = frozenset(
    {
        operator.pow,
        *(
            getattr(math, name)
            for name in floats.MATH_FUNCTIONS
            if name not in ("fabs", "copysign", "erf", "atan", "tanh")
        ),
    }
)


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
for _name in COMPARISONS:
    setattr(FloatNode, _name, lambda self, other, name=_name: self._compare(name, other))

FUNCTIONS = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")
"""Of `math`, which torch asks nodes for as `sym_sqrt` and so on."""
for _name in FUNCTIONS:
    setattr(FloatNode, f"sym_{_name}", lambda self, name=_name: self._derive(f"math.{name}({{}})", getattr(math, name)))
