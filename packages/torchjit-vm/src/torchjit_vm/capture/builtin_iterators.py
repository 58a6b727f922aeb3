"""Iterator functions of builtins and itertools, and the methods of generators."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterable
from typing import Any, cast

from torchjit_vm.capture import collecting, coroutines, dicts, elements, iteration, lengths, library, members, operators
from torchjit_vm.capture.atoms import base_of
from torchjit_vm.capture.builtin_table import builtin, by_position, method, method_of
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.exceptions import new_exception
from torchjit_vm.capture.iteration import (
    ChainIterator,
    EnumerateIterator,
    FilterIterator,
    ListIterator,
    MapIterator,
    RangeIterator,
    SequenceIterator,
    ZipIterator,
)
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    Args,
    AtomObject,
    Const,
    DictValue,
    GeneratorValue,
    Known,
    Kwargs,
    Leaf,
    ListValue,
    Obj,
    SetValue,
    TupleValue,
    Value,
)
from torchjit_vm.decode import WARNS_OF_THROW
from torchjit_vm.frame import Raised
from torchjit_vm.type_labels import type_label


@builtin(iter)
def _iter(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if len(args) == 1:
        return iteration.get_iter(domain, args[0])
    if members.find_member(domain, type_of(domain, args[0]), "__call__").kind == members.ABSENT:
        return operators.compute(domain, iter, None, None)  # it raises
    return _library_iterator(domain, iter, library.until, args, {})


def _library_iterator(domain: CaptureDomain, original: Any, function: Any, args: Args, kwargs: Kwargs) -> Value:
    """A C iterator as a generator over the same arguments, of which those to iterate over are asked for iterators now."""
    if original is itertools.islice:
        args = [args[0], *_bounds(domain, args[1:])]
    if original is not iter:
        name = original.__name__
        places = range(len(args)) if original is itertools.zip_longest else library.ITERATED.get(name, (0,))
        args = [iteration.get_iter(domain, a) if i in places else a for i, a in enumerate(args)]
        kwargs = {k: iteration.get_iter(domain, v) if k in _ITERATED_NAMES else v for k, v in kwargs.items()}
    made = domain.vm.call(Known(function), args, kwargs)
    if type(made) is GeneratorValue:
        made.original = (original, list(args), dict(kwargs))
    return made


_ITERATED_NAMES = ("iterable", "data", "selectors")


def _bounds(domain: CaptureDomain, bounds: Args) -> Args:
    """Those of `islice`, checked as it checks them."""
    plain = [Const(domain.index(b)) if isinstance(b, Obj) else b for b in bounds]
    if all(type(b) is Const for b in plain):
        operators.compute(domain, itertools.islice, (), *(domain.use(b) for b in plain))
    return plain


def _register_library() -> None:
    for original, function in library.ITERATORS.items():
        builtin(original)(
            lambda domain, args, kwargs, original=original, function=function: _library_iterator(  # type: ignore[misc]
                domain, original, function, args, kwargs
            )
        )
    for original, function in library.REPLACED.items():
        builtin(original)(
            lambda domain, args, kwargs, function=function: domain.call(Known(function), args, kwargs)  # type: ignore[misc]
        )


_register_library()


def take_next(domain: CaptureDomain, iterator: Value, default: Value | None) -> Value:
    """`next(iterator, default)`, without a default if that is None."""
    returned: Value = Const(None)
    if isinstance(iterator, coroutines.AwaitIterator):
        iterator = iterator.coroutine
    elif type(iterator) is GeneratorValue and coroutines.is_coroutine(iterator):
        raise domain.error(TypeError, "'coroutine' object is not an iterator")
    if type(iterator) is GeneratorValue:
        done, item = iteration.resume(domain, iterator, Const(None))
        if not done:
            return item
        returned = item
    else:
        found = iteration.advance(domain, iterator)
        if found is not None:
            return found
    if default is not None:
        return default
    raise stop(domain, returned)


def stop(domain: CaptureDomain, value: Value) -> Raised:
    """StopIteration that carries a value."""
    nothing = type(value) is Const and value.value is None
    return domain.raised(new_exception(domain, StopIteration, [] if nothing else [value]))


@builtin(enumerate)
def _enumerate(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    start = args[1] if len(args) > 1 else kwargs.get("start", Const(0))
    iterable = args[0] if args else kwargs["iterable"]
    return EnumerateIterator(iteration.get_iter(domain, iterable), domain.index(start))


@builtin(zip)
def _zip(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    strict = "strict" in kwargs and lengths.truth(domain, kwargs["strict"])
    return ZipIterator([iteration.get_iter(domain, a) for a in args], strict)


@builtin(reversed)
def _reversed(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    value = args[0]
    cls = type_of(domain, value)
    member = members.find_member(domain, cls, "__reversed__")
    if member.kind == members.FUNCTION:
        return operators.special_call(domain, value, "__reversed__", [])
    if type(value) is Const and isinstance(value.value, range):
        return RangeIterator(domain.use(value)[::-1])
    if type(value) is ListValue and elements.plain_base(value.cls) is list:
        return SequenceIterator(value, len(elements.items(domain, value)) - 1, -1)
    if isinstance(value, DictValue):
        return ListIterator([k for k, _ in dicts.dict_pairs(domain, value)][::-1], value, "reversed")
    return _backwards(domain, value, member)


def _backwards(domain: CaptureDomain, value: Value, member: members.Member) -> Value:
    """By index from the end, as far as the class's `__reversed__`, the `member`, does not say otherwise."""
    cls = type_of(domain, value)
    getter = members.find_member(domain, cls, "__getitem__")
    of_c = isinstance(value, (ListValue, TupleValue, SetValue))
    if isinstance(value, Obj) and getter.kind == members.FUNCTION and not of_c:
        index = domain.index(lengths.length(domain, value)) - 1
        made = domain.vm.call(Known(library.backwards), [value, Const(index)])
        cast(GeneratorValue, made).original = (reversed, [value], {})
        return made
    if type(value) is not Leaf and (member.raw is None or getter.kind == member.kind == members.ABSENT):
        raise domain.error(TypeError, f"'{type_label(cls)}' object is not reversible")
    if type(value) is AtomObject:
        value = base_of(value)  # by its items, whatever its `__iter__` says
    if isinstance(value, (ListValue, TupleValue)):
        return ListIterator(elements.items(domain, value)[::-1])
    return ListIterator(iteration.items_of(domain, value)[::-1])


