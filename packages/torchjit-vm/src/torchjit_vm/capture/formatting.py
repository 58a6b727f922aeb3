"""Formatting: `str`, `repr`, f-strings."""

from __future__ import annotations

import types
from collections.abc import Sequence

from torchjit_vm.capture import attributes, iteration, members
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.made_later import made_later
from torchjit_vm.capture.raw import constant_of, is_constant
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.special_methods import checked, compute, defines, settled, special_call
from torchjit_vm.capture.type_slots import SLOTS, Text
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import AtomObject, Const, Known, Leaf, Obj, Value

__all__ = ["format_value", "to_text"]


def format_value(domain: CaptureDomain, value: Value, conversion: int, spec: Value | None) -> Value:
    """`f"{value!conversion:spec}"`."""
    text = "" if spec is None else domain.use(spec)
    if conversion:
        value = to_text(domain, value, (str, str, repr, ascii)[conversion])
        if spec is None:
            return value
    if text[-1:] != "c":  # a character, of which there is a last one
        later = made_later(domain, format, value, Const(text))
        if later is not None:
            return later
    value = settled(domain, value)
    if type(value) is Leaf:
        return domain.leaf_call(format, [value, Const(text)])
    if isinstance(value, Obj) and defines(domain, value, "__format__"):
        found = special_call(domain, value, "__format__", [Const(text)])
        if found is not None:
            return checked(domain, value, "__format__", found, str, lambda made: format(made, text))
    if text == "" and not isinstance(value, Const):
        return to_text(domain, value, str)
    if is_constant(domain, value):
        return compute(domain, format, constant_of(domain, value), text)
    raise domain.graph_break(UNKNOWN_OPERATION, f"formatting of {type_of(domain, value).__name__}")


def to_text(domain: CaptureDomain, value: Value, function: Text) -> Value:
    """`str(value)`, `repr(value)` or `ascii(value)`."""
    later = made_later(domain, function, value)
    if later is not None:
        return later
    if type(value) is Leaf:
        return domain.leaf_call(function, [value])
    names = ["__str__", "__repr__"] if function is str else ["__repr__"]
    if type(value) is Obj and issubclass(value.cls, BaseException):
        own = members.find_member(domain, value.cls, names[0])
        if own.kind == members.CMETHOD:
            return _exception_text(domain, value, function)
    found = _by_method(domain, value, names, function)
    if found is not None:
        return found
    if type(value) is AtomObject:
        return compute(domain, function, domain.use(value))
    slot = SLOTS[type(value)].text
    text = None if slot is None else slot(domain, value, function)
    if text is not None:
        return _told(domain, text, function)
    if is_constant(domain, value):
        return compute(domain, function, constant_of(domain, value))
    raise domain.graph_break(UNKNOWN_OPERATION, f"{function.__name__}() of {type_of(domain, value).__name__}")


def _by_method(domain: CaptureDomain, value: Value, names: Sequence[str], function: Text) -> Value | None:
    """The text that a method in Python gives; None if the class leaves it to C."""
    if not isinstance(value, (Obj, Known)) or (isinstance(value, Known) and isinstance(value.obj, type)):
        return None
    for name in names:
        member = members.find_member(domain, type_of(domain, value), name)
        if type(member.raw) is types.FunctionType:
            bound = domain.vm.finish(attributes.bind(domain, member, value))
            return checked(domain, value, name, domain.vm.call(bound, []), str, function)
        if member.raw is not object.__str__:
            break
    return None


def _told(domain: CaptureDomain, text: str, function: Text) -> Value:
    """The text that `repr` gave, or what `ascii` makes of it."""
    return Const(text.encode("ascii", "backslashreplace").decode("ascii") if function is ascii else text)


def _exception_text(domain: CaptureDomain, value: Obj, function: Text) -> Value:
    """`str` or `repr` of an exception whose class leaves it to C. Source: CPython's Objects/exceptions.c."""
    given = domain.vm.finish(attributes.load_attr(domain, value, "args"))
    args = iteration.items_of(domain, given)
    own = members.find_member(domain, value.cls, "__str__" if function is str else "__repr__").raw
    shown = args[0] if len(args) == 1 else given
    if function is str and (own in _PLAIN_TEXTS or (own is vars(OSError)["__str__"] and len(args) < 2)):
        shows = repr if len(args) == 1 and own is KeyError.__dict__["__str__"] else str
        return to_text(domain, shown, shows) if args else Const("")
    text = to_text(domain, shown, repr) if own is BaseException.__dict__["__repr__"] else None
    if isinstance(text, (Const, AtomObject)):
        inside = str(domain.use(text))
        return _told(domain, value.cls.__name__ + (f"({inside})" if len(args) == 1 else inside), function)
    raise domain.graph_break(UNKNOWN_OPERATION, f"{function.__name__}() of {value.cls.__name__}")


_PLAIN_TEXTS = tuple(vars(c)["__str__"] for c in (BaseException, KeyError, ImportError, AttributeError, NameError))
"""Of the arguments; others have a text of their fields."""
