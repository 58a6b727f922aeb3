"""Methods of object, type, function, exception, property and tuple."""

from __future__ import annotations

import _thread
import inspect
import re
import threading
import types
from collections import OrderedDict, defaultdict, deque
from typing import Any

from torchjit_vm.capture import (
    atoms,
    attributes,
    collecting,
    comparisons,
    construct,
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
from torchjit_vm.capture.builtin_table import Builtin, builtin, by_position, method, method_of
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.exceptions import note_write
from torchjit_vm.capture.method_tables import UNKNOWN, methods
from torchjit_vm.capture.reading import pinned
from torchjit_vm.capture.special_methods import computed, has_method
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    NEW,
    Args,
    AtomObject,
    BoundMethod,
    Const,
    DictValue,
    FunctionValue,
    IdValue,
    Known,
    Kwargs,
    ListValue,
    Obj,
    SetValue,
    SliceValue,
    TracebackValue,
    TupleValue,
    Value,
)
from torchjit_vm.frame import Frame
from torchjit_vm.type_labels import type_label


def _getattribute(domain: CaptureDomain, own: Obj, key: Value) -> Value | Frame[Value]:
    name = domain.use(key)
    found = attributes.generic_attr(domain, own, name)
    if found is None:
        error = attributes.missing(domain, own.cls, name)
        attributes.tell_sought(error.value, own, name)
        try:
            raise error
        finally:
            del error  # its traceback holds this frame, and the whole capture through it
    return found


methods(
    Obj,
    object,
    __getattribute__=_getattribute,
    __setattr__=lambda domain, own, name, content: stores.giving_none(
        stores.generic_store(domain, own, domain.use(name), content)
    ),
    __delattr__=lambda domain, own, name: stores.giving_none(stores.generic_delete(domain, own, domain.use(name))),
    __init__=lambda domain, own: None,
)


