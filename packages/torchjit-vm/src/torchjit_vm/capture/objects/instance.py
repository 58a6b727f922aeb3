"""Instances of classes of C whose state is their attributes: what their methods do, in place of slots of a kind of their own."""

from __future__ import annotations

import _thread
import contextvars
import functools
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any, cast

from torchjit_core.paths import Pinned
from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture import runtime
from torchjit_vm.capture.builtin_table import method
from torchjit_vm.capture.comparisons import compare, is_
from torchjit_vm.capture.contexts import token_attr, write_context_stores
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.keys import object_key
from torchjit_vm.capture.lru_caches import is_made_cache, lru_arguments
from torchjit_vm.capture.objects.dict import equal_dicts
from torchjit_vm.capture.objects.exception import new_exception, write_traceback
from torchjit_vm.capture.prelude import state_of
from torchjit_vm.capture.raw import no_raw_form
from torchjit_vm.capture.reasons import REBUILD, UNKNOWN_CALL
from torchjit_vm.capture.rebuild import Rebuilder, write_attributes
from torchjit_vm.capture.stand_in_classes import WRAPPED
from torchjit_vm.capture.type_slots import Op, Part, TypeSlots, register
from torchjit_vm.capture.values import DELETED, NEW, Const, InstanceDict, Known, Obj, TupleValue, Value
from torchjit_vm.capture.weak_references import is_held, is_new, is_reference, referent

__all__ = ["real_object"]

_EQUALITY = {"__eq__": operator.eq, "__ne__": operator.ne}


