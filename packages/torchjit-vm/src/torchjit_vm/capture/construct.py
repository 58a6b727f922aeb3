"""Calling classes."""

from __future__ import annotations

import enum
import pathlib
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

from torchjit_vm.capture import atoms, classes, collecting, dicts, elements, iteration, keys, members, packing
from torchjit_vm.capture.builtin_table import METHODS
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.exceptions import from_real, new_exception
from torchjit_vm.capture.raw import constant_of, is_constant
from torchjit_vm.capture.reading import IMMUTABLE_ATOMS, MADE_ATOMS, pinned
from torchjit_vm.capture.reasons import FINALIZER, UNKNOWN_CALL
from torchjit_vm.capture.special_methods import compute, computed
from torchjit_vm.capture.types import is_subtype, type_of
from torchjit_vm.capture.values import (
    Args,
    AtomObject,
    Const,
    DictValue,
    Known,
    Kwargs,
    Leaf,
    ListValue,
    Obj,
    SetValue,
    TupleValue,
    Value,
)
from torchjit_vm.frame import Completion, Frame

__all__ = ["allocate_by", "default_call", "fill_deque", "fill_dict", "instantiate"]

_HEAP = 1 << 9
_OF_CONSTANTS: frozenset[type] = MADE_ATOMS - IMMUTABLE_ATOMS | {
    *(pathlib.PurePath, pathlib.Path, pathlib.PurePosixPath, pathlib.PosixPath),
}
"""Classes whose instances are made at capture, of constants."""


