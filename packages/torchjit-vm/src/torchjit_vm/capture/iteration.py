"""Iterators and generators as values."""

from __future__ import annotations

import builtins
import inspect
import itertools
import types
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any, ClassVar, final

from torchjit_vm.capture import dicts, elements
from torchjit_vm.capture.attributes import bind
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.exceptions import stop_iteration_error
from torchjit_vm.capture.members import ABSENT, find_member
from torchjit_vm.capture.raw import from_raw
from torchjit_vm.capture.reasons import INTERCEPTED, OPAQUE_ITERATOR, REBUILD
from torchjit_vm.capture.type_slots import SLOTS
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    NEW,
    Const,
    DictValue,
    GeneratorValue,
    Known,
    Leaf,
    ListValue,
    Obj,
    SetValue,
    TupleValue,
    Value,
)
from torchjit_vm.decode import CLOSE_RETURNS, THROWN_AS_IS
from torchjit_vm.frame import Frame, Raised, delegate_of, finish_delegation
from torchjit_vm.type_labels import type_label

__all__ = [
    "ChainIterator",
    "EnumerateIterator",
    "FilterIterator",
    "Indexing",
    "IteratorValue",
    "ListIterator",
    "MapIterator",
    "RangeIterator",
    "SequenceIterator",
    "ZipIterator",
    "advance",
    "direct_items",
    "get_iter",
    "items_of",
    "make_generator",
    "send",
]


class IteratorValue(Value):
    """Base of the iterators that the VM advances itself."""

    __slots__ = ()
    python_type: ClassVar[type]

    def advance(self, domain: CaptureDomain) -> Value | None:
        """The next item, or None at the end."""
        raise NotImplementedError


@final
class SequenceIterator(IteratorValue):
    """Over a list or tuple, which may change meanwhile; a deque may not change its length. `step` is -1 in `reversed(list)`."""

    __slots__ = ("index", "sequence", "size", "step")
    python_type: ClassVar[type] = type(iter([]))

    def __init__(self, sequence: ListValue | TupleValue, index: int = 0, step: int = 1) -> None:
        self.sequence = sequence
        self.index = index
        self.step = step
        self.size = -1

    def stale(self, domain: CaptureDomain) -> bool:
        """Has a deque changed its length since the iterator was made?"""
        return self.size >= 0 and len(elements.items(domain, self.sequence)) != self.size

    def advance(self, domain: CaptureDomain) -> Value | None:
        items = elements.items(domain, self.sequence)
        if self.stale(domain):
            self.size, self.index = -1, 1 << 62
            raise domain.error(RuntimeError, "deque mutated during iteration")
        if 0 <= self.index < len(items):
            domain.note_change(self)
            item = items[self.index]
            self.index += self.step
            return item
        self.index = 1 << 62
        return None


@final
class ListIterator(IteratorValue):
    """Over a list of values that nobody else sees: dict keys, set elements, characters.

    `owner` is the dict or set that they come from, `kind` how they do; its size may not change meanwhile.
    """

    __slots__ = ("done", "index", "items", "keys", "kind", "owner", "size")
    python_type: ClassVar[type] = type(iter({}))

    def __init__(self, items: list[Value], owner: DictValue | SetValue | None = None, kind: str = "keys") -> None:
        self.items = items
        self.index = 0
        self.owner = owner
        self.kind = kind
        self.size = len(items)
        self.done = False
        self.keys: list[object] | None = None
        if kind in ("values", "items") and isinstance(owner, DictValue):
            self.keys = [key for key, entry in owner.entries.items() if entry is not None]

    def stale(self, domain: CaptureDomain) -> bool:
        """Has the owner changed its size since the iterator was made?"""
        if self.owner is None or self.done:
            return False
        if isinstance(self.owner, SetValue):
            return len(elements.set_entries(domain, self.owner)) != self.size
        return dicts.dict_length(domain, self.owner) != self.size

    def advance(self, domain: CaptureDomain) -> Value | None:
        if self.stale(domain):
            self.size = -1  # for good
            if isinstance(self.owner, DictValue) and issubclass(self.owner.cls, OrderedDict):
                raise domain.error(RuntimeError, "OrderedDict mutated during iteration")
            what = "Set" if isinstance(self.owner, SetValue) else "dictionary"
            raise domain.error(RuntimeError, f"{what} changed size during iteration")
        if self.index >= len(self.items):
            self.done = True
            return None
        domain.note_change(self)
        item = self.items[self.index]
        if self.keys is not None and isinstance(self.owner, DictValue):  # the value may be another one by now
            found = self.owner.entries.get(self.keys[self.index])
            if found is not None:
                item = found[1] if self.kind == "values" else TupleValue([*found])
        self.index += 1
        return item


