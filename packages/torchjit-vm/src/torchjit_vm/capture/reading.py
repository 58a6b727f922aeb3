"""Real objects become values: with a guard on what is relied on, one value per object."""

from __future__ import annotations

import datetime
import enum
import functools
import gc
import pathlib
import re
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from torchjit_core.paths import AccessPath, Arg, Pinned
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.members import is_atom_class
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.values import (
    AtomObject,
    BoundMethod,
    CellValue,
    Const,
    DictValue,
    FunctionValue,
    Known,
    Leaf,
    ListValue,
    Obj,
    SetValue,
    SliceValue,
    TupleValue,
    Value,
)

__all__ = [
    "IMMUTABLE_ATOMS",
    "MADE_ATOMS",
    "constant_object",
    "known_cell",
    "lazily",
    "namespace",
    "pinned",
    "reads",
    "wrap",
]

_NUMBERS = frozenset({int, float, complex})
_PLAIN = frozenset(
    {str, bool, type(None), bytes, type(Ellipsis), type(NotImplemented), types.CodeType, range, re.Pattern, re.Match}
    | {pathlib.PosixPath, pathlib.PurePosixPath}
)
IMMUTABLE_ATOMS = _NUMBERS | _PLAIN
MADE_ATOMS = IMMUTABLE_ATOMS | {datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone}
"""What a computation at capture may give as a constant. Dates and times from outside are none: they often are the time of the call."""
_IDENTIFIED = (
    types.BuiltinFunctionType,
    types.ModuleType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    property,
    staticmethod,
    classmethod,
    enum.Enum,
    types.GenericAlias,
    types.UnionType,
    functools._lru_cache_wrapper,
)


def wrap(domain: CaptureDomain, obj: object, path: AccessPath) -> Value:
    """The value of a real object that is found at `path`."""
    t = type(obj)
    if t in _PLAIN:
        return _const(domain, obj, path)
    if t in _NUMBERS:
        if domain.leaves.wants(obj, path):
            return _leaf(domain, obj, path)
        return _const(domain, obj, path)
    found = domain.interned.get(id(obj))
    if found is not None:
        if id(obj) not in domain.stand_in_ids:
            _alias(domain, found, obj, path)
        return found
    wrapper = _WRAPPERS.get(t, _wrap_other)
    return wrapper(domain, obj, path)


def _const(domain: CaptureDomain, obj: object, path: AccessPath) -> Const:
    """A constant. Its value is guarded if an operation uses it; its type in any case, for a decision may rest on that it
    is a constant at all: `1[0]` raises without a look at the value."""
    made = Const(obj, path)
    domain.constants_read.append(made)
    return made


def pinned(domain: CaptureDomain, obj: object, label: str) -> Value:
    """The value of a real object whose identity is settled elsewhere (a class attribute, a global that is guarded)."""
    t = type(obj)
    if t in IMMUTABLE_ATOMS:
        return Const(obj)
    found = domain.interned.get(id(obj))
    if found is not None:
        return found
    if type(obj) is tuple and IMMUTABLE_ATOMS.issuperset(map(type, obj)):
        return TupleValue([Const(v) for v in obj], tuple, obj, Pinned.of(obj, label))  # nothing of it can change
    return wrap(domain, obj, Pinned.of(obj, label))


def namespace(domain: CaptureDomain, globals: dict[str, object]) -> DictValue:
    """The value of a module's dict, read name by name."""
    found = domain.namespaces.get(id(globals))
    if found is None:
        label = f"{globals.get('__name__', '?')}.__dict__"
        known = domain.interned.get(id(globals))
        if type(known) is DictValue:
            found = known
        else:
            found = DictValue(dict, globals, Pinned.of(globals, label))
            domain.interned[id(globals)] = found
        domain.namespaces[id(globals)] = found
    return found


def constant_object(domain: CaptureDomain, obj: object) -> Value:
    """The value of an object that comes out of a pure computation at capture."""
    t = type(obj)
    if t in MADE_ATOMS or t in domain.policy.value_types:
        return Const(obj)
    return pinned(domain, obj, getattr(obj, "__name__", t.__name__))


def _alias(domain: CaptureDomain, found: Value, obj: object, path: AccessPath) -> None:
    if isinstance(found, (Known, BoundMethod)):
        domain.guard_id(path, obj)
        return
    first: AccessPath | None = getattr(found, "path", None)
    if first is None or first is path:
        return
    if type(first) is Pinned:
        domain.guard_id(path, obj)
    else:
        domain.guard_same(first, path)


