"""`isinstance` and `issubclass`: what the classes say, and what may change their answer."""

from __future__ import annotations

import abc
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, cast

from torchjit_core.paths import AccessPath, Pinned
from torchjit_core.storing import never_stored
from torchjit_vm.capture import attributes, elements, lengths, members, operators
from torchjit_vm.capture.builtin_table import builtin, by_position
from torchjit_vm.capture.class_making import is_library
from torchjit_vm.capture.class_tests import AskedAgain, chooses, has_instance, has_subclass
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.reading import constant_object
from torchjit_vm.capture.reasons import REFUSED_CHECK, UNKNOWN_CALL
from torchjit_vm.capture.types import classes_of, type_of
from torchjit_vm.capture.values import NEW, Args, Const, Known, Kwargs, Leaf, Obj, TupleValue, Value

__all__: list[str] = []

_get_dump: Callable[[type], tuple[Any, Any, Any, int]] = vars(abc)["_get_dump"]


def _instance(domain: CaptureDomain, instance: Value, of: Value) -> bool:
    """Source: object_recursive_isinstance in CPython's Objects/abstract.c."""
    cls = type_of(domain, instance)
    alternatives = _alternatives(domain, of)
    if alternatives is not None and _is_typing_union(of):
        return any(_subclass(domain, Known(cls), v) for v in alternatives)  # as it does itself
    if alternatives is not None:
        return any(_instance(domain, instance, v) for v in alternatives)
    if type(of) is Known and of.obj is cls:
        domain.guard_mro(cls)
        return True  # no metaclass is asked then
    answer = _own_answer(domain, of, "__instancecheck__", instance)
    if answer is not None:
        return answer
    target = _class_of(domain, of, instance)
    if getattr(target, "_is_protocol", False):
        fits = _fits_protocol(domain, instance, target)
        if fits is not None:
            return fits
    if isinstance(target, abc.ABCMeta) and _is_own(members.find_member(domain, type(target), "__subclasscheck__")):
        raise domain.graph_break(UNKNOWN_CALL, f"{type(target).__qualname__}.__subclasscheck__")
    return _believed(domain, instance, target, _class_answer(domain, cls, target))


def _subclass(domain: CaptureDomain, cls: Value, of: Value) -> bool:
    """Source: object_issubclass in CPython's Objects/abstract.c."""
    alternatives = _alternatives(domain, of)
    if alternatives is not None:
        return any(_subclass(domain, cls, v) for v in alternatives)
    answer = _own_answer(domain, of, "__subclasscheck__", cls)
    if answer is not None:
        return answer
    if not (isinstance(cls, Known) and isinstance(cls.obj, type)):
        if isinstance(cls, Obj):
            _refuse_answers(domain, cls, "issubclass")
        raise domain.error(TypeError, "issubclass() arg 1 must be a class")
    return _class_answer(domain, cls.obj, _class_of(domain, of, None))


def _alternatives(domain: CaptureDomain, of: Value) -> list[Value] | None:
    """The members of a tuple of classes, or of a union; None of anything else."""
    if isinstance(of, TupleValue):
        return elements.items(domain, of)
    if type(of) is Const:
        return [constant_object(domain, v) for v in of.value] if isinstance(of.value, tuple) else None
    if not _is_union(of):
        return None
    real = _identified(domain, of)
    return [constant_object(domain, t) for t in real.__args__]


def _is_union(of: Value) -> bool:
    real = of.obj if type(of) is Known else getattr(of, "real", None)
    return isinstance(real, types.UnionType) or typing.get_origin(real) is typing.Union


def _is_typing_union(of: Value) -> bool:
    """`Union[A, B]`, of which `isinstance` is `issubclass` of the class."""
    return not isinstance(of.obj if type(of) is Known else getattr(of, "real", None), types.UnionType) and _is_union(of)


def _identified(domain: CaptureDomain, of: Value) -> Any:
    """The very object, which is relied on; NEW if there is none, or not one that can be."""
    if isinstance(of, Known):
        return of.obj
    if not isinstance(of, Obj) or of.real is NEW or of.path is None or of.written:
        return NEW
    if type(of.path) is not Pinned:
        domain.guard_id(of.path, of.real)
    return of.real


