"""Comparison, containment and identity."""

from __future__ import annotations

import operator
import types
from typing import Any

from torchjit_vm.capture import attributes, iteration, lengths, library_numbers, members
from torchjit_vm.capture.atoms import stripped
from torchjit_vm.capture.builtin_table import METHODS
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.members import has_own_methods
from torchjit_vm.capture.operators import RICH, as_tuple, leaf_call
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.special_methods import compute, defines, has_method, is_not_implemented, settled, special_call
from torchjit_vm.capture.type_slots import SLOTS, Op
from torchjit_vm.capture.types import is_subtype, type_of
from torchjit_vm.capture.values import NEW, AtomObject, Const, IdValue, Known, Leaf, Obj, Value
from torchjit_vm.frame import Raised
from torchjit_vm.type_labels import type_label

__all__ = ["compare", "contains", "is_", "same_or_equal", "search"]


def is_(domain: CaptureDomain, left: Value, right: Value) -> bool:
    if left is right:
        return True
    if type(left) is Const or type(right) is Const:
        return _is_constant(domain, left, right) if type(left) is Const else _is_constant(domain, right, left)
    if type(left) is Known and type(right) is Known:
        return left.obj is right.obj
    first, second = getattr(left, "path", None), getattr(right, "path", None)
    if first is None or second is None or left.real is NEW or right.real is NEW:  # type: ignore[attr-defined]
        return False
    same: bool = left.real is right.real  # type: ignore[attr-defined]
    (domain.guard_same if same else domain.guard_different)(first, second)
    return same


def _is_constant(domain: CaptureDomain, const: Value, other: Value) -> bool:
    if type(const) is not Const:
        raise AssertionError("no constant")
    if type(other) is Const:
        return _same_constant(domain, const, other)
    if type(other) is Leaf and domain.leaves.type_of(other.payload) is type(const.value):
        return is_(domain, const, settled(domain, other))  # numbers: some are one object wherever they are made
    type_of(domain, const)  # the types differ, and that is relied on
    return False


def _same_constant(domain: CaptureDomain, left: Const, right: Const) -> bool:
    for one, other in ((left, right), (right, left)):
        if other.path is None and other.value is None and one.value is not None:
            type_of(domain, one)  # only the type is relied on, not the value
            return False
    return domain.use(left) is domain.use(right)


def compare(domain: CaptureDomain, function: Op, left: Value, right: Value) -> Value:
    """`function(left, right)` for one of the six comparisons.

    Source: do_richcompare in CPython's Objects/object.c.
    """
    if domain.library_values and (found := library_numbers.compare(domain, compare, function, left, right)) is not None:
        return found
    tl, tr = type(left), type(right)
    if tl is Const and tr is Const:
        return compute(domain, function, domain.use(left), domain.use(right))
    if tl is Leaf or tr is Leaf:
        return _compare_leaf(domain, function, left, right)
    return _compare_objects(domain, function, as_tuple(left), as_tuple(right))


def _compare_leaf(domain: CaptureDomain, function: Op, left: Value, right: Value) -> Value:
    """A comparison that the leaf handler is given as a whole."""
    leaf, other = (left, right) if type(left) is Leaf else (right, left)
    if type(other) is IdValue:  # which knows more than a leaf handler does of comparisons with it
        answer = _answer(domain, function, other, leaf)
        if answer is not None:
            return answer
    none = type(other) is Const and other.value is None and function in (operator.eq, operator.ne)
    if none and type_of(domain, leaf) in (int, float, bool):
        return domain.constant(function is operator.ne)
    names = (*RICH[function][:2], "__eq__")
    return leaf_call(domain, function, [stripped(domain, left, *names), stripped(domain, right, *names)])


def _compare_objects(domain: CaptureDomain, function: Op, left: Value, right: Value) -> Value:
    """The operands are asked in turn, that of a derived class first; who has no answer differs from all but itself."""
    tl, tr = type_of(domain, left), type_of(domain, right)
    swapped = _SWAPPED[function]
    reflected_first = tl is not tr and is_subtype(tr, tl)
    if reflected_first and (answer := _answer(domain, swapped, right, left)) is not None:
        return answer
    if (answer := _answer(domain, function, left, right)) is not None:
        return answer
    if not reflected_first and (answer := _answer(domain, swapped, right, left)) is not None:
        return answer
    if function in (operator.eq, operator.ne):
        return domain.constant(is_(domain, left, right) is (function is operator.eq))
    text = f"'{RICH[function][2]}' not supported between instances of '{type_label(tl)}' and '{type_label(tr)}'"
    raise domain.error(TypeError, text)


