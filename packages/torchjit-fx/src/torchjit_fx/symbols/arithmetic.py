"""Python arithmetic on floats that vary: from operands' nodes to the result's node."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.leaves import Function
from torchjit_fx.symbols.float_node import FloatNode, derived
from torchjit_fx.symbols.floats import MATH_FUNCTIONS, Operand

__all__ = ["ARITHMETIC", "calculate"]

_JOINED = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.mod: "%", operator.floordiv: "//",
}  # fmt: skip
_COMPARED = {
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
}  # fmt: skip
_UNARY = {operator.neg: "neg", operator.pos: "pos", abs: "abs", operator.abs: "abs", float.is_integer: "is_integer"}
_INPLACE = {
    getattr(operator, f"i{n}"): getattr(operator, n) for n in ("add", "sub", "mul", "truediv", "mod", "floordiv", "pow")
}
_ROUNDING = {math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc", round: "round"}
_MATH = {getattr(math, name): name for name in MATH_FUNCTIONS}
_QUESTIONS = {getattr(math, name): name for name in ("isnan", "isinf", "isfinite")}


def calculate(fn: Function, nodes: list[Operand]) -> tuple[Any, Callable[..., Any]]:
    """What `fn` gives for int and float nodes, at least one of them a float's.

    Returns:
        The node of the result, and the function that the graph calls.

    Raises:
        GraphBreak: the result is no float, int or bool that can be followed.
    """
    fn = _INPLACE.get(fn, fn)
    first = next(n for n in nodes if isinstance(n, FloatNode))
    rule = _RULES.get((fn, len(nodes)))
    if rule is None:
        raise GraphBreak(breaks.SYMBOLIC_UNSUPPORTED, getattr(fn, "__name__", repr(fn)))
    return rule(first, fn, nodes), fn


def _compared(first: FloatNode, fn: Function, nodes: list[Operand]) -> Operand:
    return first._decided(f"{{}} {_COMPARED[fn]} {{}}", fn, *nodes)


def _joined(first: FloatNode, fn: Function, nodes: list[Operand]) -> Operand:
    return derived(first.context, f"({{}} {_JOINED[fn]} {{}})", fn, *nodes)


def _power(first: FloatNode, fn: Function, nodes: list[Operand]) -> Operand:
    base, exponent = nodes
    return base.pow(exponent) if isinstance(base, FloatNode) else exponent.rpow(base)


def _rounded_to(first: FloatNode, fn: Function, nodes: list[Operand]) -> Operand:
    number, places = nodes
    if not isinstance(number, FloatNode) or isinstance(places, FloatNode):
        raise GraphBreak(breaks.SYMBOLIC_UNSUPPORTED, "round")
    return number.round(places.guard_int(None, 0))  # by the places that it has now


def _of_math(first: FloatNode, fn: Function, nodes: list[Operand]) -> Operand:
    return derived(first.context, f"math.{_MATH[fn]}({', '.join('{}' for _ in nodes)})", fn, *nodes)


def _answered(first: FloatNode, fn: Function, nodes: list[Operand]) -> Operand:
    return first._decided(f"math.{_QUESTIONS[fn]}({{}})", fn, first)


def _extreme(first: FloatNode, fn: Function, nodes: list[Operand]) -> Operand:
    """Between two floats the larger or smaller; beside an int it may be the int, so which one is decided."""
    left, right = nodes
    if isinstance(left, FloatNode) and isinstance(right, FloatNode):
        return derived(left.context, f"{fn.__name__}({{}}, {{}})", fn, left, right)
    compare = operator.lt if fn is min else operator.gt
    # As Python does it: the second one wins only where it is strictly better.
    takes_right = first._decided(f"{{}} {_COMPARED[compare]} {{}}", compare, right, left).maybe_as_bool()
    return right if takes_right else left


def _method(name: str) -> Callable[[FloatNode, Function, list[Operand]], Operand]:
    return lambda first, fn, nodes: getattr(first, name)()


_RULES: dict[tuple[Any, int], Callable[[FloatNode, Function, list[Operand]], Operand]] = {
    **{(fn, 2): _compared for fn in _COMPARED},
    **{(fn, 2): _joined for fn in _JOINED},
    **{(fn, 2): _power for fn in (operator.pow, pow)},
    **{(fn, 2): _extreme for fn in (min, max)},
    **{(fn, 1): _method(name) for fn, name in (_UNARY | _ROUNDING).items()},
    (round, 2): _rounded_to,
    **{(fn, count): _of_math for fn in _MATH for count in (1, 2)},
    **{(fn, 1): _answered for fn in _QUESTIONS},
}
"""By the callable and the number of its arguments."""
ARITHMETIC: frozenset[Any] = frozenset({*(fn for fn, _ in _RULES), *_INPLACE})
"""The callables that `calculate` knows."""


def calculated(self: FloatNode, fn: Function, values: Sequence[Any]) -> Operand:
    """`fn` of Python and torch numbers, one of them this float: for graphs that are run again on symbolic numbers.

    Returns:
        A torch.SymFloat, torch.SymInt or constant; NotImplemented where `fn` is no arithmetic or another kind of
        value is involved.
    """
    if not _is_arithmetic(fn):
        return NotImplemented
    wrap = {float: self.wrap_float, int: self.wrap_int, bool: self.wrap_int}
    nodes: list[Any] = []
    for value in values:
        if isinstance(value, torch.SymInt | torch.SymFloat):
            nodes.append(value.node)
        elif type(value) in wrap:
            nodes.append(wrap[type(value)](value))
        else:
            return NotImplemented
    node, _ = calculate(fn, nodes)
    if node.constant is not None:
        return node.constant
    wrap_node: Operand = torch.SymFloat if isinstance(node, FloatNode) else torch.SymInt
    return wrap_node(node)


def _is_arithmetic(fn: Function) -> bool:
    try:
        return fn in ARITHMETIC
    except TypeError:
        return False


FloatNode.calculate = calculated  # type: ignore[attr-defined]  # it needs this module's tables
