"""Making classes for real: the twin that a capture works with, and in emitted code the class of this call.

What user code does to a new class (`__set_name__`, `__init_subclass__`) is interpreted by the capture, so the functions
here keep CPython from doing it once more.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["is_library", "make_class", "make_library_class", "make_named_tuple", "part_of", "subclass_hook"]

_Names = Mapping[str, object]
_HEAP = 1 << 9
_THIRD_PARTY = frozenset({"attr", "attrs", "torch"})


def is_library(obj: object) -> bool:
    """Is this class or function part of the standard library, or another one whose hooks may run at capture?"""
    root = str(getattr(obj, "__module__", "")).partition(".")[0]
    return root in sys.stdlib_module_names or root in _THIRD_PARTY


def subclass_hook(mro: Sequence[type]) -> object:
    """The `__init_subclass__` that the first class of an mro inherits."""
    for owner in mro[1:]:
        if "__init_subclass__" in owner.__dict__:
            return owner.__dict__["__init_subclass__"]
    return None


def make_class(meta: type[type], name: str, bases: tuple[type, ...], namespace: _Names, keywords: _Names) -> type:
    """`type.__new__`, without calls of hooks that are user code."""
    later = {k for k, v in namespace.items() if hasattr(type(v), "__set_name__") and not is_library(type(v))}
    first = {k: None if k in later else v for k, v in namespace.items()}
    hooks = [getattr(base.__init_subclass__, "__func__", None) for base in bases]
    if all(hook is None or is_library(hook) for hook in hooks):
        made = type.__new__(meta, name, bases, first, **keywords)
    else:
        made = _make_without_hooks(meta, name, bases, first)
    for key in later:
        type.__setattr__(made, key, namespace[key])
    return made


def _make_without_hooks(meta: type[type], name: str, bases: tuple[type, ...], namespace: dict[str, object]) -> type:
    if meta is type:  # which is no class that another one may be given
        made = type.__new__(meta, name, (_root(_solid(bases)),), namespace)
        try:
            made.__bases__ = bases
        except TypeError:  # instances of the bases have other slots
            return _make_between(meta, name, bases, namespace)
        return made
    made = type.__new__(_quiet(meta), name, bases, namespace)
    _CLASS.__set__(made, meta)
    _BASES.__set__(made, bases)  # which finds the mro anew
    return made


def _make_between(meta: type[type], name: str, bases: tuple[type, ...], namespace: dict[str, object]) -> type:
    """Make a class while the hook that it would find is another one, which does nothing."""
    above = _merge([[*base.__mro__] for base in bases] + [[*bases]])
    owner = next(c for c in above if "__init_subclass__" in c.__dict__)
    hook = owner.__dict__["__init_subclass__"]
    type.__setattr__(owner, "__init_subclass__", _NoHook.__dict__["__init_subclass__"])
    try:
        return type.__new__(meta, name, bases, namespace)
    finally:
        type.__setattr__(owner, "__init_subclass__", hook)


_merge: Callable[[list[list[type]]], list[type]] = functools._c3_merge  # type: ignore[attr-defined]  # the mro of a class with these bases


class _NoHook:
    """Comes before the bases while a class is made."""

    __slots__ = ()

    def __init_subclass__(cls, **keywords: object) -> None:
        pass


def _quiet(meta: Any) -> type[type]:
    """A metaclass whose new classes find no hook of their bases. Not kept: metaclasses may be made in each call."""

    def mro(cls: type) -> list[type]:
        first, *rest = meta.mro(cls)
        return [first, _NoHook, *rest]

    return type.__new__(type, meta.__name__, (meta,), {"mro": mro, "__slots__": ()})


_CLASS: types.GetSetDescriptorType = object.__dict__["__class__"]
_BASES: types.GetSetDescriptorType = type.__dict__["__bases__"]


def _solid(bases: tuple[type, ...]) -> type:
    """The C class whose layout the bases extend."""
    found: type = object
    for base in bases:
        solid = next(c for c in base.__mro__ if not c.__flags__ & _HEAP)
        if issubclass(solid, found):
            found = solid
    return found


@functools.cache
def _root(solid: type) -> type:
    """A class without hooks, of the layout that a plain subclass of `solid` has."""
    return type("_Root", (solid,), {})


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
