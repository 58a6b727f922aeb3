"""Registering implementations of built-in functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain
    from torchjit_vm.capture.values import Value
    from torchjit_vm.frame import Frame

__all__ = ["BUILTINS", "METHODS", "Builtin", "builtin", "method"]

Builtin: TypeAlias = "Callable[[CaptureDomain, list[Value], dict[str, Value]], Value | Frame[Value] | None]"
"""Takes the domain, positional and keyword arguments; None means that it does not know these arguments."""

BUILTINS: dict[Any, Builtin] = {}
METHODS: dict[int, Builtin] = {}
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
            METHODS[id(raw)] = implementation
        return implementation

    return register