@final
class RangeIterator(IteratorValue):
    """Over a range."""

    __slots__ = ("index", "range")
    python_type: ClassVar[type] = type(iter(range(0)))

    def __init__(self, range: range) -> None:
        self.range = range
        self.index = 0

    def advance(self, domain: CaptureDomain) -> Value | None:
        if self.index >= len(self.range):
            return None
        domain.note_change(self)
        self.index += 1
        return Const(self.range[self.index - 1])


@final
class EnumerateIterator(IteratorValue):
    __slots__ = ("count", "inner")
    python_type = enumerate

    def __init__(self, inner: Value, count: int) -> None:
        self.inner, self.count = inner, count

    def advance(self, domain: CaptureDomain) -> Value | None:
        item = advance(domain, self.inner)
        if item is None:
            return None
        self.count += 1
        return TupleValue([Const(self.count - 1), item])


@final
class ZipIterator(IteratorValue):
    __slots__ = ("inner", "strict")
    python_type = zip

    def __init__(self, inner: list[Value], strict: bool) -> None:
        self.inner, self.strict = inner, strict

    def advance(self, domain: CaptureDomain) -> Value | None:
        items: list[Value] = []
        if not self.inner:
            return None
        for number, iterator in enumerate(self.inner):
            item = advance(domain, iterator)
            if item is None:
                if self.strict:
                    self._check(domain, number)
                return None
            items.append(item)
        return TupleValue(items)

    def _check(self, domain: CaptureDomain, number: int) -> None:
        if number > 0:
            raise domain.error(ValueError, f"zip() argument {number + 1} is shorter than argument{_upto(number)}")
        for later, iterator in enumerate(self.inner[1:], 1):
            if advance(domain, iterator) is not None:
                raise domain.error(ValueError, f"zip() argument {later + 1} is longer than argument{_upto(later)}")


def _upto(number: int) -> str:
    return " 1" if number == 1 else f"s 1-{number}"


@final
class MapIterator(IteratorValue):
    __slots__ = ("function", "inner")
    python_type = map

    def __init__(self, function: Value, inner: list[Value]) -> None:
        self.function, self.inner = function, inner

    def advance(self, domain: CaptureDomain) -> Value | None:
        items: list[Value] = []
        for iterator in self.inner:
            item = advance(domain, iterator)
            if item is None:
                return None
            items.append(item)
        return domain.vm.call(self.function, items)


@final
class FilterIterator(IteratorValue):
    __slots__ = ("function", "inner")
    python_type = filter

    def __init__(self, function: Value | None, inner: Value) -> None:
        self.function, self.inner = function, inner

    def advance(self, domain: CaptureDomain) -> Value | None:
        while (item := advance(domain, self.inner)) is not None:
            kept = item if self.function is None else domain.vm.call(self.function, [item])
            if domain.truth(kept):
                return item
        return None


@final
class ChainIterator(IteratorValue):
    """`itertools.chain`: iterables still to come, and the iterator in use."""

    __slots__ = ("current", "pending")
    python_type = itertools.chain

    def __init__(self, pending: Value) -> None:
        self.pending = pending
        self.current: Value | None = None

    def advance(self, domain: CaptureDomain) -> Value | None:
        while True:
            if self.current is None:
                iterable = advance(domain, self.pending)
                if iterable is None:
                    return None
                self.current = get_iter(domain, iterable)
            item = advance(domain, self.current)
            if item is not None:
                return item
            self.current = None


@final
class RealIterator(IteratorValue):
    """An endless C iterator: `itertools.count` over constants, advanced at capture, or `itertools.repeat`."""

    __slots__ = ("repeated", "source")
    python_type = itertools.count

    def __init__(self, source: Any, repeated: Value | None = None) -> None:
        self.source = source
        self.repeated = repeated

    def advance(self, domain: CaptureDomain) -> Value | None:
        if self.repeated is not None:
            return self.repeated
        domain.note_change(self)
        return Const(builtins.next(self.source))


def sequence_iter(domain: CaptureDomain, value: ListValue | TupleValue) -> IteratorValue:
    """The iterator that the class of C itself has."""
    made = SequenceIterator(value)
    if issubclass(value.cls, deque):
        made.size = len(elements.items(domain, value))
    return made


