"""Values of the standard library that never change (dates, decimals), which documents hold as a class and what it is called with."""

from __future__ import annotations

import sys
from typing import Any

from torchjit_store.document import FormatError
from torchjit_store.stale import Stale

__all__ = ["built", "described"]

_CLASSES = frozenset(
    {
        ("datetime", "date"), ("datetime", "datetime"), ("datetime", "time"), ("datetime", "timedelta"), ("datetime", "timezone"),
        ("decimal", "Decimal"), ("fractions", "Fraction"),
    }
)  # fmt: skip


def described(obj: Any) -> tuple[tuple[str, str], tuple[Any, ...]] | None:
    """Module and name of its class, and the arguments; None for anything else. An exact type is asked: no code of the program runs."""
    name = type(obj).__module__, type(obj).__qualname__
    if name not in _CLASSES or _class(*name) is not type(obj):
        return None
    return name, obj.__reduce__()[1]


def built(module: str, name: str, arguments: list[Any]) -> Any:
    """The value again.

    Raises:
        Stale: its module is not imported.
        FormatError: it is no such value.
    """
    if (module, name) not in _CLASSES:
        raise FormatError(f"{module}.{name} has no values")
    cls = _class(module, name)
    if cls is None:
        raise Stale(f"{module} is not imported")
    try:
        return cls(*arguments)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise FormatError(f"no {module}.{name}") from error


def _class(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)
