"""Texts of containers that hold objects of the program, and of what `%` and `format` are given."""

from __future__ import annotations

import operator
import re
import string
from collections.abc import Callable, Iterable
from typing import Any

from torchjit_vm.capture import elements, formatting
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.made_later import joined, made_later
from torchjit_vm.capture.raw import constant_of, is_constant
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.special_methods import compute
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import Args, AtomObject, Const, Kwargs, TupleValue, Value

__all__ = ["format_method", "guarded", "joined_texts", "percent", "shown_text", "str_text"]


class ShownContainers(set[Value]):
    """Those whose text is being made."""


def guarded(domain: CaptureDomain, value: Value, again: str, text: Callable[[], str]) -> str:
    """The text, or `again` where the value is met inside its own."""
    if value in domain.of(ShownContainers):
        return again
    domain.of(ShownContainers).add(value)
    try:
        return text()
    finally:
        domain.of(ShownContainers).discard(value)


def joined_texts(domain: CaptureDomain, values: Iterable[Value]) -> str:
    """`repr` of each, with commas between them."""
    return ", ".join(shown_text(domain, v) for v in values)


def shown_text(domain: CaptureDomain, value: Value) -> str:
    """`repr` of a part."""
    return _text(domain, formatting.to_text(domain, value, repr))


def str_text(domain: CaptureDomain, value: Value) -> str:
    """`str` of a value."""
    return _text(domain, formatting.to_text(domain, value, str))


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
    pattern = domain.use(left)
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


def format_method(domain: CaptureDomain, text: str, args: Args, kwargs: Kwargs) -> Value | None:
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
