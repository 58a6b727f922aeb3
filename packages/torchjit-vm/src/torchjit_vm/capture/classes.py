"""Class statements in a region, and calls of `type` with three arguments.

The body is interpreted. From its namespace a real class is made, the *twin*, which stands for the new class while the
region is captured: lookups, subclass checks and layouts work on it as on any class. Its functions and data are twins too,
and interned, so that a lookup that finds one goes on with the value it stands for. The twin never leaves the capture: if
the class is alive at the end, emitted code makes a new one in each call, the way the program made it (`MadeClass`).
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types
import typing
from abc import _abc_init  # type: ignore[attr-defined]
from collections.abc import Callable
from typing import Any, cast

import attr
import attrs

from torchjit_vm.capture import dicts, elements, keys, members, subscripts
from torchjit_vm.capture.builtin_table import builtin, method
from torchjit_vm.capture.class_making import (
    functions_of,
    has_subclass_hook,
    is_library,
    make_class,
    make_library_class,
    make_named_tuple,
)
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.effect_records import MadeClass
from torchjit_vm.capture.raw import is_constant
from torchjit_vm.capture.reading import IMMUTABLE_ATOMS, pinned
from torchjit_vm.capture.reasons import CLASS_BODY
from torchjit_vm.capture.stand_in_classes import StandIns, stand_in_of
from torchjit_vm.capture.types import is_subtype, type_of
from torchjit_vm.capture.values import (
    NEW,
    Args,
    CellValue,
    Const,
    DictValue,
    FunctionValue,
    Known,
    Kwargs,
    Obj,
    TupleValue,
    Value,
)
from torchjit_vm.frame import Frame, Raised
from torchjit_vm.type_labels import type_label

__all__ = [
    "call_metaclass",
    "delete_from_class",
    "is_made",
    "load_name",
    "make_by_type",
    "store_in_class",
]

_LIBRARY_METACLASSES: frozenset[type] = frozenset(
    {enum.EnumType, typing.NamedTupleMeta, type(typing.Protocol)}  # type: ignore[attr-defined]
)
_ENUM_HOOKS = ("__new__", "__init__", "_generate_next_value_", "_missing_", "__init_subclass__", "__set_name__")


def is_made(domain: CaptureDomain, value: Value) -> bool:
    """Is the value a class that the region made?"""
    return type(value) is Known and isinstance(value.obj, type) and value.obj in domain.made_classes


def store_in_class(domain: CaptureDomain, cls: type, name: str, content: Value) -> None:
    """`cls.name = content` of a class that the region made."""
    real = stand_in_of(domain, content)
    try:
        type.__setattr__(cls, name, real)
    except (TypeError, AttributeError, ValueError) as error:
        raise domain.graph_break(CLASS_BODY, f"store to {name}: {error}") from None
    note_change(domain, cls, ("set", name, content), name)


def delete_from_class(domain: CaptureDomain, cls: type, name: str) -> None:
    """`del cls.name` of a class that the region made."""
    if name not in vars(cls):
        text = f"type object '{type_label(cls)}' has no attribute '{name}'"
        raise domain.error(AttributeError, text)
    type.__delattr__(cls, name)
    note_change(domain, cls, ("delete", name), name)


def note_change(domain: CaptureDomain, cls: type, entry: tuple[object, ...], *names: str) -> None:
    domain.note_change(domain.interned.get(id(cls)) or Known(cls))
    domain.made_classes[cls].log.append(entry)
    for known, attribute in list(domain.members):
        if is_subtype(known, cls) and (not names or attribute in names):
            del domain.members[known, attribute]
    for made in domain.made_classes:
        if is_subtype(made, cls):
            value = domain.interned.get(id(made))
            if type(value) is Known:
                value.attrs.clear()


@builtin(__build_class__)
def _build_class(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
    """A class statement."""
    body, name = args[0], args[1]
    if not isinstance(body, FunctionValue) or type(name) is not Const:
        raise domain.graph_break(CLASS_BODY, "a class body that the region did not make")
    given = args[2:]
    bases = _resolved(domain, given)
    keywords = dict(kwargs)
    meta = _metaclass(domain, keywords.pop("metaclass", None), bases)
    library = meta.obj in _LIBRARY_METACLASSES or meta.obj in domain.policy.class_makers
    namespace = DictValue() if library else _prepare(domain, meta, [name, TupleValue(list(bases))], keywords)
    frame = domain.vm.new_frame(body.code, [], list(body.closure), body.globals, body)
    frame.namespace = namespace
    cell = domain.vm.finish(frame)
    if len(bases) != len(given) or any(a is not b for a, b in zip(bases, given, strict=True)):
        domain.setitem(namespace, Const("__orig_bases__"), TupleValue(given))
    if library:
        made = _library_class(domain, meta, str(domain.use(name)), bases, namespace, keywords)
    else:
        made = domain.vm.call(meta, [name, TupleValue(list(bases)), namespace], keywords)
    if isinstance(cell, CellValue) and is_made(domain, made) and domain.cell_get(cell) is None:
        domain.cell_set(cell, made)
    return made


def _resolved(domain: CaptureDomain, given: list[Value]) -> list[Known]:
    """The bases, generic aliases and the like replaced by what they stand for."""
    bases: list[Known] = []
    for base in given:
        if type(base) is Known and isinstance(base.obj, type):
            bases.append(base)
        elif type(base) in (Known, Obj) and _is_typing(base):
            real = stand_in_of(domain, base)
            everything = tuple(stand_in_of(domain, v) for v in given)
            bases.extend(_class(domain, b, getattr(b, "__name__", "base")) for b in real.__mro_entries__(everything))
        else:
            raise domain.graph_break(CLASS_BODY, f"a base of type {type_of(domain, base).__name__}")
    return bases


def _is_typing(base: Value) -> bool:
    real = base.obj if type(base) is Known else getattr(base, "real", NEW)
    return (
        real is not NEW
        and type(real).__module__ in ("typing", "types", "builtins")
        and hasattr(real, "__mro_entries__")
    )


def _metaclass(domain: CaptureDomain, asked: Value | None, bases: list[Known]) -> Known:
    if asked is not None and not (type(asked) is Known and isinstance(asked.obj, type)):
        raise domain.graph_break(CLASS_BODY, "a metaclass that is no class")
    winner: type = asked.obj if type(asked) is Known else type
    for base in bases:
        meta = type(base.obj)
        if is_subtype(meta, winner):
            winner = meta
        elif not is_subtype(winner, meta):
            text = (
                "metaclass conflict: the metaclass of a derived class must be a (non-strict) subclass of the "
                "metaclasses of all its bases"
            )
            raise domain.error(TypeError, text)
    return _class(domain, winner, winner.__qualname__)


def _class(domain: CaptureDomain, cls: type, label: str) -> Known:
    return cast(Known, pinned(domain, cls, label))


def _prepare(domain: CaptureDomain, meta: Known, args: list[Value], keywords: dict[str, Value]) -> DictValue:
    raw = members.walk(meta.obj.__mro__, "__prepare__")
    if raw is type.__dict__["__prepare__"]:
        return DictValue()
    hook = domain.vm.finish(domain.load_attr(meta, "__prepare__"))
    made = domain.vm.call(hook, args, keywords)
    if not isinstance(made, DictValue):
        raise domain.graph_break(CLASS_BODY, "a namespace that is no dict")
    return made


def _namespace(domain: CaptureDomain, value: Value) -> tuple[dict[str, Value], Value | None]:
    """The entries of a namespace, and the cell of `__class__`."""
    if not isinstance(value, DictValue):
        raise domain.graph_break(CLASS_BODY, "a namespace that is no dict")
    entries = {str(keys.key_of(domain, k)): v for k, v in dicts.dict_pairs(domain, value)}
    return entries, entries.pop("__classcell__", None)


def _bases_of(domain: CaptureDomain, value: TupleValue) -> list[Known] | None:
    """The classes in a tuple; None if one of its items is none."""
    given = elements.items(domain, value)
    bases = [b for b in given if type(b) is Known and isinstance(b.obj, type)]
    return bases if len(bases) == len(given) else None


def make_by_type(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
    """`type(name, bases, namespace)`."""
    bases = _bases_of(domain, args[1]) if isinstance(args[1], TupleValue) else []
    if bases is None:
        return None
    meta = _metaclass(domain, None, bases)
    if meta.obj in _LIBRARY_METACLASSES:
        raise domain.graph_break(CLASS_BODY, f"type() with the metaclass {meta.obj.__name__}")
    if meta.obj is not type:
        return domain.call(meta, args, kwargs)
    return _type_new(domain, [meta, *args], kwargs)


def call_metaclass(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
    """`type.__call__` of a metaclass."""
    made: Value | Frame[Value] | None
    new = members.find_member(domain, function.obj, "__new__")
    if new.kind in (members.STATIC, members.FUNCTION):
        made = domain.vm.call(members.member_value(domain, new), [function, *args], dict(kwargs))
    else:
        made = _type_new(domain, [function, *args], kwargs)
    if type(made) is not Known or not is_made(domain, made):
        return made
    init = members.find_member(domain, type(made.obj), "__init__")
    if init.kind == members.FUNCTION:
        domain.check_init(domain.vm.call(members.member_value(domain, init), [made, *args], dict(kwargs)))
    return made


@method("__init_subclass__", object)
def _no_init_subclass(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if len(args) == 1 and kwargs and type(args[0]) is Known:
        raise domain.error(TypeError, f"{args[0].obj.__name__}.__init_subclass__() takes no keyword arguments")
    return Const(None) if len(args) == 1 else None


@method("__init__", type)
def _type_init(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    return Const(None)


@builtin(type.__new__)
def _type_new(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    """`type.__new__(metaclass, name, bases, namespace, **keywords)`."""
    if len(args) != 4 or not (type(args[0]) is Known and type(args[1]) is Const and isinstance(args[2], TupleValue)):
        return None
    meta, name = args[0], str(domain.use(args[1]))
    bases = _bases_of(domain, args[2])
    if bases is None:
        return None
    entries, cell = _namespace(domain, args[3])
    if type(members.walk(meta.obj.__mro__, "mro")) is types.FunctionType:
        raise domain.graph_break(CLASS_BODY, "a metaclass with an mro() of its own")
    if members.find_member(domain, meta.obj, "__getattribute__").kind == members.FUNCTION:
        # Each look at the twin would run it.
        raise domain.graph_break(CLASS_BODY, "a metaclass with a __getattribute__ of its own")
    if has_subclass_hook([b.obj for b in bases]):
        raise domain.graph_break(CLASS_BODY, "a base with an __init_subclass__ of its own")
    entries.setdefault("__module__", Const(domain.vm.frames[-1].globals.get("__name__")))
    made = MadeClass(make_class, meta, name, bases, entries, dict(kwargs), born=domain.vm.step)
    value = _remember(domain, _make_twin(domain, made, raises=True), made)
    if isinstance(cell, CellValue):
        domain.cell_set(cell, value)
    for key, content in entries.items():
        cls = type_of(domain, content)
        hook = members.find_member(domain, cls, "__set_name__")
        if hook.kind == members.FUNCTION and not is_library(cls):
            domain.vm.call(members.member_value(domain, hook), [content, value, Const(key)])
    return value


def _make_twin(domain: CaptureDomain, made: MadeClass, *, raises: bool) -> type:
    """The twin; what its making raises is the program's error if no code of the program had a part in it."""
    namespace = {k: stand_in_of(domain, v) for k, v in made.namespace.items()}
    keywords = {k: stand_in_of(domain, v) for k, v in made.keywords.items()}
    bases = tuple(b.obj for b in made.bases)
    try:
        twin: type = cast(Any, made.make)(made.meta.obj, made.name, bases, namespace, keywords)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        if raises and type(error) in (TypeError, ValueError):
            raise domain.error(type(error), str(error)) from None
        raise domain.graph_break(CLASS_BODY, f"{type(error).__name__}: {error}") from None
    return twin


