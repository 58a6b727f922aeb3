"""operator.itemgetter, attrgetter and methodcaller, as values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torchjit_core.paths import Pinned
from torchjit_vm.capture import attributes, iteration, subscripts
from torchjit_vm.capture.builtin_table import Method, builtin, method_of
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.reading import pinned
from torchjit_vm.capture.reasons import UNKNOWN_CALL
from torchjit_vm.capture.values import NEW, Args, DictValue, Kwargs, Obj, TupleValue, Value
from torchjit_vm.frame import Frame

__all__: list[str] = []


def _register(cls: Any) -> None:
    def make(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
        if not args:
            return None
        made = Obj(cls)
        made.attrs["args"] = TupleValue(list(args))
        if kwargs:
            made.attrs["kwargs"] = DictValue.of_names(kwargs)
        return made

    builtin(cls)(make)


for _cls in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
    _register(_cls)


def _arguments_of(domain: CaptureDomain, value: Obj) -> tuple[Args, Kwargs]:
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


def _called_with_one(cls: Any) -> Callable[[Method[Obj]], Method[Obj]]:
    """Register what a call of an instance does, with one argument."""
    return lambda rule: method_of(Obj, "__call__", cls)(
        lambda domain, own, args, kwargs: None if len(args) != 1 or kwargs else rule(domain, own, args, kwargs)
    )


@_called_with_one(operator.itemgetter)
def _itemgetter(domain: CaptureDomain, function: Obj, args: Args, kwargs: Kwargs) -> Value:
    keys, _ = _arguments_of(domain, function)
    found = [subscripts.getitem(domain, args[0], k) for k in keys]
    return found[0] if len(found) == 1 else TupleValue(found)


@_called_with_one(operator.attrgetter)
def _attrgetter(domain: CaptureDomain, function: Obj, args: Args, kwargs: Kwargs) -> Value:
    names, _ = _arguments_of(domain, function)
    found: Args = []
    for name in names:
        value = args[0]
        for part in domain.use(name).split("."):
            value = domain.vm.finish(attributes.load_attr(domain, value, part))
        found.append(value)
    return found[0] if len(found) == 1 else TupleValue(found)


@_called_with_one(operator.methodcaller)
def _methodcaller(domain: CaptureDomain, function: Obj, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
    (name, *rest), keywords = _arguments_of(domain, function)
    method = domain.vm.finish(attributes.load_attr(domain, args[0], domain.use(name)))
    return domain.call(method, rest, keywords)
