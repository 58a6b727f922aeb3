"""Methods of object, type, function, exception, property and tuple."""

from __future__ import annotations

import _thread
import functools
import inspect
import operator
import re
import threading
import types
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

from torchjit_vm.capture import (
    atoms,
    attributes,
    collecting,
    comparisons,
    construct,
    dicts,
    elements,
    formatting,
    iteration,
    library,
    members,
    operators,
    packing,
    sets,
    stores,
    texts,
)
from torchjit_vm.capture.builtin_table import Builtin, builtin, method, method_of
from torchjit_vm.capture.exceptions import note_write
from torchjit_vm.capture.raw import constant_of, is_constant, to_raw
from torchjit_vm.capture.reading import pinned
from torchjit_vm.capture.special_methods import has_method
from torchjit_vm.capture.stand_in_classes import stand_in_of
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    NEW,
    BoundMethod,
    Const,
    DictValue,
    FunctionValue,
    IdValue,
    Known,
    ListValue,
    Mirror,
    Obj,
    SetValue,
    SliceValue,
    TracebackValue,
    TupleValue,
    Value,
)
from torchjit_vm.frame import Frame
from torchjit_vm.type_labels import type_label

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

_Args = list[Value]
_Kwargs = dict[str, Value]


@method("__setattr__", object)
def _object_setattr(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | Frame[Value] | None:
    if not isinstance(args[0], Obj):
        return None
    return stores.giving_none(stores.generic_store(domain, args[0], domain.use(args[1]), args[2]))


@method("__delattr__", object)
def _object_delattr(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | Frame[Value] | None:
    if not isinstance(args[0], Obj):
        return None
    return stores.giving_none(stores.generic_delete(domain, args[0], domain.use(args[1])))


@method("__getattribute__", object)
def _object_getattribute(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | Frame[Value] | None:
    if not isinstance(args[0], Obj):
        return None
    name = domain.use(args[1])
    found = attributes.generic_attr(domain, args[0], name)
    if found is None:
        error = domain.error(AttributeError, f"'{type_label(args[0].cls)}' object has no attribute '{name}'")
        attributes.tell_sought(error.value, args[0], name)
        try:
            raise error
        finally:
            del error  # its traceback holds this frame, and the whole capture through it
    return found


@method("__init__", object)
def _object_init(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if isinstance(args[0], Obj) and len(args) == 1 and not kwargs:
        return Const(None)
    return None


def _new(base: type) -> None:
    def make(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        if not (args and isinstance(args[0], Known) and isinstance(args[0].obj, type)):
            return None
        return construct.allocate_by(domain, args[0].obj, base.__new__, args[1:])

    builtin(base.__new__)(make)


for _base in (object, dict, list, set, tuple, OrderedDict, defaultdict, BaseException, Exception):
    _new(_base)


def _new_atom(base: type) -> None:
    def make(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        if not (args and isinstance(args[0], Known) and isinstance(args[0].obj, type)):
            return None
        if args[0].obj is base:
            return domain.vm.call(args[0], args[1:], kwargs)
        return None if kwargs else construct.allocate_by(domain, args[0].obj, base.__new__, args[1:])

    builtin(base.__new__)(make)


for _base in (str, int, float, complex, bytes):
    _new_atom(_base)


@method("__init__", BaseException)
def _exception_init(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if not isinstance(args[0], Obj) or kwargs:
        return None
    _set_field(domain, args[0], "args", TupleValue(args[1:]))
    return Const(None)


def _set_field(domain: CaptureDomain, exception: Obj, name: str, value: Value) -> None:
    """Set a field as the `__init__` of C does. One of an exception that a break has made real is written back."""
    domain.touch(exception)
    if exception.real is not NEW:
        note_write(domain, exception, name)
    exception.attrs[name] = value


def _fields_init(*fields: str) -> Builtin:
    """The `__init__` of an exception class with keyword fields."""

    def init(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        if not isinstance(args[0], Obj) or not set(kwargs) <= set(fields):
            return None
        _set_field(domain, args[0], "args", TupleValue(args[1:]))
        for name in fields:
            if name in kwargs or args[0].real is not NEW:
                _set_field(domain, args[0], name, kwargs.get(name, Const(None)))
            else:
                args[0].attrs.pop(name, None)
        if "path" in fields:  # ImportError
            _set_field(domain, args[0], "msg", args[1] if len(args) == 2 else Const(None))
        return Const(None)

    return init


for _cls in (Exception, KeyError, ValueError, TypeError, RuntimeError):
    if "__init__" in vars(_cls):
        method("__init__", _cls)(_exception_init)
method("__init__", AttributeError)(_fields_init("name", "obj"))
method("__init__", NameError)(_fields_init("name"))
method("__init__", ImportError)(_fields_init("name", "path"))


@method("add_note", BaseException)
def _add_note(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    value = args[0]
    if not isinstance(value, Obj) or value.real is not NEW:
        return None
    if type_of(domain, args[1]) is not str:
        raise domain.error(TypeError, f"note must be a str, not '{type_label(type_of(domain, args[1]))}'")
    notes = value.attrs.get("__notes__")
    if isinstance(notes, Value) and not issubclass(type_of(domain, notes), list):
        raise domain.error(TypeError, "Cannot add note: __notes__ is not a list")
    if notes is None and members.find_member(domain, value.cls, "__setattr__").kind == members.FUNCTION:
        domain.vm.call(Known(setattr), [value, Const("__notes__"), ListValue([])])  # a frozen dataclass refuses
        notes = value.attrs.get("__notes__")
    if notes is None:
        notes = value.attrs["__notes__"] = ListValue([])
    packing.list_append(domain, notes, args[1])
    return Const(None)


@method("with_traceback", BaseException)
def _with_traceback(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if type(args[1]) is TracebackValue and args[1].exception is args[0]:
        domain.vm.rewind(args[0], args[1].depth)
    return args[0]


@method("__init__", dict)
def _dict_init(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if not isinstance(args[0], DictValue):
        return None
    construct.fill_dict(domain, args[0], args[1:], kwargs)
    return Const(None)


@method("__init__", list)
def _list_init(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if not isinstance(args[0], ListValue):
        return None
    elements.change(domain, args[0]).clear()
    if len(args) > 1:
        collecting.extend(domain, args[0], args[1])
    return Const(None)


@method("__init__", set)
def _set_init(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if not isinstance(args[0], SetValue):
        return None
    sets.set_replace(domain, args[0], SetValue({}))
    if len(args) > 1:
        packing.set_update(domain, args[0], args[1])
    return Const(None)


@method("__call__", type)
def _type_call(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | Frame[Value] | None:
    if not isinstance(args[0], Known):
        return None
    return construct.default_call(domain, args[0], args[1:], kwargs)


@method("mro", type)
def _mro(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if isinstance(args[0], Known):
        domain.guard_mro(args[0].obj)
        return ListValue([Known(c) for c in args[0].obj.__mro__])
    return None


@method("__get__", types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
def _function_get(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if type(args[1]) is Const and args[1].value is None:
        return args[0]
    if isinstance(args[0], Known):
        attributes.check_owner(domain, args[0].obj, type_of(domain, args[1]))
    return BoundMethod(args[0], args[1])


@method("__get__", classmethod)
def _class_method_get(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if not isinstance(args[0], Known) or type(args[0].obj.__func__) is not types.FunctionType or kwargs:
        return None
    absent = len(args) < 3 or (type(args[2]) is Const and args[2].value is None)
    owner = Known(type_of(domain, args[1])) if absent else args[2]
    return BoundMethod(pinned(domain, args[0].obj.__func__, "classmethod.__func__"), owner)


@method("__get__", staticmethod)
def _static_method_get(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if not isinstance(args[0], Known) or kwargs:
        return None
    return pinned(domain, args[0].obj.__func__, "staticmethod.__func__")


@method("__call__", types.FunctionType)
def _function_call(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | Frame[Value] | None:
    return domain.call(args[0], args[1:], kwargs)


@method("__get__", property)
def _property_get(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | Frame[Value] | None:
    if isinstance(args[0], Known) and not (type(args[1]) is Const and args[1].value is None):
        return domain.call(Known(args[0].obj.fget), [args[1]], {})
    return None


def _comparison(name: str, function: object) -> None:
    def compare(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        same = comparisons.is_(domain, args[0], args[1])
        if function is operator.eq:
            return domain.constant(True) if same else Const(NotImplemented)
        return domain.constant(False) if same else Const(NotImplemented)

    method(name, object)(compare)


_comparison("__eq__", operator.eq)
_comparison("__ne__", operator.ne)


_SEQUENCES = (str, bytes, range)


@method("__contains__", *_SEQUENCES)
def _contains(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if type_of(domain, args[0]) not in _SEQUENCES:  # a subclass may have called this to do what `in` does not do for it
        return None
    return comparisons.contains(domain, args[0], args[1])


@method("__iter__", str, bytes, range)
def _constant_iter(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return iteration.get_iter(domain, args[0]) if type(args[0]) is Const else None


@method("finditer", re.Pattern)
def _finditer(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    """All matches at once: text and pattern are constants."""
    if kwargs or not all(type(a) is Const for a in args):
        return None
    pattern, *rest = (domain.use(a) for a in args)
    try:
        return iteration.ListIterator([Const(match) for match in pattern.finditer(*rest)])
    except TypeError as error:
        raise domain.error(TypeError, str(error)) from None


def _substitute(domain: CaptureDomain, pattern: Value, given: dict[str, Value], counted: bool) -> Value | None:
    """`pattern.sub(...)`, or `subn` with its number; a function that gives the new text is interpreted."""
    given = {k: atoms.stripped(domain, v) for k, v in given.items()}
    if not {"repl", "string"} <= set(given) <= {"repl", "string", "count"} or type(pattern) is not Const:
        return None
    repl, string, count = given["repl"], given["string"], given.get("count", Const(0))
    name = "subn" if counted else "sub"
    if type(repl) is Const and type(string) is Const and type(count) is Const:
        real = {k: domain.use(v) for k, v in given.items()}
        found = operators.compute(domain, lambda: getattr(domain.use(pattern), name)(**real))
        return found
    function = isinstance(repl, (Known, FunctionValue, BoundMethod, Obj)) and type(repl) is not Mirror
    if not function or type(string) is not Const or type(count) is not Const:
        return None
    both = domain.vm.call(Known(library.substitute), [pattern, repl, string, count])
    return both if counted else iteration.items_of(domain, both)[0]


def _substituting(function: Any, name: str) -> None:
    def from_pattern(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        names = ("repl", "string", "count")
        if not args or len(args) > 4:
            return None
        return _substitute(domain, args[0], dict(zip(names, args[1:], strict=False)) | kwargs, name == "subn")

    def from_text(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        names = ("pattern", "repl", "string")
        given = dict(zip(names, args, strict=False)) | kwargs
        flags = given.pop("flags", Const(0))
        pattern = atoms.stripped(domain, given.pop("pattern", Const(None)))
        if len(args) > 3:
            return None if any(type(a) is not Const for a in args) else _directly(domain, function, args, kwargs)
        flagged = isinstance(flags, (Const, Known))
        if type(pattern) is not Const or not flagged:
            return None
        real = to_raw(domain, flags)
        compiled = operators.compute(domain, re.compile, domain.use(pattern), real)
        return _substitute(domain, compiled, given, name == "subn")

    method(name, re.Pattern)(from_pattern)
    builtin(function)(from_text)


def _directly(domain: CaptureDomain, function: Any, args: _Args, kwargs: _Kwargs) -> Value | None:
    if not all(isinstance(v, (Const, Known)) for v in [*args, *kwargs.values()]):
        return None
    real = [to_raw(domain, v) for v in args]
    named = {k: to_raw(domain, v) for k, v in kwargs.items()}
    return operators.compute(domain, lambda: function(*real, **named))


_substituting(re.sub, "sub")
_substituting(re.subn, "subn")


def _own_items(domain: CaptureDomain, value: Value) -> list[Value]:
    """The items of a sequence of C, whatever its `__iter__` says."""
    value = operators.as_tuple(value)
    sequence = isinstance(value, (ListValue, TupleValue))
    return elements.items(domain, value) if sequence else iteration.items_of(domain, value)  # type: ignore[arg-type]


@method("index", tuple, list, deque)
def _index(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if not all(has_method(domain, a, "__index__") for a in args[2:]):
        return None
    items = _own_items(domain, args[0])
    bounds = [domain.index(a) for a in args[2:]]
    for i in range(len(items))[slice(bounds[0] if bounds else None, bounds[1] if len(bounds) > 1 else None)]:
        if comparisons.same_or_equal(domain, items[i], args[1]):
            return Const(i)
    if isinstance(args[0], ListValue) and issubclass(args[0].cls, deque):
        return None  # the message differs between versions
    if isinstance(args[0], ListValue):
        text = domain.use(formatting.to_text(domain, args[1], repr))
        raise domain.error(ValueError, f"{text} is not in list")
    raise domain.error(ValueError, "tuple.index(x): x not in tuple")


@method("count", tuple, list, deque)
def _count(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    items = _own_items(domain, args[0])
    return Const(sum(comparisons.same_or_equal(domain, v, args[1]) for v in items))


@method_of(SliceValue, "indices", slice)
def _indices(domain: CaptureDomain, own: SliceValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    where, length = domain.slice(own), domain.index(args[0])
    return operators.compute(domain, where.indices, length)


@method("join", str)
def _join(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if type(args[1]) is Const and not hasattr(type(args[1].value), "__iter__"):
        type_of(domain, args[1])
        raise domain.error(TypeError, "can only join an iterable")
    parts = [atoms.stripped(domain, p) for p in collecting.collected(domain, iteration.get_iter(domain, args[1]))]
    if not all(type(p) is Const for p in parts):
        return None
    texts = [domain.use(p) for p in parts]
    return operators.compute(domain, domain.use(args[0]).join, texts)


@method("format", str)
def _format(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    values = [*args, *kwargs.values()]
    if not all(is_constant(domain, v) for v in values):
        text = args[0].value if type(args[0]) is Const else None
        return texts.format_method(domain, text, args[1:], kwargs) if type(text) is str else None
    real = {k: constant_of(domain, v) for k, v in kwargs.items()}
    function = functools.partial(domain.use(args[0]).format, **real)
    return operators.compute(domain, function, *(constant_of(domain, a) for a in args[1:]))


@builtin(inspect.getfullargspec)
def _full_argument_spec(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if len(args) == 1 and isinstance(args[0], Known) and isinstance(args[0].obj, types.FunctionType):
        return operators.compute(domain, inspect.getfullargspec, args[0].obj)
    if len(args) == 1 and isinstance(args[0], FunctionValue) and args[0].real is NEW:
        return operators.compute(domain, inspect.getfullargspec, stand_in_of(domain, args[0]))
    return None


@builtin(_thread.RLock)
def _recursive_lock(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    """A new lock, which is taken for real if at all."""
    return None if args or kwargs else Obj(_thread.RLock)


@builtin(_thread.get_ident, threading.get_ident)
def _get_ident(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return IdValue(Known(threading.get_ident))


def _holds_constants(domain: CaptureDomain, function: FunctionValue) -> bool:
    """Are all defaults and annotations constants?"""
    held = list(function.defaults)
    if function.kwdefaults is not None:
        held += [v for _, v in dicts.dict_pairs(domain, function.kwdefaults)]
    annotations = function.annotations or function.attrs.get("__annotations__")
    if isinstance(annotations, DictValue):
        held += [v for _, v in dicts.dict_pairs(domain, annotations)]
    elif annotations is not None:
        held += domain.unpack_all(annotations)
    return all(type(v) in (Const, Known) for v in held)


@builtin(inspect.signature)
def _signature(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    value = args[0]
    if kwargs or len(args) != 1:
        return None
    if isinstance(value, FunctionValue) and value.real is NEW:
        if _holds_constants(domain, value):
            return operators.compute(domain, inspect.signature, stand_in_of(domain, value))
        # What it holds would be twins of the defaults.
        from_callable = domain.vm.finish(attributes.load_attr(domain, Known(inspect.Signature), "from_callable"))
        return domain.vm.call(from_callable, [value])
    if isinstance(value, Known):
        return operators.compute(domain, inspect.signature, value.obj)
    if isinstance(value, BoundMethod) and isinstance(value.function, Known):
        bound = types.MethodType(value.function.obj, object())
        return operators.compute(domain, inspect.signature, bound)
    return None
