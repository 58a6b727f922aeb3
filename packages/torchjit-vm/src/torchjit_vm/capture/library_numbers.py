"""Numbers of a library (NumPy's) that vary between calls.

They are constants: their type decides what Python's operators give. Where a call of the leaf handler makes no difference between
one and the Python number that it holds, the call gets that number, which may vary. So do sums, differences and products, which
emitted code makes with the library's operator where the region hands them on, and comparisons. Everywhere else the value is fixed.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torchjit_core.forks import caught_warnings
from torchjit_core.paths import Pinned
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.special_methods import settled
from torchjit_vm.capture.type_slots import Op
from torchjit_vm.capture.values import NEW, Const, Leaf, ListValue, SliceValue, TupleValue, Value

__all__ = ["binary", "compare", "converted", "negated", "varies", "with_plain_numbers"]

_ARITHMETIC = {
    operator.add: operator.add,
    operator.sub: operator.sub,
    operator.mul: operator.mul,
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.truediv: operator.truediv,
    operator.itruediv: operator.truediv,
    operator.floordiv: operator.floordiv,
    operator.ifloordiv: operator.floordiv,
    operator.mod: operator.mod,
    operator.imod: operator.mod,
}
_NUMBERS = (int, float, bool, complex)
_Operation: TypeAlias = "Callable[[CaptureDomain, Any, Value, Value], Value]"
_LARGEST_INT = 2**53
"""Up to which floats hold every int."""


def with_plain_numbers(
    domain: CaptureDomain, function: object, args: list[Value], kwargs: dict[str, Value]
) -> tuple[list[Value], dict[str, Value]]:
    """The arguments of a call of the leaf handler, with leaves in the place of numbers that vary."""
    kinds = [domain.leaves.type_of(v.payload) for v in (*args, *kwargs.values()) if type(v) is Leaf]
    return (
        [_plain(domain, function, kinds, a) for a in args],
        {name: _plain(domain, function, kinds, v) for name, v in kwargs.items()},
    )


def _plain(domain: CaptureDomain, function: object, kinds: Sequence[type], value: Value) -> Value:
    if type(value) is Const:
        read = None if value.used else domain.policy.plain_number(function, type(value.value), kinds)
        return value if read is None else _number(domain, value, read) or value
    if type(value) is SliceValue:
        return SliceValue(*(_plain(domain, function, kinds, v) for v in (value.start, value.stop, value.step)))
    if type(value) not in (TupleValue, ListValue) or value.real is not NEW or value.items is None:  # type: ignore[attr-defined]
        return value
    items: list[Value] = [_plain(domain, function, kinds, v) for v in value.items]  # type: ignore[attr-defined]
    if all(new is old for new, old in zip(items, value.items, strict=True)):  # type: ignore[attr-defined]
        return value
    return type(value)(items, value.cls)  # type: ignore[call-arg, attr-defined]


def converted(domain: CaptureDomain, function: object, value: Value) -> Leaf | None:
    """The leaf that `int(value)`, `value.item()` ... start from; None if it is no such number, or does not vary."""
    if type(value) is not Const or value.used:
        return None
    read = domain.policy.plain_number(function, type(value.value), ())
    return None if read is None else _number(domain, value, read)


def varies(domain: CaptureDomain, value: Const) -> bool:
    """Is this such a number, whose value is not fixed, and that varies?"""
    return domain.library_values and converted(domain, float, value) is not None


class NumberLeaves(dict[Const, Leaf]):
    """Numbers of a library that vary, to the Python numbers in them."""


def _number(domain: CaptureDomain, value: Const, read: Callable[[Any], int | float]) -> Leaf | None:
    """The leaf of the number that it holds; None if that does not vary."""
    known = domain.of(NumberLeaves).get(value)
    if known is not None or value.path is None or type(value.path) is Pinned:
        return known
    number, path = read(value.value), value.path.computed(read)
    if not domain.leaves.wants(number, path):
        return None
    domain.guard_type(value.path, type(value.value))
    payload = domain.leaves.input(number, path, domain)
    found = domain.payloads.setdefault(id(payload), Leaf(payload, path, number))
    domain.of(NumberLeaves)[value] = found
    return found


def binary(domain: CaptureDomain, usual: _Operation, function: object, left: Value, right: Value) -> Value | None:
    """An operator that is given such a number and another one; None if it has other operands, or none that varies.

    `usual` does it on constants.
    """
    if not _is_of_library(domain, left, right):
        return None
    if function in _ARITHMETIC:
        found = _computed(domain, _ARITHMETIC[function], left, right)
        if found is not None:
            return found
    return _settled(domain, usual, function, left, right)


def negated(domain: CaptureDomain, value: Const) -> Const | None:
    """`-value`; None if it is no such number, or does not vary."""
    return _computed(domain, operator.neg, value) if varies(domain, value) else None


def compare(domain: CaptureDomain, usual: _Operation, function: Op, left: Value, right: Value) -> Value | None:
    """A comparison that is given such a number and another one; None as for `binary`. What it gives is guarded."""
    if not _is_of_library(domain, left, right):
        return None
    numbers = [_operand(domain, v) for v in (left, right)]
    plain: list[Value] = [n for n in numbers if n is not None]
    if len(plain) == 2 and any(type(n) is Leaf for n in plain) and _compares_exactly(domain, left, right, plain):
        truth = domain.truth(domain.leaf_call(function, plain))
        result = function(*(_seen(domain, v) for v in (left, right)))
        if bool(result) is truth:
            return Const(result)
    return _settled(domain, usual, function, left, right)


def _is_of_library(domain: CaptureDomain, left: Value, right: Value) -> bool:
    """Are both numbers, one of them the library's, and is one of them not fixed yet?"""
    fixed, library = True, False
    for value in (left, right):
        if type(value) is Leaf:
            if domain.leaves.type_of(value.payload) not in _NUMBERS:
                return False
            fixed = False
        elif type(value) is Const:
            fixed &= value.used
            library |= domain.policy.plain_number(float, type(value.value), ()) is not None
        else:
            return False
    return library and not fixed


