"""The methods of C classes, as one table for each kind of value.

    methods(ListValue, list, append=_append, pop=_pop)

An implementation has the parameters of the method that it stands for, behind the domain and the object, and None stands for Python's.
A call that does not fit its parameters, or another kind of object, is left to the real method, which raises the real error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Final, TypeAlias, cast

from torchjit_vm.capture.builtin_table import METHODS, Builtin
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.values import Const, Value
from torchjit_vm.frame import Frame

__all__ = ["UNKNOWN", "Method", "methods"]

Method: TypeAlias = "Callable[..., Value | Frame[Value] | None]"
"""Takes the domain, the object and the arguments of the method."""

UNKNOWN: Final = Value()
"""What an implementation gives for arguments that it does not know: the call runs for real."""


def methods(kind: type[Value], cls: type, by_name: bool = False, /, **table: Method) -> None:
    """Register methods of a C class for one of the kinds of value that stand for its instances.

    Args:
        kind: the kind.
        cls: the class.
        by_name: its methods take their arguments by name, too; otherwise only parameters that are keyword only.
        table: names to implementations.
    """
    for name, implementation in table.items():
        raw = id(cls.__dict__[name])
        METHODS[raw] = _method(kind, cast(FunctionType, implementation), by_name, METHODS.get(raw))


def _method(kind: type[Value], implementation: FunctionType, by_name: bool, of_others: Builtin | None) -> Builtin:
    most = implementation.__code__.co_argcount
    least = most - len(implementation.__defaults__ or ())

    def run(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | Frame[Value] | None:
        if not args or not isinstance(args[0], kind):
            return None if of_others is None else of_others(domain, args, kwargs)
        count = len(args) + 1
        if (kwargs or not least <= count <= most) and not _fits(implementation, count, kwargs, by_name):
            return None
        found: Value | Frame[Value] | None = implementation(domain, *args, **kwargs)
        return Const(None) if found is None else None if found is UNKNOWN else found

    return run


def _fits(function: FunctionType, count: int, keywords: Mapping[str, object], by_name: bool) -> bool:
    """May it be called with so many positional arguments and these keywords?"""
    code, names = function.__code__, set(keywords)
    if count > code.co_argcount and not code.co_flags & inspect.CO_VARARGS:
        return False
    needed = code.co_varnames[count : code.co_argcount - len(function.__defaults__ or ())]
    first = max(count, code.co_posonlyargcount) if by_name else code.co_argcount
    named = code.co_varnames[first : code.co_argcount + code.co_kwonlyargcount]
    return names.issuperset(needed) and (bool(code.co_flags & inspect.CO_VARKEYWORDS) or names.issubset(named))
