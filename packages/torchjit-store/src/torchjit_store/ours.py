"""Names of what torchjit's own packages define. Only these packages are ever imported for a document."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

__all__ = [
    "constant_name",
    "find_code",
    "is_our_function",
    "is_ours",
    "module_of_function",
    "name_of",
    "nested_code_name",
    "resolve",
]

PACKAGES: Final = frozenset(
    {
        "torchjit", "torchjit_aot", "torchjit_backends", "torchjit_core", "torchjit_cudagraphs", "torchjit_frame", "torchjit_fx",
        "torchjit_guards", "torchjit_inductor", "torchjit_report", "torchjit_session", "torchjit_store", "torchjit_torch", "torchjit_vm",
    }
)  # fmt: skip
_LOCALS = ".<locals>."


def is_ours(module: object) -> bool:
    """Is this the name of a module of torchjit's packages?"""
    return type(module) is str and module.partition(".")[0] in PACKAGES


def resolve(module: str, qualname: str) -> Any:
    """What the module defines under a qualified name, found in plain `__dict__`s; functions come without `staticmethod` around them.

    Raises:
        LookupError: there is no such thing, or it or the module is not torchjit's.
    """
    if not is_ours(module):
        raise LookupError(f"{module} is no module of torchjit")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise LookupError(f"there is no module {module}") from error
    if not qualname:
        return found
    for part in qualname.split("."):
        inside = found is sys.modules[module] or isinstance(found, type)  # no way leads to what the module imports
        if not inside or part not in found.__dict__:
            raise LookupError(f"{module} has no {qualname}")
        found = found.__dict__[part]
        if isinstance(found, staticmethod | classmethod):
            found = found.__func__
    if not _is_defined_by_us(found):
        raise LookupError(f"{module}.{qualname} is not torchjit's own")
    return found


def _is_defined_by_us(obj: Any) -> bool:
    if isinstance(obj, type):
        return is_ours(obj.__module__)
    if isinstance(obj, FunctionType):
        return is_ours(obj.__globals__.get("__name__"))
    return _is_table(obj) or is_ours(getattr(obj, "__module__", None))


def name_of(obj: Any) -> tuple[str, str] | None:
    """Module and qualified name that lead to the very object, a class, function or wrapper of ours; None where none do."""
    kind = type(obj)
    if issubclass(kind, ModuleType):  # it and a class may be the program's, whose code must not run
        name = object.__getattribute__(obj, "__dict__").get("__name__")
        return (name, "") if is_ours(name) and sys.modules.get(name) is obj else None
    try:
        if issubclass(kind, type):
            module, qualname = (type.__dict__[name].__get__(obj) for name in ("__module__", "__qualname__"))
        else:
            module, qualname = obj.__module__, obj.__qualname__
    except AttributeError:
        return None
    return (module, qualname) if _leads_to(module, qualname, obj) else None


def _leads_to(module: object, qualname: object, obj: object) -> bool:
    if type(module) is not str or type(qualname) is not str or not is_ours(module) or module not in sys.modules:
        return False
    try:
        return resolve(module, qualname) is obj
    except LookupError:
        return False


# -------------------------------------------------------------------------------------------------- constants
_TABLES: Final = (tuple, list, dict, set, frozenset, object, ContextVar)
_EMPTY: Final[tuple[object, ...]] = ((), frozenset())
_constants: dict[int, tuple[object, str, str]] = {}
_modules_seen = 0


def constant_name(obj: object) -> tuple[str, str] | None:
    """Module and name of a module-level constant (UPPER_CASE, or a context variable) that is this very object."""
    global _modules_seen
    if len(sys.modules) != _modules_seen:
        _modules_seen = len(sys.modules)
        _constants.clear()
        for module, name, value in _module_constants():
            _constants.setdefault(id(value), (value, module, name))
    found = _constants.get(id(obj))
    return (found[1], found[2]) if found is not None and found[0] is obj else None


def _module_constants() -> Iterator[tuple[str, str, object]]:
    found = [(name, module) for name, module in list(sys.modules.items()) if is_ours(name)]
    # Last those that load what they export when it is asked for: in the next process they may not have it yet.
    for module_name, module in sorted(found, key=lambda pair: "__getattr__" in vars(pair[1])):
        for name, value in list(vars(module).items()):
            if type(value) is ContextVar or (
                name.isupper() and _is_table(value) and not any(value is empty for empty in _EMPTY)
            ):
                yield module_name, name, value


def _is_table(obj: Any) -> bool:
    return type(obj) in _TABLES or is_ours(type(obj).__module__)


# -------------------------------------------------------------------------------------------------- nested functions
def module_of_function(function: FunctionType) -> str | None:
    """The module of ours whose globals a function has. `functools.wraps` changes `__module__`, but not these."""
    name = function.__globals__.get("__name__")
    if type(name) is not str or not is_ours(name):
        return None
    module = sys.modules.get(name)
    return name if module is not None and module.__dict__ is function.__globals__ else None


def is_our_function(function: FunctionType) -> bool:
    """Is it defined in torchjit's packages, or made by them of a function of the standard library?"""
    if module_of_function(function) is not None:
        return True
    module = sys.modules.get(function.__module__) if is_ours(function.__module__) else None
    return module is not None and module.__dict__.get("__file__") == function.__code__.co_filename


def nested_code_name(module: str, code: CodeType) -> tuple[str, int] | None:
    """Qualified name of a function's code, and which of those with that name it is; None where it is not found again."""
    try:
        same = _codes(module, code.co_qualname)
    except LookupError:
        return None
    return next(((code.co_qualname, i) for i, found in enumerate(same) if found is code), None)


def find_code(module: str, qualname: str, number: int) -> CodeType:
    """The code that `nested_code_name` has named.

    Raises:
        LookupError: there is none.
    """
    return _codes(module, qualname)[number]


_codes_found: dict[tuple[str, str], list[CodeType]] = {}


def _codes(module: str, qualname: str) -> list[CodeType]:
    """The codes with this qualified name: of a function itself, and of functions in it."""
    found = _codes_found.get((module, qualname))
    if found is None:
        outer = qualname.split(_LOCALS)[0]
        starts = list(_codes_behind(resolve(module, outer)))
        found = [code for start in starts for code in _nested(start) if code.co_qualname == qualname]
        _codes_found[module, qualname] = found
    return found


def _codes_behind(obj: Any) -> Iterator[CodeType]:
    """The code of a function, past what decorators of the standard library have put around it."""
    seen: list[object] = []
    while obj is not None and all(obj is not other for other in seen):
        seen.append(obj)
        if isinstance(obj, FunctionType):
            yield obj.__code__
        if isinstance(obj, property):
            for accessor in (obj.fset, obj.fdel):
                yield from _codes_behind(accessor)
        following = ("__wrapped__", "fget", "func", "__func__")
        obj = next((part for name in following if (part := getattr(obj, name, None)) is not None), None)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
