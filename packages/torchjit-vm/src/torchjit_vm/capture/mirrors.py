"""Kinds whose objects the region keeps as real copies: an operation is C's own, computed at capture on the copy.

`mirrored` makes a kind of a class of C in one call. What a real object holds is relied on when it is looked at; new objects are
made again in emitted code, and changed ones are brought to their final content. Only constants go in and come out.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, final

import attrs

from torchjit_core.guards import MISSING
from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture.atoms import stripped
from torchjit_vm.capture.builtin_table import Builtin, builtin, method
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.exceptions import from_real
from torchjit_vm.capture.iteration import Indexing, items_of
from torchjit_vm.capture.keys import object_key, unhashable
from torchjit_vm.capture.members import walk
from torchjit_vm.capture.operators import DUNDERS, RICH
from torchjit_vm.capture.raw import constant_of, from_raw, is_constant
from torchjit_vm.capture.reading import MADE_ATOMS, lazily, reads
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.special_methods import is_not_implemented
from torchjit_vm.capture.subscripts import is_index
from torchjit_vm.capture.type_slots import Op, Part, Text, TypeSlots, register
from torchjit_vm.capture.values import (
    Args,
    AtomObject,
    BoundMethod,
    Const,
    Known,
    Kwargs,
    ListValue,
    Mirror,
    Obj,
    SliceValue,
    TupleValue,
    Value,
)

__all__ = ["content", "mirrored", "operation"]

T = TypeVar("T")
C = TypeVar("C")


@final
@attrs.frozen
class _Form:
    """How the instances of a class are kept: see `mirrored`."""

    freeze: Callable[[Any], Any]
    thaw: Callable[[Any], Any]
    restore: Callable[[Any, Any], None]


_FORMS: dict[type, _Form] = {}
_LEFT_OUT = frozenset(
    {"__init__", "__new__", "__iter__", "__next__", "__enter__", "__exit__", "__reduce__", "__reduce_ex__", "__getattribute__"}
    | {"__getstate__", "__setstate__", "__setattr__", "__delattr__", "__sizeof__", "__alloc__", "__buffer__", "__release_buffer__", "__del__"}
)  # fmt: skip


def mirrored(
    cls: type[T],
    *,
    freeze: Callable[[T], C],
    thaw: Callable[[C], T],
    restore: Callable[[T, C], None],
    without: Sequence[str] = (),
) -> None:
    """Let captures know a class of C: its constructor, methods, operators, attributes, copies, texts and changes.

    Args:
        cls: the class; objects of classes derived from it stay unknown.
        freeze: the content of an object as an atom or a tuple of atoms, which is what guards compare: everything that its methods
            can tell of.
        thaw: a new object with such content.
        restore: brings an object to such content.
        without: methods that do more than to look at the object and change it, or that tell of its address or of a file.
    """
    _FORMS[cls] = _Form(freeze, thaw, restore)
    reads(cls)(lazily(Mirror))
    builtin(cls)(_maker(cls))
    for name, raw in vars(cls).items():
        known = isinstance(raw, (types.MethodDescriptorType, types.WrapperDescriptorType))
        if known and name not in _LEFT_OUT and name not in without:
            method(name, cls)(_method(raw))


def content(domain: CaptureDomain, value: Mirror) -> Any:
    """The copy of what it holds; that of a real object is relied on."""
    if value.data is None:
        form = _FORMS[value.cls]
        found = form.freeze(value.real)
        if value.path is not None:
            domain.guard_value(value.path.computed(form.freeze), found)
        value.data, value.before = form.thaw(found), found
    return value.data


def operation(domain: CaptureDomain, function: Op, *args: Value) -> Value:
    """Call a function of C with mirrors among its arguments, which may change.

    Raises:
        GraphBreak: an argument or the result is none that a capture can hold.
        Raised: what the function raises.
    """
    mirrors = [a for a in args if isinstance(a, Mirror)]
    real = [_real(domain, a) for a in args]
    with _changes(domain, mirrors):
        try:
            result = function(*real)
        except Exception as error:
            raise domain.raised(from_real(domain, error)) from None
        return _value_of(domain, mirrors, result)


@contextmanager
def _changes(domain: CaptureDomain, mirrors: Sequence[Mirror]) -> Iterator[None]:
    """Notes which mirrors change. Where the operation cannot be captured after all, they are as before."""
    before = [_FORMS[m.cls].freeze(content(domain, m)) for m in mirrors]
    try:
        try:
            yield
        finally:
            for mirror, old in zip(mirrors, before, strict=True):
                if _FORMS[mirror.cls].freeze(mirror.data) != old:
                    domain.touch(mirror)
    except GraphBreak:
        for mirror, old in zip(mirrors, before, strict=True):
            mirror.data = _FORMS[mirror.cls].thaw(old)
        raise


def _real(domain: CaptureDomain, value: Value) -> Any:
    """A real object to compute with.

    Raises:
        GraphBreak: the value is no constant.
    """
    if isinstance(value, Mirror):
        return content(domain, value)
    if isinstance(value, SliceValue):
        return domain.slice(value)
    if not is_constant(domain, value):
        raise domain.graph_break(UNKNOWN_OPERATION, "an operation of C on what is no constant")
    return constant_of(domain, stripped(domain, value))


def _value_of(domain: CaptureDomain, mirrors: Sequence[Mirror], result: Any) -> Value:
    """The value of what an operation gave."""
    for mirror in mirrors:
        if result is mirror.data:
            return mirror
    cls = type(result)
    if cls in _FORMS:
        return Mirror(result, cls)
    if cls in (list, tuple):
        items = [_value_of(domain, mirrors, item) for item in result]
        return ListValue(items) if cls is list else TupleValue(items)
    if cls not in MADE_ATOMS and cls not in domain.policy.value_types:
        raise domain.graph_break(UNKNOWN_OPERATION, f"an operation of C that gives a {cls.__name__}")
    return domain.constant(result) if cls in (bool, type(None)) else from_raw(domain, result)


# The constructor and the methods.


def _maker(cls: type) -> Builtin:
    def make(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value:
        given = [a if isinstance(a, Mirror) or is_constant(domain, a) else _listed(domain, a) for a in args]
        return operation(domain, functools.partial(cls, **_constants(domain, kwargs)), *given)

    return make


def _listed(domain: CaptureDomain, value: Value) -> Value:
    """The items of an iterable that a constructor consumes."""
    return ListValue(items_of(domain, value))


def _method(raw: Any) -> Builtin:
    def run(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value:
        if not isinstance(args[0], Mirror):
            raise domain.graph_break(UNKNOWN_OPERATION, f"{raw.__qualname__} of another class")
        return operation(domain, functools.partial(_called, raw, _constants(domain, kwargs)), *args)

    return run


def _called(raw: Op, kwargs: dict[str, object], *args: object) -> object:
    return raw(*args, **kwargs)


def _constants(domain: CaptureDomain, kwargs: dict[str, Value]) -> dict[str, object]:
    return {name: _real(domain, v) for name, v in kwargs.items()}


# The slots.


def _richcompare(domain: CaptureDomain, function: Op, self: Mirror, other: Value) -> Value | None:
    if not isinstance(other, (Const, AtomObject, Mirror)):
        return None  # C does not know it
    result = operation(domain, getattr(self.cls, RICH[function][0]), self, other)
    return None if is_not_implemented(result) else result


def _is_sequence(cls: type) -> bool:
    """Are `+` and `*` those of a sequence: asked after the other operand's methods?"""
    return hasattr(cls, "__add__") and not hasattr(cls, "__radd__")


