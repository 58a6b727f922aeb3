"""Making classes for real: the twin that a capture works with, and in emitted code the class of this call.

What user code does to a new class (`__set_name__`, `__init_subclass__`) is interpreted by the capture, so the functions
here keep CPython from doing it once more.
"""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["has_subclass_hook", "is_library", "make_class", "make_library_class", "make_named_tuple", "part_of"]

_Names = Mapping[str, object]
_HEAP = 1 << 9
_THIRD_PARTY = frozenset({"attr", "attrs", "torch"})


def is_library(obj: object) -> bool:
    """Is this class or function part of the standard library, or another one whose hooks may run at capture?"""
    root = str(getattr(obj, "__module__", "")).partition(".")[0]
    return root in sys.stdlib_module_names or root in _THIRD_PARTY


def has_subclass_hook(bases: Sequence[type]) -> bool:
    """Would code of the program see that a class with these bases is made?"""
    hooks = [getattr(base.__init_subclass__, "__func__", None) for base in bases]
    return any(hook is not None and not is_library(hook) for hook in hooks)


def make_class(meta: type[type], name: str, bases: tuple[type, ...], namespace: _Names, keywords: _Names) -> type:
    """`type.__new__`, without calls of hooks that are user code."""
    later = {k for k, v in namespace.items() if hasattr(type(v), "__set_name__") and not is_library(type(v))}
    first = {k: None if k in later else v for k, v in namespace.items()}
    made = type.__new__(meta, name, bases, first, **keywords)
    for key in later:
        type.__setattr__(made, key, namespace[key])
    return made


def make_library_class(meta: Any, name: str, bases: tuple[type, ...], namespace: _Names, keywords: _Names) -> Any:
    """What a class statement does with a metaclass of the library (an enum's, a named tuple's)."""
    prepared = meta.__prepare__(name, bases, **keywords)
    for key, value in namespace.items():
        prepared[key] = value
    return meta(name, bases, prepared, **keywords)


def make_named_tuple(
    function: Callable[..., type], name: str, bases: tuple[type, ...], namespace: _Names, keywords: _Names
) -> type:
    """`collections.namedtuple(name, **keywords)`."""
    return function(name, **keywords)


def part_of(cls: object, name: str) -> object:
    """What a class holds under a name, static and class methods unwrapped; a member of an enum."""
    if isinstance(cls, enum.EnumType) and name in cls.__members__:
        return cls.__members__[name]
    raw = vars(cls)[name]
    return raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw


def functions_of(raw: object) -> tuple[types.FunctionType, ...]:
    """The functions in a member of a class: itself, a wrapped one, a property's accessors."""
    if isinstance(raw, (staticmethod, classmethod)):
        return functions_of(raw.__func__)
    if isinstance(raw, property):
        return tuple(f for f in (raw.fget, raw.fset, raw.fdel) if isinstance(f, types.FunctionType))
    return (raw,) if isinstance(raw, types.FunctionType) else ()
