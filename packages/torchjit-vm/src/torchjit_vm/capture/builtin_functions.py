"""Built-in functions: introspection, arithmetic over iterables, sorting."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import sys
import types
import typing
from collections.abc import Callable
from typing import cast

from torchjit_core.paths import Pinned
from torchjit_core.storing import never_stored
from torchjit_vm.capture import (
    attributes,
    classes,
    collecting,
    comparisons,
    dicts,
    formatting,
    iteration,
    keys,
    lengths,
    members,
    operators,
    packing,
    stores,
    subscripts,
)
from torchjit_vm.capture.atoms import stripped
from torchjit_vm.capture.builtin_table import Builtin, builtin, by_position
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.raw import constant_of, is_constant
from torchjit_vm.capture.reading import namespace
from torchjit_vm.capture.reasons import ADDRESS, OWN_FRAME, PROCESS_HASH, UNKNOWN_CALL
from torchjit_vm.capture.special_methods import checked, computed
from torchjit_vm.capture.type_slots import Op
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    NEW,
    Args,
    BoundMethod,
    CellValue,
    Const,
    DictValue,
    FunctionValue,
    IdValue,
    Known,
    Kwargs,
    Leaf,
    ListValue,
    Obj,
    TupleValue,
    Value,
)
from torchjit_vm.decode import VERSION
from torchjit_vm.frame import Frame
from torchjit_vm.type_labels import type_label


@builtin(type)
def _type(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
    if len(args) == 3:
        return classes.make_by_type(domain, args, kwargs)
    if len(args) != 1 or kwargs:
        return None
    return Known(type_of(domain, args[0]))


@builtin(callable)
def _callable(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    value = args[0]
    if isinstance(value, Known):
        return domain.constant(callable(value.obj))
    if isinstance(value, (BoundMethod, FunctionValue)):
        return domain.constant(True)
    member = members.find_member(domain, type_of(domain, value), "__call__")
    return domain.constant(member.kind != members.ABSENT)


@builtin(getattr)
def _getattr(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
    name = _name(domain, args[1])
    if len(args) == 2:
        return attributes.load_attr(domain, args[0], name)
    found = attributes.lookup(domain, args[0], name)
    return args[2] if found is None else found


def _name(domain: CaptureDomain, value: Value) -> str:
    value = stripped(domain, value)
    if type(value) is Const and isinstance(value.value, str):
        return str(domain.use(value))
    raise domain.error(TypeError, f"attribute name must be string, not '{type_label(type_of(domain, value))}'")


@builtin(vars)
def _vars(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if len(args) == 1 and isinstance(args[0], Obj) and not attributes.lies_elsewhere(args[0].cls):
        found = attributes.lookup(domain, args[0], "__dict__")
        if found is None:
            raise domain.error(TypeError, "vars() argument must have __dict__ attribute")
        return found
    if len(args) == 1 and isinstance(args[0], Known) and isinstance(args[0].obj, types.ModuleType):
        return namespace(domain, vars(args[0].obj))
    if len(args) == 1 and isinstance(args[0], Known) and isinstance(args[0].obj, type):
        return attributes.lookup(domain, args[0], "__dict__")
    if not args:
        raise domain.graph_break(OWN_FRAME, "vars")
    return None


def _looks_at_frame(function: Op, without: int) -> Builtin:
    """`function` looks at its caller's frame if it is called with at most so many arguments."""

    def call(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
        if len(args) + len(kwargs) > without:
            return None
        raise domain.graph_break(OWN_FRAME, function.__qualname__)

    return call


_LOOK: dict[Op, int] = {eval: 1, exec: 1, breakpoint: 0, sys._getframe: 1, inspect.currentframe: 0, inspect.stack: 1}
for _reader, _without in _LOOK.items():
    builtin(_reader)(_looks_at_frame(_reader, _without))


@builtin(locals)
def _locals(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    frame = domain.vm.frames[-1]
    if frame.namespace is not None:  # of a class body: the namespace itself
        return frame.namespace
    made = DictValue()
    for name, value in zip(frame.code.locals, frame.fast, strict=True):
        content = domain.cell_get(value) if type(value) is CellValue else value
        if content is not None:
            made.entries[name] = (Const(name), content)
    return made


@builtin(super)
def _super(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if len(args) == 2 and isinstance(args[0], Known):
        return attributes.make_super(domain, args[0].obj, args[1])
    if args:
        return None
    frame = domain.vm.frames[-1]
    if not frame.code.code.co_argcount:
        raise domain.error(RuntimeError, "super(): no arguments")
    try:
        cell = frame.fast[frame.code.locals.index("__class__")]
    except ValueError:
        raise domain.error(RuntimeError, "super(): __class__ cell not found") from None
    owner = None if cell is None else domain.cell_get(cell)
    first = frame.fast[0]
    if type(first) is CellValue:
        first = domain.cell_get(first)
    if not isinstance(owner, Known) or first is None:
        raise domain.error(RuntimeError, "super(): no arguments")
    return attributes.make_super(domain, owner.obj, first)


def _is_singleton(obj: object) -> bool:
    """Is each object that is equal to this one this one?"""
    return obj is None or type(obj) is bool or (type(obj) is int and -5 <= obj <= 256)


def _number_of(domain: CaptureDomain, obj: object) -> Const:
    domain.object_numbers.add(id(obj))
    never_stored(ADDRESS, f"id() of a {type(obj).__qualname__}")
    return Const(id(obj))


@builtin(id)
def _id(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    value = args[0]
    if isinstance(value, Known) and not classes.is_made(domain, value):
        return _number_of(domain, value.obj)
    if type(value) is Const and _is_singleton(value.value):
        never_stored(ADDRESS, f"id({value.value!r})")
        return Const(id(domain.use(value)))
    if type(value) is Leaf and domain.leaves.type_of(value.payload) in (int, float, bool, complex):
        raise domain.graph_break(UNKNOWN_CALL, "id() of a number")
    if isinstance(value, Obj) and value.real is not NEW and value.path is not None:
        domain.guard_id(value.path, value.real)
        return _number_of(domain, value.real)
    if isinstance(value, (Obj, Leaf)):
        return IdValue(value)
    raise domain.graph_break(UNKNOWN_CALL, "id() of an object that may be another one next time")


@builtin(dir)
def _dir(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    if not args:
        raise domain.graph_break(OWN_FRAME, "dir")
    return None


@builtin(hash)
def _hash(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    value = args[0]
    if isinstance(value, Obj):
        member = members.find_member(domain, value.cls, "__hash__")
        if type(member.raw) is types.FunctionType:
            found = cast(Value, operators.special_call(domain, value, "__hash__", []))
            if type(found) is IdValue:
                return found
            found = checked(domain, value, "__hash__", found, int, hash)
            return Const(keys.as_hash(domain.use(found))) if type(found) is Const else found
        value = stripped(domain, value, "__hash__")
    value = operators.settled(domain, value)
    if is_constant(domain, value) and not classes.is_made(domain, value):
        real = constant_of(domain, value)
        result = operators.compute(domain, hash, real)  # that something has no hash is so in each process
        if not _hashes_alike(real):
            never_stored(PROCESS_HASH, f"hash() of a {type(real).__qualname__}")
        return result
    keys.key_of(domain, value)  # which raises for what has no hash
    if type(value) is Obj:
        if members.find_member(domain, value.cls, "__hash__").raw is not object.__hash__:
            raise domain.graph_break(UNKNOWN_CALL, f"hash() of a {value.cls.__name__}")
        if value.real is not NEW and value.path is not None:
            domain.guard_id(value.path, value.real)
            never_stored(PROCESS_HASH, f"hash() of a {value.cls.__qualname__}")
            return Const(hash(value.real))
    if isinstance(value, (Obj, Leaf)):
        return IdValue(value, hash)
    raise domain.graph_break(UNKNOWN_CALL, "hash() of an object")


def _hashes_alike(real: object) -> bool:
    """Has this constant the same hash in each process? That of a NaN is made of its address, as most are."""
    if type(real) is tuple:
        return all(map(_hashes_alike, real))
    return isinstance(real, (int, float, complex)) and real == real


def _direct(domain: CaptureDomain, function: Op, args: Args, kwargs: Kwargs) -> Value | None:
    """Constants at capture, leaves to their handler; None for anything else."""
    names = (f"__{function.__name__}__", f"__r{function.__name__}__", "__float__", "__index__")
    args = [stripped(domain, a, *names) for a in args]
    if any(isinstance(a, Leaf) for a in (*args, *kwargs.values())):
        return operators.leaf_call(domain, function, args, kwargs)
    return computed(domain, function, args, kwargs)


def _numeric(domain: CaptureDomain, function: Op, args: Args, kwargs: Kwargs) -> Value | None:
    """By the method of the first argument's class, or the reflected one of the second's."""
    dunder, reflected = f"__{function.__name__}__", f"__r{function.__name__}__"
    if args and isinstance(args[0], Obj) and operators.defines(domain, args[0], dunder):
        found = operators.special_call(domain, args[0], dunder, [*args[1:], *kwargs.values()])
        if not operators.is_not_implemented(found):
            return found
    other = args[1] if len(args) == 2 and not isinstance(args[0], Leaf) else None
    if isinstance(other, Obj) and operators.defines(domain, other, reflected):
        found = operators.special_call(domain, other, reflected, [args[0]])
        if not operators.is_not_implemented(found):
            return found
    return _direct(domain, function, args, kwargs)


def _of_numbers(rule: Callable[..., Value | None], *functions: Op) -> None:
    for function in functions:
        builtin(function)(lambda domain, args, kwargs, function=function: rule(domain, function, args, kwargs))  # type: ignore[misc]


_of_numbers(_numeric, abs, round, divmod, pow, math.floor, math.ceil, math.trunc)
_of_numbers(_direct, math.sqrt, math.pow, math.log, math.exp, math.prod, math.isnan)


@builtin(sum)
def _sum(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    total = args[1] if len(args) > 1 else kwargs.get("start", Const(0))
    if type(args[0]) is Leaf and domain.leaves.handles(sum):
        return operators.leaf_call(domain, sum, args, kwargs)
    if issubclass(type_of(domain, total), (str, bytes, bytearray)):
        return operators.compute(domain, sum, (), type_of(domain, total)())  # which raises
    for item in collecting.each(domain, args[0]):
        total = operators.binary(domain, operator.add, total, item)
    return total


def _is_among(domain: CaptureDomain, iterable: Value, wanted: bool) -> Value:
    """`any`, or `all` by its opposite: is there an item of this truth?"""
    iterator = iteration.get_iter(domain, iterable)
    while (item := iteration.advance(domain, iterator)) is not None:
        if lengths.truth(domain, item) is wanted:
            return domain.constant(wanted)
    return domain.constant(not wanted)


def _is_none(value: Value | None) -> bool:
    return value is None or (type(value) is Const and value.value is None)


def _extreme(domain: CaptureDomain, function: Op, compare: Op, args: Args, kwargs: Kwargs) -> Value:
    """`max` or `min`."""
    key = None if _is_none(kwargs.get("key")) else kwargs["key"]
    if len(args) > 1 and "default" in kwargs:
        return operators.compute(domain, lambda: function(1, 2, default=3))  # which raises
    best: tuple[Value, Value] | None = None  # and what it is measured by
    for item in collecting.each(domain, args[0]) if len(args) == 1 else args:
        measure = item if key is None else domain.vm.call(key, [item])
        if best is None:
            best = item, measure
        elif key is None and Leaf in (type(item), type(best[0])):
            best = (operators.leaf_call(domain, function, [best[0], item]),) * 2
        elif lengths.truth(domain, comparisons.compare(domain, compare, measure, best[1])):
            best = item, measure
    if best is not None:
        return best[0]
    # Without a default it raises, in the words of this Python.
    return kwargs["default"] if "default" in kwargs else operators.compute(domain, function, ())


for _function, _compare in ((max, operator.gt), (min, operator.lt)):
    builtin(_function)(
        lambda domain, args, kwargs, function=_function, compare=_compare: _extreme(  # type: ignore[misc]
            domain, function, compare, args, kwargs
        )
    )


@builtin(sorted)
def _sorted(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    return ListValue(sort(domain, collecting.collected(domain, args[0]), kwargs))


def sort(domain: CaptureDomain, items: list[Value], kwargs: Kwargs) -> list[Value]:
    """A stable sort with `key` and `reverse`, by CPython's own sort over symbolic comparisons."""
    sorted_by = items if _is_none(kwargs.get("key")) else [domain.vm.call(kwargs["key"], [item]) for item in items]
    reverse = "reverse" in kwargs and _flag(domain, kwargs["reverse"])

    @functools.total_ordering
    class _Order:
        def __init__(self, index: int) -> None:
            self.index = index

        def __eq__(self, other: object) -> bool:
            return self is other

        def __lt__(self, other: _Order) -> bool:
            result = comparisons.compare(domain, operator.lt, sorted_by[self.index], sorted_by[other.index])
            return lengths.truth(domain, result)

    order = sorted((_Order(i) for i in range(len(items))), reverse=reverse)
    return [items[o.index] for o in order]


def _flag(domain: CaptureDomain, value: Value) -> bool:
    """What `sort` takes for `reverse`: versions of Python differ."""
    if type(value) is Const:
        real = domain.use(value)
        operators.compute(domain, lambda: sorted((), reverse=real))
    elif VERSION < (3, 12) and not isinstance(value, Leaf):
        return bool(domain.index(value))
    return lengths.truth(domain, value)


@builtin(print)
def _print(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    raise domain.graph_break(UNKNOWN_CALL, "print")


@builtin(functools.reduce)
def _reduce(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    result = args[2] if len(args) > 2 else None
    for item in collecting.each(domain, args[1]):
        result = item if result is None else domain.vm.call(args[0], [result, item])
    if result is None:
        raise domain.error(TypeError, "reduce() of empty iterable with no initial value")
    return result


@builtin(functools.partial)
def _partial(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    made = Obj(functools.partial)
    function, *rest = args
    keywords = DictValue()
    if isinstance(function, Obj) and function.cls is functools.partial:
        rest = [*iteration.items_of(domain, function.attrs["args"]), *rest]
        for key, value in packing.mapping_pairs(domain, function.attrs["keywords"]) or ():
            packing.map_add(domain, keywords, key, value)
        function = function.attrs["func"]
    for name, value in kwargs.items():
        dicts.dict_store(domain, keywords, name, Const(name), value)
    made.attrs.update(func=function, args=TupleValue(rest), keywords=keywords)
    return made


@builtin(sys.exc_info)
def _exc_info(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    handled = domain.vm.current
    if handled is None:
        return TupleValue([Const(None), Const(None), Const(None)])
    return TupleValue(domain.exception_triple(handled))


@builtin(sys.getrecursionlimit)
def _recursion_limit(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    limit = sys.getrecursionlimit()
    path = Pinned.of(sys, "sys")
    domain.guard_test(sys.getrecursionlimit, path, lambda _: sys.getrecursionlimit() == limit, f"limit is {limit}")
    return Const(limit)


@builtin(typing.cast)
def _cast(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    return args[1] if len(args) == 2 else kwargs.get("val")


def _operator(rule: Callable[..., Value], *functions: Op) -> None:
    for function in functions:
        builtin(function)(lambda domain, args, kwargs, function=function: rule(domain, function, *args))  # type: ignore[misc]


_operator(operators.binary, *operators.DUNDERS, *operators.INPLACE, operator.getitem)
_operator(comparisons.compare, *operators.RICH)
_operator(operators.unary, operator.neg, operator.pos, operator.invert)
_BY_POSITION: dict[object, Callable[..., Value | Frame[Value]]] = {
    hasattr: lambda domain, value, name: domain.constant(
        attributes.lookup(domain, value, _name(domain, name)) is not None
    ),
    setattr: lambda domain, value, name, content: stores.giving_none(
        stores.store_attr(domain, value, _name(domain, name), content)
    ),
    delattr: lambda domain, value, name: stores.giving_none(stores.delete_attr(domain, value, _name(domain, name))),
    globals: lambda domain: namespace(domain, domain.vm.frames[-1].globals),
    len: lengths.length,
    repr: lambda domain, value: formatting.to_text(domain, value, repr),
    format: lambda domain, value, spec=None: formatting.format_value(domain, value, 0, spec),
    any: lambda domain, iterable: _is_among(domain, iterable, True),
    all: lambda domain, iterable: _is_among(domain, iterable, False),
    **{
        function: lambda domain, value, function=function: operators.compute(domain, function, domain.index(value))
        for function in (bin, oct, hex)
    },
    sys.exception: lambda domain: Const(None) if domain.vm.current is None else domain.vm.current,
    operator.not_: lambda domain, value: domain.not_(value),
    operator.truth: lambda domain, value: domain.constant(lengths.truth(domain, value)),
    operator.is_: lambda domain, left, right: domain.constant(comparisons.is_(domain, left, right)),
    operator.is_not: lambda domain, left, right: domain.constant(not comparisons.is_(domain, left, right)),
    operator.contains: comparisons.contains,
    operator.index: lambda domain, value: Const(domain.index(value)),
}
for _builtin, _rule in _BY_POSITION.items():
    builtin(_builtin)(by_position(_rule))


@builtin(operator.setitem)
def _setitem(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value:
    subscripts.setitem(domain, args[0], args[1], args[2])
    return Const(None)


@builtin(operator.delitem)
def _delitem(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value:
    subscripts.delitem(domain, args[0], args[1])
    return Const(None)
