"""From the text of a SymbolicCondition to code for the C stack machine."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from torchjit_guards._c import CONDITION_OPS

__all__ = ["MAX_DEPTH", "Unsupported", "compile_condition"]

MAX_DEPTH = 64
"""Of the C stack, and the most names of one condition (CONDITION_MAX_DEPTH in condition.h)."""

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "ADD", ast.Sub: "SUB", ast.Mult: "MUL", ast.FloorDiv: "FLOORDIV", ast.Mod: "MOD",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "EQ", ast.NotEq: "NE", ast.Lt: "LT", ast.LtE: "LE", ast.Gt: "GT", ast.GtE: "GE",
}  # fmt: skip

Code = list[tuple[int, int]]


class Unsupported(ValueError):
    """The expression is outside the machine's language: Python evaluates it instead."""


def compile_condition(expression: str, names: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    """Compile an integer condition.

    Args:
        expression: as in `SymbolicCondition.expression`.
        names: the number of each name.

    Returns:
        (opcode, immediate) pairs; the truth of the value left on the stack is the answer.

    Raises:
        Unsupported: something the machine cannot do.
    """
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError as error:
        raise Unsupported(expression) from error
    code: Code = []
    _emit(tree, names, code)
    if _depth(code) > MAX_DEPTH or len(names) > MAX_DEPTH:
        raise Unsupported("too deep")
    return tuple(code)


def _depth(code: Code) -> int:
    by_number = {number: name for name, number in CONDITION_OPS.items()}
    depth = most = 0
    for number, _ in code:
        name = by_number[number]
        depth += 1 if name in ("CONST", "NAME") else 0 if name in ("NEG", "NOT", "AND", "OR") else -1
        most = max(most, depth)
    return most


def _add(code: Code, name: str, imm: int = 0) -> None:
    code.append((CONDITION_OPS[name], imm))


def _emit(node: ast.expr, names: Mapping[str, int], code: Code) -> None:
    match node:
        case ast.Constant(value=bool() | int() as value) if -(2**63) <= value < 2**63:
            _add(code, "CONST", int(value))
        case ast.Name(id=name) if name in names:
            _add(code, "NAME", names[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _emit(operand, names, code)
            _add(code, "NEG")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _emit(operand, names, code)
            _add(code, "NOT")
        case ast.BinOp(op=ast.Pow(), left=left, right=ast.Constant(value=int() as power)) if 1 <= power <= 16:
            _emit_power(left, power, names, code)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
            _emit(left, names, code)
            _emit(right, names, code)
            _add(code, _BINARY[type(op)])
        case ast.BoolOp(op=op, values=values):
            _emit_short_circuit("AND" if isinstance(op, ast.And) else "OR", values, names, code)
        case ast.Compare(left=left, ops=ops, comparators=rights):
            _emit_compare(left, ops, rights, names, code)
        case ast.Call(func=ast.Name(id="min" | "max" as function), args=[first, *rest], keywords=[]) if rest:
            _emit(first, names, code)
            for argument in rest:
                _emit(argument, names, code)
                _add(code, function.upper())
        case _:
            raise Unsupported(ast.unparse(node))


def _emit_power(base: ast.expr, power: int, names: Mapping[str, int], code: Code) -> None:
    _emit(base, names, code)
    for _ in range(power - 1):
        _emit(base, names, code)
        _add(code, "MUL")


def _emit_short_circuit(op: str, values: list[ast.expr], names: Mapping[str, int], code: Code) -> None:
    jumps: list[int] = []
    for index, value in enumerate(values):
        if index:
            jumps.append(len(code))
            _add(code, op)
            _add(code, "POP")
        _emit(value, names, code)
    for at in jumps:
        code[at] = (code[at][0], len(code))


def _emit_compare(
    left: ast.expr, ops: list[ast.cmpop], rights: list[ast.expr], names: Mapping[str, int], code: Code
) -> None:
    pairs = list(zip(ops, [left, *rights], rights, strict=False))
    jumps: list[int] = []
    for index, (op, first, second) in enumerate(pairs):
        if type(op) not in _COMPARE:
            raise Unsupported(type(op).__name__)
        if index:
            jumps.append(len(code))
            _add(code, "AND")
            _add(code, "POP")
        _emit(first, names, code)
        _emit(second, names, code)
        _add(code, _COMPARE[type(op)])
    for at in jumps:
        code[at] = (code[at][0], len(code))
