"""What special methods answer: CPython takes some types only, and says so itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchjit_vm.capture.special_methods import compute
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import Const, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["checked"]


def checked(
    domain: CaptureDomain, value: Value, name: str, answer: Value, expected: Any, function: Callable[[Any], Any]
) -> Value:
    """`answer`, which `type(value).name` gave to `function`.

    Raises:
        Raised: it has another type than `expected`, with the words of this version of Python.
    """
    kind = type_of(domain, answer)
    if issubclass(kind, expected):
        return answer
    given = answer.value if type(answer) is Const else type(kind.__name__, (), {})()
    stand_in = type(type_of(domain, value).__name__, (), {name: lambda *_: given})()
    return compute(domain, function, stand_in)
