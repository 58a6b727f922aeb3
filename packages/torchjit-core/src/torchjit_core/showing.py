"""Objects of the program as text for people, without running any of its code."""

from __future__ import annotations

import enum
import types
from collections import deque
from typing import Any

__all__ = ["shortened", "shown"]

_NAMED = (types.FunctionType, types.BuiltinFunctionType)
_OF_ITEMS = (tuple, list, set, frozenset, dict, deque, BaseException, types.MethodType, types.SimpleNamespace)
"""Their `repr` asks that of what they hold."""


def shown(obj: Any, limit: int = 80, depth: int = 2) -> str:
    """An object's name, or its `repr` where C code writes that; else its class.

    A `__repr__` in Python may have effects and may raise, and `isinstance` and `getattr` may run a `__getattribute__`.
    """
    text = _text(obj, depth)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _text(obj: Any, depth: int) -> str:
    cls = type(obj)
    if issubclass(cls, type):
        return str(type.__dict__["__qualname__"].__get__(obj))
    if issubclass(cls, _NAMED):
        return str(obj.__qualname__)
    if issubclass(cls, enum.Enum):
        return f"{cls.__qualname__}.{object.__getattribute__(obj, '_name_')}"
    if cls in (tuple, list, set, frozenset, dict):
        if not obj or not depth:
            return repr(cls()) if not obj else f"<{cls.__qualname__} of {len(obj)}>"
        return _container(obj, depth - 1)
    if type.__getattribute__(cls, "__module__") == "torchjit_core.guards":  # what stands for nothing
        return repr(obj)
    written = type.__getattribute__(cls, "__repr__")
    if (
        type(written) is types.WrapperDescriptorType
        and written is not object.__repr__
        and not issubclass(cls, _OF_ITEMS)
    ):
        return repr(obj)
    return f"<{type.__dict__['__qualname__'].__get__(cls)} object>"


def _container(obj: Any, depth: int) -> str:
    if type(obj) is dict:
        return "{" + ", ".join(f"{_text(k, depth)}: {_text(v, depth)}" for k, v in obj.items()) + "}"
    items = ", ".join(_text(item, depth) for item in obj)
    if type(obj) is tuple:
        return f"({items},)" if len(obj) == 1 else f"({items})"
    if type(obj) is list:
        return f"[{items}]"
    return "{" + items + "}" if type(obj) is set else "frozenset({" + items + "})"


def shortened(text: str, limit: int = 240) -> str:
    """The text with its middle left out if it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    return f"{text[: limit - tail - 5]} ... {text[-tail:]}"
