"""Functions of C modules written in Python, for the VM to interpret: lazy iterators, heaps, bisection, counting.

Source: the equivalents in the documentation of itertools, and CPython's Lib/heapq.py, Lib/bisect.py.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from typing import Any, AnyStr, Protocol, TypeVar

__all__ = [
    "ITERATED",
    "ITERATORS",
    "REPLACED",
    "LruCache",
    "backwards",
    "log_enabled",
    "log_plainly",
    "substitute",
    "until",
]

_NOTHING: Any = object()
T = TypeVar("T")
R = TypeVar("R")


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=_Ordered)


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


def _until(function: Callable[[], T], sentinel: object) -> Iterator[T]:
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


def _heappush(heap: list[K], item: K) -> None:
    heap.append(item)
    _sift_down(heap, 0, len(heap) - 1)


def _heappop(heap: list[K]) -> K:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if heap:
        first = heap[0]
        heap[0] = last
        _sift_up(heap, 0)
        return first
    return last


def _heapreplace(heap: list[K], item: K) -> K:
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    _sift_up(heap, 0)
    return first


def _heappushpop(heap: list[K], item: K) -> K:
    if heap and heap[0] < item:
        item, heap[0] = heap[0], item
        _sift_up(heap, 0)
    return item


def _heapify(heap: list[K]) -> None:
    for i in reversed(range(len(heap) // 2)):
        _sift_up(heap, i)


def _sift_down(heap: list[K], start: int, at: int) -> None:
    new = heap[at]
    while at > start:
        above = (at - 1) >> 1
        if not new < heap[above]:
            break
        heap[at] = heap[above]
        at = above
    heap[at] = new


def _sift_up(heap: list[K], at: int) -> None:
    end, start, new = len(heap), at, heap[at]
    child = 2 * at + 1
    while child < end:
        right = child + 1
        if right < end and not heap[child] < heap[right]:
            child = right
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = new
    _sift_down(heap, start, at)


def _heapify_max(heap: list[K]) -> None:
    for i in reversed(range(len(heap) // 2)):
        _sift_up_max(heap, i)


def _heappop_max(heap: list[K]) -> K:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if heap:
        first = heap[0]
        heap[0] = last
        _sift_up_max(heap, 0)
        return first
    return last


def _heapreplace_max(heap: list[K], item: K) -> K:
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    _sift_up_max(heap, 0)
    return first


def _sift_up_max(heap: list[K], at: int) -> None:
    end, start, new = len(heap), at, heap[at]
    child = 2 * at + 1
    while child < end:
        right = child + 1
        if right < end and not heap[right] < heap[child]:
            child = right
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = new
    while at > start:
        above = (at - 1) >> 1
        if not heap[above] < new:
            break
        heap[at] = heap[above]
        at = above
    heap[at] = new


def _bisect_right(
    a: Sequence[T], x: Any, lo: int = 0, hi: int | None = None, *, key: Callable[[T], Any] | None = None
) -> int:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    hi = len(a) if hi is None else hi
    while lo < hi:
        middle = (lo + hi) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            hi = middle
        else:
            lo = middle + 1
    return lo


def _bisect_left(
    a: Sequence[T], x: Any, lo: int = 0, hi: int | None = None, *, key: Callable[[T], Any] | None = None
) -> int:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    hi = len(a) if hi is None else hi
    while lo < hi:
        middle = (lo + hi) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            hi = middle
    return lo


def _insort_right(
    a: MutableSequence[T], x: T, lo: int = 0, hi: int | None = None, *, key: Callable[[T], Any] | None = None
) -> None:
    a.insert(_bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)


def _insort_left(
    a: MutableSequence[T], x: T, lo: int = 0, hi: int | None = None, *, key: Callable[[T], Any] | None = None
) -> None:
    a.insert(_bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


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


def _substitute(
    pattern: re.Pattern[AnyStr], replace: Callable[[re.Match[AnyStr]], AnyStr | None], text: AnyStr, count: int
) -> tuple[AnyStr, int]:
    """`pattern.subn(replace, text, count)`."""
    parts = []
    at = number = 0
    for match in pattern.finditer(text):
        if count and number >= count:
            break
        if at < match.start():
            parts.append(text[at : match.start()])
        new = replace(match)
        if new is not None:
            parts.append(new)
        at = match.end()
        number += 1
    if at < len(text):
        parts.append(text[at:])
    return text[:0].join(parts), number


substitute = _substitute


class _Key:
    """What `functools.cmp_to_key` wraps an item in."""

    __slots__ = ("compare", "item")

    def __init__(self, item: object, compare: Callable[[Any, Any], float]) -> None:
        self.item, self.compare = item, compare

    def __lt__(self, other: _Key) -> bool:
        return bool(self.compare(self.item, other.item) < 0)


def _cmp_to_key(mycmp: Callable[[Any, Any], float]) -> Callable[[object], _Key]:
    return lambda item: _Key(item, mycmp)


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


def _table() -> tuple[dict[Any, Callable[..., Any]], dict[Any, Callable[..., Any]]]:
    # The originals are looked up here, not imported by name: some are private.
    import _bisect  # noqa: PLC0415
    import _collections  # type: ignore[import-not-found]  # noqa: PLC0415
    import _heapq  # noqa: PLC0415
    import functools  # noqa: PLC0415
    import itertools  # noqa: PLC0415

    iterators: dict[Any, Callable[..., object]] = {
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
    replaced: dict[Any, Callable[..., object]] = {
        itertools.tee: _tee,
        _collections._count_elements: _count_elements,
        _heapq.heappush: _heappush,
        _heapq.heappop: _heappop,
        _heapq.heapreplace: _heapreplace,
        _heapq.heappushpop: _heappushpop,
        _heapq.heapify: _heapify,
        _bisect.bisect_right: _bisect_right,
        _bisect.bisect_left: _bisect_left,
        _bisect.insort_right: _insort_right,
        _bisect.insort_left: _insort_left,
        functools.cached_property.__get__: _cached_property_get,
        functools.cmp_to_key: _cmp_to_key,
    }
    for function in (_heapify_max, _heappop_max, _heapreplace_max):
        if hasattr(_heapq, function.__name__):  # Python 3.14 has other names for them
            replaced[getattr(_heapq, function.__name__)] = function
    return iterators, replaced


ITERATORS, REPLACED = _table()
"""C iterator classes to generator functions that do the same, given iterators; C functions to functions that do the same."""
ITERATED: dict[str, tuple[int, ...]] = {
    "takewhile": (1,),
    "dropwhile": (1,),
    "filterfalse": (1,),
    "starmap": (1,),
    "compress": (0, 1),
}
"""Which arguments of these classes are iterated over; of the others the first one is."""
until = _until
"""`iter(function, sentinel)`."""