def get_iter(domain: CaptureDomain, value: Value) -> Value:
    """`iter(value)`."""
    if isinstance(value, IteratorValue):
        return value
    if type(value) is Leaf:
        domain.used_leaves = True
        if domain.interceptors:
            raise domain.graph_break(INTERCEPTED, "iteration")
        items = domain.leaves.iterate(value.payload, domain)
        return SequenceIterator(TupleValue([from_raw(domain, r) for r in items]))
    if isinstance(value, Obj) and _program_says(domain, value):
        return _user_iter(domain, value)
    slot = SLOTS[type(value)].iter
    found = None if slot is None else slot(domain, value)
    return _user_iter(domain, value) if found is None else found


def _program_says(domain: CaptureDomain, value: Obj) -> bool:
    """Is `__iter__` a function of the program, or None?"""
    raw = find_member(domain, value.cls, "__iter__").raw
    return raw is None or type(raw) is types.FunctionType


def direct_items(domain: CaptureDomain, value: Value) -> list[Value] | None:
    """The items of a list or tuple whose class leaves iteration to C: nobody's code runs while they are taken. Do not change the result."""
    if not isinstance(value, (ListValue, TupleValue)) or _program_says(domain, value):
        return None
    return elements.items(domain, value)


def _user_iter(domain: CaptureDomain, value: Value) -> Value:
    cls = type_of(domain, value)
    member = find_member(domain, cls, "__iter__")
    if type(member.raw) is types.FunctionType:
        return _checked(domain, domain.vm.call(domain.vm.finish(bind(domain, member, value)), []))
    if isinstance(value, Obj) and value.real is not NEW and isinstance(value.real, Iterator):
        return value
    if member.raw is None:
        raise domain.error(TypeError, f"'{type_label(cls)}' object is not iterable")
    if member.kind == ABSENT:
        getter = find_member(domain, cls, "__getitem__")
        if type(getter.raw) is types.FunctionType:
            return Indexing(value, domain.vm.finish(bind(domain, getter, value)))
        if getter.kind == ABSENT:
            raise domain.error(TypeError, f"'{type_label(cls)}' object is not iterable")
    raise domain.graph_break(OPAQUE_ITERATOR, cls.__name__)


def _checked(domain: CaptureDomain, iterator: Value) -> Value:
    """What an `__iter__` gave."""
    if not isinstance(iterator, (IteratorValue, GeneratorValue)):
        cls = type_of(domain, iterator)
        if find_member(domain, cls, "__next__").kind == ABSENT:
            raise domain.error(TypeError, f"iter() returned non-iterator of type '{type_label(cls)}'")
    return iterator


@final
class Indexing(IteratorValue):
    """The old protocol: `__getitem__` with 0, 1, 2 ... until IndexError."""

    __slots__ = ("getter", "index", "sequence")
    python_type: ClassVar[type] = type(iter([]))

    def __init__(self, sequence: Value, getter: Value) -> None:
        self.sequence, self.getter = sequence, getter
        self.index = 0

    def advance(self, domain: CaptureDomain) -> Value | None:
        try:
            item = domain.vm.call(self.getter, [Const(self.index)])
        except Raised as raised:
            if issubclass(type_of(domain, raised.value), (IndexError, StopIteration)):
                return None
            raise
        domain.note_change(self)
        self.index += 1
        return item


def advance(domain: CaptureDomain, iterator: Value) -> Value | None:
    """The next item of an iterator, or None at its end."""
    if isinstance(iterator, IteratorValue):
        return iterator.advance(domain)
    if type(iterator) is GeneratorValue:
        done, value = resume(domain, iterator, Const(None))
        return None if done else value
    cls = type_of(domain, iterator)
    member = find_member(domain, cls, "__next__")
    if type(member.raw) is types.FunctionType:
        try:
            return domain.vm.call(domain.vm.finish(bind(domain, member, iterator)), [])
        except Raised as raised:
            if issubclass(type_of(domain, raised.value), StopIteration):
                return None
            raise
    if member.kind == ABSENT:
        raise domain.error(TypeError, f"'{type_label(cls)}' object is not an iterator")
    raise domain.graph_break(OPAQUE_ITERATOR, cls.__name__)


def refuses_iteration(domain: CaptureDomain, value: Value) -> bool:
    """Has its class neither `__iter__` nor `__getitem__`? Messages differ for it."""
    cls = type_of(domain, value)
    return all(find_member(domain, cls, name).kind == ABSENT for name in ("__iter__", "__getitem__"))


def items_of(domain: CaptureDomain, value: Value) -> list[Value]:
    """All items of an iterable, consumed, as its iterator gives them."""
    found = direct_items(domain, value)
    if found is not None:
        return list(found)
    iterator = get_iter(domain, value)
    result: list[Value] = []
    while (item := advance(domain, iterator)) is not None:
        result.append(item)
        if len(result) > domain.policy.step_limit:
            raise domain.graph_break(OPAQUE_ITERATOR, "endless iterator")
    return result


