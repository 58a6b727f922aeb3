"""Names of objects of the program, and the ways that they lead: the quick half of `origins`; what has no name is searched for."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any, TypeAlias

from torchjit_store.fingerprints import Step, class_name, module_name, namespace
from torchjit_store.steps import follow
from torchjit_store.table import MISSED

__all__ = ["modules_of", "named_ways", "shown", "walk"]


def modules_of(functions: Iterable[FunctionType | CodeType]) -> tuple[str, ...]:
    """The names of the modules that hold the functions, `__main__` last."""
    names: dict[str, None] = {}
    codes = []
    for function in functions:
        if type(function) is FunctionType:
            name = module_name(function.__globals__)
            if name in sys.modules and namespace(sys.modules[name]) is function.__globals__:
                names[name] = None
        else:
            codes.append(function)
    files = {code.co_filename for code in codes}
    if files:
        for name, module in list(sys.modules.items()):
            plain = type(module) is types.ModuleType
            if (_dict_of(module) if plain else namespace(module)).get("__file__") in files:
                names[name] = None
    return *names, "__main__"


Way: TypeAlias = "tuple[str, tuple[str, ...]]"
"""A module, and a qualified name in it."""


def named_ways(obj: Any, modules: tuple[str, ...]) -> Iterator[Way]:
    """Modules, and qualified names in them, that may lead to an object."""
    exact = type(obj)
    rule = _WAYS.get(exact) if type(exact) is type else None  # another metaclass may hash and compare in its own way
    if rule is not None:
        yield from rule(obj, modules)
    elif issubclass(exact, type):
        yield from _of_class(obj)
    elif class_name(exact) == "numpy._ArrayFunctionDispatcher":
        yield str(obj.__module__), (str(obj.__name__),)
    elif issubclass(exact, types.ModuleType):
        yield module_name(namespace(obj)), ()
        yield from ((module, ()) for module in _modules_over(namespace(obj)))


def _of_function(function: FunctionType, modules: tuple[str, ...]) -> Iterator[Way]:
    if type(function.__module__) is str:
        yield function.__module__.replace("__mp_main__", "__main__"), tuple(function.__qualname__.split("."))
    yield module_name(function.__globals__), tuple(function.__code__.co_qualname.split("."))
    yield from _other_names(function)


def _of_code(code: CodeType, modules: tuple[str, ...]) -> Iterator[Way]:
    for module in modules:
        yield module, tuple(code.co_qualname.split("."))


def _of_class(cls: type) -> Iterator[Way]:
    module, qualname = _name_parts(cls)
    yield module, tuple(qualname.split("."))
    if module == "builtins":
        yield from (("types", (name,)) for name, known in vars(types).items() if known is cls)


def _of_dict(obj: dict[Any, Any], modules: tuple[str, ...]) -> Iterator[Way]:
    if obj is sys.modules:
        yield "sys", ("modules",)
    elif type(obj.get("__name__")) is str:
        yield module_name(obj), ("__dict__",)
        yield from ((module, ("__dict__",)) for module in _modules_over(obj))


def _of_descriptor(obj: Any, modules: tuple[str, ...]) -> Iterator[Way]:
    module, qualname = _name_parts(obj.__objclass__)
    yield module, (*qualname.split("."), obj.__name__)


def _of_builtin(function: types.BuiltinFunctionType, modules: tuple[str, ...]) -> Iterator[Way]:
    owner = function.__self__
    if issubclass(type(owner), types.ModuleType):
        yield str(namespace(owner).get("__name__")), (function.__name__,)
    elif issubclass(type(owner), type):
        module, qualname = _name_parts(owner)  # type: ignore[arg-type]  # it is a class
        yield module, (*qualname.split("."), function.__name__)
    for module in (str(function.__module__), "torch", "torch._C._nn", "torch._C", "builtins"):
        yield module, (function.__name__,)


def _of_wrapper(obj: Any, modules: tuple[str, ...]) -> Iterator[Way]:
    """By the name of the function that it calls."""
    inner = next((f for f in _unwrapped(obj) if type(f) is FunctionType), None)
    if inner is not None:
        yield from named_ways(inner, modules)


def _other_names(function: FunctionType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names of a function that calls itself otherwise: one that a factory has made, or in a module with another name than its own."""
    qualname = tuple(function.__qualname__.split("."))
    holders = _modules_over(function.__globals__)
    yield from ((module, qualname) for module in holders)
    for module in dict.fromkeys((str(function.__module__), *holders)):
        space = namespace(sys.modules.get(module))
        yield from ((module, (name,)) for name, value in list(space.items()) if value is function)
    if "<locals>" in qualname and type(function.__module__) is str:
        yield from _inside_of_globals(function, function.__module__)


