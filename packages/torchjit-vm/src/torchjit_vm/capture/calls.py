"""Calls: finding out once per callable what a call of it means."""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from torchjit_core.paths import Pinned
from torchjit_core.reasons import GraphBreak, Reason, UserError
from torchjit_core.showing import shown
from torchjit_core.storing import never_stored
from torchjit_vm.capture import (
    atoms,
    attributes,
    class_checks,
    collecting,
    dicts,
    functions,
    interception,
    iteration,
    keys,
    library,
    library_numbers,
    members,
    packing,
)
from torchjit_vm.capture.builtin_table import method_of
from torchjit_vm.capture.builtins import BUILTINS, METHODS
from torchjit_vm.capture.construct import instantiate
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.lru_caches import call_cached
from torchjit_vm.capture.operators import leaf_call
from torchjit_vm.capture.pass_through import pass_through
from torchjit_vm.capture.policy import (
    AtomicPolyfill,
    DeferredHandle,
    DictChainGetattr,
    Foldable,
    IsKnownNumber,
    LeftAlone,
    PassThrough,
    ReturnConstant,
)
from torchjit_vm.capture.pure import is_opaque, is_pure
from torchjit_vm.capture.raw import has_leaf, is_constant, to_raw
from torchjit_vm.capture.reading import constant_object, pinned
from torchjit_vm.capture.real_caches import call_with_real_cache
from torchjit_vm.capture.reasons import (
    CLASS_BODY,
    CONSTANT_RESULT,
    NOT_INLINED,
    OPAQUE_ITERATOR,
    OWN_FRAME,
    RAISED_INSIDE,
    UNKNOWN_CALL,
)
from torchjit_vm.capture.reorderable_calls import defer_or_break
from torchjit_vm.capture.special_methods import computed
from torchjit_vm.capture.type_slots import SLOTS, TypeSlots, register
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
    Args,
    AtomObject,
    BoundMethod,
    Const,
    DictValue,
    FunctionValue,
    IdValue,
    Known,
    Kwargs,
    Leaf,
    Obj,
    TupleValue,
    Value,
)
from torchjit_vm.frame import Frame, Raised
from torchjit_vm.type_labels import type_label

__all__ = ["Callee", "call", "call_ex", "keywords"]

Callee: TypeAlias = "Callable[[CaptureDomain, Known, list[Value], dict[str, Value]], Value | Frame[Value]]"


class Callees(dict[int, Callee]):
    """Ids of real callables to what calls of them mean."""


