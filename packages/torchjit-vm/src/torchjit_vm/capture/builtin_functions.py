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
from typing import TYPE_CHECKING, cast

from torchjit_core.paths import Pinned
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
    slot_results,
    stores,
    subscripts,
)
from torchjit_vm.capture.atoms import stripped
from torchjit_vm.capture.builtin_table import Builtin, builtin
from torchjit_vm.capture.class_changes import is_made
from torchjit_vm.capture.directory import directory
from torchjit_vm.capture.raw import constant_of, is_constant
from torchjit_vm.capture.reading import namespace
from torchjit_vm.capture.reasons import OWN_FRAME, UNKNOWN_CALL
from torchjit_vm.capture.type_slots import Op
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    NEW,
    AtomObject,
    BoundMethod,
    CellValue,
    Const,
    DictValue,
    FunctionValue,
    IdValue,
    Known,
    Leaf,
    ListValue,
    Obj,
    TupleValue,
    Value,
)
from torchjit_vm.decode import VERSION
from torchjit_vm.frame import Frame
from torchjit_vm.type_labels import type_label

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

_Args = list[Value]
_Kwargs = dict[str, Value]


@builtin(type)
def _type(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | Frame[Value] | None:
    if len(args) == 3:
        return classes.make_by_type(domain, args, kwargs)
    if len(args) != 1 or kwargs:
        return None
    return Known(type_of(domain, args[0]))


@builtin(callable)
def _callable(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    value = args[0]
    if isinstance(value, Known):
        return domain.constant(callable(value.obj))
    if isinstance(value, (BoundMethod, FunctionValue)):
        return domain.constant(True)
    member = members.find_member(domain, type_of(domain, value), "__call__")
    return domain.constant(member.kind != members.ABSENT)


@builtin(getattr)
def _getattr(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | Frame[Value] | None:
    name = _name(domain, args[1])
    if len(args) == 2:
        return attributes.load_attr(domain, args[0], name)
    found = attributes.lookup(domain, args[0], name)
    return args[2] if found is None else found


@builtin(hasattr)
def _hasattr(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return domain.constant(attributes.lookup(domain, args[0], _name(domain, args[1])) is not None)


@builtin(setattr)
def _setattr(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | Frame[Value] | None:
    return stores.giving_none(stores.store_attr(domain, args[0], _name(domain, args[1]), args[2]))


@builtin(delattr)
def _delattr(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | Frame[Value] | None:
    return stores.giving_none(stores.delete_attr(domain, args[0], _name(domain, args[1])))


def _name(domain: CaptureDomain, value: Value) -> str:
    value = stripped(domain, value)
    if type(value) is Const and isinstance(value.value, str):
        return str(domain.use(value))
    raise domain.error(TypeError, f"attribute name must be string, not '{type_label(type_of(domain, value))}'")


@builtin(vars)
def _vars(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
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


@builtin(globals)
def _globals(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return namespace(domain, domain.vm.frames[-1].globals)


def _looks_at_frame(function: Op, without: int) -> None:
    """`function` looks at its caller's frame if it is called with at most so many arguments."""

    def call(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        if len(args) + len(kwargs) > without:
            return None
        raise domain.graph_break(OWN_FRAME, function.__qualname__)

    builtin(function)(call)


_LOOK: tuple[tuple[Op, int], ...] = (
    (eval, 1), (exec, 1), (breakpoint, 0), (sys._getframe, 1), (inspect.currentframe, 0), (inspect.stack, 1)
)  # fmt: skip
for _reader, _without in _LOOK:
    _looks_at_frame(_reader, _without)


@builtin(locals)
def _locals(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
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
def _super(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
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
    return Const(id(obj))


@builtin(id)
def _id(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    value = args[0]
    if isinstance(value, Known) and not is_made(domain, value):
        return _number_of(domain, value.obj)
    if type(value) is Const and _is_singleton(value.value):
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
def _dir(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if not args:
        raise domain.graph_break(OWN_FRAME, "dir")
    return directory(domain, args[0])


@builtin(hash)
def _hash(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    value = args[0]
    if isinstance(value, Obj):
        member = members.find_member(domain, value.cls, "__hash__")
        if type(member.raw) is types.FunctionType:
            found = cast(Value, operators.special_call(domain, value, "__hash__", []))
            if type(found) is IdValue:
                return found
            found = slot_results.checked(domain, value, "__hash__", found, int, hash)
            return Const(keys.as_hash(domain.use(found))) if type(found) is Const else found
        value = stripped(domain, value, "__hash__")
    value = operators.settled(domain, value)
    if is_constant(domain, value) and not is_made(domain, value):
        return operators.compute(domain, hash, constant_of(domain, value))
    keys.key_of(domain, value)  # which raises for what has no hash
    if type(value) is Obj:
        if members.find_member(domain, value.cls, "__hash__").raw is not object.__hash__:
            raise domain.graph_break(UNKNOWN_CALL, f"hash() of a {value.cls.__name__}")
        if value.real is not NEW and value.path is not None:
            domain.guard_id(value.path, value.real)
            return Const(hash(value.real))
    if isinstance(value, (Obj, Leaf)):
        return IdValue(value, hash)
    raise domain.graph_break(UNKNOWN_CALL, "hash() of an object")


@builtin(len)
def _len(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return lengths.length(domain, args[0])


@builtin(repr)
def _repr(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return formatting.to_text(domain, args[0], repr)


@builtin(format)
def _format(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return formatting.format_value(domain, args[0], 0, args[1] if len(args) > 1 else None)


@builtin(abs)
def _abs(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    value = stripped(domain, args[0], "__abs__")
    if isinstance(value, Obj):
        return operators.special_call(domain, value, "__abs__", [])
    return _direct(domain, abs, [value])


def _direct(domain: CaptureDomain, function: Op, args: _Args, kwargs: _Kwargs | None = None) -> Value | None:
    """Constants at capture, leaves to their handler; None for anything else."""
    kwargs = kwargs or {}
    names = (f"__{function.__name__}__", f"__r{function.__name__}__", "__float__", "__index__")
    args = [stripped(domain, a, *names) for a in args]
    everything = [*args, *kwargs.values()]
    if any(isinstance(a, Leaf) for a in everything):
        return operators.leaf_call(domain, function, args, kwargs)
    if all(is_constant(domain, a) for a in everything):
        real = {k: constant_of(domain, v) for k, v in kwargs.items()}
        return operators.compute(domain, functools.partial(function, **real), *(constant_of(domain, a) for a in args))
    return None


_NUMERIC: tuple[Op, ...] = (round, divmod, pow)
for _function in _NUMERIC:

    def _numeric_function(
        domain: CaptureDomain, args: _Args, kwargs: _Kwargs, function: Op = _function
    ) -> Value | None:
        dunder = f"__{function.__name__}__"
        if args and isinstance(args[0], (Obj, AtomObject)) and operators.defines(domain, args[0], dunder):
            found = operators.special_call(domain, args[0], dunder, [*args[1:], *kwargs.values()])
            if not (type(found) is Const and found.value is NotImplemented):
                return found
        reflected = f"__r{function.__name__}__"
        other = args[1] if len(args) == 2 and not isinstance(args[0], Leaf) else None
        if isinstance(other, Obj) and operators.defines(domain, other, reflected):
            found = operators.special_call(domain, other, reflected, [args[0]])
            if not operators.is_not_implemented(found):
                return found
        return _direct(domain, function, args, kwargs)

    builtin(_function)(_numeric_function)


_DIGITS: tuple[Op, ...] = (bin, oct, hex)
for _function in _DIGITS:
    builtin(_function)(
        lambda domain, args, kwargs, function=_function: operators.compute(domain, function, domain.index(args[0]))  # type: ignore[misc]
    )

_ROUNDED: tuple[Op, ...] = (math.floor, math.ceil, math.trunc)
for _function in _ROUNDED:

    def _rounded(domain: CaptureDomain, args: _Args, kwargs: _Kwargs, function: Op = _function) -> Value | None:
        dunder = f"__{function.__name__}__"
        if isinstance(args[0], (Obj, AtomObject)) and operators.defines(domain, args[0], dunder):
            return operators.special_call(domain, args[0], dunder, [])
        return _direct(domain, function, args, kwargs)

    builtin(_function)(_rounded)


@builtin(sum)
def _sum(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    total = args[1] if len(args) > 1 else kwargs.get("start", Const(0))
    if type(args[0]) is Leaf and domain.leaves.handles(sum):
        return operators.leaf_call(domain, sum, args, kwargs)
    if issubclass(type_of(domain, total), (str, bytes, bytearray)):
        return operators.compute(domain, sum, (), type_of(domain, total)())  # which raises
    for item in collecting.each(domain, args[0]):
        total = operators.binary(domain, operator.add, total, item)
    return total


@builtin(any)
def _any(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    iterator = iteration.get_iter(domain, args[0])
    while (item := iteration.advance(domain, iterator)) is not None:
        if lengths.truth(domain, item):
            return domain.constant(True)
    return domain.constant(False)


@builtin(all)
def _all(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    iterator = iteration.get_iter(domain, args[0])
    while (item := iteration.advance(domain, iterator)) is not None:
        if not lengths.truth(domain, item):
            return domain.constant(False)
    return domain.constant(True)


def _extreme(domain: CaptureDomain, function: Op, compare: Op, args: _Args, kwargs: _Kwargs) -> Value | None:
    key = kwargs.get("key")
    if key is not None and type(key) is Const and key.value is None:
        key = None
    if len(args) > 1 and "default" in kwargs:
        return operators.compute(domain, lambda: function(1, 2, default=3))  # which raises
    best: Value | None = None
    measure: Value | None = None  # of the best
    for item in collecting.each(domain, args[0]) if len(args) == 1 else args:
        of_item = item if key is None else domain.vm.call(key, [item])
        if best is None or measure is None:
            best, measure = item, of_item
        elif key is None and (isinstance(best, Leaf) or isinstance(item, Leaf)):
            best = measure = operators.leaf_call(domain, function, [best, item])
        elif lengths.truth(domain, comparisons.compare(domain, compare, of_item, measure)):
            best, measure = item, of_item
    if best is None:
        if "default" in kwargs:
            return kwargs["default"]
        return operators.compute(domain, function, ())  # which raises, in the words of this Python
    return best


@builtin(max)
def _max(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return _extreme(domain, max, operator.gt, args, kwargs)


@builtin(min)
def _min(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return _extreme(domain, min, operator.lt, args, kwargs)


@builtin(sorted)
def _sorted(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return ListValue(sort(domain, collecting.collected(domain, args[0]), kwargs))


def sort(domain: CaptureDomain, items: list[Value], kwargs: _Kwargs) -> list[Value]:
    """A stable sort with `key` and `reverse`, by CPython's own sort over symbolic comparisons."""
    key = kwargs.get("key")
    if key is None or (type(key) is Const and key.value is None):
        sorted_by = items
    else:
        sorted_by = [domain.vm.call(key, [item]) for item in items]
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
def _print(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    raise domain.graph_break(UNKNOWN_CALL, "print")


_MATH: tuple[Op, ...] = (
    math.sqrt,
    math.pow,
    math.log,
    math.exp,
    math.prod,
    math.isnan,
)
for _function in _MATH:
    builtin(_function)(
        lambda domain, args, kwargs, function=_function: _direct(domain, function, args, kwargs)  # type: ignore[misc]
    )


@builtin(functools.reduce)
def _reduce(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    result = args[2] if len(args) > 2 else None
    for item in collecting.each(domain, args[1]):
        result = item if result is None else domain.vm.call(args[0], [result, item])
    if result is None:
        raise domain.error(TypeError, "reduce() of empty iterable with no initial value")
    return result


@builtin(functools.partial)
def _partial(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
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
def _exc_info(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    handled = domain.vm.current
    if handled is None:
        return TupleValue([Const(None), Const(None), Const(None)])
    return TupleValue(domain.exception_triple(handled))


@builtin(sys.exception)
def _exception(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return Const(None) if domain.vm.current is None else domain.vm.current


@builtin(sys.getrecursionlimit)
def _recursion_limit(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    limit = sys.getrecursionlimit()
    path = Pinned.of(sys, "sys")
    domain.guard_test(sys.getrecursionlimit, path, lambda _: sys.getrecursionlimit() == limit, f"limit is {limit}")
    return Const(limit)


@builtin(typing.cast)
def _cast(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return args[1] if len(args) == 2 else kwargs.get("val")


def _asking(rule: Callable[..., Value], function: Op) -> Builtin:
    return lambda domain, args, kwargs: rule(domain, function, *args)


_operation: Op
for _operation in (*operators.DUNDERS, *operators.INPLACE, operator.getitem):
    builtin(_operation)(_asking(operators.binary, _operation))
for _operation in operators.RICH:
    builtin(_operation)(_asking(comparisons.compare, _operation))
for _operation in (operator.neg, operator.pos, operator.invert):
    builtin(_operation)(_asking(operators.unary, _operation))
builtin(operator.not_)(lambda domain, args, kwargs: domain.not_(args[0]))
builtin(operator.truth)(lambda domain, args, kwargs: domain.constant(lengths.truth(domain, args[0])))
builtin(operator.is_)(lambda domain, args, kwargs: domain.constant(comparisons.is_(domain, *args)))
builtin(operator.is_not)(lambda domain, args, kwargs: domain.constant(not comparisons.is_(domain, *args)))
builtin(operator.contains)(lambda domain, args, kwargs: comparisons.contains(domain, *args))
builtin(operator.index)(lambda domain, args, kwargs: Const(domain.index(args[0])))


@builtin(operator.setitem)
def _setitem(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    subscripts.setitem(domain, args[0], args[1], args[2])
    return Const(None)


@builtin(operator.delitem)
def _delitem(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    subscripts.delitem(domain, args[0], args[1])
    return Const(None)
