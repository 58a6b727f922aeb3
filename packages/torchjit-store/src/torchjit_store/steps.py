"""Steps from an object to one that it holds, none of which runs code of the user.

`follow` takes one step; `held` lists those that lead on from an object, for the search.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import CodeType, FunctionType
from typing import Any

from torchjit_store.fingerprints import Step, class_name, describe, is_static, module_name, mro, namespace, wrapped_by
from torchjit_store.ours import is_ours

__all__ = ["follow", "held", "held_by_ours"]


def follow(obj: Any, step: str, key: Any) -> Any:
    """Take a step.

    Raises:
        LookupError, AttributeError, TypeError, ValueError: it leads nowhere.
    """
    return _STEPS[step](obj, key)


_PARTS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    types.MethodType: ("__func__", "__self__"),
    types.MethodWrapperType: ("__self__",),
    types.BuiltinFunctionType: ("__self__",),
    functools.partial: ("func",),
    slice: ("start", "stop", "step"),
    types.GenericAlias: ("__origin__",),
    inspect.Parameter: ("default",),
    CodeType: ("co_varnames", "co_names", "co_cellvars", "co_freevars", "co_consts"),
    FunctionType: (
        "__code__",
        "__defaults__",
        "__kwdefaults__",
        "__closure__",
        "__globals__",
        "__dict__",
        "__annotations__",
    ),
}
"""Attributes of C that may be read of objects of exactly these types."""


def _attr(obj: Any, name: str) -> Any:
    if issubclass(type(obj), property) and name in _PARTS[property]:
        return property.__dict__[name].__get__(obj)  # whatever a subclass says
    if name not in _PARTS.get(type(obj), ()):
        raise TypeError(f"{name} of {type(obj).__qualname__}")
    return getattr(obj, name)


def _item(obj: Any, key: Any) -> Any:
    exact = type(obj)
    if issubclass(exact, dict):
        return dict.__getitem__(obj, key) if dict.__contains__(obj, key) else _missing(key)
    if issubclass(exact, (list, tuple)):
        return (list if issubclass(exact, list) else tuple).__getitem__(obj, key)
    if exact is deque:
        return obj[key]
    raise TypeError(exact)


def _missing(key: Any) -> Any:
    raise KeyError(key)


def _slot(obj: Any, name: str) -> Any:
    for cls in mro(type(obj)):
        member = namespace(cls).get(name)
        if type(member) is types.MemberDescriptorType:
            return member.__get__(obj)
    raise AttributeError(name)


def _exact(cls: type, read: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def step(obj: Any, key: Any) -> Any:
        if type(obj) is not cls:
            raise TypeError(type(obj))
        return read(obj, key)

    return step


def _mro(obj: Any, key: None) -> tuple[type, ...]:
    if not issubclass(type(obj), type):
        raise TypeError(type(obj))
    return mro(obj)


def _tensor_part(obj: Any, name: str) -> Any:
    """What a tensor keeps in C: its hooks."""
    for cls in mro(type(obj)):
        if class_name(cls) in _TENSORS and name in _OF_TENSORS:
            return namespace(cls)[name].__get__(obj)
    raise AttributeError(name)


_TENSORS = ("torch._C.TensorBase", "torch._C._TensorBase")
_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def _class_dict(obj: Any, key: None) -> Any:
    """The dict behind `cls.__dict__`, which is a new proxy at each look."""
    if not issubclass(type(obj), type):
        raise TypeError(type(obj))
    return gc.get_referents(namespace(obj))[0]


def _static_subclass(obj: Any, name: str) -> type:
    """The class of C below this one that has a name, which no module has: an iterator's, say."""
    found = [cls for cls in type.__subclasses__(obj) if is_static(cls) and class_name(cls) == name]
    return found[0] if len(found) == 1 else _missing(name)


def _item_at(obj: Any, place: list[Any]) -> Any:
    """The key or the value at a place of a dict, in its order."""
    exact = type(obj)
    if not issubclass(exact, dict):
        raise TypeError(exact)
    which, i = place
    items = (OrderedDict if issubclass(exact, OrderedDict) else dict).items(obj)
    item = next(islice(items, i, None), None)
    return _missing(i) if item is None else item[which == "value"]


def _keyword(obj: Any, name: str) -> Any:
    return (obj.__kwdefaults__ or {})[name]


_STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "entry": lambda obj, name: namespace(obj)[name],
    "item": _item,
    "attr": _attr,
    "slot": _slot,
    "wrapped": lambda obj, key: wrapped_by(obj),
    "code": _exact(FunctionType, lambda obj, key: obj.__code__),
    "default": _exact(FunctionType, lambda obj, i: (obj.__defaults__ or ())[i]),
    "kwdefault": _exact(FunctionType, _keyword),
    "cell": _exact(FunctionType, lambda obj, i: (obj.__closure__ or ())[i]),
    "content": _exact(types.CellType, lambda obj, key: obj.cell_contents),
    "const": _exact(CodeType, lambda obj, i: obj.co_consts[i]),
    "partial_arg": _exact(functools.partial, lambda obj, i: obj.args[i]),
    "partial_keyword": _exact(functools.partial, lambda obj, name: obj.keywords[name]),
    "alias_arg": lambda obj, i: (obj.__args__ if type(obj) in (types.GenericAlias, types.UnionType) else ())[i],
    "parameter": _exact(inspect.Signature, lambda obj, name: obj.parameters[name]),
    "reduced": lambda obj, i: _missing(i),  # fresh objects at each look
    "member": lambda obj, key: _missing(key),  # of a frozenset, which has no order: see `Finder`
    "proxied": _exact(types.MappingProxyType, lambda obj, key: gc.get_referents(obj)[0]),
    "dict": lambda obj, key: namespace(obj),
    "mro": _mro,
    "class_dict": _class_dict,
    "tensor_part": _tensor_part,
    "static": _static_subclass,
    "item_at": _item_at,
    "type": lambda obj, key: type(obj),
}


