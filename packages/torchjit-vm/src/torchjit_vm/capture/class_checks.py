"""`isinstance` and `issubclass`: what the classes say, and what may change their answer."""

from __future__ import annotations

import abc
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from torchjit_core.paths import AccessPath, Pinned
from torchjit_vm.capture import attributes, elements, lengths, members
from torchjit_vm.capture.builtin_table import builtin
from torchjit_vm.capture.class_making import is_library
from torchjit_vm.capture.reasons import UNKNOWN_CALL
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import NEW, Const, Known, Leaf, Obj, TupleValue, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["rely_on_answer"]

_Args = list[Value]
_Kwargs = dict[str, Value]


@builtin(isinstance)
def _isinstance(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return domain.constant(_subclass(domain, type_of(domain, args[0]), args[1], args[0]))


@builtin(issubclass)
def _issubclass(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if not (isinstance(args[0], Known) and isinstance(args[0].obj, type)):
        if isinstance(args[0], Obj):
            _refuse_answers(domain, args[0], "issubclass")
        raise domain.error(TypeError, "issubclass() arg 1 must be a class")
    return domain.constant(_subclass(domain, args[0].obj, args[1], None))


def _refuse_answers(domain: CaptureDomain, value: Obj, function: str) -> None:
    """What is no class is asked for `__bases__`; a `__getattr__` of the program's may answer."""
    if members.is_hook(members.find_member(domain, value.cls, "__getattr__")) and not is_library(value.cls):
        raise domain.graph_break(UNKNOWN_CALL, f"{function}() of a {value.cls.__qualname__}")


def _refused(domain: CaptureDomain, of: Any, instance: Value | None) -> Exception:
    """The error for what is no class, in the words of this version of Python."""
    try:
        if instance is None:
            issubclass(object, of)
        else:
            isinstance(object(), of)
    except TypeError as error:
        return domain.error(TypeError, str(error))
    return domain.graph_break(UNKNOWN_CALL, f"isinstance() of {of!r}")


def _subclass(domain: CaptureDomain, cls: type, of: Value, instance: Value | None) -> bool:
    if isinstance(of, TupleValue):
        return any(_subclass(domain, cls, v, instance) for v in elements.items(domain, of))
    if type(of) is Const and type(of.value) is tuple:
        return any(_subclass(domain, cls, Const(v), instance) for v in of.value)
    if isinstance(of, Obj):
        _refuse_answers(domain, of, "isinstance")
    if isinstance(of, Obj) and of.real is not NEW and of.path is not None and not of.written:
        if type(of.path) is not Pinned:
            domain.guard_id(of.path, of.real)
        of = Known(of.real)
    if not isinstance(of, Known):
        raise _refused(domain, 0, instance)
    target = of.obj
    if typing.get_origin(target) is typing.Union:
        return any(_subclass(domain, cls, Known(t), instance) for t in target.__args__)
    if isinstance(target, types.UnionType):
        return any(_subclass(domain, cls, Known(t), instance) for t in target.__args__)
    if not isinstance(target, type):
        origin = typing.get_origin(target)
        if isinstance(origin, type) and not isinstance(target, types.GenericAlias):
            return issubclass(cls, origin)
        raise _refused(domain, target, instance)
    if cls is target and instance is not None:
        domain.guard_mro(cls)
        return True  # CPython asks no metaclass then
    if type(target) is not type and instance is not None:
        hook = members.find_member(domain, type(target), "__instancecheck__")
        special = _special_instance_check(domain, target, hook, instance)
        if special is not None:
            return special
    if type(target) is not type and instance is None:
        hook = members.find_member(domain, type(target), "__subclasscheck__")
        if type(hook.raw) is types.FunctionType and hook.raw.__module__ not in ("abc", "_py_abc", "typing"):
            return lengths.truth(
                domain, domain.vm.call(members.member_value(domain, hook), [Known(target), Known(cls)])
            )
    if getattr(target, "_is_protocol", False) and isinstance(instance, Obj):
        fits = _fits_protocol(domain, instance, target)
        if fits is not None:
            return fits
    try:
        answer = issubclass(cls, target)
    except TypeError as error:
        raise domain.error(TypeError, str(error)) from None
    rely_on_answer(domain, cls, target)
    if not answer and instance is not None:
        said = members.find_member(domain, cls, "__class__")  # `isinstance` believes what the object says of itself
        if said.raw is not _CLASS or attributes.lies_elsewhere(cls):
            raise domain.graph_break(
                UNKNOWN_CALL, f"isinstance() of a {cls.__qualname__}, which stands for another object"
            )
    return answer


_CLASS = object.__dict__["__class__"]


def rely_on_answer(domain: CaptureDomain, cls: type, target: type) -> None:
    """`issubclass(cls, target)`, which was just asked, has to stay as it is."""
    domain.guard_mro(cls)
    if isinstance(target, abc.ABCMeta) and (target not in cls.__mro__ or _has_hook(target)):
        answer = issubclass(cls, target)
        path = Pinned.of(target, target.__qualname__)
        text = f"issubclass({cls.__qualname__}, {target.__qualname__}) is {answer}"
        domain.guard_test((cls, target), path, _same_answer(cls, answer), text)


def rely_on_dispatch(domain: CaptureDomain, dispatch: Callable[[type], Any], cls: type) -> Any:
    """What a single-dispatch function chooses for a class; with the same registry it has to choose the same.

    Answers of `issubclass` are not enough: where a class stands among its bases and abstract ones depends on which of its
    bases were registered too.
    """
    domain.guard_mro(cls)
    chosen = dispatch(cls)
    name = f"{dispatch.__qualname__}({cls.__qualname__})"
    path = Pinned.of(dispatch, dispatch.__qualname__)
    domain.guard_test((dispatch, cls), path, _asked_again(lambda ask: ask(cls) is chosen), f"{name} is the same")
    return chosen


_NO_HOOK = object.__dict__["__subclasshook__"]


def _has_hook(target: type) -> bool:
    return members.walk(target.__mro__, "__subclasshook__") is not _NO_HOOK


def _same_answer(cls: type, answer: bool) -> Callable[[Any], bool]:
    """Does an abstract class still say so?"""
    return _asked_again(lambda target: issubclass(cls, target) is answer)


def _asked_again(same: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A test that is made again only when some class was registered with some abstract class."""
    asked_at = abc.get_cache_token()

    def test(value: Any) -> bool:
        nonlocal asked_at
        now = abc.get_cache_token()
        if now == asked_at:
            return True
        if not same(value):
            return False
        asked_at = now
        return True

    return test


def _fits_protocol(domain: CaptureDomain, instance: Obj, target: type) -> bool | None:
    """A protocol looks for attributes, the object's own ones too; None if the class alone has them all."""
    new = instance.real is NEW or bool(instance.written) or instance.path is None
    try:
        if new and issubclass(instance.cls, target):
            return None
        answer = not new and isinstance(instance.real, target)
    except TypeError as error:
        if not new:
            raise domain.error(TypeError, str(error)) from None
    if new:
        raise domain.graph_break(UNKNOWN_CALL, f"isinstance() of a new object with the protocol {target.__qualname__}")
    path = cast(AccessPath, instance.path)
    text = f"isinstance({path}, {target.__qualname__}) is {answer}"
    domain.guard_test((path, target), path, lambda other: isinstance(other, target) is answer, text)
    return answer


def _special_instance_check(domain: CaptureDomain, target: type, hook: members.Member, instance: Value) -> bool | None:
    """A metaclass with its own `__instancecheck__` in Python, ABCMeta aside."""
    if type(hook.raw) is not types.FunctionType or hook.raw.__module__ in ("abc", "_py_abc", "typing"):
        return None
    if isinstance(instance, Leaf) and instance.real is not NEW:
        return isinstance(instance.real, target)
    result = domain.vm.call(members.member_value(domain, hook), [Known(target), instance])
    return lengths.truth(domain, result)


@builtin(type.__subclasscheck__)
def _plain_subclass_check(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if len(args) != 2 or not all(isinstance(a, Known) and isinstance(a.obj, type) for a in args):
        return None
    target, cls = (cast(Known, a).obj for a in args)
    domain.guard_mro(cls)
    return domain.constant(target in cls.__mro__)


@builtin(type.__instancecheck__)
def _plain_instance_check(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    # What a metaclass's own check calls through super(): the classes decide, no further hook is asked.
    if len(args) != 2 or not (isinstance(args[0], Known) and isinstance(args[0].obj, type)):
        return None
    cls = type_of(domain, args[1])
    domain.guard_mro(cls)
    return domain.constant(args[0].obj in cls.__mro__)