def _leaf(domain: CaptureDomain, obj: object, path: AccessPath) -> Value:
    """A leaf; a handler may say that the object is a constant after all, by giving back no payload."""
    payload = domain.leaves.input(obj, path, domain)
    if type(payload) not in domain.leaves.leaf_types:
        return _const(domain, payload, path)
    leaf = Leaf(payload, path, obj)
    return domain.payloads.setdefault(id(payload), leaf)


def _known(domain: CaptureDomain, obj: object, path: AccessPath) -> Value:
    if type(path) is not Pinned:
        domain.guard_id(path, obj)
    found = domain.interned[id(obj)] = Known(obj)
    return found


def _function(domain: CaptureDomain, obj: types.FunctionType, path: AccessPath) -> Value:
    """A function below an argument is often made anew for each call: identify it by its code."""
    identified = type(path.root()) is not Arg or domain.claimed(obj) or domain.policy.disabled(obj) is not None
    if identified or not domain.policy.inline(obj):
        return _known(domain, obj, path)
    domain.guard_type(path, types.FunctionType)
    domain.guard_id(path.attr("__code__"), obj.__code__)
    domain.guard_id(path.attr("__globals__"), obj.__globals__)
    made = FunctionValue(types.FunctionType, obj.__code__, obj.__globals__)
    domain.interned[id(obj)] = made
    made.real, made.path = obj, path
    made.name, made.qualname = obj.__name__, obj.__qualname__
    if obj.__defaults__ is None:
        domain.guard_value(path.attr("__defaults__"), None)
    else:
        defaults = path.attr("__defaults__")
        domain.guard_type(defaults, tuple)
        domain.guard_length(defaults, len(obj.__defaults__))
        made.defaults = [wrap(domain, v, defaults.item(i)) for i, v in enumerate(obj.__defaults__)]
    if obj.__kwdefaults__ is None:
        domain.guard_value(path.attr("__kwdefaults__"), None)
    else:
        made.kwdefaults = cast(DictValue, wrap(domain, obj.__kwdefaults__, path.attr("__kwdefaults__")))
    closure = path.attr("__closure__")
    made.closure = [wrap(domain, c, closure.item(i)) for i, c in enumerate(obj.__closure__ or ())]
    return made


Reader: TypeAlias = "Callable[[CaptureDomain, Any, AccessPath], Value]"


def lazily(kind: Callable[..., Value], *, interned: bool = True) -> Reader:
    """A kind whose content is read when it is looked at."""

    def read(domain: CaptureDomain, obj: object, path: AccessPath) -> Value:
        domain.guard_type(path, type(obj))
        made = kind(None, type(obj), obj, path)
        if interned:
            domain.interned[id(obj)] = made
        return made

    return read


_list, _set, _atom = lazily(ListValue), lazily(SetValue), lazily(AtomObject)
# Not interned: equal ones are often one object by accident of the compiler.
_tuple, _frozenset = lazily(TupleValue, interned=False), lazily(SetValue, interned=False)


def _dict(domain: CaptureDomain, obj: Any, path: AccessPath) -> Value:
    domain.guard_type(path, type(obj))
    found = domain.interned[id(obj)] = DictValue(type(obj), obj, path)
    if issubclass(type(obj), defaultdict) and obj.default_factory is not None:
        found.factory = wrap(domain, obj.default_factory, path.attr("default_factory"))
    return found


def _cell(domain: CaptureDomain, obj: types.CellType, path: AccessPath) -> Value:
    domain.guard_type(path, types.CellType)
    found = domain.interned[id(obj)] = CellValue(None, obj, path)
    return found


def known_cell(domain: CaptureDomain, cell: types.CellType, label: str) -> Value:
    """The value of a cell of a function whose identity is settled."""
    found = domain.interned.get(id(cell))
    if found is None:
        found = domain.interned[id(cell)] = CellValue(None, cell, Pinned.of(cell, label))
    return found


def _method(domain: CaptureDomain, obj: types.MethodType, path: AccessPath) -> Value:
    domain.guard_type(path, types.MethodType)
    function = wrap(domain, obj.__func__, path.attr("__func__"))
    return BoundMethod(function, wrap(domain, obj.__self__, path.attr("__self__")))


