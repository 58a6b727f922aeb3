"""Comparison, containment and identity."""

from __future__ import annotations

import operator
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from torchjit_vm.capture import (
    attributes,
    byte_arrays,
    dicts,
    elements,
    iteration,
    keys,
    lengths,
    library_numbers,
    members,
    sets,
    weak_references,
)
from torchjit_vm.capture.atoms import stripped
from torchjit_vm.capture.operators import (
    RICH,
    as_tuple,
    compute,
    defines,
    is_not_implemented,
    leaf_call,
    plain_base,
    settled,
    special_call,
)
from torchjit_vm.capture.raw import to_raw
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.set_algebra import set_keys
from torchjit_vm.capture.types import is_subtype, type_of
from torchjit_vm.capture.values import (
    NEW,
    AtomObject,
    BoundMethod,
    ByteArray,
    Const,
    DictValue,
    DictView,
    FunctionValue,
    IdValue,
    InstanceDict,
    Known,
    Leaf,
    ListValue,
    Obj,
    RandomState,
    SetValue,
    SliceValue,
    TupleValue,
    Value,
)
from torchjit_vm.frame import Raised
from torchjit_vm.type_labels import type_label

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["compare", "compare_sequences", "contains", "is_", "same_or_equal"]


def is_(domain: CaptureDomain, left: Value, right: Value) -> bool:
    if left is right:
        return True
    tl, tr = type(left), type(right)
    if tl is Const or tr is Const:
        if tl is Const and tr is Const:
            return _same_constant(domain, cast(Const, left), cast(Const, right))
        const, other = (left, right) if tl is Const else (right, left)
        if type(other) is Leaf and domain.leaves.type_of(other.payload) is type(cast(Const, const).value):
            return is_(domain, const, settled(domain, other))  # numbers: some are one object wherever they are made
        type_of(domain, const)  # the types differ, and that is relied on
        return False
    if tl is Known and tr is Known:
        return left.obj is right.obj  # type: ignore[attr-defined]
    first, second = getattr(left, "path", None), getattr(right, "path", None)
    if first is not None and second is not None and left.real is not NEW and right.real is not NEW:  # type: ignore[attr-defined]
        if left.real is right.real:  # type: ignore[attr-defined]
            domain.guard_same(first, second)
            return True
        domain.guard_different(first, second)
    return False


def _same_constant(domain: CaptureDomain, left: Const, right: Const) -> bool:
    for one, other in ((left, right), (right, left)):
        if other.path is None and other.value is None and one.value is not None:
            type_of(domain, one)  # only the type is relied on, not the value
            return False
    return domain.use(left) is domain.use(right)


def compare(domain: CaptureDomain, function: Callable[..., Any], left: Value, right: Value) -> Value:
    if type(left) is RandomState or type(right) is RandomState:
        raise domain.graph_break(UNKNOWN_OPERATION, "a decision about the state of a random generator")
    for one, other in ((left, right), (right, left)):
        if type(one) is ByteArray and isinstance(other, (Const, AtomObject, ByteArray)):
            return byte_arrays.byte_operation(domain, function, left, right)
    if type(left) is AtomObject or type(right) is AtomObject:
        names = (*RICH[function][:2], "__eq__")
        plain = stripped(domain, left, *names), stripped(domain, right, *names)
        if not any(type(v) is AtomObject for v in plain):
            left, right = plain
    tl, tr = type(left), type(right)
    if tl is IdValue and type(right) in (Const, Leaf):
        found = _compare_number(domain, function, cast(IdValue, left), right)
        if found is not None:
            return found
    elif tr is IdValue and tl in (Const, Leaf):
        found = _compare_number(domain, function, cast(IdValue, right), left)
        if found is not None:
            return found
    if domain.library_values and (found := library_numbers.compare(domain, compare, function, left, right)) is not None:
        return found
    if tl is Const and tr is Const:
        return compute(domain, function, domain.use(cast(Const, left)), domain.use(cast(Const, right)))
    if tl is Leaf or tr is Leaf:
        other = right if tl is Leaf else left
        if type(other) is Const and other.value is None and function in (operator.eq, operator.ne):
            leaf = left if tl is Leaf else right
            if domain.leaves.type_of(cast(Leaf, leaf).payload) in (int, float, bool):
                return domain.constant(function is operator.ne)
        return leaf_call(domain, function, [left, right])
    if tl in (Known, Const) and tr in (Known, Const):
        member = members.find_member(domain, type_of(domain, left), RICH[function][0])
        if type(member.raw) is not types.FunctionType:
            return compute(domain, function, to_raw(domain, left), to_raw(domain, right))
    return _compare_objects(domain, function, as_tuple(left), as_tuple(right))