def _library_class(
    domain: CaptureDomain, meta: Known, name: str, bases: list[Known], namespace: Value, kwargs: dict[str, Value]
) -> Value:
    """A class of a metaclass that runs as a whole, at capture for the twin and in each call."""
    entries, _ = _namespace(domain, namespace)
    if issubclass(meta.obj, enum.EnumType):
        _refuse_hooks(domain, entries, tuple(b.obj for b in bases))
    for content in entries.values():
        cls = type_of(domain, content)
        if hasattr(cls, "__set_name__") and not is_library(cls):
            raise domain.graph_break(CLASS_BODY, f"{cls.__name__}.__set_name__ in a {meta.obj.__name__}")
    made = MadeClass(make_library_class, meta, name, bases, entries, dict(kwargs), born=domain.vm.step)
    return _remember(domain, _make_twin(domain, made, raises=False), made)


def _remember(domain: CaptureDomain, twin: type, made: MadeClass) -> Known:
    domain.mutated_at = domain.vm.step
    domain.made_classes[twin] = made
    domain.stand_in_ids.add(id(twin))
    domain.of(StandIns).kept.append(twin)
    value = domain.interned[id(twin)] = Known(twin)
    _note_parts(domain, twin)
    return value


@builtin(collections.namedtuple)
def _named_tuple(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    given = {**dict(zip(("typename", "field_names"), args, strict=False)), **kwargs}
    name = given.pop("typename", None)
    if len(args) > 2 or type(name) is not Const or not all(is_constant(domain, v) for v in given.values()):
        return None
    given.setdefault("module", Const(domain.vm.frames[-1].globals.get("__name__")))
    meta = Known(collections.namedtuple)
    made = MadeClass(make_named_tuple, meta, domain.use(name), [], {}, given, born=domain.vm.step)
    return _remember(domain, _make_twin(domain, made, raises=True), made)


def _note_parts(domain: CaptureDomain, twin: type) -> None:
    """Note what belongs to a twin and is no twin of a value: emitted code must take it from the class of the call."""
    parts = dict(vars(twin))
    if isinstance(twin, enum.EnumType):
        parts.update(twin.__members__)
    for name, raw in parts.items():
        if isinstance(raw, (staticmethod, classmethod)):
            raw = raw.__func__
        elsewhere = isinstance(raw, type) or type(raw) in IMMUTABLE_ATOMS or (type(raw) is tuple and not raw)
        if not elsewhere and id(raw) not in domain.interned:
            domain.class_parts.setdefault(id(raw), (twin, name))


def _apply_to_class(domain: CaptureDomain, function: Callable[..., object], args: Args, kwargs: Kwargs) -> Value | None:
    """A function of the library that works on a new class: run on the twin now, on the class in each call.

    Its result is the class, a class in its place, or nothing of interest.
    """
    value = args[0] if args else None
    if type(value) is not Known or not is_made(domain, value):
        return None
    cls: type = value.obj
    rest = [stand_in_of(domain, a) for a in args[1:]]
    named = {k: stand_in_of(domain, v) for k, v in kwargs.items()}
    try:
        result = function(cls, *rest, **named)
    except Exception as error:  # whatever it raises, the real call raises it again
        raise domain.graph_break(CLASS_BODY, f"{type(error).__name__}: {error}") from None
    replaced = result if isinstance(result, type) and result is not cls else None
    note_change(domain, cls, ("call", function, list(args[1:]), dict(kwargs), replaced))
    _note_parts(domain, cls)
    if result is cls:
        return value
    if replaced is not None:
        before = domain.made_classes[cls]
        made = MadeClass(
            None, before.meta, before.name, before.bases, before.namespace, before.keywords, cls, born=before.born
        )
        return _remember(domain, replaced, made)
    return Const(None)


@builtin(_abc_init)
def _abstract(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    return _apply_to_class(domain, _abc_init, args, kwargs)


def _decorator(function: Callable[..., object]) -> None:
    def decorate(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
        if args:
            return _apply_to_class(
                domain, function, args, kwargs
            )  # one that the program has runs for real, in one piece
        made = Obj(functools.partial)  # the decorator that the function returns
        made.attrs = {"func": Known(function), "args": TupleValue([]), "keywords": DictValue.of_names(kwargs)}
        return made

    builtin(function)(decorate)


for _function in (dataclasses.dataclass, attrs.define, attr.attrs, functools.total_ordering):
    _decorator(_function)


# Names in class bodies.


def _refuse_hooks(domain: CaptureDomain, entries: dict[str, Value], bases: tuple[type, ...]) -> None:
    """Break where the making of an enum would run code of the program."""
    for hook in _ENUM_HOOKS:
        inherited = [vars(c).get(hook) for b in bases for c in b.__mro__]
        if hook in entries or any(not is_library(f) for r in inherited for f in functions_of(r)):
            raise domain.graph_break(CLASS_BODY, f"an enum with {hook}")


def load_name(domain: CaptureDomain, namespace: Value, name: str) -> Value | None:
    """A name in the namespace of a class body; None if it is not there."""
    if not isinstance(namespace, DictValue):
        raise domain.graph_break(CLASS_BODY, name)
    if namespace.cls is dict:
        found = dicts.dict_lookup(domain, namespace, name)
        if isinstance(found, Obj) and found.cls is enum.auto:
            raise domain.graph_break(CLASS_BODY, f"the number of {name}")
        return found
    try:
        return subscripts.getitem(domain, namespace, Const(name))
    except Raised as raised:
        if issubclass(type_of(domain, raised.value), KeyError):
            return None
        raise
