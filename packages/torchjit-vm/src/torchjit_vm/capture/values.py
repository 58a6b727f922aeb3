"""The values of the capture domain: final, slotted, without behaviour of their own.

`Const` and `Known` stand for objects whose identity or value is settled. `Obj` and its subclasses stand for objects with
state: real ones, reached by an access path and read lazily, and new ones, made in the region. One `Obj` stands for one
object, so a store is seen by every later read; what changed on real objects is written back at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import attrs

if TYPE_CHECKING:
    from torchjit_core.paths import AccessPath
    from torchjit_vm.frame import Frame

__all__ = [
    "DELETED",
    "NEW",
    "Args",
    "AtomObject",
    "BoundMethod",
    "CellValue",
    "Const",
    "DictValue",
    "DictView",
    "FunctionValue",
    "GeneratorValue",
    "HashKey",
    "IdKey",
    "IdValue",
    "InstanceDict",
    "Key",
    "Known",
    "Kwargs",
    "Leaf",
    "ListValue",
    "Mirror",
    "Obj",
    "Ref",
    "SetValue",
    "SliceValue",
    "SuperValue",
    "TracebackValue",
    "TupleValue",
    "Value",
    "WeakKey",
]

Key: TypeAlias = Hashable
"""What dicts and sets find a value by (`keys.key_of`)."""
Args: TypeAlias = "list[Value]"
Kwargs: TypeAlias = "dict[str, Value]"


class Value:
    """Base of all values."""

    __slots__ = ()


@final
class _Marker(Value):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


NEW: Final[Any] = _Marker("NEW")
"""`Obj.real` of an object that the region makes."""
DELETED: Final[Value] = _Marker("DELETED")
"""In an overlay: the attribute or key is not there."""


@final
class Const(Value):
    """An immutable value. With a path it is guarded when it is first used (`used`).

    `made` is what emitted code makes it with, a function and its arguments, where it depends on numbers that vary between
    calls: `value` is what it is at capture, and its first use fixes those numbers.
    """

    __slots__ = ("made", "path", "used", "value")

    def __init__(self, value: Any, path: AccessPath | None = None) -> None:
        self.value = value
        self.path = path
        self.used = path is None
        self.made: tuple[Callable[..., object], tuple[Value, ...]] | None = None

    def __repr__(self) -> str:
        return f"Const({self.value!r})"


@final
class Known(Value):
    """A function, class, module or another object whose identity is settled (guarded, or constant).

    `attrs` caches its attributes and holds stores to them; `written` as in `Obj`.
    """

    __slots__ = ("attrs", "obj", "written")

    def __init__(self, obj: Any) -> None:
        self.obj = obj
        self.attrs: dict[str, Value] = {}
        self.written: dict[str, Value | None] | None = None

    def __repr__(self) -> str:
        return f"Known({self.obj!r})"


@final
class Leaf(Value):
    """A value that only the leaf handler knows. `path` leads to the real object if it is an input.

    `attrs` are the attributes that the region stored on it and the handler does not know of; None if there are none.
    """

    __slots__ = ("attrs", "path", "payload", "real")

    def __init__(self, payload: Any, path: AccessPath | None = None, real: Any = NEW) -> None:
        self.payload = payload
        self.path = path
        self.real = real
        self.attrs: dict[str, Value] | None = None

    def __repr__(self) -> str:
        return f"Leaf({self.payload!r})"


class Obj(Value):
    """An object with identity and attributes.

    Attributes:
        cls: its class.
        real: the real object, or NEW.
        path: how a real object is reached.
        attrs: attributes read or stored so far, in `__dict__` or slots; DELETED where there is none.
        written: attributes stored or deleted, in order of their first store, to what the region read there before:
            a value, DELETED (it relies on there being none), or None if it did not look. None if there are none.
    """

    __slots__ = ("attrs", "cls", "path", "real", "written")

    def __init__(self, cls: type, real: Any = NEW, path: AccessPath | None = None) -> None:
        self.cls = cls
        self.real = real
        self.path = path
        self.attrs: dict[str, Value] = {}
        self.written: dict[str, Value | None] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.cls.__name__}{', new' if self.real is NEW else ''})"


@final
class ListValue(Obj):
    """A list, or a deque, or an instance of a subclass. `items` is None until a real one is read.

    `limit` is the `maxlen` of a new deque, `before` the items at the first change, `added` what was appended to a real one that
    was not read: it comes behind whatever a later call finds there.
    """

    __slots__ = ("added", "before", "items", "limit")

    def __init__(
        self, items: list[Value] | None, cls: type = list, real: Any = NEW, path: AccessPath | None = None
    ) -> None:
        Obj.__init__(self, cls, real, path)
        self.items = items
        self.added: list[Value] = []
        self.before: list[Value] | None = None
        self.limit: int | None = None


@final
class TupleValue(Obj):
    """A tuple or an instance of a subclass."""

    __slots__ = ("items",)

    def __init__(
        self, items: list[Value] | None, cls: type = tuple, real: Any = NEW, path: AccessPath | None = None
    ) -> None:
        Obj.__init__(self, cls, real, path)
        self.items = items


class _ByIdentity:
    """A key that compares by the identity of its value, with keys of its own class."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, _ByIdentity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@final
