"""Texts of containers that hold objects of the program, and of what `%` and `format` are given."""

from __future__ import annotations

import operator
import re
import string
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from torchjit_vm.capture import dicts, elements, formatting, members, sets
from torchjit_vm.capture.made_later import joined, made_later
from torchjit_vm.capture.raw import constant_of, is_constant
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.special_methods import compute
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    AtomObject,
    Const,
    DictValue,
    DictView,
    InstanceDict,
    ListValue,
    SetValue,
    SliceValue,
    TupleValue,
    Value,
)

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["container_text", "dict_text", "format_method", "percent"]


_LISTED = OrderedDict(a=1).__repr__() != "OrderedDict({'a': 1})"
"""Does an OrderedDict show a list of pairs?"""


def container_text(domain: CaptureDomain, value: Value) -> Const | None:
    """`repr` of a container, a view of one or a slice, whose items are asked one by one; None for other values."""
    if type(value) is SliceValue:
        return Const(f"slice({', '.join(_shown(domain, v) for v in (value.start, value.stop, value.step))})")
    if type(value) is DictView:
        view = value
        return _guarded(domain, view, "...", lambda: _view_text(domain, view))
    if type(value) is InstanceDict:
        value = dicts.instance_snapshot(domain, value)
    if not isinstance(value, (ListValue, TupleValue, DictValue, SetValue)):
        return None
    own = members.find_member(domain, value.cls, "__repr__").raw
    found = next((made for base, made in _TEXTS_OF.items() if own is base.__dict__["__repr__"]), None)
    if found is None:
        return None
    again, text = found
    if again is None:
        return Const(text(domain, value))
    return _guarded(domain, value, again.format(value.cls.__name__), lambda: text(domain, value))


class ShownContainers(set[Value]):
    """Those whose text is being made."""


def _guarded(domain: CaptureDomain, value: Value, again: str, text: Callable[[], str]) -> Const:
    """The text, or `again` where the value is met inside its own."""
    if value in domain.of(ShownContainers):
        return Const(again)
    domain.of(ShownContainers).add(value)
    try:
        return Const(text())
    finally:
        domain.of(ShownContainers).discard(value)


def _view_text(domain: CaptureDomain, value: DictView) -> str:
    return f"{type_of(domain, value).__name__}([{_joined(domain, dicts.view_items(domain, value))}])"


def _list_text(domain: CaptureDomain, value: Any) -> str:
    return f"[{_joined(domain, elements.items(domain, value))}]"


def _tuple_text(domain: CaptureDomain, value: Any) -> str:
    items = elements.items(domain, value)
    return f"({_joined(domain, items)},)" if len(items) == 1 else f"({_joined(domain, items)})"


def _deque_text(domain: CaptureDomain, value: Any) -> str:
    limit = elements.maximum(value)
    more = "" if limit is None else f", maxlen={limit}"
    return f"{value.cls.__name__}({_list_text(domain, value)}{more})"


def dict_text(domain: CaptureDomain, value: DictValue) -> str:
    """`dict.__repr__`."""
    pairs = dicts.dict_pairs(domain, value)
    return "{" + ", ".join(f"{_shown(domain, k)}: {_shown(domain, v)}" for k, v in pairs) + "}"


def _proxy_text(domain: CaptureDomain, value: Any) -> str:
    return f"mappingproxy({dict_text(domain, value)})"


def _ordered_text(domain: CaptureDomain, value: Any) -> str:
    pairs = dicts.dict_pairs(domain, value)
    if not pairs:
        return f"{value.cls.__name__}()"
    listed = ", ".join(f"({_shown(domain, k)}, {_shown(domain, v)})" for k, v in pairs)
    return f"{value.cls.__name__}({f'[{listed}]' if _LISTED else dict_text(domain, value)})"


def _default_text(domain: CaptureDomain, value: Any) -> str:
    factory = "None" if value.factory is None else _shown(domain, value.factory)
    inside = _guarded(domain, value, "{...}", lambda: dict_text(domain, value))
    return f"{value.cls.__name__}({factory}, {inside.value})"


def _set_text(domain: CaptureDomain, value: Any) -> str:
    items = sets.set_items(domain, value)
    if not items:
        return f"{value.cls.__name__}()"
    inside = f"{{{_joined(domain, items)}}}"
    return inside if value.cls is set else f"{value.cls.__name__}({inside})"