def _compare_number(domain: CaptureDomain, function: Any, left: IdValue, right: Value) -> Value | None:
    """`id(object) == number`, which an earlier `id` may have given: for what is outside, it is compared. None for the rest."""
    if (
        left.function not in (id, hash)
        or type_of(domain, right) is not int
        or function not in (operator.eq, operator.ne)
    ):
        return None
    number = keys.settled_number(domain, left.target)
    if number is None:
        return domain.constant(function is operator.ne) if left.function is id else None
    real: Any = cast(Any, left.target).real
    return compare(domain, function, Const(left.function(real)), right)


def _compare_objects(domain: CaptureDomain, function: Any, left: Value, right: Value) -> Value:
    for kind in (ListValue, TupleValue):
        if not (isinstance(left, kind) and isinstance(right, kind)):
            continue
        if plain_base(left.cls) is plain_base(right.cls) and not _user_compare(domain, function, left, right):
            return compare_sequences(domain, function, left, right)
    equality = function in (operator.eq, operator.ne)
    both_dicts = isinstance(left, DictValue) and isinstance(right, DictValue)
    if both_dicts and equality and not _user_compare(domain, function, cast(Obj, left), cast(Obj, right)):
        equal = _equal_dicts(domain, cast(DictValue, left), cast(DictValue, right))
        return domain.constant(equal is (function is operator.eq))
    if equality and isinstance(left, Obj) and isinstance(right, Obj) and left.cls is right.cls is types.SimpleNamespace:
        both = [dicts.instance_snapshot(domain, InstanceDict(v)) for v in (left, right)]
        return domain.constant(_equal_dicts(domain, both[0], both[1]) is (function is operator.eq))
    if type(left) is IdValue or type(right) is IdValue:
        same = type(left) is type(right) and is_(domain, cast(IdValue, left).target, cast(IdValue, right).target)
        addresses = type(left) is not IdValue or left.function is not hash
        alike = type(left) is not IdValue or type(right) is not IdValue or left.function is right.function
        number = issubclass(type_of(domain, left), (int, float)) and issubclass(type_of(domain, right), (int, float))
        if not (equality and alike and (same or addresses)) and number:
            raise domain.graph_break(UNKNOWN_OPERATION, "a decision about the number of an id() or hash()")
        if not equality:
            raise domain.error(
                TypeError,
                f"'{RICH[function][2]}' not supported between instances of "
                f"'{type_label(type_of(domain, left))}' and '{type_label(type_of(domain, right))}'",
            )
        return domain.constant(same is (function is operator.eq))
    if equality and weak_references.is_reference(left) and weak_references.is_reference(right):
        targets = [weak_references.referent(domain, cast(Obj, v)) for v in (left, right)]
        if targets[0] is not None and targets[1] is not None:
            return compare(domain, function, targets[0], targets[1])
        return domain.constant(is_(domain, left, right) is (function is operator.eq))
    if type(left) is SliceValue and type(right) is SliceValue:
        parts = [TupleValue([s.start, s.stop, s.step]) for s in (left, right)]
        return compare_sequences(domain, function, parts[0], parts[1])
    if type(left) is BoundMethod and type(right) is BoundMethod and equality:
        equal = is_(domain, left.self_, right.self_) and same_or_equal(domain, left.function, right.function)
        return domain.constant(equal is (function is operator.eq))
    a, b = set_keys(domain, left), set_keys(domain, right)
    own = any(isinstance(v, Obj) and defines(domain, v, n) for v, n in zip((left, right), RICH[function], strict=False))
    if a is not None and b is not None and not own:
        if domain.has_numbers:
            keys.refuse_numbers(domain, a, b)
            keys.refuse_numbers(domain, b, a)
        return domain.constant(bool(function(a.keys(), b.keys())))
    name, swapped, symbol = RICH[function]
    tl, tr = type_of(domain, left), type_of(domain, right)
    attempts = [(left, name, right), (right, swapped, left)]
    if tl is not tr and is_subtype(tr, tl):
        attempts.reverse()
    for self_, dunder, other in attempts:
        member = members.find_member(domain, type_of(domain, self_), dunder)
        if type(member.raw) is types.FunctionType:
            result = domain.vm.call(domain.vm.finish(attributes.bind(domain, member, self_)), [other])
            if not is_not_implemented(result):
                return result
        elif type(self_) is AtomObject:
            pass  # the plain values are compared below
        elif member.kind != members.ABSENT and not _default_compare(self_, member.raw):
            raise domain.graph_break(UNKNOWN_OPERATION, f"{tl.__name__} {symbol} {tr.__name__}")
    if function is operator.ne and members.find_member(domain, tl, name).raw is object.__dict__[name]:
        member = members.find_member(domain, tl, "__eq__")
        if type(member.raw) is types.FunctionType:
            result = domain.vm.call(domain.vm.finish(attributes.bind(domain, member, left)), [right])
            if not is_not_implemented(result):
                return domain.not_(result)
    plain = stripped(domain, left), stripped(domain, right)
    if plain != (left, right) and isinstance(plain[0], Const) and isinstance(plain[1], Const):
        return compare(domain, function, plain[0], plain[1])
    if function in (operator.eq, operator.ne):
        return domain.constant(is_(domain, left, right) is (function is operator.eq))
    raise domain.error(
        TypeError, f"'{symbol}' not supported between instances of '{type_label(tl)}' and '{type_label(tr)}'"
    )


