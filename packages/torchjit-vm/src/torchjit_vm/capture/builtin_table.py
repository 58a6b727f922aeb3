"""Registering implementations of built-in functions."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from torchjit_vm.capture.values import (
    Const,
    DictValue,
    DictView,
    GeneratorValue,
    InstanceDict,
    ListValue,
    SetValue,
    TupleValue,
    Value,
)

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain
    from torchjit_vm.frame import Frame

__all__ = ["BUILTINS", "METHODS", "Builtin", "builtin", "method"]

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
    set: (SetValue,),
    frozenset: (SetValue,),
    str: (Const,),
    types.GeneratorType: (GeneratorValue,),
    type({}.keys()): (DictView,),
    type({}.items()): (DictView,),
    defaultdict: (DictValue,),
}
"""The kinds of value that stand for instances of a class; a method on another kind is not known."""
_kept: list[Any] = []


def builtin(*functions: Any) -> Callable[[Builtin], Builtin]:
    """Register the implementation of built-in functions or types."""

    def register(implementation: Builtin) -> Builtin:
        for function in functions:
            BUILTINS[function] = implementation
        return implementation

    return register


def method(name: str, *classes: type) -> Callable[[Builtin], Builtin]:
    """Register the implementation of a method of built-in classes; the first argument is the object."""

    def register(implementation: Builtin) -> Builtin:
        for cls in classes:
            raw = cls.__dict__[name]
            _kept.append(raw)
            METHODS[id(raw)] = _checked(implementation, _KINDS.get(cls))
        return implementation

    return register


def _checked(implementation: Builtin, kinds: tuple[type, ...] | None) -> Builtin:
    if kinds is None:
        return implementation

    def run(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | Frame[Value] | None:
        return implementation(domain, args, kwargs) if args and isinstance(args[0], kinds) else None

    return run