_BY_POSITION: dict[object, Callable[..., Value]] = {
    next: lambda domain, iterator, default=None: take_next(domain, iterator, default),
    map: lambda domain, function, *iterables: MapIterator(function, [iteration.get_iter(domain, i) for i in iterables]),
    filter: lambda domain, function, iterable: FilterIterator(
        None if type(function) is Const and function.value is None else function, iteration.get_iter(domain, iterable)
    ),
    itertools.chain: lambda domain, *iterables: ChainIterator(SequenceIterator(TupleValue([*iterables]))),
    itertools.chain.from_iterable: lambda domain, iterable: ChainIterator(iteration.get_iter(domain, iterable)),
    itertools.combinations: lambda domain, *args: _chosen(domain, itertools.combinations, *args),
    itertools.combinations_with_replacement: lambda domain, *args: _chosen(
        domain, itertools.combinations_with_replacement, *args
    ),
}
for _builtin, _rule in _BY_POSITION.items():
    builtin(_builtin)(by_position(_rule))


@builtin(itertools.repeat)
def _repeat(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    times = args[1] if len(args) > 1 else kwargs.get("times")
    if times is None:
        return iteration.RealIterator(None, args[0])
    return ListIterator([args[0]] * max(0, domain.index(times)))


@builtin(itertools.count)
def _count(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if kwargs or not all(isinstance(a, Const) for a in args):
        return None
    given = [domain.use(a) for a in args]
    operators.compute(domain, itertools.count, *given)  # which checks them
    return iteration.RealIterator(itertools.count(*given))


@builtin(itertools.product)
def _product(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    repeat = domain.index(kwargs["repeat"]) if "repeat" in kwargs else 1
    pools = [collecting.collected(domain, a) for a in args]
    return ListIterator([TupleValue(list(p)) for p in itertools.product(*pools, repeat=repeat)])


@builtin(itertools.permutations)
def _permutations(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    size = args[1] if len(args) > 1 else kwargs.get("r", Const(None))
    whole = type(size) is Const and size.value is None
    return _chosen(domain, itertools.permutations, args[0], None if whole else size)


def _chosen(
    domain: CaptureDomain, function: Callable[..., Iterable[tuple[Value, ...]]], iterable: Value, size: Value | None
) -> Value:
    """So many of the items, in each way; without a size all of them."""
    pool = collecting.collected(domain, iterable)
    count = len(pool) if size is None else domain.index(size)
    if count < 0:
        raise domain.error(ValueError, "r must be non-negative")
    return ListIterator([TupleValue(list(p)) for p in function(pool, count)])


# Generators.


_ITERATORS: tuple[type, ...] = (types.GeneratorType, zip, map, enumerate, filter, type(iter([])))
method("__iter__", *_ITERATORS)(lambda domain, args, kwargs: args[0])
method("__next__", *_ITERATORS, type(iter({})), type(iter(range(0))))(
    lambda domain, args, kwargs: take_next(domain, args[0], None)
)


@method_of(GeneratorValue, "send", types.GeneratorType, types.CoroutineType)
def _generator_send(domain: CaptureDomain, generator: GeneratorValue, args: Args, kwargs: Kwargs) -> Value | None:
    nothing = type(args[0]) is Const and args[0].value is None
    if not nothing and not (generator.started or generator.finished):
        text = f"can't send non-None value to a just-started {iteration.kind_of(generator)}"
        raise domain.error(TypeError, text)
    done, value = iteration.resume(domain, generator, args[0])
    if done:
        raise stop(domain, value)
    return value


@method_of(GeneratorValue, "throw", types.GeneratorType, types.CoroutineType)
def _generator_throw(domain: CaptureDomain, generator: GeneratorValue, args: Args, kwargs: Kwargs) -> Value | None:
    exception, cls = args[0], type_of(domain, args[0])
    if len(args) > 1:
        if WARNS_OF_THROW or not isinstance(args[1], Obj) or not issubclass(args[1].cls, BaseException):
            return None
        exception = args[1]  # as `contextlib` calls it
    elif type(exception) is Known and isinstance(exception.obj, type) and issubclass(exception.obj, BaseException):
        try:
            exception = domain.make_raise(exception, None)
        except Raised as raised:  # the generator sees it instead
            exception = raised.value
    elif not issubclass(cls, BaseException):
        text = f"exceptions must be classes or instances deriving from BaseException, not {type_label(cls)}"
        raise domain.error(TypeError, text)
    done, value = iteration.resume(domain, generator, Const(None), exception)
    if done:
        raise stop(domain, value)
    return value


@method_of(GeneratorValue, "__await__", types.CoroutineType)
def _await(domain: CaptureDomain, own: GeneratorValue, args: Args, kwargs: Kwargs) -> Value | None:
    return coroutines.AwaitIterator(own)


@method_of(GeneratorValue, "close", types.GeneratorType, types.CoroutineType)
def _generator_close(domain: CaptureDomain, own: GeneratorValue, args: Args, kwargs: Kwargs) -> Value | None:
    return iteration.close(domain, own)
