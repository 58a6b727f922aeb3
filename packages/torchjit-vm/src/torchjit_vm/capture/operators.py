"""Operators; what every operation is made of: computing on constants, calling leaves and dunders."""

from __future__ import annotations

import operator
from collections import OrderedDict, deque
from typing import Any, cast

from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture import attributes, library_numbers, members, subscripts, texts
from torchjit_vm.capture.atoms import real_of, stripped
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.interception import defined_by_program, intercept, override
from torchjit_vm.capture.made_later import made_later
from torchjit_vm.capture.raw import constant_of, from_raw, is_constant, to_raw
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.special_methods import compute, defines, is_not_implemented, settled, special_call
from torchjit_vm.capture.type_slots import SLOTS, Op, Repeat
from torchjit_vm.capture.types import is_subtype, type_of
from torchjit_vm.capture.values import (
    AtomObject,
    Const,
    DictValue,
    IdValue,
    Known,
    Leaf,
    ListValue,
    Obj,
    SetValue,
    TupleValue,
    Value,
)
from torchjit_vm.frame import Raised
from torchjit_vm.type_labels import type_label

__all__ = [
    "DUNDERS",
    "INPLACE",
    "RICH",
    "as_tuple",
    "binary",
    "compute",
    "defines",
    "is_not_implemented",
    "leaf_call",
    "settled",
    "special_call",
    "unary",
]

_NAMES = {
    "add": "add", "and_": "and", "floordiv": "floordiv", "lshift": "lshift", "matmul": "matmul", "mul": "mul",
    "mod": "mod", "or_": "or", "pow": "pow", "rshift": "rshift", "sub": "sub", "truediv": "truediv", "xor": "xor",
}  # fmt: skip
DUNDERS: dict[Any, tuple[str, str]] = {getattr(operator, k): (f"__{v}__", f"__r{v}__") for k, v in _NAMES.items()}
INPLACE: dict[Any, tuple[str, Any]] = {
    getattr(operator, f"i{v}"): (f"__i{v}__", getattr(operator, k)) for k, v in _NAMES.items()
}
_SYMBOLS = {
    operator.add: "+", operator.and_: "&", operator.floordiv: "//", operator.lshift: "<<", operator.matmul: "@",
    operator.mul: "*", operator.mod: "%", operator.or_: "|", operator.pow: "** or pow()", operator.rshift: ">>",
    operator.sub: "-", operator.truediv: "/", operator.xor: "^",
}  # fmt: skip
_UNARY_SYMBOLS = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}
_UNARY = {operator.neg: "__neg__", operator.pos: "__pos__", operator.invert: "__invert__"}
RICH = {
    operator.lt: ("__lt__", "__gt__", "<"), operator.le: ("__le__", "__ge__", "<="),
    operator.eq: ("__eq__", "__eq__", "=="), operator.ne: ("__ne__", "__ne__", "!="),
    operator.gt: ("__gt__", "__lt__", ">"), operator.ge: ("__ge__", "__le__", ">="),
}  # fmt: skip


_METHODS: dict[Any, tuple[str, ...]] = {
    **DUNDERS,
    **{function: (name,) for function, (name, _) in INPLACE.items()},
    **{function: names[:2] for function, names in RICH.items()},
    **{function: (name,) for function, name in _UNARY.items()},
    **{getattr(operator, n): (f"__{n}__",) for n in ("getitem", "setitem", "abs")},
}
"""Operators to the method of the first operand, and to that of the second."""


def leaf_call(domain: CaptureDomain, function: Op, args: list[Value], kwargs: dict[str, Value] | None = None) -> Value:
    """Hand a call to the leaf handler."""
    domain.used_leaves = True
    _rely_on_methods(domain, function, args)
    answer = _intercepted(domain, function, args, kwargs or {})
    if answer is not None:
        return answer
    if domain.library_values:
        args, kwargs = library_numbers.with_plain_numbers(domain, function, args, kwargs or {})
    guarded = len(domain.pending)
    raw = tuple([to_raw(domain, a) for a in args])
    keywords = {k: to_raw(domain, v) for k, v in kwargs.items()} if kwargs else {}
    try:
        result = from_raw(domain, domain.leaves.call(function, raw, keywords, domain))
    except GraphBreak:
        if len(domain.pending) > guarded:
            _forget_identities(domain, guarded, [*args, *(kwargs or {}).values()])
        raise
    if type(result) is not Const or result.value is None:
        domain.leaf_effects += 1
    return result


