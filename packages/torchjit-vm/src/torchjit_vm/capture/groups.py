"""Exception groups: making and splitting them, and the clauses of `except*`. Source: Objects/exceptions.c."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeGuard

from torchjit_vm.capture import attributes, elements, iteration, lengths
from torchjit_vm.capture.builtin_table import builtin, method, method_of
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.slots import slot
from torchjit_vm.capture.types import classes_of, type_of
from torchjit_vm.capture.values import NEW, Const, Known, ListValue, Obj, TupleValue, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["match_group", "new_group", "prepare_reraise"]

_Test = Callable[[Value], bool]


def _is_group(value: Value) -> TypeGuard[Obj]:
    return isinstance(value, Obj) and issubclass(value.cls, BaseExceptionGroup)


def new_group(domain: CaptureDomain, cls: type, args: list[Value]) -> Obj:
    """`BaseExceptionGroup.__new__(cls, message, exceptions)`."""
    if len(args) != 2:
        raise domain.error(TypeError, f"BaseExceptionGroup.__new__() takes exactly 2 arguments ({len(args)} given)")
    kind = type_of(domain, args[0])
    if not issubclass(kind, str):
        raise domain.error(TypeError, f"BaseExceptionGroup.__new__() argument 1 must be str, not {kind.__name__}")
    if not isinstance(args[1], (ListValue, TupleValue)):
        raise domain.graph_break(UNKNOWN_OPERATION, f"an exception group of a {type_of(domain, args[1]).__name__}")
    members = list(elements.items(domain, args[1]))
    if not members:
        raise domain.error(ValueError, "second argument (exceptions) must be a non-empty sequence")
    plain = True
    for number, member in enumerate(members):
        if not (isinstance(member, Obj) and issubclass(member.cls, BaseException)):
            raise domain.error(ValueError, f"Item {number} of second argument (exceptions) is not an exception")
        plain = plain and issubclass(member.cls, Exception)
    if cls is BaseExceptionGroup and plain:
        cls = ExceptionGroup
    elif cls is ExceptionGroup and not plain:
        raise domain.error(TypeError, "Cannot nest BaseExceptions in an ExceptionGroup")
    elif issubclass(cls, Exception) and not plain:
        raise domain.error(TypeError, f"Cannot nest BaseExceptions in '{cls.__name__}'")
    made = Obj(cls)
    made.attrs.update(args=TupleValue(list(args)), message=args[0], exceptions=TupleValue(members))
    return made


@builtin(BaseExceptionGroup.__new__)
def _new(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if kwargs or not (args and type(args[0]) is Known and isinstance(args[0].obj, type)):
        return None
    return new_group(domain, args[0].obj, args[1:])


@method("__init__", BaseExceptionGroup)
def _init(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if kwargs or not isinstance(args[0], Obj):
        return None
    domain.touch(args[0])
    args[0].attrs["args"] = TupleValue(args[1:])
    return Const(None)


def _members(domain: CaptureDomain, group: Obj) -> list[Value]:
    return iteration.items_of(domain, slot(domain, group, "exceptions"))


def _leaves(domain: CaptureDomain, value: Value) -> Iterator[Value]:
    if not _is_group(value):
        yield value
        return
    for member in _members(domain, value):
        yield from _leaves(domain, member)


def _derive(domain: CaptureDomain, source: Obj, members: list[Value]) -> Value:
    """A group like this one of other exceptions, with its traceback, chain and notes."""
    derive = domain.vm.finish(domain.load_attr(source, "derive"))
    made = domain.vm.call(derive, [ListValue(members)])
    if not (isinstance(made, Obj) and issubclass(made.cls, BaseExceptionGroup)):
        raise domain.error(TypeError, "derive must return an instance of BaseExceptionGroup")
    if made.real is not NEW:
        raise domain.graph_break(UNKNOWN_OPERATION, "derive() of an exception group gave one that existed before")
    for name in ("__cause__", "__context__"):
        made.attrs[name] = slot(domain, source, name)
    notes = attributes.instance_attr(domain, source, "__notes__")
    if notes is not None:
        made.attrs["__notes__"] = ListValue(iteration.items_of(domain, notes))
    if source in domain.thrown or source.real is not NEW:
        domain.thrown.add(made)
    if source.real is not NEW or "__traceback__" in source.attrs:
        made.attrs["__traceback__"] = slot(domain, source, "__traceback__")
    elif domain.vm.tracebacks is not None and source in domain.vm.tracebacks:
        domain.vm.tracebacks[made] = list(domain.vm.tracebacks[source])
    domain.origins[made] = domain.origins.get(source, source)
    return made


def _split(
    domain: CaptureDomain, value: Value, test: _Test, *, rest_too: bool = True
) -> tuple[Value | None, Value | None]:
    """What passes the test, and the rest: nobody makes groups of that where it is not asked for."""
    if test(value):
        return value, None
    if not _is_group(value):
        return None, value
    passed: list[Value] = []
    rest: list[Value] = []
    for member in _members(domain, value):
        for part, into in zip(_split(domain, member, test, rest_too=rest_too), (passed, rest), strict=True):
            if part is not None:
                into.append(part)
    return (
        _derive(domain, value, passed) if passed else None,
        _derive(domain, value, rest) if rest and rest_too else None,
    )


def _condition(domain: CaptureDomain, condition: Value) -> _Test:
    """The argument of `split` and `subgroup`: a class, a tuple of classes, or a function."""
    classes = _classes(condition)
    if classes is not None and all(issubclass(c, BaseException) for c in classes):
        return lambda value: issubclass(type_of(domain, value), classes)
    if isinstance(condition, TupleValue) or (type(condition) is Known and isinstance(condition.obj, type)):
        text = "expected a function, exception type or tuple of exception types"
        raise domain.error(TypeError, text)
    return lambda value: lengths.truth(domain, domain.vm.call(condition, [value]))


def _classes(value: Value) -> tuple[type, ...] | None:
    items = value.items if isinstance(value, TupleValue) and value.items is not None else [value]
    return classes_of(items)


@method("split", BaseExceptionGroup)
def _split_method(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    passed, rest = _split(domain, args[0], _condition(domain, args[1]))
    return TupleValue([v or Const(None) for v in (passed, rest)])


@method("subgroup", BaseExceptionGroup)
def _subgroup(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    return _split(domain, args[0], _condition(domain, args[1]), rest_too=False)[0] or Const(None)


@method_of(Obj, "derive", BaseExceptionGroup)
def _derive_method(domain: CaptureDomain, own: Obj, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    return new_group(domain, BaseExceptionGroup, [slot(domain, own, "message"), args[0]])


@method_of(Obj, "__str__", BaseExceptionGroup)
def _text(domain: CaptureDomain, own: Obj, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    return group_text(domain, own)


def group_text(domain: CaptureDomain, group: Obj) -> Value:
    """`str(group)`."""
    message = slot(domain, group, "message")
    count = len(_members(domain, group))
    text: object = domain.use(message) if type(message) is Const else None
    if not isinstance(text, str):
        raise domain.graph_break(UNKNOWN_OPERATION, "str() of an exception group")
    return Const(f"{text} ({count} sub-exception{'s' if count > 1 else ''})")


def match_group(domain: CaptureDomain, group: Value, types: Value) -> tuple[Value | None, Value | None]:
    """`except* types`: what goes on to the next clause, and what this one handles."""
    classes = _classes(types)
    if classes is None or not all(issubclass(c, BaseException) for c in classes):
        raise domain.error(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    if any(issubclass(c, BaseExceptionGroup) for c in classes):
        raise domain.error(TypeError, "catching ExceptionGroup with except* is not allowed. Use except instead.")
    domain.vm.on_leave = domain.origins.pop  # an exception that leaves a frame has another traceback from there on
    if _is_group(group):
        passed, rest = _split(domain, group, lambda value: issubclass(type_of(domain, value), classes))
        return rest, passed
    if issubclass(type_of(domain, group), classes):
        wrapped = new_group(domain, BaseExceptionGroup, [Const(""), TupleValue([group])])
        domain.thrown.add(wrapped)
        return None, wrapped
    return group, None


def prepare_reraise(domain: CaptureDomain, group: Value, exceptions: Value) -> Value:
    """The end of `except*` clauses: what is raised of what they raised and did not handle."""
    found = [v for v in iteration.items_of(domain, exceptions) if not (type(v) is Const and v.value is None)]
    if not found or not _is_group(group):
        return found[0] if found else Const(None)
    if group.real is not NEW and any(_is_group(e) and e.real is not NEW for e in found):
        raise domain.graph_break(UNKNOWN_OPERATION, "what is a part of an exception group is told by its traceback")
    again = [e for e in found if e is group or domain.origins.get(e) is domain.origins.get(group, group)]
    new = [e for e in found if e not in again]
    leaves = {leaf for error in again for leaf in _leaves(domain, error)}
    kept = _split(domain, group, lambda value: value in leaves, rest_too=False)[0] if leaves else None
    if not new:
        return kept or Const(None)
    if kept is not None:
        new.append(kept)
    return new[0] if len(new) == 1 else new_group(domain, BaseExceptionGroup, [Const(""), ListValue(new)])