_KEYS = (str, int, bool, type(None))
"""Keys of dicts that a table can name."""


def held(obj: Any) -> Iterator[tuple[Step, Any]]:
    """What an object holds, each with the step that leads there. Modules are left to the caller: their dicts are large.

    Of what is torchjit's only what it wraps counts: the rest is made anew in another process.
    """
    exact = type(obj)
    if _is_ours(obj):
        with contextlib.suppress(LookupError):
            yield ("wrapped", None), wrapped_by(obj)
    elif type(exact) is type and exact in _HELD:
        yield from _HELD[exact](obj)
    elif issubclass(exact, dict):
        yield from _of_dict(obj)
    elif issubclass(exact, (list, tuple)) or exact is deque:
        yield from _of_sequence(obj)
    elif issubclass(exact, type):
        yield ("mro", None), mro(obj)
        yield ("class_dict", None), gc.get_referents(namespace(obj))[0]
        for name, value in list(namespace(obj).items()):
            yield ("entry", name), value
    else:
        yield from _of_other(obj)


def _is_ours(obj: Any) -> bool:
    exact = type(obj)
    if exact is FunctionType:
        return "__emitted__" in obj.__globals__ or is_ours(module_name(obj.__globals__))
    return str(_class_module(obj if issubclass(exact, type) else exact)).startswith("torchjit")


_class_module = type.__dict__["__module__"].__get__


def held_by_ours(function: FunctionType) -> Iterator[tuple[Step, Any]]:
    """What guards may name of a polyfill: it is part of torchjit, and so are its code and its defaults in every process. Of a wrapper
    (around a partial that was compiled) also the cell that holds what it wraps."""
    for step, value in _of_function(function):
        kind, key = step
        if kind == "cell":
            wrapped = function.__dict__.get("__wrapped__")
            is_named = wrapped is not None and any(held is wrapped for held in gc.get_referents(value))
        else:
            is_named = kind != "attr" or key == "__defaults__"
        if is_named:
            yield step, value


def _of_function(function: FunctionType) -> Iterator[tuple[Step, Any]]:
    for i, cell in enumerate(function.__closure__ or ()):
        yield ("cell", i), cell
    yield ("attr", "__closure__"), function.__closure__
    yield ("code", None), function.__code__
    yield ("attr", "__defaults__"), function.__defaults__
    for i, value in enumerate(function.__defaults__ or ()):
        yield ("default", i), value
    yield ("attr", "__kwdefaults__"), function.__kwdefaults__
    for name, value in (function.__kwdefaults__ or {}).items():
        yield ("kwdefault", name), value
    yield ("attr", "__dict__"), function.__dict__
    module = sys.modules.get(module_name(function.__globals__))
    if module is None or namespace(module) is not function.__globals__:
        yield ("attr", "__globals__"), function.__globals__  # of `exec`, as `__new__` of a named tuple is made


def _of_dict(obj: Any) -> Iterator[tuple[Step, Any]]:
    ordered = issubclass(type(obj), OrderedDict)
    for i, (key, value) in enumerate(list((OrderedDict if ordered else dict).items(obj))):
        if type(key) in _KEYS:
            yield ("item", key), value
        else:
            yield ("item_at", ["key", i]), key
            yield ("item_at", ["value", i]), value
    yield from _own(obj)


def _own(obj: Any) -> Iterator[tuple[Step, Any]]:
    """The class and the `__dict__` of an instance, and what is in its slots."""
    if not is_static(type(obj)):
        yield ("type", None), type(obj)
    own: Mapping[str, Any] = namespace(obj)
    if own:
        yield ("dict", None), own
    for cls in mro(type(obj))[:-1]:
        if not is_static(cls):
            for name, member in list(namespace(cls).items()):
                if type(member) is types.MemberDescriptorType:
                    try:
                        yield ("slot", name), member.__get__(obj)
                    except AttributeError:
                        continue  # not set


def _of_code(code: CodeType) -> Iterator[tuple[Step, Any]]:
    for i, constant in enumerate(code.co_consts):
        yield ("const", i), constant
    for name in _PARTS[CodeType]:
        yield ("attr", name), getattr(code, name)


def _of_cell(cell: types.CellType) -> Iterator[tuple[Step, Any]]:
    with contextlib.suppress(ValueError):  # empty
        yield ("content", None), cell.cell_contents


def _of_proxy(proxy: Any) -> Iterator[tuple[Step, Any]]:
    yield ("proxied", None), gc.get_referents(proxy)[0]


def _of_sequence(obj: Any) -> Iterator[tuple[Step, Any]]:
    exact = type(obj)
    iterate: Any = tuple.__iter__ if issubclass(exact, tuple) else list.__iter__ if issubclass(exact, list) else iter
    for i, value in enumerate(iterate(obj)):
        yield ("item", i), value
    yield from _own(obj)


def _of_other(obj: Any) -> Iterator[tuple[Step, Any]]:
    exact = type(obj)
    if exact in _PARTS or exact is types.UnionType:
        yield from describe(obj).parts
    if any(class_name(cls) in _TENSORS for cls in mro(exact)):
        yield from ((("tensor_part", name), _tensor_part(obj, name)) for name in _OF_TENSORS)
    yield from _own(obj)


_HELD: dict[type, Callable[[Any], Iterator[tuple[Step, Any]]]] = {
    FunctionType: _of_function,
    CodeType: _of_code,
    types.CellType: _of_cell,
    types.MappingProxyType: _of_proxy,
}
"""For objects of exactly these types."""
