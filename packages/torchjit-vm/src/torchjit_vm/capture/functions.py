"""Functions: making them, and binding arguments to their slots."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping, Sequence
from types import CodeType, FunctionType
from typing import cast

from torchjit_core.paths import Pinned
from torchjit_core.storing import how_made
from torchjit_vm.binding import bind as bind_for_real
from torchjit_vm.capture import dicts
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.reading import known_cell, pinned, wrap
from torchjit_vm.capture.reasons import ASYNC
from torchjit_vm.capture.values import Args, CellValue, Const, DictValue, FunctionValue, Kwargs, TupleValue, Value
from torchjit_vm.frame import Frame

__all__ = ["Facts", "KnownFunctions", "enter_known", "enter_value", "make_function", "set_function_attribute"]

_ASYNC = inspect.CO_ASYNC_GENERATOR


def make_function(domain: CaptureDomain, frame: Frame[Value], code: Value) -> Value:
    return FunctionValue(types.FunctionType, cast(Const, code).value, frame.globals)


def set_function_attribute(domain: CaptureDomain, function: Value, flag: int, value: Value) -> None:
    made = cast(FunctionValue, function)
    if flag == 1:
        made.defaults = domain.unpack_all(value)
    elif flag == 2:
        made.kwdefaults = cast(DictValue, value)
    elif flag == 4:
        made.annotations = value
    else:
        made.closure = domain.unpack_all(value)


def enter_value(domain: CaptureDomain, function: FunctionValue, args: Args, kwargs: Kwargs) -> Frame[Value]:
    """A frame for a call of a function that the region made, or that is known by its code."""
    code = function.code
    if code.co_flags & _ASYNC:
        raise domain.graph_break(ASYNC, function.qualname)
    slots = bind(domain, code, function.qualname, args, kwargs, function.defaults, function.kwdefaults)
    return domain.vm.new_frame(code, slots, list(function.closure), function.globals, function)


def enter_known(
    domain: CaptureDomain, value: Value, function: FunctionType, args: Args, kwargs: Kwargs
) -> Frame[Value]:
    """A frame for a call of a real function whose identity is settled; its code and defaults are guarded."""
    code = function.__code__
    if code.co_flags & _ASYNC:
        raise domain.graph_break(ASYNC, function.__qualname__)
    defaults, kwdefaults, closure = domain.of(KnownFunctions).get(function) or facts_of(domain, function)
    slots = bind(domain, code, function.__qualname__, args, kwargs, defaults, kwdefaults)
    return domain.vm.new_frame(code, slots, list(closure), function.__globals__, value)


Facts = tuple[list[Value], "DictValue | None", list[Value]]


class KnownFunctions(dict[FunctionType, Facts]):
    """Real functions to what is relied on of them: defaults, defaults of keywords, cells."""


def facts_of(domain: CaptureDomain, function: FunctionType) -> Facts:
    """Rely on a function's code and defaults; what they and its cells hold."""
    known = domain.of(KnownFunctions).get(function)
    if known is None:
        facts = _facts_of_polyfill if _is_polyfill(function) else _facts
        known = domain.of(KnownFunctions)[function] = facts(domain, function)
    return known


_OWN = frozenset({"torchjit_vm", "torchjit_fx", "torchjit_torch"})


def _is_polyfill(function: FunctionType) -> bool:
    """Is it torchjit's own, or made by it, which stands in for a function of a library? It never changes, nor do its cells."""
    return str(function.__globals__.get("__name__")).partition(".")[0] in _OWN or how_made(function) is not None


def _facts_of_polyfill(domain: CaptureDomain, function: FunctionType) -> Facts:
    """Nothing is relied on but what it is."""
    name = function.__qualname__
    defaults = [pinned(domain, v, f"{name}.__defaults__[{i}]") for i, v in enumerate(function.__defaults__ or ())]
    keywords = {
        k: pinned(domain, v, f"{name}.__kwdefaults__[{k!r}]") for k, v in (function.__kwdefaults__ or {}).items()
    }
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closure: list[Value] = [CellValue(pinned(domain, cell.cell_contents, f"{name}.<cell {k}>")) for k, cell in cells]
    return defaults, DictValue.of_names(keywords) if keywords else None, closure