def _inside_of_globals(function: FunctionType, module: str) -> Iterator[Way]:
    """What a factory gave to an object that is a global, as the functions that `os.environ` encodes with. The search would look into
    whole libraries before it."""
    for name, value in list(namespace(sys.modules.get(module)).items()):
        inside = {} if issubclass(type(value), type | types.ModuleType) else namespace(value)
        if type(inside) is dict:
            yield from ((module, (name, key)) for key, held in list(inside.items()) if held is function)


def _modules_over(space: Mapping[str, Any]) -> list[str]:
    """The names under which the module with this dict was imported: `_collections_abc` says that it is `collections.abc`."""
    found = []
    for name, module in list(sys.modules.items()):
        plain = type(module) is types.ModuleType  # most are
        if (_dict_of(module) if plain else namespace(module)) is space:
            found.append(name)
    return found


_dict_of: Any = vars(types.ModuleType)["__dict__"].__get__
"""`namespace` of a module of no other class."""


def _name_parts(cls: type) -> tuple[str, str]:
    name = class_name(cls)
    qualname: str = type.__dict__["__qualname__"].__get__(cls)
    return name[: -len(qualname) - 1], qualname


def _unwrapped(obj: Any) -> Iterator[Any]:
    for _, found in _peeled(obj):
        yield found


def _peeled(obj: Any) -> Iterator[tuple[tuple[Step, ...], Any]]:
    """The object, and what it wraps, with the steps that lead there."""
    way: tuple[Step, ...] = ()
    for _ in range(8):
        yield way, obj
        exact = type(obj)
        step = _PEELS.get(property if issubclass(exact, property) else exact, ("wrapped", None))
        try:
            obj = follow(obj, *step)
        except MISSED:
            return
        way = (*way, step)


_PEELS: dict[type, Step] = {
    staticmethod: ("attr", "__func__"),
    classmethod: ("attr", "__func__"),
    property: ("attr", "fget"),
    functools.partial: ("attr", "func"),
    functools.cached_property: ("entry", "func"),
}


def walk(start: Any, names: tuple[str, ...], wanted: Any) -> tuple[Step, ...] | None:
    """The steps from a module along a qualified name to the wanted object, or None if they lead elsewhere."""
    if names == ("__dict__",):
        return (("dict", None),) if namespace(start) is wanted else None
    way: tuple[Step, ...] = ()
    obj = start
    for i, name in enumerate(names):
        if name == "<locals>":
            return _walk_code(obj, way, names[i + 1 :], wanted)
        space = namespace(obj)
        if name not in space:
            return None
        obj = space[name]
        way = (*way, ("entry", name))
    for more, found in _peeled(obj):
        if found is wanted:
            return way + more
        if type(found) is FunctionType and found.__code__ is wanted:
            return (*way, *more, ("code", None))
    return way if obj is wanted else None


def _walk_code(outer: Any, way: tuple[Step, ...], names: tuple[str, ...], wanted: Any) -> tuple[Step, ...] | None:
    """The steps to the code of a nested function, through the constants of the code around it."""
    if type(wanted) is not CodeType:
        return None
    for more, found in _peeled(outer):
        if type(found) is FunctionType:
            inner = _constants_to(found.__code__, wanted)
            if inner is not None:
                return (*way, *more, ("code", None), *inner)
    return None


def _constants_to(code: CodeType, wanted: CodeType) -> tuple[Step, ...] | None:
    """The steps from a code object to one among its constants, at any depth."""
    for i, constant in enumerate(code.co_consts):
        if type(constant) is CodeType:
            if constant is wanted:
                return (("const", i),)
            inner = _constants_to(constant, wanted)
            if inner is not None:
                return (("const", i), *inner)
    return None


def shown(obj: Any) -> str:
    exact = type(obj)
    if exact is FunctionType or exact is CodeType:
        code = obj if exact is CodeType else obj.__code__
        return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
    return f"an object of type {class_name(exact)}"


_DESCRIPTORS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType,
)  # fmt: skip
_WRAPPERS = (staticmethod, classmethod, property, functools.cached_property)
_WAYS: dict[type, Callable[[Any, tuple[str, ...]], Iterator[Way]]] = {
    FunctionType: _of_function,
    CodeType: _of_code,
    dict: _of_dict,
    types.BuiltinFunctionType: _of_builtin,
    **dict.fromkeys(_DESCRIPTORS, _of_descriptor),
    **dict.fromkeys(_WRAPPERS, _of_wrapper),
}
"""For objects of exactly these types."""