def instantiate(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
    """`cls(*args, **kwargs)`; None if the VM does not know the class."""
    cls: type = function.obj
    meta = type(cls)
    if meta is not type:
        hook = members.find_member(domain, meta, "__call__")
        if hook.raw is vars(enum.EnumType)["__call__"]:
            return _enum(domain, function, args, kwargs)
        if hook.kind == members.FUNCTION:
            return domain.call(members.member_value(domain, hook), [function, *args], kwargs)
        if hook.raw is not type.__dict__["__call__"]:
            return None
    return default_call(domain, function, args, kwargs)


def default_call(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
    """`type.__call__`: `__new__`, then `__init__`."""
    cls: type = function.obj
    if issubclass(cls, type):
        return classes.call_metaclass(domain, function, args, kwargs)
    if members.find_member(domain, cls, "__del__").kind == members.FUNCTION:
        raise domain.graph_break(FINALIZER, cls.__name__)
    at_once = cls in domain.policy.value_types or cls in _OF_CONSTANTS
    if at_once and (known := computed(domain, cls, args, kwargs)) is not None:
        return known
    new = members.find_member(domain, cls, "__new__")
    if new.kind in (members.STATIC, members.FUNCTION):
        target = members.member_value(domain, new)
        made = domain.vm.call(target, [function, *args], dict(kwargs))
        if type(made) is Leaf and issubclass(domain.leaves.type_of(made.payload), cls):
            return _initialise(domain, cls, made, args, kwargs)
        if not (isinstance(made, Obj) and is_subtype(made.cls, cls)):
            return made
    else:
        allocated = allocate_by(domain, cls, _raw_new(cls), args)
        if allocated is None:
            return None
        made = allocated
    return _initialise(domain, made.cls, made, args, kwargs)


def _initialise(
    domain: CaptureDomain, cls: type, made: Obj | Leaf, args: Args, kwargs: Kwargs
) -> Value | Frame[Value] | None:
    init = members.find_member(domain, cls, "__init__")
    if init.kind == members.FUNCTION:
        return _called_init(domain, init, made, args, kwargs)
    # Of a leaf that the class's own `__new__` made, one of C does nothing.
    return made if isinstance(made, Leaf) or _builtin_init(domain, made, init.raw, args, kwargs) else None


def _called_init(
    domain: CaptureDomain, init: members.Member, made: Value, args: Args, kwargs: Kwargs
) -> Value | Frame[Value]:
    """The object, or the frame of its `__init__`, which gives the object in the end."""
    result = domain.call(members.member_value(domain, init), [made, *args], kwargs)
    if type(result) is Frame:
        result.completion, result.instead = Completion.PUSH_INSTEAD, made
        return result
    domain.check_init(result)
    return made


def _enum(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
    """`Color(value)`: a member of an enum."""
    cls: Any = function.obj
    if len(args) != 1 or kwargs or not is_constant(domain, args[0]):
        return None
    value = constant_of(domain, args[0])
    for member in cls.__members__.values():
        if member is value or member.value == value:
            return pinned(domain, member, str(member))
    missing = members.find_member(domain, cls, "_missing_")
    if missing.raw not in _MISSING:  # the program's
        return domain.vm.call(Known(enum.Enum.__new__), [function, *args])
    return compute(domain, cls, value)


_MISSING = tuple(vars(cls)["_missing_"] for cls in (enum.Enum, enum.Flag))


def allocate_by(domain: CaptureDomain, cls: type, new: object, args: Args) -> Obj | None:
    """`new(cls, *args)` for the `__new__` of a C class; None for one that is not known."""
    if issubclass(cls, BaseException):
        if issubclass(cls, BaseExceptionGroup):
            return None
        return _with_fields(domain, cls, args) if issubclass(cls, _FIELDED) else new_exception(domain, cls, args)
    make = _NEW.get(id(new))
    return None if make is None else make(domain, cls, args)


def _new_object(domain: CaptureDomain, cls: type, args: Args) -> Obj | None:
    if getattr(cls, "__abstractmethods__", None):
        compute(domain, object.__new__, cls)  # it raises
    return Obj(cls) if cls.__flags__ & _HEAP or cls is object else None


def _new_tuple(domain: CaptureDomain, cls: type, args: Args) -> Obj | None:
    return TupleValue(collecting.collected(domain, args[0]) if args else [], cls) if cls.__flags__ & _HEAP else None


def _new_atom(base: type) -> Callable[[CaptureDomain, type, Args], Obj | None]:
    def make(domain: CaptureDomain, cls: type, args: Args) -> Obj | None:
        if not atoms.is_atom_class(cls) or atoms.c_base(cls) is not base:
            return None
        plain = atoms.stripped(domain, domain.vm.call(Known(base), list(args)))
        if type(plain) is not Const:
            raise domain.graph_break(UNKNOWN_CALL, f"{cls.__name__} of a value that is no constant")
        return atoms.new_atom(cls, plain)

    return make


_NEW: dict[int, Callable[[CaptureDomain, type, Args], Obj | None]] = {
    id(object.__new__): _new_object,
    id(tuple.__new__): _new_tuple,
    **{id(base.__new__): _new_atom(base) for base in (str, int, float, complex, bytes)},
    # Containers are filled by `__init__`.
    **{id(c.__new__): lambda domain, cls, args: DictValue(cls) for c in (dict, OrderedDict, defaultdict)},
    **{id(c.__new__): lambda domain, cls, args: ListValue([], cls) for c in (list, deque)},
    id(set.__new__): lambda domain, cls, args: SetValue({}, cls),
}
"""By the ids of what makes them."""
_FIELDED = (OSError, SyntaxError, UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)
_IMMUTABLE = 1 << 8


def _with_fields(domain: CaptureDomain, cls: type[BaseException], args: list[Value]) -> Obj | None:
    """An exception whose fields C code takes from the arguments, as OSError takes its class from the number."""
    if (cls.__flags__ & _HEAP and not cls.__flags__ & _IMMUTABLE) or not all(is_constant(domain, a) for a in args):
        return None
    try:
        made = cls(*(constant_of(domain, a) for a in args))
    except (TypeError, ValueError) as error:
        raise domain.raised(from_real(domain, error)) from None
    return from_real(domain, made)


def _raw_new(cls: type) -> object:
    for owner in cls.__mro__:
        if "__new__" in owner.__dict__:
            raw = owner.__dict__["__new__"]
            return raw if isinstance(raw, types.BuiltinFunctionType) else None
    return None


def _object_init(domain: CaptureDomain, made: Obj, args: Args, kwargs: Kwargs) -> bool:
    """`object.__init__`: arguments are none of its business where the class has a `__new__` of its own."""
    if members.find_member(domain, made.cls, "__new__").kind == members.STATIC:
        return True
    if type(made) is AtomObject:
        return not kwargs
    if isinstance(made, TupleValue) or not (args or kwargs):
        return not kwargs
    if _raw_new(made.cls) is not object.__new__ and kwargs:
        return False
    raise domain.error(TypeError, f"{made.cls.__name__}() takes no arguments")


def _builtin_init(domain: CaptureDomain, made: Obj, init: object, args: Args, kwargs: Kwargs) -> bool:
    """The `__init__` of a built-in class; False if the VM does not know it."""
    if init is object.__init__:
        return _object_init(domain, made, args, kwargs)
    fill = _FILL.get(type(made))
    if fill is not None:
        return fill(domain, made, args, kwargs)
    if kwargs:
        known = METHODS.get(id(init)) if issubclass(made.cls, BaseException) else None
        return known is not None and known(domain, [made, *args], kwargs) is not None
    return issubclass(made.cls, BaseException)


def _fill_list(domain: CaptureDomain, made: ListValue, args: Args, kwargs: Kwargs) -> bool:
    """`list.__init__`, or that of a deque."""
    if issubclass(made.cls, deque):
        return len(args) < 3 and fill_deque(domain, made, args, kwargs)
    if len(args) > 1 or kwargs:
        return False
    if args:
        collecting.extend(domain, made, args[0])
    return True


def _fill_set(domain: CaptureDomain, made: SetValue, args: Args, kwargs: Kwargs) -> bool:
    """`set.__init__`."""
    if args and not kwargs:
        packing.set_update(domain, made, args[0])
    return not kwargs


def fill_dict(domain: CaptureDomain, made: DictValue, args: Args, kwargs: Kwargs) -> bool:
    """`dict.__init__` and that of its C subclasses."""
    rest = list(args)
    if issubclass(made.cls, defaultdict):
        made.factory = rest.pop(0) if rest else Const(None)
        kind = type_of(domain, made.factory)
        if kind is not type(None) and members.find_member(domain, kind, "__call__").kind == members.ABSENT:
            raise domain.error(TypeError, "first argument must be callable or None")
    if len(rest) > 1:
        raise domain.graph_break(UNKNOWN_CALL, made.cls.__name__)
    if rest:
        update_from(domain, made, rest[0])
    for key, value in kwargs.items():
        dicts.dict_store(domain, made, key, Const(key), value)
    return True


_FILL: dict[type[Value], Callable[..., bool]] = {DictValue: fill_dict, ListValue: _fill_list, SetValue: _fill_set}


def fill_deque(domain: CaptureDomain, made: ListValue, args: Args, kwargs: Kwargs) -> bool:
    """`deque.__init__`."""
    given = dict(zip(("iterable", "maxlen"), args, strict=False)) | kwargs
    bound = given.get("maxlen", Const(None))
    if not given.keys() <= {"iterable", "maxlen"}:
        return False
    items = iteration.items_of(domain, given["iterable"]) if "iterable" in given else []
    if not (type(bound) is Const and bound.value is None):
        made.limit = domain.index(bound)
        if made.limit < 0:
            raise domain.error(ValueError, "maxlen must be non-negative")
    elements.change(domain, made)[:] = items
    elements.trim(domain, made, left=True)
    return True


def _iterable(domain: CaptureDomain, value: Value) -> bool:
    return not (type(value) is Const and not hasattr(type(value.value), "__iter__"))


def _pairs(domain: CaptureDomain, iterable: Value) -> Iterator[tuple[Value, Value]]:
    """The pairs of an iterable, one after the other."""
    for number, pair in enumerate(collecting.each(domain, iterable)):
        if not _iterable(domain, pair):
            text = f"cannot convert dictionary update sequence element #{number} to a sequence"
            raise domain.error(TypeError, text)
        both = iteration.items_of(domain, pair)
        if len(both) != 2:
            text = f"dictionary update sequence element #{number} has length {len(both)}; 2 is required"
            raise domain.error(ValueError, text)
        yield both[0], both[1]


def update_from(domain: CaptureDomain, target: DictValue, other: Value) -> None:
    """`dict.update(other)` with a mapping or an iterable of pairs."""
    pairs = packing.mapping_pairs(domain, other, looks_first=not issubclass(target.cls, OrderedDict))
    if pairs is None:
        pairs = _pairs(domain, other)
    for key, value in pairs:
        dicts.dict_store(domain, target, keys.key_of(domain, key), key, value)
