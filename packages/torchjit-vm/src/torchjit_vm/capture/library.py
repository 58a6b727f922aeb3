"""Functions of C modules written in Python, for the VM to interpret: lazy iterators, heaps, bisection, counting.

Source: the equivalents in the documentation of itertools; heapq and bisect have their own.
"""

from __future__ import annotations

import _bisect
import _collections  # type: ignore[import-not-found]
import _heapq
import functools
import importlib.util
import inspect
import itertools
import logging
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

__all__ = [
    "ITERATED",
    "ITERATORS",
    "REPLACED",
    "LruCache",
    "argument_spec",
    "backwards",
    "log_enabled",
    "log_plainly",
    "until",
]

_NOTHING: Any = object()
T = TypeVar("T")
R = TypeVar("R")


def _takewhile(predicate: Callable[[T], object], iterable: Iterator[T]) -> Iterator[T]:
    while (x := next(iterable, _NOTHING)) is not _NOTHING:
        if not predicate(x):
            return
        yield x


def _dropwhile(predicate: Callable[[T], object], iterable: Iterator[T]) -> Iterator[T]:
    dropping = True
    while (x := next(iterable, _NOTHING)) is not _NOTHING:
        if not dropping or not predicate(x):
            dropping = False
            yield x


def _compress(data: Iterator[T], selectors: Iterator[object]) -> Iterator[T]:
    while (d := next(data, _NOTHING)) is not _NOTHING and (s := next(selectors, _NOTHING)) is not _NOTHING:
        if s:
            yield d


def _filterfalse(predicate: Callable[[T], object] | None, iterable: Iterator[T]) -> Iterator[T]:
    while (x := next(iterable, _NOTHING)) is not _NOTHING:
        if not (x if predicate is None else predicate(x)):
            yield x


def _cycle(iterable: Iterator[T]) -> Iterator[T]:
    saved = []
    while (x := next(iterable, _NOTHING)) is not _NOTHING:
        saved.append(x)
        yield x
    while saved:
        yield from saved


def _accumulate(
    iterable: Iterator[T], func: Callable[[T, T], T] | None = None, *, initial: T | None = None
) -> Iterator[T]:
    total: Any = initial
    if initial is None:
        total = next(iterable, _NOTHING)
        if total is _NOTHING:
            return
    yield total
    while (x := next(iterable, _NOTHING)) is not _NOTHING:
        total = total + x if func is None else func(total, x)
        yield total


def _starmap(function: Callable[..., R], iterable: Iterator[Iterable[object]]) -> Iterator[R]:
    while (args := next(iterable, _NOTHING)) is not _NOTHING:
        yield function(*tuple(args))


def _pairwise(iterable: Iterator[T]) -> Iterator[tuple[T, T]]:
    a = next(iterable, _NOTHING)
    if a is _NOTHING:
        return
    while (b := next(iterable, _NOTHING)) is not _NOTHING:
        yield a, b
        a = b


def _islice(iterator: Iterator[T], *args: int | None) -> Iterator[T]:
    bounds = slice(*args)
    start = 0 if bounds.start is None else bounds.start
    stop = bounds.stop
    step = 1 if bounds.step is None else bounds.step
    at = 0
    wanted = start
    while stop is None or wanted < stop:
        while at < wanted:
            if next(iterator, _NOTHING) is _NOTHING:
                return
            at += 1
        x = next(iterator, _NOTHING)
        if x is _NOTHING:
            return
        at += 1
        yield x
        wanted += step
    while stop is not None and at < stop:
        if next(iterator, _NOTHING) is _NOTHING:
            return
        at += 1


def _zip_longest(*given: Iterator[T], fillvalue: T | None = None) -> Iterator[tuple[T | None, ...]]:
    iterators: list[Iterator[T] | None] = [*given]
    active = len(iterators)
    while active:
        row = []
        for i, iterator in enumerate(iterators):
            x = fillvalue if iterator is None else next(iterator, _NOTHING)
            if x is _NOTHING:
                active -= 1
                if not active:
                    return
                iterators[i] = None
                x = fillvalue
            row.append(x)
        yield tuple(row)