def call(domain: CaptureDomain, function: Value, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
    """Call a value.

    Returns:
        The result, or the frame of interpreted code to enter.

    Raises:
        Raised: the call raises.
        GraphBreak: the call must run for real.
    """
    while type(function) is BoundMethod:
        args = [function.self_, *args]
        function = function.function
    if type(function) is Known:
        callee = domain.of(Callees).get(id(function.obj))
        if callee is None:
            callee = domain.of(Callees)[id(function.obj)] = _callee(domain, function.obj)
        return callee(domain, function, args, kwargs)
    return (SLOTS[type(function)].call or _by_class)(domain, function, args, kwargs)


def _call_partial(domain: CaptureDomain, function: Obj, args: Args, kwargs: Kwargs) -> Value | Frame[Value] | None:
    cached = call_cached(domain, function, args, kwargs)
    if cached is not None or function.cls is not functools.partial:
        return cached
    inner, first, fixed = (function.attrs[n] for n in ("func", "args", "keywords"))
    merged = {cast(str, keys.key_of(domain, k)): v for k, v in packing.mapping_pairs(domain, fixed) or ()}
    return call(domain, inner, [*iteration.items_of(domain, first), *args], {**merged, **kwargs})


method_of(Obj, "__call__", functools.partial)(_call_partial)
method_of(Obj, "__call__", functools._lru_cache_wrapper)(call_cached)


def _call_object(domain: CaptureDomain, function: Obj, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
    if function.real is not NEW and function.cls is not functools.partial and domain.claimed(function.real):
        if function.path is not None:
            domain.guard_id(function.path, function.real)
        return call(domain, Known(function.real), args, kwargs)
    return _by_class(domain, function, args, kwargs)


def _by_class(domain: CaptureDomain, function: Value, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
    """By the `__call__` of the class."""
    cls = type_of(domain, function)
    member = members.find_member(domain, cls, "__call__")
    if member.kind == members.FUNCTION:
        return call(domain, members.member_value(domain, member), [function, *args], kwargs)
    if member.kind == members.ABSENT:
        raise domain.error(TypeError, f"'{type_label(cls)}' object is not callable")
    if member.kind == members.CMETHOD:
        known = METHODS.get(id(member.raw))
        answer = None if known is None else known(domain, [function, *args], kwargs)
        if answer is None:
            raise _unknown(domain, function, args)
        return answer
    bound = domain.vm.finish(attributes.bind(domain, member, function))
    return call(domain, bound, args, kwargs)


def _call_made(domain: CaptureDomain, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
    if function.attrs:
        for mark, reason in domain.policy.disabling_marks.items():
            said = function.attrs.get(mark)
            if type(said) is Const:
                raise domain.graph_break(reason, ": ".join(filter(None, (function.qualname, said.value))))
    return functions.enter_value(domain, function, args, kwargs)


register(FunctionValue, TypeSlots(call=_call_made))
register(Obj, TypeSlots(call=_call_object))
register(
    Leaf,
    TypeSlots(call=lambda domain, self, args, kwargs: leaf_call(domain, operator_call, [self, *args], kwargs)),
)


def operator_call(function: Callable[..., object], /, *args: object, **kwargs: object) -> object:
    """What the leaf handler is asked to do when a leaf is called."""
    return function(*args, **kwargs)


def _callee(domain: CaptureDomain, obj: object) -> Callee:
    """Decide what calls of a real callable mean: the first of the rules that knows it says so."""
    return next(callee for rule in _RULES if (callee := rule(domain, obj)) is not None)


def _by_policy(domain: CaptureDomain, obj: object) -> Callee | None:
    """What the policy says of this very object."""
    policy = domain.policy
    try:
        substitute = policy.substitutes.get(obj, DELETED)
        if substitute is not DELETED:
            return _substituted(domain, substitute)
        if type(obj) is types.BuiltinFunctionType and isinstance(obj.__self__, type):
            member = members.find_member(domain, obj.__self__, obj.__name__)
            if type(member.raw) is types.ClassMethodDescriptorType and member.raw in policy.substitutes:
                return _substituted(domain, policy.substitutes[member.raw], Known(obj.__self__))
        if obj in policy.assume_constant:
            return _assume_constant
        if obj in policy.reorderable:
            return lambda domain, function, args, kwargs: defer_or_break(domain, function.obj, args, kwargs)
    except TypeError:  # unhashable
        return None
    if policy.interception is not None and obj in (policy.interception.push, policy.interception.pop):
        return interception.push if obj is policy.interception.push else interception.pop
    return None


def _disabled(domain: CaptureDomain, obj: object) -> Callee | None:
    alone = domain.policy.disabled(obj)
    return None if alone is None else _left_alone(alone, shown(obj))


def _in_graph(domain: CaptureDomain, obj: object) -> Callee | None:
    try:
        allowed = obj in domain.policy.allow_in_graph
    except TypeError:  # unhashable
        allowed = False
    if not allowed and not domain.leaves.handles(obj):
        return None
    return lambda domain, function, args, kwargs: leaf_call(domain, function.obj, args, kwargs)


def _of_python(domain: CaptureDomain, obj: object) -> Callee | None:
    """Functions written in Python, and classes."""
    opaque = isinstance(obj, (types.FunctionType, type)) and is_opaque(obj)
    if isinstance(obj, type):
        if _is_said_pure(domain, obj):
            return _pure
        return _breaking(UNKNOWN_CALL, f"{obj.__module__}.{obj.__qualname__}") if opaque else _class
    if not isinstance(obj, types.FunctionType):
        return None
    dispatcher = _dispatcher(obj)
    if dispatcher is not None:
        return dispatcher
    if opaque:
        return _breaking(UNKNOWN_CALL, f"{obj.__module__}.{obj.__qualname__}")
    if obj.__name__ in _STOPS and str(obj.__globals__.get("__name__")).partition(".")[0] in _DEBUGGERS:
        return _breaking(OWN_FRAME, obj.__qualname__)
    if obj.__module__ == library.__name__ or domain.policy.inline(obj):
        return _inlined
    return _breaking(NOT_INLINED, f"{obj.__module__}.{obj.__qualname__}")


_STOPS = frozenset({"set_trace", "breakpoint", "embed"})
_DEBUGGERS = frozenset({"IPython", "_pytest", "bdb", "debugpy", "ipdb", "pdb", "pudb", "remote_pdb", "rpdb", "web_pdb"})
"""Packages whose functions of these names show the caller's line and locals, as `breakpoint` does."""


def _is_said_pure(domain: CaptureDomain, obj: object) -> bool:
    return any(obj is known for known in domain.policy.pure)  # a comparison could be the program's


def _of_c(domain: CaptureDomain, obj: object) -> Callee:
    return _pure if _is_said_pure(domain, obj) or is_pure(obj) else _CALLEES.get(type(obj), _instance)


def _builtin(domain: CaptureDomain, obj: object) -> Callee | None:
    try:
        found = BUILTINS.get(obj)
    except TypeError:
        found = None
    if found is None:
        method = METHODS.get(id(obj))
        if method is None:
            return None
        found = method
    implementation = found

    def run(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
        result = implementation(domain, args, kwargs)
        return _unknown_call(domain, function, args, kwargs) if result is None else result

    return run


def _breaking(why: Reason, detail: str) -> Callee:
    def run(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value:
        raise domain.graph_break(why, detail)

    return run


def _left_alone(alone: LeftAlone, name: str) -> Callee:
    def run(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value:
        said = [alone.said]
        if alone.says_argument:
            said += [v.value for v in (*args, *kwargs.values()) if type(v) is Const and type(v.value) is str]
        named = _name_of(domain, args[0]) if alone.names_argument and args else name
        detail = ": ".join(filter(None, [named, *said]))
        if alone.forbidden:
            where = domain.location()
            raise UserError(alone.reason, f"{detail}\n    {where.render()}" if where is not None else detail)
        raise domain.graph_break(alone.reason, detail)

    return run


def _name_of(domain: CaptureDomain, value: Value) -> str:
    """The name of a class, or of an object's class."""
    cls = value.obj if isinstance(value, Known) and isinstance(value.obj, type) else type_of(domain, value)
    return str(cls.__qualname__)


def _substituted(domain: CaptureDomain, substitute: object, *first: Value) -> Callee:
    """`first`: what the original was bound to."""
    if isinstance(substitute, ReturnConstant):
        constant, pretended = substitute.value, substitute.pretended
        unpretended, plain = substitute.unpretended, substitute.plain

        def told(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
            if unpretended and domain.vm.frames and domain.vm.frames[-1].code.code in unpretended:
                return constant_object(domain, plain)
            domain.pretended = domain.pretended or pretended
            return constant_object(domain, constant)

        return told
    if isinstance(substitute, DeferredHandle):
        take = substitute.take
        return lambda domain, function, args, kwargs: IdValue(Obj(object), take)
    if isinstance(substitute, IsKnownNumber):
        return lambda domain, function, args, kwargs: Const(type(args[0]) in (IdValue, Const))
    if isinstance(substitute, DictChainGetattr):
        names = substitute.dicts
        return lambda domain, function, args, kwargs: _dict_chain(domain, names, args)
    if isinstance(substitute, PassThrough):
        rule = substitute
        return lambda domain, function, args, kwargs: pass_through(domain, rule, function, args, kwargs)
    if isinstance(substitute, AtomicPolyfill):
        piece = Known(substitute.function)
        return lambda domain, function, args, kwargs: _in_one_piece(domain, piece, [*first, *args], kwargs)
    if isinstance(substitute, Foldable):
        interpreted, original = Known(substitute.function), Known(substitute.original)

        def folded(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
            args = [*first, *args]
            if all(is_constant(domain, value) for value in (*args, *kwargs.values())):
                return _pure(domain, original, args, kwargs)
            return call(domain, interpreted, args, kwargs)

        return folded
    replacement = Known(substitute)
    return lambda domain, function, args, kwargs: call(domain, replacement, [*first, *args], kwargs)


def _in_one_piece(domain: CaptureDomain, function: Value, args: Args, kwargs: Kwargs) -> Value:
    try:
        return domain.vm.call(function, args, kwargs)
    except Raised as raised:
        # The capture starts again and breaks here, as after a break below; then the original raises for real.
        domain.nested_stack = domain.stack()
        raise domain.graph_break(RAISED_INSIDE, _text_of(domain, raised.value)) from None


def _text_of(domain: CaptureDomain, exception: Value) -> str:
    name = type_of(domain, exception).__name__
    args = attributes.instance_attr(domain, exception, "args") if isinstance(exception, Obj) else None
    first = args.items[0] if isinstance(args, TupleValue) and args.items else None
    return f"{name}: {first.value}" if type(first) is Const else name


def _dict_chain(domain: CaptureDomain, names: tuple[str, ...], args: list[Value]) -> Value:
    self_ = cast(Obj, args[0])
    name = domain.use(args[1])
    for where in names:
        found = attributes.instance_attr(domain, self_, where)
        if isinstance(found, DictValue):
            item = dicts.dict_lookup(domain, found, name)
            if item is not None:
                return item
    raise domain.error(AttributeError, f"'{type_label(self_.cls)}' object has no attribute '{name}'")


def _inlined(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
    return functions.enter_known(domain, function, function.obj, args, kwargs)


def _class(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
    result = instantiate(domain, function, args, kwargs)
    return _unknown_call(domain, function, args, kwargs) if result is None else result


def _assume_constant(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value:
    real = [to_raw(domain, a) for a in args]
    try:
        result = function.obj(*real, **{k: to_raw(domain, v) for k, v in kwargs.items()})
    except Exception:  # the run for real shows the program its error
        return _unknown_call(domain, function, args, kwargs)
    never_stored(CONSTANT_RESULT, function.obj.__qualname__)
    return constant_object(domain, result)


def _pure(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value:
    if args and type(args[0]) is AtomObject and atoms.c_base(getattr(function.obj, "__objclass__", object)) is not None:
        args = [atoms.base_of(args[0]), *args[1:]]  # C methods of str, int ... work on what the object is
    if getattr(function.obj, "__objclass__", None) is re.Pattern:
        args = [
            atoms.base_of(arg) if type(arg) is AtomObject else arg for arg in args
        ]  # and so do those that read a text
    if domain.library_values and len(args) == 1 and not kwargs:
        number = library_numbers.converted(domain, function.obj, args[0])
        if number is not None:
            return number
    result = computed(domain, function.obj, args, kwargs)
    if result is not None:
        return result
    return _unknown_call(domain, function, args, kwargs)


_DISPATCH = next(
    c for c in functools.singledispatch.__code__.co_consts if isinstance(c, types.CodeType) and c.co_name == "dispatch"
)


def _dispatcher(obj: types.FunctionType) -> Callee | None:
    """`dispatch(cls)` of a single-dispatch function: looked up at capture, the registry is relied on."""
    if obj.__code__ is not _DISPATCH:
        return None
    registry: Any = inspect.getclosurevars(obj).nonlocals["registry"]

    def run(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
        if len(args) != 1 or not (type(args[0]) is Known and isinstance(args[0].obj, type)):
            return _inlined(domain, function, args, kwargs)
        path = Pinned.of(registry, f"{obj.__qualname__}.registry")
        domain.guard_keys(path, tuple(registry))
        for cls, implementation in registry.items():
            domain.guard_id(path.item(cls), implementation)
        chosen = class_checks.rely_on_dispatch(domain, obj, args[0].obj)
        return pinned(domain, chosen, f"{obj.__qualname__}({args[0].obj.__qualname__})")

    return run


def _method_wrapper(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
    """A slot method bound to an object, such as `object.__setattr__.__get__`."""
    owner, name = function.obj.__self__, function.obj.__name__
    if name == "__get__" and args and type(args[0]) is Leaf:  # of a property, as interceptors are given it
        read: Any = owner.fget if isinstance(owner, property) else owner
        return attributes.load_attr(domain, args[0], read.__name__)
    raw = getattr(type(owner), name, None)
    if not isinstance(raw, types.WrapperDescriptorType):
        return _unknown_call(domain, function, args, kwargs)
    return call(domain, Known(raw), [pinned(domain, owner, f"{name}.__self__"), *args], kwargs)


def _instance(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value | Frame[Value]:
    """An identified object that is neither function nor class: an enum member, a static method object ..."""
    obj = function.obj
    if isinstance(obj, staticmethod):
        return call(domain, Known(obj.__func__), args, kwargs)
    member = members.find_member(domain, type(obj), "__call__")
    if member.kind == members.FUNCTION:
        return call(domain, members.member_value(domain, member), [function, *args], kwargs)
    return _unknown_call(domain, function, args, kwargs)


def _unknown_call(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value:
    """A C function: the leaf handler may know it if a leaf is among the arguments."""
    if function.obj is __build_class__:
        raise domain.graph_break(CLASS_BODY)
    if function.obj in _GENERATOR_METHODS:
        raise domain.graph_break(OPAQUE_ITERATOR, "generator")  # a real one, advanced between two regions
    scalar = getattr(function.obj, "__module__", None) in _SCALAR_MODULES
    if scalar and (any(map(has_leaf, args)) or any(map(has_leaf, kwargs.values()))):
        return leaf_call(domain, function.obj, args, kwargs)
    raise _unknown(domain, function, args)


_GENERATOR_METHODS = (types.GeneratorType.send, types.GeneratorType.throw, types.GeneratorType.close)
_SCALAR_MODULES = frozenset({"builtins", "math", "operator", "_operator"})


def _unknown(domain: CaptureDomain, function: Value, args: list[Value]) -> GraphBreak:
    obj = getattr(function, "obj", None)
    name = getattr(obj, "__qualname__", None) or type_of(domain, function).__name__
    module = getattr(obj, "__module__", None)
    return domain.graph_break(UNKNOWN_CALL, f"{module}.{name}" if module else name)


_CALLEES: dict[type, Callee] = {
    functools._lru_cache_wrapper: call_with_real_cache,
    types.MethodWrapperType: _method_wrapper,
    types.ClassMethodDescriptorType: _unknown_call,
}
_RULES: tuple[Callable[[CaptureDomain, object], Callee | None], ...] = (
    *(_by_policy, _disabled, _in_graph, _builtin, _of_python, _of_c),
)


def call_ex(domain: CaptureDomain, function: Value, args: Value, kwargs: Value | None) -> Value | Frame[Value]:
    """`function(*args, **kwargs)`."""
    if iteration.refuses_iteration(domain, args):
        kind = type_label(type_of(domain, args))
        name = packing.call_name(function)
        raise domain.error(TypeError, f"{name} argument after * must be an iterable, not {kind}")
    positional = collecting.collected(domain, args)
    named: dict[str, Value] = {}
    if kwargs is not None:
        for key, value in packing.mapping_pairs(domain, kwargs) or ():
            named[cast(str, keys.key_of(domain, key))] = value
    return domain.call(function, positional, named)


def keywords(domain: CaptureDomain, names: Value) -> tuple[str, ...]:
    """The keyword names of a call, a constant tuple."""
    found: tuple[str, ...] = domain.use(names)
    return found