def _binary(domain: CaptureDomain, function: Op, self: Mirror, other: Value, reflected: bool) -> Value | None:
    names = DUNDERS[function]
    if all(walk(self.cls.__mro__, name) is MISSING for name in names):
        return None
    if type(other) in (Const, Mirror):  # C has all that both have a say in
        return operation(domain, function, *((other, self) if reflected else (self, other)))
    if _is_sequence(self.cls):
        return None
    raise domain.graph_break(UNKNOWN_OPERATION, f"{self.cls.__name__}.{names[reflected]} of what is no constant")


def _inplace(domain: CaptureDomain, function: Op, self: Mirror, other: Value) -> Value | None:
    known = walk(self.cls.__mro__, f"__{function.__name__}__") is not MISSING
    return operation(domain, function, self, other) if known else None


def _iter(domain: CaptureDomain, self: Mirror) -> Value | None:
    if issubclass(self.cls, Sequence):
        return Indexing(self, BoundMethod(Known(vars(self.cls)["__getitem__"]), self))
    return None


def _contains(domain: CaptureDomain, self: Mirror, item: Value) -> Value | None:
    known = hasattr(self.cls, "__contains__") and (isinstance(item, Mirror) or is_constant(domain, item))
    return operation(domain, operator.contains, self, item) if known else None


