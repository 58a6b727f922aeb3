"""Breaking instructions as Python statements: what each does when it is executed for real between two regions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, final

import attrs

from torchjit_vm.capture import runtime
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.type_slots import Op
from torchjit_vm.capture.values import Value
from torchjit_vm.frame import Frame
from torchjit_vm.instructions.calls import callee

__all__ = ["FORMS", "Form", "Outcome"]

Texts = list["str | None"]


@final
@attrs.frozen
class Outcome:
    """How execution goes on after the instruction.

    Attributes:
        condition: an expression; None for "otherwise".
        pops: entries that the instruction takes off the stack.
        pushes: expressions that it puts there; None is NULL.
        target: index of the next instruction; None for the following one.
        interrupted: a variable for an exception that came once the instruction had entered the block that follows it: None, or a
            list of it.
    """

    condition: str | None
    pops: int
    pushes: tuple[str | None, ...]
    target: int | None = None
    interrupted: str | None = None


@final
@attrs.frozen
class Form:
    """Statements that do what the instruction does, and its outcomes (the last one is "otherwise")."""

    lines: tuple[str, ...]
    outcomes: tuple[Outcome, ...]


Maker = Callable[[Rebuilder, "Frame[Value]", Any, Texts], Form]
FORMS: dict[str, Maker] = {}
"""Canonical name to a maker: emitter, frame, canonical argument, expressions of the stack entries."""


def _form(*names: str) -> Callable[[Maker], Maker]:
    def register(maker: Maker) -> Maker:
        for name in names:
            FORMS[name] = maker
        return maker

    return register


def _value(out: Rebuilder, expression: str, pops: int) -> Form:
    name = out.fresh("r")
    return Form((f"{name} = {expression}",), (Outcome(None, pops, (name,)),))


def _nothing(statement: str, pops: int) -> Form:
    return Form((statement,), (Outcome(None, pops, ()),))


_BINARY = {
    operator.add: "+", operator.and_: "&", operator.floordiv: "//", operator.lshift: "<<", operator.matmul: "@",
    operator.mul: "*", operator.mod: "%", operator.or_: "|", operator.pow: "**", operator.rshift: ">>",
    operator.sub: "-", operator.truediv: "/", operator.xor: "^",
}  # fmt: skip
_INPLACE = {
    operator.iadd: "+=", operator.iand: "&=", operator.ifloordiv: "//=", operator.ilshift: "<<=",
    operator.imatmul: "@=", operator.imul: "*=", operator.imod: "%=", operator.ior: "|=", operator.ipow: "**=",
    operator.irshift: ">>=", operator.isub: "-=", operator.itruediv: "/=", operator.ixor: "^=",
}  # fmt: skip
_COMPARE = {
    operator.lt: "<", operator.le: "<=", operator.eq: "==", operator.ne: "!=", operator.gt: ">", operator.ge: ">=",
}  # fmt: skip
_UNARY = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}
_CONVERTERS = ("", "str", "repr", "ascii")
_Template = Callable[[Any, Texts], str]
_EXPRESSIONS: dict[str, tuple[int, _Template]] = {
    "UNARY_OP": (1, lambda arg, stack: f"{_UNARY[arg]}{stack[-1]}"),
    "UNARY_NOT": (1, lambda arg, stack: f"not {stack[-1]}"),
    "TO_BOOL": (1, lambda arg, stack: f"bool({stack[-1]})"),
    "COMPARE_OP": (2, lambda arg, stack: f"{stack[-2]} {_COMPARE[arg]} {stack[-1]}"),
    "COMPARE_OP_BOOL": (2, lambda arg, stack: f"bool({stack[-2]} {_COMPARE[arg]} {stack[-1]})"),
    "IS_OP": (2, lambda arg, stack: f"{stack[-2]} {'is not' if arg else 'is'} {stack[-1]}"),
    "CONTAINS_OP": (2, lambda arg, stack: f"{stack[-2]} {'not in' if arg else 'in'} {stack[-1]}"),
    "BINARY_SUBSCR": (2, lambda arg, stack: f"{stack[-2]}[{stack[-1]}]"),
    "BINARY_SLICE": (3, lambda arg, stack: f"{stack[-3]}[{stack[-2]}:{stack[-1]}]"),
    "LOAD_ATTR": (1, lambda arg, stack: f"{_dotted(stack[-1])}.{arg}"),
    "GET_ITER": (1, lambda arg, stack: f"iter({stack[-1]})"),
    "CONVERT_VALUE": (1, lambda arg, stack: f"{_CONVERTERS[arg]}({stack[-1]})"),
    "FORMAT_SIMPLE": (1, lambda arg, stack: f"format({stack[-1]})"),
    "FORMAT_WITH_SPEC": (2, lambda arg, stack: f"format({_CONVERTERS[arg]}({stack[-2]}), {stack[-1]})"),
    "WITH_EXCEPT_START": (
        0,
        lambda arg, stack: "{0}({1}.__class__, {1}, {1}.__traceback__)".format(stack[-4], stack[-1]),
    ),
    "CHECK_EXC_MATCH": (1, lambda arg, stack: f"isinstance({stack[-2]}, {stack[-1]})"),
}
"""How many entries the instruction takes off the stack, and the expression for what it puts there."""
_STATEMENTS: dict[str, tuple[int, _Template]] = {
    "STORE_SUBSCR": (3, lambda arg, stack: f"{stack[-2]}[{stack[-1]}] = {stack[-3]}"),
    "STORE_SLICE": (4, lambda arg, stack: f"{stack[-3]}[{stack[-2]}:{stack[-1]}] = {stack[-4]}"),
    "DELETE_SUBSCR": (2, lambda arg, stack: f"del {stack[-2]}[{stack[-1]}]"),
    "STORE_ATTR": (2, lambda arg, stack: f"{_dotted(stack[-1])}.{arg} = {stack[-2]}"),
    "DELETE_ATTR": (1, lambda arg, stack: f"del {_dotted(stack[-1])}.{arg}"),
    "LIST_EXTEND": (1, lambda arg, stack: f"{stack[-1 - arg]}.extend({stack[-1]})"),
    "SET_UPDATE": (1, lambda arg, stack: f"{stack[-1 - arg]}.update({stack[-1]})"),
    "DICT_UPDATE": (1, lambda arg, stack: f"{stack[-1 - arg]}.update({stack[-1]})"),
    "SET_ADD": (1, lambda arg, stack: f"{stack[-1 - arg]}.add({stack[-1]})"),
    "MAP_ADD": (2, lambda arg, stack: f"{stack[-2 - arg]}[{stack[-2]}] = {stack[-1]}"),
}
"""The same for instructions that put nothing there."""


def _by_template(pops: int, template: _Template, *, gives: bool) -> Maker:
    if gives:
        return lambda out, frame, arg, stack: _value(out, template(arg, stack), pops)
    return lambda out, frame, arg, stack: _nothing(template(arg, stack), pops)


FORMS |= {name: _by_template(*row, gives=True) for name, row in _EXPRESSIONS.items()}
FORMS |= {name: _by_template(*row, gives=False) for name, row in _STATEMENTS.items()}


@_form("BINARY_OP")
def _binary(out: Rebuilder, frame: Frame[Value], arg: Op, stack: Texts) -> Form:
    if arg in _BINARY:
        return _value(out, f"{stack[-2]} {_BINARY[arg]} {stack[-1]}", 2)
    name = out.fresh("r")
    lines = (f"{name} = {stack[-2]}", f"{name} {_INPLACE[arg]} {stack[-1]}")
    return Form(lines, (Outcome(None, 2, (name,)),))


@_form("LOAD_METHOD", "LOAD_METHOD_NULL_LAST")
def _method(out: Rebuilder, frame: Frame[Value], arg: object, stack: Texts) -> Form:
    name = out.fresh("r")
    last = frame.code.names[frame.pc - 1].endswith("NULL_LAST")
    pushes: tuple[str | None, ...] = (name, None) if last else (None, name)
    return Form((f"{name} = {_dotted(stack[-1])}.{arg}",), (Outcome(None, 1, pushes),))


@_form("LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD", "LOAD_SUPER_METHOD_NULL_LAST")
def _super(out: Rebuilder, frame: Frame[Value], arg: object, stack: Texts) -> Form:
    name = out.fresh("r")
    pushes: tuple[str | None, ...] = {
        "LOAD_SUPER_ATTR": (name,),
        "LOAD_SUPER_METHOD": (None, name),
        "LOAD_SUPER_METHOD_NULL_LAST": (name, None),
    }[frame.code.names[frame.pc - 1]]
    line = f"{name} = {stack[-3]}({stack[-2]}, {stack[-1]}).{arg}"
    return Form((line,), (Outcome(None, 3, pushes),))


def _dotted(text: str | None) -> str:
    """An attribute of a number literal needs parentheses."""
    return f"({text})" if text is not None and (text[0].isdigit() or text[0] == "-") else str(text)


@_form("CALL")
def _call(out: Rebuilder, frame: Frame[Value], arg: tuple[int, tuple[str, ...]], stack: Texts) -> Form:
    count, keywords = arg
    return _call_text(out, stack, len(stack) - count, len(stack), keywords, count + 2)


@_form("CALL_KW")
def _call_kw(out: Rebuilder, frame: Frame[Value], arg: int, stack: Texts) -> Form:
    names = frame.stack[-1]
    keywords: tuple[str, ...] = getattr(names, "value", ())
    return _call_text(out, stack, len(stack) - 1 - arg, len(stack) - 1, keywords, arg + 3)


def _call_text(out: Rebuilder, stack: Texts, base: int, end: int, keywords: tuple[str, ...], pops: int) -> Form:
    function, bound = callee(stack, base)
    arguments = [str(t) for t in (*([] if bound is None else [bound]), *stack[base : end - len(keywords)])]
    named = list(zip(keywords, stack[end - len(keywords) : end], strict=True))
    if all(k.isidentifier() for k in keywords):
        arguments += [f"{k}={v}" for k, v in named]
    else:
        arguments.append("**{" + ", ".join(f"{k!r}: {v}" for k, v in named) + "}")
    return _value(out, f"{function}({', '.join(arguments)})", pops)


@_form("CALL_FUNCTION_EX")
def _call_ex(out: Rebuilder, frame: Frame[Value], arg: int, stack: Texts) -> Form:
    base = len(stack) - 1 - (arg & 1)
    function, _ = callee(stack, base)
    keywords = f", **{stack[-1]}" if arg & 1 else ""
    return _value(out, f"{function}(*{stack[base]}{keywords})", 3 + (arg & 1))


@_form("FOR_ITER")
def _for_iter(out: Rebuilder, frame: Frame[Value], arg: int, stack: Texts) -> Form:
    name = out.fresh("r")
    end = out.constant(runtime.END, "END")
    return Form(
        (f"{name} = next({stack[-1]}, {end})",),
        (Outcome(f"{name} is {end}", 1, (), arg), Outcome(None, 0, (name,))),
    )


def _jumping(test: str, pops: int) -> Maker:
    """To its argument, with `pops` entries off the stack, where the test holds; else the tested value goes."""

    def jump(out: Rebuilder, frame: Frame[Value], arg: int, stack: Texts) -> Form:
        name = out.fresh("c")
        line = f"{name} = {test.format(stack[-1])}"
        return Form((line,), (Outcome(name, pops, (), arg), Outcome(None, 1, ())))

    return jump


FORMS |= {
    "POP_JUMP_IF_TRUE": _jumping("bool({})", 1),
    "POP_JUMP_IF_FALSE": _jumping("not {}", 1),
    "JUMP_IF_TRUE_OR_POP": _jumping("bool({})", 0),
    "JUMP_IF_FALSE_OR_POP": _jumping("not {}", 0),
}


@_form("UNPACK_SEQUENCE", "UNPACK_EX")
def _unpack(out: Rebuilder, frame: Frame[Value], arg: int, stack: Texts) -> Form:
    starred = arg & 255 if frame.code.names[frame.pc - 1] == "UNPACK_EX" else -1
    names = tuple(out.fresh("r") for _ in range(arg if starred < 0 else starred + 1 + (arg >> 8)))
    targets = ", ".join("*" * (i == starred) + n for i, n in enumerate(names))
    return Form((f"[{targets}] = {stack[-1]}",), (Outcome(None, 1, names[::-1]),))


@_form("BUILD_MAP")
def _build_map(out: Rebuilder, frame: Frame[Value], arg: int, stack: Texts) -> Form:
    flat = stack[len(stack) - 2 * arg :]
    pairs = ", ".join(f"{k}: {v}" for k, v in zip(flat[::2], flat[1::2], strict=True))
    return _value(out, "{" + pairs + "}", 2 * arg)


@_form("BEFORE_WITH")
def _before_with(out: Rebuilder, frame: Frame[Value], arg: int, stack: Texts) -> Form:
    leave, enter, entered, interrupted = (out.fresh(kind) for kind in "rrrx")
    lines = (
        f"{leave}, {enter} = {out.runtime(runtime.resume_enter)}({stack[-1]})",
        f"{interrupted} = None",
        f"{entered} = []",
        "try:",
        # The call and keeping its result are one call: a handler of a signal runs before both or behind both.
        f"    {entered}.extend({out.constant(map, '_map')}({out.constant(operator.call, '_call')}, ({enter},)))",
        "except BaseException as error:",
        f"    if not {entered}:",
        "        raise",
        f"    {interrupted} = [error]",
    )
    return Form(lines, (Outcome(None, 1, (leave, f"{entered}[0]"), interrupted=interrupted),))


@_form("GET_LEN")
def _get_len(out: Rebuilder, frame: Frame[Value], arg: int, stack: Texts) -> Form:
    return _value(out, f"{out.constant(len, '_len')}({stack[-1]})", 0)
