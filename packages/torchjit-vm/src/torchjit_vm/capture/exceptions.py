"""Exceptions as values."""

from __future__ import annotations

import inspect
from types import MemberDescriptorType

from torchjit_vm.capture import elements
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.reading import IMMUTABLE_ATOMS, wrap
from torchjit_vm.capture.types import is_subtype, type_of
from torchjit_vm.capture.values import NEW, Const, Known, Obj, TracebackValue, TupleValue, Value

__all__ = [
    "chain",
    "exception_matches",
    "exception_triple",
    "from_real",
    "make_raise",
    "new_exception",
    "note_write",
    "stop_iteration_error",
]


def new_exception(domain: CaptureDomain, cls: type[BaseException], args: list[Value]) -> Obj:
    """`cls(*args)` for an exception class without an `__init__` of its own."""
    made = Obj(cls)
    made.attrs["args"] = TupleValue(list(args))
    if issubclass(cls, StopIteration):
        made.attrs["value"] = args[0] if args else Const(None)
    elif issubclass(cls, ImportError):
        made.attrs["msg"] = args[0] if len(args) == 1 else Const(None)
    elif issubclass(cls, SystemExit) and args:
        made.attrs["code"] = args[0] if len(args) == 1 else TupleValue(list(args))
    return made


def from_real(domain: CaptureDomain, error: BaseException) -> Obj:
    """An exception that a pure computation at capture raised."""
    made = Obj(type(error))
    made.attrs["args"] = TupleValue([Const(a) for a in error.args])
    # KeyError, IndexError ... hold atoms; anything else would not have come from a pure operation on constants.
    for cls in type(error).__mro__:
        if cls is BaseException:
            break
        for name, raw in vars(cls).items():
            if type(raw) is MemberDescriptorType and getattr(error, name) is not None:  # name, msg, reason, start ...
                made.attrs[name] = Const(getattr(error, name))
    for name, value in vars(error).items():  # of a class of the library, such as json.JSONDecodeError
        if type(value) in IMMUTABLE_ATOMS:
            made.attrs[name] = Const(value)
    return made


def make_raise(domain: CaptureDomain, exception: Value, cause: Value | None) -> Value:
    """The exception that `raise exception from cause` raises."""
    value = _instance(domain, exception)
    if cause is not None and isinstance(value, Obj):
        because = cause if type(cause) is Const and cause.value is None else _cause(domain, cause)
        if value.real is not NEW:
            note_write(domain, value, "__cause__")
        value.attrs["__cause__"] = because
        value.attrs["__suppress_context__"] = Const(True)
    return value


def _cause(domain: CaptureDomain, cause: Value) -> Value:
    cls = cause.obj if type(cause) is Known else type_of(domain, cause)
    if not (isinstance(cls, type) and issubclass(cls, BaseException)):
        raise domain.error(TypeError, "exception causes must derive from BaseException")
    return _instance(domain, cause)


def _instance(domain: CaptureDomain, exception: Value) -> Value:
    if type(exception) is Known and isinstance(exception.obj, type) and issubclass(exception.obj, BaseException):
        made = domain.vm.call(exception, [])
        if not issubclass(type_of(domain, made), BaseException):
            text = f"calling {exception.obj!r} should have returned an instance of BaseException, not {type_of(domain, made)!r}"
            raise domain.error(TypeError, text)
        exception = made
    if not (isinstance(exception, Obj) and issubclass(exception.cls, BaseException)):
        raise domain.error(TypeError, "exceptions must derive from BaseException")
    return exception


def chain(domain: CaptureDomain, exception: Value, handled: Value | None) -> None:
    """Set `__context__` of an exception that is raised while another is handled."""
    domain.thrown.add(exception)
    if handled is None or handled is exception or not isinstance(exception, Obj):
        return
    # An exception that is raised again deeper in its own chain is taken out of the chain there.
    link, seen = handled, {handled}
    while isinstance(link, Obj):
        following = link.attrs.get("__context__")
        if following is exception and link.real is NEW:
            link.attrs["__context__"] = Const(None)
            break
        if not isinstance(following, Obj) or following in seen:
            break
        link = following
        seen.add(following)
    if exception.real is not NEW:
        note_write(domain, exception, "__context__")
    exception.attrs["__context__"] = handled


def note_write(domain: CaptureDomain, exception: Obj, name: str) -> None:
    """A field of an exception that existed before is about to be stored."""
    domain.touch(exception)
    if exception.written is None or name not in exception.written:
        exception.written = {**(exception.written or {}), name: exception.attrs.get(name)}


def exception_matches(domain: CaptureDomain, exception: Value, type: Value) -> bool:
    """Does `except type` catch it?"""
    classes = []
    for t in elements.items(domain, type) if isinstance(type, TupleValue) else [type]:
        if isinstance(t, Known) and isinstance(t.obj, _TYPE) and issubclass(t.obj, BaseException):
            classes.append(t.obj)
        else:
            raise domain.error(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    return any(is_subtype(type_of(domain, exception), cls) for cls in classes)


_TYPE = type


def exception_triple(domain: CaptureDomain, exception: Value) -> list[Value]:
    """What `__exit__` is given."""
    if isinstance(exception, Obj) and exception.real is not NEW and exception.path is not None:
        traceback = wrap(domain, exception.real.__traceback__, exception.path.attr("__traceback__"))
        return [Known(type_of(domain, exception)), exception, traceback]
    return [Known(type_of(domain, exception)), exception, TracebackValue(exception, domain.vm.depth(exception))]


def stop_iteration_error(domain: CaptureDomain, exception: Value, kind: str | None = None) -> Value:
    """StopIteration that leaves a generator (or what `kind` says) becomes RuntimeError."""
    if not issubclass(type_of(domain, exception), StopIteration):
        return exception
    if kind is None:
        frames = domain.vm.frames
        kind = "coroutine" if frames and frames[-1].code.code.co_flags & inspect.CO_COROUTINE else "generator"
    made = new_exception(domain, RuntimeError, [Const(f"{kind} raised StopIteration")])
    made.attrs["__cause__"] = made.attrs["__context__"] = exception
    made.attrs["__suppress_context__"] = Const(True)
    return made