# Generators.


def kind_of(generator: GeneratorValue) -> str:
    """What messages call it."""
    return "coroutine" if generator.frame.code.code.co_flags & inspect.CO_COROUTINE else "generator"


def make_generator(domain: CaptureDomain, frame: Frame[Value]) -> Value:
    made = GeneratorValue(frame, frame.born)
    frame.generator = made
    domain.generators.append(made)
    return made


def resume(
    domain: CaptureDomain, generator: GeneratorValue, sent: Value, thrown: Value | None = None
) -> tuple[bool, Value]:
    """Run a generator to its next yield.

    Returns:
        (False, the yielded value) or (True, the returned value).
    """
    if generator.finished:
        return _resume_finished(domain, generator, thrown)
    if generator.running:
        raise domain.error(ValueError, f"{kind_of(generator)} already executing")
    frame = generator.frame
    vm = domain.vm
    domain.note_change(generator)
    if thrown is not None and not generator.started:
        generator.finished = True
        vm.passed(thrown, frame)
        raise Raised(thrown if THROWN_AS_IS else stop_iteration_error(domain, thrown, kind_of(generator)))
    delegate = None if thrown is None else delegate_of(frame)
    if thrown is not None and delegate is not None:
        generator.running = True
        try:
            done, result = _throw_on(domain, delegate, thrown)
        except Raised as raised:
            thrown = raised.value
        else:
            if not done:
                return False, result
            finish_delegation(frame)
            sent, thrown = result, None
        finally:
            generator.running = False
    if thrown is not None:
        sent, frame.pc = Const(None), frame.pc - 1
    frame.stack.append(sent)
    generator.started = generator.running = True
    before = vm.enter_generator(generator.handled)
    if thrown is not None:
        domain.chain(thrown, vm.handled)  # not what the caller handles: nothing raises it here
    try:
        value = vm.run(frame, thrown)
    except Raised as raised:
        generator.finished = True
        raise Raised(stop_iteration_error(domain, raised.value, kind_of(generator))) from None
    finally:
        generator.running = False
        generator.handled = vm.leave_generator(before)
    if frame.suspended:
        return False, value
    generator.finished = True
    return True, value


def _resume_finished(domain: CaptureDomain, generator: GeneratorValue, thrown: Value | None) -> tuple[bool, Value]:
    if kind_of(generator) == "coroutine":
        raise domain.error(RuntimeError, "cannot reuse already awaited coroutine")
    if thrown is not None:
        raise Raised(thrown)
    return True, Const(None)


def _throw_on(domain: CaptureDomain, delegate: Value, thrown: Value) -> tuple[bool, Value]:
    """Throw into the iterator of `yield from`.

    Returns:
        As `resume`.

    Raises:
        Raised: what the iterator raises, or the exception itself where it cannot take it.
    """
    leaving = issubclass(type_of(domain, thrown), GeneratorExit)
    if type(delegate) is GeneratorValue and not leaving:
        return resume(domain, delegate, Const(None), thrown)
    if type(delegate) is GeneratorValue:
        close(domain, delegate)
    elif not isinstance(delegate, IteratorValue):
        raise domain.graph_break(REBUILD, "an exception thrown through yield from")
    raise Raised(thrown)


def close(domain: CaptureDomain, generator: GeneratorValue) -> Value:
    """`generator.close()`."""
    if not generator.started or generator.finished:
        generator.finished = True
        return Const(None)
    leaving = domain.vm.call(Known(GeneratorExit), [])
    domain.chain(leaving, domain.vm.current)
    try:
        done, result = resume(domain, generator, Const(None), leaving)
    except Raised as raised:
        if issubclass(type_of(domain, raised.value), (GeneratorExit, StopIteration)):
            return Const(None)
        raise
    if not done:
        raise domain.error(RuntimeError, f"{kind_of(generator)} ignored GeneratorExit")
    return result if CLOSE_RETURNS else Const(None)


def send(domain: CaptureDomain, receiver: Value, value: Value) -> tuple[bool, Value]:
    """One step of `yield from` or `await`."""
    wrapped = getattr(receiver, "coroutine", None)
    if type(wrapped) is GeneratorValue:
        receiver = wrapped
    if type(receiver) is GeneratorValue:
        return resume(domain, receiver, value)
    if not (type(value) is Const and value.value is None):
        raise domain.graph_break(REBUILD, "send() through yield from")
    item = advance(domain, receiver)
    return (True, Const(None)) if item is None else (False, item)
