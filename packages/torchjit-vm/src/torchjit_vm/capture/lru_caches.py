"""Functions with an LRU cache that the region makes: the cache is Python code, a real one is made where the function escapes."""

from __future__ import annotations

import functools
from typing import Any, cast

from torchjit_vm.capture import iteration, library
from torchjit_vm.capture.builtin_table import builtin, method
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.values import NEW, Args, BoundMethod, Const, DictValue, Known, Kwargs, Obj, TupleValue, Value
from torchjit_vm.frame import Frame

__all__ = ["call_cached", "is_made_cache", "lru_arguments"]

_WRAPPER: Any = functools._lru_cache_wrapper


class MadeCaches:
    """Functions with a cache that the region made, to what keeps their results; what makes such functions, with its settings."""

    def __init__(self) -> None:
        self.caches: dict[Obj, Value] = {}
        self.decorators: dict[Obj, tuple[Value, Value]] = {}


def is_made_cache(domain: CaptureDomain, value: Obj) -> bool:
    """Is it a function with a cache that the region made, or what makes one?"""
    made = domain.of(MadeCaches)
    return value in made.caches or value in made.decorators


@builtin(functools.lru_cache)
def _lru_cache(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
    given = {**dict(zip(("maxsize", "typed"), args, strict=False)), **kwargs}
    maxsize = given.get("maxsize", Const(128))
    if len(args) > 2 or not set(given) <= {"maxsize", "typed"}:
        return None
    if type(maxsize) is not Const:  # the function itself
        return _wrap(domain, maxsize, Const(128), Const(False))
    made = Obj(functools.partial)
    fixed = DictValue.of_names({"maxsize": maxsize, "typed": given.get("typed", Const(False))})
    made.attrs = {"func": Known(functools.lru_cache), "args": TupleValue([]), "keywords": fixed}
    domain.of(MadeCaches).decorators[made] = (maxsize, given.get("typed", Const(False)))
    return made


def _wrap(domain: CaptureDomain, function: Value, maxsize: Value, typed: Value) -> Value:
    cache = domain.vm.call(Known(library.LruCache), [function, maxsize, typed])
    made = Obj(_WRAPPER)
    domain.of(MadeCaches).caches[made] = cache
    parameters = Obj(functools.partial)  # of a function that gives a new dict each time
    bound = BoundMethod(Known(library.LruCache.parameters), cache)
    parameters.attrs = {"func": bound, "args": TupleValue([maxsize, typed]), "keywords": DictValue()}
    made.attrs["cache_parameters"] = parameters
    domain.vm.call(Known(functools.update_wrapper), [made, function])
    return made


def call_cached(domain: CaptureDomain, function: Obj, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
    """Call a function with a cache, or a decorator that makes one; None if it is neither."""
    decorator = domain.of(MadeCaches).decorators.get(function)
    if decorator is not None:
        return _wrap(domain, args[0], *decorator) if len(args) == 1 and not kwargs else None
    cache = domain.of(MadeCaches).caches.get(function)
    if cache is None:
        return None
    named = DictValue.of_names(kwargs)
    # In a loop of its own: a break inside would go on with this cache, while the function has become a real one.
    return domain.vm.call(Known(library.LruCache.call), [cache, TupleValue(list(args)), named], {})


def lru_arguments(domain: CaptureDomain, function: Obj) -> tuple[list[Value], list[Value]]:
    """What a real function with the same cache is made from: its settings, and for each entry arguments, keywords, result."""
    cache = cast(Obj, domain.of(MadeCaches).caches[function])
    size, typed, below, hits, misses = (cache.attrs[n] for n in ("maxsize", "typed", "function", "hits", "misses"))
    entries = [v for _, v in domain.pairs(cast(DictValue, cache.attrs["memo"]))]
    return [size, typed, below, hits, misses], entries


@method("cache_info", _WRAPPER)
def _info(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    cache = _cache(domain, args)
    if cache is None:
        return None
    found = domain.vm.call(Known(library.LruCache.info), [cache])
    return TupleValue(iteration.items_of(domain, found), functools._CacheInfo)


@method("cache_clear", _WRAPPER)
def _clear(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    cache = _cache(domain, args)
    return None if cache is None else domain.vm.call(Known(library.LruCache.clear), [cache])


def _cache(domain: CaptureDomain, args: Args) -> Value | None:
    function = args[0] if args else None
    return domain.of(MadeCaches).caches.get(function) if isinstance(function, Obj) and function.real is NEW else None
