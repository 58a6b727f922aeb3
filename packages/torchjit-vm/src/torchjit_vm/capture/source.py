"""Lines to functions with the user's positions, and stand-ins for the frames that were inlined."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, final

import attrs

from torchjit_core.location import CodeLocation

if TYPE_CHECKING:
    from torchjit_vm.capture.rebuild import Rebuilder
    from torchjit_vm.frame import Frame

__all__ = ["Standin", "compile_lines", "in_frames"]


@final
@attrs.frozen
class Standin:
    """What a frame looks like from outside.

    Attributes:
        code: its code object, for the names of file and function.
        location: of its current instruction.
        globals: its module's dict.
    """

    code: CodeType
    location: CodeLocation
    globals: dict[str, Any]

    @classmethod
    def of(cls, frame: Frame[Any], index: int | None = None) -> Standin:
        """At an instruction, by default the current one."""
        index = frame.pc - 1 if index is None else index
        return cls(frame.code.code, frame.code.location(index), frame.globals)


def compile_lines(
    lines: list[tuple[int, str, CodeLocation | None]], code: CodeType, name: str, constants: dict[str, Any], module: str
) -> tuple[FunctionType, str]:
    """Compile the lines `(indentation, text, location)` of one function; its instructions carry the user's positions."""
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


def in_frames(out: Rebuilder, frames: Sequence[Standin], statements: Sequence[str]) -> tuple[str, ...]:
    """Statements that are executed below a stand-in for each of `frames` (outermost first).

    They do the same; tracebacks, and whoever walks the stack, see the file, the function and the line of every frame.
    """
    names = [n for n in ast.walk(ast.parse("\n".join(statements))) if isinstance(n, ast.Name)]
    results = list(dict.fromkeys(n.id for n in names if isinstance(n.ctx, ast.Store)))
    loads = dict.fromkeys(n.id for n in names if isinstance(n.ctx, ast.Load) and n.id not in results)
    constants = {n: out.constants[n] for n in loads if n in out.constants}
    parameters = [n for n in loads if n not in constants and not hasattr(builtins, n)]
    signature = ", ".join(parameters)
    lines = [*statements, f"return [{', '.join(results)}]"] if results else list(statements)
    function: Callable[..., Any] | None = None
    name = "region"
    for frame in reversed(frames):
        code = frame.code
        name = code.co_name if code.co_name.isidentifier() else "region"
        if function is not None:
            lines, constants = [f"return inner_({signature})"], {"inner_": function}
        text = [
            (0, f"def {name}({signature}):", frame.location),
            *((1, line, frame.location) for line in lines),
        ]
        module = str(frame.globals.get("__name__", "builtins"))
        function, _ = compile_lines(list(text), code, name, constants, module)
    call = f"{out.constant(function, f'in_{name}')}({signature})"
    shown = tuple(f"# {line}" for line in statements)
    return (*shown, f"[{', '.join(results)}] = {call}" if results else call)
