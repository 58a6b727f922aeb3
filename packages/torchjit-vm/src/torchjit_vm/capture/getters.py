"""operator.itemgetter, attrgetter and methodcaller, as values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchjit_core.paths import Pinned
from torchjit_vm.capture import attributes, iteration, subscripts
from torchjit_vm.capture.builtin_table import builtin
from torchjit_vm.capture.reading import pinned
from torchjit_vm.capture.reasons import UNKNOWN_CALL
from torchjit_vm.capture.values import NEW, Const, DictValue, Obj, TupleValue, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain
    from torchjit_vm.frame import Frame

__all__ = ["CALLABLE_OBJECTS", "arguments_of"]

_Args = list[Value]
_Kwargs = dict[str, Value]


def _register(cls: Any) -> None:
    def make(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        if not args:
            return None
        made = Obj(cls)
        made.attrs["args"] = TupleValue(list(args))
        if kwargs:
            keywords = DictValue()
            keywords.entries = {k: (Const(k), v) for k, v in kwargs.items()}
            made.attrs["kwargs"] = keywords
        return made

    builtin(cls)(make)


for _cls in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
    _register(_cls)


def arguments_of(domain: CaptureDomain, value: Obj) -> tuple[_Args, _Kwargs]:
    """What the object was made from.

    Raises:
        GraphBreak: a real object that does not tell.
    """
    if value.real is NEW:
        args = iteration.items_of(domain, value.attrs["args"])
        keywords = value.attrs.get("kwargs")
        entries = keywords.entries.items() if isinstance(keywords, DictValue) else ()
        return args, {k: e[1] for k, e in entries if e is not None and isinstance(k, str)}
    if value.path is None:
        raise domain.graph_break(UNKNOWN_CALL, value.cls.__name__)
    if type(value.path) is not Pinned:
        domain.guard_id(value.path, value.real)
    made, given = value.real.__reduce__()
    if made is not value.cls:  # a partial of the class: keywords
        raise domain.graph_break(UNKNOWN_CALL, value.cls.__name__)
    return [pinned(domain, a, f"{value.path}.args") for a in given], {}


def _itemgetter(domain: CaptureDomain, function: Obj, args: _Args, kwargs: _Kwargs) -> Value:
    keys, _ = arguments_of(domain, function)
    found = [subscripts.getitem(domain, args[0], k) for k in keys]
    return found[0] if len(found) == 1 else TupleValue(found)


def _attrgetter(domain: CaptureDomain, function: Obj, args: _Args, kwargs: _Kwargs) -> Value:
    names, _ = arguments_of(domain, function)
    found: _Args = []
    for name in names:
        value = args[0]
        for part in domain.use(name).split("."):
            value = domain.vm.finish(attributes.load_attr(domain, value, part))
        found.append(value)
    return found[0] if len(found) == 1 else TupleValue(found)


def _methodcaller(domain: CaptureDomain, function: Obj, args: _Args, kwargs: _Kwargs) -> Value | Frame[Value]:
    (name, *rest), keywords = arguments_of(domain, function)
    method = domain.vm.finish(attributes.load_attr(domain, args[0], domain.use(name)))
    return domain.call(method, rest, keywords)


CALLABLE_OBJECTS: dict[type, Callable[[CaptureDomain, Obj, _Args, _Kwargs], Value | Frame[Value]]] = {
    operator.itemgetter: _itemgetter,
    operator.attrgetter: _attrgetter,
    operator.methodcaller: _methodcaller,
}
"""C classes whose instances are called, with what a call does."""
