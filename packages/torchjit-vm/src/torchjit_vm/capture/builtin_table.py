"""Registering implementations of built-in functions."""

from __future__ import annotations

import inspect
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

from torchjit_vm.capture.arity import fits
from torchjit_vm.capture.atoms import base_of
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.values import (
    Args,
    AtomObject,
    Const,
    DictValue,
    DictView,
    GeneratorValue,
    InstanceDict,
    Kwargs,
    ListValue,
    SetValue,
    TupleValue,
    Value,
)
from torchjit_vm.frame import Frame

__all__ = ["BUILTINS", "METHODS", "Builtin", "Method", "builtin", "by_position", "method", "method_of"]

K = TypeVar("K", bound=Value)

Builtin: TypeAlias = "Callable[[CaptureDomain, list[Value], dict[str, Value]], Value | Frame[Value] | None]"
"""Takes the domain, positional and keyword arguments; None means that it does not know these arguments."""

BUILTINS: dict[Any, Builtin] = {}
METHODS: dict[int, Builtin] = {}
_KINDS: dict[type, tuple[type, ...]] = {
    list: (ListValue,),
    deque: (ListValue,),
    tuple: (TupleValue, Const),
    dict: (DictValue, InstanceDict),
    OrderedDict: (DictValue,),
    types.MappingProxyType: (DictValue,),
    set: (SetValue,),
    frozenset: (SetValue,),
    str: (Const,),
    types.GeneratorType: (GeneratorValue,),
    types.CoroutineType: (GeneratorValue,),
    type({}.keys()): (DictView,),
    type({}.items()): (DictView,),
    defaultdict: (DictValue,),
}
"""The kinds of value that stand for instances of a class; a method on another kind is not known."""
_kept: list[Any] = []


def builtin(*functions: object) -> Callable[[Builtin], Builtin]:
    """Register the implementation of built-in functions or types."""

    def register(implementation: Builtin) -> Builtin:
        for function in functions:
            plain = isinstance(function, types.FunctionType)
            BUILTINS[function] = implementation if plain else _checked(implementation, function, None)
        return implementation

    return register


def by_position(rule: Callable[..., Value | Frame[Value] | None]) -> Builtin:
    """An implementation that gets each argument for itself; a call with another number of them is not known."""
    code = cast(types.FunctionType, rule).__code__
    most = 1 << 30 if code.co_flags & inspect.CO_VARARGS else code.co_argcount
    least = code.co_argcount - len(cast(types.FunctionType, rule).__defaults__ or ())

    def run(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
        return None if kwargs or not least <= len(args) + 1 <= most else rule(domain, *args)

    return run


def method(name: str, *classes: type) -> Callable[[Builtin], Builtin]:
    """Register the implementation of a method of built-in classes; the first argument is the object."""

    def register(implementation: Builtin) -> Builtin:
        for cls in classes:
            raw = cls.__dict__[name]
            _kept.append(raw)
            METHODS[id(raw)] = _checked(implementation, raw, _KINDS.get(cls))
        return implementation

    return register


Method: TypeAlias = "Callable[[CaptureDomain, K, Args, Kwargs], Value | Frame[Value] | None]"


def method_of(kind: type[K], name: str, *classes: type) -> Callable[[Method[K]], Method[K]]:
    """The same for a method that knows one kind of object; the implementation gets the object apart from the arguments."""

    def register(implementation: Method[K]) -> Method[K]:
        @method(name, *classes)
        def run(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
            own = args[0]
            return implementation(domain, own, args[1:], kwargs) if isinstance(own, kind) else None

        return implementation

    return register


def _checked(implementation: Builtin, raw: object, kinds: tuple[type, ...] | None) -> Builtin:
    def run(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
        if kinds is not None and Const in kinds and args and type(args[0]) is AtomObject:
            args = [base_of(args[0]), *args[1:]]
        if not fits(raw, len(args), kwargs) or (kinds is not None and not isinstance(args[0], kinds)):
            return None
        return implementation(domain, args, kwargs)

    return run
