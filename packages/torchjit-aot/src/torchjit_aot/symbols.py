"""Symbolic numbers as graph nodes.

While a graph is traced, sizes are `SymInt`s that carry an expression over symbols. An operator's argument that is such
a number becomes a node: the placeholder that brings the symbol, `aten.sym_size` or `aten.sym_stride` of an input, or
arithmetic on them. torchjit's integer expressions are walked, each part once; others (floats, conditions, torch's own of sympy) are
read as Python text.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import torch
from torch import fx
from torch.fx.node import Target

from torchjit_aot.refusals import SYMBOLIC_EXPRESSION
from torchjit_core.expr import Expr, Operation
from torchjit_core.reasons import GraphBreak

__all__ = ["SYMBOLIC_TYPES", "SymbolNodes", "calculate", "expression_of"]

SYMBOLIC_TYPES = (torch.SymInt, torch.SymFloat, torch.SymBool)
Function: TypeAlias = Callable[..., Any]
Symbolic: TypeAlias = "torch.SymInt | torch.SymFloat | torch.SymBool"


def expression_of(value: Any) -> Any:
    """The expression behind a symbolic number: `node.expression` of torchjit's own node, else torch's sympy one."""
    node = value.node
    found = getattr(node, "expression", None)
    return node.expr if found is None else found


def calculate(fn: Target, values: Sequence[Any]) -> Any:
    """Python arithmetic where a float varies and no tensor is involved, if the float's node knows how; else NotImplemented.

    torch's own operators on SymFloats are narrower than Python's on floats (no negative bases, none of `math`).
    """
    node = next((v.node for v in values if isinstance(v, torch.SymFloat)), None)
    if node is None or not hasattr(node, "calculate"):
        return NotImplemented
    return node.calculate(fn, values)


def _ceil_div(a: Any, b: Any) -> Any:
    return -(-a // b)


def _sqrt(a: Any) -> Any:
    return torch.sym_float(a) ** 0.5


def _where(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


_BINARY: dict[type[ast.AST], Function] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.AST], Function] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CALLS: dict[str, Function] = {
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "PythonMod": operator.mod,
    "Mod": operator.mod,
    "Max": torch.sym_max,
    "Min": torch.sym_min,
    "max": torch.sym_max,
    "min": torch.sym_min,
    "CeilToInt": math.ceil,
    "CeilDiv": _ceil_div,
    "FloorToInt": math.floor,
    "TruncToInt": torch.sym_int,
    "ToFloat": torch.sym_float,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "FloatPow": operator.pow,
    "PowByNatural": operator.pow,
    "OpaqueUnaryFn_sqrt": _sqrt,
    "sqrt": _sqrt,
    "Abs": abs,
    "abs": abs,
    "float": torch.sym_float,
    "round": round,
    "Eq": operator.eq,
    "Ne": operator.ne,
    "Where": _where,
}

_OPERATIONS = {"floordiv": operator.floordiv, "mod": operator.mod, "max": torch.sym_max, "min": torch.sym_min}


@final
class SymbolNodes:
    """Knows, for one graph under construction, which node gives the value of an expression.

    Args:
        graph: where nodes are added, at the current insertion point.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self._by_text: dict[str, fx.Node] = {}
        self._sizes: dict[str, tuple[fx.Node, Any, tuple[Any, ...], Any]] = {}
        self._by_expr: dict[Expr | Operation, fx.Node] = {}
        self._texts: dict[Expr, str] = {}  # of those in `_sizes`

    def bind(self, value: Symbolic, node: fx.Node) -> None:
        """`node` gives `value`."""
        expression = expression_of(value)
        self._by_text.setdefault(str(expression), node)
        if isinstance(expression, Expr):
            self._by_expr.setdefault(expression, node)

    def bind_sizes(self, tensor: torch.Tensor, node: fx.Node) -> None:
        """The sizes, strides and offset of a graph input may serve to find symbols."""
        for query, values in (
            (torch.ops.aten.sym_size.int, tensor.shape),
            (torch.ops.aten.sym_stride.int, tensor.stride()),
        ):
            for dim, value in enumerate(values):
                if isinstance(value, torch.SymInt):
                    expression = expression_of(value)
                    text = str(expression)
                    self._sizes.setdefault(text, (node, query, (dim,), value))
                    if isinstance(expression, Expr):
                        self._texts.setdefault(expression, text)

    def bind_unknown(self, tensor: torch.Tensor, node: fx.Node) -> None:
        """A size that this result is the first to have (it depends on data) is found on it."""
        for dim, value in enumerate(tensor.shape):
            if isinstance(value, torch.SymInt):
                text = str(expression_of(value))
                if text.isidentifier() and text not in self._by_text and text not in self._sizes:
                    self._sizes[text] = (node, torch.ops.aten.sym_size.int, (dim,), value)

    def source(self, text: str) -> fx.Node | None:
        """The node that a symbol was first seen at."""
        return self._sizes[text][0] if text in self._sizes else self._by_text.get(text)

    def node_for(self, value: Symbolic) -> fx.Node | int | float | bool:
        """The node that gives `value`, or its constant.

        Raises:
            GraphBreak: the expression cannot be written with what the graph's inputs bring.
        """
        expression = expression_of(value)
        if isinstance(expression, Expr):
            known: fx.Node | int = self._of_expr(expression)
            return known
        text = str(expression)
        made = self.node_of_text(text)
        if isinstance(made, fx.Node) and text not in self._by_text:
            made.meta["val"] = value
            self._by_text[text] = made
        return made

    def _of_expr(self, e: Expr) -> Any:
        if e.value is not None:
            return e.value
        found = self._by_expr.get(e)
        if found is None and e in self._texts:
            found = self._lookup(self._texts[e])
        if found is not None:
            self._by_expr[e] = found
            return found
        if e.as_symbol is not None:
            made = self._of_atom(e.as_symbol)
        else:
            made = None
            for monomial, coefficient in sorted(e.terms, key=lambda term: not term[0]):  # the constant at the end
                term: Any = None if coefficient == 1 and monomial else coefficient
                for atom, power in monomial:
                    for _ in range(power):
                        factor = self._of_atom(atom)
                        term = factor if term is None else self._call(operator.mul, term, factor)
                made = term if made is None else self._call(operator.add, made, term)
        self._by_expr[e] = made
        return made

    def _of_atom(self, atom: Any) -> Any:
        if not isinstance(atom, Operation):
            found = self._lookup(atom.name)
            if found is None:
                raise GraphBreak(SYMBOLIC_EXPRESSION, str(atom.name))
            return found
        if atom not in self._by_expr:
            left, right = self._of_expr(atom.left), self._of_expr(atom.right)
            self._by_expr[atom] = self._call(_OPERATIONS[atom.kind], left, right)
        return self._by_expr[atom]

    def node_of_text(self, text: str) -> fx.Node | int | float | bool:
        """The node that computes a Python expression over the graph's symbols, or its constant.

        Raises:
            GraphBreak: it cannot be written.
        """
        found = self._lookup(text)
        if found is not None:
            return found
        try:
            tree = ast.parse(text, mode="eval").body
        except SyntaxError:
            raise GraphBreak(SYMBOLIC_EXPRESSION, text) from None
        made: fx.Node | int | float | bool = self._build(tree)
        return made

    def _lookup(self, text: str) -> fx.Node | None:
        found = self._by_text.get(text)
        if found is None and text in self._sizes:
            tensor, query, args, value = self._sizes[text]
            with self.graph.inserting_after(tensor):
                found = self.graph.call_function(query, (tensor, *args))
            found.meta["val"] = value
            self._by_text[text] = found
        return found

    def _build(self, tree: ast.expr) -> Any:
        found = self._lookup(ast.unparse(tree))
        if found is not None:
            return found
        match tree:
            case ast.Constant(value=bool() | int() | float() as constant):
                return constant
            case ast.Name(id="True" | "False" as name):
                return name == "True"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._call(operator.neg, self._build(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self._call(_BINARY[type(op)], self._build(left), self._build(right))
            case ast.BoolOp(op=op, values=values):
                join = operator.and_ if isinstance(op, ast.And) else operator.or_
                made = self._build(values[0])
                for part in values[1:]:
                    made = self._call(join, made, self._build(part))
                return made
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._call(operator.not_, self._build(operand))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return self._call(_COMPARE[type(op)], self._build(left), self._build(right))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
                return self._call(_CALLS[name], *(self._build(a) for a in args))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="math"), attr=name), args=args, keywords=[]):
                return self._call(getattr(math, name), *(self._build(a) for a in args))
        raise GraphBreak(SYMBOLIC_EXPRESSION, ast.unparse(tree))

    def _call(self, fn: Function, *args: Any) -> Any:
        if not any(isinstance(a, fx.Node) for a in args):
            return fn(*args)
        node = self.graph.call_function(fn, args)
        values = [a.meta.get("val") if isinstance(a, fx.Node) else a for a in args]
        try:
            made = calculate(fn, values)
            node.meta["val"] = fn(*values) if made is NotImplemented else made
        except (TypeError, ValueError):
            node.meta["val"] = None
        return node