def _settled(domain: CaptureDomain, usual: _Operation, function: object, left: Value, right: Value) -> Value | None:
    """Its leaves as constants: the library's operators decide what the result's type is."""
    if type(left) is Const and type(right) is Const:
        return None
    return usual(domain, function, settled(domain, left), settled(domain, right))


def _operand(domain: CaptureDomain, value: Value) -> Const | Leaf | None:
    """The Python number in an operand, a leaf if it varies; None for others."""
    if type(value) is Leaf:
        return value if domain.leaves.number(value.payload) is not None else None
    if type(value) is not Const:
        return None
    if type(value.value) in (int, float):
        return value
    read = domain.policy.plain_number(float, type(value.value), ())
    if read is None:
        return None
    found = None if value.used else _number(domain, value, read)
    return found or Const(read(domain.use(value)))


def _seen(domain: CaptureDomain, value: Value) -> Any:
    """The operand at capture."""
    return domain.leaves.number(value.payload) if type(value) is Leaf else value.value  # type: ignore[attr-defined]


def _compares_exactly(domain: CaptureDomain, left: Value, right: Value, numbers: Sequence[Value]) -> bool:
    """Does the library compare the numbers as Python does: without rounding one to the type of the other?"""
    kinds = [type(_seen(domain, n)) for n in numbers]
    if kinds[0] is kinds[1]:
        return kinds[0] is int or all(isinstance(_seen(domain, v), float) for v in (left, right))
    small = [n for n in numbers if type(n) is Const and type(n.value) is int and abs(n.value) < _LARGEST_INT]
    return bool(small) and all(
        isinstance(_seen(domain, v), float) or n in small for v, n in zip((left, right), numbers, strict=True)
    )


def _computed(domain: CaptureDomain, function: Op, *values: Value) -> Const | None:
    """A sum, a product ...: emitted code makes the library's number, and graphs take the Python number in it.

    Guards say that neither is out of range: then both are the same number. None if there is no such guard, or nothing varies.
    """
    operands = [n for n in (_operand(domain, v) for v in values) if n is not None]
    if len(operands) < len(values) or not any(type(n) is Leaf for n in operands):
        return None
    if function in _DIVISIONS and not _divides_exactly(domain, function, values, operands):
        return None
    result = _result(domain, function, values)
    limits = domain.policy.number_limits(type(result))
    if limits is None:
        return None
    given = [n for v, n in zip(values, operands, strict=True) if v is n and type(n) is Leaf]
    leaf = domain.leaf_call(function, list(operands))
    if type(leaf) is not Leaf or not all(_is_between(domain, n, *limits) for n in (*given, leaf)):
        return None
    made = Const(result)
    made.used, made.made = False, (function, values)
    domain.of(NumberLeaves)[made] = leaf
    return made


def _result(domain: CaptureDomain, function: Op, values: Sequence[Value]) -> object:
    """What the library gives at capture; None where the usual way shows the program its error or its warning."""
    try:
        with caught_warnings():
            warnings.simplefilter("error")
            return function(*(_seen(domain, v) for v in values))
    except Exception:  # whatever it is: the usual way computes it again and shows it
        return None


_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)


def _divides_exactly(
    domain: CaptureDomain, function: object, values: Sequence[Value], operands: Sequence[Value]
) -> bool:
    """Is the divisor a constant by which the library divides as Python does?

    Floats of its quotients are made of floats, those of Python of whole numbers; of the rest of floats each has its own.
    """
    divisor = operands[1]
    if type(divisor) is not Const or not divisor.value:
        return False
    if function is operator.truediv:
        return isinstance(_seen(domain, values[0]), float) and abs(divisor.value) < _LARGEST_INT
    return all(type(_seen(domain, n)) is int for n in operands)


def _is_between(domain: CaptureDomain, leaf: Leaf, lower: float, upper: float) -> bool:
    low = domain.leaf_call(operator.ge, [leaf, Const(lower)])
    high = domain.leaf_call(operator.le, [leaf, Const(upper)])
    return domain.truth(low) and domain.truth(high)