_SWAPPED = {
    operator.lt: operator.gt, operator.le: operator.ge, operator.eq: operator.eq,
    operator.ne: operator.ne, operator.gt: operator.lt, operator.ge: operator.le,
}  # fmt: skip
_OF_OBJECT = frozenset(id(getattr(object, names[0])) for names in RICH.values())


def _answer(domain: CaptureDomain, function: Op, self: Value, other: Value) -> Value | None:
    """What one operand says: by a method of the program, else by the slot of its kind; None for NotImplemented."""
    raw: Any = None
    if isinstance(self, (Obj, Known)):
        member = members.find_member(domain, type_of(domain, self), RICH[function][0])
        raw = member.raw
        if type(raw) is types.FunctionType:
            return _asked(domain, member, self, other)
        if raw is object.__ne__:
            member = members.find_member(domain, type_of(domain, self), "__eq__")
            if type(member.raw) is types.FunctionType:
                equal = _asked(domain, member, self, other)
                return None if equal is None else domain.not_(equal)
    slot = SLOTS[type(self)].richcompare
    if slot is not None:
        return slot(domain, function, self, other)
    if type(self) is not Obj or id(raw) in _OF_OBJECT:
        return None
    known = METHODS.get(id(raw))
    found = None if known is None else known(domain, [self, other], {})
    if not isinstance(found, Value):
        kinds = [type_of(domain, v).__name__ for v in (self, other)]
        raise domain.graph_break(UNKNOWN_OPERATION, f"{kinds[0]} {RICH[function][2]} {kinds[1]}")
    return None if is_not_implemented(found) else found


def _asked(domain: CaptureDomain, member: members.Member, self: Value, other: Value) -> Value | None:
    result = domain.vm.call(domain.vm.finish(attributes.bind(domain, member, self)), [other])
    return None if is_not_implemented(result) else result


def same_or_equal(domain: CaptureDomain, left: Value, right: Value) -> bool:
    """`left is right or left == right`, the test of containers."""
    if left is right:
        return True
    if type(left) is Leaf and type(right) is Leaf and is_(domain, left, right):
        return True
    return lengths.truth(domain, compare(domain, operator.eq, left, right))


def contains(domain: CaptureDomain, container: Value, item: Value) -> Value:
    """`item in container`."""
    if type(container) is not AtomObject or has_method(domain, container, "__contains__"):
        container = stripped(domain, container, "__contains__")
    item = stripped(domain, item, "__eq__", "__hash__")
    if type(container) is Leaf:
        return leaf_call(domain, operator.contains, [container, item])
    asked = isinstance(container, Obj) or (type(container) is Known and has_own_methods(type(container.obj)))
    if asked and defines(domain, container, "__contains__"):
        found = special_call(domain, container, "__contains__", [item])
        return domain.constant(found is not None and lengths.truth(domain, found))
    if asked and members.find_member(domain, type_of(domain, container), "__contains__").raw is None:
        label = type_label(type_of(domain, container))
        raise domain.error(TypeError, f"'{label}' object is not a container")
    slot = SLOTS[type(container)].contains
    answer = None if slot is None else slot(domain, container, item)
    if answer is not None:
        return answer
    try:
        iterator = iteration.get_iter(domain, container)
    except Raised as raised:
        if not issubclass(type_of(domain, raised.value), TypeError):
            raise
        # CPython says this in the place of any TypeError from there.
        label = type_label(type_of(domain, container))
        raise domain.error(TypeError, f"argument of type '{label}' is not iterable") from None
    return search(domain, iterator, item)


def search(domain: CaptureDomain, iterator: Value, item: Value) -> Value:
    """Is an item among those of an iterator, which is asked no further than to it?"""
    left = domain.policy.step_limit
    while (candidate := iteration.advance(domain, iterator)) is not None:
        if same_or_equal(domain, candidate, item):
            return domain.constant(True)
        if (left := left - 1) < 0:
            raise domain.graph_break(UNKNOWN_OPERATION, "in over an endless iterator")
    return domain.constant(False)
