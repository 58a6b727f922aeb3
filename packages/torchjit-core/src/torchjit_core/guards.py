"""What a specialisation relies on: guards as plain data.

The VM and the tensor domain record guards while they capture; `torchjit_guards` turns a list of them into a C program.
`check` on each class is the executable definition that the C program is tested against.
"""

from __future__ import annotations

import functools
import math
import numbers
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, ClassVar, TypeAlias, final

import attrs

from torchjit_core.handlers import raised_in_handler
from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath
from torchjit_core.showing import shown

__all__ = [
    "MISSING",
    "Ambient",
    "ClassAttrIs",
    "DictContains",
    "DictKeys",
    "Different",
    "Guard",
    "IdIs",
    "InstanceLacks",
    "LengthIs",
    "Miss",
    "MroIs",
    "Predicate",
    "SameObject",
    "SymbolicCondition",
    "TensorMatches",
    "TypeIs",
    "ValueEquals",
    "dict_items",
]


@final
class _Missing:
    """The value of an attribute that is not there."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()
Slots: TypeAlias = "tuple[Any, ...] | list[Any]"


@attrs.frozen(eq=False, repr=False)
class Guard:
    """Base of all guards. `location` is the user's line that relied on it.

    Two guards with equal `key()` check the same thing.
    """

    _text: ClassVar[str] = "{0!r}"
    """What it says, as a format of the guard."""

    def key(self) -> tuple[Any, ...]:
        """What the guard checks, for removing duplicates: ids stand for objects, which the guard keeps alive."""
        fields = _key_fields(type(self))  # type: ignore[arg-type]  # mypy: a class of attrs without eq is not hashable
        return (type(self), *[of(getattr(self, name)) for name, of in fields])

    def check(self, slots: Slots) -> bool:
        """Does the guard hold? The slow, obvious definition; may raise what `path.resolve` raises."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self._text.format(self)

    def __repr__(self) -> str:
        # One for all: to have attrs write and compile one for each class takes milliseconds of every start.
        names = [field.name for field in getattr(type(self), "__attrs_attrs__", ())]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


def _typed(value: Any) -> Any:
    """A hashable stand-in for an atom or nested tuple that tells 1, True, 1.0 and 0.0, -0.0 apart."""
    if type(value) is tuple:
        return (tuple, tuple(_typed(v) for v in value))
    if type(value) is not int and isinstance(value, numbers.Number):  # NumPy's, too
        return (type(value), repr(value))
    return (type(value), value)


