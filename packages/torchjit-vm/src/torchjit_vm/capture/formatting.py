"""Formatting: `str`, `repr`, f-strings."""

from __future__ import annotations

import contextlib
import types
from typing import TYPE_CHECKING, Any, cast

from torchjit_vm.capture import attributes, iteration, members, slot_results
from torchjit_vm.capture.made_later import made_later
from torchjit_vm.capture.raw import constant_of, is_constant
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.special_methods import compute, defines, settled, special_call
from torchjit_vm.capture.type_slots import SLOTS, Text
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import NEW, AtomObject, Const, Known, Leaf, Obj, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

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
            return slot_results.checked(domain, value, "__format__", found, str, lambda made: format(made, text))
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
    if isinstance(value, (Obj, Known)) and not (isinstance(value, Known) and isinstance(value.obj, type)):
        for name in names:
            member = members.find_member(domain, type_of(domain, value), name)
            if type(member.raw) is types.FunctionType:
                bound = domain.vm.finish(attributes.bind(domain, member, value))
                return slot_results.checked(domain, value, name, domain.vm.call(bound, []), str, function)
            if member.raw is not object.__str__:
                break
    if type(value) is AtomObject:
        return compute(domain, function, domain.use(value))
    slot = SLOTS[type(value)].text
    found = None if slot is None else slot(domain, value, function)
    if found is not None:
        return compute(domain, _escaped, found) if function is ascii else Const(found)
    if is_constant(domain, value):
        return compute(domain, function, constant_of(domain, value))
    raise domain.graph_break(UNKNOWN_OPERATION, f"{function.__name__}() of {type_of(domain, value).__name__}")


def _escaped(text: str) -> str:
    """What `ascii` makes of the text that `repr` gave."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


def _exception_text(domain: CaptureDomain, value: Obj, function: Text) -> Value:
    """`str` or `repr` of an exception whose class leaves it to C. Source: CPython's Objects/exceptions.c."""
    given = domain.vm.finish(attributes.load_attr(domain, value, "args"))
    args = iteration.items_of(domain, given)
    own = members.find_member(domain, value.cls, "__str__" if function is str else "__repr__").raw
    if own is BaseExceptionGroup.__dict__["__str__"]:
        return domain.vm.call(Known(BaseExceptionGroup.__str__), [value])
    if function is str and own in _PLAIN_TEXTS:
        shows = repr if len(args) == 1 and own is KeyError.__dict__["__str__"] else str
        return to_text(domain, args[0] if len(args) == 1 else given, shows) if args else Const("")
    if own is BaseException.__dict__["__repr__"]:
        shown = to_text(domain, args[0] if len(args) == 1 else given, repr)
        text = str(domain.use(shown)) if isinstance(shown, (Const, AtomObject)) else None
        if text is not None:
            text = f"{value.cls.__name__}({text})" if len(args) == 1 else f"{value.cls.__name__}{text}"
            return compute(domain, _escaped, text) if function is ascii else Const(text)
    if not all(is_constant(domain, a) for a in args):
        raise domain.graph_break(UNKNOWN_OPERATION, f"{function.__name__}() of {value.cls.__name__}")
    return compute(domain, function, _stand_in(domain, value, [constant_of(domain, a) for a in args]))


_PLAIN_TEXTS = (BaseException.__dict__["__str__"], KeyError.__dict__["__str__"])


def _stand_in(domain: CaptureDomain, value: Obj, args: list[object]) -> BaseException:
    """A real exception with the same fields, of which the text is made."""
    cls = cast(type[BaseException], value.cls)
    made = cls.__new__(cls, *args)
    made.args = tuple(args)
    known = next(base for base in cls.__mro__ if base.__flags__ & _IMMUTABLE or not base.__flags__ & _HEAP)
    if value.real is NEW and not issubclass(known, OSError):
        with contextlib.suppress(TypeError, ValueError):
            cast(Any, known).__init__(made, *args)
    for base in known.__mro__:
        for name, raw in vars(base).items():
            if type(raw) is not types.MemberDescriptorType or (value.real is NEW and name not in value.attrs):
                continue
            field = attributes.lookup(domain, value, name)
            if field is None or not is_constant(domain, field):
                continue
            real = constant_of(domain, field)
            if real is not None:  # for C code nothing is not None
                setattr(made, name, real)
    return made


_HEAP, _IMMUTABLE = 1 << 9, 1 << 8