def _compare_namespaces(function: Op) -> Any:
    def run(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self, other = args
        if not (isinstance(self, Obj) and isinstance(other, Obj) and issubclass(other.cls, types.SimpleNamespace)):
            return Const(NotImplemented)
        return domain.constant(
            equal_dicts(domain, InstanceDict(self), InstanceDict(other)) is (function is operator.eq)
        )

    return run


def _compare_references(function: Op) -> Any:
    def run(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self, other = args
        if not (isinstance(self, Obj) and isinstance(other, Obj) and is_reference(self) and is_reference(other)):
            return Const(NotImplemented)
        targets = [referent(domain, v) for v in (self, other)]
        if targets[0] is not None and targets[1] is not None:
            return compare(domain, function, targets[0], targets[1])
        return domain.constant(is_(domain, self, other) is (function is operator.eq))

    return run


def _copy(domain: CaptureDomain, self: Obj, part: Part, remember: Callable[[Value], None]) -> Obj:
    if type(self) is not Obj:
        raise domain.graph_break(UNKNOWN_CALL, "copy of an object with its own rules")
    made = Obj(self.cls)
    remember(made)
    return made


def real_object(domain: CaptureDomain, self: Obj) -> Any:
    """The object itself, where the region has not changed it."""
    if self.real is NEW or self.path is None or self.written or self in domain.touched:
        raise no_raw_form(domain, self)
    if type(self.path) is not Pinned:
        domain.guard_id(self.path, self.real)
    return self.real


def _rebuild(out: Rebuilder, self: Obj) -> str:
    """Most are made without their `__init__`, then given the attributes that they have at the end of the region."""
    if type(self) is not Obj:  # a kind that does not say how
        raise GraphBreak(REBUILD, self.cls.__name__, out.domain.location())
    make = _cached_function if is_made_cache(out.domain, self) else _MAKERS.get(self.cls)
    if make is None and issubclass(self.cls, weakref.ReferenceType):
        make = _reference
    if make is not None:
        return make(out, self)
    if self.cls in out.domain.policy.remade:
        return _remade(out, self, *out.domain.policy.remade[self.cls])
    exception = issubclass(self.cls, BaseException)
    name = new_exception(out, self) if exception else _empty(out, self)
    out.name(self, name)
    write_attributes(out, self, name)
    if exception and self in out.domain.thrown and self is not out.raising:
        write_traceback(out, self, name)
    return name


def _empty(out: Rebuilder, self: Obj) -> str:
    """The name of an instance without attributes."""
    state = state_of(out.domain, self)
    if state is not None:
        return out.assign(f"{out.runtime(runtime.random_generator)}({out.constant(state, 'state')})")
    if self.cls is types.SimpleNamespace:
        return out.assign(f"{out.runtime(types.SimpleNamespace)}()")
    return out.assign(f"{out.runtime(runtime.new)}(object, {out.expr(Known(self.cls))})")


def _partial(out: Rebuilder, self: Obj) -> str:
    func, args, keywords = (out.expr(self.attrs[n]) for n in ("func", "args", "keywords"))
    name = out.assign(f"{out.runtime(functools.partial)}({func}, *{args}, **{keywords})")
    out.name(self, name)
    for key, content in self.attrs.items():
        if key not in ("func", "args", "keywords") and content is not DELETED:
            out.write(f"{name}.{key} = {out.expr(content)}")
    return name


def _token(out: Rebuilder, self: Obj) -> str:
    write_context_stores(out.domain, out)  # the store gives it
    return out.named(self)


def _from_arguments(out: Rebuilder, self: Obj) -> str:
    rest = out.expr(self.attrs["args"])
    named = self.attrs.get("kwargs")
    keywords = "" if named is None else f", **{out.expr(named)}"
    return out.assign(f"{out.runtime(self.cls)}(*{rest}{keywords})")


def _wrapped(out: Rebuilder, self: Obj) -> str:
    given = ", ".join(out.expr(self.attrs[n]) for n in WRAPPED[self.cls])
    return out.assign(f"{out.runtime(self.cls)}({given})")


def _remade(out: Rebuilder, self: Obj, cls: type, names: tuple[str, ...]) -> str:
    return out.assign(f"{out.runtime(cls)}({', '.join(out.expr(self.attrs[name]) for name in names)})")


def _reference(out: Rebuilder, self: Obj) -> str:
    """A weak reference, of a class derived from it with what the class adds."""
    items = cast(TupleValue, self.attrs["args"]).items or []
    given = out.join(items)
    if is_new(items[0]) and not is_held(out.domain, items[0]):
        out.dropped.append(out.expr(items[0]))
    if self.cls is weakref.ReferenceType:
        return out.assign(f"{out.runtime(weakref.ref)}({given})")
    cls = out.expr(Known(self.cls))
    name = out.assign(f"{out.runtime(runtime.new)}({out.runtime(weakref.ref)}, {cls}, {given})")
    write_attributes(out, self, name, frozenset({"args"}))
    return name


_OF_WRAPPERS = frozenset({*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "cache_parameters"})


def _cached_function(out: Rebuilder, self: Obj) -> str:
    """A function with an LRU cache that the region made, and may have called."""
    given, entries = lru_arguments(out.domain, self)
    texts = [out.expr(v) for v in given]
    rows = ", ".join(out.expr(e) for e in entries)
    make = out.runtime(runtime.lru_cached)
    name = out.assign(f"{make}({', '.join(texts[:3])}, [{rows}], {', '.join(texts[3:])})")
    out.name(self, name)
    for key, content in self.attrs.items():
        if key not in _OF_WRAPPERS and content is not DELETED:
            out.write(f"setattr({name}, {key!r}, {out.expr(content)})")
    return name


_MAKERS: dict[type, Callable[[Rebuilder, Obj], str]] = {
    functools.partial: _partial,
    contextvars.Token: _token,
    _thread.RLock: lambda out, self: out.assign(f"{out.runtime(_thread.RLock)}()"),
    **dict.fromkeys((operator.itemgetter, operator.attrgetter, operator.methodcaller), _from_arguments),
    **dict.fromkeys(WRAPPED, _wrapped),
}
"""Classes of C with a way of their own."""

register(Obj, TypeSlots(getattr=token_attr, hash=object_key, copy=_copy, raw=real_object, rebuild=_rebuild))
for _name, _function in _EQUALITY.items():
    method(_name, types.SimpleNamespace)(_compare_namespaces(_function))
    method(_name, weakref.ReferenceType)(_compare_references(_function))
