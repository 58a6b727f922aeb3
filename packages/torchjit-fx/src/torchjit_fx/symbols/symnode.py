"""The nodes behind torch.SymInt, SymBool and SymFloat, over the project's own integer expressions.

torch's C++ calls these methods through `PythonSymNodeImpl` (torch/csrc/utils/python_symnode.h, identical in 2.11 and
2.15), torch's Python through the magic methods in torch/fx/experimental/sym_node.py. An int node holds an `Expr`, a bool
node a `Condition`. The float node lies in `float_node`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from torchjit_core.expr import Condition, Expr, conj, constant, disj, eq, ge, gt, le, lt, maximum, minimum, ne, negate
from torchjit_fx.node_base import Node, truth
from torchjit_fx.node_context import NodeContext
from torchjit_fx.symbols import layouts
from torchjit_fx.symbols.float_node import COMPARISONS, FUNCTIONS, FloatNode, derived
from torchjit_fx.symbols.floats import Operand
from torchjit_fx.symbols.sympy_view import sympy_bool, sympy_int

__all__ = ["BoolNode", "IntNode", "sym_int"]


@final
class IntNode(Node):
    """An int: `expression`."""

    __slots__ = ("expression",)
    expression: Expr
    pytype = int

    def __init__(self, expression: Expr, context: NodeContext) -> None:
        self.expression = expression
        self.context = context

    def is_int(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return self.expression.value is not None

    def maybe_as_int(self) -> int | None:
        return self.expression.value

    def has_hint(self) -> bool:
        return not self.context.is_fresh(self.expression.symbols)

    constant = property(maybe_as_int)

    @property
    def hint(self) -> int | None:
        return self.context.seen(self.expression)

    _hint = hint

    def require_hint(self, fallback: Any = None) -> int:
        found = self.hint
        return found if found is not None else self.context.sizes.hint(self.expression)

    @property
    def expr(self) -> Operand:
        """A sympy view, for torch code that asks for one."""
        return sympy_int(self.expression)

    _expr = expr

    def int_(self) -> int:
        return self.context.fix(self.expression)

    def guard_int(self, file: object, line: object) -> int:
        return self.context.fix(self.expression)

    def guard_float(self, file: object, line: object) -> float:
        return float(self.context.fix(self.expression))

    def guard_bool(self, file: object, line: object) -> bool:
        return self.context.decide(ne(self.expression, 0))

    bool_ = functools.partialmethod(guard_bool, None, 0)

    def sym_float(self) -> FloatNode:
        made = derived(self.context, "float({})", float, self)
        made.ratio = (self.expression, constant(1))
        return made

    def int_truediv(self, other: Operand) -> FloatNode:
        if isinstance(other, FloatNode):
            return derived(self.context, "({} / {})", operator.truediv, self, other)
        made = derived(self.context, "({} / {})", operator.truediv, self, other)
        made.ratio = (self.expression, other.expression)
        return made

    truediv = int_truediv

    def pow_by_natural(self, other: Operand) -> Operand:
        if isinstance(other, FloatNode):
            return other.rpow(self)
        return IntNode(self.expression ** self.context.fix(other.expression), self.context)

    pow = pow_by_natural

    def lshift(self, other: Operand) -> IntNode:
        return IntNode(self.expression * 2 ** self.context.fix(other.expression), self.context)

    def rshift(self, other: Operand) -> IntNode:
        return IntNode(self.expression // 2 ** self.context.fix(other.expression), self.context)

    def abs(self) -> IntNode:
        return self if self.context.decide(ge(self.expression, 0)) else IntNode(-self.expression, self.context)

    def neg(self) -> IntNode:
        return IntNode(-self.expression, self.context)

    def sym_sum(self, terms: Sequence[Operand]) -> IntNode:
        return IntNode(sum((t.expression for t in terms), constant(0)), self.context)

    def floor(self) -> IntNode:
        return self

    ceil = trunc = pos = sym_int = floor

    def round(self, ndigits: int | None = None) -> IntNode:
        return self

    def _fixed(self, other: Operand, fn: Callable[[int, int], int]) -> IntNode:
        return IntNode(
            constant(fn(self.context.fix(self.expression), self.context.fix(other.expression))), self.context
        )

    def bitwise_and(self, other: Operand) -> IntNode:
        return self._fixed(other, operator.and_)

    def bitwise_or(self, other: Operand) -> IntNode:
        return self._fixed(other, operator.or_)

    def bitwise_xor(self, other: Operand) -> IntNode:
        return self._fixed(other, operator.xor)


def _int_operation(name: str, fn: Callable[[Expr, Expr], Expr]) -> None:
    """Between ints; with a float on the right Python's rule makes a float."""

    def operation(self: IntNode, other: Operand) -> Operand:
        if isinstance(other, FloatNode):
            template = f"({{}} {_SIGNS[name]} {{}})" if name in _SIGNS else f"{name.removeprefix('sym_')}({{}}, {{}})"
            return derived(self.context, template, _PLAIN[name], self, other)
        if name in _DIVISIONS and other.expression.value is None:
            self.context.divisor(other.expression)
        return IntNode(self.context.kept_short(fn(self.expression, other.expression)), self.context)

    setattr(IntNode, name, operation)