def _rely_on_methods(domain: CaptureDomain, function: Any, args: list[Value]) -> None:
    """Rely on the methods that the operator asks: a class may be patched.

    Raises:
        GraphBreak: one is the program's, and comes before all else.
    """
    for value, name in zip(args, _METHODS.get(function, ()), strict=False):
        if type(value) is Leaf:
            member = members.find_member(domain, type_of(domain, value), name)
            if not domain.overrides:
                break
            if member.kind == members.FUNCTION and defined_by_program(domain, value, name):
                raise domain.graph_break(UNKNOWN_OPERATION, f"{member.cls.__name__}.{name}")


def _intercepted(domain: CaptureDomain, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What those say that see calls before the handler."""
    answer = intercept(domain, function, args, kwargs) if domain.interceptors else None
    return override(domain, function, args, kwargs) if answer is None and domain.overrides else answer


def _forget_identities(domain: CaptureDomain, guarded: int, args: list[Value]) -> None:
    """A refused call runs for real: which objects it was given is not relied on, and the next call may have others."""
    paths = {id(a.path) for a in args if isinstance(a, Obj)}
    for key in list(domain.pending)[guarded:]:
        if key[0] == "id" and id(key[1]) in paths:
            del domain.pending[key]


def unary(domain: CaptureDomain, function: Op, value: Value) -> Value:
    if type(value) is Const:
        later = library_numbers.negated(domain, value) if function is operator.neg else None
        return later or compute(domain, function, domain.use(value))
    if type(value) is Leaf:
        return leaf_call(domain, function, [value])
    plain = stripped(domain, value, _UNARY[function])
    if plain is not value:
        return unary(domain, function, plain)
    found = special_call(domain, value, _UNARY[function], [])
    if found is None:
        raise domain.error(
            TypeError, f"bad operand type for unary {_UNARY_SYMBOLS[function]}: '{type_label(type_of(domain, value))}'"
        )
    return found


def binary(domain: CaptureDomain, function: Op, left: Value, right: Value) -> Value:
    """`function(left, right)` for an operator, perhaps the in-place form of one.

    Source: binary_op1, PyNumber_Add, PyNumber_Multiply and binary_iop1 in CPython's Objects/abstract.c.
    """
    if function is operator.getitem:
        return subscripts.getitem(domain, left, right)
    if domain.library_values and (made := library_numbers.binary(domain, binary, function, left, right)) is not None:
        return made
    kinds = type(left), type(right)
    if type(left) is Const and type(right) is Const:
        return _binary_constants(domain, function, left, right)
    answer = _binary_atoms(domain, function, left, right) if AtomObject in kinds else None
    if answer is None and type(left) is Const and function in _PERCENT:
        answer = _percent(domain, left, right)
    if answer is None and Leaf in kinds:
        answer = _binary_leaf(domain, function, left, right)
    if answer is not None:
        return answer
    if function not in INPLACE:
        return _operate(domain, function, as_tuple(left), as_tuple(right), function)
    changed = _in_place(domain, function, left, right)
    return changed or _operate(domain, INPLACE[function][1], as_tuple(left), as_tuple(right), function)


def _binary_atoms(domain: CaptureDomain, function: Op, left: Value, right: Value) -> Value | None:
    """Operators of C on values with classes of their own; None where these have a say."""
    plain = _plain_operands(domain, function, left, right)
    if type(plain[0]) is Const and type(plain[1]) is Const:
        return _compute_plain(domain, function, left, right)
    return binary(domain, function, *plain) if plain != (left, right) else None


def _binary_constants(domain: CaptureDomain, function: Op, left: Const, right: Const) -> Value:
    if function in _JOINS and (later := made_later(domain, operator.add, left, right)) is not None:
        return later
    return compute(domain, function, domain.use(left), domain.use(right))


def _binary_leaf(domain: CaptureDomain, function: Op, left: Value, right: Value) -> Value | None:
    """An operator that the leaf handler is given as a whole; None where a method of the other operand's class comes first."""
    leaf, other = (left, right) if type(left) is Leaf else (right, left)
    if isinstance(other, Obj) and _user_operator(domain, other, function):
        return None
    if function in INPLACE and not _changes_in_place(domain, left):
        function = INPLACE[function][1]
    if function in (operator.mul, operator.imul) and SLOTS[type(other)].repeat and type(other) is not Const:
        count = Const(domain.leaf_constant(cast(Leaf, leaf)))
        return binary(domain, function, count, right) if leaf is left else binary(domain, function, left, count)
    return leaf_call(domain, function, [left, right])


def _changes_in_place(domain: CaptureDomain, value: Value) -> bool:
    """Has it in-place operators? Constants and numbers have none, and nobody who holds one may see it change."""
    return type(value) is Leaf and domain.leaves.type_of(value.payload) not in _NUMBERS


def _compute_plain(domain: CaptureDomain, function: Op, left: Value, right: Value) -> Value:
    """An operator of C on values with classes of their own, which only its errors tell of."""
    formats = function in _PERCENT and isinstance(real_of(domain, left), (str, bytes))
    if formats and not is_constant(domain, right):
        return texts.percent(domain, stripped(domain, left), right)
    return compute(domain, function, real_of(domain, left), real_of(domain, right))


def _plain_operands(domain: CaptureDomain, function: Op, left: Value, right: Value) -> tuple[Value, Value]:
    """The operands without their classes, where these have no say in the operator."""
    base = INPLACE[function][1] if function in INPLACE else function
    names = DUNDERS.get(base)
    if names is None:
        return left, right
    inplace = (INPLACE[function][0],) if function in INPLACE else ()
    plain = stripped(domain, left, *inplace, *names), stripped(domain, right, *names)
    if any(type(v) is AtomObject for v in plain):
        return left, right
    return plain


def _percent(domain: CaptureDomain, left: Const, right: Value) -> Value | None:
    """`text % values`; None for a number."""
    if not isinstance(left.value, (str, bytes)):
        return None
    later = None if texts.may_refuse(domain, left, right) else made_later(domain, operator.mod, left, right)
    if later is not None:
        return later
    right = settled(domain, right)
    slot = SLOTS[type(right)].binary
    shown = None if slot is None else slot(domain, operator.mod, right, left, True)
    if shown is not None:
        return shown
    if is_constant(domain, right):
        return compute(domain, operator.mod, domain.use(left), constant_of(domain, right))
    return texts.percent(domain, left, right)


_NUMBERS = (int, float, bool, complex)
_JOINS = (operator.add, operator.iadd)
_PERCENT = (operator.mod, operator.imod)


def _user_operator(domain: CaptureDomain, value: Obj, function: Op) -> bool:
    base = INPLACE[function][1] if function in INPLACE else function
    names = DUNDERS.get(base, ())
    return any(members.find_member(domain, value.cls, n).kind in (members.FUNCTION, members.PLAIN) for n in names)


def _in_place(domain: CaptureDomain, function: Op, left: Value, right: Value) -> Value | None:
    """The in-place form, by a method of the program or the kind's slot; None if there is neither, or no answer."""
    name = INPLACE[function][0]
    if isinstance(left, Obj) and defines(domain, left, name):
        result = special_call(domain, left, name, [right])
        return None if is_not_implemented(result) else result
    slot = SLOTS[type(left)].inplace
    return None if slot is None else slot(domain, function, left, right)


def as_tuple(value: Value) -> Value:
    """A constant tuple as one of values; anything else as it is."""
    if type(value) is Const and type(value.value) is tuple:
        return TupleValue([Const(v) for v in value.value])
    return value


def _operate(domain: CaptureDomain, function: Op, left: Value, right: Value, asked: Op) -> Value:
    """The operands are asked in turn, then what is a sequence; `asked` is what the program wrote, perhaps the in-place form."""
    names = DUNDERS.get(function)
    if names is None:
        raise domain.graph_break(UNKNOWN_OPERATION, str(function))
    attempts = [(left, right, False), (right, left, True)]
    tl, tr = type_of(domain, left), type_of(domain, right)
    if tl is tr:
        attempts.pop()
    elif is_subtype(tr, tl) and _overrides(domain, tr, tl, names[1]):
        attempts.reverse()
    for self_, other, reflected in attempts:
        answer = _answer(domain, function, names[reflected], self_, other, reflected)
        if answer is not None:
            return answer
    sequence = _SEQUENCE_FORMS.get(function)
    answer = None if sequence is None else sequence(domain, left, right)
    if answer is not None:
        return answer
    if isinstance(left, _CONSTANTS) and isinstance(right, _CONSTANTS):
        return _compute_operator(domain, asked, left, right)
    if any(_unknown(domain, v, n) for v, n in zip((left, right), names, strict=True)):
        raise domain.graph_break(UNKNOWN_OPERATION, f"{tl.__name__} {_SYMBOLS[function]} {tr.__name__}")
    raise domain.error(TypeError, _operand_text(domain, asked, left, right))


_CONSTANTS = (Known, Const, AtomObject)


def _overrides(domain: CaptureDomain, cls: type, base: type, name: str) -> bool:
    """Has a derived class another method of this name, which is asked first?"""
    return members.find_member(domain, cls, name).raw is not members.find_member(domain, base, name).raw


_ASKED = (members.FUNCTION, members.PLAIN, members.STATIC)
"""Kinds of members that are methods of the program."""


def _answer(domain: CaptureDomain, function: Op, name: str, self: Value, other: Value, reflected: bool) -> Value | None:
    """What one operand says: by a method of the program, else by the slot of its kind; None for NotImplemented."""
    if type(self) is not Const:
        member = members.find_member(domain, type_of(domain, self), name)
        if member.kind in _ASKED and member.raw is not None:
            result = domain.vm.call(domain.vm.finish(attributes.bind(domain, member, self)), [other])
            return None if is_not_implemented(result) else result
    slot = SLOTS[type(self)].binary
    return None if slot is None else slot(domain, function, self, other, reflected)


def _unknown(domain: CaptureDomain, value: Value, name: str) -> bool:
    """Has the operand an operator of C that no slot speaks for?"""
    slots = SLOTS[type(value)]
    if slots.binary is not None or slots.concat is not None or not isinstance(value, (Obj, Known, IdValue)):
        return False
    return members.find_member(domain, type_of(domain, value), name).kind not in (members.ABSENT, *_ASKED)


def _concat(domain: CaptureDomain, left: Value, right: Value) -> Value | None:
    """`left + right` of sequences, which only the left one has a say in."""
    slot = SLOTS[type(left)].concat
    if slot is None or (isinstance(left, Obj) and defines(domain, left, "__add__")):
        return None
    return slot(domain, left, right)


def _repeat(domain: CaptureDomain, left: Value, right: Value) -> Value | None:
    """`sequence * count`, in either order; the right operand is asked only where the left one is no sequence."""
    for sequence, count in ((left, right), (right, left)):
        slot = _repeat_slot(domain, sequence)
        if slot is None:
            continue
        kind = type_of(domain, count)
        if members.find_member(domain, kind, "__index__").kind == members.ABSENT:
            raise domain.error(TypeError, f"can't multiply sequence by non-int of type '{type_label(kind)}'")
        return slot(domain, sequence, domain.index(count))
    return None


def _repeat_slot(domain: CaptureDomain, value: Value) -> Repeat[Value] | None:
    """How a value is repeated, if it is a sequence."""
    if type(value) is Const and not isinstance(value.value, (str, bytes)):
        return None
    slot = SLOTS[type(value)].repeat
    own = isinstance(value, Obj) and (defines(domain, value, "__mul__") or defines(domain, value, "__rmul__"))
    return None if own else slot


_SEQUENCE_FORMS = {operator.add: _concat, operator.mul: _repeat}


def _compute_operator(domain: CaptureDomain, asked: Op, left: Value, right: Value) -> Value:
    """An operator of constants whose own methods had no answer."""
    try:
        return compute(domain, asked, *(to_raw(domain, stripped(domain, v)) for v in (left, right)))
    except Raised as raised:
        named = type(left) is AtomObject or type(right) is AtomObject
        if named and isinstance(raised.value, Obj) and raised.value.cls is TypeError:
            raise domain.error(TypeError, _operand_text(domain, asked, left, right)) from None
        raise


def _operand_text(domain: CaptureDomain, function: Op, left: Value, right: Value) -> str:
    """What CPython says about operands that do not go together, asked with empty stand-ins of the same types."""
    tl, tr = type_of(domain, left), type_of(domain, right)
    alike = [_alike(value, cls) for value, cls in ((left, tl), (right, tr))]
    if None not in alike:
        try:
            function(*(found[0] for found in alike if found is not None))
        except TypeError as error:
            return str(error)
    symbol = _SYMBOLS[INPLACE[function][1]].split()[0] + "=" if function in INPLACE else _SYMBOLS[function]
    return f"unsupported operand type(s) for {symbol}: '{type_label(tl)}' and '{type_label(tr)}'"


def _alike(value: Value, cls: type) -> tuple[Any] | None:
    """What takes the place of an operand in a message, if there is something; its own operators have given no answer."""
    if type(value) is Const:
        return (value.value,)
    if cls in _STAND_INS:
        return (_STAND_INS[cls],)
    if type(value) in _CONTAINERS and cls.__flags__ & (1 << 9):
        return (type(type_label(cls), (next(b for b in cls.__mro__ if b in _STAND_INS),), {})(),)
    plain = type(value) is Obj and cls.__flags__ & (1 << 9) and all(b is object for b in cls.__mro__[1:])
    return (type(type_label(cls), (), {})(),) if plain else None


_CONTAINERS = (ListValue, TupleValue, DictValue, SetValue)
_STAND_INS: dict[type, Any] = {t: t() for t in (list, tuple, dict, set, frozenset, deque, OrderedDict)}