class Ref(_ByIdentity):
    """A dict key or set element that compares by the identity of its value (leaves, new objects)."""

    __slots__ = ()


@final
class IdKey(_ByIdentity):
    """The key of an `IdValue`, of its target: no int of a real dict is equal to it."""

    __slots__ = ()


@final
class DictValue(Obj):
    """A dict or an instance of a subclass; or a read-only view of one, which shares its entries.

    Attributes:
        entries: key to (key value, value). Complete if `loaded`; else what was read or stored, None for absent.
        loaded: all keys are known.
        changed: keys stored or deleted, in order of the first store, to what was there before, as in `Obj.written`;
            None if there are none.
        factory: `default_factory` of a defaultdict.
        behind: the dict that a read-only view shows, if it is one that may change.
        removed: keys that were deleted at some time, so that a later store puts them at the end.
    """

    __slots__ = ("behind", "changed", "entries", "factory", "loaded", "removed")

    def __init__(self, cls: type = dict, real: Any = NEW, path: AccessPath | None = None) -> None:
        Obj.__init__(self, cls, real, path)
        self.entries: dict[Key, tuple[Value, Value] | None] = {}
        self.loaded = real is NEW
        self.changed: dict[Key, Value | None] | None = None
        self.factory: Value | None = None
        self.behind: DictValue | None = None
        self.removed: set[Key] = set()

    @classmethod
    def of_names(cls, content: Mapping[str, Value]) -> DictValue:
        """A new dict whose keys are texts."""
        made = cls()
        made.entries = {name: (Const(name), value) for name, value in content.items()}
        return made


@final
class SetValue(Obj):
    """A set or frozenset: element key to element.

    `layout` is a set of the keys that was made as CPython makes this one, which decides the order of iteration; None if
    the elements were added one by one.
    """

    __slots__ = ("changed", "entries", "layout")

    def __init__(
        self, entries: dict[Key, Value] | None, cls: type = set, real: Any = NEW, path: AccessPath | None = None
    ) -> None:
        Obj.__init__(self, cls, real, path)
        self.entries = entries
        self.changed = False
        self.layout: set[Key] | None = None


@final
class AtomObject(Obj):
    """An instance of a subclass of str, int, float, complex or bytes.

    `base` is what it is without its class, a constant; None until a real one is looked at.
    """

    __slots__ = ("base",)

    def __init__(self, base: Const | None, cls: type, real: Any = NEW, path: AccessPath | None = None) -> None:
        Obj.__init__(self, cls, real, path)
        self.base = base


@final
class Mirror(Obj):
    """An object of C, of which the region keeps a real copy that operations are computed on (`mirrors`).

    `data` is the copy, None until a real object is looked at; `before` what that held.
    """

    __slots__ = ("before", "data")

    def __init__(self, data: Any, cls: type, real: Any = NEW, path: AccessPath | None = None) -> None:
        Obj.__init__(self, cls, real, path)
        self.data = data
        self.before: Any = None


@final
class CellValue(Value):
    """A closure cell. `content` is None while empty; a real one is read when `loaded` is False.

    `before` is what the region read before its first store; None if it did not look.
    """

    __slots__ = ("before", "changed", "content", "loaded", "path", "real")

    def __init__(self, content: Value | None, real: Any = NEW, path: AccessPath | None = None) -> None:
        self.content = content
        self.real = real
        self.path = path
        self.loaded = real is NEW
        self.changed = False
        self.before: Value | None = None