_DIVISIONS = frozenset({"mod", "floordiv", "int_floordiv"})
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "mod": "%", "floordiv": "//", "int_floordiv": "//"}
_PLAIN: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "mod": operator.mod, "floordiv": operator.floordiv,
    "int_floordiv": operator.floordiv, "sym_min": min, "sym_max": max,
}  # fmt: skip


def _comparison(name: str, fn: Callable[[Any, Any], Condition]) -> None:
    def compare(self: IntNode, other: Operand) -> Operand:
        if isinstance(other, FloatNode):
            return other._decided(f"{{}} {COMPARISONS[name]} {{}}", getattr(operator, name), self, other)
        return BoolNode(fn(self.expression, other.expression), self.context)

    setattr(IntNode, name, compare)


for _name, _fn in {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "mod": operator.mod, "floordiv": operator.floordiv,
    "int_floordiv": operator.floordiv, "sym_min": minimum, "sym_max": maximum,
}.items():  # fmt: skip
    _int_operation(_name, _fn)
for _name, _compare in {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}.items():
    _comparison(_name, _compare)


def _layout_question(rule: Callable[..., Condition]) -> Callable[..., BoolNode]:
    return lambda self, sizes, strides: BoolNode(
        rule([n.expression for n in sizes], [n.expression for n in strides], self.context), self.context
    )


for _name in layouts.__all__:
    setattr(IntNode, _name, _layout_question(getattr(layouts, _name)))
IntNode.is_non_overlapping_and_dense_indicator = lambda self, *layout: self.wrap_int(  # type: ignore[attr-defined]
    self.is_non_overlapping_and_dense(*layout).guard_bool()
)


@final
class BoolNode(Node):
    """A bool: `condition`."""

    __slots__ = ("condition",)
    pytype = bool

    def __init__(self, condition: Condition, context: NodeContext) -> None:
        if condition.kind not in ("true", "false"):
            known = context.sizes.known(condition)
            if known is not None:
                condition = truth(known)
        self.condition = condition
        self.context = context

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
    def expr(self) -> Operand:
        """A sympy view."""
        return sympy_bool(self.condition)

    _expr = expr

    def guard_bool(self, file: object = None, line: object = 0) -> bool:
        return self.context.decide(self.condition)

    def expect_true(self, file: object = None, line: object = 0) -> bool:
        return self.stated(None)

    def stated(self, text: str | None) -> bool:
        """Decided, or for the run to test: `text` is the error then."""
        if self.has_hint() or self.is_constant() or self.context.sizes.known(self.condition) is not None:
            return self.context.decide(self.condition)
        self.context.assume(self.condition, text)
        return True

    def bool_(self) -> bool:
        return self.context.decide(self.condition)

    def guard_int(self, file: object, line: object) -> int:
        return int(self.context.decide(self.condition))

    def guard_or_false(self, file: object = None, line: object = 0) -> bool:
        return self._or(False)

    def guard_or_true(self, file: object = None, line: object = 0) -> bool:
        return self._or(True)

    def _or(self, default: bool) -> bool:
        """Decided, but `default` where only the run knows: the caller has a way that is right in both cases."""
        if self.has_hint() and not self.context.general:
            return self.context.decide(self.condition)
        known = self.context.sizes.known(self.condition)
        return default if known is None else known

    guard_size_oblivious = guard_bool

    def statically_known_true(self, file: object = None, line: object = 0) -> bool:
        return self.maybe_as_bool() is True or self.context.sizes.known(self.condition) is True

    def sym_and(self, other: Operand) -> BoolNode:
        return BoolNode(conj(self.condition, other.condition), self.context)

    def sym_or(self, other: Operand) -> BoolNode:
        return BoolNode(disj(self.condition, other.condition), self.context)

    and_, or_ = sym_and, sym_or

    def sym_not(self) -> BoolNode:
        return BoolNode(negate(self.condition), self.context)

    def eq(self, other: Operand) -> BoolNode:
        same = disj(conj(self.condition, other.condition), conj(negate(self.condition), negate(other.condition)))
        return BoolNode(same, self.context)

    def ne(self, other: Operand) -> BoolNode:
        return self.eq(other).sym_not()

    xor = ne

    def sym_ite(self, then: Any, otherwise: Any) -> Operand:
        return then if self.context.decide(self.condition) else otherwise


for _name in FUNCTIONS:
    setattr(IntNode, f"sym_{_name}", lambda self, name=f"sym_{_name}": getattr(self.sym_float(), name)())
Node.int_kind, Node.bool_kind, Node.float_kind = IntNode, BoolNode, FloatNode


def sym_int(expression: Expr, context: NodeContext) -> Operand:
    """The torch.SymInt of an expression, or the int that it is."""
    return torch.SymInt(IntNode(expression, context)) if expression.value is None else expression.value  # type: ignore[arg-type]
