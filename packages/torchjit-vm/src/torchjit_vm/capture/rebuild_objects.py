"""Instances in emitted code: most are made without their `__init__`, then given the attributes that they have at the end
of the region. And what belongs to an object: its `__dict__`, its id, its traceback.
"""

from __future__ import annotations

import _thread
import contextvars
import functools
import operator
import types
import weakref
from typing import TYPE_CHECKING, cast

from torchjit_core.paths import Drawn, own_attr
from torchjit_vm.capture import runtime
from torchjit_vm.capture.atoms import base_of
from torchjit_vm.capture.contexts import write_context_stores
from torchjit_vm.capture.lru_caches import is_made_cache, lru_arguments
from torchjit_vm.capture.prelude import state_of
from torchjit_vm.capture.source import places_of, raised_in
from torchjit_vm.capture.stand_in_classes import WRAPPED
from torchjit_vm.capture.values import (
    DELETED,
    AtomObject,
    IdValue,
    InstanceDict,
    Known,
    Obj,
    RandomState,
    SuperValue,
    TracebackValue,
    TupleValue,
)
from torchjit_vm.capture.weak_references import is_held, is_new

if TYPE_CHECKING:
    from torchjit_vm.capture.rebuild import Rebuilder

__all__ = [
    "id_expr",
    "instance_dict_expr",
    "object_expr",
    "random_state_expr",
    "traceback_expr",
    "write_attributes",
]

_FROM_ARGUMENTS = frozenset({operator.itemgetter, operator.attrgetter, operator.methodcaller})
"""Classes whose new instances are rebuilt by a call with their `args` and `kwargs`."""
_OF_WRAPPERS = frozenset({*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "cache_parameters"})


def object_expr(out: Rebuilder, value: Obj) -> str:
    cls = value.cls
    if cls is functools.partial:
        func, args, keywords = (out.expr(value.attrs[n]) for n in ("func", "args", "keywords"))
        name = out.assign(f"{out.runtime(functools.partial)}({func}, *{args}, **{keywords})")
        out.name(value, name)
        for key, content in value.attrs.items():
            if key not in ("func", "args", "keywords") and content is not DELETED:
                out.write(f"{name}.{key} = {out.expr(content)}")
        return name
    if cls is contextvars.Token:  # which the store gives
        write_context_stores(out.domain, out)
        return out.named(value)
    if is_made_cache(out.domain, value):
        return _cached_function(out, value)
    if cls in WRAPPED:
        given = ", ".join(out.expr(value.attrs[n]) for n in WRAPPED[cls])
        return out.assign(f"{out.runtime(cls)}({given})")
    if cls is _thread.RLock:
        return out.assign(f"{out.runtime(_thread.RLock)}()")
    if issubclass(cls, weakref.ReferenceType):
        return _reference(out, value)
    if cls in _FROM_ARGUMENTS:
        rest = out.expr(value.attrs["args"])
        named = value.attrs.get("kwargs")
        keywords = "" if named is None else f", **{out.expr(named)}"
        return out.assign(f"{out.runtime(cls)}(*{rest}{keywords})")
    state = state_of(out.domain, value)
    if isinstance(value, AtomObject):
        plain = base_of(value)
        name = out.assign(
            f"{out.runtime(runtime.new)}({type(plain.value).__name__}, {out.expr(Known(cls))}, {out.expr(plain)})"
        )
    elif state is not None:
        name = out.assign(f"{out.runtime(runtime.random_generator)}({out.constant(state, 'state')})")
    elif cls is types.SimpleNamespace:
        name = out.assign(f"{out.runtime(types.SimpleNamespace)}()")
    elif issubclass(cls, BaseException):
        arguments = out.domain.unpack_all(value.attrs.get("args", TupleValue([])))
        known = out.expr(Known(cls))
        given = "".join(", " + out.expr(a) for a in arguments)
        base = next(c for c in cls.__mro__ if isinstance(c.__dict__.get("__new__"), types.BuiltinFunctionType))
        # A `__new__` of the program has run, and may take other arguments than those that it has left in `args`.
        own = not isinstance(cls.__new__, types.BuiltinFunctionType)
        make = f"{out.runtime(runtime.new)}({out.expr(Known(base))}, {known}" if own else f"{known}.__new__({known}"
        name = out.assign(f"{make}{given})")
        out.name(value, name)
    else:
        name = out.assign(f"{out.runtime(runtime.new)}(object, {out.expr(Known(cls))})")
    out.name(value, name)
    write_attributes(out, value, name)
    if issubclass(cls, BaseException) and value in out.domain.thrown and value is not out.raising:
        _trace(out, value, name)
    return name


