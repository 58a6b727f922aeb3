"""Coroutines: what `await`, `async with` and `async for` ask of objects. The bodies run as those of generators do."""

from __future__ import annotations

import inspect
from typing import ClassVar, final

from torchjit_vm.capture.attributes import bind
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.iteration import IteratorValue, kind_of, resume
from torchjit_vm.capture.members import ABSENT, find_member
from torchjit_vm.capture.reasons import ASYNC
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import Const, GeneratorValue, Obj, Value
from torchjit_vm.frame import delegate_of
from torchjit_vm.type_labels import type_label

__all__ = ["AwaitIterator", "aiter", "anext", "ends_async_for", "get_awaitable", "is_coroutine"]


async def _nothing() -> None: ...


def _wrapper_type() -> type:
    made = _nothing()
    try:
        return type(made.__await__())
    finally:
        made.close()


@final
class AwaitIterator(IteratorValue):
    """`coroutine.__await__()`."""

    __slots__ = ("coroutine",)
    python_type: ClassVar[type] = _wrapper_type()

    def __init__(self, coroutine: GeneratorValue) -> None:
        self.coroutine = coroutine

    def advance(self, domain: CaptureDomain) -> Value | None:
        done, value = resume(domain, self.coroutine, Const(None))
        return None if done else value


def is_coroutine(value: GeneratorValue) -> bool:
    return kind_of(value) == "coroutine"


def get_awaitable(domain: CaptureDomain, value: Value, given_by: str | None) -> Value:
    """The iterator that `await value` takes its steps from.

    Source: _PyCoro_GetAwaitableIter in CPython's Objects/genobject.c.
    """
    if type(value) is GeneratorValue and value.frame.code.code.co_flags & _AWAITED:
        waits = value.started and not value.finished and not value.running
        if is_coroutine(value) and waits and delegate_of(value.frame) is not None:
            raise domain.error(RuntimeError, "coroutine is being awaited already")
        return value
    cls = type_of(domain, value)
    member = find_member(domain, cls, "__await__")
    if member.kind == ABSENT:
        if given_by is not None:
            text = (
                f"'async with' received an object from {given_by} that does not implement __await__: {type_label(cls)}"
            )
            raise domain.error(TypeError, text)
        raise domain.error(TypeError, f"object {cls.__name__} can't be used in 'await' expression")
    found = domain.vm.call(domain.vm.finish(bind(domain, member, value)), [])
    if type(found) is GeneratorValue and is_coroutine(found):
        raise domain.error(TypeError, "__await__() returned a coroutine")
    if not isinstance(found, (GeneratorValue, IteratorValue)):
        kind = type_of(domain, found)
        if find_member(domain, kind, "__next__").kind == ABSENT:
            raise domain.error(TypeError, f"__await__() returned non-iterator of type '{type_label(kind)}'")
    return found


_AWAITED = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE


def aiter(domain: CaptureDomain, value: Value) -> Value:
    """The iterator of `async for`."""
    cls = type_of(domain, value)
    member = find_member(domain, cls, "__aiter__")
    if member.kind == ABSENT:
        raise domain.error(TypeError, f"'async for' requires an object with __aiter__ method, got {type_label(cls)}")
    if not isinstance(value, Obj):
        raise domain.graph_break(ASYNC, cls.__name__)
    found = domain.vm.call(domain.vm.finish(bind(domain, member, value)), [])
    kind = type_of(domain, found)
    if find_member(domain, kind, "__anext__").kind == ABSENT:
        text = f"'async for' received an object from __aiter__ that does not implement __anext__: {type_label(kind)}"
        raise domain.error(TypeError, text)
    return found


def anext(domain: CaptureDomain, iterator: Value) -> Value:
    """What the next step of `async for` awaits."""
    cls = type_of(domain, iterator)
    member = find_member(domain, cls, "__anext__")
    found = domain.vm.call(domain.vm.finish(bind(domain, member, iterator)), [])
    if type(found) is not GeneratorValue and find_member(domain, type_of(domain, found), "__await__").kind == ABSENT:
        text = f"'async for' received an invalid object from __anext__: {type_label(type_of(domain, found))}"
        raise domain.error(TypeError, text)
    return get_awaitable(domain, found, None)


def ends_async_for(domain: CaptureDomain, exception: Value) -> bool:
    return issubclass(type_of(domain, exception), StopAsyncIteration)
