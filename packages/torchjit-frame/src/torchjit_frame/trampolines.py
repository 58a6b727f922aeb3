"""Code objects that lead from a hooked frame to a front door."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from torchjit_frame._c import FrontDoor, bind_code

__all__ = ["trampoline"]

_DOOR = "torchjit_frame: the door stands here"
_LOCAL = ".door"  # no identifier, so no argument has this name


def trampoline(function: FunctionType, door: Callable[..., Any]) -> CodeType:
    """A replacement for `function`'s code whose body is `return door(*slots)`.

    It has the same argument slots and free variables, name, filename and first line, and serves this function only
    (see `hook_scope`).

    Args:
        function: the function that the hook saw.
        door: called with the slots in the order of `co_varnames`, `*args` as a tuple and `**kwargs` as a dict. For a
            FrontDoor this is its `enter`, which takes them so.

    Raises:
        TypeError: `function` is not a Python function, or is a generator or a coroutine function.
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"a trampoline stands in for a Python function, not {type(function).__name__!r}")
    code = function.__code__
    if code.co_flags & _SUSPENDS:
        raise TypeError(f"{function.__qualname__} suspends its frame: a trampoline cannot stand in for it")
    made = _compile(code)
    target = door.enter if isinstance(door, FrontDoor) else door
    constants = tuple(target if constant == _DOOR else constant for constant in made.co_consts)
    made = made.replace(
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        # The function is a constant so that it lives as long as the code that stands in for it.
        co_consts=(*constants, function),
    )
    bind_code(made, function)
    return made


_SUSPENDS = 0x20 | 0x80 | 0x200  # generator, coroutine, asynchronous generator (CO_* of CPython's code.h)


def _compile(code: CodeType) -> CodeType:
    """The body under the signature of `code`, with a text in the door's place."""
    module = ast.parse("def outer():\n  def inner(): return 0\n")
    outer, inner = module.body[0], module.body[0].body[0]  # type: ignore[attr-defined]
    outer.args = ast.arguments([], [ast.arg(name) for name in code.co_freevars], None, [], [], None, [])  # type: ignore[attr-defined]
    inner.args, names = _arguments(code)
    inner.body = [
        ast.Assign([ast.Name(_LOCAL, ast.Store())], ast.Constant(_DOOR)),
        ast.Return(ast.Call(ast.Name(_LOCAL, ast.Load()), [ast.Name(name, ast.Load()) for name in names], [])),
        # Never reached: naming them makes them free variables.
        *(ast.Expr(ast.Name(name, ast.Load())) for name in code.co_freevars),
    ]
    for node in ast.walk(module):
        if "lineno" in node._attributes:
            node.lineno = node.end_lineno = code.co_firstlineno  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    compiled = compile(module, code.co_filename, "exec", dont_inherit=True)
    return _nested(_nested(compiled))


def _nested(code: CodeType) -> CodeType:
    return next(constant for constant in code.co_consts if isinstance(constant, CodeType))


def _arguments(code: CodeType) -> tuple[ast.arguments, list[str]]:
    """The parameters without defaults (the frame's slots are filled), and the names of all slots."""
    positional = code.co_argcount
    named = positional + code.co_kwonlyargcount
    star = bool(code.co_flags & 0x04)
    double_star = bool(code.co_flags & 0x08)
    names = list(code.co_varnames[: named + star + double_star])
    args = [ast.arg(name) for name in names]
    arguments = ast.arguments(
        posonlyargs=args[: code.co_posonlyargcount],
        args=args[code.co_posonlyargcount : positional],
        vararg=args[named] if star else None,
        kwonlyargs=args[positional:named],
        kw_defaults=[None] * code.co_kwonlyargcount,
        kwarg=args[named + star] if double_star else None,
        defaults=[],
    )
    return arguments, names