_TEXTS_OF: dict[type, tuple[str | None, Callable[[CaptureDomain, Any], str]]] = {
    list: ("[...]", _list_text),
    tuple: ("(...)", _tuple_text),
    dict: ("{{...}}", dict_text),
    deque: ("[...]", _deque_text),
    OrderedDict: ("...", _ordered_text),
    defaultdict: (None, _default_text),
    set: ("{}(...)", _set_text),
    frozenset: ("{}(...)", _set_text),
    MappingProxyType: ("mappingproxy({{...}})", _proxy_text),
}
"""By the class whose `__repr__` it is: what a container shows for itself, and its text. Source: the `*_repr` functions of CPython's Objects."""


def _joined(domain: CaptureDomain, values: Iterable[Value]) -> str:
    return ", ".join(_shown(domain, v) for v in values)


def _shown(domain: CaptureDomain, value: Value) -> str:
    return _text(domain, formatting.to_text(domain, value, repr))


def _text(domain: CaptureDomain, value: Value) -> str:
    if not isinstance(value, (Const, AtomObject)):
        raise domain.graph_break(UNKNOWN_OPERATION, f"a text of a {type_of(domain, value).__name__}")
    return str(domain.use(value))


_CONVERSION = re.compile(
    r"%(\((?P<key>[^()]*)\))?(?P<flags>[#0\- +]*)(?P<width>\d*)(\.(?P<digits>\d*))?[hlL]?(?P<kind>[diouxXeEfFgGcrsa%])"
)
_TEXTS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}


def may_refuse(domain: CaptureDomain, pattern: Const, right: Value) -> bool:
    """May `pattern % right` raise for the values of its numbers: characters, and floats that are shown as integers?"""
    kinds = [m["kind"] for m in _CONVERSION.finditer(pattern.value)] if type(pattern.value) is str else []
    kinds = [k for k in kinds if k != "%"]
    values = (right.items or ()) if type(right) is TupleValue else (right,)
    return len(kinds) != len(values) or any(
        kind == "c" or (kind in "diouxX" and type_of(domain, value) is float)
        for kind, value in zip(kinds, values, strict=True)
    )


def percent(domain: CaptureDomain, left: Value, right: Value) -> Value:
    """`text % values`, where some of the values have a text of their own.

    Raises:
        GraphBreak: only the real operator knows.
    """
    pattern = domain.use(cast(Const, left))
    matches = list(_CONVERSION.finditer(pattern)) if type(pattern) is str else []
    wanted = [m for m in matches if m["kind"] != "%"]
    plain = _CONVERSION.sub("", pattern) if matches else "%"
    if "%" in plain or any(m["key"] is not None for m in wanted):
        raise domain.graph_break(UNKNOWN_OPERATION, "% formatting of a value that is no constant")
    values = elements.items(domain, right) if isinstance(right, TupleValue) else [right]
    if len(values) != len(wanted):
        raise domain.graph_break(UNKNOWN_OPERATION, "% formatting with another number of values")
    given: list[Any] = []
    kinds: list[str] = []
    for match, value in zip(wanted, values, strict=True):
        if is_constant(domain, value):
            given.append(constant_of(domain, value))
            kinds.append(match["kind"])
        elif match["kind"] in _TEXTS:
            given.append(_text(domain, formatting.to_text(domain, value, _TEXTS[match["kind"]])))
            kinds.append("s")
        else:
            raise domain.graph_break(UNKNOWN_OPERATION, "% formatting of a value that is no constant")
    rest = iter(kinds)
    text = _CONVERSION.sub(lambda m: m[0] if m["kind"] == "%" else m[0][:-1] + next(rest), pattern)
    return compute(domain, operator.mod, text, tuple(given))


def format_method(domain: CaptureDomain, text: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`text.format(...)`, value by value; None where fields have attributes, subscripts or fields of their own."""
    try:
        fields: Iterable[tuple[str, str | None, str | None, str | None]] = list(string.Formatter().parse(text))
    except ValueError:
        return None
    parts: list[Value] = []
    number = 0
    for literal, field, spec, conversion in fields:
        parts.append(Const(literal))
        if field is None:
            continue
        if "{" in (spec or ""):
            return None
        if field == "":
            field, number = str(number), number + 1
        value = args[int(field)] if field.isdigit() and int(field) < len(args) else kwargs.get(field)
        if value is None:
            return None
        how = {None: 0, "s": 1, "r": 2, "a": 3}.get(conversion)
        if how is None:
            return None
        parts.append(formatting.format_value(domain, value, how, Const(spec or "")))
    later = made_later(domain, joined, TupleValue(parts))
    return later or Const("".join(_text(domain, p) for p in parts))
