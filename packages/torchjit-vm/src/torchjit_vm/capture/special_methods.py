"""What operations rest on: functions of C on constants, and special methods that a class defines in Python."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence

from torchjit_core.storing import never_stored
from torchjit_vm.capture import attributes, members
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.exceptions import from_real
from torchjit_vm.capture.raw import constant_of, from_raw, is_constant
from torchjit_vm.capture.reading import constant_object
from torchjit_vm.capture.reasons import ADDRESS, UNKNOWN_OPERATION
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import Const, Known, Kwargs, Leaf, SliceValue, TupleValue, Value

__all__ = ["checked", "compute", "computed", "defines", "has_method", "is_not_implemented", "settled", "special_call"]


def compute(domain: CaptureDomain, function: Callable[..., object], *args: object) -> Value:
    """Run a pure function on real constants, at capture."""
    try:
        result = function(*args)
    except Exception as error:
        raise domain.raised(from_real(domain, error)) from None
    if type(result) is str and " at 0x" in result:
        never_stored(ADDRESS, result)
    if type(result) is bool:
        return domain.constant(result)
    if type(result) in _CHANGING and sys.getrefcount(result) <= _HELD_HERE:
        return from_raw(domain, result)  # each call makes one of its own
    return constant_object(domain, result)


_CHANGING = frozenset({list, dict, set})
_HELD_HERE = 2
"""What `sys.getrefcount` says of an object that one variable holds."""


def computed(
    domain: CaptureDomain, function: Callable[..., object], args: Sequence[Value], kwargs: Kwargs | None = None
) -> Value | None:
    """`function(*args, **kwargs)`, at capture; None where one of these is no constant."""
    named = kwargs or {}
    if not all([is_constant(domain, v) for v in (*args, *named.values())]):
        return None
    real = [constant_of(domain, v) for v in args]
    if named:
        function = functools.partial(function, **{k: constant_of(domain, v) for k, v in named.items()})
    return compute(domain, function, *real)


def checked(
    domain: CaptureDomain,
    value: Value,
    name: str,
    answer: Value,
    expected: type | tuple[type, ...],
    function: Callable[..., object],
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


_REFUSED = frozenset({"__contains__", "__hash__", "__iter__", "__reversed__"})
"""Methods for which a class says with None that it has none; None in the place of others is called."""


def special_call(domain: CaptureDomain, value: Value, name: str, args: list[Value]) -> Value | None:
    """Call a dunder of a user-defined class, in a nested loop; None if the class has none."""
    cls = type_of(domain, value)
    member = members.find_member(domain, cls, name)
    if member.kind == members.ABSENT:
        return None
    if member.raw is None:
        if name in _REFUSED:
            return None
        raise domain.error(TypeError, "'NoneType' object is not callable")
    if member.kind == members.CMETHOD and not isinstance(value, Known):
        raise domain.graph_break(UNKNOWN_OPERATION, f"{cls.__name__}.{name}")
    return domain.vm.call(domain.vm.finish(attributes.bind(domain, member, value)), args)


_NUMBERS = (int, float, bool, complex)


def settled(domain: CaptureDomain, value: Value) -> Value:
    """The value with symbolic numbers in it as constants, for operations that have no symbolic form of them."""
    if type(value) is Leaf:
        number = domain.leaves.type_of(value.payload) in _NUMBERS
        return Const(domain.leaf_constant(value)) if number else value
    if type(value) is TupleValue and any(type(v) is Leaf for v in value.items or ()):
        return TupleValue([settled(domain, v) for v in value.items or ()], value.cls)
    if type(value) is SliceValue:
        return SliceValue(*(settled(domain, v) for v in (value.start, value.stop, value.step)))
    return value


def defines(domain: CaptureDomain, value: Value, name: str) -> bool:
    """Does the class define this method in Python?"""
    return members.find_member(domain, type_of(domain, value), name).kind == members.FUNCTION


def has_method(domain: CaptureDomain, value: Value, name: str) -> bool:
    """Does the class say anything under this name, in C or in Python?"""
    return members.find_member(domain, type_of(domain, value), name).kind != members.ABSENT


def is_not_implemented(value: Value | None) -> bool:
    return value is None or (type(value) is Const and value.value is NotImplemented)