@final
class FunctionValue(Obj):
    """A function made in the region, or a real one that is identified by its code rather than by identity."""

    __slots__ = ("annotations", "closure", "code", "defaults", "globals", "kwdefaults", "name", "qualname")

    def __init__(self, cls: type, code: CodeType, globals: dict[str, object]) -> None:
        Obj.__init__(self, cls)
        self.code = code
        self.globals = globals
        self.name = code.co_name
        self.qualname = code.co_qualname
        self.defaults: list[Value] = []
        self.kwdefaults: DictValue | None = None
        self.closure: list[Value] = []
        self.annotations: Value | None = None


@final
@attrs.define(eq=False, weakref_slot=False)
class BoundMethod(Value):
    """`function` bound to `self_`."""

    function: Value
    self_: Value


@final
@attrs.define(eq=False, weakref_slot=False)
class IdValue(Value):
    """`id(target)` of an object that is made in the region, or of a leaf: it can be compared and be a key.

    `function` is `id`, or `hash`, whose result is of use in a `__hash__`, or draws a number of its own for each target.
    """

    target: Value
    function: Callable[..., object] = id


@final
@attrs.define(eq=False, weakref_slot=False)
class TracebackValue(Value):
    """`exception.__traceback__` of an exception that was raised in the region, when it had come through `depth` frames."""

    exception: Value
    depth: int


@final
class WeakKey:
    """The key of a weak reference: that of what it leads to, as references compare, and unlike it."""

    __slots__ = ("key", "reference")

    def __init__(self, key: Key, reference: Obj) -> None:
        self.key, self.reference = key, reference

    def __eq__(self, other: object) -> bool:
        return type(other) is WeakKey and other.key == self.key

    def __hash__(self) -> int:
        return hash(("weak", self.key))


@final
class HashKey:
    """The key of an object whose class hashes and compares in Python.

    `equal` takes another key of the same hash, this object, and whether this one is on the left (as CPython has the key of
    the container), and interprets `__eq__`.

    What looks for a key and then stores or removes it finds it twice where CPython does once: until it is stored, a new key
    remembers in `answers` what it was compared with.
    """

    __slots__ = ("answers", "equal", "number", "value")

    def __init__(self, value: Value, number: int, equal: Callable[[Key, Value, bool], bool]) -> None:
        self.value, self.number, self.equal = value, number, equal
        self.answers: list[tuple[Key, bool]] | None = []

    def __eq__(self, other: object) -> bool:
        if type(other) is not HashKey:
            return self.equal(other, self.value, self.answers is None)
        if other.value is self.value:
            return True
        for stored, answer in other.answers or ():
            if stored is self:
                return answer
        answer = self.equal(other, self.value, True)
        if other.answers is not None:
            other.answers.append((self, answer))
        return answer

    def __hash__(self) -> int:
        return self.number


@final
@attrs.define(eq=False, weakref_slot=False)
class SliceValue(Value):
    """`slice(start, stop, step)`."""

    start: Value
    stop: Value
    step: Value


@final
@attrs.define(eq=False, weakref_slot=False)
class SuperValue(Value):
    """`super(cls, self_)`; `owner` is the type whose mro is searched."""

    cls: type
    owner: type
    self_: Value


@final
@attrs.define(eq=False, weakref_slot=False)
class DictView(Value):
    """`d.keys()`, `d.values()` or `d.items()`."""

    target: DictValue
    kind: str


@final
@attrs.define(eq=False, weakref_slot=False)
class InstanceDict(Value):
    """`obj.__dict__`: a window on the attributes of an object."""

    owner: Obj


@final
@attrs.define(eq=False, weakref_slot=False)
class GeneratorValue(Value):
    """A generator whose body is interpreted.

    `original` is what it stands for, if that is a C iterator: the class and the arguments.
    """

    frame: Frame[Value]
    born: int
    handled: Value | None = None
    original: tuple[Callable[..., object], list[Value], dict[str, Value]] | None = None
    started: bool = False
    running: bool = False
    finished: bool = False