_OBJECT_COMPARES = frozenset(
    id(getattr(object, n)) for n in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
)
_IDENTITY_TYPES = (FunctionValue, ListValue, TupleValue, DictValue, SetValue, Const, Known, InstanceDict, DictView)


def _default_compare(value: Value, raw: Any) -> bool:
    """Is this comparison the identity of `object`, or one that does not apply to operands of two kinds?"""
    return id(raw) in _OBJECT_COMPARES or isinstance(value, _IDENTITY_TYPES) or type(value) is not Obj


def _user_compare(domain: CaptureDomain, function: Any, left: Obj, right: Obj) -> bool:
    name, swapped, _ = RICH[function]
    return defines(domain, left, name) or defines(domain, right, swapped)


def same_or_equal(domain: CaptureDomain, left: Value, right: Value) -> bool:
    """`left is right or left == right`, the test of containers."""
    if left is right:
        return True
    if type(left) is Leaf and type(right) is Leaf and is_(domain, left, right):
        return True
    return lengths.truth(domain, compare(domain, operator.eq, left, right))


def compare_sequences(
    domain: CaptureDomain, function: Any, left: ListValue | TupleValue, right: ListValue | TupleValue
) -> Value:
    a, b = elements.items(domain, left), elements.items(domain, right)
    if function in (operator.eq, operator.ne) and len(a) != len(b):
        return domain.constant(function is operator.ne)
    for x, y in zip(a, b, strict=False):
        if not same_or_equal(domain, x, y):
            if function in (operator.eq, operator.ne):
                return domain.constant(function is operator.ne)
            return compare(domain, function, x, y)
    return domain.constant(bool(function(len(a), len(b))))


