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

_BINARY: dict[Any, str] = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "truediv", operator.mod: "mod",
    operator.floordiv: "floordiv", operator.pow: "pow", pow: "pow", min: "min", max: "max",
}  # fmt: skip
_COMPARE = {getattr(operator, name): name for name in ("lt", "le", "gt", "ge", "eq", "ne")}
_TEXTS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "mod": "%", "floordiv": "//"}
_UNARY = {operator.neg: "neg", operator.pos: "pos", abs: "abs", operator.abs: "abs"}
_INPLACE = {getattr(operator, f"i{n}"): getattr(operator, n) for n in (*_TEXTS, "pow")}
_ROUNDING = {math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc", round: "round"}
_MATH = {getattr(math, name): name for name in MATH_FUNCTIONS}
_QUESTIONS = {getattr(math, name): name for name in ("isnan", "isinf", "isfinite")}

ARITHMETIC: frozenset[Any] = frozenset(
    {*_BINARY, *_COMPARE, *_UNARY, *_INPLACE, *_ROUNDING, *_MATH, *_QUESTIONS, float.is_integer}
)
"""The callables that `calculate` knows."""


def calculate(fn: Function, nodes: list[Operand]) -> tuple[Any, Callable[..., Any]]:
    """What `fn` gives for int and float nodes, at least one of them a float's.

    Returns:
        The node of the result, and the function that the graph calls.

    Raises:
        GraphBreak: the result is no float, int or bool that can be followed.
    """
    fn = _INPLACE.get(fn, fn)
    first = next(n for n in nodes if isinstance(n, FloatNode))
    if fn in _COMPARE and len(nodes) == 2:
        name = _COMPARE[fn]
        sign = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}[name]
        return first._decided(f"{{}} {sign} {{}}", fn, *nodes), fn
    if fn in _BINARY and len(nodes) == 2:
        name = _BINARY[fn]
        if name == "pow":
            return (nodes[0].pow(nodes[1]) if isinstance(nodes[0], FloatNode) else nodes[1].rpow(nodes[0])), fn
        if name in ("min", "max"):
            return _extreme(name, fn, nodes), fn
        return derived(first.context, f"({{}} {_TEXTS[name]} {{}})", fn, *nodes), fn
    if fn in _UNARY and len(nodes) == 1:
        return getattr(first, _UNARY[fn])(), fn
    if fn in _ROUNDING:
        if len(nodes) == 1:
            return getattr(first, _ROUNDING[fn])(), fn
        if isinstance(nodes[0], FloatNode) and not isinstance(nodes[1], FloatNode):
            return first.round(nodes[1].guard_int(None, 0)), fn  # by the places that it has now
        raise GraphBreak(breaks.SYMBOLIC_UNSUPPORTED, "round")
    if fn in _MATH:
        template = f"math.{_MATH[fn]}({', '.join('{}' for _ in nodes)})"
        return derived(first.context, template, fn, *nodes), fn
    if fn in _QUESTIONS:
        return first._decided(f"math.{_QUESTIONS[fn]}({{}})", fn, first), fn
    if fn is float.is_integer:
        return first.is_integer(), fn
    raise GraphBreak(breaks.SYMBOLIC_UNSUPPORTED, getattr(fn, "__name__", repr(fn)))


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


def _extreme(name: str, fn: Function, nodes: list[Operand]) -> Operand:
    """Between two floats the larger or smaller; beside an int it may be the int, so which one is decided."""
    left, right = nodes
    if isinstance(left, FloatNode) and isinstance(right, FloatNode):
        return derived(left.context, f"{name}({{}}, {{}})", fn, left, right)
    number = left if isinstance(left, FloatNode) else right
    sign = "<" if name == "min" else ">"
    compare = operator.lt if name == "min" else operator.gt
    # As Python does it: the second one wins only where it is strictly better.
    takes_right = number._decided(f"{{}} {sign} {{}}", compare, right, left).maybe_as_bool()
    return right if takes_right else left