@functools.cache
def _key_fields(guard: type[Guard]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """The fields that say what guards of a class check, with what stands for their values in `Guard.key`."""
    if "__attrs_attrs__" not in vars(guard):
        raise NotImplementedError(f"{guard.__name__} is no attrs class: it needs a `key` of its own")
    fields = attrs.fields(guard)
    return tuple((f.name, f.metadata.get("key", _itself)) for f in fields if f.name != "location")


def _itself(value: Any) -> Any:
    return value


_BY_ID, _BY_TYPE = {"key": id}, {"key": _typed}


@final
@attrs.frozen(eq=False, repr=False)
class TypeIs(Guard):
    """`type(path) is type`."""

    _text = "type({0.path}) is {0.type.__module__}.{0.type.__qualname__}"
    path: AccessPath
    type: type = attrs.field(metadata=_BY_ID)
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        return type(self.path.resolve(slots)) is self.type


@final
@attrs.frozen(eq=False, repr=False)
class IdIs(Guard):
    """`path is obj`; `obj` is kept alive, so its id cannot be reused."""

    path: AccessPath
    obj: Any = attrs.field(metadata=_BY_ID)
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        return self.path.resolve(slots) is self.obj

    def __str__(self) -> str:
        return f"{self.path} is {shown(self.obj, 60)}"


@final
@attrs.frozen(eq=False, repr=False)
class ValueEquals(Guard):
    """Same type and equal, for immutable atoms (int, str, float, bytes, complex, None ...) and tuples of them.

    A NaN equals a NaN here, and 0.0 differs from -0.0.
    """

    _text = "{0.path} == {0.value!r}"
    path: AccessPath
    value: Any = attrs.field(metadata=_BY_TYPE)
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        return bool(_typed(self.path.resolve(slots)) == _typed(self.value))


@final
@attrs.frozen(eq=False, repr=False)
class LengthIs(Guard):
    """`len(path) == length`, for an exact list, tuple, dict, set, frozenset, str or bytes."""

    _text = "len({0.path}) == {0.length}"
    path: AccessPath
    length: int
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        return len(self.path.resolve(slots)) == self.length


def dict_items(found: dict[Any, Any]) -> tuple[tuple[Any, Any], ...]:
    """Keys and values in the dict's own order, whatever a subclass makes of `items`.

    An OrderedDict keeps its order apart from the table that it inherits: `move_to_end` leaves the table alone.
    """
    base: Any = OrderedDict if issubclass(type(found), OrderedDict) else dict
    return tuple(base.items(found))


@final
@attrs.frozen(eq=False, repr=False)
class DictKeys(Guard):
    """`tuple(path) == keys`, in order, for a dict or dict subclass. Keys that are no atoms compare by identity."""

    path: AccessPath
    keys: tuple[Any, ...] = attrs.field(metadata=_BY_TYPE)
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        keys = tuple(key for key, _ in dict_items(self.path.resolve(slots)))
        return len(keys) == len(self.keys) and all(
            a is b or (type(a) is type(b) and a == b) for a, b in zip(keys, self.keys, strict=True)
        )

    def __str__(self) -> str:
        return f"tuple({self.path}) == {shown(self.keys, 200)}"


@final
@attrs.frozen(eq=False, repr=False)
class DictContains(Guard):
    """`(name in path) == present`, for a dict or dict subclass."""

    path: AccessPath
    name: Any = attrs.field(metadata=_BY_TYPE)
    present: bool
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        return dict.__contains__(self.path.resolve(slots), self.name) is self.present

    def __str__(self) -> str:
        return f"{shown(self.name)} {'in' if self.present else 'not in'} {self.path}"


@final
@attrs.frozen(eq=False, repr=False)
class InstanceLacks(Guard):
    """The object has no `__dict__`, or its `__dict__` does not hold `name`."""

    _text = "{0.name!r} not in {0.path}.__dict__"
    path: AccessPath
    name: str
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        try:
            members = object.__getattribute__(self.path.resolve(slots), "__dict__")
        except AttributeError:
            return True
        return self.name not in members


@final
@attrs.frozen(eq=False, repr=False)
class ClassAttrIs(Guard):
    """A walk over `cls.__mro__` finds the raw object `obj` under `name` (or MISSING). A fact about a class, no path."""

    cls: type = attrs.field(metadata=_BY_ID)
    name: str
    obj: Any = attrs.field(metadata=_BY_ID)
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        for cls in self.cls.__mro__:
            if self.name in cls.__dict__:
                return cls.__dict__[self.name] is self.obj
        return self.obj is MISSING

    def __str__(self) -> str:
        return f"{self.cls.__qualname__}.{self.name} is {shown(self.obj, 60)}"


@final
@attrs.frozen(eq=False, repr=False)
class MroIs(Guard):
    """`cls.__mro__` is this very tuple: no base of the class, nor of any class above it, was replaced."""

    cls: type = attrs.field(metadata=_BY_ID)
    mro: tuple[type, ...] = attrs.field(metadata=_BY_ID)
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        return self.cls.__mro__ is self.mro

    def __str__(self) -> str:
        return f"{self.cls.__qualname__}.__mro__ == ({', '.join(c.__qualname__ for c in self.mro)})"


@final
@attrs.frozen(eq=False, repr=False)
class TensorMatches(Guard):
    """The tensor has the recorded metadata.

    Attributes:
        path: of the tensor.
        type: exact Python type.
        dtype: a torch.dtype.
        device: a torch.device with its index.
        requires_grad: bool.
        sizes, strides: one entry per dimension; None where the dimension is symbolic or free.
        offset: storage offset, or None if free.
        key_set: `str(torch._C._dispatch_keys(t))` or an int form of it: whatever the torch side of guards compares;
            None leaves it out.
        is_leaf: bool, or None if free.
    """

    path: AccessPath
    type: type = attrs.field(metadata=_BY_ID)
    dtype: Any
    device: Any
    requires_grad: bool
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...] | None
    offset: int | None = None
    key_set: Any = None
    is_leaf: bool | None = None
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        t: Any = self.path.resolve(slots)
        exact = type(t)  # named, or mypy narrows t to object
        return (
            exact is self.type
            and t.dtype == self.dtype
            and t.device == self.device
            and t.requires_grad == self.requires_grad
            and t.dim() == len(self.sizes)
            and _agree(self.sizes, t.shape)
            and (self.strides is None or _agree(self.strides, t.stride()))
            and (self.offset is None or t.storage_offset() == self.offset)
            and (self.is_leaf is None or t.is_leaf == self.is_leaf)
        )

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.type.__name__}({self.dtype}, {self.device}, sizes={list(self.sizes)}, "
            f"strides={None if self.strides is None else list(self.strides)}, requires_grad={self.requires_grad})"
        )


