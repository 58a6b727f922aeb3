"""Where a value came from: access paths.

An access path names one object as the guards and the emitted code can find it again on a later call: a root
(an argument slot, or an object that is kept alive) followed by steps (attribute, item, cell, tensor size ...).
Paths are interned: two equal paths are one object, so they compare and hash by identity.

Glossary: Dynamo calls this a *Source*.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, WrapperDescriptorType
from typing import Any, ClassVar, TypeVar, final
from weakref import ReferenceType, WeakValueDictionary

__all__ = [
    "AccessPath",
    "Arg",
    "Attr",
    "Cell",
    "Computed",
    "Drawn",
    "InstanceAttr",
    "Item",
    "OffsetOf",
    "Pinned",
    "Referent",
    "SizeOf",
    "StrideOf",
    "TypeOf",
    "own_attr",
]

_P = TypeVar("_P", bound="AccessPath")


class AccessPath:
    """A root, or a step from another path (`base`). Abstract: use the final classes below."""

    __slots__ = ("__weakref__", "base", "key")
    _interned: ClassVar[WeakValueDictionary[tuple[Any, ...], AccessPath]] = WeakValueDictionary()

    _text: ClassVar[str]
    """The path as Python, a format of the path itself."""

    base: AccessPath | None
    key: Any

    def __init__(self) -> None:
        raise TypeError("build paths with Class.of(...) or the step methods, so that they are interned")

    @classmethod
    def _intern(cls: type[_P], base: AccessPath | None, key: Any, identity: tuple[Any, ...]) -> _P:
        # 1, True and 1.0 are equal and hash alike, hence the type; bases are interned, hence their id.
        lookup = (cls, id(base), *identity)
        found = AccessPath._interned.get(lookup)
        if found is None:
            found = object.__new__(cls)
            found.base = base
            found.key = key
            AccessPath._interned[lookup] = found
        return found  # type: ignore[return-value]  # the lookup key holds the class

    def attr(self, name: str) -> Attr:
        """The path of `getattr(self, name)`, the attribute protocol without a `__getattribute__` in Python."""
        return Attr._intern(self, name, (name,))

    def instance_attr(self, name: str) -> InstanceAttr:
        """The path of `self.__dict__[name]`, with no descriptor consulted."""
        return InstanceAttr._intern(self, name, (name,))

    def item(self, key: Any) -> Item:
        """The path of the item that a list, tuple, dict or deque stores under `key`, which must be hashable."""
        try:
            return Item._intern(self, key, (type(key), key))
        except TypeError:
            return Item._intern(self, key, (type(key), id(key)))

    def cell(self) -> Cell:
        """The path of `self.cell_contents`."""
        return Cell._intern(self, None, ())

    def type_of(self) -> TypeOf:
        """The path of `type(self)`."""
        return TypeOf._intern(self, None, ())

    def referent(self) -> Referent:
        """The path of what the weak reference `self` leads to."""
        return Referent._intern(self, None, ())

    def computed(self, function: Callable[[Any], Any]) -> Computed:
        """The path of `function(self)`; the function must have no effects, and stays alive with the path."""
        return Computed._intern(self, function, (function,))

    def size(self, dim: int) -> SizeOf:
        """The path of the tensor's `size(dim)`, an int."""
        return SizeOf._intern(self, dim, (dim,))

    def stride(self, dim: int) -> StrideOf:
        """The path of the tensor's `stride(dim)`, an int."""
        return StrideOf._intern(self, dim, (dim,))

    def offset(self) -> OffsetOf:
        """The path of the tensor's `storage_offset()`, an int."""
        return OffsetOf._intern(self, None, ())

    def root(self) -> AccessPath:
        """The first path of the chain, an `Arg` or a `Pinned`."""
        path = self
        while path.base is not None:
            path = path.base
        return path

    def steps(self) -> tuple[AccessPath, ...]:
        """The chain from the root to this path, both included."""
        chain: list[AccessPath] = []
        path: AccessPath | None = self
        while path is not None:
            chain.append(path)
            path = path.base
        return tuple(reversed(chain))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return self._text.format(self)

    def resolve(self, slots: tuple[Any, ...] | list[Any]) -> Any:
        """Find the object by plain Python, the reference for the C guard program.

        Args:
            slots: the objects in the argument slots of the region.

        Raises:
            Whatever the walk meets: AttributeError, KeyError, IndexError, ValueError (an empty cell).
        """
        if self.base is None:
            raise TypeError(f"{type(self).__name__} needs a base")
        return self._step(self.base.resolve(slots))

    def _step(self, base: Any) -> Any:
        """The object that the last step leads to from the one before; roots have a `resolve` of their own."""
        raise NotImplementedError


def own_attr(obj: Any, name: str) -> Any:
    """`getattr(obj, name)`, past a `__getattribute__` in Python.

    Raises:
        AttributeError: there is no such attribute.
    """
    if isinstance(type(obj).__getattribute__, WrapperDescriptorType):
        return getattr(obj, name)
    cls = type(obj)  # `isinstance` would ask the object for its class
    past = type if issubclass(cls, type) else ModuleType if issubclass(cls, ModuleType) else object
    return past.__getattribute__(obj, name)