def _key(domain: CaptureDomain, key: Value) -> Value:
    """A key of a sequence, where it is none of C's, as the number that it stands for."""
    return key if is_constant(domain, key) or not is_index(domain, key) else Const(domain.index(key))


def _getitem(domain: CaptureDomain, self: Mirror, key: Value) -> Value | None:
    if not hasattr(self.cls, "__getitem__"):
        return None
    return operation(domain, operator.getitem, self, _key(domain, key))


def _setitem(domain: CaptureDomain, self: Mirror, key: Value, value: Value) -> None:
    operation(domain, operator.setitem, self, _key(domain, key), value)


def _delitem(domain: CaptureDomain, self: Mirror, key: Value) -> None:
    operation(domain, operator.delitem, self, _key(domain, key))


def _text(domain: CaptureDomain, self: Mirror, function: Text) -> str | None:
    cls: Any = self.cls
    if cls.__repr__ is object.__repr__:
        return None
    return str(content(domain, self)) if function is str else repr(content(domain, self))


def _copy(domain: CaptureDomain, self: Mirror, part: Part, remember: object) -> Obj:
    form = _FORMS[self.cls]
    return Mirror(form.thaw(form.freeze(content(domain, self))), self.cls)


def _rebuild(out: Rebuilder, self: Mirror) -> str:
    form = _FORMS[self.cls]
    return out.assign(f"{out.runtime(form.thaw)}({out.literal(form.freeze(self.data))})")


def _write_back(out: Rebuilder, self: Mirror) -> None:
    form = _FORMS[self.cls]
    if self.data is not None and (final := form.freeze(self.data)) != self.before:
        out.write(f"{out.runtime(form.restore)}({out.expr(self)}, {out.literal(final)})")


register(
    Mirror,
    TypeSlots(
        richcompare=_richcompare,
        binary=_binary,
        inplace=_inplace,
        concat=lambda domain, self, other: (
            operation(domain, operator.add, self, other) if _is_sequence(self.cls) else None
        ),
        repeat=lambda domain, self, count: operation(domain, operator.mul, self, Const(count)),
        bool=lambda domain, self: bool(content(domain, self)),
        length=lambda domain, self: len(content(domain, self)) if hasattr(self.cls, "__len__") else None,
        iter=_iter,
        contains=_contains,
        getitem=_getitem,
        setitem=_setitem,
        delitem=_delitem,
        hash=lambda domain, self: unhashable(domain, self) if self.cls.__hash__ is None else object_key(domain, self),
        getattr=lambda domain, self, member: operation(domain, lambda real: getattr(real, member.name), self),
        text=_text,
        copy=_copy,
        rebuild=_rebuild,
        write_back=_write_back,
    ),
)