def _own_answer(domain: CaptureDomain, of: Value, name: str, subject: Value) -> bool | None:
    """What a check that the metaclass defines says: it is interpreted. None if it has none of its own.

    Those of `abc` and of `typing` classes are known.
    """
    if not isinstance(of, (Known, Obj)) or type_of(domain, of) is type:
        return None
    hook = members.find_member(domain, type_of(domain, of), name)
    is_class = type(of) is Known and isinstance(of.obj, type)
    if hook.kind == members.CMETHOD and hook.raw not in _KNOWN_CHECKS and type(subject) is Leaf and is_class:
        return lengths.truth(domain, operators.leaf_call(domain, hook.raw, [of, subject]))
    if not _is_own(hook):
        return None
    bound = domain.vm.finish(attributes.bind(domain, hook, of))
    return lengths.truth(domain, domain.vm.call(bound, [subject]))


def _is_own(hook: members.Member) -> bool:
    """Is this check one of the program's, or of a library, and none that is known?"""
    if hook.kind in (members.ABSENT, members.CMETHOD) or hook.raw in _KNOWN_CHECKS:
        return False
    of_typing = type(hook.raw) is types.FunctionType and hook.raw.__module__ == "typing"
    return not of_typing or not (issubclass(hook.cls, abc.ABCMeta) or hasattr(hook.cls, "__mro_entries__"))


_KNOWN_CHECKS = (
    type.__instancecheck__, type.__subclasscheck__, abc.ABCMeta.__instancecheck__, abc.ABCMeta.__subclasscheck__
)  # fmt: skip


def _class_of(domain: CaptureDomain, of: Value, instance: Value | None) -> type:
    """The class that is asked for, where no check of its own answers."""
    if isinstance(of, Obj):
        _refuse_answers(domain, of, "isinstance")
    real = _identified(domain, of)
    if isinstance(real, type):
        return real
    origin = typing.get_origin(real)
    if isinstance(origin, type) and not typing.get_args(real):
        return origin  # `typing.List` and its like
    raise _refused(domain, 0 if real is NEW else real, instance)


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


def _class_answer(domain: CaptureDomain, cls: type, target: type) -> bool:
    """`issubclass(cls, target)` of a class without a check of its own, `abc` and `typing` classes among them."""
    if isinstance(target, abc.ABCMeta):
        _refuse_first_question(domain, cls, target)
    try:
        answer = issubclass(cls, target)
    except TypeError as error:
        never_stored(REFUSED_CHECK, f"issubclass({cls.__qualname__}, {target.__qualname__})")
        raise domain.error(TypeError, str(error)) from None
    _rely_on_answer(domain, cls, target)
    return answer


def _refuse_first_question(domain: CaptureDomain, cls: type, target: abc.ABCMeta) -> None:
    """Break before a hook of the program's is asked that could see what the region has not yet written.

    Abstract classes ask `__subclasshook__` once for each class and remember the answer, so it is asked for real, at capture.
    """
    if not (domain.touched or domain.reordered) or _remembered(target, cls) is not None:
        return
    if any(_asks_program(c) for c in (target, *_below(target))):
        raise domain.graph_break(
            UNKNOWN_CALL, f"the first issubclass() of {cls.__qualname__} and {target.__qualname__}"
        )


def _remembered(target: abc.ABCMeta, cls: type) -> bool | None:
    """What an abstract class remembers of the class: it asks once. None if it was not asked."""
    _, known, refused, version = _get_dump(target)
    if any(reference() is cls for reference in known):
        return True
    current = version == abc.get_cache_token()
    return False if current and any(reference() is cls for reference in refused) else None


def _below(target: type) -> Iterator[type]:
    below: list[type] = type.__subclasses__(target)
    for cls in below:
        yield cls
        yield from _below(cls)


def _asks_program(target: type) -> bool:
    """Does code of the program say what belongs to this class?"""
    meta: Any = type(target)
    hooks = (members.walk(target.__mro__, "__subclasshook__"), members.walk(meta.__mro__, "__subclasscheck__"))
    return any(not is_library(getattr(hook, "__func__", hook)) for hook in hooks if hook not in _OF_PYTHON)


_OF_PYTHON = (object.__dict__["__subclasshook__"], *_KNOWN_CHECKS)