def _agree(recorded: Sequence[int | None], numbers: Sequence[int]) -> bool:
    """Are the numbers those that are recorded? None allows any."""
    return all(want is None or want == got for want, got in zip(recorded, numbers, strict=True))


@final
@attrs.frozen(eq=False, repr=False)
class SameObject(Guard):
    """`first is second`: two paths lead to one object."""

    _text = "{0.first} is {0.second}"
    first: AccessPath
    second: AccessPath
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        return self.first.resolve(slots) is self.second.resolve(slots)


@final
@attrs.frozen(eq=False, repr=False)
class Different(Guard):
    """The paths lead to pairwise different objects.

    With `storages` they also lead to tensors of pairwise different storages.
    """

    paths: tuple[AccessPath, ...]
    storages: bool = False
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        objs = [p.resolve(slots) for p in self.paths]
        if self.storages and len({o.untyped_storage()._cdata for o in objs}) != len(objs):
            return False
        return len(set(map(id, objs))) == len(objs)

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.paths))} do not {'share storage' if self.storages else 'coincide'}"


@final
@attrs.frozen(eq=False, repr=False)
class SymbolicCondition(Guard):
    """A condition over numbers read from paths, as a Python expression over `names`.

    Attributes:
        expression: Python text over the names, arithmetic and comparisons only: `+ - * // % ** min max`,
            `== != < <= > >=`, `and or not`. `//` and `%` round as in Python. Over floats also `/`, `abs`, `float`,
            `int`, `round` and the functions of `math`; such conditions are evaluated by Python.
        names: each name and the path whose value (an int or a float) it stands for.
    """

    expression: str
    names: tuple[tuple[str, AccessPath], ...]
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        env = {name: path.resolve(slots) for name, path in self.names}
        try:
            return bool(eval(_compiled(self.expression), _CONDITION_NAMES, env))
        except (ArithmeticError, ValueError) as error:
            if raised_in_handler(error):
                raise
            return False  # a division by zero, a float that overflows, no root: not what was captured

    def __str__(self) -> str:
        where = ", ".join(f"{n} = {p}" for n, p in self.names)
        return f"{self.expression}  (where {where})"


_CONDITION_NAMES: dict[str, Any] = {
    "__builtins__": {}, "min": min, "max": max, "abs": abs, "float": float, "int": int, "round": round, "math": math,
}  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _compiled(expression: str) -> CodeType:
    return compile(expression, "<guard>", "eval")


@final
@attrs.frozen(eq=False, repr=False)
class Ambient(Guard):
    """Process or thread state that is not reached from an argument: grad mode, autocast, default dtype ...

    Attributes:
        name: what is read, for people and for the C program's fast paths (for example `grad_mode`).
        read: a function of no arguments that returns the state, compared with `==`.
        value: the state at capture.
    """

    _text = "{0.name} == {0.value!r}"
    name: str
    read: Callable[[], Any]
    value: Any
    location: CodeLocation | None = None

    def key(self) -> tuple[Any, ...]:
        return ("ambient", self.name)

    def check(self, slots: Slots) -> bool:
        return bool(self.read() == self.value)


@final
@attrs.frozen(eq=False, repr=False)
class Predicate(Guard):
    """Anything else: `test(path)` is true. Slow; for what has no class of its own."""

    _text = "{0.text}"
    path: AccessPath
    test: Callable[[Any], bool] = attrs.field(metadata=_BY_ID)
    text: str
    location: CodeLocation | None = None

    def check(self, slots: Slots) -> bool:
        return self.test(self.path.resolve(slots))


def distinct(guards: Sequence[Guard]) -> list[Guard]:
    """The guards without repeats, in order."""
    seen: dict[tuple[Any, ...], Guard] = {}
    for guard in guards:
        seen.setdefault(guard.key(), guard)
    return list(seen.values())


@final
@attrs.frozen
class Miss:
    """Why a specialisation was not used.

    Attributes:
        guard: the guard that fails; None when a gathered path leads nowhere.
        expected, actual: what differs, as short text.
        location: the user's line that relied on it.
        text: one line for people.
    """

    guard: Guard | None
    expected: str
    actual: str
    location: CodeLocation | None
    text: str