def _reference(out: Rebuilder, value: Obj) -> str:
    """A weak reference, of a class derived from it with what the class adds."""
    items = cast(TupleValue, value.attrs["args"]).items or []
    given = out.join(items)
    if is_new(items[0]) and not is_held(out.domain, items[0]):
        out.dropped.append(out.expr(items[0]))
    if value.cls is weakref.ReferenceType:
        return out.assign(f"{out.runtime(weakref.ref)}({given})")
    cls = out.expr(Known(value.cls))
    name = out.assign(f"{out.runtime(runtime.new)}({out.runtime(weakref.ref)}, {cls}, {given})")
    write_attributes(out, value, name, frozenset({"args"}))
    return name


def _cached_function(out: Rebuilder, value: Obj) -> str:
    """A function with an LRU cache that the region made, and may have called."""
    given, entries = lru_arguments(out.domain, value)
    texts = [out.expr(v) for v in given]
    rows = ", ".join(out.expr(e) for e in entries)
    make = out.runtime(runtime.lru_cached)
    name = out.assign(f"{make}({', '.join(texts[:3])}, [{rows}], {', '.join(texts[3:])})")
    out.name(value, name)
    for key, content in value.attrs.items():
        if key not in _OF_WRAPPERS and content is not DELETED:
            out.write(f"setattr({name}, {key!r}, {out.expr(content)})")
    return name


def _trace(out: Rebuilder, value: Obj, name: str) -> None:
    """Write what gives an exception that was raised in the region its traceback."""
    frames = tuple(places_of(out.domain, value))
    if frames and "__traceback__" not in value.attrs:
        first = out.traced.setdefault(out.domain.origins.get(value, value), name)
        if first is not name:  # parts of a group are told by having its very traceback
            out.write(f"{name}.__traceback__ = {first}.__traceback__")
            return
        raiser = raised_in(frames)
        out.write(f"{out.runtime(runtime.trace)}({name}, {out.constant(raiser, 'raise_')})")


def write_attributes(out: Rebuilder, value: Obj, name: str, but: frozenset[str] = frozenset()) -> None:
    """Write the attributes of a new object."""
    out.name(value, name)
    pairs: list[str] = []
    for key, content in value.attrs.items():
        if content is DELETED or key in but:
            continue
        if key in _exception_arguments(value.cls):
            continue
        pairs.append(f"{key!r}: {out.expr(content)}")
    if pairs:
        out.write(f"{out.runtime(runtime.restore)}({name}, {{{', '.join(pairs)}}})")


def _exception_arguments(cls: type) -> tuple[str, ...]:
    """The attributes of an exception that its arguments give it."""
    if not issubclass(cls, BaseException):
        return ()
    if issubclass(cls, BaseExceptionGroup):
        return ("args", "message", "exceptions")
    return ("args",)


def instance_dict_expr(out: Rebuilder, value: InstanceDict) -> str:
    return f"{out.runtime(own_attr)}({out.expr(value.owner)}, '__dict__')"


def super_expr(out: Rebuilder, value: SuperValue) -> str:
    return out.assign(f"{out.runtime(super)}({out.expr(Known(value.cls))}, {out.expr(value.self_)})")


def id_expr(out: Rebuilder, value: IdValue) -> str:
    if type(value.target) is Known:  # not an object's: the thread's
        return out.assign(f"{out.runtime(value.target.obj)}()")
    return out.assign(f"{out.runtime(value.function)}({out.expr(value.target)})")


def traceback_expr(out: Rebuilder, value: TracebackValue) -> str:
    return out.assign(f"{out.expr(value.exception)}.__traceback__")  # now: a break may add to it


def random_state_expr(out: Rebuilder, value: RandomState) -> str:
    return str(Drawn.of(value.number))