def _new(base: type) -> None:
    def make(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
        if not (args and isinstance(args[0], Known) and isinstance(args[0].obj, type)):
            return None
        if base in _ATOMS and args[0].obj is base:
            return domain.vm.call(args[0], args[1:], kwargs)
        return None if kwargs and base in _ATOMS else construct.allocate_by(domain, args[0].obj, base.__new__, args[1:])

    builtin(base.__new__)(make)


_ATOMS = (str, int, float, complex, bytes)
for _base in (object, dict, list, set, tuple, OrderedDict, defaultdict, BaseException, Exception, *_ATOMS):
    _new(_base)


@method_of(
    Obj,
    "__init__",
    *(c for c in (BaseException, Exception, KeyError, ValueError, TypeError, RuntimeError) if "__init__" in vars(c)),
)
def _exception_init(domain: CaptureDomain, own: Obj, args: Args, kwargs: Kwargs) -> Value | None:
    if kwargs:
        return None
    _set_field(domain, own, "args", TupleValue(args))
    return Const(None)


def _set_field(domain: CaptureDomain, exception: Obj, name: str, value: Value) -> None:
    """Set a field as the `__init__` of C does. One of an exception that a break has made real is written back."""
    domain.touch(exception)
    if exception.real is not NEW:
        note_write(domain, exception, name)
    exception.attrs[name] = value


def _fields_init(cls: type, *fields: str) -> None:
    """The `__init__` of an exception class with keyword fields."""

    @method_of(Obj, "__init__", cls)
    def init(domain: CaptureDomain, own: Obj, args: Args, kwargs: Kwargs) -> Value | None:
        if not set(kwargs) <= set(fields):
            return None
        _set_field(domain, own, "args", TupleValue(args))
        for name in fields:
            if name in kwargs or own.real is not NEW:
                _set_field(domain, own, name, kwargs.get(name, Const(None)))
            else:
                own.attrs.pop(name, None)
        if cls is ImportError:
            _set_field(domain, own, "msg", args[0] if len(args) == 1 else Const(None))
        return Const(None)


_fields_init(AttributeError, "name", "obj")
_fields_init(NameError, "name")
_fields_init(ImportError, "name", "path")


@method_of(Obj, "add_note", BaseException)
def _add_note(domain: CaptureDomain, own: Obj, args: Args, kwargs: Kwargs) -> Value | None:
    if own.real is not NEW:
        return None
    if type_of(domain, args[0]) is not str:
        raise domain.error(TypeError, f"note must be a str, not '{type_label(type_of(domain, args[0]))}'")
    notes = own.attrs.get("__notes__")
    if isinstance(notes, Value) and not issubclass(type_of(domain, notes), list):
        raise domain.error(TypeError, "Cannot add note: __notes__ is not a list")
    if notes is None and members.find_member(domain, own.cls, "__setattr__").kind == members.FUNCTION:
        domain.vm.call(Known(setattr), [own, Const("__notes__"), ListValue([])])  # a frozen dataclass refuses
        notes = own.attrs.get("__notes__")
    if notes is None:
        notes = own.attrs["__notes__"] = ListValue([])
    packing.list_append(domain, notes, args[0])
    return Const(None)


@method("with_traceback", BaseException)
def _with_traceback(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if type(args[1]) is TracebackValue and args[1].exception is args[0]:
        domain.vm.rewind(args[0], args[1].depth)
    return args[0]


def _dict_init(domain: CaptureDomain, own: DictValue, *args: Value, **kwargs: Value) -> None:
    construct.fill_dict(domain, own, list(args), kwargs)


def _list_init(domain: CaptureDomain, own: ListValue, iterable: Value | None = None) -> None:
    elements.change(domain, own).clear()
    if iterable is not None:
        collecting.extend(domain, own, iterable)


def _set_init(domain: CaptureDomain, own: SetValue, iterable: Value | None = None) -> None:
    sets.set_replace(domain, own, SetValue({}))
    if iterable is not None:
        packing.set_update(domain, own, iterable)


def _mro(domain: CaptureDomain, own: Known) -> Value:
    domain.guard_mro(own.obj)
    return ListValue([Known(c) for c in own.obj.__mro__])


methods(DictValue, dict, __init__=_dict_init)
methods(ListValue, list, __init__=_list_init)
methods(SetValue, set, __init__=_set_init)
methods(
    Known,
    type,
    mro=_mro,
    __call__=lambda domain, own, *args, **kwargs: construct.default_call(domain, own, list(args), kwargs) or UNKNOWN,
)


@method("__get__", types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
def _function_get(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if type(args[1]) is Const and args[1].value is None:
        return args[0]
    if isinstance(args[0], Known):
        attributes.check_owner(domain, args[0].obj, type_of(domain, args[1]))
    return BoundMethod(args[0], args[1])


def _class_method(domain: CaptureDomain, own: Known, instance: Value, owner: Value | None = None) -> Value:
    if type(own.obj.__func__) is not types.FunctionType:
        return UNKNOWN
    if owner is None or (type(owner) is Const and owner.value is None):
        owner = Known(type_of(domain, instance))
    return BoundMethod(pinned(domain, own.obj.__func__, "classmethod.__func__"), owner)


def _property(domain: CaptureDomain, own: Known, instance: Value, owner: Value | None = None) -> Value | Frame[Value]:
    none = type(instance) is Const and instance.value is None
    return UNKNOWN if none else domain.call(Known(own.obj.fget), [instance], {})


methods(Known, classmethod, __get__=_class_method)
methods(Known, property, __get__=_property)
methods(
    Known,
    staticmethod,
    __get__=lambda domain, own, instance, owner=None: pinned(domain, own.obj.__func__, "staticmethod.__func__"),
)


method("__call__", types.FunctionType)(lambda domain, args, kwargs: domain.call(args[0], args[1:], kwargs))
for _name, _when_same in (("__eq__", True), ("__ne__", False)):

    @method(_name, object)
    def _compare(domain: CaptureDomain, args: Args, kwargs: Kwargs, when_same: bool = _when_same) -> Value:
        return domain.constant(when_same if comparisons.is_(domain, args[0], args[1]) else NotImplemented)


_SEQUENCES = (str, bytes, range)


@method("__contains__", *_SEQUENCES)
def _contains(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if type_of(domain, args[0]) not in _SEQUENCES:  # a subclass may have called this to do what `in` does not do for it
        return None
    return comparisons.contains(domain, args[0], args[1])


method("__iter__", *_SEQUENCES)(
    lambda domain, args, kwargs: iteration.get_iter(domain, args[0]) if type(args[0]) is Const else None
)


@method("finditer", re.Pattern)
def _finditer(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    """All matches at once: text and pattern are constants."""
    if kwargs or not all(type(a) is Const for a in args):
        return None
    pattern, *rest = (domain.use(a) for a in args)
    try:
        return iteration.ListIterator([Const(match) for match in pattern.finditer(*rest)])
    except TypeError as error:
        raise domain.error(TypeError, str(error)) from None


def _substitution(domain: CaptureDomain, function: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """Of constants; a function that gives the new text runs for real."""
    constants = all(
        type(v) is Const or (type(v) is Known and isinstance(v.obj, re.RegexFlag)) for v in (*args, *kwargs.values())
    )
    return computed(domain, function, args, kwargs) if constants else None


def _substituting(function: Any) -> Builtin:
    return lambda domain, args, kwargs: _substitution(domain, function, args, kwargs)


for _function in (re.sub, re.subn):
    builtin(_function)(_substituting(_function))
    method(_function.__name__, re.Pattern)(_substituting(getattr(re.Pattern, _function.__name__)))


def _search(function: Any) -> Builtin:
    """Of constants, in one piece: the expression may not have been compiled yet."""

    def run(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
        plain = [atoms.base_of(arg) if type(arg) is AtomObject else arg for arg in args]
        return computed(domain, function, plain, kwargs)

    return run


_SEARCHES: tuple[Any, ...] = (re.compile, re.match, re.search, re.fullmatch, re.findall, re.split)
for _searching in _SEARCHES:
    builtin(_searching)(_search(_searching))


def _own_items(domain: CaptureDomain, value: Value) -> list[Value]:
    """The items of a sequence of C, whatever its `__iter__` says."""
    value = operators.as_tuple(value)
    sequence = isinstance(value, (ListValue, TupleValue))
    return elements.items(domain, value) if sequence else iteration.items_of(domain, value)  # type: ignore[arg-type]


@method("index", tuple, list, deque)
def _index(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
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
def _count(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    items = _own_items(domain, args[0])
    return Const(sum(comparisons.same_or_equal(domain, v, args[1]) for v in items))


@method_of(SliceValue, "indices", slice)
def _indices(domain: CaptureDomain, own: SliceValue, args: Args, kwargs: Kwargs) -> Value | None:
    where, length = domain.slice(own), domain.index(args[0])
    return operators.compute(domain, where.indices, length)


@method("join", str)
def _join(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if type(args[1]) is Const and not hasattr(type(args[1].value), "__iter__"):
        type_of(domain, args[1])
        raise domain.error(TypeError, "can only join an iterable")
    parts = [atoms.stripped(domain, p) for p in collecting.collected(domain, iteration.get_iter(domain, args[1]))]
    if not all(type(p) is Const for p in parts):
        return None
    texts = [domain.use(p) for p in parts]
    return operators.compute(domain, domain.use(args[0]).join, texts)


@method("format", str)
def _format(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    text = args[0].value if type(args[0]) is Const else None
    found = computed(domain, str.format, args, kwargs)
    return texts.format_method(domain, text, args[1:], kwargs) if found is None and type(text) is str else found


@builtin(inspect.getfullargspec)
def _full_argument_spec(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if len(args) != 1 or kwargs:
        return None
    function = args[0].function if isinstance(args[0], BoundMethod) else args[0]  # the first parameter is listed, too
    if isinstance(function, Known) and isinstance(function.obj, types.FunctionType):
        return operators.compute(domain, inspect.getfullargspec, function.obj)
    if not isinstance(function, FunctionValue):
        return None
    own = function.attrs if function.real is NEW else vars(function.real)
    return None if "__signature__" in own else domain.vm.call(Known(library.argument_spec), [function])


builtin(_thread.RLock)(by_position(lambda domain: Obj(_thread.RLock)))  # which is taken for real if at all
builtin(_thread.get_ident, threading.get_ident)(by_position(lambda domain: IdValue(Known(threading.get_ident))))


@builtin(inspect.signature)
def _signature(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    value = args[0]
    if kwargs or len(args) != 1:
        return None
    if isinstance(value, Known):
        return _signature_of(domain, value.obj)
    if isinstance(value, BoundMethod) and isinstance(value.function, Known):
        return _signature_of(domain, types.MethodType(value.function.obj, object()))
    return None


def _signature_of(domain: CaptureDomain, function: Any) -> Value:
    """The signature of a function; a new object, unless somebody has set `__signature__`."""
    found = operators.compute(domain, inspect.signature, function)
    if isinstance(found, Obj) and found.real is not getattr(inspect.unwrap(function), "__signature__", None):
        domain.computed_ids.add(id(found.real))
    return found