def _believed(domain: CaptureDomain, instance: Value, target: type, answer: bool) -> bool:
    """`isinstance` believes what the object says of itself where its class is another one."""
    cls = type_of(domain, instance)
    if answer:
        return True
    said = members.find_member(domain, cls, "__class__").raw
    if said is _CLASS and not attributes.lies_elsewhere(cls):
        return False
    real = getattr(instance, "real", NEW)
    if type(said) is property and real is not NEW and said.fget in domain.policy.assume_constant:
        claimed: Any = cast(Any, said.fget)(real)
        return target in claimed.__mro__
    raise domain.graph_break(UNKNOWN_CALL, f"isinstance() of a {cls.__qualname__}, which stands for another object")


_CLASS = object.__dict__["__class__"]


def _rely_on_answer(domain: CaptureDomain, cls: type, target: type) -> None:
    """`issubclass(cls, target)`, which was just asked, has to stay as it is."""
    domain.guard_mro(cls)
    has_hook = members.walk(target.__mro__, "__subclasshook__") is not object.__dict__["__subclasshook__"]
    if isinstance(target, abc.ABCMeta) and (target not in cls.__mro__ or has_hook):
        answer = issubclass(cls, target)
        path = Pinned.of(target, target.__qualname__)
        text = f"issubclass({cls.__qualname__}, {target.__qualname__}) is {answer}"
        domain.guard_test((cls, target), path, AskedAgain(has_subclass(cls, answer)), text)


def rely_on_dispatch(domain: CaptureDomain, dispatch: Callable[[type], Any], cls: type) -> Any:
    """What a single-dispatch function chooses for a class; with the same registry it has to choose the same.

    Answers of `issubclass` are not enough: where a class stands among its bases and abstract ones depends on which of its
    bases were registered too.
    """
    domain.guard_mro(cls)
    chosen = dispatch(cls)
    name = f"{dispatch.__qualname__}({cls.__qualname__})"
    path = Pinned.of(dispatch, dispatch.__qualname__)
    domain.guard_test((dispatch, cls), path, AskedAgain(chooses(cls, chosen)), f"{name} is the same")
    return chosen


def _fits_protocol(domain: CaptureDomain, instance: Value, target: Any) -> bool | None:
    """A protocol looks for attributes, the object's own ones too; None if the class alone has them all."""
    cls = type_of(domain, instance)
    path: AccessPath | None
    if type(instance) is Const:
        real, path = instance.value, Pinned.of(instance.value, repr(instance.value))
    elif type(instance) is Known:
        real, path = instance.obj, Pinned.of(instance.obj, cls.__qualname__)
    else:
        real, path = getattr(instance, "real", NEW), getattr(instance, "path", None)
    new = type(instance) is Leaf or real is NEW or path is None or bool(getattr(instance, "written", None))
    try:
        if new and issubclass(cls, target):
            return None
        answer = not new and isinstance(real, target)
    except TypeError as error:
        if not new:
            never_stored(REFUSED_CHECK, f"isinstance({path}, {target.__qualname__})")
            raise domain.error(TypeError, str(error)) from None
    if new:
        raise domain.graph_break(UNKNOWN_CALL, f"isinstance() of a new object with the protocol {target.__qualname__}")
    text = f"isinstance({path}, {target.__qualname__}) is {answer}"
    domain.guard_test((path, target), cast(AccessPath, path), has_instance(target, answer), text)
    return answer


@builtin(type.__subclasscheck__)
def _plain_subclass_check(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if len(args) != 2 or (classes := classes_of(args)) is None:
        return None
    target, cls = classes
    domain.guard_mro(cls)
    return domain.constant(target in cls.__mro__)


@builtin(type.__instancecheck__)
def _plain_instance_check(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    # What a metaclass's own check calls through super(): the classes decide, no further hook is asked.
    if len(args) != 2 or not (isinstance(args[0], Known) and isinstance(args[0].obj, type)):
        return None
    cls = type_of(domain, args[1])
    domain.guard_mro(cls)
    return domain.constant(_believed(domain, args[1], args[0].obj, args[0].obj in cls.__mro__))


builtin(isinstance)(by_position(lambda domain, value, of: domain.constant(_instance(domain, value, of))))
builtin(issubclass)(by_position(lambda domain, value, of: domain.constant(_subclass(domain, value, of))))