def _groupby(iterable: Iterator[T], key: Callable[[T], object] | None = None) -> Iterator[tuple[object, Iterator[T]]]:
    value = current = target = _NOTHING
    live: object = None  # the group that may still give items: none once the iterator over the groups went on

    def step() -> bool:
        nonlocal value, current
        new = next(iterable, _NOTHING)
        if new is _NOTHING:
            return False
        current = new if key is None else key(new)
        value = new
        return True

    def group(token: object, wanted: object) -> Iterator[T]:
        nonlocal value, current
        while live is token:
            if value is _NOTHING and not step():
                return
            if not (wanted is current or wanted == current):
                return
            found, value, current = value, _NOTHING, _NOTHING
            yield found

    while True:
        live = None
        while current is _NOTHING or (target is not _NOTHING and (target is current or target == current)):
            if not step():
                return
        target = current
        live = [target]
        yield target, group(live, target)


def until(function: Callable[[], T], sentinel: object) -> Iterator[T]:
    """`iter(function, sentinel)`."""
    while True:
        x = function()
        if sentinel is x or sentinel == x:
            return
        yield x


def backwards(sequence: Sequence[T], index: int) -> Iterator[T]:
    """`reversed(sequence)` of a class that only has `__getitem__`, from an index on."""
    while index >= 0:
        try:
            x = sequence[index]
        except (IndexError, StopIteration):
            return
        index -= 1
        yield x


def _tee_one(iterator: Iterator[T], mine: deque[T], everyone: list[deque[T]]) -> Iterator[T]:
    while True:
        if not mine:
            x = next(iterator, _NOTHING)
            if x is _NOTHING:
                return
            for queue in everyone:
                queue.append(x)
        yield mine.popleft()


def _tee(iterable: Iterable[T], n: int = 2) -> tuple[Iterator[T], ...]:
    if n < 0:
        raise ValueError("n must be >= 0")
    iterator = iter(iter(iterable)) if n else iter(())  # it is asked for one twice, as in CPython
    everyone: list[deque[T]] = [deque() for _ in range(n)]
    return tuple([_tee_one(iterator, mine, everyone) for mine in everyone])


def _count_elements(mapping: dict[T, int], iterable: Iterable[T]) -> None:
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1