def _facts(domain: CaptureDomain, function: FunctionType) -> Facts:
    path = Pinned.of(function, function.__qualname__)
    domain.guard_id(path.attr("__code__"), function.__code__)
    domain.guard_id(path.attr("__defaults__"), function.__defaults__)
    label = f"{function.__qualname__}.__defaults__"
    defaults = [pinned(domain, v, f"{label}[{i}]") for i, v in enumerate(function.__defaults__ or ())]
    kwdefaults: DictValue | None = None
    if function.__kwdefaults__ is not None or function.__code__.co_kwonlyargcount:
        where = path.attr("__kwdefaults__")
        if function.__kwdefaults__ is None:
            domain.guard_value(where, None)
        else:
            kwdefaults = cast(DictValue, wrap(domain, function.__kwdefaults__, where))
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closure = [known_cell(domain, cell, f"{function.__qualname__}.<cell {name}>") for name, cell in cells]
    return defaults, kwdefaults, closure


def bind(
    domain: CaptureDomain,
    code: CodeType,
    called: str,
    args: Sequence[Value],
    kwargs: Mapping[str, Value],
    defaults: Sequence[Value],
    kwdefaults: DictValue | None,
) -> list[Value | None]:
    """Values for the argument slots, in the order of `co_varnames`.

    Raises:
        Raised: TypeError, with CPython's text.
    """
    count = code.co_argcount
    flags = code.co_flags
    if not kwargs and len(args) == count and not code.co_kwonlyargcount and not flags & 12:
        return list(args)
    slots: list[Value | None] = [None] * (count + code.co_kwonlyargcount)
    rest: dict[str, Value] = {}
    ok = _place(code, args, kwargs, slots, rest)
    first = count - len(defaults)
    for i, slot in enumerate(slots):
        if slot is None and first <= i < count:
            slots[i] = defaults[i - first]
        elif slot is None and i >= count and kwdefaults is not None:
            slots[i] = dicts.dict_lookup(domain, kwdefaults, code.co_varnames[i])
    if not ok or None in slots:
        raise _binding_error(domain, code, called, args, kwargs, defaults, kwdefaults)
    if flags & inspect.CO_VARARGS:
        slots.append(TupleValue(list(args[count:])))
    if flags & inspect.CO_VARKEYWORDS:
        slots.append(DictValue.of_names(rest))
    return slots


def _place(
    code: CodeType,
    args: Sequence[Value],
    kwargs: Mapping[str, Value],
    slots: list[Value | None],
    rest: dict[str, Value],
) -> bool:
    """Put arguments into their slots, keywords without one into `rest`; False if that is an error."""
    positional = min(len(args), code.co_argcount)
    slots[:positional] = args[:positional]
    first, ok = code.co_posonlyargcount, positional == len(args) or bool(code.co_flags & inspect.CO_VARARGS)
    index = {n: i for i, n in enumerate(code.co_varnames[first : len(slots)], first)}
    for key, value in kwargs.items():
        at = index.get(key)
        if at is None:
            ok = ok and bool(code.co_flags & inspect.CO_VARKEYWORDS)
            rest[key] = value
        else:
            ok = ok and slots[at] is None
            slots[at] = value
    return ok


def _binding_error(
    domain: CaptureDomain,
    code: CodeType,
    name: str,
    args: Sequence[Value],
    kwargs: Mapping[str, Value],
    defaults: Sequence[Value],
    kwdefaults: DictValue | None,
) -> Exception:
    closure = tuple(types.CellType() for _ in code.co_freevars)
    twin = FunctionType(code, {}, code.co_name, tuple(None for _ in defaults), closure)
    twin.__qualname__ = name
    named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    if kwdefaults is not None:
        twin.__kwdefaults__ = {n: None for n in named if dicts.dict_lookup(domain, kwdefaults, n) is not None}
    placeholders: list[object] = [None] * len(args)
    try:
        bind_for_real(twin, placeholders, dict.fromkeys(kwargs))
    except TypeError as error:
        return domain.error(TypeError, str(error))
    raise AssertionError(f"arguments of {name} bind after all")
