"""Built-in functions that look at the frame, or the handled exception, of their caller."""

from __future__ import annotations
import __future__

import functools
import inspect
import operator
import sys
from collections.abc import Callable
from types import CellType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchjit_vm.concrete import ConcreteDomain

__all__ = ["CALLER_FUNCTIONS"]

_FUTURES = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)


def _exc_info(domain: ConcreteDomain, args: list[object], kwargs: dict[str, object]) -> object:
    error = None if domain.vm.current is None else domain.vm.current.value
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _exception(domain: ConcreteDomain, args: list[object], kwargs: dict[str, object]) -> object:
    return None if domain.vm.current is None else domain.vm.current.value


def _dir(domain: ConcreteDomain, args: list[object], kwargs: dict[str, object]) -> object:
    return dir(*args) if args else sorted(_locals(domain, [], {}))


def _vars(domain: ConcreteDomain, args: list[object], kwargs: dict[str, object]) -> object:
    return vars(*args) if args else _locals(domain, [], {})


def _globals(domain: ConcreteDomain, args: list[object], kwargs: dict[str, object]) -> object:
    return domain.vm.frames[-1].globals


def _compile(domain: ConcreteDomain, args: list[object], kwargs: dict[str, object]) -> object:
    """`compile` would inherit the future statements of this file."""
    given = inspect.signature(compile).bind(*args, **kwargs)
    given.apply_defaults()
    if not given.arguments["dont_inherit"]:
        given.arguments["flags"] |= domain.vm.frames[-1].code.code.co_flags & _FUTURES
        given.arguments["dont_inherit"] = True
    return compile(*given.args, **given.kwargs)


def _execute(
    domain: ConcreteDomain, function: Callable[..., object], args: list[object], kwargs: dict[str, object]
) -> object:
    """`exec` and `eval` would see the names and the future statements of this file."""
    source, *scopes = args
    if not scopes or scopes[0] is None:
        inner = scopes[1] if len(scopes) > 1 else None
        scopes = [_globals(domain, [], {}), _locals(domain, [], {}) if inner is None else inner]
    if isinstance(source, (str, bytes, bytearray)):
        text = source.lstrip() if function is eval else source
        source = _compile(domain, [text, "<string>", "eval" if function is eval else "exec"], {})
    return function(source, *scopes, **kwargs)


def _locals(domain: ConcreteDomain, args: list[object], kwargs: dict[str, object]) -> dict[str, object]:
    frame = domain.vm.frames[-1]
    if frame.namespace is not None:
        return domain.namespace_of(frame)
    result = {}
    for name, box in zip(frame.code.locals, frame.fast, strict=False):
        content = domain.cell_get(box) if box is not None and type(box.value) is CellType else box
        if content is not None:
            result[name] = content.value
    return result


def _super(domain: ConcreteDomain, args: list[object], kwargs: dict[str, object]) -> object:
    frame = domain.vm.frames[-1]
    if args:
        return super(*args)
    if not frame.code.code.co_argcount:
        raise RuntimeError("super(): no arguments")
    if "__class__" not in frame.code.locals:
        raise RuntimeError("super(): __class__ cell not found")
    cell, first = frame.fast[frame.code.locals.index("__class__")], frame.fast[0]
    if cell is None or first is None:
        raise RuntimeError("super(): no arguments")
    owner = first.value.cell_contents if type(first.value) is CellType else first.value
    return super(cell.value.cell_contents, owner)


CALLER_FUNCTIONS: dict[object, Callable[[ConcreteDomain, list[object], dict[str, object]], object]] = {
    globals: _globals,
    locals: _locals,
    vars: _vars,
    dir: _dir,
    sys.exc_info: _exc_info,
    sys.exception: _exception,
    compile: _compile,
    exec: lambda domain, args, kwargs: _execute(domain, exec, args, kwargs),
    eval: lambda domain, args, kwargs: _execute(domain, eval, args, kwargs),
    super: _super,
}
