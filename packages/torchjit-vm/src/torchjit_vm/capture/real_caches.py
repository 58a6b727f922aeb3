"""Calls of functions with a real LRU cache: what the cache holds is relied on, and each call is counted once, in the run.

`functools` gives no way to look into a cache without changing it; the collector's view of the C object does.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final
from weakref import WeakKeyDictionary

from torchjit_core.guards import MISSING
from torchjit_core.paths import Pinned
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.keys import key_of
from torchjit_vm.capture.raw import constant_of, has_leaf, is_constant
from torchjit_vm.capture.reading import IMMUTABLE_ATOMS, constant_object, pinned
from torchjit_vm.capture.reasons import RAISED_INSIDE, UNKNOWN_CALL
from torchjit_vm.capture.reorderable_calls import cached_report, put_off
from torchjit_vm.capture.state import Tentative
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import NEW, Args, AtomObject, Const, Key, Known, Kwargs, Leaf, Obj, TupleValue, Value
from torchjit_vm.frame import Raised

__all__ = ["RealCache", "call_with_real_cache"]

_WRAPPER: Any = functools._lru_cache_wrapper
_OF_ARGUMENTS_ALONE = frozenset({"typing", "transformers.utils.import_utils"})
"""Modules whose cached functions read nothing but their arguments, and what is installed, so that it does not matter what the region
has changed."""


def _kinds() -> tuple[type, Any]:
    """The type of a bounded cache's entries, and the mark between arguments and keywords in a key."""

    @functools.lru_cache(1)
    def sample(**given: int) -> int:
        return len(given)

    sample(a=1)
    kind = next(r for r in gc.get_referents(sample) if isinstance(r, type) and r.__name__ == "_lru_list_elem")
    return kind, gc.get_referents(sample)[1][0]


_ENTRY, _MARK = _kinds()


@final
class RealCache:
    """What a function with an LRU cache holds. Source: lru_cache_tp_traverse in CPython's Modules/_functoolsmodule.c.

    Attributes:
        function: the function with the cache.
        below: what it calls.
        maxsize, typed: as given to `lru_cache`.
        table: its dict, of results (no limit) or of entries whose key and result only the collector shows.
    """

    __slots__ = ("below", "function", "maxsize", "table", "typed")

    def __init__(self, function: Any) -> None:
        self.function = function
        found = gc.get_referents(function)  # ..., table, function below, mark, type of entries, type of cache_info()
        end = len(found) - 1 - found[::-1].index(_ENTRY)
        self.table: dict[Key, object] = found[end - 3]
        self.below = found[end - 2]
        self.maxsize: int | None = _WRAPPER.cache_info(function).maxsize
        self.typed = bool(function.cache_parameters()["typed"])
        if type(self.table) is not dict or found[end - 1] is not _MARK:
            raise ValueError("a cache of another make")

    def key(self, args: list[object], kwargs: dict[str, object]) -> Key:
        """The key under which the result of a call is kept."""
        if not self.typed and not kwargs and len(args) == 1 and type(args[0]) in (int, str):
            return args[0]
        key = tuple(args)
        if kwargs:
            key += (_MARK, *(part for item in kwargs.items() for part in item))
        if self.typed:
            key += (*map(type, args), *map(type, kwargs.values()))
        return key

    def get(self, key: object) -> object:
        """The result that is kept, or MISSING; nothing is counted."""
        entry = self.table.get(key, MISSING)
        if entry is MISSING or self.maxsize is None:
            return entry
        found = gc.get_referents(self.function)
        for at in range(1, 3 * len(self.table), 3):  # key, result, type of entries, from the oldest on
            if found[at] is key or found[at] == key:
                return found[at + 1]
        return MISSING

    def is_full(self) -> bool:
        """Must an entry go for each new one? What the region relies on could be gone in the next call."""
        return self.maxsize is not None and len(self.table) >= self.maxsize


@final
class _Holds:
    """A guard: the cache holds a result that passes `same`."""

    __slots__ = ("_entry", "_key", "_limit", "_misses", "_same", "_table", "cache")

    def __init__(self, cache: RealCache, key: Key, same: Callable[[object], bool]) -> None:
        self.cache, self._key, self._same = cache, key, same
        self._table, self._limit = cache.table, 0 if cache.maxsize is None else cache.maxsize
        self._entry: object = MISSING
        self._misses = -1

    def __stored_state__(self) -> dict[str, object]:
        return {"function": self.cache.function, "key": self._key, "same": self._same}

    def __restore_state__(self, state: dict[str, Any]) -> None:
        _Holds.__init__(self, RealCache(state["function"]), state["key"], state["same"])

    def __call__(self, _: object) -> bool:
        table = self._table
        # An entry is given to another call only when a full cache misses one; one that was cleared away does not come back.
        if (
            self._limit
            and table.get(self._key) is self._entry
            and (len(table) < self._limit or _misses(self.cache) == self._misses)
        ):
            return True
        now = self.cache.get(self._key)
        if now is MISSING or not self._same(now):
            return False
        self._entry, self._misses = table.get(self._key), _misses(self.cache)
        return True


