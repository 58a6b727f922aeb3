"""Formatting: `str`, `repr`, f-strings."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from torchjit_vm.capture import answers, attributes, iteration, members, operators, texts
from torchjit_vm.capture.byte_arrays import content
from torchjit_vm.capture.raw import constant_of, is_constant
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    AtomObject,
    ByteArray,
    Const,
    DictValue,
    Known,
    Leaf,
    Obj,
    Value,
)

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["format_value", "to_text"]


def format_value(domain: CaptureDomain, value: Value, conversion: int, spec: Value | None) -> Value:
    """`f"{value!conversion:spec}"`."""
    text = "" if spec is None else domain.use(cast(Const, spec))
    if conversion:
        value = to_text(domain, value, (str, str, repr, ascii)[conversion])
        if spec is None:
            return value
    if type(value) is Leaf:
        return operators.leaf_call(domain, format, [value, Const(text)])
    if isinstance(value, Obj) and operators.defines(domain, value, "__format__"):
        found = operators.special_call(domain, value, "__format__", [Const(text)])
        if found is not None:
            return answers.checked(domain, value, "__format__", found, str, lambda made: format(made, text))
    if text == "" and not isinstance(value, Const):
        return to_text(domain, value, str)
    if is_constant(domain, value):
        return operators.compute(domain, format, constant_of(domain, value), text)
    raise domain.graph_break(UNKNOWN_OPERATION, f"formatting of {type_of(domain, value).__name__}")


def to_text(domain: CaptureDomain, value: Value, function: Callable[[Any], str]) -> Value:
    """`str(value)`, `repr(value)` or `ascii(value)`."""
    if type(value) is Leaf:
        return operators.leaf_call(domain, function, [value])
    if type(value) is ByteArray:
        return operators.compute(domain, function, content(domain, value))
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
                return answers.checked(domain, value, name, domain.vm.call(bound, []), str, function)
            if member.raw is not object.__str__:
                break
    if type(value) is AtomObject:
        return operators.compute(domain, function, domain.use(value))
    if function is str and isinstance(value, DictValue) and value.cls is types.MappingProxyType:
        return Const(texts.dict_text(domain, value)) if value.behind is None else to_text(domain, value.behind, str)
    found = texts.container_text(domain, value)
    if found is not None:
        return operators.compute(domain, _escaped, domain.use(found)) if function is ascii else found
    if is_constant(domain, value):
        return operators.compute(domain, function, constant_of(domain, value))
    raise domain.graph_break(UNKNOWN_OPERATION, f"{function.__name__}() of {type_of(domain, value).__name__}")


def _escaped(text: str) -> str:
    """What `ascii` makes of the text that `repr` gave."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


def _exception_text(domain: CaptureDomain, value: Obj, function: Callable[[Any], str]) -> Value:
    """`str` or `repr` of an exception whose class leaves it to C."""
    args = iteration.items_of(domain, domain.vm.finish(attributes.load_attr(domain, value, "args")))
    own: Any = value.cls.__str__
    if function is str and own is BaseExceptionGroup.__str__:
        return domain.vm.call(Known(own), [value])
    if function is str and own is BaseException.__str__ and len(args) == 1:
        return to_text(domain, args[0], str)
    if not all(is_constant(domain, a) for a in args):
        raise domain.graph_break(UNKNOWN_OPERATION, f"{function.__name__}() of {value.cls.__name__}")
    real = [constant_of(domain, a) for a in args]
    cls = cast(type[BaseException], value.cls)
    stand_in = (
        cls(*real) if issubclass(cls, UnicodeError) else cls.__new__(cls, *real)
    )  # whose text is made of its fields
    stand_in.args = tuple(real)
    return operators.compute(domain, function, stand_in)
