"""Comparing plain execution with a captured one: results, identities, changes of the arguments, exceptions, output."""

from __future__ import annotations

import array
import contextlib
import copy
import enum
import io
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from vm_lazy import Jit, Num

_kept: list[Any] = []


def shape(value: Any, seen: dict[int, int]) -> Any:
    """A comparable description: structure, types, and which parts are one object."""
    if isinstance(value, type) and "<locals>" in value.__qualname__:
        return _class_shape(value, seen)
    if isinstance(value, (int, float, str, bytes, bool, complex, type(None), type, types.ModuleType, range)):
        return (type(value), value if value == value else "nan")
    if id(value) in seen:
        return ("seen", seen[id(value)])
    if not isinstance(value, (tuple, frozenset)) and not callable(value):
        seen[id(value)] = len(seen)
    if isinstance(value, (bytearray, array.array)):
        return (type(value), getattr(value, "typecode", ""), bytes(value))
    if isinstance(value, Num):
        return ("Num", shape(value.value, seen))
    if isinstance(value, (list, tuple, deque)):
        return (_kind(type(value), seen), [shape(v, seen) for v in value], _attributes(value, seen))
    if isinstance(value, (dict, OrderedDict, defaultdict)):
        return (
            _kind(type(value), seen),
            [(shape(k, seen), shape(v, seen)) for k, v in value.items()],
            _attributes(value, seen),
        )
    if isinstance(value, (set, frozenset)):
        return (type(value), sorted(repr(shape(v, seen)) for v in value))
    if isinstance(value, slice):
        return ("slice", [shape(v, seen) for v in (value.start, value.stop, value.step)])
    if isinstance(value, BaseException):
        chain = [None if e is None else shape(e, seen) for e in (value.__cause__, value.__context__)]
        return (
            _kind(type(value), seen),
            shape(value.args, seen),
            chain,
            value.__suppress_context__,
            _attributes(value, seen),
        )
    if isinstance(value, types.FunctionType):
        cells = [shape(c.cell_contents, seen) if _full(c) else None for c in value.__closure__ or ()]
        return ("function", value.__qualname__, value.__code__, shape(value.__defaults__, seen), cells)
    if isinstance(value, types.MethodType):
        return ("method", value.__func__.__qualname__, shape(value.__self__, seen))
    if isinstance(value, types.CellType):
        return ("cell", shape(value.cell_contents, seen) if _full(value) else None)
    if hasattr(value, "__next__"):
        items = list(value)
        _kept.append(items)  # ids must stay their objects' own
        return ("iterator", [shape(v, seen) for v in items])
    return (_kind(type(value), seen), _attributes(value, seen))


def _kind(cls: type, seen: dict[int, int]) -> Any:
    """The class of an object, a description if the call made it."""
    return shape(cls, seen) if "<locals>" in cls.__qualname__ else cls


_IMPLEMENTATION = frozenset({"__dict__", "__weakref__", "_abc_impl", "__slotnames__"})


def _class_shape(cls: type, seen: dict[int, int]) -> Any:
    """A class of the call: another one in each, but of the same make."""
    if id(cls) in seen:
        return ("seen", seen[id(cls)])
    seen[id(cls)] = len(seen)
    _kept.append(cls)
    members: list[Any] = [(k, shape(v, seen)) for k, v in vars(cls).items() if k not in _IMPLEMENTATION]
    if isinstance(cls, enum.EnumType):  # the tables hold the members, in ways of each version
        members = [(k, shape(cls.__members__[k].value, seen)) for k in cls.__members__]
    return (
        "class",
        cls.__module__,
        cls.__qualname__,
        shape(type(cls), seen),
        [shape(b, seen) for b in cls.__bases__],
        members,
    )


def _full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  raises when empty
    except ValueError:
        return False
    return True


def _attributes(value: Any, seen: dict[int, int]) -> Any:
    members = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        for name in getattr(cls, "__slots__", ()):
            if hasattr(value, name):
                members[name] = getattr(value, name)
    return [(k, shape(v, seen)) for k, v in members.items()]


def outcome(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call, and describe everything that can be seen afterwards."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            result: Any = ("returned", function(*args))
        except Exception as error:
            error.__traceback__ = None
            result = ("raised", error)
    seen: dict[int, int] = {}
    return shape(args, seen), shape(result, seen), out.getvalue()


def check(function: Callable[..., Any], *args: Any, calls: int = 2, **policy: Any) -> Jit:
    """Compare `calls` captured calls with plain ones, each on its own copy of the arguments."""
    jit = Jit(function, **policy)
    for _ in range(calls):
        expected = outcome(function, copy.deepcopy(args))
        actual = outcome(jit, copy.deepcopy(args))
        assert actual == expected, _explain(jit, expected, actual)
    return jit


def _explain(jit: Jit, expected: Any, actual: Any) -> str:
    sources = "\n".join(c.source for c in jit.captured)
    return f"\nexpected {expected}\nactual   {actual}\n{sources}"