def _misses(cache: RealCache) -> int:
    misses: int = _WRAPPER.cache_info(cache.function).misses
    return misses


_made: WeakKeyDictionary[Callable[..., object], list[Key]] = WeakKeyDictionary()
"""Calls that were made at capture and that the program has not come to yet: function to keys."""


@final
class _Unless:
    """The call of the run, unless it was made at capture."""

    __slots__ = ("__name__", "_function", "_key")

    def __init__(self, function: Callable[..., object], key: Key) -> None:
        self._function, self._key = function, key
        self.__name__ = getattr(function, "__name__", "call")

    def __call__(self, *args: object, **kwargs: object) -> None:
        made = _made.get(self._function)
        if made and self._key in made:
            made.remove(self._key)
        else:
            self._function(*args, **kwargs)


@final
class _RaisesOnce:
    """The call of the run, which the capture has made already: the first time it raises what that one raised."""

    __slots__ = ("__name__", "_cache", "_error", "_key")

    def __init__(self, cache: RealCache, key: Key, error: Exception) -> None:
        self._cache, self._key = cache, key
        self._error: Exception | None = error
        self.__name__ = getattr(cache.function, "__name__", "call")

    def __call__(self, *args: object, **kwargs: object) -> object:
        error, self._error = self._error, None
        if error is not None and self._cache.key(list(args), kwargs) == self._key:
            raise error
        return self._cache.function(*args, **kwargs)


def _raise_once(domain: CaptureDomain, function: Known, instead: _RaisesOnce) -> None:
    """Let the instruction that breaks call `instead`, if it is what called the function."""
    stack = domain.vm.frames[-1].stack
    for i in range(len(stack) - 1, -1, -1):
        if stack[i] is function:
            stack[i] = Known(instead)
            return


