"""What emitted code calls to rebuild objects that have no literal."""

from __future__ import annotations

import _thread
import contextlib
import functools
import random
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from types import CellType, CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

from torchjit_core.location import CodeLocation
from torchjit_core.paths import own_attr
from torchjit_vm.type_labels import type_label

__all__ = [
    "END",
    "advanced",
    "chained",
    "discard",
    "discard_local",
    "drop_entries",
    "fill_dict",
    "function",
    "list_iterator",
    "lru_cached",
    "new",
    "random_generator",
    "restore",
    "resume_enter",
    "shuffled",
    "sought",
    "stale_iterator",
    "store_local",
    "suspended",
    "trace",
    "warn",
]


class _End:
    def __repr__(self) -> str:
        return "END"


END = _End()
"""What `next` gives at the end of an iterator."""


def lru_cached(
    maxsize: int | None,
    typed: bool,
    function: Callable[..., object],
    entries: list[tuple[tuple[object, ...], dict[str, object], object]],
    hits: int,
    misses: int,
) -> Callable[..., object]:
    """A function with an LRU cache that holds `entries` (arguments, keywords, result; oldest first) after so many hits and misses."""
    results: list[object] = []

    def remembered(*args: object, **kwargs: object) -> object:
        return results.pop()  # or raises, which counts as a miss and leaves nothing behind

    below: Any = functools.partial(remembered)
    made: Any = functools._lru_cache_wrapper(below, maxsize, typed, functools._CacheInfo)  # type: ignore[call-arg]
    for _ in range(misses - len(entries)):
        with contextlib.suppress(IndexError):
            made()
    for args, kwargs, result in entries:
        results.append(result)
        made(*args, **kwargs)
    for _ in range(hits):
        made(*entries[-1][0], **entries[-1][1])
    below.__setstate__((function, (), {}, None))
    made.cache_parameters = lambda: {"maxsize": maxsize, "typed": typed}
    return functools.update_wrapper(made, function)


def restore(obj: object, attributes: dict[str, object]) -> None:
    """Give a new object its attributes, past any `__setattr__` and `__getattribute__` of its class."""
    members: dict[str, object] | None = None
    with contextlib.suppress(AttributeError):
        members = own_attr(obj, "__dict__")
    mro: tuple[type, ...] = type.__dict__["__mro__"].__get__(type(obj))  # past what a metaclass says
    for name, value in attributes.items():
        descriptor = next((c.__dict__[name] for c in mro if name in c.__dict__), None)
        if members is None or isinstance(descriptor, (MemberDescriptorType, GetSetDescriptorType)):
            object.__setattr__(obj, name, value)
        else:  # under the name of a property, too
            members[name] = value


def discard(obj: object, name: str) -> None:
    """Delete an attribute that may be there."""
    with contextlib.suppress(AttributeError):
        object.__delattr__(obj, name)


def store_local(obj: _thread._local, name: str, value: object) -> None:
    """Store an attribute of a `threading.local`, past any `__setattr__` of its class."""
    _thread._local.__setattr__(obj, name, value)


def discard_local(obj: _thread._local, name: str) -> None:
    """Delete an attribute of a `threading.local` that may be there."""
    with contextlib.suppress(AttributeError):
        _thread._local.__delattr__(obj, name)


def new(base: type, cls: type, *args: object) -> Any:
    """An instance of `cls` made by the `__new__` of its C base."""
    return base.__new__(cls, *args)


def grown_set(first: Iterable[object], rest: Iterable[object]) -> set[object]:
    """A set that is given room for some elements at once; the others are added one by one."""
    made = set(dict.fromkeys(first))
    for element in rest:
        made.add(element)
    return made


def fill_dict(
    base: type[dict[object, object]], target: dict[object, object], pairs: Iterable[tuple[object, object]]
) -> None:
    """Store pairs in a dict subclass, past any `__setitem__` of its class."""
    store = base.__setitem__
    for key, value in pairs:
        store(target, key, value)


def function(
    code: CodeType,
    globals: dict[str, object],
    names: tuple[str, str],
    defaults: tuple[object, ...],
    closure: tuple[CellType, ...],
) -> FunctionType:
    """A function as MAKE_FUNCTION makes it."""
    made = FunctionType(code, globals, names[0], defaults or None, closure)
    made.__qualname__ = names[1]
    return made


def list_iterator(sequence: Iterable[object], index: int) -> Iterator[object]:
    """A real iterator over a list, tuple or range, at an index."""
    iterator = iter(sequence)
    iterator.__setstate__(index)  # type: ignore[attr-defined]  # those of C have it
    return iterator


def reversed_iterator(sequence: list[object], index: int) -> Iterator[object]:
    """`reversed(sequence)` of a list, at an index."""
    iterator = list.__reversed__(sequence)
    iterator.__setstate__(index)  # type: ignore[attr-defined]
    return iterator