def _equal_dicts(domain: CaptureDomain, left: DictValue, right: DictValue) -> bool:
    if dicts.dict_length(domain, left) != dicts.dict_length(domain, right):
        return False
    for key, value in dicts.dict_pairs(domain, left):
        other = dicts.dict_lookup(domain, right, keys.key_of(domain, key))
        if other is None or not same_or_equal(domain, value, other):
            return False
    if issubclass(left.cls, OrderedDict) and issubclass(right.cls, OrderedDict):
        orders = [[keys.key_of(domain, k) for k, _ in dicts.dict_pairs(domain, d)] for d in (left, right)]
        return orders[0] == orders[1]
    return True


def contains(domain: CaptureDomain, container: Value, item: Value) -> Value:
    if type(container) is ByteArray or (type(item) is ByteArray and type(container) is Const):
        return byte_arrays.byte_operation(domain, operator.contains, container, item)
    container = stripped(domain, container, "__contains__")
    item = stripped(domain, item, "__eq__", "__hash__")
    if type(container) is Const and isinstance(item, Const):
        return compute(domain, operator.contains, domain.use(container), domain.use(item))
    if type(container) is Leaf:
        return leaf_call(domain, operator.contains, [container, item])
    if isinstance(container, Obj) and defines(domain, container, "__contains__"):
        found = special_call(domain, container, "__contains__", [item])
        return domain.constant(found is not None and lengths.truth(domain, found))
    if isinstance(container, DictView) and container.kind == "keys":
        container = container.target
    if isinstance(container, DictValue):
        return domain.constant(dicts.dict_lookup(domain, container, keys.key_of(domain, item)) is not None)
    if isinstance(container, InstanceDict) and type(item) is Const:
        return domain.constant(attributes.instance_attr(domain, container.owner, domain.use(item)) is not None)
    if isinstance(container, SetValue):
        return domain.constant(sets.sought_key(domain, item, container) in elements.set_entries(domain, container))
    if type(container) is Const and isinstance(container.value, (str, bytes, frozenset)):
        return _in_constant(domain, container, item)
    if type(container) is Known and isinstance(container.obj, type):
        meta = members.find_member(domain, type(container.obj), "__contains__")
        if meta.kind != members.ABSENT and isinstance(item, (Const, Known)):
            return compute(domain, operator.contains, container.obj, to_raw(domain, item))
    left = domain.policy.step_limit
    try:
        iterator: Value
        if isinstance(container, (ListValue, TupleValue)):
            iterator = iteration.sequence_iter(domain, container)  # C code does not ask for `__iter__`
        else:
            iterator = iteration.get_iter(domain, container)
    except Raised as raised:
        if not issubclass(type_of(domain, raised.value), TypeError):
            raise
        # CPython says this in the place of any TypeError from there.
        label = type_label(type_of(domain, container))
        raise domain.error(TypeError, f"argument of type '{label}' is not iterable") from None
    while (candidate := iteration.advance(domain, iterator)) is not None:  # no further than to the item
        if same_or_equal(domain, candidate, item):
            return domain.constant(True)
        if (left := left - 1) < 0:
            raise domain.graph_break(UNKNOWN_OPERATION, "in over an endless iterator")
    return domain.constant(False)


def _in_constant(domain: CaptureDomain, container: Const, item: Value) -> Value:
    """`item in text`, or in a constant set, of what is no constant."""
    known, cls = domain.use(container), type_of(domain, item)
    if isinstance(known, frozenset):
        return domain.constant(sets.sought_key(domain, item, None) in known)
    if issubclass(cls, (str, bytes, int)) or type(item) is Leaf:
        raise domain.graph_break(UNKNOWN_OPERATION, f"{cls.__name__} in {type(known).__name__}")
    if isinstance(known, str):
        raise domain.error(TypeError, f"'in <string>' requires string as left operand, not {type_label(cls)}")
    raise domain.error(TypeError, f"a bytes-like object is required, not '{type_label(cls)}'")