def call_with_real_cache(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value:
    """A function with an LRU cache.

    What the cache holds for these arguments is the result, guarded without a call, and the call itself, which counts, is put
    off to the run. If it holds nothing, the function is called for real at capture, as it would be without capture, and the
    first run leaves the call out. Where the region has changed something that the function may read, such a call breaks the graph;
    a function of the library is interpreted, in one piece and without effects. One that only reports (`logger.warning_once`) is put
    off as a whole. Given a symbolic number it is interpreted too: the cache would ask for the number. The leaf handler is told then,
    so that it refuses what would show that the function runs in each call (`CaptureContext.state("kept_call")`).
    """
    given = [*args, *kwargs.values()]
    try:
        cache = RealCache(function.obj)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _refused(domain, function) from None
    report = cached_report(domain, function.obj, args, kwargs)
    if report is not None:
        return report
    if any(map(has_leaf, given)):
        if all(_is_number(domain, a) for a in given if has_leaf(a)):
            with _kept(domain, cache):
                return _interpret(domain, cache, args, kwargs)
        return _without(domain, function, cache, args, kwargs)  # the cache would keep it
    if not all(_is_settled(domain, a) for a in given):
        for value in given:
            key_of(domain, value)  # which raises where it cannot be hashed
        return _without(domain, function, cache, args, kwargs)
    real = [constant_of(domain, a) for a in args]
    named = {k: constant_of(domain, v) for k, v in kwargs.items()}
    try:
        key = cache.key(real, named)
        hash(key)
    except TypeError as error:
        raise domain.error(TypeError, str(error)) from None
    return _by_key(domain, function, cache, key, (args, kwargs, real, named))


class CountedCalls(Tentative):
    """How many of the calls that were put off only count a hit."""

    def __init__(self) -> None:
        self.number = 0


_Given = tuple[list[Value], "dict[str, Value]", list[object], "dict[str, object]"]


def _by_key(domain: CaptureDomain, function: Known, cache: RealCache, key: object, given: _Given) -> Value:
    args, kwargs, real, named = given
    result = cache.get(key)
    if result is MISSING:
        changed = domain.touched or domain.class_stores or len(domain.reordered) > domain.of(CountedCalls).number
        may_see = changed and cache.function.__module__ not in _OF_ARGUMENTS_ALONE
        if may_see or (cache.is_full() and _is_of_program(domain, cache)):
            return _without(domain, function, cache, args, kwargs)
        try:
            result = function.obj(*real, **named)
        except Exception as error:  # no cache keeps it: the function raises, or not, at each call
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next  # without this frame
            _raise_once(domain, function, _RaisesOnce(cache, key, error))
            raise domain.graph_break(RAISED_INSIDE, f"{type(error).__name__}: {error}") from None
        if _counts(domain, cache):
            _made.setdefault(function.obj, []).append(key)
    value = domain.constant(result) if type(result) is bool else constant_object(domain, result)
    if type(result).__module__ != "typing" or _is_of_program(domain, cache):
        # `typing` makes an equal type again, which no other process has before it comes here.
        _rely(domain, _Holds(cache, key, _same_as(result)), given, result)
    domain.of(CountedCalls).number += _count(domain, cache, key, args, kwargs)
    return value


def _rely(domain: CaptureDomain, test: _Holds, given: _Given, result: object) -> None:
    _, _, real, named = given
    function = test.cache.function
    texts = ", ".join([*map(repr, real), *(f"{k}={v!r}" for k, v in named.items())])
    what = (function, *map(id, real), *((k, id(v)) for k, v in named.items()))
    name = function.__qualname__
    domain.guard_test(what, Pinned.of(function, name), test, f"{name}({texts}) is {result!r}")


def _same_as(result: object) -> Callable[[object], bool]:
    """A test for an object, or for what cannot be told from it."""
    atoms = result if type(result) is tuple else (result,)
    if not all(type(atom) in IMMUTABLE_ATOMS for atom in atoms):
        return lambda now: now is result
    text = repr(result)
    return lambda now: now is result or (type(now) is type(result) and repr(now) == text)


def _counts(domain: CaptureDomain, cache: RealCache) -> bool:
    """May somebody look at what the cache counts? At those of the program, and where the code here is what runs."""
    return domain.barrier is None and _is_of_program(domain, cache)


def _is_of_program(domain: CaptureDomain, cache: RealCache) -> bool:
    """Nobody counts what a cache of the library does, nor changes what it keeps."""
    code = getattr(cache.below, "__code__", None)
    return code is None or domain.policy.is_user_code(code)


def _without(domain: CaptureDomain, function: Known, cache: RealCache, args: Args, kwargs: Kwargs) -> Value:
    """A call whose arguments have no key at capture: what the program would find in its cache is not known."""
    if _is_of_program(domain, cache):
        raise _refused(domain, function)
    return _interpret(domain, cache, args, kwargs)


def _count(domain: CaptureDomain, cache: RealCache, key: object, args: Args, kwargs: Kwargs) -> bool:
    """Make the call in the run, if that counts."""
    if not _counts(domain, cache):
        return False
    made = key in _made.get(cache.function, ())
    put_off(domain, _Unless(cache.function, key) if made else cache.function, args, kwargs)
    return True


@contextmanager
def _kept(domain: CaptureDomain, cache: RealCache) -> Iterator[None]:
    """Inside, a function of the program runs whose result its cache would keep; of nested ones the outermost counts."""
    before = domain.state("kept_call")
    if before is None and _is_of_program(domain, cache):
        domain.set_state("kept_call", domain.mark())
    try:
        yield
    finally:
        domain.set_state("kept_call", before)


def _interpret(domain: CaptureDomain, cache: RealCache, args: Args, kwargs: Kwargs) -> Value:
    """Interpret the function below the cache, in one piece and without effects."""
    below = pinned(domain, cache.below, cache.function.__qualname__)
    try:
        with domain.without_effects():
            return domain.vm.call(below, args, kwargs)
    except Raised as raised:
        # The capture starts again and breaks here, as after a break below; then the call raises for real.
        domain.nested_stack = domain.stack()
        raise domain.graph_break(RAISED_INSIDE, type_of(domain, raised.value).__name__) from None


def _is_number(domain: CaptureDomain, value: Value) -> bool:
    """A number that only the leaf handler knows (a symbolic size), or a tuple with such numbers."""
    if isinstance(value, TupleValue):
        return all(_is_number(domain, v) for v in value.items or () if has_leaf(v))
    return type(value) is Leaf and domain.leaves.type_of(value.payload) in (int, float, bool, complex)


def _is_settled(domain: CaptureDomain, value: Value) -> bool:
    """A constant, or an object of the program that nothing was stored to: it can be given to C code, under its identity."""
    if isinstance(value, Obj) and not isinstance(value, (TupleValue, AtomObject)) and value.real is not NEW:
        return value.path is not None and not value.written and value.cls.__hash__ is not None
    return isinstance(value, (Const, Known)) or (isinstance(value, TupleValue) and is_constant(domain, value))


def _refused(domain: CaptureDomain, function: Known) -> Exception:
    return domain.graph_break(UNKNOWN_CALL, f"{function.obj.__module__}.{function.obj.__qualname__}, which has a cache")