@final
class Arg(AccessPath):
    """A root: the object in argument slot `key` (`name` is for people).

    `forwarded` tells, of an `*args` or `**kwargs` that a wrapper passes on, the names of the positional parameters behind it,
    the last one with a `*` if it takes the rest: people know their arguments by those.
    """

    __slots__ = ("forwarded", "name")
    name: str
    forwarded: tuple[str, ...] | None

    @staticmethod
    def of(index: int, name: str, forwarded: tuple[str, ...] | None = None) -> Arg:
        path = Arg._intern(None, index, (index, name, forwarded))
        path.name, path.forwarded = name, forwarded
        return path

    def item_name(self, key: Any) -> str:
        """What people call the item under the key."""
        if self.forwarded is not None:
            if type(key) is str:
                return key
            if type(key) is int and key >= 0:
                plain = [name for name in self.forwarded if not name.startswith("*")]
                if key < len(plain):
                    return plain[key]
                if len(plain) < len(self.forwarded):
                    return f"{self.forwarded[-1][1:]}[{key - len(plain)}]"
        return f"{self.name}[{key!r}]"

    def resolve(self, slots: tuple[Any, ...] | list[Any]) -> Any:
        return slots[self.key]

    def __str__(self) -> str:
        return self.name


@final
class Pinned(AccessPath):
    """A root: the very object `key`, kept alive by this path. `label` is a Python expression for people."""

    __slots__ = ("label",)
    label: str

    @staticmethod
    def of(obj: Any, label: str) -> Pinned:
        path = Pinned._intern(None, obj, (id(obj),))
        path.label = label
        return path

    def resolve(self, slots: tuple[Any, ...] | list[Any]) -> Any:
        return self.key

    def __str__(self) -> str:
        return self.label


@final
class Drawn(AccessPath):
    """A root: what emitted code computes before the graph runs (a random number, number `key`). No guard can reach it."""

    __slots__ = ()

    @staticmethod
    def of(index: int) -> Drawn:
        return Drawn._intern(None, index, (index,))

    def resolve(self, slots: tuple[Any, ...] | list[Any]) -> Any:
        raise LookupError(f"{self} is not there before the region runs")

    def __str__(self) -> str:
        return f"d{self.key}"


@final
class Attr(AccessPath):
    """`getattr(base, key)`, past a `__getattribute__` in Python: a region follows that one and names the place it found."""

    __slots__ = ()
    _text = "{0.base}.{0.key}"

    def _step(self, base: Any) -> Any:
        return own_attr(base, self.key)


@final
class InstanceAttr(AccessPath):
    """`base.__dict__[key]`."""

    __slots__ = ()
    _text = "{0.base}.{0.key}"

    def _step(self, base: Any) -> Any:
        return object.__getattribute__(base, "__dict__")[self.key]


@final
class Item(AccessPath):
    """`base[key]` of a list, tuple, dict or deque: the item that is stored, past a subclass's own `__getitem__`."""

    __slots__ = ()

    def _step(self, base: Any) -> Any:
        if isinstance(base, dict):
            if not dict.__contains__(base, self.key):
                raise KeyError(self.key)  # past `__missing__`, too
            return dict.__getitem__(base, self.key)
        if isinstance(base, list):
            return list.__getitem__(base, self.key)
        if isinstance(base, tuple):
            return tuple.__getitem__(base, self.key)
        return base[self.key]

    def __str__(self) -> str:
        return self.base.item_name(self.key) if isinstance(self.base, Arg) else f"{self.base}[{self.key!r}]"


@final
class Cell(AccessPath):
    """`base.cell_contents`."""

    __slots__ = ()
    _text = "{0.base}.cell_contents"

    def _step(self, base: Any) -> Any:
        return base.cell_contents


@final
class TypeOf(AccessPath):
    """`type(base)`."""

    __slots__ = ()
    _text = "type({0.base})"

    def _step(self, base: Any) -> Any:
        return type(base)


@final
class Referent(AccessPath):
    """`base()`, of a `weakref.ref` whose object is alive."""

    __slots__ = ()
    _text = "{0.base}()"

    def _step(self, base: Any) -> Any:
        found = ReferenceType.__call__(base)
        if found is None:
            raise ReferenceError(f"{self.base} is dead")
        return found


@final
class Computed(AccessPath):
    """`key(base)`: what a function tells of an object that no other step leads to (the value of a context variable ...)."""

    __slots__ = ()

    def _step(self, base: Any) -> Any:
        return self.key(base)

    def __str__(self) -> str:
        return f"{self.key.__name__.lstrip('_')}({self.base})"


@final
class SizeOf(AccessPath):
    """`base.size(key)` of a tensor."""

    __slots__ = ()
    _text = "{0.base}.size({0.key})"

    def _step(self, base: Any) -> Any:
        return base.size(self.key)


@final
class StrideOf(AccessPath):
    """`base.stride(key)` of a tensor."""

    __slots__ = ()
    _text = "{0.base}.stride({0.key})"

    def _step(self, base: Any) -> Any:
        return base.stride(self.key)


@final
class OffsetOf(AccessPath):
    """`base.storage_offset()` of a tensor."""

    __slots__ = ()
    _text = "{0.base}.storage_offset()"

    def _step(self, base: Any) -> Any:
        return base.storage_offset()