def advanced(iterator: Iterator[object], count: int) -> Iterator[object]:
    """An iterator that has given `count` items."""
    for _ in range(count):
        next(iterator)
    return iterator


def stale_iterator(owner: Any, size: int) -> Any:
    """An iterator over a dict, set or deque that will have `size` items, and had others when the iterator was made: it raises."""
    if isinstance(owner, deque):
        iterator = deque.__iter__(owner)
        items = list(iterator)
        iterator = deque.__iter__(owner)
        deque.clear(owner)
        deque.extend(owner, items)
        return iterator
    base: Any = OrderedDict if isinstance(owner, OrderedDict) else dict if isinstance(owner, dict) else set
    if base.__len__(owner) != size:
        return base.__iter__(owner)
    marker = object()
    if base is set:
        set.add(owner, marker)
        iterator = set.__iter__(owner)
        set.discard(owner, marker)
    else:
        base.__setitem__(owner, marker, None)
        iterator = base.__iter__(owner)
        base.__delitem__(owner, marker)
    return iterator


def set_context(error: BaseException, context: BaseException | None) -> None:
    """As the interpreter does it, past any `__setattr__` of the class (that of a frozen dataclass raises)."""
    object.__setattr__(error, "__context__", context)


def trace(error: BaseException, raiser: Callable[[BaseException], object]) -> None:
    """Give a new exception the traceback that `raiser(error)` leaves, which raises it below the frames that it came through."""
    context = error.__context__
    try:
        raiser(error)
    except BaseException:
        set_context(error, context)
    drop_entries(error, 1)  # this function's


def chained(error: BaseException, context: BaseException) -> None:
    """Give an exception that was raised its context back; what the caller handles is that of the first one in its chain."""
    handled = error.__context__
    set_context(error, context)
    if handled is None or handled is context:
        return
    outer: BaseException | None = handled
    link = context
    seen = {error}
    while (following := link.__context__) is not None and link not in seen:
        seen.add(link)
        link = following
    while outer is not None and outer is not link and outer not in seen:
        seen.add(outer)
        outer = outer.__context__
    if outer is None:
        set_context(link, handled)


def drop_entries(error: BaseException, count: int) -> BaseException:
    """Take the outermost entries of a traceback away: frames that emitted code catches for are the first ones there."""
    entry = error.__traceback__
    for _ in range(count):
        entry = None if entry is None else entry.tb_next
    return error.with_traceback(entry)


def sought(error: AttributeError, obj: object, name: str) -> None:
    """Set `name` and `obj` of an error that leaves a lookup, as the lookup does, unless it has them."""
    if error.name is None and error.obj is None:
        error.name, error.obj = name, obj


def suspended(function: Callable[..., Iterator[object]], *slots: object) -> Iterator[object]:
    """A generator that stands at a `yield`; `function` is one of `suspended_function`."""
    generator = function(*slots)
    next(generator)
    return generator


def exhausted(name: str, qualname: str) -> Any:
    """A generator that has ended."""
    nothing: tuple[object, ...] = ()
    generator: Any = (item for item in nothing)
    next(generator, None)
    generator.__name__, generator.__qualname__ = name, qualname
    return generator


def shuffled(generator: random.Random, items: Iterable[object]) -> list[object]:
    """The items in an order that the generator draws."""
    made = list(items)
    generator.shuffle(made)
    return made


def random_generator(state: tuple[object, ...]) -> random.Random:
    """A generator in a state."""
    made = random.Random()
    made.setstate(state)
    return made


def warn(text: str, category: type[Warning], where: CodeLocation, globals: dict[str, Any]) -> None:
    """`warnings.warn`, about a line of a module: a location, which an entry on disk moves with its function."""
    registry = globals.setdefault("__warningregistry__", {})
    module = globals.get("__name__") or "<string>"
    warnings.warn_explicit(text, category, where.filename, where.lineno, module, registry)


def resume_enter(manager: object) -> tuple[object, object]:
    """The bound `__exit__` and `__enter__` of what a with statement is about to enter.

    Raises:
        TypeError: its class has none.
    """
    cls = type(manager)
    text = f"'{type_label(cls)}' object does not support the context manager protocol"
    enter = _bound_special(manager, "__enter__", text)
    return _bound_special(manager, "__exit__", f"{text} (missed __exit__ method)"), enter


def _bound_special(manager: object, name: str, missing: str) -> object:
    cls = type(manager)
    for base in cls.__mro__:
        if name in vars(base):
            method = vars(base)[name]
            bind = getattr(type(method), "__get__", None)
            return method if bind is None else bind(method, manager, cls)
    raise TypeError(missing)
