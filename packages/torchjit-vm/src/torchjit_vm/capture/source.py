"""Lines to functions with the user's positions, and stand-ins for the frames that were inlined."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any

import attrs

from torchjit_core.location import CodeLocation
from torchjit_vm.capture import library
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.effect_records import Standin
from torchjit_vm.capture.rebuild import Line, Rebuilder
from torchjit_vm.capture.values import Value

__all__ = ["compile_lines", "in_frames", "places_of", "raised_in"]

_MOST_FRAMES = 100
"""Of those that an exception left, that a traceback shows."""


def places_of(domain: CaptureDomain, exception: Value) -> list[Standin]:
    """Of the frames that an exception came through, outermost first; not of those that stand in for C functions."""
    places = (domain.vm.tracebacks or {}).get(exception, [])[::-1]
    return [Standin.of(f, i) for f, i in places[:_MOST_FRAMES] if f.code.code.co_filename != library.__file__]


def compile_lines(
    lines: list[Line], code: CodeType, name: str, constants: dict[str, Any], module: str
) -> tuple[FunctionType, str]:
    """Compile the lines of one function; its instructions carry the user's positions."""
    source = "\n".join("    " * indent + text for indent, text, _ in lines) + "\n"
    tree = ast.parse(source)
    for node in ast.walk(tree):
        number = getattr(node, "lineno", None)
        if number is not None:
            _locate(node, lines[number - 1][2])
    namespace: dict[str, Any] = dict(constants)
    namespace["__emitted__"] = True  # so that a frame hook can tell
    namespace.setdefault("__name__", module)  # what `type(name, bases, members)` and warnings look at
    exec(compile(tree, code.co_filename, "exec"), namespace)
    function = namespace.pop(name)
    # A constant may have the function's own name.
    if name in constants:
        namespace[name] = constants[name]
    function.__qualname__ = code.co_qualname
    function.__code__ = function.__code__.replace(co_name=code.co_name, co_qualname=code.co_qualname)
    return function, source


def _locate(node: Any, location: CodeLocation | None) -> None:
    line = location.lineno if location is not None else 1
    node.lineno, node.end_lineno = line, line
    node.col_offset, node.end_col_offset = 0, 0
    if location is not None and location.col is not None and location.end_col is not None:
        node.end_lineno = location.end_lineno or line
        node.col_offset, node.end_col_offset = location.col, location.end_col


def raised_in(frames: Sequence[Standin]) -> Callable[[BaseException], Any]:
    """A function that raises what it is given, below a stand-in for each of `frames` (outermost first)."""
    return _nested(frames, ["raise error"], ["error"], {})


def in_frames(out: Rebuilder, frames: Sequence[Standin], statements: Sequence[str]) -> tuple[str, ...]:
    """Statements that are executed below a stand-in for each of `frames` (outermost first).

    They do the same; tracebacks, and whoever walks the stack, see the file, the function and the line of every frame.
    """
    nodes = list(ast.walk(ast.parse("\n".join(statements))))
    names = [n for n in nodes if isinstance(n, ast.Name)]
    caught = {n.name for n in nodes if isinstance(n, ast.ExceptHandler)}
    results = list(dict.fromkeys(n.id for n in names if isinstance(n.ctx, ast.Store)))
    loads = dict.fromkeys(n.id for n in names if isinstance(n.ctx, ast.Load) and n.id not in {*results, *caught})
    constants = {n: out.constants[n] for n in loads if n in out.constants}
    parameters = [n for n in loads if n not in constants and not hasattr(builtins, n)]
    signature = ", ".join(parameters)
    lines = [*statements, f"return [{', '.join(results)}]"] if results else list(statements)
    function = _nested(frames, lines, parameters, constants)
    name = frames[0].code.co_name if frames[0].code.co_name.isidentifier() else "region"
    call = f"{out.constant(function, f'in_{name}')}({signature})"
    shown = tuple(f"# {line}" for line in statements)
    return (*shown, f"[{', '.join(results)}] = {call}" if results else call)


def _nested(
    frames: Sequence[Standin], lines: list[str], parameters: list[str], constants: dict[str, object]
) -> Callable[..., Any]:
    """The stand-in of the first frame, which calls the next ones; the last one runs the lines."""
    signature = ", ".join(parameters)
    function: Callable[..., object] | None = None
    for frame in reversed(frames):
        code = frame.code
        name = code.co_name if code.co_name.isidentifier() else "region"
        if function is not None:
            lines, constants = [f"return inner_({signature})"], {"inner_": function}
        text = [
            (0, f"def {name}({signature}):", attrs.evolve(frame.location, lineno=code.co_firstlineno)),
            *((1, line, frame.location) for line in lines),
        ]
        module = str(frame.globals.get("__name__", "builtins"))
        function, _ = compile_lines(list(text), code, name, constants, module)
    if function is None:
        raise ValueError("no frames")
    return function
