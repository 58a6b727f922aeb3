"""Operators; what every operation is made of: computing on constants, calling leaves and dunders."""

from __future__ import annotations

import operator
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture import (
    attributes,
    byte_arrays,
    collecting,
    dicts,
    elements,
    library_numbers,
    members,
    packing,
    sets,
    subscripts,
    texts,
)
from torchjit_vm.capture.atoms import real_of, stripped
from torchjit_vm.capture.exceptions import from_real
from torchjit_vm.capture.interception import defined_by_program, intercept, override
from torchjit_vm.capture.made_later import made_later
from torchjit_vm.capture.raw import constant_of, from_raw, is_constant, to_raw
from torchjit_vm.capture.reading import constant_object
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.set_algebra import is_set_view, set_binary
from torchjit_vm.capture.types import is_subtype, type_of
from torchjit_vm.capture.values import (
    NEW,
    AtomObject,
    ByteArray,
    Const,
    DictValue,
    IdValue,
    Known,
    Leaf,
    ListValue,
    Obj,
    SetValue,
    SliceValue,
    TupleValue,
    Value,
)
from torchjit_vm.frame import Raised
from torchjit_vm.type_labels import type_label

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["as_tuple", "binary", "settled", "unary"]

_NAMES = {
    "add": "add", "and_": "and", "floordiv": "floordiv", "lshift": "lshift", "matmul": "matmul", "mul": "mul",
    "mod": "mod", "or_": "or", "pow": "pow", "rshift": "rshift", "sub": "sub", "truediv": "truediv", "xor": "xor",
}  # fmt: skip
_DUNDERS: dict[Any, tuple[str, str]] = {getattr(operator, k): (f"__{v}__", f"__r{v}__") for k, v in _NAMES.items()}
_INPLACE: dict[Any, tuple[str, Any]] = {
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


def compute(domain: CaptureDomain, function: Callable[..., Any], *args: Any) -> Value:
    """Run a pure function on real constants, at capture."""
    try:
        result = function(*args)
    except Exception as error:
        raise domain.raised(from_real(domain, error)) from None
    return domain.constant(result) if type(result) is bool else constant_object(domain, result)


_METHODS: dict[Any, tuple[str, ...]] = {
    **_DUNDERS,
    **{function: (name,) for function, (name, _) in _INPLACE.items()},
    **{function: names[:2] for function, names in RICH.items()},
    **{function: (name,) for function, name in _UNARY.items()},
    **{getattr(operator, n): (f"__{n}__",) for n in ("getitem", "setitem", "abs")},
}
"""Operators to the method of the first operand, and to that of the second."""


def leaf_call(domain: CaptureDomain, function: Any, args: list[Value], kwargs: dict[str, Value] | None = None) -> Value:
    """Hand a call to the leaf handler."""
    domain.used_leaves = True
    for value, name in zip(args, _METHODS.get(function, ()), strict=False):
        if type(value) is Leaf:
            member = members.find_member(domain, type_of(domain, value), name)  # the class may be patched
            if domain.overrides and member.kind == members.FUNCTION and defined_by_program(domain, value, name):
                raise domain.graph_break(UNKNOWN_OPERATION, f"{member.cls.__name__}.{name}")
            if not domain.overrides:
                break
    if domain.interceptors:
        found = intercept(domain, function, args, kwargs or {})
        if found is not None:
            return found
    if domain.overrides:
        found = override(domain, function, args, kwargs or {})
        if found is not None:
            return found
    if domain.library_values:
        args, kwargs = library_numbers.with_plain_numbers(domain, function, args, kwargs or {})
    guarded = len(domain.pending)
    raw = tuple([to_raw(domain, a) for a in args])
    keywords = {k: to_raw(domain, v) for k, v in kwargs.items()} if kwargs else {}
    try:
        return from_raw(domain, domain.leaves.call(function, raw, keywords, domain))
    except GraphBreak:
        if len(domain.pending) > guarded:
            _forget_identities(domain, guarded, [*args, *(kwargs or {}).values()])
        raise


def _forget_identities(domain: CaptureDomain, guarded: int, args: list[Value]) -> None:
    """A refused call runs for real: which objects it was given is not relied on, and the next call may have others."""
    paths = {id(a.path) for a in args if isinstance(a, Obj)}
    for key in list(domain.pending)[guarded:]:
        if key[0] == "id" and id(key[1]) in paths:
            del domain.pending[key]


def unary(domain: CaptureDomain, function: Callable[..., Any], value: Value) -> Value:
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


def binary(domain: CaptureDomain, function: Callable[..., Any], left: Value, right: Value) -> Value:
    if function is operator.getitem:
        return subscripts.getitem(domain, left, right)
    of_bytes = type(left) is ByteArray or (type(right) is ByteArray and type(left) in (Const, AtomObject))
    if of_bytes and function in byte_arrays.OPERATORS:
        return byte_arrays.byte_operation(domain, function, left, right)
    if type(left) is AtomObject or type(right) is AtomObject:
        plain = _plain_operands(domain, function, left, right)
        if type(plain[0]) is Const and type(plain[1]) is Const:
            return _compute_plain(domain, function, left, right)
        left, right = plain
    if domain.library_values and (made := library_numbers.binary(domain, binary, function, left, right)) is not None:
        return made
    tl, tr = type(left), type(right)
    if tl is Const and tr is Const:
        if function in _JOINS and (later := made_later(domain, operator.add, left, right)) is not None:
            return later
        a, b = domain.use(cast(Const, left)), domain.use(cast(Const, right))
        return compute(domain, function, a, b)
    if function in (operator.mod, operator.imod) and tl is Const and isinstance(cast(Const, left).value, (str, bytes)):
        return _percent(domain, cast(Const, left), right)
    if tl is Leaf or tr is Leaf:
        other = right if tl is Leaf else left
        if not (isinstance(other, Obj) and _user_operator(domain, other, function)):
            if function in _INPLACE and not _changes_in_place(domain, left):
                function = _INPLACE[function][1]
            result = _container_repeat(domain, function, left, right)
            return leaf_call(domain, function, [left, right]) if result is None else result
    asked = function
    if function in _INPLACE:
        found = _inplace(domain, function, left, right)
        if found is not None:
            return found
        function = _INPLACE[function][1]
    found = _builtin_binary(domain, function, left, right)
    return _user_binary(domain, function, left, right, asked) if found is None else found


def _changes_in_place(domain: CaptureDomain, value: Value) -> bool:
    """Has it in-place operators? Constants and numbers have none, and nobody who holds one may see it change."""
    return type(value) is Leaf and domain.leaves.type_of(value.payload) not in _NUMBERS


def _compute_plain(domain: CaptureDomain, function: Any, left: Value, right: Value) -> Value:
    """An operator of C on values with classes of their own, which only its errors tell of."""
    formats = function in (operator.mod, operator.imod) and isinstance(real_of(domain, left), (str, bytes))
    if formats and not is_constant(domain, right):
        return texts.percent(domain, stripped(domain, left), right)
    return compute(domain, function, real_of(domain, left), real_of(domain, right))


def _plain_operands(domain: CaptureDomain, function: Any, left: Value, right: Value) -> tuple[Value, Value]:
    """The operands without their classes, where these have no say in the operator."""
    base = _INPLACE[function][1] if function in _INPLACE else function
    names = _DUNDERS.get(base)
    if names is None:
        return left, right
    inplace = (_INPLACE[function][0],) if function in _INPLACE else ()
    plain = stripped(domain, left, *inplace, *names), stripped(domain, right, *names)
    if any(type(v) is AtomObject for v in plain):
        return left, right
    return plain


def _percent(domain: CaptureDomain, left: Const, right: Value) -> Value:
    """`text % values`."""
    later = None if texts.may_refuse(domain, left, right) else made_later(domain, operator.mod, left, right)
    if later is not None:
        return later
    right = settled(domain, right)
    if is_constant(domain, right):
        return compute(domain, operator.mod, domain.use(left), constant_of(domain, right))
    return texts.percent(domain, left, right)


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


_NUMBERS = (int, float, bool, complex)
_JOINS = (operator.add, operator.iadd)


def _user_operator(domain: CaptureDomain, value: Obj, function: Any) -> bool:
    base = _INPLACE[function][1] if function in _INPLACE else function
    names = _DUNDERS.get(base, ())
    return any(members.find_member(domain, value.cls, n).kind in (members.FUNCTION, members.PLAIN) for n in names)


def _container_repeat(domain: CaptureDomain, function: Any, left: Value, right: Value) -> Value | None:
    """`[x] * n` with a leaf n."""
    if function not in (operator.mul, operator.imul):
        return None
    if isinstance(left, (ListValue, TupleValue)) and type(right) is Leaf:
        return binary(domain, function, left, Const(domain.leaf_constant(right)))
    if isinstance(right, (ListValue, TupleValue)) and type(left) is Leaf:
        return binary(domain, function, Const(domain.leaf_constant(left)), right)
    return None


def _inplace(domain: CaptureDomain, function: Any, left: Value, right: Value) -> Value | None:
    name = _INPLACE[function][0]
    if isinstance(left, ListValue) and not defines(domain, left, name):
        if function is operator.iadd:
            collecting.extend(domain, left, right)
            return left
        if function is operator.imul and type(right) is Const and isinstance(right.value, int):
            target = elements.change(domain, left)
            target[:] = target * domain.use(right)
            elements.trim(domain, left, left=True)
            return left
        return None
    if isinstance(left, DictValue) and function is operator.ior and not defines(domain, left, name):
        domain.vm.call(Known(dict.update), [left, right])
        return left
    if isinstance(left, SetValue) and not issubclass(left.cls, frozenset) and not is_set_view(right):
        if defines(domain, left, name):
            result = special_call(domain, left, name, [right])
            return None if is_not_implemented(result) else result
        result = set_binary(domain, _INPLACE[function][1], left, right, in_place=True)
        if isinstance(result, SetValue) and result.entries is not None:
            sets.set_replace(domain, left, result)
            return left
        return None
    if isinstance(left, Obj) and defines(domain, left, name):
        result = special_call(domain, left, name, [right])
        return None if is_not_implemented(result) else result
    return None


def defines(domain: CaptureDomain, value: Obj, name: str) -> bool:
    """Does the class define this method in Python?"""
    return members.find_member(domain, value.cls, name).kind == members.FUNCTION


def is_not_implemented(value: Value | None) -> bool:
    return value is None or (type(value) is Const and value.value is NotImplemented)


def _builtin_binary(domain: CaptureDomain, function: Any, left: Value, right: Value) -> Value | None:
    """Operators of built-in containers; None if they do not apply."""
    left, right = as_tuple(left), as_tuple(right)
    if function is operator.add:
        if isinstance(left, ListValue) and isinstance(right, ListValue) and not _user_add(domain, left, right):
            return _concatenated(domain, left, right)
        if isinstance(left, TupleValue) and isinstance(right, TupleValue) and not _user_add(domain, left, right):
            both = elements.items(domain, left) + elements.items(domain, right)
            return TupleValue(both, _tuple_class(function, left.cls, right.cls))
    if function is operator.mul:
        sequence, count = (left, right) if isinstance(left, (ListValue, TupleValue)) else (right, left)
        if type(count) is Known and isinstance(count.obj, int):
            count = Const(int(count.obj))  # a member of an IntEnum
        if isinstance(sequence, (ListValue, TupleValue)) and type(count) is Const and isinstance(count.value, int):
            if defines(domain, sequence, "__mul__") or defines(domain, sequence, "__rmul__"):
                return None
            if isinstance(sequence, ListValue) and plain_base(sequence.cls) is deque:
                copied = copy_deque(domain, sequence)
                copied.items = elements.items(domain, copied) * domain.use(count)
                elements.trim(domain, copied, left=True)
                return copied
            many = elements.items(domain, sequence) * domain.use(count)
            if isinstance(sequence, ListValue):
                return ListValue(many)
            return TupleValue(many, _tuple_class(function, sequence.cls, int))
    if function is operator.or_ and isinstance(left, DictValue) and isinstance(right, DictValue):
        if defines(domain, left, "__or__") or defines(domain, right, "__ror__"):
            return None
        made = dicts.copy_dict(domain, left)
        if not is_c_dict(left.cls):
            made.cls = dict
        packing.dict_update(domain, made, right)
        return made
    views = [v for v in (left, right) if is_set_view(v)]
    if views and any(isinstance(v, Obj) and _user_operator(domain, v, function) for v in (left, right)):
        return None
    if any(isinstance(v, SetValue) for v in (left, right)) and _asked_first(domain, function, left, right):
        return None
    return set_binary(domain, function, left, right)


def _asked_first(domain: CaptureDomain, function: Any, left: Value, right: Value) -> bool:
    """Does a method in Python come before the operator of C?"""
    names = _DUNDERS.get(function)
    if names is None:
        return False
    if isinstance(left, Obj) and members.find_member(domain, left.cls, names[0]).kind == members.FUNCTION:
        return True
    first = isinstance(right, Obj) and is_subtype(right.cls, type_of(domain, left))
    return first and members.find_member(domain, cast(Obj, right).cls, names[1]).kind == members.FUNCTION


def _tuple_class(function: Any, left: type, right: type) -> type:
    """The class of `left + right` or `left * right`; a tuple class of C may give its own, which is asked with empty ones."""
    if any(c is not tuple and issubclass(c, tuple) and _is_c(c, "__add__", "__mul__") for c in (left, right)):
        return type(function(left(), right()))
    return tuple


def _is_c(cls: type, *names: str) -> bool:
    """Has a class operators of its own, written in C?"""
    return any(type(cls.__dict__.get(name)) is types.WrapperDescriptorType for name in names)


def is_c_dict(cls: type) -> bool:
    """Is it a dict class of CPython whose copies keep the class?"""
    return cls in (dict, OrderedDict, defaultdict)


def plain_base(cls: type) -> type:
    return deque if issubclass(cls, deque) else list


def _concatenated(domain: CaptureDomain, left: ListValue, right: ListValue) -> Value | None:
    base = plain_base(left.cls)
    if base is not plain_base(right.cls):
        return None
    if base is deque:
        more = list(elements.items(domain, right))
        copied = copy_deque(domain, left)
        copied.items = [*elements.items(domain, copied), *more]
        elements.trim(domain, copied, left=True)
        return copied
    return ListValue(elements.items(domain, left) + elements.items(domain, right), base)


def copy_deque(domain: CaptureDomain, value: ListValue) -> ListValue:
    """`value.copy()`: an instance of a subclass is made by a call of its class."""
    limit = elements.maximum(value)
    if value.cls is deque:
        made = ListValue(list(elements.items(domain, value)), deque)
        made.limit = limit
        return made
    arguments = [value] if limit is None else [value, Const(limit)]
    copied = domain.vm.call(Known(value.cls), cast("list[Value]", arguments))
    if not (isinstance(copied, ListValue) and issubclass(copied.cls, deque) and copied.real is NEW):
        raise domain.graph_break(UNKNOWN_OPERATION, f"a copy of a {value.cls.__name__}")
    return copied


def as_tuple(value: Value) -> Value:
    """A constant tuple as one of values; anything else as it is."""
    if type(value) is Const and type(value.value) is tuple:
        return TupleValue([Const(v) for v in value.value])
    return value


def _user_add(domain: CaptureDomain, left: Obj, right: Obj) -> bool:
    return defines(domain, left, "__add__") or defines(domain, right, "__radd__")


def _user_binary(domain: CaptureDomain, function: Any, left: Value, right: Value, asked: Any) -> Value:
    """An operator by the operands' methods; `asked` is what the program wrote, perhaps the in-place form."""
    names = _DUNDERS.get(function)
    if names is None:
        raise domain.graph_break(UNKNOWN_OPERATION, str(function))
    tl, tr = type_of(domain, left), type_of(domain, right)
    attempts = [(left, names[0], right), (right, names[1], left)]
    if tl is tr:
        attempts.pop()
    elif is_subtype(tr, tl) and members.find_member(domain, tr, names[1]).raw is not (
        members.find_member(domain, tl, names[1]).raw
    ):
        attempts.reverse()
    unknown = type(left) is IdValue or type(right) is IdValue
    for self_, name, other in attempts:
        member = members.find_member(domain, type_of(domain, self_), name)
        if member.kind in (members.FUNCTION, members.PLAIN, members.STATIC) and member.raw is not None:
            bound = domain.vm.finish(attributes.bind(domain, member, self_))
            result = domain.vm.call(bound, [other])
            if not is_not_implemented(result):
                return result
        elif member.kind != members.ABSENT and isinstance(self_, (Obj, Known)):
            unknown = unknown or not isinstance(self_, (ListValue, TupleValue, DictValue, SetValue))
    if function is operator.mul:
        repeated = _repeat(domain, left, right, asked)
        if repeated is not None:
            return repeated
    if isinstance(left, (Known, Const, AtomObject)) and isinstance(right, (Known, Const, AtomObject)):
        plain = [to_raw(domain, stripped(domain, v)) for v in (left, right)]  # whose own methods had no answer
        try:
            return compute(domain, asked, *plain)
        except Raised as raised:
            named = type(left) is AtomObject or type(right) is AtomObject
            if named and isinstance(raised.value, Obj) and raised.value.cls is TypeError:
                raise domain.error(TypeError, _operand_text(domain, asked, left, right)) from None
            raise
    found = set_binary(domain, function, left, right)
    if found is not None:
        return found
    dicts = function is operator.or_ and isinstance(left, DictValue) and isinstance(right, DictValue)
    if unknown or dicts or is_set_view(left) or is_set_view(right):
        raise domain.graph_break(UNKNOWN_OPERATION, f"{tl.__name__} {_SYMBOLS[function]} {tr.__name__}")
    raise domain.error(TypeError, _operand_text(domain, asked, left, right))


def _repeat(domain: CaptureDomain, left: Value, right: Value, asked: Any) -> Value | None:
    """`sequence * count`, in either order, where the count is an object with an `__index__`."""
    for sequence, count in ((left, right), (right, left)):
        text = type(sequence) is Const and isinstance(sequence.value, (str, bytes, tuple))
        if not text and not isinstance(sequence, (ListValue, TupleValue, ByteArray)):
            continue
        if not isinstance(count, Obj):
            return None  # the right operand is asked only where the left one is no sequence
        if defines(domain, count, "__index__"):
            number = Const(domain.index(count))
            return binary(domain, asked if sequence is left else operator.mul, sequence, number)
        label = type_label(type_of(domain, count))
        raise domain.error(TypeError, f"can't multiply sequence by non-int of type '{label}'")
    return None


def _operand_text(domain: CaptureDomain, function: Any, left: Value, right: Value) -> str:
    """What CPython says about operands that do not go together, asked with empty stand-ins of the same types."""
    tl, tr = type_of(domain, left), type_of(domain, right)
    alike = [_alike(value, cls) for value, cls in ((left, tl), (right, tr))]
    if None not in alike:
        try:
            function(*(found[0] for found in alike if found is not None))
        except TypeError as error:
            return str(error)
    symbol = _SYMBOLS[_INPLACE[function][1]].split()[0] + "=" if function in _INPLACE else _SYMBOLS[function]
    return f"unsupported operand type(s) for {symbol}: '{type_label(tl)}' and '{type_label(tr)}'"


def _alike(value: Value, cls: type) -> tuple[Any] | None:
    """What takes the place of an operand in a message, if there is something; its own operators have given no answer."""
    if type(value) is Const:
        return (value.value,)
    if cls in _STAND_INS:
        return (_STAND_INS[cls],)
    plain = type(value) is Obj and cls.__flags__ & (1 << 9) and all(b is object for b in cls.__mro__[1:])
    return (type(type_label(cls), (), {})(),) if plain else None


_STAND_INS: dict[type, Any] = {t: t() for t in (list, tuple, dict, set, frozenset, deque, OrderedDict)}