def _bound(domain: CaptureDomain, obj: Any, path: AccessPath) -> Value:
    """A function of C, or a method of C bound to an object (a fresh object each time it is looked up)."""
    owner = obj.__self__
    descriptor = getattr(type(owner), obj.__name__, None)
    free = owner is None or isinstance(owner, (types.ModuleType, type))
    if free or not isinstance(descriptor, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return _known(domain, obj, path)
    domain.guard_type(path, type(obj))
    domain.guard_value(path.attr("__name__"), obj.__name__)
    return BoundMethod(pinned(domain, descriptor, obj.__name__), wrap(domain, owner, path.attr("__self__")))


def _slice(domain: CaptureDomain, obj: slice, path: AccessPath) -> Value:
    domain.guard_type(path, slice)
    start, stop, step = (wrap(domain, getattr(obj, n), path.attr(n)) for n in ("start", "stop", "step"))
    return SliceValue(start, stop, step)


def _partial(domain: CaptureDomain, obj: functools.partial[object], path: AccessPath) -> Value:
    domain.guard_type(path, functools.partial)
    found = domain.interned[id(obj)] = Obj(functools.partial, obj, path)
    for name in ("func", "args", "keywords"):
        found.attrs[name] = wrap(domain, getattr(obj, name), path.attr(name))
    return found


def _wrap_other(domain: CaptureDomain, obj: Any, path: AccessPath) -> Value:
    if domain.leaves.wants(obj, path):
        found = domain.interned[id(obj)] = _leaf(domain, obj, path)
        return found
    cls = type(obj)  # `isinstance` would ask a `__getattribute__` of the program for the `__class__`
    if issubclass(cls, (type, *_IDENTIFIED)):
        return _known(domain, obj, path)
    if cls in domain.policy.value_types:
        domain.library_values |= domain.policy.plain_number(float, cls, ()) is not None
        return _const(domain, obj, path)
    if issubclass(cls, tuple):
        return _tuple(domain, obj, path)
    if issubclass(cls, dict):
        return _dict(domain, obj, path)
    if issubclass(cls, (list, deque)):
        return _list(domain, obj, path)
    if issubclass(cls, (set, frozenset)):
        return (_frozenset if issubclass(cls, frozenset) else _set)(domain, obj, path)
    if issubclass(cls, (str, int, float, complex, bytes)) and is_atom_class(cls):
        return _atom(domain, obj, path)
    domain.guard_type(path, cls)
    made = domain.interned[id(obj)] = Obj(cls, obj, path)
    return made


def _mapping_proxy(domain: CaptureDomain, obj: types.MappingProxyType[object, object], path: AccessPath) -> Value:
    """A read-only view of a dict that hangs on a settled object, such as the parameters of a signature.

    A view never leads to another dict: one that is the same in each call is relied on, and its dict in its own place.
    """
    behind = dict_behind(obj)
    if type(behind) not in (dict, OrderedDict):
        domain.guard_type(path, type(obj))
        return Obj(type(obj), obj, path)
    if type(path.root()) is Arg:
        domain.guard_type(path, type(obj))
        below = wrap(domain, behind, path.computed(dict_behind))
    else:
        if type(path) is not Pinned:
            domain.guard_id(path, obj)
        if id(path.root().key) in domain.computed_ids:
            domain.computed_ids.add(id(behind))
        below = pinned(domain, behind, str(path))
    if not isinstance(below, DictValue):
        raise domain.graph_break(UNKNOWN_OPERATION, "a view of an object's attributes")
    made = domain.interned[id(obj)] = view_of(domain, below)
    made.real, made.path = obj, path
    return made


def dict_behind(view: object) -> object:
    """The dict that a read-only view shows."""
    return next(iter(gc.get_referents(view)), None)


def view_of(domain: CaptureDomain, target: DictValue) -> DictValue:
    """A read-only view of a dict: it has the same entries, whatever becomes of them."""
    made = DictValue(types.MappingProxyType)
    domain.pairs(target)  # all of them are known from now on, and stay in one table
    made.entries, made.loaded, made.behind = target.entries, True, target
    return made


_WRAPPERS: dict[type, Reader] = {
    types.FunctionType: _function,
    types.BuiltinFunctionType: _bound,
    types.MethodWrapperType: _bound,
    types.ModuleType: _known,
    type: _known,
    list: _list,
    deque: _list,
    tuple: _tuple,
    dict: _dict,
    set: _set,
    frozenset: _frozenset,
    types.CellType: _cell,
    types.MethodType: _method,
    slice: _slice,
    functools.partial: _partial,
    types.MappingProxyType: _mapping_proxy,
}


def reads(*classes: type) -> Callable[[Reader], Reader]:
    """Register what makes the value of a real object of these very classes."""

    def register(reader: Reader) -> Reader:
        _WRAPPERS.update(dict.fromkeys(classes, reader))
        return reader

    return register