def _written_in_python(name: str, without: str) -> dict[str, FunctionType]:
    """The functions of a module of the standard library, as they are where its half in C is missing, in a module of ours."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module, kept = importlib.util.module_from_spec(spec), sys.modules.get(without)
    sys.modules[without] = None  # type: ignore[assignment]  # what the import system takes for a missing module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[without]
        if kept is not None:
            sys.modules[without] = kept
    module.__name__ = f"{__name__}.{name}"
    sys.modules[module.__name__] = module  # stored entries look for its functions there
    functions = {n: f for n, f in vars(module).items() if type(f) is FunctionType}
    for function in functions.values():
        function.__code__ = function.__code__.replace(co_filename=__file__)
        function.__module__ = module.__name__
    return functions


def _of_full_heap(function: Callable[..., T]) -> Callable[..., T]:
    """Of an empty one C says this."""

    def run(heap: list[object], *item: object) -> T:
        if not heap:
            raise IndexError("index out of range")
        return function(heap, *item)

    return run


def _cached_property_get(self: Any, instance: Any, owner: Any = None) -> Any:
    # Without the lock of Python 3.11, which would have to be taken for real.
    if instance is None:
        return self
    members = instance.__dict__
    if self.attrname in members:
        return members[self.attrname]
    result = self.func(instance)
    members[self.attrname] = result
    return result


class LruCache:
    """What `functools.lru_cache` keeps. Source: bounded_lru_cache_wrapper in CPython's Modules/_functoolsmodule.c."""

    __slots__ = ("function", "hits", "maxsize", "memo", "misses", "typed")

    def __init__(self, function: Callable[..., object], maxsize: int | None, typed: object) -> None:
        self.function = function
        self.maxsize = None if maxsize is None else max(maxsize, 0)
        self.typed = bool(typed)
        self.memo: OrderedDict[object, tuple[object, object, object]] = OrderedDict()
        self.hits = self.misses = 0

    def key(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        if not self.typed and not kwargs and len(args) == 1 and type(args[0]) in (int, str):
            return args[0]
        key: tuple[object, ...] = args
        if kwargs:
            key += (_NOTHING,)
            for item in kwargs.items():
                key += item
        if self.typed:
            key += tuple([type(v) for v in args]) + tuple([type(v) for v in kwargs.values()])
        return (_NOTHING, key)

    def call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        if self.maxsize == 0:
            self.misses += 1
            return self.function(*args, **kwargs)
        key = self.key(args, kwargs)
        found = self.memo.get(key, _NOTHING)
        if found is not _NOTHING:
            self.hits += 1
            if self.maxsize is not None:
                self.memo.move_to_end(key)
            return found[2]
        self.misses += 1
        result = self.function(*args, **kwargs)
        if self.maxsize is not None and key in self.memo:
            return result
        self.memo[key] = (args, kwargs, result)
        if self.maxsize is not None and len(self.memo) > self.maxsize:
            self.memo.popitem(last=False)
        return result

    def info(self) -> tuple[int, int, int | None, int]:
        return self.hits, self.misses, self.maxsize, len(self.memo)

    def clear(self) -> None:
        self.memo.clear()
        self.hits = self.misses = 0

    def parameters(self, maxsize: object, typed: object) -> dict[str, object]:
        return {"maxsize": maxsize, "typed": typed}


class _Key:
    """What `functools.cmp_to_key` wraps an item in."""

    __slots__ = ("compare", "item")

    def __init__(self, item: object, compare: Callable[[Any, Any], float]) -> None:
        self.item, self.compare = item, compare

    def __lt__(self, other: _Key) -> bool:
        return bool(self.compare(self.item, other.item) < 0)


def _cmp_to_key(mycmp: Callable[[Any, Any], float]) -> Callable[[object], _Key]:
    return lambda item: _Key(item, mycmp)


def argument_spec(function: FunctionType) -> inspect.FullArgSpec:
    """`inspect.getfullargspec` of a function without a `__signature__` of its own."""
    code, given, keywords = function.__code__, function.__annotations__, function.__kwdefaults__ or {}
    ends = (code.co_argcount, code.co_argcount + code.co_kwonlyargcount)
    names = code.co_varnames
    args, only, rest = list(names[: ends[0]]), list(names[ends[0] : ends[1]]), list(names[ends[1] :])
    varargs = rest.pop(0) if code.co_flags & inspect.CO_VARARGS else None
    varkw = rest[0] if code.co_flags & inspect.CO_VARKEYWORDS else None
    return inspect.FullArgSpec(
        args,
        varargs,
        varkw,
        function.__defaults__ or None,
        only,
        {name: keywords[name] for name in only if name in keywords} or None,
        {name: given[name] for name in ("return", *args, varargs, *only, varkw) if name in given},
    )


def log_enabled(logger: logging.Logger, level: int) -> bool:
    """`logger.isEnabledFor(level)` without its cache and its lock."""
    if logger.disabled or logger.manager._disable >= level:  # type: ignore[attr-defined]  # the property `disable` converts names when it is set
        return False
    at: logging.Logger | None = logger
    while at is not None:
        if at.level:
            return bool(level >= at.level)
        at = at.parent
    return level >= 0


def log_plainly(logger: logging.Logger) -> bool:
    """Are records of this logger handled by logging's own handlers only?"""
    at: logging.Logger | None = logger
    while at is not None:
        if at.filters:
            return False
        for handler in at.handlers:
            if type(handler).__module__ not in ("logging", "logging.handlers") or handler.filters:
                return False
            if handler.formatter is not None and type(handler.formatter).__module__ != "logging":
                return False
        if not at.propagate:
            break
        at = at.parent
    return True


ITERATORS: dict[object, Callable[..., object]] = {
    itertools.takewhile: _takewhile,
    itertools.dropwhile: _dropwhile,
    itertools.compress: _compress,
    itertools.filterfalse: _filterfalse,
    itertools.cycle: _cycle,
    itertools.accumulate: _accumulate,
    itertools.starmap: _starmap,
    itertools.pairwise: _pairwise,
    itertools.islice: _islice,
    itertools.zip_longest: _zip_longest,
    itertools.groupby: _groupby,
}
"""C iterator classes to generator functions that do the same, given iterators."""
REPLACED: dict[object, Callable[..., object]] = {
    itertools.tee: _tee,
    _collections._count_elements: _count_elements,
    functools.cached_property.__get__: _cached_property_get,
    functools.cmp_to_key: _cmp_to_key,
}
"""C functions to functions that do the same."""
for _name, _c in (("heapq", _heapq), ("bisect", _bisect)):
    for _key, _function in _written_in_python(_name, _c.__name__).items():
        _takes_out = _key.strip("_").removesuffix("_max") in ("heappop", "heapreplace")
        if type(_original := getattr(_c, _key, None)) is BuiltinFunctionType:
            REPLACED[_original] = _of_full_heap(_function) if _takes_out else _function
ITERATED: dict[str, tuple[int, ...]] = {
    "takewhile": (1,),
    "dropwhile": (1,),
    "filterfalse": (1,),
    "starmap": (1,),
    "compress": (0, 1),
}
"""Which arguments of these classes are iterated over; of the others the first one is."""
